"""One real cause for every error class: what is done, and the message that a person sees.

Each cause is a function that provokes its error through the command line or the public functions,
in an empty project of its own. The message is compared with `golden/<code>.txt`, which
docs/errors.md shows too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
from itertools import count
from pathlib import Path

import numpy as np

import backendcfg
from backendcfg.cli.main import main
from backendcfg.errors import BackendCfgError
from backendcfg.transact.journal import transact
from backendcfg.transact.switch import Setting

HERE = "/home/ana/project"
"""What the messages say instead of the temporary directory."""

SITE = "/usr/lib/python3/site-packages"
CAUSES = {}


def causes(code):
    """Register the cause of an error's code."""

    def register(function):
        assert code not in CAUSES
        CAUSES[code] = function
        return function

    return register


class StandIn:
    """A switch that misbehaves on request.

    Args:
        name: of the switch.
        value: what it holds.
        takes: how many writes it takes; later ones are ignored.
        readable: whether it can be read.
        late: why its latch has passed, or "".
    """

    reach, latch, reversible = "process", "anytime", True

    def __init__(self, name, value, *, takes=99, readable=True, late=""):
        self.name, self.value = name, value
        self.takes, self.readable, self.late = takes, readable, late

    def read(self):
        if not self.readable:
            raise OSError("the library has no getter")
        return self.value

    def write(self, value):
        self.takes -= 1
        if self.takes >= 0:
            self.value = value

    def too_late(self):
        return self.late


def settings(wanted, *switches):
    """Every switch with the same value wanted."""
    return [
        Setting(switch, wanted, "threads.count", "backendcfg run fast -- python ...")
        for switch in switches
    ]


def nothing():
    """A publication that succeeds."""


class Project:
    """An empty project in a temporary directory, and what can be done in it."""

    def __init__(self, root, capsys, monkeypatch):
        self.root, self.capsys, self.monkeypatch = root, capsys, monkeypatch
        self.write("backendcfg.toml", "")

    def write(self, path, text):
        """Write a file of the project."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def profile(self, name, *lines):
        """Write `profiles/<name>.toml`."""
        self.write(f"profiles/{name}.toml", "\n".join(lines) + "\n")

    def set(self, variable, value):
        """Set an environment variable."""
        self.monkeypatch.setenv(variable, value)

    def run(self, *words):
        """What the command line says on standard error when it refuses, or fails."""
        self.capsys.readouterr()
        code = main(words)
        said = self.capsys.readouterr().err
        assert code not in {0, 1}, said
        return self.plain(said)

    def refused(self, action, *arguments, **options):
        """What a function's exception says."""
        try:
            action(*arguments, **options)
        except BackendCfgError as error:
            return self.plain(error.render() + "\n")
        raise AssertionError(f"{action} raised nothing")

    def python(self, code):
        """What a fresh interpreter prints that runs some code in the project."""
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        return self.plain(done.stdout)

    def plain(self, text):
        """The message as it would be in another place."""
        text = text.replace(str(self.root), HERE).replace(str(self.root.parent), "/home/ana")
        text = text.replace(str(Path(backendcfg.__file__).parent), f"{SITE}/backendcfg")
        text = text.replace(sysconfig.get_config_var("EXT_SUFFIX"), ".so")
        return re.sub(r"(/\w+\.py):\d+ in", r"\1:30 in", text)


def host(**changes):
    """A captured host: a Linux machine with one Tesla T4."""
    from backendcfg.schema.host import Cpu, Gpu, Host, Interpreter, Memory, System

    facts = {
        "system": System(os="linux", release="6.8.0"),
        "python": Interpreter(version="3.12.3"),
        "cpu": Cpu(
            vendor="intel",
            name="Intel Xeon",
            architecture="x86_64",
            microarchitecture="skylake_avx512",
            lineage=("skylake_avx512", "skylake", "haswell", "x86_64_v3", "x86_64"),
            features=("avx2", "fma"),
            logical=8,
            physical=4,
            usable=8,
        ),
        "memory": Memory(total=32 << 30),
        "gpus": (
            Gpu(
                index=0, vendor="nvidia", name="Tesla T4", compute_capability="7.5", memory=16 << 30
            ),
        ),
        "drivers": {"nvidia": "550.144.03"},
        "packages": {"numpy": "2.4.6"},
    }
    return Host(**{**facts, **changes}).model_dump_json(by_alias=True)


