"""Bytes as each kind of file or struct that somebody else may have written.

    python tests/hostile/fuzzing.py TARGET FOLDER [libFuzzer's options]

looks for bytes that break a reader, guided by what of the package they reach; it needs
`pip install atheris`. FOLDER has the inputs to begin with, and takes those that reach more. `corpus/`
keeps what that found: `test_fuzzing.py` tries it in every run. With `--keep` instead of options the
inputs of FOLDER are added there.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import json
import os
import sys
import tempfile
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")
_folder = tempfile.TemporaryDirectory(prefix="backendcfg-fuzzing-")
_SCRATCH = _folder.name


def _file(data: bytes, *parts: str) -> str:
    path = os.path.join(_SCRATCH, *parts)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, 0o600)
    return path


@contextlib.contextmanager
def _folder_of(kind: str):
    """With the scratch folder as that of the user's settings or cache."""
    name = f"BACKENDCFG_{kind}_DIR"
    before = os.environ.get(name)
    os.environ[name] = _SCRATCH
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextlib.contextmanager
def _only_ours():
    """What is refused is an error of ours, which can be printed."""
    from backendcfg.errors import BackendCfgError

    refused = None
    try:
        yield
    except BackendCfgError as error:
        refused = error
    if refused is not None:
        text = refused.render()
        assert all(each.isprintable() or each == "\n" for each in text), text
        assert len(text) < 30_000, len(text)
        assert json.dumps(refused.to_dict())


def profile(data: bytes) -> None:
    """A profile."""
    from backendcfg.load.document import read_profile

    with _only_ours():
        read_profile(_file(data, "profiles", "x.toml"))


def settings(data: bytes) -> None:
    """A project's settings, in both of their files, and whether one makes its folder a project."""
    from backendcfg import startup
    from backendcfg.load.document import read_settings

    for name in startup.MARKERS:
        path = _file(data, name, name)
        startup.project(os.path.dirname(path))
        startup.picks(path)
        with _only_ours():
            read_settings(path)


def index(data: bytes) -> None:
    """The index of active generations, which a start and the verbs read alike."""
    from backendcfg import startup
    from backendcfg.transact import store

    path = _file(data, "state", "active")
    at_start = startup.active_rows(os.path.dirname(path))
    with _only_ours():
        rows = store.read_index(path)
        if data:
            assert at_start == {path: row.generation for path, row in rows.items()}


def generation(data: bytes) -> None:
    """A stored generation."""
    from backendcfg.transact import store

    _file(data, "state", "generations", "user", "1.json")
    with _only_ours():
        row = store.Row(1, "user", "*user*", 1)
        store.load(os.path.join(_SCRATCH, "state"), row, 1)


def plan(data: bytes) -> None:
    """A cached plan."""
    from backendcfg.session import planning

    with _folder_of("CACHE"):
        name = os.path.relpath(planning.cache_directory(), _SCRATCH)
        _file(data, name, "x.json")
        planning._stored("x", _SCRATCH, {})


def table(data: bytes) -> None:
    """A table of `tune`."""
    from backendcfg.dispatch import calibration

    with _folder_of("CACHE"):
        _file(data, os.path.relpath(calibration.path(1), _SCRATCH))
        calibration.read(1)


def answers(data: bytes) -> None:
    """What libraries answered in earlier processes."""
    from backendcfg.probe import kept

    kept.entries(_file(data, "libraries.json"))


def host(data: bytes) -> None:
    """A captured host."""
    from backendcfg.cli.sources import read_host

    with _only_ours():
        read_host(_file(data, "host.json"))


def fleet(data: bytes) -> None:
    """The plan of a fleet, also compared with what is here."""
    from backendcfg.cli.sources import read_host
    from backendcfg.fleet import planned
    from backendcfg.transact.compiled import Compiled

    here = read_host(str(Path(__file__).parents[1] / "hosts" / "dgx-h100--openblas.json"))
    path = _file(data, "fleet.json")
    with _only_ours():
        found = planned.read(path)
        planned.refuse_unsafe(found, path)
        planned.refuse_unless_as_planned(found, Compiled("x", "none", {}), here, path, {})


def ranks(data: bytes) -> None:
    """What two ranks saved, and a file whose digest they may name, also as it is printed."""
    from backendcfg import plain_json
    from backendcfg.audit.token import digest
    from backendcfg.fleet import report

    _clear(os.path.join(_SCRATCH, "left"))
    parts = data.split(b"\n--\n", 2)
    key = "0" * 16
    with contextlib.suppress(ValueError, RecursionError):
        key = digest(json.loads(parts[-1]))
    named = b"\n--\n".join(part.replace(b"DIGEST", key.encode()) for part in parts)
    names = ("rank-00000.json", "rank-00001.json", f"{key}.json")
    found = report.merge(_left(named, *names))
    assert len(found.document()["obstacles"]) <= 4
    assert plain_json.dumps(found.document())
    for one in (*found.settings, *found.unlike):
        assert len(str(one)) < 30_000
    assert found.rows() or found.obstacles
    assert not (found.alike and found.obstacles)


def trusted(data: bytes) -> None:
    """The record of trust."""
    from backendcfg.load import trust

    with _folder_of("CONFIG"):
        _file(data, os.path.relpath(trust.store(), _SCRATCH))
        with _only_ours():
            trust.is_trusted("/", "0")


def plain_json(data: bytes) -> None:
    """JSON, as the standard library reads it."""
    from backendcfg import plain_json

    text = data.decode(errors="replace")
    results = []
    for loads in (json.loads, plain_json.loads):
        try:
            results.append(repr(loads(text)))
        except RecursionError:
            results.append("it is nested too deeply")
        except ValueError as error:
            results.append(str(error))
    assert results[0] == results[1], results


