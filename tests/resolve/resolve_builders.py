"""Stacks and hosts for the tests of resolving, written without loading and without detecting."""

from __future__ import annotations

from backendcfg.resolve.words import literal
from backendcfg.schema.host import Cpu, Gpu, Host, Interpreter, Library, Memory, System
from backendcfg.schema.profile import (
    Assignment,
    Condition,
    Conditional,
    Dropped,
    Layer,
    Place,
    Requirement,
    Stack,
)

AVX2 = ("avx", "avx2", "fma", "sse4_2")
AVX512 = (*AVX2, "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl")

NUMPY_OPENBLAS = Library(
    kind="openblas",
    provider="openblas",
    owner="numpy",
    path="/venv/numpy.libs/libscipy_openblas64_-abc.so",
    version="0.3.31",
    interface="ilp64",
    prefix="scipy_",
    suffix="64_",
    threading="pthreads",
    core_type="Haswell",
    threads=2,
    loaded=True,
)
SCIPY_OPENBLAS = NUMPY_OPENBLAS.model_copy(
    update={
        "provider": "scipy-openblas",
        "owner": "scipy",
        "path": "/venv/scipy.libs/libscipy_openblas-def.so",
        "interface": "lp64",
        "suffix": "",
    }
)
MKL = Library(
    kind="mkl",
    provider="mkl",
    owner="mkl",
    path="/venv/lib/libmkl_rt.so.2",
    version="2025.0",
    interface="both",
)
BLIS = Library(
    kind="blis",
    provider="blis",
    owner="system",
    path="/usr/lib/x86_64-linux-gnu/blis-openmp/libblis.so.4",
    version="0.9.0",
    interface="lp64",
)

T4 = Gpu(index=0, vendor="nvidia", name="Tesla T4", compute_capability="7.5", architecture="sm_75")
H100 = Gpu(
    index=0, vendor="nvidia", name="NVIDIA H100", compute_capability="9.0", architecture="sm_90"
)
MI300X = Gpu(index=0, vendor="amd", name="AMD Instinct MI300X", architecture="gfx942")


def a_host(
    *,
    gpus=(),
    packages=(),
    libraries=(NUMPY_OPENBLAS,),
    environment=None,
    drivers=None,
    probes=(),
    os="linux",
    vendor="amd",
    architecture="x86_64",
    microarchitecture="zen4",
    lineage=("zen4", "zen3", "zen2", "zen", "x86_64_v3", "x86_64"),
    features=AVX512,
    logical=2,
    physical=0,
    usable=2,
    cores=0,
    limits=(),
):
    """A small Linux machine with NumPy, changed where a test says so."""
    return Host(
        system=System(os=os),
        python=Interpreter(version="3.11.7"),
        cpu=Cpu(
            vendor=vendor,
            name="a CPU",
            architecture=architecture,
            microarchitecture=microarchitecture,
            lineage=lineage,
            features=tuple(sorted(features)),
            logical=logical,
            physical=physical or logical,
            usable=usable,
            cores=cores,
            limits=limits,
        ),
        memory=Memory(total=8 << 30),
        gpus=gpus,
        drivers=drivers or {},
        libraries=libraries,
        packages={"numpy": "2.4.6", **dict(packages)},
        environment=environment or {},
        probes=probes,
    )


def place(path, line, text, value=None):
    """Where a value stands in a line, as the loader marks it."""
    column = text.index(value) + 1 if value else 1
    return Place(path=path, line=line, column=column, length=len(value or text), source=text)


def assigned(path, values, first_line=3):
    """Assignments of `{flag: value}`, one per line of a file."""
    found = []
    for line, (flag, value) in enumerate(values.items(), start=first_line):
        written = literal(value)
        text = f"{flag.rpartition('.')[2]} = {written}"
        found.append(Assignment(flag=flag, value=value, place=place(path, line, text, written)))
    return tuple(found)


def a_layer(
    name,
    values=None,
    *,
    rank="profile-by-argument",
    drop=(),
    requires=None,
    when=(),
    description="",
):
    """A profile's layer; `requires` is `{line: condition}`, `when` pairs of condition and values."""
    path = f"profiles/{name}.toml"
    requirements = tuple(
        Requirement(
            condition=Condition(**condition), place=place(path, 2, text, text.split(" = ")[1])
        )
        for text, condition in (requires or {}).items()
    )
    whens = tuple(
        Conditional(
            condition=Condition(**condition),
            assignments=assigned(path, flags, 20 + 10 * index),
            place=place(path, 19 + 10 * index, "[[when]]"),
        )
        for index, (condition, flags) in enumerate(when)
    )
    return Layer(
        rank=rank,
        title=f"profile `{name}`",
        profile=name,
        path=path,
        description=description,
        assignments=assigned(path, values or {}),
        dropped=tuple(Dropped(flag=flag, place=place(path, 1, "drop")) for flag in drop),
        requires=requirements,
        whens=whens,
    )


def settings(rank, title, values, path="backendcfg.toml"):
    """The layer of a settings file."""
    return Layer(rank=rank, title=title, path=path, assignments=assigned(path, values))


def variables(values):
    """The layer of BACKENDCFG_<FLAG> variables."""
    return Layer(
        rank="environment",
        title="environment",
        assignments=tuple(
            Assignment(
                flag=flag,
                value=value,
                place=Place(name=f"BACKENDCFG_{flag.upper().replace('.', '_')}"),
            )
            for flag, value in values.items()
        ),
    )


def a_stack(*layers, name=None):
    """Layers, weakest first; named after the last profile."""
    names = [layer.profile for layer in layers if layer.profile]
    return Stack(name=name or (names[-1] if names else "default"), layers=layers)


def a_profile(values=None, *, name="mine", **more):
    """A stack of one profile."""
    return a_stack(a_layer(name, values, **more))
