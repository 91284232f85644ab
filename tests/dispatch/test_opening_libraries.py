"""Opening: real libraries compiled on the spot, good and bad, tried in a child process first."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from backendcfg import native, ops
from backendcfg._native import Prepared, Scope
from backendcfg.dispatch import providers, rehearsal, snapshots
from backendcfg.dispatch.providers import LibraryFile, Refused, Usable
from backendcfg.errors import MissingLibraryError
from backendcfg.transact.compiled import Compiled


def record(provider, path, **more):
    return {"provider": provider, "path": path, "owner": "system", **more}


def under(order, libraries=(), **values):
    compiled = Compiled("p", "none", values, order=tuple(order), libraries=tuple(libraries))
    return Scope(Prepared("p", compiled), 0)


def served(scope, n=5):
    """Who serves a product in a scope; the product is right."""
    a = np.arange(n * n, dtype="float64").reshape(n, n)
    ops.reset_stats()
    with scope:
        assert np.array_equal(ops.matmul(a, a), a @ a)
    return [s.provider for s in ops.stats() if s.calls]


@pytest.mark.parametrize(
    ("kind", "prefix", "suffix", "interface"),
    [("lp64", "", "", "lp64"), ("ilp64", "scipy_", "64_", "ilp64"), ("lp64", "", "", "")],
)
def test_a_good_library_serves(fake, kind, prefix, suffix, interface):
    names = {"prefix": prefix, "suffix": suffix, "interface": interface}
    library = record("blis", fake(kind), **names)
    scope = under(["blis", "reference"], [library])
    assert served(scope) == ["blis"]
    with scope:
        assert ops.explain("matmul", ((5, 5), (5, 5))).path == fake(kind)


def test_a_file_named_by_the_profile_serves_under_whatever_names_it_has(fake):
    path = fake("ilp64", "named")
    scope = under(["blis", "reference"], **{"blas.path": path})
    assert served(scope) == ["blis"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("without_symbol", "{path} has no symbol cblas_zgemv"),
        ("wrong", "{path} computes a 2 by 3 times 3 by 2 product wrongly: zgemv"),
        ("foreign", "{path}: file too short"),
        ("", "{path}: cannot open shared object file: No such file or directory"),
    ],
)
def test_a_file_named_by_the_profile_that_cannot_serve_is_an_error(fake, tmp_path, kind, reason):
    path = fake(kind, "named_" + kind) if kind else str(tmp_path / "libnone.so")
    for _ in range(2):  # also when it is asked for again
        with (
            under(["blis", "reference"], **{"blas.path": path}),
            pytest.raises(MissingLibraryError) as raised,
        ):
            ops.matmul(np.ones((2, 2)), np.ones((2, 2)))
        assert raised.value.message == f"cannot use {path}, which `blas.path` of profile `p` names"
        assert raised.value.notes == (reason.format(path=path),)


@pytest.mark.parametrize(
    ("kind", "interface", "reason"),
    [
        ("without_symbol", "lp64", "{path} has no symbol cblas_zgemv"),
        ("lp64", "ilp64", "{path} has 32-bit integers, not 64-bit ones"),
        ("wrong", "lp64", "{path} computes a 2 by 3 times 3 by 2 product wrongly: zgemv"),
        ("deadly", "lp64", "tried in a child process, it ended that process by SIGSEGV"),
        ("foreign", "lp64", "{path}: file too short"),
    ],
)
def test_a_bad_library_is_passed_over_with_its_reason(fake, kind, interface, reason):
    path = fake(kind, "bad" + interface)
    scope = under(["blis", "reference"], [record("blis", path, interface=interface)])
    assert served(scope) == ["reference"]
    with scope:
        reasons = ops.explain("matmul", ((5, 5), (5, 5))).reasons
    why = {r.provider: r.why for r in reasons}
    assert why["blis"] == reason.format(path=path)
    assert not providers.is_loaded(path)


def test_a_broken_file_does_not_hide_a_good_one_of_the_same_provider(fake):
    libraries = [
        record("blis", fake("foreign", "first"), interface="lp64"),
        record("blis", fake("lp64", "second"), interface="lp64"),
    ]
    assert served(under(["blis"], libraries)) == ["blis"]


def test_nothing_behind_the_first_usable_one_is_opened(fake, monkeypatch):
    here = snapshots._in_process  # where another test may have brought SciPy's
    monkeypatch.setattr(
        snapshots,
        "_in_process",
        lambda: [each for each in here() if each["provider"] != "scipy-openblas"],
    )
    first = record("blis", fake("lp64", "ahead"), interface="lp64")
    second = record("scipy-openblas", fake("lp64", "behind"), interface="lp64")
    scope = under(["blis", "scipy-openblas", "openblas", "reference"], [first, second])
    assert served(scope) == ["blis"]
    assert not providers.is_loaded(fake("lp64", "behind"))
    with scope:
        said = ops.explain("matmul", ((5, 5), (5, 5)))
        large = ops.explain("matmul", ((2**31, 5), (5, 5)))
    why = {r.provider: r.why for r in said.reasons}
    assert why["scipy-openblas"] == "behind `blis`, and not in the process: not opened"
    assert why["openblas"] == "behind `blis`"
    assert large.provider == "openblas"
    why = {r.provider: r.why for r in large.reasons}
    assert why["blis"] == "a size does not fit its 32-bit integers"


def test_no_usable_library_is_an_error_that_names_each(fake):
    path = fake("foreign", "only")
    scope = under(["blis", "mkl"], [record("blis", path, interface="lp64")])
    with pytest.raises(MissingLibraryError) as caught:
        served(scope)
    assert caught.value.notes[0] == f"blis: {path}: file too short"
    assert len(caught.value.notes) == 2


def test_the_host_never_opens_what_a_child_died_of(fake):
    answer = providers.open_file("blis", LibraryFile(fake("deadly", "twice"), "", "", "lp64"))
    assert answer == providers.open_file(
        "blis", LibraryFile(fake("deadly", "twice"), "", "", "lp64")
    )
    assert isinstance(answer, Refused)


def test_without_an_interpreter_for_the_child_an_unknown_library_is_refused(fake, monkeypatch):
    monkeypatch.setattr(sys, "executable", None)
    answer = providers.open_file("blis", LibraryFile(fake("lp64", "nochild")))
    assert answer == Refused(
        fake("lp64", "nochild"),
        "a child process that was to try it could not be started: the interpreter does not know its "
        "own path",
    )


def test_what_a_library_prints_is_not_taken_for_the_answer(fake):
    path = fake("talkative")
    assert rehearsal.rehearse(native.file(), path, "", "", "lp64") == ""
    reason = f"{path} has 32-bit integers, not 64-bit ones"
    assert rehearsal.rehearse(native.file(), path, "", "", "ilp64") == reason


def test_a_child_that_hangs_is_given_up(fake, monkeypatch):
    def hangs(child, given, timeout):
        raise subprocess.TimeoutExpired(child.args, timeout)

    library = fake("lp64")  # compiled by a process that does not hang
    monkeypatch.setattr(subprocess.Popen, "communicate", hangs)
    assert rehearsal.rehearse(native.file(), library, "", "", "") == (
        "a child process that was to try it did not end within 30 s"
    )


def test_a_relative_path_is_refused_by_the_core():
    with pytest.raises(MissingLibraryError) as caught:
        native.open_provider("blis", "libblis.so")
    assert caught.value.notes == ("libblis.so is not an absolute path",)


def test_a_child_forked_while_a_thread_opens_something_can_open(fake):
    held, done = threading.Event(), threading.Event()

    def opens():
        with providers._process.lock:
            held.set()
            done.wait()

    path = fake("lp64", "forked")
    assert isinstance(providers.open_file("blis", LibraryFile(path, "", "", "lp64")), Usable)
    thread = threading.Thread(target=opens)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # instead of waiting for ever
        answer = providers.open_file("blis", LibraryFile(path, "", "", "lp64"))
        os._exit(0 if isinstance(answer, Usable) else 1)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_opening_twice_is_opening_once(fake):
    path = fake("lp64", "again")
    first = providers.open_file("blis", LibraryFile(path, "", "", "lp64"))
    assert isinstance(first, Usable)
    assert native.open_provider("blis", path) == first.handle
    assert native.describe(first.handle).interface == "lp64"


def test_mkl_waits_for_torch_and_for_no_ld_bind_now(monkeypatch):
    monkeypatch.setattr(providers, "find_spec", lambda name: object())
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert providers.hazard("mkl") == (
        "PyTorch is installed and not imported yet, and would bind to this MKL: import it first"
    )
    monkeypatch.setitem(sys.modules, "torch", object())
    assert providers.hazard("mkl") == ""
    monkeypatch.setenv("LD_BIND_NOW", "1")
    assert providers.hazard("mkl") == (
        "LD_BIND_NOW is set, under which MKL cannot load its own layers and ends the process"
    )


def test_a_hazard_is_asked_again_because_it_passes(fake, monkeypatch):
    answers = ["not yet", ""]
    monkeypatch.setattr(providers, "hazard", lambda name: answers.pop(0))
    library = LibraryFile(fake("lp64", "hazard"), "", "", "lp64")
    assert providers.open_file("blis", library) == Refused(library.path, "not yet")
    assert isinstance(providers.open_file("blis", library), Usable)


def test_mkl_is_used_by_its_64_bit_names():
    library = record("mkl", "/x/libmkl_rt.so.3", interface="both")
    assert providers.files_of("mkl", [library]) == [
        LibraryFile("/x/libmkl_rt.so.3", "", "_64", "ilp64", "system")
    ]


def test_numpys_own_copy_is_tried_first():
    libraries = [record("openblas", "/a"), record("openblas", "/b") | {"owner": "numpy"}]
    assert [file.path for file in providers.files_of("openblas", libraries)] == ["/b", "/a"]