def dlpack(data: bytes) -> None:
    """A DLPack capsule; the memory that it names is looked at by nobody."""
    import numpy as np
    from capsules import Export, Tensor

    from backendcfg import _native
    from backendcfg.ops import arrays  # noqa: F401 - tells the native part of NumPy

    size = ctypes.sizeof(Tensor)
    export = Export(shape=None, strides=None)
    fields = bytearray(data[:size].ljust(size, b"\0"))
    numbers = np.frombuffer(data[size : size + 1024].ljust(1024, b"\0"), np.int64).copy()
    given = Tensor.from_buffer_copy(bytes(fields))
    tensor = export.managed.tensor
    for name, _ in Tensor._fields_:
        if name not in ("shape", "strides"):
            setattr(tensor, name, getattr(given, name))
    pointer = ctypes.POINTER(ctypes.c_int64)
    tensor.shape = ctypes.cast(numbers.ctypes.data, pointer)
    if fields[-1] % 2:
        tensor.strides = ctypes.cast(numbers[64:].ctypes.data, pointer)
    try:
        array, _ = _native.from_dlpack(export.capsule())
    except ValueError:
        assert export.deleted == 0
        return
    assert list(array.shape) == numbers[: array.ndim].tolist()
    assert all(count >= 0 for count in array.shape)
    del array
    assert export.deleted == 1


def lock(data: bytes) -> None:
    """A lock of a proven run, also compared with what is here, and written again."""
    from proven_runs import PRESENT, RESULTS

    from backendcfg.audit.evidence import drift
    from backendcfg.audit.evidence import lock as locks

    path = _file(data, "run.lock")
    with _only_ours():
        found = locks.read(path)
        for one in drift.drifts(found, PRESENT):
            str(one)
        drift.differing(found.results, RESULTS)
        text = found.to_toml()
        _file(text.encode(), "run.lock")
        assert locks.read(path).to_toml() == text


def _left(data: bytes, *names: str) -> str:
    """A folder with files of these names, whose contents a line `--` parts."""
    folder = os.path.join(_SCRATCH, "left")
    for name, part in zip(names, data.split(b"\n--\n", len(names) - 1), strict=False):
        _file(part, "left", name)
    return folder


def trace(data: bytes) -> None:
    """The streams of two threads of a traced program, also compared with each other."""
    from dataclasses import replace

    from backendcfg.audit.evidence import float64
    from backendcfg.audit.report import words
    from backendcfg.audit.trace import reading

    names = [f"0-{i}{end}" for end in (".lines", ".records", ".samples") for i in range(2)]
    folder = _left(data, *names)
    try:
        found = reading.read(folder)
    finally:
        _clear(folder)
    for one in found:
        # As `why.py`, `twice.py` and `float64.py` look at them.
        for about in one.details.values():
            assert all(isinstance(each, str) for each in (about["place"], *about["outputs"]))
            assert os.path.dirname(about.get("kept", {"path": ""})["path"]) in ("", folder)
            for given in about["inputs"]:
                (one.records["digest"] == given["digest"]).any()
        one.about["python"] if one.names else one.name(0)
    sides = (float64.bits([one.exactness for one in some]) for some in (found[:1], found[1:]))
    bits = float64.Float64(*sides)
    assert set(bits.telling) <= set(bits.compared) <= bits.a.keys() & bits.b.keys()
    assert len(words.bits(bits)) == min(len(bits.telling), words.MOST_OPERATIONS)
    same = [replace(one, key="") for one in found]
    for one in same:
        for other in same:
            assert one is not other or not reading.partings([one], [other])
            reading.partings([one], [other])
            reading.followed(one, other)


def records(data: bytes) -> None:
    """What two processes recorded, also compared with each other."""
    from backendcfg.audit.evidence import recorded

    folder = _left(data, "0.records", "1.records")
    try:
        found = recorded.read(folder)
    finally:
        _clear(folder)
    recorded.obstacles(found)
    for one in found:
        for other in found:
            words = recorded.differing([one], [other])
            assert one is not other or not words
    recorded.between([found], [found[::-1]])


def _clear(folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))


TARGETS = {
    target.__name__: target
    for target in (
        profile,
        settings,
        index,
        generation,
        plan,
        table,
        answers,
        host,
        fleet,
        ranks,
        trusted,
        plain_json,
        dlpack,
        lock,
        trace,
        records,
    )
}


def inputs(name: str) -> list[bytes]:
    """What is kept for a target: a line of Python's bytes for each input."""
    text = (CORPUS / f"{name}.txt").read_text(encoding="ascii")
    return [ast.literal_eval(line) for line in text.splitlines()]


def keep(name: str, folder: Path) -> None:
    """Add a folder's inputs of at most 1 KiB to what is kept."""
    found = {path.read_bytes() for path in folder.iterdir() if path.stat().st_size <= 1024}
    with contextlib.suppress(FileNotFoundError):
        found |= set(inputs(name))
    lines = [repr(each) + "\n" for each in sorted(found, key=lambda each: (len(each), each))]
    CORPUS.mkdir(exist_ok=True)
    (CORPUS / f"{name}.txt").write_text("".join(lines), encoding="ascii")


def main(name: str, folder: str, *options: str) -> None:
    """Fuzz a target, or keep what a folder has for it."""
    if options == ("--keep",):
        keep(name, Path(folder))
        return
    import atheris

    TARGETS[name](b"")  # loads what it needs, to be instrumented
    atheris.instrument_all()
    atheris.Setup([sys.argv[0], folder, *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]
    main(*sys.argv[1:])
