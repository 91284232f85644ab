"""The Python packages that compute, one record each."""

from __future__ import annotations

from backendcfg.records import record


@record(frozen=True)
class Framework:
    """A Python package that computes.

    Attributes:
        name: as it is imported; hosts, flags and plans call it so.
        title: as people spell it.
        packages: the distributions that bring it; the first that is installed tells its version.
            The first is also what one installs.
        families: how the names of yet other distributions of it begin, as directories spell them.
        bundles: where its wheel keeps libraries, as patterns beside the package.
        on_devices: whether it would compute on a GPU where there is one.
        in_host: whether a host lists its version.
        bridge_after: the module after whose import its bridge has switches to set; "" for a
            framework without a bridge.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    families: tuple[str, ...] = ()
    bundles: tuple[str, ...] = ()
    on_devices: bool = False
    in_host: bool = True
    bridge_after: str = ""


NUMPY = Framework(
    "numpy",
    "NumPy",
    ("numpy",),
    bundles=("numpy.libs/*", "numpy/.dylibs/*"),
    bridge_after="numpy",
)
SCIPY = Framework("scipy", "SciPy", ("scipy",), bundles=("scipy.libs/*", "scipy/.dylibs/*"))
TORCH = Framework(
    "torch",
    "PyTorch",
    ("torch",),
    bundles=("torch/lib/libtorch_cpu.*", "torch/lib/lib*omp*", "torch.libs/*"),
    on_devices=True,
    bridge_after="torch",
)
JAX = Framework("jax", "JAX", ("jax",), on_devices=True, bridge_after="jax")
JAXLIB = Framework("jaxlib", "jaxlib", ("jaxlib",))
TENSORFLOW = Framework(
    "tensorflow",
    "TensorFlow",
    ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tf-nightly"),
    families=("tensorflow", "tf_nightly"),
    on_devices=True,
    bridge_after="tensorflow",
)
CUPY = Framework(
    "cupy",
    "CuPy",
    ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy-rocm-5-0"),
    families=("cupy",),
    on_devices=True,
    bridge_after="cupy",
)
SKLEARN = Framework(
    "sklearn",
    "scikit-learn",
    ("scikit-learn",),
    bundles=("scikit_learn.libs/*", "sklearn/.dylibs/*"),
)
# PyTorch plans einsum with it and has its switches; no plan depends on its version.
OPT_EINSUM = Framework("opt_einsum", "opt_einsum", ("opt-einsum",), in_host=False)
NUMEXPR = Framework("numexpr", "numexpr", ("numexpr",))
NUMBA = Framework("numba", "Numba", ("numba",))
TRITON = Framework("triton", "Triton", ("triton", "pytorch-triton"))

# Bridges write in this order: first those whose libraries others call.
FRAMEWORKS = (
    *(NUMPY, SCIPY, TORCH, OPT_EINSUM, JAX, JAXLIB, TENSORFLOW, CUPY),
    *(SKLEARN, NUMEXPR, NUMBA, TRITON),
)
BY_NAME = {framework.name: framework for framework in FRAMEWORKS}

ON_DEVICES = tuple(framework.name for framework in FRAMEWORKS if framework.on_devices)
"""Names of those that compute on a GPU where there is one."""
