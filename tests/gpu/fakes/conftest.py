"""Fakes of the libraries of devices, compiled on the spot: they record, compute and fail."""

from __future__ import annotations

import ctypes
import json
import subprocess
from dataclasses import dataclass

import pytest
from compiling import FAKES, FLAGS, includes, once

from backendcfg.gpu.libraries import files as device_files
from backendcfg.gpu.libraries import opening

# File name -> (source, definitions). The name is the SONAME too, as in the vendors' files.
LIBRARIES = {
    "libexchange.so": ("exchange", []),
    "libfactorised.so": ("factorised", []),
    "libcuda.so.1": ("cuda", []),
    "libcublas.so.12": ("cublas", ["VERSION=120903"]),
    "libcublas.so.13": ("cublas", ["VERSION=130100"]),
    "libcublasLt.so.12": ("cublaslt", ["VERSION=120903"]),
    "libcublasLt.so.13": ("cublaslt", ["VERSION=130100"]),
    "libamdhip64.so.6": ("hip", []),
    "libamdhip64.so.7": ("hip", []),
    "libcudnn.so.9": ("cudnn", []),
    "libhipblas.so.2": ("hipblas", ["MAJOR=2"]),
    "libhipblas.so.3": ("hipblas", ["MAJOR=3"]),
    "libhipblaslt.so.0": ("hipblaslt", []),
    "libhipblaslt.so.1": ("hipblaslt", []),
    "libcusolver.so.11": ("cusolver", ["VERSION=110705"]),
    "libcusolver.so.12": ("cusolver", ["VERSION=120401"]),
    "libmagma.so": ("magma", []),
    "libhipsolver.so.0": ("hipsolver", []),
    "libhipsolver.so.1": ("hipsolver", []),
    "libcufft.so.11": ("cufft", ["VERSION=110401"]),
    "libcufft.so.12": ("cufft", ["VERSION=120500"]),
    "libcusparseLt.so.0": ("cusparselt", ["VERSION=1000"]),
}


@dataclass(frozen=True)
class Call:
    """One call that a fake recorded: `call.arguments["transa"]`, or `call["transa"]`."""

    function: str
    arguments: dict

    def __getitem__(self, name):
        return self.arguments[name]


class Fake:
    """A compiled fake, loaded into this process by its path.

    Attributes:
        path: absolute.
        library: the ctypes library, to call its functions as a program would.
    """

    def __init__(self, path):
        self.path = str(path)
        self.library = ctypes.CDLL(self.path, mode=ctypes.DEFAULT_MODE)
        self.library.fake_record.restype = ctypes.c_char_p
        self.library.fake_fail.argtypes = [ctypes.c_char_p] + [ctypes.c_int] * 3
        self.library.fake_set.argtypes = [ctypes.c_char_p, ctypes.c_int64]

    def calls(self, *functions):
        """The calls since the last reset, of some functions or of all."""
        said = [Call(**call) for call in json.loads(self.library.fake_record().decode())]
        return [call for call in said if not functions or call.function in functions]

    def reset(self):
        """Forget the calls and the failures; settings return to their defaults."""
        self.library.fake_reset()

    def fail(self, function, status, skip=0, count=-1):
        """Let `count` calls (-1: all) of a function fail, after `skip` that do not."""
        assert hasattr(self.library, function), function
        assert self.library.fake_fail(function.encode(), status, skip, count)

    def set(self, **settings):
        """Change what the fake says of itself: `set(version=12040)`."""
        for name, value in settings.items():
            assert self.library.fake_set(name.encode(), value), name


def compile_fake(target, source, definitions):
    """Compile one of native/fakes/gpu into a file whose name becomes its SONAME."""
    command = ["cc", *FLAGS, *(f"-D{d}" for d in definitions), *includes()]
    command += [
        f"-Wl,-soname,{target.name}",
        str(FAKES / f"{source}.c"),
        "-o",
        str(target),
        "-lm",
    ]
    subprocess.run(command, check=True)


@pytest.fixture(scope="session")
def device_file():
    """`device_file("libcublas.so.13")`: the path of a compiled fake; compiled once, not loaded."""

    def path(name, *definitions):
        """More definitions make another file, as `device_file(name, "VERSION=140000")`."""
        source, defaults = LIBRARIES[name]

        def make(folder):
            compile_fake(folder / name, source, definitions or defaults)

        return str(once(repr(("device", name, definitions)), make) / name)

    return path


@pytest.fixture
def device(device_file):
    """`device("libcublas.so.13")`: a Fake of this process, its record empty.

    The file stays in the process for good, so that every test that asks for a name gets the same
    one; a test that counts handles or contexts asks for the difference.
    """
    known = {}

    def fake(name, *definitions):
        key = (name, *definitions)
        if key not in known:
            known[key] = Fake(device_file(name, *definitions))
            known[key].reset()
        return known[key]

    yield fake
    for used in known.values():
        used.reset()


