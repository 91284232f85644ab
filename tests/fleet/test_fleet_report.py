"""What ranks save, and what is merged from it: also from files that somebody else may have written."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
from side_by_side import free_port
from test_fleet_agreement import PARTS, with_parts

from backendcfg import errors, fleet
from backendcfg.audit.report import page
from backendcfg.audit.token import digest
from backendcfg.cli.main import main
from backendcfg.fleet import Kind, Report, Setting, agreement, merge, saving
from backendcfg.fleet import report as reports
from backendcfg.fleet.saving import Told, name_of

HOST = socket.gethostname()
EVIL = "<script>\x1b[31m\u202e\ud800</script>"
CONTENT = {"settings": agreement.settings_of(PARTS), "host": {"processor": {}, "devices": {}}}


def save(folder, rank, size, changes=None, *, host="node-a", profile="fast"):
    """Save as a rank does, some of whose parts are otherwise."""
    saving.write(str(folder), Told(rank, size, host, profile), with_parts(changes or {}))


@pytest.fixture(name="ranks")
def _ranks(tmp_path):
    """A folder in which three ranks have saved the same."""
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(3):
        save(folder, rank, 3)
    return folder


@pytest.fixture(name="verb")
def _verb(capsys):
    """Run `backendcfg fleet` in this process."""

    def run(*words):
        capsys.readouterr()
        code = main(["fleet", *map(str, words)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def key_of(folder):
    """The digest of what ranks compute with, all of whom compute with the same."""
    (path,) = (path for path in folder.glob("*.json") if not path.name.startswith("rank-"))
    return path.name.removesuffix(".json")


# What is saved.


def test_ranks_that_compute_with_the_same_write_it_once(ranks):
    key = key_of(ranks)
    assert sorted(os.listdir(ranks)) == [f"{key}.json", *map(name_of, range(3))]
    assert json.loads((ranks / name_of(2)).read_text()) == {
        "version": 1,
        "rank": 2,
        "size": 3,
        "host": "node-a",
        "profile": "fast",
        "process": "",
        "processes": 1,
        "digest": key,
    }
    assert digest(json.loads((ranks / f"{key}.json").read_text())) == key
    assert {path.stat().st_mode & 0o777 for path in ranks.iterdir()} == {0o644}


def test_ranks_that_save_at_the_same_time_leave_whole_files(tmp_path):
    ready = threading.Barrier(16)

    def run(rank):
        ready.wait()
        save(tmp_path, rank, 16)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(run, range(16)))
    assert len(os.listdir(tmp_path)) == 16 + 1
    assert merge(tmp_path) == Report(
        16, (Kind(key_of(tmp_path), tuple(range(16)), ("node-a",), ("fast",)),)
    )


def test_what_a_killed_rank_left_half_written_is_passed_over_and_written_again(ranks):
    key = key_of(ranks)
    whole = (ranks / f"{key}.json").read_bytes()
    (ranks / f"{key}.json").write_bytes(whole[:10])
    (ranks / f"{key}.json.0123.new").write_bytes(whole[:20])
    (ranks / "rank-00001.json.4567.new").write_bytes(b"")
    save(ranks, 1, 3)
    assert (ranks / f"{key}.json").read_bytes() == whole
    assert merge(ranks).alike


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "ranks").mkdir()
    (tmp_path / "precious").write_text("theirs")
    (tmp_path / "ranks" / name_of(0)).symlink_to(tmp_path / "precious")
    save(tmp_path / "ranks", 0, 1)
    assert (tmp_path / "precious").read_text() == "theirs"
    assert merge(tmp_path / "ranks").alike


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"RANK": "3", "WORLD_SIZE": "4"}, (3, 4)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"PMI_RANK": "1", "PMI_SIZE": "8"}, (1, 8)),
        ({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6"}, (5, 6)),
        (
            {"RANK": "3", "WORLD_SIZE": "4", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"},
            (3, 4),
        ),
    ],
)
def test_a_rank_has_the_number_that_its_launcher_gave_it(variables, told, tmp_path, monkeypatch):
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(saving, "numerics_token", lambda: SimpleNamespace(parts=PARTS))
    fleet.save(tmp_path / "new" / "folder")
    (name,) = (name for name in os.listdir(tmp_path / "new" / "folder") if name[:5] == "rank-")
    saved = json.loads((tmp_path / "new" / "folder" / name).read_text())
    assert (saved["rank"], saved["size"], saved["host"], saved["profile"]) == (*told, HOST, "")


def test_ranks_that_an_engine_brought_together_have_its_numbers(tmp_path, monkeypatch):
    group = SimpleNamespace(rank=1, size=2, names=[4, 7])
    monkeypatch.setattr(saving, "group_of", lambda: group)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "9")
    monkeypatch.setattr(saving, "numerics_token", lambda: SimpleNamespace(parts=PARTS))
    group.size = 8
    fleet.save(tmp_path)
    assert name_of(7) in os.listdir(tmp_path)


def test_saving_again_replaces_what_was_saved(ranks):
    save(ranks, 1, 3, {"switches.torch.num_threads": 1})
    assert len(merge(ranks).kinds) == 2
    save(ranks, 1, 3)
    assert len(merge(ranks).kinds) == 1


def test_a_process_without_a_number_is_refused(tmp_path):
    with pytest.raises(errors.UsageError) as raised:
        fleet.save(tmp_path / "ranks")
    assert raised.value.render() == (
        "error[usage]: this process is no rank: nothing gave it a number among others\n"
        "  state: nothing was saved\n"
        "  help: call it after `torch.distributed.init_process_group()`\n"
        "  help: or start ranks with `torchrun`, `mpirun` or `srun`"
    )
    assert not (tmp_path / "ranks").exists()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    (tmp_path / "file").touch()
    with pytest.raises(errors.UnreadableFileError) as raised:
        fleet.save(tmp_path / "file")
    assert raised.value.render() == (
        f"error[unreadable-file]: cannot write in {tmp_path / 'file'}: File exists\n"
        "  state: nothing was saved\n"
        "  help: give a folder that every rank may write"
    )
    (tmp_path / name_of(0)).mkdir()
    monkeypatch.setattr(saving, "numerics_token", lambda: SimpleNamespace(parts=PARTS))
    with pytest.raises(errors.UnreadableFileError) as raised:
        fleet.save(tmp_path)
    assert raised.value.message == f"cannot write {tmp_path / name_of(0)}: Is a directory"


# What is merged.


def test_one_rank_with_another_setting_is_named_with_its_host(ranks, verb):
    save(ranks, 3, 5, {"switches.torch.num_threads": 1}, host="node-b", profile="")
    for rank in (0, 1, 2, 4):
        save(ranks, rank, 5)
    report = merge(ranks)
    assert report.settings == (
        Setting("switches.torch.num_threads", ((4, (0, 1, 2, 4)), (1, (3,))), ("node-b",)),
    )
    assert verb("report", ranks) == (
        1,
        (
            "1 of 5 ranks computes otherwise than the other 4\n"
            "number  ranks   hosts   profile\n"
            "4       0-2, 4  node-a  fast\n"
            "1       3       node-b  none\n"
            "settings    torch.num_threads: 4 on 4 ranks, 1 on rank 3 (node-b)\n"
        ),
        "",
    )
    code, printed, said = verb("report", "--json", ranks)
    assert (code, said) == (1, "")
    found = json.loads(printed)
    assert found == json.loads(json.dumps(report.document()))
    assert found["kinds"][1]["ranks"] == [3]
    assert found["alike"] is False


def test_ranks_that_compute_alike_are_said_to(ranks, verb):
    assert verb("report", ranks) == (
        0,
        "3 ranks compute alike\nnumber  ranks  hosts   profile\n3       0-2    node-a  fast\n",
        "",
    )


def test_what_ranks_may_have_otherwise_is_no_difference_and_makes_no_line(ranks):
    save(ranks, 1, 3, {"variables.CUDA_VISIBLE_DEVICES": "1", "versions.scipy": "1.17"})
    report = merge(ranks)
    assert (report.alike, len(report.kinds)) == (True, 2)
    assert report.rows() == [["3", "0-2", "node-a", "fast"]]


def test_a_rank_that_several_processes_saved_is_named(ranks, monkeypatch):
    for process, rank in (("a", 1), ("a", 1), ("b", 1), ("c", 2)):
        told = Told(rank, 3, "node-a", "fast", process)
        saving.write(str(ranks), told, PARTS)
    report = merge(ranks)
    (obstacle,) = report.obstacles
    assert obstacle == (
        "ranks 1-2: saved by several processes, the last of which is told; give each run a folder"
        " of its own"
    )
    assert report.verdict == "3 ranks compute alike; 1 obstacle"
    assert json.loads((ranks / name_of(1)).read_text())["processes"] == 3


def test_more_than_is_read_of_all_ranks_together_is_an_obstacle(ranks, monkeypatch):
    save(ranks, 2, 3, {"flags.threads.count": 1})
    first, second = merge(ranks).kinds
    size = (ranks / f"{first.digest}.json").stat().st_size
    monkeypatch.setattr(reports, "MOST_CONTENTS", size + 1)
    assert merge(ranks).obstacles == (
        f"{second.digest}.json, of rank 2, is larger than any that a rank saves",
    )


def test_unlike_hosts_are_told_and_are_no_difference(ranks, verb):
    save(ranks, 2, 3, {"processor.name": "Xeon"}, host="node-b", profile="other")
    assert verb("report", ranks) == (
        0,
        (
            "3 ranks compute alike, on unlike hosts\n"
            "number  ranks  hosts   profile\n"
            "2       0-1    node-a  fast\n"
            "1       2      node-b  other\n"
            'unlike      processor.name: "EPYC" on ranks 0, 1, "Xeon" on rank 2 (node-b)\n'
        ),
        "",
    )


def test_ranks_that_saved_nothing_are_missing(tmp_path, verb):
    for rank in (0, 3, 7):
        save(tmp_path, rank, 8)
    assert merge(tmp_path).missing == (1, 2, 4, 5, 6)
    assert verb("report", tmp_path) == (
        1,
        (
            "3 ranks compute alike; 5 of 8 saved nothing\n"
            "number  ranks    hosts   profile\n"
            "3       0, 3, 7  node-a  fast\n"
            "missing     1-2, 4-6\n"
        ),
        "",
    )


def test_ranks_that_tell_other_numbers_of_ranks_do_not_fit(ranks):
    save(ranks, 5, 8, host="node-b")
    report = merge(ranks)
    assert report.obstacles == ("number of ranks: 3 on ranks 0, 1, 2, 8 on rank 5 (node-b)",)
    assert (report.size, report.missing, report.alike) == (3, (), False)


def told(**changes):
    """The text of the file of rank 1, with something in it otherwise."""
    key = digest(agreement.compared_parts(PARTS))
    return json.dumps(
        {
            "version": 1,
            "rank": 1,
            "size": 3,
            "host": "node-a",
            "profile": "fast",
            "process": "",
            "processes": 1,
            "digest": key,
            **changes,
        }
    )


def _pipe(path):
    path.unlink()
    os.mkfifo(path)


def _link(path):
    path.rename(path.with_name("kept"))
    path.symlink_to("kept")


def _folder(path):
    path.unlink()
    path.mkdir()


NO_RANK = "is not what a rank saves"
OWN = {
    "empty": ("", "has no JSON"),
    "cut": (told()[:40], "has no JSON"),
    "binary": ("\0" * 100, "has no JSON"),
    "deep": ("[" * 10_000, "has no JSON"),
    "a number beyond measure": (told().replace("3,", "9" * 5000 + ","), "has no JSON"),
    "a list": ("[]", NO_RANK),
    "of no version": (told(version=None), NO_RANK),
    "of a later release": (told(version=2, new=1), "was written by a later release of backendcfg"),
    "with more": (told(more=1), NO_RANK),
    "with less": (json.dumps({"version": 1}), NO_RANK),
    "a truth for a rank": (told(rank=True), NO_RANK),
    "a fraction": (told(rank=1.0), NO_RANK),
    "a text for a size": (told(size="3"), NO_RANK),
    "below none": (told(rank=-1), NO_RANK),
    "beyond its size": (told(rank=3), NO_RANK),
    "of too many": (told(size=10**9), NO_RANK),
    "of no process": (told(processes=0), NO_RANK),
    "of a truth of processes": (told(processes=True), NO_RANK),
    "a list for a host": (told(host=[]), NO_RANK),
    "a long host": (told(host="x" * 5000), NO_RANK),
    "a path for a digest": (told(digest="../../../etc/passw"), NO_RANK),
    "of another rank": (told(rank=2), "says that it is of rank 2, whose file is rank-00002.json"),
    "large": (told() + " " * (1 << 20), "is larger than any that a rank saves"),
    "a pipe": (_pipe, "is not a plain file"),
    "a link": (_link, "is a link"),
    "a folder": (_folder, "is not a plain file"),
}


@pytest.mark.parametrize(("blow", "why"), OWN.values(), ids=OWN)
def test_a_damaged_file_of_a_rank_is_named_and_the_others_are_merged(blow, why, ranks, verb):
    path = ranks / name_of(1)
    if callable(blow):
        blow(path)
    else:
        path.write_text(blow)
    assert merge(ranks) == Report(
        3,
        (Kind(key_of_rank(ranks, 0), (0, 2), ("node-a",), ("fast",)),),
        obstacles=(f"rank-00001.json {why}",),
    )
    code, printed, said = verb("report", ranks)
    assert (code, said) == (1, "")
    assert printed.startswith("2 ranks compute alike; 1 obstacle\n")
    assert printed.endswith(f"obstacles   rank-00001.json {why}\n")


def key_of_rank(folder, rank):
    return json.loads((folder / name_of(rank)).read_text())["digest"]


def _other_content(path):
    path.write_text(json.dumps({**CONTENT, "more": 1}))


WITH_PARTS = {
    "is missing": lambda path: path.unlink(),
    "has no JSON": lambda path: path.write_text("{"),
    "is not what its name says": _other_content,
    "is larger than any that a rank saves": lambda path: path.write_text(" " * (5 << 20)),
    "is not a plain file": _pipe,
    "is a link": _link,
}


@pytest.mark.parametrize(("why", "blow"), WITH_PARTS.items(), ids=WITH_PARTS)
def test_what_ranks_compute_with_is_named_where_it_is_damaged(why, blow, ranks):
    save(ranks, 2, 3, {"flags.threads.count": 1})
    first, second = merge(ranks).kinds
    blow(ranks / f"{first.digest}.json")
    report = merge(ranks)
    assert report == Report(
        3,
        (replace(first, is_known=False), second),
        obstacles=(f"{first.digest}.json, of ranks 0-1, {why}",),
    )
    assert report.verdict == "1 rank computes alike; 2 could not be compared; 1 obstacle"


DEEP = 1
for _ in range(50):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "content",
    [
        1,
        [],
        {},
        {**CONTENT, "more": {}},
        {**CONTENT, "settings": []},
        {**CONTENT, "settings": {}},
        {**CONTENT, "host": {"processor": {}, "devices": 1}},
        {**CONTENT, "host": {"processor": {"x": DEEP}, "devices": {}}},
    ],
    ids=str,
)
def test_what_is_no_token_is_named_although_its_digest_is_right(content, tmp_path):
    key = digest(content)
    (tmp_path / f"{key}.json").write_text(json.dumps(content))
    (tmp_path / name_of(1)).write_text(told(digest=key, size=2))
    (name, obstacle) = merge(tmp_path).obstacles[0].split(", of rank 1, ")
    assert (name, obstacle) == (f"{key}.json", "is not what a rank computes with")


def test_a_second_file_of_a_rank_is_named(ranks):
    (ranks / "rank-1.json").write_text(told())
    assert merge(ranks).obstacles == (
        "rank-1.json says that it is of rank 1, whose file is rank-00001.json",
    )


def test_other_files_are_passed_over(ranks):
    (ranks / "notes.txt").write_text("x")
    (ranks / "report.html").mkdir()
    assert merge(ranks).alike


def test_a_folder_without_ranks_is_refused(tmp_path, verb):
    assert verb("report", tmp_path) == (
        2,
        "",
        (
            f"error[usage]: no rank saved anything in {tmp_path}\n"
            "  state: nothing was changed\n"
            "  help: start ranks with `backendcfg run PROFILE --save-ranks DIR -- torchrun ...`\n"
            "  help: call `backendcfg.fleet.save(DIR)` in ranks that no launcher gives a number\n"
        ),
    )
    (tmp_path / "began").touch()
    assert verb("report", tmp_path)[2] == (
        f"error[usage]: no rank saved anything in {tmp_path}, although a run began there\n"
        "  state: nothing was changed\n"
        "  help: look for a rank that failed: launchers kill the others, and they save nothing\n"
        "  help: call `backendcfg.fleet.save(DIR)` in the ranks before they do what fails\n"
    )
    assert verb("report", tmp_path / "none")[2] == (
        f"error[unreadable-file]: cannot read {tmp_path / 'none'}: No such file or directory\n"
        "  state: nothing was changed\n"
        "  help: give the folder of `run --save-ranks`\n"
    )


@pytest.mark.slow
def test_ten_thousand_ranks_of_three_kinds_are_merged(tmp_path):
    kinds = {rank: {"flags.threads.count": 1} for rank in (77, 9_999)}
    kinds[500] = {"processor.name": "Xeon"}
    odd = {name: agreement.compared_parts(with_parts(each)) for name, each in kinds.items()}
    save(tmp_path, 0, 10_000)
    text = (tmp_path / name_of(0)).read_text()
    for rank in range(10_000):
        if rank in odd:
            save(tmp_path, rank, 10_000, kinds[rank], host=f"node-{rank}")
        elif rank != 4_000:
            (tmp_path / name_of(rank)).write_text(text.replace('"rank": 0', f'"rank": {rank}'))
    report = merge(tmp_path)
    assert [len(kind.ranks) for kind in report.kinds] == [9_996, 2, 1]
    assert str(report.settings[0]) == (
        "flags.threads.count: 4 on 9997 ranks, 1 on ranks 77, 9999 (node-77, node-9999)"
    )
    assert [str(one) for one in report.unlike] == [
        'processor.name: "EPYC" on 9998 ranks, "Xeon" on rank 500 (node-500)'
    ]
    assert (report.missing, report.obstacles) == ((4_000,), ())
    assert report.verdict == (
        "2 of 9999 ranks compute otherwise than the other 9997, on unlike hosts;"
        " 1 of 10000 saved nothing"
    )


def test_long_values_that_part_after_what_is_told_have_a_digest():
    long = "a" * 500
    values = ((long, (0,)), ("b" + long, (1,)), (long + "b", (2,)))
    first, second, third = str(Setting("x", values)).removeprefix("x: ").split(", ")
    assert first.partition("(")[0] == third.partition("(")[0] != second.partition("(")[0]
    assert first.partition(")")[0] != third.partition(")")[0]


def test_of_long_values_the_place_is_told_where_they_part():
    features = " ".join(f"feature{number}" for number in range(200))
    values = ((features, (0, 1)), (features.replace("feature150", "other"), (2,)))
    told = str(Setting("processor.features", values, ("node-b",)))
    assert "feature149 feature150 feature151" in told
    assert "feature149 other feature151" in told
    assert len(told) < 400


# The page.


@pytest.fixture(name="html")
def _html():
    pytest.importorskip("jinja2", reason="jinja2 is not installed")


def test_a_page_shows_what_differs_and_escapes_what_others_named(html, tmp_path, verb):
    folder, path = tmp_path / "ranks", tmp_path / "x.html"
    folder.mkdir()
    save(folder, 0, 3)
    save(folder, 1, 3, {f"flags.{EVIL}": EVIL}, host=EVIL, profile=EVIL)
    (folder / "rank-<b>.json").write_text("")
    code, printed, said = verb("report", folder, "-o", path)
    assert (code, said) == (1, f"wrote {path}\n")
    for text in (printed, path.read_text()):
        assert not any(one in text for one in "\x1b\u202e\ud800")
    shown = path.read_text()
    assert shown.startswith("<!DOCTYPE html>")
    assert "<script" not in shown
    assert "<b>" not in shown
    assert r"&lt;script&gt;\x1b[31m\u202e\ud800&lt;/script&gt;" in shown
    assert "default-src &#39;none&#39;" in shown or "default-src 'none'" in shown
    for title in ("Ranks", "Settings that differ", "Ranks that saved nothing"):
        assert f"<h2>{title}</h2>" in shown
    assert "rank-&lt;b&gt;.json has no JSON" in shown
    # Only what is an earlier report is written over.
    assert verb("report", folder, "-o", path)[0] == 1
    path.write_text("theirs")
    assert verb("report", folder, "-o", path) == (
        2,
        "",
        (
            f"error[usage]: {path} is there already, and is no report\n"
            "  state: nothing was read\n"
            "  help: give another file with `--output`\n"
        ),
    )


def test_without_jinja2_nothing_is_read(tmp_path, verb, monkeypatch):
    monkeypatch.setattr(page, "is_available", lambda: False)
    assert verb("report", tmp_path / "none", "-o", "x.html")[2].startswith(
        "error[usage]: the report needs jinja2, which is not installed\n"
    )


# `backendcfg run --save-ranks`.

BY_HAND = """
for rank in 0 1 2; do RANK=$rank WORLD_SIZE=3 "$0" rank.py; done
"""


@pytest.fixture(name="started")
def _started(tmp_path):
    """Run a command under `backendcfg run OPTIONS --save-ranks ranks`, and give what it said."""

    def run(program, command, *options, fails=0, **variables):
        (tmp_path / "rank.py").write_text(program)
        words = [sys.executable, "-m", "backendcfg", "run", *options, "--save-ranks", "ranks", "--"]
        done = subprocess.run(
            [*words, *command],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == fails, done.stderr
        return done.stderr

    return run


def by_hand(script=BY_HAND):
    """A command that starts ranks by variables alone, as any launcher does."""
    return ["sh", "-c", script, sys.executable]


def test_ranks_save_when_they_end_and_their_children_do_not(started, tmp_path):
    child = "import os; os.environ['MKL_CBWR'] = 'AVX2'"
    program = f"""
