"""NumPy's own tests, of the functions that ours share a definition with, hold for ours."""

import functools
import importlib
import importlib.util
import itertools
import re
import sys
from pathlib import Path

import numpy as np
import numpy_signatures
import pytest

from backendcfg._native import Prepared, Scope
from backendcfg.errors import InvalidArgumentError
from backendcfg.transact.compiled import Compiled

LINALG = "numpy.linalg.tests.test_linalg"
REGRESSION = "numpy.linalg.tests.test_regression"
MULTIARRAY = "numpy._core.tests.test_multiarray"
EINSUM = "numpy._core.tests.test_einsum"

SQUARE = (
    "test_sq_cases",
    "test_empty_sq_cases",
    "test_generalized_sq_cases",
    "test_generalized_empty_sq_cases",
)
HERMITIAN = (
    "test_herm_cases",
    "test_empty_herm_cases",
    "test_generalized_herm_cases",
    "test_generalized_empty_herm_cases",
)
COMMON = (
    "test_exceptions",
    "test_shapes",
    "test_result_types",
    "test_scalar_output",
    "test_vector_vector_values",
    "test_vector_matrix_values",
    "test_matrix_vector_values",
    "test_matrix_matrix_values",
)

SUITE = {
    (LINALG, "TestSolve"): (*SQUARE, "test_types", "test_1_d", "test_0_size", "test_0_size_k"),
    (LINALG, "TestInv"): (*SQUARE, "test_types", "test_0_size"),
    (LINALG, "TestSVD"): (*SQUARE, "test_types", "test_empty_identity", "test_svdvals"),
    (LINALG, "TestSVDHermitian"): (*HERMITIAN, "test_types", "test_singular"),
    (LINALG, "TestEigvalshCases"): HERMITIAN,
    (LINALG, "TestEigvalsh"): ("test_types", "test_invalid", "test_UPLO", "test_0_size"),
    (LINALG, "TestEighCases"): HERMITIAN,
    (LINALG, "TestEigh"): ("test_types", "test_invalid", "test_UPLO", "test_0_size"),
    (LINALG, "TestQR"): (
        "test_qr_empty",
        "test_mode_all_but_economic",
        "test_stacked_inputs",
    ),
    (LINALG, "TestCholesky"): ("test_basic_property", "test_0_size", "test_upper_lower_arg"),
    (LINALG, ""): (
        "test_byteorder_check",
        "test_generalized_raise_multiloop",
        "test_unsupported_commontype",
    ),
    (REGRESSION, "TestRegression"): (
        "test_eigh_build",
        "test_svd_build",
        "test_lapack_endian",
        "test_large_svd_32bit",
        "test_svd_no_uv",
        "test_cholesky_empty_array",
    ),
    (MULTIARRAY, "TestMatmul"): (
        *COMMON,
        "test_out_arg",
        "test_empty_out",
        "test_out_contiguous",
        "test_dot_equivalent",
        "test_dot_equivalent_matrix_matrix_blastypes",
        "test_matmul_object",
        "test_matmul_object_type_scalar",
        "test_matmul_empty",
    ),
    (EINSUM, "TestEinsum"): (
        "test_einsum_errors",
        "test_einsum_specific_errors",
        "test_einsum_views",
        "test_einsum_sums_int8",
        "test_einsum_sums_uint8",
        "test_einsum_sums_int64",
        "test_einsum_sums_uint64",
        "test_einsum_sums_float16",
        "test_einsum_sums_float32",
        "test_einsum_sums_float64",
        "test_einsum_sums_longdouble",
        "test_einsum_sums_cfloat64",
        "test_einsum_sums_cfloat128",
        "test_einsum_sums_clongdouble",
        "test_einsum_sums_object",
        "test_einsum_misc",
        "test_einsum_0d_out",
        "test_object_loop",
        "test_subscript_range",
        "test_einsum_broadcast",
        "test_einsum_fixedstridebug",
        "test_einsum_fixed_collapsingbug",
        "test_einsum_failed_on_p9_and_s390x",
        "test_einsum_all_contig_non_contig_output",
        "test_different_paths",
        "test_small_boolean_arrays",
        "test_out_is_res",
        "test_hadamard_like_products",
        "test_index_transformations",
        "test_complex",
        "test_collapse",
        "test_expand",
        "test_edge_cases",
        "test_inner_product",
        "test_random_cases",
        "test_combined_views_mapping",
        "test_broadcasting_dot_cases",
        "test_output_order",
        "test_singleton_broadcasting",
    ),
    (EINSUM, "TestEinsumPath"): ("test_spaces",),
    (EINSUM, ""): ("test_overlap", "test_einsum_chunking_precision"),
}
"""The tests of NumPy that are run, by module and class."""

_OBJECT = "objects are refused"
LEFT_OUT = {
    "TestMatmul.test_out_arg": "`out` must hold what the product does",
    "TestMatmul.test_empty_out": "the text of an error",
    "TestMatmul.test_matmul_object": _OBJECT,
    "TestMatmul.test_matmul_object_type_scalar": _OBJECT,
    "TestMatmul.test_matmul_empty": _OBJECT,
    "TestEinsum.test_einsum_specific_errors": "`order` and `casting` are not ours",
    "TestEinsum.test_einsum_sums_object": _OBJECT,
    "TestEinsum.test_object_loop": _OBJECT,
    "TestEinsum.test_output_order": "`order` is not ours",
}
"""Those of them that fail for a difference that is meant, and which it is."""

