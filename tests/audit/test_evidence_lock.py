"""Locks of proven runs: the file, what is not as locked, and digests of results."""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from proven_runs import PRESENT, RESULTS, changed, locked

from backendcfg.audit.evidence import lock, prove
from backendcfg.audit.evidence.drift import differing, drifts
from backendcfg.audit.evidence.present import package_of
from backendcfg.audit.evidence.results import MOST_FILES, results_of
from backendcfg.audit.evidence.runs import Side
from backendcfg.errors import InvalidLockError, UnreadableFileError, UnsupportedSchemaError
from backendcfg.transact import disk


@pytest.fixture(name="path")
def _path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return "run.lock"


# --- the file -----------------------------------------------------------------------------------


def test_what_was_written_is_read_again(path):
    lock.write(locked(), path)
    assert lock.read(path) == locked()
    lock.write(lock.made(PRESENT, RESULTS.model_copy(update={"files": None})), path)
    assert lock.read(path).results.files is None


def test_writing_twice_gives_the_same_bytes_in_whatever_order_things_were_found():
    flags = dict(reversed(PRESENT.profile.flags.items()))
    other = changed(PRESENT, "profile/flags", flags)
    other = changed(other, "libraries", dict(reversed(PRESENT.libraries.items())))
    assert list(other.profile.flags) != list(PRESENT.profile.flags)
    assert lock.made(other, RESULTS).to_toml() == locked().to_toml()


def test_what_every_third_run_had_otherwise_is_written_in_order_and_compared_with_nothing(path):
    of_two = changed(RESULTS, "also", {"threads": 1, "processors": 2})
    lock.write(lock.made(PRESENT, of_two), path)
    assert "\n[results.also]\nprocessors = 2\nthreads = 1\n\n" in Path(path).read_text()
    found = lock.read(path)
    assert found.results.also == {"threads": 1, "processors": 2}
    assert drifts(found, PRESENT) == []
    assert differing(found.results, RESULTS) == differing(RESULTS, found.results) == []


def test_a_lock_that_does_not_say_what_third_runs_had_is_read(path):
    lock.write(locked(), path)
    assert "also" not in Path(path).read_text()
    assert lock.read(path).results.also is None


def test_another_day_changes_one_line():
    later = locked().model_copy(update={"created": "2031-01-02"}).to_toml().splitlines()
    pairs = zip(locked().to_toml().splitlines(), later, strict=True)
    odd = [line for was, line in pairs if was != line]
    assert odd == ['created = "2031-01-02"']


def test_it_is_replaced_whole_and_readable_for_all(path, monkeypatch):
    lock.write(locked(), path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o644
    before = Path(path).read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk.os, "fsync", full)
    with pytest.raises(UnreadableFileError) as refused:
        lock.write(lock.made(PRESENT, changed(RESULTS, "runs", 3)), path)
    assert refused.value.message == f"cannot write {path}: No space left on device"
    assert Path(path).read_bytes() == before
    assert os.listdir() == [path]


def test_a_link_stays_one_and_what_it_leads_to_is_replaced(path):
    os.mkdir("locks")
    os.symlink("locks/real.lock", path)
    lock.write(locked(), path)
    assert os.readlink(path) == "locks/real.lock"
    assert lock.read(path) == lock.read("locks/real.lock") == locked()
    assert os.listdir("locks") == ["real.lock"]


