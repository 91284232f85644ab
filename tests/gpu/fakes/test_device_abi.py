"""Our declarations of the libraries of devices are those of their vendors' headers."""

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "native" / "abi" / "check.py"

pytestmark = pytest.mark.skipif(
    shutil.which("c++") is None, reason="needs a C++ compiler for NVIDIA's and AMD's headers"
)


@pytest.fixture(scope="module")
def check():
    import sys

    spec = importlib.util.spec_from_file_location("abi_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["abi_check"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["abi_check"]


OURS = """
#include <stddef.h>
#include <stdint.h>
#define BCFG_TOY_CONSTANTS(CONSTANT) \\
    CONSTANT(TOY_RED, 3) \\
    CONSTANT(TOY_BLUE, -1)
#define BCFG_TOY_SINCE_2_0_CONSTANTS(CONSTANT) CONSTANT(TOY_GREEN, 4)
typedef struct { int64_t weight; int wheels; } bcfg_toy;
#define BCFG_TOY_FIELDS(FIELD) FIELD(toy_t, mass, bcfg_toy, weight)
#define BCFG_TOY_SYMBOLS(REQUIRED, OPTIONAL) \\
    REQUIRED(int, toyPaint, (void *handle, int colour, \\
                             const void *where, size_t bytes)) \\
    REQUIRED(const char *, toyName, (void)) \\
    OPTIONAL(int, toySell, (int64_t price)) \\
    VERSIONED(int, toyBuy, toyBuy_v2, (int64_t price))
"""
VENDOR = """
#include <stddef.h>
#include <stdint.h>
typedef enum { TOY_BLUE = -1, TOY_RED = 3, TOY_GREEN = 4 } toyColour_t;
typedef struct toyContext *toyHandle_t;
typedef struct { int64_t mass; int wheels; } toy_t;
extern "C" toyColour_t toyPaint(toyHandle_t handle, toyColour_t colour, const float *where,
                                size_t bytes);
extern "C" const char *toyName(void);
extern "C" toyColour_t toySell(int64_t price);
extern "C" toyColour_t toyBuy(int64_t price);
"""


@pytest.fixture
def compared(check, tmp_path, monkeypatch):
    """`compared(text, text instead)`: what differs when the vendor's header is changed so."""
    monkeypatch.setattr(check, "INCLUDE", tmp_path / "ours")
    (tmp_path / "ours/gpu").mkdir(parents=True)
    (tmp_path / "ours/gpu/abi_toy.h").write_text(OURS)

    def changed(before="", after=""):
        assert before in VENDOR
        (tmp_path / "toy.h").write_text(VENDOR.replace(before, after) if before else VENDOR)
        return check.compare(check.Library("toy", "toy.h"), tmp_path, [])

    return changed


def test_what_agrees_is_counted(compared, tmp_path):
    line, differences = compared()
    assert differences == []
    assert line == f"toy: 3 constants, 4 functions against {tmp_path / 'toy.h'}"


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [
        ("TOY_RED = 3", "TOY_RED = 5", "TOY_RED is not 3"),
        ("toyColour_t colour, ", "", "toyPaint is declared otherwise"),
        ("const float *where", "float *where", "toyPaint is declared otherwise"),
        ("size_t bytes", "int bytes", "toyPaint is declared otherwise"),
        ("toyColour_t colour", "long colour", "toyPaint is declared otherwise"),
        ("toyHandle_t handle", "int handle", "toyPaint is declared otherwise"),
        ("const char *toyName", "void toyName", "toyName is declared otherwise"),
        ("int64_t price", "uint64_t price", "toySell is declared otherwise"),
        ("{ int64_t mass", "{ int price; int64_t mass", "toy_t::mass lies elsewhere"),
        ("{ int64_t mass", "{ int mass", "toy_t::mass lies elsewhere"),
    ],
)
def test_what_differs_is_named(compared, before, after, difference):
    _, differences = compared(before, after)
    assert difference in differences


@pytest.mark.parametrize(
    ("before", "name"),
    [
        (", TOY_GREEN = 4", "TOY_GREEN"),
        ('extern "C" toyColour_t toySell(int64_t price);', "toySell"),
    ],
)
def test_what_is_newer_or_optional_may_be_absent(compared, tmp_path, before, name):
    line, differences = compared(before, "")
    assert differences == []
    assert line.endswith(f"; not in it: {name}")


def test_where_a_function_has_two_meanings_the_one_that_is_called_is_compared(compared):
    older = 'extern "C" toyColour_t toyBuy(float price);'
    newer = 'extern "C" toyColour_t toyBuy_v2(int64_t price);'
    plain = 'extern "C" toyColour_t toyBuy(int64_t price);'
    assert compared(plain, older)[1] == ["toyBuy is declared otherwise"]
    assert compared(plain, older + newer)[1] == []