SINGLE = ("TestQR.test_mode_all_but_economic",)
"""NumPy factorises float32 in float64 there, and asks for six decimals: five are float32's."""

ALL = {
    f"{group}.{name}".lstrip("."): (module, group, name)
    for (module, group), names in SUITE.items()
    for name in names
}
SAME = [name for name in ALL if name not in LEFT_OUT]
OWN = [n for n in SAME if ALL[n][0] != EINSUM and not n.startswith("TestInv")]
"""Those that a library serves without a profile, and that our own code must serve as well."""


@pytest.fixture
def run(monkeypatch, pytestconfig):
    """Runs a test of NumPy, with each of its parameters, against ours."""
    state = np.random.get_state()  # noqa: NPY002

    def with_ours(test):
        module_name, group, name = ALL[test]
        module = imported(module_name, pytestconfig)
        owner = getattr(module, group, None) if group else module
        if not hasattr(owner, name):
            pytest.skip("this NumPy has no such test")
        ours = numpy_signatures.Numpy()
        monkeypatch.setattr(module, "np", ours)
        if hasattr(module, "linalg"):
            monkeypatch.setattr(module, "linalg", ours.linalg)
        # What we refuse is a ValueError in our words, also where NumPy's is another error.
        if hasattr(module, "assert_raises"):
            ours_too = refused(module.assert_raises)
            monkeypatch.setattr(module, "assert_raises", ours_too)
            regex = lambda kind, text, *rest, **options: ours_too(kind, *rest, **options)
            monkeypatch.setattr(module, "assert_raises_regex", regex, raising=False)
        if test in SINGLE:
            looser = functools.partial(module.assert_almost_equal, single_decimal=5)
            monkeypatch.setattr(module, "assert_almost_equal", looser)
        if module_name == MULTIARRAY:
            monkeypatch.setattr(owner, "matmul", staticmethod(ours.matmul))
            # bool comes first, as these tests pass the first over where it means nothing.
            monkeypatch.setattr(owner, "types", "?" + numpy_signatures.FLOATING)
        if hasattr(owner, "optimize_compare"):
            monkeypatch.setattr(owner, "optimize_compare", compared_with_numpy(owner, ours))
        function = getattr(owner() if group else module, name)
        for parameters in parametrised(function):
            for key, value in parameters.items():
                parameters[key] = ours.einsum if value is np.einsum else value
            np.random.seed(1234)  # noqa: NPY002
            try:
                function(**parameters)
            except Exception as error:
                error.add_note(f"with {parameters}")
                raise

    yield with_ours
    np.random.set_state(state)  # noqa: NPY002


def imported(name, pytestconfig):
    """A module of NumPy's tests, whose marks its own configuration would declare."""
    if name not in sys.modules:
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            pytest.skip("NumPy's tests are not installed")
        source = Path(found.origin).read_text(encoding="utf-8")
        for mark in set(re.findall(r"pytest\.mark\.(\w+)", source)):
            pytestconfig.addinivalue_line("markers", f"{mark}: in NumPy's tests")
    return importlib.import_module(name)


def refused(assert_raises):
    def ours_too(kind, *arguments, **options):
        return assert_raises((kind, InvalidArgumentError), *arguments, **options)

    return ours_too


def parametrised(function):
    """The arguments of each run that pytest would make of a test."""
    marks = [m for m in getattr(function, "pytestmark", ()) if m.name == "parametrize"]
    choices = []
    for mark in marks:
        names, values = mark.args
        if isinstance(names, str):
            names = [name.strip() for name in names.split(",")]
        rows = [value if len(names) > 1 else (value,) for value in values]
        choices.append([dict(zip(names, row, strict=True)) for row in rows])
    for chosen in itertools.product(*choices):
        yield {name: value for row in chosen for name, value in row.items()}


def compared_with_numpy(owner, ours):
    """NumPy compares its ways of optimising with each other: ours with NumPy's without any."""
    compare = owner.optimize_compare

    def einsum(*operands, optimize):
        return numpy_signatures.einsum(*operands) if optimize else np.einsum(*operands)

    def optimize_compare(self, *arguments, **options):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ours, "einsum", einsum)
            compare(self, *arguments, **options)

    return optimize_compare


@pytest.mark.sweep(40)
@pytest.mark.parametrize("test", SAME)
def test_what_numpy_tests_of_its_own_holds_for_ours(run, test):
    run(test)


@pytest.mark.sweep(20)
@pytest.mark.parametrize("test", OWN)
def test_what_numpy_tests_of_its_own_holds_for_our_own_code(run, test):
    with Scope(Prepared("own", Compiled("test", "none", {}, order=("reference",))), 0):
        run(test)


@pytest.mark.parametrize("test", LEFT_OUT)
def test_an_entry_that_is_no_difference_any_more_fails(run, test):
    with pytest.raises((AssertionError, TypeError, ValueError)):
        run(test)