import os, subprocess, sys
subprocess.run([sys.executable, "-c", {child!r}], env={{**os.environ, "MKL_CBWR": "AVX"}}, check=True)
if not (pid := os.fork()):
    os.environ["MKL_CBWR"] = "AVX"
    sys.exit()
os.waitpid(pid, 0)
"""
    assert started(program, by_hand(), "tf32-off") == ""
    assert merge(tmp_path / "ranks") == Report(
        3, (Kind(key_of(tmp_path / "ranks"), (0, 1, 2), (HOST,), ("tf32-off",)),)
    )


@pytest.mark.slow
def test_a_rank_that_is_killed_is_missing_and_one_with_another_variable_is_named(started, tmp_path):
    program = """
import os
if os.environ["RANK"] == "1":
    os._exit(0)
if os.environ["RANK"] == "2":
    raise SystemExit(0)
"""
    script = BY_HAND.replace("RANK=", "MKL_CBWR=C$rank RANK=")
    assert started(program, by_hand(script), "tf32-off") == ""
    report = merge(tmp_path / "ranks")
    assert (report.size, report.missing, report.obstacles) == (3, (1,), ())
    assert [str(one) for one in report.settings] == [
        f'variables.MKL_CBWR: "C0" on rank 0, "C2" on rank 2 ({HOST})'
    ]


def test_what_an_earlier_run_saved_is_left_out(started, tmp_path):
    quick = "import os; os.environ['RANK'] == os.environ.get('DEAD') and os._exit(0)"
    started(quick, by_hand(), "tf32-off")
    started(quick, by_hand(), "tf32-off")
    assert merge(tmp_path / "ranks").alike is True
    started(quick, by_hand(), "fast", DEAD="1")
    report = merge(tmp_path / "ranks")
    assert (report.size, report.missing, [kind.profiles for kind in report.kinds]) == (
        3,
        (1,),
        [("fast",)],
    )
    assert report.obstacles == (
        "rank 1: saved before the last run with this folder began, and left out",
    )
    started("import os; os._exit(0)", by_hand(), "fast")
    report = merge(tmp_path / "ranks")
    assert (report.size, report.missing, report.kinds, report.alike) == (3, (0, 1, 2), (), False)
    assert report.obstacles == (
        "ranks 0-2: saved before the last run with this folder began, and left out",
    )


@pytest.mark.slow
def test_a_launcher_that_slurm_gave_a_number_is_no_rank(started, tmp_path):
    (tmp_path / "torchrun").write_text(
        "import os, subprocess, sys\n"
        "for rank in '01':\n"
        "    environment = {**os.environ, 'RANK': rank, 'WORLD_SIZE': '2'}\n"
        "    subprocess.run([sys.executable, 'rank.py'], env=environment, check=True)\n"
    )
    command = [sys.executable, "torchrun"]
    slurm = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"}
    assert started("", command, "tf32-off", **slurm) == ""
    report = merge(tmp_path / "ranks")
    assert (report.size, report.kinds[0].ranks, report.alike) == (2, (0, 1), True)


def test_a_process_without_a_number_saves_nothing(started, tmp_path):
    assert started("", [sys.executable, "rank.py"], "tf32-off") == ""
    assert os.listdir(tmp_path / "ranks") == [saving.BEGAN]


def test_half_of_what_makes_a_rank_is_named_before_the_command_starts(started, tmp_path):
    said = started("", [sys.executable, "rank.py"], "tf32-off", RANK="0")
    assert said == (
        "RANK is set and WORLD_SIZE is not, so this is no rank of a job: what starts with these"
        " alone saves nothing\n"
    )
    assert os.listdir(tmp_path / "ranks") == [saving.BEGAN]


def test_under_no_profile_ranks_save_what_they_compute_with_by_themselves(started, tmp_path):
    said = started("", by_hand())
    assert said == "no profile is in force; saved is what ranks compute with by themselves\n"
    assert merge(tmp_path / "ranks").kinds[0].profiles == ("",)


def test_where_backendcfg_is_turned_off_nothing_is_saved(started, tmp_path):
    said = started("", by_hand(), "tf32-off", BACKENDCFG_DISABLE="1")
    assert said == (
        "backendcfg is turned off by BACKENDCFG_DISABLE; running the command alone; no rank is"
        " saved\n"
    )
    assert not (tmp_path / "ranks").exists()


def test_a_rank_that_turns_backendcfg_off_saves_nothing(started, tmp_path):
    script = BY_HAND.replace("RANK=", "BACKENDCFG_DISABLE=$rank RANK=")
    assert started("", by_hand(script), "tf32-off") == ""
    assert merge(tmp_path / "ranks").missing == (1, 2)


def test_what_cannot_be_saved_at_the_end_is_told_in_a_line_and_the_status_stays(started, tmp_path):
    program = (
        "import shutil; shutil.rmtree('ranks'); open('ranks', 'w').close(); raise SystemExit(7)"
    )
    said = started(program, one_rank(), "tf32-off", fails=7)
    assert said == (
        "warning: what rank 1 computes with was not saved:"
        f" cannot write in {tmp_path / 'ranks'}: File exists\n"
    )


def test_a_folder_that_cannot_be_written_is_refused_before_anything_starts(started, tmp_path):
    (tmp_path / "ranks").touch()
    said = started("", ["touch", "started"], "tf32-off", fails=2)
    assert said == (
        f"error[unreadable-file]: cannot write in {tmp_path / 'ranks'}: File exists\n"
        "  state: the command was not started\n"
        "  help: give a folder that every rank may write\n"
    )
    assert not (tmp_path / "started").exists()


def one_rank():
    return ["env", "RANK=1", "WORLD_SIZE=2", sys.executable, "rank.py"]


def test_a_rank_that_starts_itself_anew_saves(started, tmp_path):
    program = """
