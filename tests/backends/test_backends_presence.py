"""What is on a machine, answered from detection: captured hosts, and files of wheels."""

from __future__ import annotations

from pathlib import Path

import pytest

from backendcfg import backends, session
from backendcfg.backends import base, cpu, python_native
from backendcfg.schema.host import Host
from backendcfg.session import planning

HOSTS = Path(__file__).parents[1] / "hosts"


@pytest.fixture(name="on")
def _on(monkeypatch, tmp_path):
    """`on("dgx-h100--openblas")` makes it this machine, without any library to be found."""

    def on(name: str) -> Path:
        host = Host.model_validate_json((HOSTS / f"{name}.json").read_text())
        monkeypatch.setattr(planning, "detect", lambda: host)
        monkeypatch.setattr("backendcfg.probe.installed.loader_cache", dict)
        site = tmp_path / "site-packages"
        monkeypatch.setattr(base, "places", lambda: [str(site)])
        monkeypatch.setattr(python_native, "find_spec", lambda name: None)
        monkeypatch.setattr(base, "ask_torch", lambda question: None)
        monkeypatch.syspath_prepend(site)
        session.reload()
        return site

    yield on
    monkeypatch.undo()
    session.reload()


def wheel(directory: Path, name: str, version: str, library: str) -> None:
    """Lay out what a wheel of NVIDIA's installs."""
    information = directory / f"{name.replace('-', '_')}-{version}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )
    file = directory / "nvidia" / name.split("-")[1] / "lib" / library
    file.parent.mkdir(parents=True)
    file.write_bytes(b"")


def test_cudnn_is_available_where_a_gpu_and_its_library_are(on):
    on("dgx-h100--openblas")
    assert backends.cudnn.is_available() is False
    assert backends.cudnn.version() is None


@pytest.mark.parametrize(
    ("name", "version", "number"),
    [("nvidia-cudnn-cu12", "9.10.2.21", 91002), ("nvidia-cudnn-cu11", "8.9.7.29", 8907)],
)
def test_the_version_of_cudnn_is_that_of_its_wheel(on, monkeypatch, name, version, number):
    site = on("dgx-h100--openblas")
    wheel(site, name, version, "libcudnn.so.9")
    assert backends.cudnn.is_available() is True
    assert backends.cudnn.version() == number


def test_the_version_of_a_systems_library_is_in_its_name(on, monkeypatch):
    on("dgx-h100--openblas")
    path = "/usr/lib/x86_64-linux-gnu/libcudnn.so.9.3.0"
    monkeypatch.setattr("backendcfg.probe.installed.loader_cache", lambda: {"libcudnn.so.9": path})
    session.reload()
    assert backends.cudnn.version() == 90300


def test_without_a_gpu_the_library_alone_is_not_enough(on, monkeypatch):
    site = on("cloud-vm-zen4-no-gpu--openblas")
    wheel(site, "nvidia-cudnn-cu12", "9.10.2.21", "libcudnn.so.9")
    assert (backends.cudnn.is_available(), backends.cudnn.version()) == (False, None)


def test_on_amd_miopen_answers_for_cudnn(on, monkeypatch, tmp_path):
    on("mi300x--openblas")
    assert backends.cudnn.is_available() is False
    path = str(tmp_path / "rocm" / "lib" / "libMIOpen.so.1.0.60300")
    monkeypatch.setattr("backendcfg.probe.installed.loader_cache", lambda: {"libMIOpen.so.1": path})
    session.reload()
    assert (backends.cudnn.is_available(), backends.cudnn.version()) == (True, None)
    header = tmp_path / "rocm" / "include" / "miopen" / "version.h"
    header.parent.mkdir(parents=True)
    (tmp_path / "rocm" / "lib").mkdir()
    lines = [f"#define MIOPEN_VERSION_{part}" for part in ("MAJOR 3", "MINOR 3", "PATCH 0")]
    header.write_text("\n".join([*lines, "#define MIOPEN_VERSION_TWEAK abc-dirty"]) + "\n")
    assert backends.cudnn.version() == 30300


def test_cusparselt_knows_the_algorithms_of_the_versions_that_pytorch_knows(on, monkeypatch):
    site = on("dgx-h100--openblas")
    assert backends.cusparselt.get_max_alg_id() is None
    wheel(site, "nvidia-cusparselt-cu12", "0.6.2", "libcusparseLt.so.0")
    session.reload()
    assert backends.cusparselt.is_available() is True
    assert backends.cusparselt.version() == 602
    assert backends.cusparselt.get_max_alg_id() == 37


CAPABILITIES = [
    ("dgx-h100--openblas", "AVX512"),
    ("debian-blis--blis", "AVX2"),
    ("gh200-grace--openblas", "DEFAULT"),
    ("macbook-m3-max-accelerate--native", "DEFAULT"),
]


@pytest.mark.parametrize(("name", "capability"), CAPABILITIES)
def test_the_capability_is_that_of_the_processor(on, name, capability):
    on(name)
    assert backends.cpu.get_cpu_capability() == capability


