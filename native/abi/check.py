"""Compare our declarations of the libraries of devices with their vendors' own headers.

    python native/abi/check.py                        headers in wheels and usual places
    python native/abi/check.py DIRECTORY ...          headers below these directories
    python native/abi/check.py --declare DIRECTORY    write headers for the fakes there

C declares what it calls in native/include/gpu/abi_*.h; what Python calls by ctypes stands in
backendcfg/gpu/libraries/signatures.py. For every header that is found, each constant, function and
struct of these is compared with the vendor's by a C++ compiler: numbers by value; functions by how
many parameters they have and how each is passed (pointers by what is const, integers and
enumerations by size); structs by size and by the places of their fields. Optional functions, and
constants of a list that says since when there are such, may be absent.

Prints what was compared with what. Ends with 1 when something differs, with 2 when no header was
found.
"""

from __future__ import annotations

import glob
import importlib.util
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

INCLUDE = Path(__file__).resolve().parents[1] / "include"
SIGNATURES = Path("gpu", "libraries", "signatures.py")
MOST = 20  # differences that are shown of one header


@dataclass(frozen=True)
class Library:
    """One library: the vendor's header and ours.

    Attributes:
        name: as in the names of our files.
        header: the vendor's, below an include directory.
        prelude: lines of C++ before it.
        overloads: functions that the header overloads for C++, with the type to choose.
    """

    name: str
    header: str
    prelude: str = ""
    overloads: dict[str, str] = field(default_factory=dict)


_AMD = "#define __HIP_PLATFORM_AMD__ 1"
LIBRARIES = (
    Library("cuda", "cuda.h"),
    Library("cublas", "cublas_v2.h"),
    Library("cublaslt", "cublasLt.h"),
    Library("cufft", "cufftXt.h"),
    Library("cusparselt", "cusparseLt.h"),
    Library(
        "hip",
        "hip/hip_runtime_api.h",
        prelude=_AMD,
        overloads={
            "hipMalloc": "hipError_t (*)(void **, size_t)",
        },
    ),
    Library("hipblas", "hipblas/hipblas.h", prelude=_AMD),
    Library("cudnn", "cudnn_graph.h"),
    Library("hipblaslt", "hipblaslt/hipblaslt.h", prelude=f"{_AMD}\n#include <hipblas/hipblas.h>"),
    Library("cusolver", "cusolverDn.h"),
    Library("magma", "magma_v2.h", prelude="#define MAGMA_HAVE_CUDA 1"),
    Library("hipsolver", "hipsolver/hipsolver.h", prelude=_AMD),
    Library("magma_hip", "magma_v2.h", prelude=f"{_AMD}\n#define MAGMA_HAVE_HIP 1"),
)

# What may differ between a vendor's type and ours, and what may not.
COMPARISON = """
#include <cstddef>
#include <type_traits>

template <class T> constexpr bool is_number = std::is_integral_v<T> || std::is_enum_v<T>;
template <class T> constexpr size_t size_of() {
    if constexpr (std::is_void_v<T> || std::is_function_v<T>) return 0;
    else return sizeof(T);
}
/* Opaque structs of theirs are void of ours. */
template <class T, class U> constexpr bool same_pointee() {
    if constexpr (std::is_const_v<T> != std::is_const_v<U>) return false;
    else if constexpr (std::is_void_v<T> || std::is_void_v<U>) return true;
    else return std::is_pointer_v<T> == std::is_pointer_v<U> && size_of<T>() == size_of<U>();
}
template <class T, class U> constexpr bool same_value() {
    if constexpr (std::is_void_v<T> || std::is_void_v<U>) return std::is_same_v<T, U>;
    else if constexpr (std::is_pointer_v<T> && std::is_pointer_v<U>)
        return same_pointee<std::remove_pointer_t<T>, std::remove_pointer_t<U>>();
    else if constexpr (std::is_integral_v<T> && std::is_integral_v<U>)
        return sizeof(T) == sizeof(U) && std::is_signed_v<T> == std::is_signed_v<U>;
    else if constexpr (is_number<T> && is_number<U>) return sizeof(T) == sizeof(U);
    /* Structs that are passed by value are complex numbers. */
    else if constexpr (std::is_class_v<T> && std::is_class_v<U>) return sizeof(T) == sizeof(U);
    else return std::is_same_v<T, U>;
}
template <class T, class U> struct same_function : std::false_type {};
template <class R, class... T, class S, class... U>
struct same_function<R (*)(T...), S (*)(U...)> {
    static constexpr bool parameters() {
        if constexpr (sizeof...(T) != sizeof...(U)) return false;
        else return (same_value<T, U>() && ...);
    }
    static constexpr bool value = same_value<R, S>() && parameters();
};
"""


