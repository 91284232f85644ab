"""The core's own tests, plain C programs, as they are and under the sanitizers."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "native"
PROGRAMS = ("open", "snapshot", "product", "threads")
BUILDS = {"plain": [], "address-undefined": ["-fsanitize=address,undefined"],
          "thread": ["-fsanitize=thread", "-DWITHOUT_FORK"]}  # fmt: skip
DOUBLES = {
    "double_lp64": ["INTEGER=int32_t", "PREFIX=", "SUFFIX="],
    "double_ilp64": ["INTEGER=int64_t", "PREFIX=scipy_", "SUFFIX=64_"],
    "double_without_symbol": ["INTEGER=int32_t", "PREFIX=", "SUFFIX=", "WITHOUT_ZGEMV"],
    "double_wrong": ["INTEGER=int32_t", "PREFIX=", "SUFFIX=", "WRONG"],
}
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
    flags = [*flags, "-fno-sanitize-recover=all", "-I", NATIVE / "include"]
    sources = sorted((NATIVE / "src" / "core").glob("*.c"))
    objects = [folder / f"{source.stem}.o" for source in sources]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda s, o: compiled("-c", *flags, s, "-o", o), sources, objects))
    for name, defines in DOUBLES.items():
        double = NATIVE / "doubles" / "double.c"
        compiled("-shared", *(f"-D{d}" for d in defines), double, "-o", folder / f"lib{name}.so")
    (folder / "libforeign.so").write_text("not a library\n")
    # One thread multiplying has no races to find, and takes long to find none.
    names = [n for n in PROGRAMS if (request.param, n) != ("thread", "product")]
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
