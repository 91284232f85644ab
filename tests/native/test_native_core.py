"""The core's own tests, plain C programs, as they are and under the sanitizers."""

import platform
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "native"
KERNEL_PROGRAMS = ("gemm", "attention", "attention_backward", "convolution")
PROGRAMS = ("open", "snapshot", "product", "threads", "team", "lapack", *KERNEL_PROGRAMS)
BUILDS = {"plain": [], "address-undefined": ["-fsanitize=address,undefined"],
          "thread": ["-fsanitize=thread", "-DWITHOUT_FORK", "-DWITHOUT_OPENMP"]}  # fmt: skip
DOUBLES = {
    "double_lp64": ["INTEGER=int32_t", "PREFIX=", "SUFFIX="],
    "double_ilp64": ["INTEGER=int64_t", "PREFIX=scipy_", "SUFFIX=64_"],
    "double_without_symbol": ["INTEGER=int32_t", "PREFIX=", "SUFFIX=", "WITHOUT_ZGEMV"],
    "double_wrong": ["INTEGER=int32_t", "PREFIX=", "SUFFIX=", "WRONG"],
}
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"]
KERNELS = {"kernels_avx2": AVX2, "kernels_avx512": AVX512,
           "kernels_avx512_bf16": [*AVX512, "-mavx512bf16"]}  # fmt: skip
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-std=gnu11", "-O1", "-g", "-fPIC"]


def compiled(*arguments):
    subprocess.run(["cc", *WARNINGS, *map(str, arguments)], check=True)


@pytest.fixture(scope="module", params=BUILDS)
def build(request, tmp_path_factory):
    """The folder of one build, its flags, the core's objects, and the programs worth running."""
    flags, folder = BUILDS[request.param], tmp_path_factory.mktemp(request.param)
    empty = folder / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    linked = subprocess.run(["cc", *flags, empty, "-o", folder / "empty"], capture_output=True)
    if linked.returncode:
        pytest.skip(f"this compiler has no {request.param} sanitizer")
    flags = [*flags, "-fno-sanitize-recover=all", "-ffp-contract=off"]
    flags += ["-I", NATIVE / "include", "-I", NATIVE / "src"]
    folders = ("core", "convolution", "kernels")
    sources = [source for part in folders for source in NATIVE.glob(f"src/{part}/*.c")]
    # With a sanitizer the kernels take minutes to compile: that is for ctest, see CMakeLists.txt.
    plain = request.param == "plain"
    if plain and platform.machine() in ("x86_64", "AMD64"):
        flags += ["-DBACKENDCFG_X86_64", "-DBACKENDCFG_AVX512_BF16"]
    else:
        sources = [source for source in sources if source.stem not in KERNELS]
    # The kernels take longest, so they come first.
    sources.sort(key=lambda source: "kernels_" not in source.name)
    objects = [folder / f"{source.stem}.o" for source in sources]

    def compile_one(source, target):
        # Describing variables where so much is inlined takes for ever.
        extra = [*KERNELS.get(source.stem, ()), "-g0" if "kernels_" in source.name else "-g"]
        sanitized = plain or "kernels_" not in source.name
        every = flags if sanitized else [*flags, "-fno-sanitize=all", "-O0"]
        compiled("-c", *every, *extra, source, "-o", target)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_one, sources, objects))
    for name, defines in DOUBLES.items():
        double = NATIVE / "doubles" / "double.c"
        compiled("-shared", *(f"-D{d}" for d in defines), double, "-o", folder / f"lib{name}.so")
    (folder / "libforeign.so").write_text("not a library\n")
    # One thread multiplying has no races to find, and takes long to find none.
    left_out = {"plain": (), "thread": ("product", *KERNEL_PROGRAMS)}
    names = [n for n in PROGRAMS if n not in left_out.get(request.param, KERNEL_PROGRAMS)]
    return folder, flags, objects, names


def test_the_core_passes(build):
    folder, flags, objects, names = build
    said = {}
    for name in names:
        program = folder / f"test_{name}"
        source = NATIVE / "tests" / f"test_{name}.c"
        compiled(*flags, source, *objects, "-o", program, "-lm", "-ldl", "-pthread")
        done = subprocess.run(
            [program, f"{folder}/"], capture_output=True, text=True, check=False, timeout=300
        )
        said[name] = (done.returncode, done.stderr)
    assert said == dict.fromkeys(names, (0, ""))


def test_every_program_is_run():
    programs = {path.stem.removeprefix("test_") for path in NATIVE.glob("tests/test_*.c")}
    assert programs == set(PROGRAMS)
