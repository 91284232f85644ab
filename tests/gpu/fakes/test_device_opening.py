"""Opening libraries of devices: fakes, good and bad, where a machine would have them."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from backendcfg import native
from backendcfg.errors import MissingLibraryError
from backendcfg.gpu.libraries import opening
from backendcfg.gpu.libraries.files import BY_NAME, World
from backendcfg.gpu.libraries.opening import OpenLibrary, Unusable, open_device, require_device

NATIVE = Path(__file__).resolve().parents[3] / "native"


@pytest.fixture
def site(tmp_path, device_file):
    """`site({"libcublas.so.13": []})`: a World with these fakes in a wheel, by definitions.

    A text instead of definitions is what the file holds.
    """

    def world(files):
        for name, content in files.items():
            path = tmp_path / folder_of(name) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                path.write_text(content)
            else:
                shutil.copy(device_file(name, *content), path)
        return World(
            root=str(tmp_path / "root"),
            entries=(str(tmp_path / "site"),),
            prefix=str(tmp_path),
            environment={},
            mapped=(),
            toolkit={},
        )

    return world


def wheel(tmp_path, name):
    return str(tmp_path / folder_of(name) / name)


def folder_of(name):
    if "libcuda." in name:
        return "root/usr/lib/wsl/lib"
    return "site/_rocm_sdk_libraries/lib" if "hip" in name else "site/nvidia/cu13/lib"


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("name", "file", "version"),
    [
        ("cublas", "libcublas.so.13", (13, 1, 0)),
        ("cublas", "libcublas.so.12", (12, 9, 3)),
        ("cublaslt", "libcublasLt.so.13", (13, 1, 0)),
        ("cublaslt", "libcublasLt.so.12", (12, 9, 3)),
        ("hip", "libamdhip64.so.6", (6, 0, 0)),
        ("hip", "libamdhip64.so.7", (7, 0, 0)),
        ("hipblas", "libhipblas.so.2", (2, 0, 0)),
        ("hipblas", "libhipblas.so.3", (3, 0, 0)),
        ("hipblaslt", "libhipblaslt.so.0", (0, 0, 0)),
        ("hipblaslt", "libhipblaslt.so.1", (1, 0, 0)),
        ("cusolver", "libcusolver.so.11", (11, 7, 5)),
        ("cusolver", "libcusolver.so.12", (12, 4, 1)),
        ("cufft", "libcufft.so.11", (11, 4, 1)),
        ("cufft", "libcufft.so.12", (12, 5, 0)),
        ("cusparselt", "libcusparseLt.so.0", (0, 10, 0)),
    ],
)
def test_a_library_is_opened_and_says_its_version(site, tmp_path, name, file, version):
    opened = open_device(name, site({file: []}))
    assert isinstance(opened, OpenLibrary)
    assert opened == OpenLibrary(name, opened.handle, wheel(tmp_path, file), version, "wheel")
    assert opened == open_device(name, site({}))


def test_a_driver_is_opened_and_not_initialised(site, device, tmp_path):
    opened = open_device("cuda", site({"libcuda.so.1": []}))
    assert (opened.version, opened.found) == ((13, 0, 0), "system")
    loaded = type(device("libcuda.so.1"))(opened.path)
    assert [call.function for call in loaded.calls()] == ["cuDriverGetVersion"]


def test_a_version_without_the_newest_functions_is_opened(site):
    assert open_device("cublas", site({"libcublas.so.12": ["VERSION=120100"]})).version == (
        12,
        1,
        0,
    )


def test_two_major_versions_are_two_libraries(site, tmp_path):
    twelve = open_device("cublas", site({"libcublas.so.12": []}))
    thirteen = open_device("cublas", site({"libcublas.so.13": []}))
    assert (twelve.version[0], thirteen.version[0]) == (12, 13)
    assert twelve.handle != thirteen.handle


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (["VERSION=140000"], "{path} has version 14.0; 13 is the newest whose interface is known"),
        (["VERSION=110805"], "{path} has version 11.8; 12 is the oldest that is served"),
        (["cublasGemmEx_64=absent"], "{path} has no symbol cublasGemmEx_64"),
        ("not a library\n", "{path}: file too short"),
    ],
)
def test_a_file_that_cannot_serve_is_refused_with_its_reason(site, tmp_path, content, reason):
    path = wheel(tmp_path, "libcublas.so.13")
    answer = open_device("cublas", site({"libcublas.so.13": content}))
    assert answer == Unusable("cublas", (reason.format(path=path),))


def test_a_library_that_ends_its_process_never_comes_into_this_one(site, tmp_path):
    world, path = site({}), Path(wheel(tmp_path, "libcublas.so.13"))
    path.parent.mkdir(parents=True)
    source = NATIVE / "fakes" / "probe_library.c"
    flags = ["-shared", "-fPIC", "-DON_LOAD_SEGFAULT"]
    subprocess.run(["cc", *flags, source, "-o", path], check=True)
    reason = f"{path}: tried in a child process, it ended that process by SIGSEGV"
    assert open_device("cublas", world) == Unusable("cublas", (reason,))


def test_a_refused_file_does_not_hide_a_good_one_and_is_not_tried_again(
    site, tmp_path, monkeypatch
):
    tried = []
    rehearse = opening.rehearse_device

    def counted(native_file, kind, path):
        tried.append(Path(path).name)
        return rehearse(native_file, kind, path)

    monkeypatch.setattr(opening, "rehearse_device", counted)
    world = site({"libcublas.so.13": "not a library\n", "libcublas.so.12": []})
    assert open_device("cublas", world).version[0] == 12
    assert open_device("cublas", world).version[0] == 12
    assert tried == ["libcublas.so.13", "libcublas.so.12"]


def test_the_driver_is_compared_with_the_toolkit_and_not_with_the_interface(site, tmp_path):
    world = site({"libcuda.so.1": ["VERSION=12040"], "libcufft.so.12": []})
    path = wheel(tmp_path, "libcufft.so.12")
    reason = f"{path} is of CUDA 13, and the driver here serves CUDA 12.4 at most"
    assert open_device("cufft", world) == Unusable("cufft", (reason,))
    assert open_device("cufft", site({"libcufft.so.11": []})).version == (11, 4, 1)


def test_a_library_newer_than_the_driver_is_passed_over(site, tmp_path):
    world = site({"libcuda.so.1": ["VERSION=12040"], "libcublas.so.13": []})
    path = wheel(tmp_path, "libcublas.so.13")
    reason = f"{path} is of CUDA 13, and the driver here serves CUDA 12.4 at most"
    assert open_device("cublas", world) == Unusable("cublas", (reason,))
    assert open_device("cublas", site({"libcublas.so.12": []})).version[0] == 12


class Handle(ctypes.Structure):
    """The start of `bcfg_device_library`, as native/gpu/device/library.h has it."""

    _fields_ = [
        ("kind", ctypes.c_int32),
        ("version", ctypes.c_int64),
        ("path", ctypes.c_char_p),
        ("table", ctypes.POINTER(ctypes.c_void_p)),
    ]


def in_table(opened, function):
    """The address that the native part calls for a function."""
    header = (NATIVE / "include/gpu" / f"abi_{opened.name}.h").read_text(encoding="ascii")
    listed = re.findall(
        r"^    (?:REQUIRED|OPTIONAL|VERSIONED)\([^,]+, (\w+),", header, re.MULTILINE
    )
    return Handle.from_address(opened.handle).table[listed.index(function)]


@pytest.mark.parametrize(
    ("file", "called"),
    [
        ("libhipblas.so.2", "hipblasGemm{}Ex_v2_64"),
        ("libhipblas.so.3", "hipblasGemm{}Ex_64"),
    ],
)
@pytest.mark.parametrize("part", ["", "StridedBatched"])
def test_a_product_of_hipblas_is_always_the_one_with_hips_numbers(site, file, called, part):
    opened = open_device("hipblas", site({file: []}))
    function = getattr(ctypes.CDLL(opened.path), called.format(part))
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert in_table(opened, f"hipblasGemm{part}Ex_64") == address


def test_an_optional_function_that_is_absent_is_null(site):
    assert (
        in_table(open_device("hipblas", site({"libhipblas.so.2": []})), "hipblasSetWorkspace")
        is None
    )
    assert in_table(open_device("hipblas", site({"libhipblas.so.3": []})), "hipblasSetWorkspace")


def test_a_hipblas_without_hips_numbers_is_refused(site, tmp_path):
    """As hipBLAS 2.0 was: under the only name it has, the numbers mean something else."""
    path = wheel(tmp_path, "libhipblas.so.2")
    world = site({"libhipblas.so.2": ["MAJOR=3"]})
    reason = f"{path} has no symbol hipblasGemmEx_v2_64"
    assert open_device("hipblas", world) == Unusable("hipblas", (reason,))


def test_a_library_under_a_name_without_a_version_says_it_itself(site, tmp_path, device_file):
    """PyTorch's wheels for ROCm have such names; the SONAME is the vendor's."""
    path = tmp_path / "site/torch/lib/libhipblas.so"
    path.parent.mkdir(parents=True)
    shutil.copy(device_file("libhipblas.so.3"), path)
    opened = open_device("hipblas", site({}))
    assert (opened.path, opened.version) == (str(path), (3, 0, 0))


def test_a_library_whose_major_version_is_not_known_is_refused(site, tmp_path, device_file):
    path = tmp_path / "site/torch/lib/libhipblas.so"
    path.parent.mkdir(parents=True)
    source = NATIVE / "fakes/gpu/hipblas.c"
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-DMAJOR=3",
        f"-I{NATIVE / 'include'}",
        source,
        "-lm",
        "-o",
    ]
    subprocess.run([*command, path, "-Wl,-soname,libhipblas.so.4"], check=True)
    reason = f"{path} has version 4.0; 3 is the newest whose interface is known"
    assert open_device("hipblas", site({})) == Unusable("hipblas", (reason,))


def test_without_any_file_the_reason_says_what_was_looked_for(site):
    assert open_device("cublaslt", site({})).reasons == (
        "cuBLASLt: no libcublasLt.so.13 or libcublasLt.so.12 was found",
    )


def test_a_library_that_must_be_there_is_an_error_with_every_reason(monkeypatch):
    reasons = ("/a/libcublas.so.13: file too short", "/b/libcublas.so.12: file too short")
    monkeypatch.setattr(opening, "open_device", lambda name: Unusable(name, reasons))
    with pytest.raises(MissingLibraryError) as caught:
        require_device("cublas")
    assert str(caught.value) == "cannot use cuBLAS"
    assert tuple(caught.value.notes) == reasons
    assert caught.value.state == "nothing was computed"


def test_the_answer_stays_until_the_process_loads_something(monkeypatch):
    asked, state = [], [(1, 0)]

    def first_usable(name, world):
        asked.append(name)
        return Unusable(name, ("none",))

    monkeypatch.setattr(opening, "_first_usable", first_usable)
    monkeypatch.setattr(opening, "_latest", {})
    monkeypatch.setattr(opening._native, "mapped", lambda: state[0])
    open_device("cublas")
    open_device("cublas")
    assert asked == ["cublas"]
    state[0] = (2, 0)
    open_device("cublas")
    assert asked == ["cublas", "cublas"]


def test_the_prototypes_are_those_of_the_header():
    header = (NATIVE / "include" / "backendcfg_device.h").read_text(encoding="ascii")
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    declared = re.findall(r"BCFG_API [\w *]*?\*?(bcfg_\w+)\(([^)]*)\)", code)
    counts = {name: arguments.count(",") + 1 for name, arguments in declared}
    assert {n: len(a) for n, (_, a) in opening.PROTOTYPES.items()} == counts
    body = re.search(r"typedef struct \{([^}]*)\} bcfg_device_description;", code).group(1)
    fields = re.findall(r"(\w+)\s*[,;]", body)
    assert fields == [field[0] for field in opening._Description._fields_]


def test_the_kinds_are_those_of_the_native_part():
    name_of = opening._function("bcfg_device_kind_name")
    kinds = {name: library.kind for name, library in BY_NAME.items() if library.kind >= 0}
    assert {name: name_of(kind).decode() for name, kind in kinds.items()} == {
        name: name for name in kinds
    }
    assert name_of(1 + max(library.kind for library in BY_NAME.values())) is None


@pytest.mark.parametrize(
    ("kind", "path", "detail"),
    [
        (99, b"/lib/libcublas.so.13", "there is no kind 99 of libraries"),
        (1, b"libcublas.so.13", "libcublas.so.13 is not an absolute path"),
        (1, None, "path or library is NULL"),
    ],
)
def test_what_no_caller_asks_is_refused_by_the_native_part(kind, path, detail):
    handle, error = opening.ctypes.c_void_p(), native._Error()
    assert opening._function("bcfg_device_open")(kind, path, handle, error) == 2
    assert error.detail.decode() == detail
    assert handle.value is None