import os, sys
if "ANEW" not in os.environ:
    os.environ["ANEW"] = "1"
    os.execv(sys.executable, [sys.executable, *sys.argv])
"""
    assert started(program, one_rank(), "tf32-off") == ""
    report = merge(tmp_path / "ranks")
    assert (report.kinds[0].ranks, report.obstacles) == ((1,), ())


def test_a_rank_that_is_interrupted_saves_and_ends_by_the_signal(started, tmp_path):
    program = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    script = 'RANK=1 WORLD_SIZE=2 "$0" rank.py; echo "ended with $?" >&2'
    said = started(program, by_hand(script), "tf32-off")
    assert said.endswith("KeyboardInterrupt\nended with 130\n")
    assert merge(tmp_path / "ranks").kinds[0].ranks == (1,)


def test_an_interrupt_while_a_rank_saves_is_told_in_a_line(started, tmp_path):
    program = """
import os, signal
from backendcfg.fleet import saving
saving.numerics_token = lambda: os.kill(os.getpid(), signal.SIGINT)
"""
    said = started(program, one_rank(), "tf32-off")
    assert said == "warning: what rank 1 computes with was not saved: interrupted\n"


JAX = """
import sys, jax
jax.distributed.initialize(sys.argv[2], 2, int(sys.argv[1]))
"""


@pytest.mark.jax
def test_processes_of_jax_are_merged_although_they_part_before_they_end(started, tmp_path):
    address = f"127.0.0.1:{free_port()}"
    both = f'"$0" rank.py 0 {address} & "$0" rank.py 1 {address}; wait'
    started(JAX, by_hand(both), "tf32-off")
    report = merge(tmp_path / "ranks")
    assert (report.verdict, report.kinds[0].ranks) == ("2 ranks compute alike", (0, 1))


TORCH = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 1:
    torch.set_default_dtype(torch.float64)
dist.barrier()
if rank == 2:
    os._exit(0)
dist.destroy_process_group()
"""


@pytest.mark.torch
def test_ranks_of_torchrun_are_merged_with_one_that_differs_and_one_that_is_killed(
    started, tmp_path
):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    started(TORCH, [*command, "--nproc-per-node=4", "rank.py"], "tf32-off", OMP_NUM_THREADS="1")
    report = merge(tmp_path / "ranks")
    assert report.verdict == (
        "1 of 3 ranks computes otherwise than the other 2; 1 of 4 saved nothing"
    )
    assert [str(one) for one in report.settings] == [
        f'facts.torch.default_dtype: "float32" on ranks 0, 3, "float64" on rank 1 ({HOST})'
    ]
    assert (report.missing, report.obstacles) == ((2,), ())
    assert [kind.profiles for kind in report.kinds] == [("tf32-off",)] * 2