def test_the_capability_is_no_better_than_the_profile_allows(on):
    on("dgx-h100--openblas")
    backends.base.assign({"torch.cpu_capability": "avx2"})
    assert backends.cpu.get_cpu_capability() == "AVX2"
    session.undo()
    on("debian-blis--blis")
    with backends.base.scoped({"torch.cpu_capability": "avx512"}):
        assert backends.cpu.get_cpu_capability() == "AVX2"


def test_arms_vectors_of_256_bits_have_their_own_class(on):
    on("gh200-grace--openblas")
    host = base.host()
    assert cpu._of(host.cpu.model_copy(update={"microarchitecture": "neoverse_v1"})) == "SVE256"
    assert cpu._of(host.cpu.model_copy(update={"architecture": "ppc64le"})) == "VSX"


ENGINES = [
    ("dgx-h100--openblas", "x86", ["qnnpack", "onednn", "x86", "fbgemm"]),
    ("gh200-grace--openblas", "qnnpack", ["qnnpack", "onednn"]),
    ("debian-blis--blis", "none", []),
]


@pytest.mark.parametrize(("name", "engine", "supported"), ENGINES)
def test_the_engines_are_those_of_pytorchs_wheels_for_the_processor(on, name, engine, supported):
    on(name)
    assert backends.quantized.supported_engines == supported
    assert backends.quantized.engine == engine


def test_a_mac_has_its_gpu(on, monkeypatch):
    on("macbook-m3-max-accelerate--native")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    assert backends.mps.is_built() is backends.mps.is_available() is True
    assert backends.mps.get_name() == base.host().gpus[0].name
    answer = '  | {\n "gpu-core-count" = 40\n "model" = "x"\n'

    def run(words, **_options):
        assert words[0] == "/usr/sbin/ioreg"
        return type("Done", (), {"stdout": answer})

    monkeypatch.setattr("subprocess.run", run)
    assert backends.mps.get_core_count() == 40


def test_what_frameworks_have_is_told_from_what_is_installed(on):
    on("debian-blis--blis")
    assert backends.mkldnn.is_available() is backends.nnpack.is_available() is False
    on("cloud-vm-zen4-no-gpu--openblas")
    assert backends.mkldnn.is_available() is backends.nnpack.is_available() is True
    on("gh200-grace--openblas")
    assert backends.mkldnn.is_available() is True
    assert backends.nnpack.is_available() is False


def test_kernel_languages_are_available_where_installed_beside_an_nvidia_gpu(on, monkeypatch):
    site = on("dgx-h100--openblas")
    assert backends.python_native.available_dsls == []
    monkeypatch.setattr(python_native, "find_spec", lambda name: name == "triton" or None)
    information = site / "triton-3.6.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: triton\nVersion: 3.6.0\n")
    assert backends.python_native.available_dsls == ["triton"]
    assert str(backends.python_native.triton.version) == "3.6.0"
    assert repr(backends.python_native.triton) == "DSLController(triton, available, enabled)"
    on("cloud-vm-zen4-no-gpu--openblas")
    assert backends.python_native.available_dsls == []


def test_detection_runs_once_until_reload(on, monkeypatch):
    on("dgx-h100--openblas")
    calls, host = [], base.host()
    monkeypatch.setattr(planning, "detect", lambda: calls.append(1) or host)
    backends.openmp.is_available()
    assert calls == []
    session.reload()
    backends.openmp.is_available()
    backends.mkldnn.is_available()
    assert calls == [1]


@pytest.mark.torch
def test_a_pytorch_that_is_loaded_says_itself_what_it_has(python):
    printed = python(
        """
        import importlib.util, sys
        if importlib.util.find_spec("torch") is None:
            sys.exit()
        import torch
        from backendcfg import backends as ours
        theirs = torch.backends
        pairs = [
            (theirs.cpu.get_cpu_capability(), ours.cpu.get_cpu_capability()),
            (theirs.mkl.is_available(), ours.mkl.is_available()),
            (theirs.mkldnn.is_available(), ours.mkldnn.is_available()),
            (theirs.mkldnn.is_acl_available(), ours.mkldnn.is_acl_available()),
            (theirs.nnpack.is_available(), ours.nnpack.is_available()),
            (theirs.kleidiai.is_available(), ours.kleidiai.is_available()),
            (theirs.openmp.is_available(), ours.openmp.is_available()),
            (theirs.quantized.engine, ours.quantized.engine),
            (theirs.quantized.supported_engines, ours.quantized.supported_engines),
            (theirs.python_native.get_dsl_operations("triton"), ours.python_native.get_dsl_operations("triton")),
            (torch.float32 in theirs.cudnn.CUDNN_TENSOR_DTYPES, torch.float32 in ours.cudnn.CUDNN_TENSOR_DTYPES),
            (torch.int8 in theirs.cudnn.CUDNN_TENSOR_DTYPES, torch.int8 in ours.cudnn.CUDNN_TENSOR_DTYPES),
            (theirs.cudnn.is_acceptable(torch.ones(2)), ours.cudnn.is_acceptable(torch.ones(2))),
        ]
        import torch.backends.xnnpack
        pairs.append((theirs.xnnpack.enabled, ours.xnnpack.enabled))
        print([pair for pair in pairs if pair[0] != pair[1]])
        """
    )
    assert printed == "[]\n"
