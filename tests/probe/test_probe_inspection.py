"""Libraries that crash, hang, print and lie are asked in children, and named."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backendcfg import childprocess
from backendcfg.probe import inspection
from backendcfg.probe.inspection import Answer, Request, ask


def blas(path):
    return Request("symbols", path, "openblas")


@pytest.fixture
def good(compiled):
    return blas(compiled("good/libopenblas.so", "OPENBLAS"))


FACTS = {
    "kind": "openblas",
    "version": "0.3.99",
    "interface": "lp64",
    "prefix": "",
    "suffix": "",
    "threading": "pthreads",
    "core_type": "Haswell",
    "max_threads": 3,
    "serves": True,
}


@pytest.mark.parametrize(
    ("feature", "reason"),
    [
        ("ON_LOAD_SEGFAULT", "killed the process that opened it (SIGSEGV)"),
        (
            "ON_LOAD_ABORT",
            (
                "killed the process that opened it (SIGABRT): "
                "fake library: this processor is not supported"
            ),
        ),
        (
            "ON_LOAD_EXIT",
            "ended the process that opened it (status 2): FATAL: cannot load the other half",
        ),
    ],
)
def test_a_library_that_kills_its_process_is_named_and_hides_nothing(
    compiled, good, feature, reason
):
    bad = blas(compiled("bad/libopenblas.so", "OPENBLAS", feature))
    after = blas(compiled("after/libopenblas.so", "OPENBLAS", SUFFIX="64_"))
    answers = ask([[good, bad, after]])
    assert answers[bad] == Answer(error=reason)
    assert answers[good] == Answer(FACTS)
    assert answers[after] == Answer({**FACTS, "suffix": "64_"})


@pytest.mark.slow
def test_a_library_that_hangs_is_given_up_and_hides_nothing(compiled, good):
    bad = blas(compiled("bad/libopenblas.so", "ON_LOAD_HANG"))
    answers = ask([[bad, good]], timeout=3.0)
    assert answers[bad] == Answer(
        error="no answer within 3 s of being opened", hung=True, again_after=600.0
    )
    assert answers[good] == Answer(FACTS)


def test_a_library_that_dies_of_another_is_asked_alone(compiled):
    spoiler = blas(compiled("first/libopenblas.so", "OPENBLAS", "ON_LOAD_SPOIL"))
    fragile = blas(compiled("second/libopenblas.so", "OPENBLAS", "ON_LOAD_FRAGILE"))
    assert ask([[spoiler, fragile]]) == {spoiler: Answer(FACTS), fragile: Answer(FACTS)}


def test_a_hung_child_is_gone_afterwards(compiled, monkeypatch):
    started = []
    hear = childprocess.Dialogue.hear

    def remember(child, timeout):
        started.append(child.process.pid)
        return hear(child, timeout)

    monkeypatch.setattr(childprocess.Dialogue, "hear", remember)
    ask([[blas(compiled("bad/libopenblas.so", "ON_LOAD_HANG"))]], timeout=0.5)
    assert len(set(started)) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_a_library_that_prints_an_answer_is_not_believed(compiled):
    path = compiled("libopenblas.so", "OPENBLAS", "ON_LOAD_PRINT")
    assert ask([[blas(path)]]) == {blas(path): Answer(FACTS)}


def test_files_that_are_no_libraries_say_why(tmp_path, compiled, good):
    text = tmp_path / "libopenblas.so"
    text.write_text("/* GNU ld script */ INPUT(libother.so)\n" * 3)
    cut = tmp_path / "cut" / "libopenblas.so"
    cut.parent.mkdir()
    cut.write_bytes(Path(good.path).read_bytes()[:40])
    missing = tmp_path / "gone" / "libopenblas.so"
    foreign = blas(compiled("foreign/libopenblas.so"))
    requests = [blas(str(text)), blas(str(cut)), blas(str(missing)), foreign, good]
    answers = ask([requests])
    assert [answers[request].error for request in requests] == [
        "invalid ELF header",
        "file too short",
        "cannot open shared object file: No such file or directory",
        "no symbol openblas_get_config",
        "",
    ]
    assert answers[good].facts == FACTS


def test_a_file_cut_off_in_the_middle_hides_nothing(tmp_path, good):
    cut = tmp_path / "cut" / "libopenblas.so"
    cut.parent.mkdir()
    cut.write_bytes(Path(good.path).read_bytes()[:900])
    answers = ask([[blas(str(cut)), good]])
    # The loader maps more than there is, and dies of it or not by its version.
    assert answers[blas(str(cut))].error in {
        "killed the process that opened it (SIGBUS)",
        "file too short",
    }
    assert answers[good].facts == FACTS


def test_a_null_string_is_an_empty_version(compiled):
    request = blas(compiled("libopenblas.so", "OPENBLAS", "NULL_CONFIG"))
    facts = ask([[request]])[request].facts
    assert facts == {**FACTS, "version": "", "max_threads": 0}


def test_the_core_type_is_that_of_the_users_variable(good):
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Zen"}
    assert ask([[good]], environment=environment)[good].facts["core_type"] == "Zen"


def test_every_kind_answers_for_itself(compiled):
    requests = [
        Request("symbols", compiled("libblis.so.4", "BLIS", INTEGER="int64_t"), "blis"),
        Request("symbols", compiled("libmkl_rt.so.2", "MKL"), "mkl"),
        Request("symbols", compiled("libblas.so.3", "REFERENCE"), "reference-blas"),
        Request(
            "symbols", compiled("libblas64.so.3", "REFERENCE", INTEGER="int64_t"), "reference-blas"
        ),
        Request("symbols", compiled("liblapack.so.3", "LAPACK"), "lapack"),
        Request("symbols", compiled("libgomp.so.1", "OPENMP"), "openmp"),
    ]
    answers = ask([requests])
    kept = ("kind", "version", "interface", "threading", "core_type", "serves")
    assert [[answers[one].facts.get(key) for key in kept] for one in requests] == [
        ["blis", "0.9.9", "ilp64", "pthreads", "zen3", True],
        ["mkl", "2025.1", "both", "", "avx512", True],
        ["reference-blas", None, "lp64", None, None, False],
        ["reference-blas", None, "ilp64", None, None, False],
        ["lapack", "3.12.1", "lp64", None, None, None],
        ["openmp", None, None, "gnu", None, None],
    ]


def test_an_openblas_under_the_name_of_the_reference_is_openblas(compiled):
    request = Request("symbols", compiled("libblas.so.3", "OPENBLAS"), "reference-blas")
    assert ask([[request]])[request].facts == FACTS


def test_a_blis_whose_kernels_are_chosen_is_initialised_first(compiled):
    request = Request("symbols", compiled("libblis.so.4", "BLIS"), "blis")
    answers = ask([[request]], environment={**os.environ, "BLIS_ARCH_TYPE": "6"})
    assert answers[request].facts["core_type"] == "zen3"


def test_a_blis_that_aborts_on_its_variable_is_named(compiled):
    request = Request("symbols", compiled("libblis.so.4", "BLIS"), "blis")
    answers = ask([[request]], environment={**os.environ, "BLIS_ARCH_TYPE": "77"})
    assert answers[request].error == (
        "killed the process that opened it (SIGABRT): libblis: unimplemented arch_t libblis: Aborting."
    )


def test_a_torch_without_mkl_is_nothing_and_nothing_is_wrong(compiled):
    request = Request("symbols", compiled("libtorch_cpu.so"), "mkl")
    assert ask([[request]])[request] == Answer({"kind": ""})


@pytest.mark.parametrize(
    ("name", "again_after"), [("SIGKILL", 0.0), ("SIGSEGV", None)], ids=["from outside", "itself"]
)
def test_a_child_that_is_killed_from_outside_says_nothing_of_the_file(
    good, monkeypatch, name, again_after
):
    kill = f"import os, signal; input(); os.kill(os.getpid(), signal.{name})"
    command = childprocess.command
    monkeypatch.setattr(
        childprocess, "command", lambda _, **options: command(["-c", kill], **options)
    )
    reason = f"killed the process that opened it ({name})"
    assert ask([[good]])[good] == Answer(error=reason, again_after=again_after)


def test_a_limit_on_processes_says_nothing_of_the_file(good, monkeypatch):
    def refuse(*_, **__):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(childprocess, "Dialogue", refuse)
    assert ask([[good]])[good] == Answer(
        error=f"no child process could be started: [Errno {errno.EAGAIN}] Resource temporarily unavailable",
        again_after=0.0,
    )


def test_where_no_thread_can_be_started_libraries_are_asked_without(good, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    assert ask([[good]])[good] == Answer(FACTS)


def test_an_interpreter_that_cannot_be_started_is_the_reason(good, monkeypatch):
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    assert ask([[good]])[good] == Answer(
        error="no child process could be started: "
        "[Errno 2] No such file or directory: '/nonexistent/python'"
    )


def test_an_embedded_interpreter_is_the_reason(good, monkeypatch):
    monkeypatch.setattr("sys.executable", "")
    assert ask([[good]])[good].error == (
        "no child process could be started: the interpreter does not know its own path"
    )


def test_no_library_of_a_child_is_in_this_process(good):
    ask([[good]])
    assert good.path not in Path("/proc/self/maps").read_text()


def test_signals_have_names():
    assert childprocess.signal_name(signal.SIGBUS) == "SIGBUS"
    assert childprocess.signal_name(250) == "signal 250"


def test_a_child_ends_with_a_parent_that_is_killed(compiled):
    path = compiled("libopenblas.so", "ON_LOAD_HANG")
    program = f"""
