"""What NVIDIA's own libraries do without a device, where their wheels are installed."""

import ctypes
import re
from pathlib import Path

import pytest

from backendcfg.gpu.libraries.files import World, find
from backendcfg.gpu.libraries.opening import OpenLibrary, open_device

FAKE = Path(__file__).resolve().parents[3] / "native/fakes/gpu/cublaslt.c"
HEADER = Path(__file__).resolve().parents[3] / "native/include/gpu/abi_cublaslt.h"


def in_wheels(major):
    return World(
        root="/nowhere", prefix="/nowhere", environment={}, mapped=(), toolkit={"nvidia": major}
    )


@pytest.fixture(params=[12, 13])
def major(request):
    found = [file.major for file in find("cublas", in_wheels(request.param))]
    if request.param not in found:
        pytest.skip(f"NVIDIA's wheel of cuBLAS {request.param} is 0.5 GB, too large for every run")
    return request.param


@pytest.mark.parametrize("name", ["cublas", "cublaslt"])
def test_the_real_libraries_have_what_we_use_of_them(major, name):
    opened = open_device(name, in_wheels(major))
    assert isinstance(opened, OpenLibrary), opened
    assert opened.version[0] == major


def test_the_real_descriptors_take_attributes_of_the_sizes_that_the_fake_takes(major):
    library = ctypes.CDLL(open_device("cublaslt", in_wheels(major)).path)
    numbers = dict(re.findall(r"CONSTANT\((\w+), (-?\d+)\)", HEADER.read_text(encoding="ascii")))
    settable = re.findall(r"ATTRIBUTE\((\w+), (\w+), (\d)\)", FAKE.read_text(encoding="ascii"))
    places = {kind: ctypes.c_void_p() for kind in ("OPERATION", "LAYOUT", "PREFERENCE")}
    operation, layout, preference = (ctypes.byref(place) for place in places.values())
    assert library.cublasLtMatmulDescCreate(operation, 68, 0) == 0
    assert library.cublasLtMatrixLayoutCreate(
        layout, 0, ctypes.c_uint64(4), ctypes.c_uint64(4), ctypes.c_int64(4)
    ) == 0  # fmt: skip
    assert library.cublasLtMatmulPreferenceCreate(preference) == 0
    getters = {
        "OPERATION": "MatmulDesc",
        "LAYOUT": "MatrixLayout",
        "PREFERENCE": "MatmulPreference",
    }
    sizes = {}
    for kind, name, _ in settable:
        written = ctypes.c_size_t()
        getter = getattr(library, f"cublasLt{getters[kind]}GetAttribute")
        number = int(numbers[f"CUBLASLT_{name}"])
        assert getter(places[kind], number, None, ctypes.c_size_t(0), ctypes.byref(written)) == 0
        sizes[name] = written.value
    assert sizes == {name: int(size) for _, name, size in settable}
    assert len(sizes) > 20