TEXT = locked().to_toml()
MISSING = [
    "`results.bound` is missing",
    "`results.runs` is missing",
    "`results.text` is missing",
]
DAMAGED = {
    "not toml": (TEXT.replace("[machine]", "[machine"), "is not TOML", "[machine"),
    "a conflict of a merge": (f"<<<<<<< HEAD\n{TEXT}", "is not TOML", "<<<<<<< HEAD"),
    "empty": ("", "`lock` is missing", ""),
    "a profile": ("schema = 1\n[threads]\ncount = 1\n", "`lock` is missing", ""),
    "no number of a version": (
        TEXT.replace("lock = 1\n", 'lock = "1"\n'),
        '`lock` must be 1, not the string "1"',
        'lock = "1"',
    ),
    "a missing key": (TEXT.replace("usable = 8\n", ""), "`machine.usable` is missing", ""),
    "an unknown key": (
        TEXT.replace("usable = 8\n", "usable = 8\ncores = 4\n"),
        "`machine.cores` is unknown",
        "cores = 4",
    ),
    "another type": (
        TEXT.replace("usable = 8\n", 'usable = "8"\n'),
        '`machine.usable` must be an integer, not the string "8"',
        'usable = "8"',
    ),
    "another type in a table of names": (
        TEXT.replace('"libm.so.6" = "9-cc"', '"libm.so.6" = 9'),
        '`libraries.system.files."libm.so.6"` must be a string, not the integer 9',
        '"libm.so.6" = 9',
    ),
    "a run that proves nothing": (
        TEXT.replace("runs = 10\n", "runs = 1\n"),
        "`results.runs` must be an integer of at least 2, not 1",
        "runs = 1",
    ),
    "a table where a text is": (
        re.sub(r'created = ".*"', "created = { day = 1 }", TEXT),
        "`created` must be a string, not a table",
        "created = { day = 1 }",
    ),
    "a switch that is a table": (
        TEXT.replace('"openblas[numpy].threads" = 8', '"openblas[numpy].threads" = { a = 8 }'),
        '`numerics.switches."openblas[numpy].threads"` must be ',
        '"openblas[numpy].threads" = { a = 8 }',
    ),
}