# --- files --------------------------------------------------------------------------------------


@causes("toml-syntax")
def _(project):
    project.profile("mine", "schema = 1", "[threads]", "count =")
    return project.run("plan", "mine")


@causes("unreadable-file")
def _(project):
    (project.root / "profiles" / "mine.toml").mkdir(parents=True)
    return project.run("validate", "profiles/mine.toml")


@causes("unknown-key")
def _(project):
    project.profile("mine", "schema = 1", "[blas]", 'libary = "openblas"')
    return project.run("plan", "mine")


@causes("wrong-type")
def _(project):
    project.profile("mine", "schema = 1", "[threads]", 'count = "8"')
    return project.run("plan", "mine")


@causes("invalid-value")
def _(project):
    project.profile("mine", "schema = 1", "[blas.mkl]", 'threading_layer = "openmp"')
    return project.run("plan", "mine")


@causes("inheritance-cycle")
def _(project):
    project.profile("mine", "schema = 1", 'extends = ["tuned"]')
    project.profile("tuned", "schema = 1", 'extends = ["base"]')
    project.profile("base", "schema = 1", 'extends = ["mine"]')
    return project.run("plan", "mine")


@causes("conflicting-flags")
def _(project):
    project.profile(
        "mine",
        "schema = 1",
        "[cuda.matmul]",
        "allow_tf32 = true",
        'fp32_precision = "ieee"',
    )
    return project.run("plan", "mine")


@causes("unsupported-schema")
def _(project):
    project.profile("mine", "schema = 2")
    return project.run("plan", "mine")


@causes("untrusted-project")
def _(project):
    project.profile("mine", "schema = 1", "[blas]", 'path = "/opt/lib/libblas.so"')
    return project.run("plan", "mine")


@causes("several-errors")
def _(project):
    project.profile("mine", "schema = 1", "[treads]", "count = 8", "[cudnn]", 'benchmark = "off"')
    return project.run("plan", "mine")


# --- names and words ----------------------------------------------------------------------------


@causes("unknown-profile")
def _(project):
    project.set("BACKENDCFG_PROFILE", "fsat")
    return project.run("plan")


@causes("unknown-flag")
def _(project):
    return project.run("explain", "cudnn.benchmrak")


@causes("unknown-variable")
def _(project):
    project.set("BACKENDCFG_PROFLE", "fast")
    return project.run("plan", "fast")


@causes("invalid-variable")
def _(project):
    project.set("BACKENDCFG_THREADS_COUNT", "many")
    return project.run("plan", "fast")


@causes("usage")
def _(project):
    return project.run("plam")


@causes("invalid-host")
def _(project):
    project.write("host.json", '{"schema": 1}')
    return project.run("plan", "fast", "--host", "host.json")


@causes("invalid-lock")
def _(project):
    project.write("run.lock", 'lock = 1\ncreated = "2026-11-25"\n\n[results]\nruns = "many"\n')
    return project.run("run", "--locked", "run.lock", "--", "python", "train.py")


def as_rank_of(size, **answer):
    """What rank 3 hears where rank 0 gives an answer."""
    from types import SimpleNamespace

    from backendcfg.fleet.agreement import compared

    ranks = SimpleNamespace(name="all", rank=3, size=size, names=range(size), calls=count())
    ranks.tell = lambda *ignored: None
    ranks.ask = lambda *ignored: json.dumps({"all asked": True, **answer})
    compared(ranks, backendcfg.numerics_token().parts, "node-b", 60.0)