def test_what_is_required_may_not_be_absent(compared):
    _, differences = compared('extern "C" const char *toyName(void);', "")
    assert any("toyName" in difference for difference in differences)


def test_every_list_of_our_headers_is_read(check):
    """A line that the script cannot read would not be compared by it."""
    for library in (one for one in check.LIBRARIES if one.name not in check.tables()):
        text = (check.INCLUDE / "gpu" / f"abi_{library.name}.h").read_text(encoding="ascii")
        ours = check.declared(library.name)
        lines = [line.strip().partition("(")[0] for line in text.splitlines()]
        kinds = ("REQUIRED", "OPTIONAL", "VERSIONED")
        assert len(ours.functions) == sum(lines.count(kind) for kind in kinds)
        assert len(ours.constants) == lines.count("CONSTANT")
        assert len(ours.fields) == lines.count("FIELD")


def test_what_python_calls_is_declared_for_the_fakes_as_c_declares_it(check, tmp_path):
    check.declare(tmp_path)
    assert {path.name for path in (tmp_path / "gpu").iterdir()} == {
        f"abi_{name}.h" for name in check.tables()
    }
    text = (tmp_path / "gpu/abi_cusolver.h").read_text(encoding="ascii")
    assert "    BCFG_CUSOLVER_STATUS_INVALID_LICENSE = 11,\n" in text
    assert "REQUIRED(int, cusolverDnCreate, (void**))" in text
    assert "OPTIONAL(int, cusolverDnSetDeterministicMode, (void*, int))" in text
    for letter in "SDCZ":
        stack = f"cusolverDn{letter}potrfBatched, (void*, int, int, void**, int, int*, int)"
        assert f"REQUIRED(int, {stack})" in text


@pytest.mark.parametrize("name", ["cublas", "cuda"])
def test_what_python_and_c_both_call_is_declared_alike(check, name):
    """Their names of parameters left aside, which tables do not have."""
    from backendcfg.gpu.libraries.signatures import TABLES

    ours = check.declared(name)
    for function, declared in TABLES[name].functions.items():
        result, parameters, _ = ours.functions[function]
        types = [re.sub(r"\w+$", "", one).strip() for one in parameters.strip("()").split(",")]
        assert result.replace(" ", "") == declared.result.replace(" ", "")
        assert [one.replace(" ", "") for one in types] == [
            one.replace(" ", "") for one in declared.parameters
        ]
    assert (
        TABLES[name].constants.items()
        <= {constant: int(value) for constant, value in ours.constants.items()}.items()
    )


def test_the_numbers_in_python_are_those_of_our_headers(check):
    from backendcfg.gpu.libraries import opening
    from backendcfg.gpu.products import gemm

    numbers = {
        name: int(value)
        for library in check.LIBRARIES
        for name, value in check.declared(library.name).constants.items()
    }
    tables = ("_COMPUTE", "_MATH", "_SCHEME", "_HIP_COMPUTE", "_HIP_MATH")
    for table in (getattr(gemm, name) for name in tables):
        assert table == {numbers[name]: name for name in table.values()}
    types = ("CUDA_R_32F", "CUDA_R_64F", "CUDA_C_32F", "CUDA_C_64F", "CUDA_R_16BF", "CUDA_R_16F")
    assert list(gemm.TYPES.values()) == [numbers[name] for name in types]
    single = {
        gemm.DISALLOW_REDUCED: "CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION",
        gemm.ALGORITHM_DEFAULT: "CUBLAS_GEMM_DEFAULT",
        gemm.ALGORITHM_TENSOR: "CUBLAS_GEMM_DEFAULT_TENSOR_OP",
        gemm.HIP_ALGORITHM_DEFAULT: "HIPBLAS_GEMM_DEFAULT",
        opening._DEVICE_ORDINAL: "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL",
    }
    assert single == {numbers[name]: name for name in single.values()}
    capability = "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{}"
    asked = tuple(numbers[capability.format(part)] for part in ("MAJOR", "MINOR"))
    assert asked == opening._CUDA_CAPABILITY
    asked = tuple(
        numbers[f"hipDeviceAttributeComputeCapability{part}"] for part in ("Major", "Minor")
    )
    assert asked == opening._HIP_CAPABILITY


def test_our_declarations_are_those_of_every_header_that_is_here(check):
    directories = check.include_directories([])
    found = {
        (library.name, directory)
        for library in check.LIBRARIES
        for directory in directories
        if (directory / library.header).is_file()
    }
    if not found:
        pytest.skip("neither NVIDIA's nor AMD's headers are here")
    by_name = {library.name: library for library in check.LIBRARIES}
    for name, directory in sorted(found):
        line, differences = check.compare(by_name[name], directory, directories)
        assert differences == [], line


def test_the_program_says_what_it_did_not_compare(check, tmp_path, capsys):
    assert check.main([str(tmp_path)]) == 2
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "cuda: not compared, no cuda.h was found"
    assert len(said) == len(check.LIBRARIES)