@pytest.mark.parametrize(("text", "message", "source"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_lock_is_refused_with_its_place(text, message, source, path):
    Path(path).write_text(text)
    with pytest.raises(InvalidLockError) as refused:
        lock.read(path)
    error = refused.value
    assert message in error.message
    assert error.message.startswith("run.lock is no")
    assert (error.spans[0].source if error.spans else "") == source
    assert error.helps[-1] == (
        "take the file from version control again, or write it anew:"
        " `backendcfg prove PROFILE --output run.lock -- COMMAND`"
    )


def test_everything_that_is_wrong_is_named_what_has_a_place_first(path):
    text = TEXT.partition("[results]")[0] + "[results]\nyear = 1\n"
    Path(path).write_text(text.replace("usable = 8\n", ""))
    with pytest.raises(InvalidLockError) as refused:
        lock.read(path)
    assert refused.value.message == "run.lock is no lock: `results.year` is unknown"
    assert sorted(refused.value.notes) == ["`machine.usable` is missing", *MISSING]


def test_a_lock_of_a_later_version_is_refused_before_anything_in_it_is_judged(path):
    Path(path).write_text("lock = 2\nyear = 1\n")
    with pytest.raises(UnsupportedSchemaError) as refused:
        lock.read(path)
    assert re.fullmatch(
        r"run\.lock is a lock of version 2; backendcfg \S+ reads version 1", refused.value.message
    )
    assert (refused.value.spans[0].line, refused.value.spans[0].source) == (1, "lock = 2")
    assert refused.value.helps[0] == "upgrade backendcfg: `pip install --upgrade backendcfg`"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda _: None, "no such file or directory"),
        (os.mkdir, "it is a directory"),
        (os.mkfifo, "it is not a plain file"),
        (lambda path: os.symlink("gone", path), "it is a link to gone, which does not exist"),
        (lambda path: os.symlink(path, path), "too many levels of symbolic links"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason(make, why, path):
    make(path)
    with pytest.raises(UnreadableFileError) as refused:
        lock.read(path)
    assert refused.value.message == f"cannot read run.lock: {why}"
    assert refused.value.helps == ("name a file that `backendcfg prove --output` wrote",)


def test_what_toml_cannot_say_is_written_as_text():
    assert lock.plain({"a": None, "b": (None, "AUTO"), "c": 1.5, "d": os.SEEK_SET, "e": {1}}) == {
        "a": "none",
        "b": ["none", "AUTO"],
        "c": 1.5,
        "d": 0,
        "e": "{1}",
    }


# --- drift --------------------------------------------------------------------------------------

NUMPY = PRESENT.libraries["numpy"]
CHANGES = {
    "profile/name": ("fast", "profile.name: reproducible (locked) -> fast"),
    "profile/tier": ("restart", "profile.tier: run-to-run (locked) -> restart"),
    "profile/order": (
        ["native"],
        'profile.order: ["openblas", "native"] (locked) -> ["native"]',
    ),
    "profile/flags/threads.count": (4, "profile.flags.threads.count: 8 (locked) -> 4"),
    "profile/flags/seed.value": (0, "profile.flags.seed.value: nothing (locked) -> 0"),
    "profile/flags/cuda.matmul.allow_tf32": (
        None,
        "profile.flags.cuda.matmul.allow_tf32: false (locked) -> nothing",
    ),
    "libraries/numpy/version": ("2.4.0", "libraries.numpy: 2.3.1 (locked) -> 2.4.0"),
    "libraries/numpy": (None, "libraries.numpy: 2.3.1 (locked) -> nothing"),
    "libraries/system": (None, "libraries.system: there (locked) -> nothing"),
    "libraries/torch": (NUMPY, "libraries.torch: nothing (locked) -> 2.3.1"),
    "libraries/numpy/files/libopenblas.so": (
        "25-ee",
        "libraries.numpy.libopenblas.so: 25-aa (locked) -> 25-ee",
    ),
    "python/version": ("3.13.1", "python.version: 3.12.3 (locked) -> 3.13.1"),
    "python/backendcfg": ("0.3.0", "python.backendcfg: 0.2.0 (locked) -> 0.3.0"),
    "python/packages/scipy": ("1.18", "python.packages.scipy: 1.17.1 (locked) -> 1.18"),
    "machine/cpu": ("Xeon", "machine.cpu: AMD EPYC 9454 (locked) -> Xeon"),
    "machine/usable": (4, "machine.usable: 8 (locked) -> 4"),
    "machine/features": (
        "avx avx2 fma",
        "machine.features: avx512f (locked) -> fma, of those that only one of them has",
    ),
    "machine/gpus": ([], 'machine.gpus: ["NVIDIA H100 9.0"] (locked) -> []'),
    "machine/drivers/nvidia": ("580", "machine.drivers.nvidia: 570.86 (locked) -> 580"),
    "numerics/switches/openblas[numpy].threads": (
        1,
        "numerics.switches.openblas[numpy].threads: 8 (locked) -> 1",
    ),
    "numerics/facts/thread.flush_denormal": (
        True,
        "numerics.facts.thread.flush_denormal: false (locked) -> true",
    ),
    "numerics/variables/NVIDIA_TF32_OVERRIDE": (
        "1",
        "numerics.variables.NVIDIA_TF32_OVERRIDE: nothing (locked) -> 1",
    ),
}


@pytest.mark.parametrize("path", CHANGES)
def test_each_thing_that_is_not_as_locked_is_named_with_both_values(path):
    value, words = CHANGES[path]
    here = changed(PRESENT, path, value)
    assert [str(one) for one in drifts(locked(), here)] == [words]


def test_nothing_drifts_where_all_is_as_locked(path):
    lock.write(locked(), path)
    assert drifts(lock.read(path), PRESENT) == []


def test_results_and_the_day_are_no_drift():
    other = lock.made(PRESENT, changed(RESULTS, "text", "other"))
    assert drifts(other.model_copy(update={"created": "1999-01-01"}), PRESENT) == []


def test_a_token_tells_by_which_of_its_parts_it_differs():
    here = changed(PRESENT, "numerics/token", "f" * 16)
    here = changed(here, "numerics/parts/processor", "zz")
    assert [str(one) for one in drifts(locked(), here)] == [
        "numerics.token: 0123456789abcdef (locked) -> ffffffffffffffff, by its processor"
    ]


def test_tokens_that_are_composed_otherwise_are_not_compared():
    here = changed(PRESENT, "numerics/token", "f" * 16)
    here = changed(here, "numerics/composed", 3)
    assert drifts(locked(), here) == []
    assert [one.name for one in drifts(locked(), changed(here, "python/backendcfg", "0.3"))] == [
        "python.backendcfg"
    ]


def test_the_likeliest_cause_comes_first_and_an_upgrade_is_told_once():
    here = PRESENT
    for path in (
        "numerics/switches/openblas[numpy].threads",
        "machine/usable",
        "python/version",
        "libraries/numpy/version",
        "profile/flags/threads.count",
    ):
        here = changed(here, path, CHANGES[path][0])
    here = changed(here, "libraries/numpy/files/libopenblas.so", "25-ee")
    here = changed(here, "python/packages/numpy", "2.4.0")
    here = changed(here, "numerics/token", "f" * 16)
    assert [one.name for one in drifts(locked(), here)] == [
        "profile.flags.threads.count",
        "libraries.numpy",
        "python.version",
        "machine.usable",
        "numerics.switches.openblas[numpy].threads",
        "numerics.token",
    ]


@pytest.mark.parametrize(
    ("path", "package"),
    [
        ("/env/lib/python3.12/site-packages/numpy.libs/libopenblas.so", "numpy"),
        ("/env/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so", "torch"),
        ("/env/lib/python3.12/site-packages/nvidia/cublas/lib/libcublas.so.12", "nvidia/cublas"),
        ("/usr/lib/python3/dist-packages/scipy/linalg/_fblas.so", "scipy"),
        ("/lib/x86_64-linux-gnu/libm.so.6", ""),
    ],
)
def test_a_library_is_of_the_package_in_whose_folder_it_lies(path, package):
    assert package_of(path) == package


# --- results ------------------------------------------------------------------------------------


def produced(program, folder, *, runs=2):
    """The results of runs of a program in a folder."""
    kept = []
    found = prove.prove(
        [sys.executable, "-c", program],
        Side("here", {**os.environ, prove.HASH_SEED: "0"}),
        {prove.HASH_SEED: None},
        runs=runs,
        folder=str(folder),
        keep=lambda *first: kept.append(first),
    )
    assert found.equal
    return results_of(found, *kept[0])


def test_only_times_are_left_out_of_the_digest_of_what_was_printed(tmp_path):
    once = produced("print('loss 0.25 took 1.5s on 2026-11-25')", tmp_path)
    later = produced("print('loss 0.25 took 99.0s on 2027-01-02')", tmp_path)
    assert (once.text, once.runs, once.bound) == (later.text, 2, 0.7764)
    assert produced("print('loss 0.250 took 1.5s on 2026-11-25')", tmp_path).text != once.text
    assert produced("print('Loss 0.25 took 1.5s on 2026-11-25')", tmp_path).text != once.text


@pytest.mark.slow
def test_files_are_digested_by_what_is_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save = "import numpy as np; np.savez('x.npz', x=np.ones(3)*{}); open('t', 'w').write('{}')"
    once = produced(save.format(1, "a"), tmp_path)
    assert sorted(once.files) == ["t", "x.npz"]
    os.utime("x.npz", (0, 0))
    assert produced(save.format(1, "a"), tmp_path).files == once.files
    assert differing(once, produced(save.format(2, "b"), tmp_path)) == [
        "t: other content",
        "x.npz: other content",
    ]
    assert np.load("x.npz")["x"].sum() == 6


def test_times_in_a_table_are_not_digested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save = "open('t.csv', 'w').write('loss,took\\n{},{}s\\n')"
    once = produced(save.format(0.25, 1.5), tmp_path)
    assert produced(save.format(0.25, 1.75), tmp_path).files == once.files
    assert differing(once, produced(save.format(0.5, 1.5), tmp_path)) == ["t.csv: other content"]


def test_very_many_files_have_one_digest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    many = f"[open(f'{{n}}.txt', 'w').write('a') for n in range({MOST_FILES + 1})]"
    assert list(produced(many, tmp_path).files) == [f"{MOST_FILES + 1} files"]


@pytest.mark.slow
def test_what_was_recorded_is_digested_bit_by_bit(tmp_path):
    record = "import backendcfg; backendcfg.record('loss', {})"
    once = produced(record.format("0.1"), tmp_path)
    assert once.records
    assert produced(record.format("0.1"), tmp_path).records == once.records
    other = produced(record.format("0.1 + 2**-55"), tmp_path)
    assert differing(once, other) == ["other values were recorded"]
    assert produced("print(1)", tmp_path).records == ""


def test_results_that_are_not_those_locked_are_named():
    here = changed(changed(RESULTS, "files/out.npz", None), "files/new.txt", "ee")
    here = changed(changed(changed(here, "text", "x"), "records", ""), "files/log.txt", "y")
    assert differing(RESULTS, here) == [
        "another text was printed",
        "other values were recorded",
        "log.txt: other content",
        "new.txt: only one of them wrote it",
        "out.npz: only one of them wrote it",
    ]
    assert differing(RESULTS, RESULTS) == []
    assert differing(RESULTS, changed(RESULTS, "files", None)) == []