@causes("fleet-disagrees")
def _(project):
    most = [rank for rank in range(16) if rank not in (3, 7)]
    values = [["SkylakeX", most], ["Haswell", [3, 7]]]
    name = "switches.openblas[numpy].core_type"
    odd = {"name": name, "values": values, "hosts": ["node-b"]}
    return project.refused(as_rank_of, 16, settings=[odd], host=[])


@causes("fleet-timeout")
def _(project):
    return project.refused(as_rank_of, 16, missing=[5])


@causes("fleet-worker")
def _(project):
    from backendcfg.fleet import workers

    project.write("profiles/mine.toml", "schema = 1\nthreads.count = 3\n")
    requests = workers.requested("mine", None, 1)
    return project.refused(workers.refuse_other_settings, requests, "tcp://192.0.2.7:40331")


@causes("fleet-unlike")
def _(project):
    hosts = Path(__file__).parents[1] / "hosts"
    for name in ("debian-blis--blis", "conda-intel-mkl--mkl"):
        project.write(f"{name.partition('--')[0]}.json", (hosts / f"{name}.json").read_text())
    return project.run("fleet", "plan", "reproducible", "debian-blis.json", "conda-intel-mkl.json")


@causes("invalid-fleet-plan")
def _(project):
    project.write("fleet.json", '{"schema": 1, "profile": "reproducible", "hosts": 0}')
    return project.run("run", "--fleet", "fleet.json", "--", "python", "train.py")


@causes("lock-drift")
def _(project):
    from backendcfg.audit.evidence import lock
    from backendcfg.cli import locking

    def present(version, threads):
        return lock.Present(
            profile=lock.Profile(
                name="reproducible", tier="run-to-run", flags={"threads.count": threads}
            ),
            libraries={"numpy": lock.Library(version=version, files={})},
            python=lock.Python(
                version="3.12.3", implementation="CPython", backendcfg="0.2.0", packages={}
            ),
            machine=lock.Machine(
                cpu="Xeon", microarchitecture="skylake_avx512", features="", caches="", usable=8
            ),
            numerics=lock.Numerics(
                token="0" * 16, composed=2, parts={}, switches={}, facts={}, variables={}
            ),
        )

    proven = lock.made(present("2.3.1", 8), lock.Results(runs=10, bound=0.26, text=""))
    project.write("run.lock", proven.to_toml())
    here = present("2.4.0", 4)
    project.monkeypatch.setattr(locking, "_present", lambda plan, name: here)
    check = locking.lock_for("run.lock", None).check
    return project.refused(check, None, {}, ["python", "train.py"])


@causes("command-not-found")
def _(project):
    project.set("PATH", "/usr/bin")
    return project.run("run", "fast", "--", "trian")


@causes("command-not-executable")
def _(project):
    project.write("train.py", "print()\n")
    return project.run("run", "fast", "--", "./train.py")


@causes("command-failed")
def _(project):
    return project.run("compare", "nothing", "fast", "--", sys.executable, "-c", "1 / 0")


@causes("nothing-to-undo")
def _(project):
    return project.run("undo")


@causes("invalid-argument")
def _(project):
    return project.refused(backendcfg.ops.matmul, np.ones((2, 4)), np.ones((3, 5)))


@causes("not-finite")
def _(project):
    project.profile("mine", "schema = 1", "[ops]", "check_finite = true")
    with backendcfg.profile("mine"):
        return project.refused(backendcfg.ops.matmul, np.array([[1.0, np.inf]]), np.ones((2, 2)))


# --- this machine -------------------------------------------------------------------------------


@causes("unsupported-hardware")
def _(project):
    project.write("t4.json", host())
    project.profile("mine", "schema = 1", "[requires.gpu]", 'compute_capability = ">=8.0"')
    return project.run("plan", "mine", "--host", "t4.json")


@causes("missing-library")
def _(project):
    project.write("t4.json", host())
    project.profile("mine", "schema = 1", "[blas.library]", 'require = "mkl"')
    return project.run("plan", "mine", "--host", "t4.json")