import os
from backendcfg import childprocess
from backendcfg.probe import inspection
hear = childprocess.Dialogue.hear
def told(child, *arguments):
    assert "begin" in hear(child, *arguments)
    print(child.process.pid, flush=True)
    return hear(child, *arguments)
childprocess.Dialogue.hear = told
inspection.ask([[inspection.Request("symbols", {path!r}, "openblas")]], timeout=60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as parent:
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    # Readable when the process has ended.
    assert select.select([child], [], [], 20)[0] == [child]
    os.close(child)


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (OSError(errno.EMFILE, "Too many open files"), 0.0),
        (MemoryError(), 0.0),
        (RuntimeError("can't start new thread"), 0.0),
        (RuntimeError("out of luck"), None),
        (PermissionError(errno.EACCES, "Permission denied"), None),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), None),
    ],
    ids=repr,
)
def test_only_errors_of_the_moment_may_pass(error, seconds):
    assert inspection.again_after(error) == seconds


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("OpenBLAS error: Memory allocation still failed after 10 retries, giving up.", 0.0),
        ("x.so: failed to map segment from shared object", 0.0),
        ("x.so: failed to map segment from shared object: Operation not permitted", None),
        ("x.so: file too short", None),
    ],
)
def test_words_of_a_limit_are_known_whoever_says_them(said, seconds):
    assert inspection._answer(said) == Answer(error=said, again_after=seconds)
