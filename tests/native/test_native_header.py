"""The header, the ctypes prototypes and the compiled object say the same."""

import ctypes
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from backendcfg import native
from backendcfg.defaults import DEFAULTS
from backendcfg.gpu.libraries import opening
from backendcfg.gpu.products import gemm
from backendcfg.schema import export, profile

NATIVE = Path(__file__).resolve().parents[2] / "native"
HEADER = (NATIVE / "include" / "backendcfg.h").read_text(encoding="ascii")
CODE = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)
SOURCES = sorted(NATIVE.glob("src/**/*.[ch]")) + sorted(NATIVE.glob("src/**/*.inc"))


def test_every_function_has_a_prototype_with_as_many_arguments():
    declared = re.findall(r"BCFG_API [\w *]*?\*?(bcfg_\w+)\(([^)]*)\)", CODE)
    counts = {n: 0 if a.strip() == "void" else a.count(",") + 1 for n, a in declared}
    assert {n: len(arguments) for n, (_, arguments) in native.PROTOTYPES.items()} == counts


@pytest.mark.parametrize(
    ("name", "structure"),
    [
        ("bcfg_error", native._Error),
        ("bcfg_library", native._Library),
        ("bcfg_description", native._Description),
        ("bcfg_flag", native._Flag),
        ("bcfg_order", native._Order),
        ("bcfg_content", native._Content),
    ],
)
def test_every_struct_has_the_same_fields_in_the_same_order(name, structure):
    body = re.search(r"typedef struct \{([^}]*)\} " + name + ";", CODE).group(1)
    fields = re.findall(r"(\w+)(?:\[\w+\])?\s*[,;]", body)
    assert fields == [field[0] for field in structure._fields_]


def test_every_struct_is_covered():
    structs = set(re.findall(r"typedef struct \{[^}]*\} (\w+);", CODE))
    assert structs - {"bcfg_operand", "bcfg_product"} == {
        "bcfg_error", "bcfg_library", "bcfg_description", "bcfg_flag", "bcfg_order", "bcfg_content",
    }  # fmt: skip


def test_the_factorisations_are_those_of_the_list():
    text = (NATIVE / "include/factorisations.inc").read_text()
    listed = re.findall(r"^FACTORISATION\((\w+), (\w+), (\w+)\)", text, re.MULTILINE)
    assert list(native.ROUTINES) == [(real, of_complex) for real, of_complex, _ in listed]
    assert all(real.upper() == name for real, _, name in listed)


def test_the_operations_are_those_of_the_list():
    listed = re.findall(
        r"^OPERATION\((\w+),", (NATIVE / "include/operations.inc").read_text(), re.MULTILINE
    )
    assert list(native.OPERATIONS) == listed


def test_the_generated_files_are_what_the_schema_says():
    assert (NATIVE / "include/backendcfg_flags.inc").read_text() == export.c_flags()
    assert profile.defaults() == DEFAULTS


def test_c_has_the_flags_that_it_reads():
    sources = [*NATIVE.glob("src/**/*.c"), *NATIVE.glob("src/**/*.h")]
    read = {name for path in sources for name in re.findall(r"\bFLAG_([A-Z]\w+)", path.read_text())}
    listed = set(re.findall(r'^FLAG\("[^"]+", (\w+),', export.c_flags(), re.MULTILINE))
    assert read <= listed
    # The rest is what libraries of devices multiply by: C keeps their recipes with a snapshot.
    assert listed - read == {flag.upper().replace(".", "_") for flag in gemm.FLAGS} - read


def test_a_flag_with_free_text_cannot_be_in_c():
    text = replace(profile.flags()["blas.path"].flag, in_c=True)
    with pytest.raises(TypeError, match="C has numbers and choices only"):
        export._c(replace(profile.flags()["blas.path"], flag=text))


def test_a_snapshot_gives_back_the_flags_that_it_holds():
    values = {**DEFAULTS, "threads.count": 3, "determinism.tier": "restart"}
    snapshot = native.intern(native.encode(values), [native.own()])
    held = native.decode(snapshot)
    assert held["threads.count"] == 3
    assert held["determinism.tier"] == "restart"
    assert held["cuda.preferred_blas_library"] is None
    assert held["ops.check_finite"] is False


def test_the_compiled_flags_are_those_of_the_list():
    names = re.findall(r'^FLAG\("([^"]+)"', export.c_flags(), re.MULTILINE)
    assert [flag.name for flag in native.flags()] == names


def test_the_abi_numbers_agree():
    from backendcfg import _native

    assert int(re.search(r"#define BCFG_ABI (\d+)", HEADER).group(1)) == native.ABI == _native.ABI


def test_nothing_prints_ends_the_process_or_reads_the_environment():
    forbidden = re.compile(r"\b(f?printf|puts|putchar|perror|abort|_?exit|assert|getenv)\s*\(")
    found = [f"{p.name}: {m}" for p in SOURCES for m in forbidden.findall(_code(p))]
    assert found == []
    assert len(SOURCES) > 15
    undefined = _symbols("--undefined-only")
    assert "dlopen" in undefined
    assert undefined & {"printf", "puts", "fputs", "fprintf", "abort", "exit", "getenv"} == set()


def test_only_the_manual_and_the_module_are_exported():
    exported = {name for name in _symbols("--defined-only") if not name.startswith("_")}
    known = {*native.PROTOTYPES, *opening.PROTOTYPES}
    assert exported - known == {"PyInit__native"}
    assert set(native.PROTOTYPES) <= exported


def _code(path):
    return re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)


def _symbols(which):
    out = subprocess.run(
        ["nm", "-D", which, native.file()], capture_output=True, text=True, check=True
    ).stdout
    return {line.split()[-1].split("@")[0] for line in out.splitlines()}


def test_no_file_is_longer_than_a_person_reads():
    lengths = {path.name: len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: n for name, n in lengths.items() if n > 400} == {}


def test_the_widths_of_the_structs_are_those_the_library_accepts():
    assert native.describe(native.reference()).name == "reference"
    short = native._Description()
    short.size = ctypes.sizeof(short) - 8
    assert native.library().bcfg_describe(native.reference(), short) == 1