@causes("tier-not-kept")
def _(project):
    project.write("t4.json", host())
    project.profile("mine", "schema = 1", "[determinism]", 'tier = "cross-machine"')
    return project.run("plan", "mine", "--host", "t4.json")


@causes("state-unwritable")
def _(project):
    project.write("state", "a file where a directory should be")
    project.set("BACKENDCFG_STATE_DIR", str(project.root / "state"))
    return project.run("apply", "fast")


@causes("native-unavailable")
def _(project):
    from backendcfg import native

    project.monkeypatch.setitem(native.PROTOTYPES, "bcfg_of_another_release", (None, []))
    project.monkeypatch.setattr(native, "_library", None)
    return project.refused(native.library)


@causes("device-failed")
def _(project):
    from backendcfg.gpu import products

    fault = ("cublasGemmEx", 13, "CUBLAS_STATUS_EXECUTION_FAILED")
    return project.refused(products.failed, "matmul", "cublas", fault, (3, 4, 5), "float32")


# --- switches -----------------------------------------------------------------------------------


@causes("switch-left-changed")
def _switch_left_changed(project):
    return project.python(
        """
import os
import backendcfg
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
try:
    with backendcfg.guard(restore=True):
        os.environ["NVIDIA_TF32_OVERRIDE"] = "1"
        os.environ["MKL_CBWR"] = "COMPATIBLE"
except backendcfg.errors.SwitchLeftChangedError as error:
    print(error.render())
"""
    )


@causes("profile-busy")
def _(project):
    project.profile("one", "schema = 1", "[threads]", "count = 1")
    project.profile("two", "schema = 1", "[threads]", "count = 2")
    return project.python(BUSY)


BUSY = """
from concurrent.futures import ThreadPoolExecutor
import numpy
import backendcfg

def enter():
    with backendcfg.profile("two"):
        pass

with backendcfg.profile("one"), ThreadPoolExecutor(1) as pool:
    try:
        pool.submit(enter).result()
    except backendcfg.errors.ProfileBusyError as error:
        print(error.render())
"""
"""In a process of its own, so that NumPy's is the only pool of threads in it."""


@causes("too-late")
def _(project):
    late = StandIn("OMP_NUM_THREADS", "64", late="libgomp has been loaded and has read it")
    return project.refused(
        transact,
        settings("8", late),
        nothing,
        profile="fast",
        strict=True,
    )


@causes("unreadable-switch")
def _(project):
    blind = StandIn("openblas[numpy].threads", 64, readable=False)
    return project.refused(transact, settings(8, blind), nothing, profile="fast")


@causes("rolled-back")
def _(project):
    switches = [
        StandIn("openblas[numpy].threads", 64),
        StandIn("openmp[torch].threads", 64),
        StandIn("torch.num_threads", 64, takes=0),
        StandIn("torch.num_interop_threads", 64),
        StandIn("mkl[torch].threads", 64),
    ]
    return project.refused(transact, settings(8, *switches), nothing, profile="fast", active="base")


@causes("rollback-incomplete")
def _(project):
    switches = [
        StandIn("openblas[numpy].threads", 64, takes=1),
        StandIn("torch.num_threads", 64, takes=0),
    ]
    return project.refused(transact, settings(8, *switches), nothing, profile="fast", active="base")


@causes("unknown-attribute")
def _(project):
    return project.refused(setattr, backendcfg.backends.cudnn, "benchmrk", True)


@causes("frozen-flags")
def _(project):
    project.monkeypatch.setattr("backendcfg.backends.base._frozen", False)
    backendcfg.backends.disable_global_flags()
    return project.refused(backendcfg.backends.cudnn.set_flags, False)


@causes("internal")
def _(project):
    def broken():
        raise KeyError("profiles")

    project.monkeypatch.setattr("backendcfg.load.locations.profiles", broken)
    return project.run("list")
