"""What a program would find, and what its runs produced, made up for tests of locks."""

from __future__ import annotations

from backendcfg.audit.evidence.lock import (
    Library,
    Lock,
    Machine,
    Numerics,
    Present,
    Profile,
    Python,
    Results,
    made,
)

PRESENT = Present(
    profile=Profile(
        name="reproducible",
        tier="run-to-run",
        order=["openblas", "native"],
        flags={"cuda.matmul.allow_tf32": False, "threads.count": 8},
    ),
    libraries={
        "numpy": Library(version="2.3.1", files={"libopenblas.so": "25-aa", "_umath.so": "10-bb"}),
        "system": Library(files={"libm.so.6": "9-cc"}),
    },
    python=Python(
        version="3.12.3",
        implementation="CPython",
        backendcfg="0.2.0",
        packages={"numpy": "2.3.1", "scipy": "1.17.1"},
    ),
    machine=Machine(
        cpu="AMD EPYC 9454",
        microarchitecture="zen4",
        features="avx avx2 avx512f",
        caches="32K 32K 1024K 32768K",
        usable=8,
        gpus=["NVIDIA H100 9.0"],
        drivers={"nvidia": "570.86"},
    ),
    numerics=Numerics(
        token="0123456789abcdef",
        composed=2,
        parts={"processor": "aa", "switches": "bb"},
        switches={"openblas[numpy].threads": 8, "torch.sdp_priority": ["flash", "math"]},
        facts={"torch.default_dtype": "float32", "thread.flush_denormal": False},
        variables={"MKL_CBWR": "AUTO"},
    ),
)

RESULTS = Results(
    runs=10, bound=0.2589, text="aa", records="bb", files={"out.npz": "cc", "log.txt": "dd"}
)


def locked() -> Lock:
    """A lock of all that, of today."""
    return made(PRESENT, RESULTS)


def changed(document, path, value):
    """A document with another value at a path: `changed(PRESENT, "profile/name", "fast")`."""
    first, _, rest = path.partition("/")
    if isinstance(document, dict):
        inner = changed(document[first], rest, value) if rest else value
        kept = {name: one for name, one in document.items() if name != first}
        return {**kept, **({} if inner is None else {first: inner})}
    inner = changed(getattr(document, first), rest, value) if rest else value
    return document.model_copy(update={first: inner})
