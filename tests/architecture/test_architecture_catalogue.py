"""What is known of a library stands once, in the catalogue; no other module spells its name."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import get_args

from test_architecture_imports import parsed

import backendcfg
from backendcfg.catalogue import cpu, frameworks, gpu
from backendcfg.schema.host import LibraryKind
from backendcfg.schema.tables import CpuBlas

PACKAGE = Path(backendcfg.__file__).parent

# Stages that spell names because these are their keys: profiles are written in them.
KEYS = ("catalogue", "schema")

ELSEWHERE = {
    "gpu/": "the rules of each family's libraries",
    "ops/fft/choice.py": "the libraries of transforms",
}
"""Where names of others are still spelled, and why. To be emptied: add none."""

VALUES = {
    "audit/survey.py": {"cudnn"},
    "backends/__init__.py": {"cudnn", "cusparselt", "miopen", "mkl", "opt_einsum"},
    "backends/cuda/attention.py": {"cudnn"},
    "backends/python_native.py": {"triton"},
    "backends/quantized.py": {"onednn"},
    "bridges/torch/kernels.py": {"cudnn", "triton"},
    "bridges/torch/libraries.py": {"onednn"},
    "dispatch/attention": {"cudnn"},
    "resolve/conflicts.py": {"cudnn"},
    "resolve/ground.py": {"cudnn"},
}
"""Words that are no library where they stand: a part of `torch.backends` or of a flag's name, a kernel
of attention, an engine of quantized operations, a language of kernels."""


def names():
    """The names, packages and beginnings of files of every library that is not ours."""
    found = set()
    for framework in frameworks.FRAMEWORKS:
        found |= {framework.name, *framework.packages, *framework.bundles}
    for library in cpu.LIBRARIES:
        found |= {library.name, library.stem, library.symbol, *library.patterns}
        found |= {*library.places, *library.wheels, *library.listed, *library.modules}
    for library in gpu.LIBRARIES:
        found |= {library.name, library.stem, *library.names}
    # These two are ours; the others are words of CUDA's and HIP's platforms and symbols of many.
    return found - {"", *cpu.COMPILED_IN, gpu.CUDA.name, gpu.HIP.name, "dgemm_", "dgesv_"}


@functools.cache
def literals(source):
    """The texts in the code of a module, with their lines; docstrings apart."""
    nodes = list(ast.walk(parsed(source)))
    texts = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return [
        (node.value, node.lineno)
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts
    ]


def spelled(source, known):
    """The literals of a module that are such a name, with their lines."""
    return [(name, line) for name, line in literals(source) if name in known]


def is_its_own(path, name):
    """Whether a module is the bridge or the provider of the library that it spells."""
    return any(name in re.split(r"[_.]", part) or part == f"{name}.py" for part in path.split("/"))


def is_value(path, name):
    return any(path.startswith(start) and name in words for start, words in VALUES.items())


def found(files):
    known = names()
    for path, source in files.items():
        if path.partition("/")[0] in KEYS or path.startswith(tuple(ELSEWHERE)):
            continue
        for name, line in spelled(source, known):
            if not is_its_own(path, name) and not is_value(path, name):
                yield f"{path}:{line} spells {name!r}"


def sources():
    return {
        path.relative_to(PACKAGE).as_posix(): path.read_text()
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def test_no_module_spells_what_the_catalogue_has():
    assert list(found(sources())) == []


def test_the_check_sees_a_name_and_passes_over_texts_and_a_library_s_own_module():
    files = {
        "probe/a.py": '"""Asks blis."""\nif kind == "blis":\n    say("a blis")\n',
        "probe/torch_maps.py": 'name = "torch"\n',
        "schema/b.py": 'name = "mkl"\n',
        "session/c.py": 'find("libcudnn.so")\n',
    }
    assert list(found(files)) == [
        "probe/a.py:2 spells 'blis'",
        "session/c.py:1 spells 'libcudnn.so'",
    ]


def test_what_spells_no_name_any_more_is_off_the_list():
    known = names()
    spelling = {
        (path, name) for path, source in sources().items() for name, _ in spelled(source, known)
    }
    assert [
        start for start in ELSEWHERE if not any(path.startswith(start) for path, _ in spelling)
    ] == []
    assert [
        (start, word)
        for start, words in VALUES.items()
        for word in words
        if not any(path.startswith(start) and name == word for path, name in spelling)
    ] == []


def test_profiles_choose_among_the_providers_of_the_catalogue():
    assert set(get_args(CpuBlas)) == {provider.name for provider in cpu.PROVIDERS}


def test_hosts_list_the_kinds_of_the_catalogue():
    assert set(get_args(LibraryKind)) == set(cpu.KINDS)


def test_a_library_that_serves_can_be_had():
    assert [
        provider.name
        for provider in cpu.PROVIDERS
        if provider.name not in cpu.COMPILED_IN and not provider.install
    ] == []


def test_every_file_that_a_pattern_matches_has_a_hint():
    files = (
        *("libopenblas.so.0", "libscipy_openblas64_-32a4b2a6.so", "libmkl_rt.so.3"),
        *("libtorch_cpu.so", "libblis64.so.4", "libblas.so.3", "libcblas.so.3"),
        *("liblapack.so.3", "liblapacke64.so", "libgomp.so.1", "libiomp5.so", "libomp.dylib"),
    )
    hints = [hint for library in cpu.LIBRARIES for hint in library.hints]
    assert [name for name in files if not cpu.kind_of(f"/lib/{name}")] == []
    assert [name for name in files if not any(hint in name for hint in hints)] == []