@dataclass(frozen=True)
class Declared:
    """What one of our headers declares.

    Attributes:
        constants: each with its value.
        newer: the constants of lists that say since when the vendor has them.
        functions: each with its result, its parameters and whether it is required.
        older: of functions that took another meaning, the name that the known one had before.
        fields: (the vendor's struct, its field, our struct, its field).
    """

    constants: dict[str, str]
    newer: set[str]
    functions: dict[str, tuple[str, str, bool]]
    older: dict[str, str]
    fields: list[tuple[str, str, str, str]]


def tables() -> dict[str, Any]:
    """The tables of what Python calls, by library; no package is imported.

    They are those of this tree, else of the package that is installed.
    """
    package = INCLUDE.parents[1] / "backendcfg"
    if not package.is_dir():
        # Several folders where the install is editable: the sources, and what was compiled.
        folders = map(Path, importlib.util.find_spec("backendcfg").submodule_search_locations)
        package = next(folder for folder in folders if (folder / SIGNATURES).is_file())
    spec = importlib.util.spec_from_file_location("signatures", package / SIGNATURES)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {
        name: table
        for name, table in module.TABLES.items()
        if not (INCLUDE / "gpu" / f"abi_{name}.h").is_file()
    }


TYPEDEFS = """
typedef struct { float real, imaginary; } bcfg_complex64;
typedef struct { double real, imaginary; } bcfg_complex128;
"""


def header(name: str, table: Any) -> str:
    """The text of a header that declares a table, as native/include/gpu/abi_*.h do."""
    numbers = "".join(f"    BCFG_{name} = {number},\n" for name, number in table.constants.items())
    statuses = "".join(
        f" \\\n    CONSTANT({constant}, {number})"
        for constant, number in table.constants.items()
        if "_STATUS_" in constant
    )
    symbols = "".join(
        f" \\\n    {'OPTIONAL' if one.optional else 'REQUIRED'}"
        f"({one.result}, {function}, ({', '.join(one.parameters) or 'void'}))"
        for function, one in table.functions.items()
    )
    return (
        "/* Made by native/abi/check.py. */\n#pragma once\n"
        "#include <stddef.h>\n#include <stdint.h>\n"
        f"enum {{\n{numbers}}};\n{TYPEDEFS if 'complex64' in symbols else ''}"
        f"#define BCFG_{name.upper()}_STATUS_CONSTANTS(CONSTANT){statuses}\n"
        f"#define BCFG_{name.upper()}_SYMBOLS(REQUIRED, OPTIONAL){symbols}\n"
    )


def declare(folder: Path) -> None:
    """Write the headers that the fakes of what Python calls include."""
    (folder / "gpu").mkdir(parents=True, exist_ok=True)
    for name, table in tables().items():
        (folder / "gpu" / f"abi_{name}.h").write_text(header(name, table), encoding="ascii")


def declared(name: str) -> Declared:
    """What our headers, or the tables of what Python calls, have of one library."""
    if table := tables().get(name):
        constants = {constant: str(number) for constant, number in table.constants.items()}
        functions = {
            function: (one.result, f"({', '.join(one.parameters)})", not one.optional)
            for function, one in table.functions.items()
        }
        return Declared(constants, set(table.newer), functions, {}, [])
    text = (INCLUDE / "gpu" / f"abi_{name}.h").read_text(encoding="ascii").replace("\\\n", " ")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    lists = "\n".join(re.findall(r"#define BCFG_\w+\(.*", text))
    constant = r"\bCONSTANT\((\w+), (-?\w+)\)"
    dated = re.findall(r"#define BCFG_\w+_SINCE_.*", lists)
    newer = {name for name, _ in re.findall(constant, "\n".join(dated))}
    functions = {}
    for kind, result, function, parameters in re.findall(
        r"\b(REQUIRED|OPTIONAL)\(\s*([\w *]+?),\s*(\w+),\s*(\((?:[^()]|\([^()]*\))*\))\s*\)", lists
    ):
        functions[function] = (result, " ".join(parameters.split()), kind == "REQUIRED")
    older = {}
    for result, function, before, parameters in re.findall(
        r"\bVERSIONED\(\s*([\w *]+?),\s*(\w+),\s*(\w+),\s*(\((?:[^()]|\([^()]*\))*\))\s*\)", lists
    ):
        functions[function] = (result, " ".join(parameters.split()), True)
        older[function] = before
    fields = re.findall(r"\bFIELD\((\w+), (\w+), (\w+), (\w+)\)", lists)
    return Declared(dict(re.findall(constant, lists)), newer, functions, older, fields)