# The libraries that calls on devices find in this process, by name: the newest major of each.
FOUND = {
    "cuda": "libcuda.so.1",
    "cublas": "libcublas.so.13",
    "cublaslt": "libcublasLt.so.13",
    "hip": "libamdhip64.so.7",
    "hipblas": "libhipblas.so.3",
    "hipblaslt": "libhipblaslt.so.1",
    "cusolver": "libcusolver.so.12",
    "cudnn": "libcudnn.so.9",
    "hipsolver": "libhipsolver.so.1",
    "cufft": "libcufft.so.12",
    "cusparselt": "libcusparseLt.so.0",
}
# Those that are found in a test that asks: `devices.bring("magma")`.
BROUGHT = {"magma": ("libmagma.so",), "magma_hip": ("libmagma.so", "HIP")}


class Fakes:
    """The fakes that calls on devices are served by in this process: `devices.cublas`.

    Each is loaded when it is first asked for, and stays.
    """

    def __init__(self, device_file):
        self._file = device_file
        self._known = {}
        self._absent = set()
        self._brought = set()

    def __getattr__(self, name):
        if name not in FOUND and name not in BROUGHT:
            raise AttributeError(name)
        return self._load(name)[0]

    def _load(self, name):
        if name not in self._known:
            path = self._file(*BROUGHT.get(name, (FOUND.get(name),)))
            fake = Fake(path)
            found = opening.DeviceFile(path, name, 13, "loaded")
            self._known[name] = (fake, opening._open(found))
            fake.reset()
            if name == "cudnn":  # its engines take time on the driver's clock
                clock = ctypes.cast(self.cuda.library.fake_spend, ctypes.c_void_p)
                fake.library.fake_clock(clock)
        return self._known[name]

    def find(self, name):
        """What `open_device` answers in a test."""
        if name in (self._brought | FOUND.keys()) - self._absent:
            return self._load(name)[1]
        library = device_files.BY_NAME[name]
        return opening.Unusable(name, (f"{library.title}: no {library.names[0]} was found",))

    def without(self, *names):
        """Let libraries be absent until the test is over."""
        self._absent.update(names)
        opening._latest.clear()

    def bring(self, *names):
        """Let libraries of `BROUGHT` be found until the test is over."""
        self._brought.update(names)
        opening._latest.clear()

    def calls(self, *functions):
        """The calls of the libraries that multiply."""
        libraries = (self.cublas, self.cublaslt, self.hipblas, self.hipblaslt)
        return [call for library in libraries for call in library.calls(*functions)]

    def reset(self):
        """Forget the calls and the failures of all, and who is absent."""
        self._absent.clear()
        for fake, _ in self._known.values():
            fake.reset()


@pytest.fixture(scope="session")
def _opened_devices(device_file):
    return Fakes(device_file)


@pytest.fixture
def devices(_opened_devices, monkeypatch):
    """The fakes that calls on devices use in this test, whatever else is in the process."""
    from device_arrays import OnDevice

    from backendcfg import ops

    fakes = _opened_devices
    monkeypatch.setattr(opening, "_latest", {})
    monkeypatch.setattr(opening, "_first_usable", lambda name, world: fakes.find(name))
    # Fakes of two toolkits are in this process, by other tests.
    monkeypatch.setattr(device_files, "loaded_toolkits", lambda vendor, world=None: set())
    monkeypatch.setattr(OnDevice, "stream", 0)
    monkeypatch.setattr(OnDevice, "full", False)
    OnDevice.allocated.clear()
    fakes.reset()
    ops.reset_stats()
    yield fakes
    fakes._brought.clear()
    fakes.reset()


@pytest.fixture(scope="session")
def _emulator():
    from attention_on_device import Emulator

    return Emulator()


@pytest.fixture
def kernels(devices, _emulator, monkeypatch):
    """The emulator of our own kernels: what the fake of the driver launches, it runs."""
    from backendcfg.gpu.kernels import loading

    # It would be the first.
    monkeypatch.setattr(loading, "cudnn", lambda: (0, "cuDNN is left out."))
    _emulator.install(devices.cuda, monkeypatch)
    yield _emulator
    _emulator.remove(devices.cuda)


@pytest.fixture
def both(kernels, monkeypatch):
    """The emulator of our own kernels, and cuDNN's fake."""
    from attention_on_device import CUDNN

    from backendcfg.gpu.kernels import loading

    monkeypatch.setattr(loading, "cudnn", CUDNN)
    return kernels


@pytest.fixture
def new_stream(devices):
    """A stream of its own that is current, so that its handle is not one of other tests."""
    from device_arrays import OnDevice

    cuda, made, context = devices.cuda.library, ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cuInit(0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuCtxPushCurrent_v2(context)
    assert cuda.cuStreamCreate(ctypes.byref(made), 0) == 0
    cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
    OnDevice.stream = made.value
    devices.reset()
    return made.value


@pytest.fixture
def solver(devices, monkeypatch):
    """cuSOLVER's fake; arrays that are made on a device have what linear algebra asks of them."""
    import device_arrays
    from linalg_on_device import Matrix

    from backendcfg.gpu import linalg as linalg_calls

    monkeypatch.setattr(device_arrays, "OnDevice", Matrix)
    linalg_calls.forget()
    yield devices.cusolver
    linalg_calls.forget()