def program(library: Library, ours: Declared, vendor: str) -> tuple[str, list[str]]:
    """The C++ text that only compiles when all agrees, and what the vendor's text does not have."""
    lines = [library.prelude, f"#include <{library.header}>", COMPARISON]
    ours_in_c = INCLUDE / "gpu" / f"abi_{library.name}.h"
    lines.append(f'#include "{ours_in_c}"' if ours_in_c.is_file() else TYPEDEFS)
    absent = []
    for name, value in ours.constants.items():
        if name in ours.newer and not re.search(rf"\b{name}\b", vendor):
            absent.append(name)
            continue
        lines.append(f'static_assert((long long)({name}) == ({value}), "{name} is not {value}");')
    for name, (result, parameters, required) in ours.functions.items():
        if not required and not re.search(rf"\b{name}\b", vendor):
            absent.append(name)
            continue
        before = ours.older.get(name, name)
        theirs = f"&::{before}" if re.search(rf"\b{before}\b", vendor) else f"&::{name}"
        if name in library.overloads:
            theirs = f"static_cast<{library.overloads[name]}>({theirs})"
        lines.append(
            f"static_assert(same_function<decltype({theirs}), {result} (*){parameters}>::value,"
            f' "{name} is declared otherwise");'
        )
    for struct, part, our_struct, our_part in ours.fields:
        lines.append(
            f"static_assert(offsetof({struct}, {part}) == offsetof({our_struct}, {our_part}) &&"
            f" sizeof({struct}) == sizeof({our_struct}) && sizeof({struct}::{part}) =="
            f' sizeof({our_struct}::{our_part}), "{struct}::{part} lies elsewhere");'
        )
    return "\n".join(lines) + "\n", absent


def compare(library: Library, directory: Path, others: list[Path]) -> tuple[str, list[str]]:
    """One header of a vendor's against ours: a line about it, and what differs.

    Args:
        library: which.
        directory: the include directory that holds its header.
        others: more include directories, for what the header itself includes.
    """
    ours = declared(library.name)
    # A header may only include those that declare, as cublas_v2.h and hipsolver.h do.
    header = directory / library.header
    beside = [
        header,
        *sorted(header.parent.glob("*.h")),
        *sorted(header.parent.glob("internal/*.h")),
    ]
    vendor = "\n".join(path.read_text(errors="replace") for path in dict.fromkeys(beside))
    text, absent = program(library, ours, vendor)
    with tempfile.NamedTemporaryFile("w", suffix=".cpp", encoding="ascii") as file:
        file.write(text)
        file.flush()
        include = [f"-I{path}" for path in dict.fromkeys([directory, INCLUDE, *others])]
        command = ["c++", "-std=c++17", "-fsyntax-only", "-w", *include, file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    counts = f"{len(ours.constants)} constants, {len(ours.functions)} functions"
    line = f"{library.name}: {counts} against {directory / library.header}"
    if absent:
        line += f"; not in it: {', '.join(absent)}"
    if done.returncode == 0:
        return line, []
    said = re.findall(r"error: (?:static assertion failed: )?(.*)", done.stderr)
    return line, list(dict.fromkeys(said))[:MOST] or [done.stderr.strip()]


def include_directories(places: list[str]) -> list[Path]:
    """Directories below the places given, or the usual ones, that hold a vendor's header."""
    patterns = [
        *(f"{glob.escape(entry)}/nvidia/*/include" for entry in sys.path if entry),
        *("/usr/local/cuda*/include", "/usr/include", "/opt/rocm*/include"),
    ]
    if places:
        given = [Path(place) for place in places]
        patterns = [
            glob.escape(str(path.parents[len(Path(library.header).parts) - 1]))
            for place in given
            for library in LIBRARIES
            for path in sorted(place.rglob(library.header))
        ]
    found = (Path(path).resolve() for pattern in patterns for path in sorted(glob.glob(pattern)))
    return [path for path in dict.fromkeys(found) if path.is_dir()]


def main(places: list[str]) -> int:
    """Compare everything that is found and print what came of it."""
    directories = include_directories(places)
    compared = wrong = 0
    for library in LIBRARIES:
        holders = [path for path in directories if (path / library.header).is_file()]
        if not holders:
            print(f"{library.name}: not compared, no {library.header} was found")
        for directory in holders:
            line, differences = compare(library, directory, directories)
            print(line)
            compared += 1
            wrong += bool(differences)
            for difference in differences:
                print(f"  {difference}")
    return 2 if not compared else int(bool(wrong))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--declare"]:
        declare(Path(sys.argv[2]))
    else:
        sys.exit(main(sys.argv[1:]))
