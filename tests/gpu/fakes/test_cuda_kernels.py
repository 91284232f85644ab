"""Kernels for GPUs compile for every architecture, once; what cannot be compiled is said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata

import pytest
from test_device_attention_launch import A100, H200, RTX_4090, call

from backendcfg.errors import InternalError, MissingLibraryError
from backendcfg.gpu.attention.call import Gradients, Matrix
from backendcfg.gpu.attention.flash import variant, variants
from backendcfg.gpu.kernels import sources
from backendcfg.gpu.kernels import sources as cuda_compiler

FAKE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int architectures[] = {80, 90, 120};
int nvrtcVersion(int *major, int *minor) { *major = 12; *minor = 9; return STATUS; }
int nvrtcGetNumSupportedArchs(int *count) { *count = 3; return 0; }
int nvrtcGetSupportedArchs(int *to) { memcpy(to, architectures, sizeof architectures); return 0; }
const char *nvrtcGetErrorString(int status) { return "NVRTC_ERROR_INTERNAL_ERROR"; }
#ifndef OLD
int nvrtcGetCUBINSize(void *program, unsigned long *size) { *size = 4; return 0; }
int nvrtcGetCUBIN(void *program, char *to) { memcpy(to, "code", 4); return 0; }
#endif
int nvrtcCreateProgram(void **program, const char *source, const char *name, int headers,
                       const char **texts, const char **names) { *program = 0; return 0; }
int nvrtcCompileProgram(void *program, int count, const char **options) {
    FILE *record = fopen(RECORD, "a");
    fputc('.', record), fclose(record);
#ifdef BREAKS
    abort();
#endif
    return RESULT;
}
int nvrtcGetProgramLogSize(void *program, unsigned long *size) { *size = 4; return 0; }
int nvrtcGetProgramLog(void *program, char *to) { memcpy(to, "log", 4); return 0; }
int nvrtcDestroyProgram(void **program) { return 0; }
"""


@pytest.fixture(name="fake")
def _fake(tmp_path):
    def fake(folder="fake", **macros):
        place = tmp_path / folder
        place.mkdir(parents=True, exist_ok=True)
        (place / "fake.c").write_text(FAKE)
        path = place / "libnvrtc.so.12"
        given = {"STATUS": 0, "RESULT": 0, "RECORD": f'"{path}.record"', **macros}
        command = [
            "cc",
            "-shared",
            "-fPIC",
            *(f"-D{name}={value}" for name, value in given.items()),
        ]
        subprocess.run([*command, "-o", path, place / "fake.c"], check=True)
        return str(path)

    return fake


@pytest.fixture(autouse=True)
def _nothing_found_before(monkeypatch):
    monkeypatch.setattr(cuda_compiler, "_compiler", None)
    sources.forget()
    yield
    sources.forget()


@pytest.fixture(name="real")
def _real():
    try:
        metadata.files("nvidia-cuda-nvrtc")
    except metadata.PackageNotFoundError:
        pytest.skip("NVRTC is not installed")
    return cuda_compiler.compiler()


VARIANTS = {
    "64": (call(), H200),
    "64 causal": (call(is_causal=True), H200),
    "64 float16, bool mask": (call(element="float16", mask=Matrix(0, (0, 0, 0, 1))), H200),
    "64 added mask": (call(mask=Matrix(0, (0, 0, 0, 1)), mask_element="float32"), H200),
    "64 dropout": (call(dropout=0.1), H200),
    "64 anywhere": (call(query=Matrix(2, (0, 0, 0, 1))), H200),
    "80 causal": (call(width=80, is_causal=True), H200),
    "96": (call(width=96), H200),
    "128": (call(width=128), H200),
    "128 causal": (call(width=128, is_causal=True), H200),
    "128, all at once": (
        call(
            width=128,
            is_causal=True,
            dropout=0.1,
            mask=Matrix(0, (0, 0, 0, 1)),
            query=Matrix(2, (0, 0, 0, 1)),
        ),
        H200,
    ),
    "192": (call(width=192), H200),
    "256": (call(width=256), H200),
    "256 of sm_80": (call(width=256), A100),
    "256 of sm_86": (call(width=256), RTX_4090),
}
SPILLS = 128
"""Bytes that a thread of the fullest variants may keep outside of its registers."""
PINNED = (13, 5)
"""The compiler of .ci/libraries.txt; others may spill elsewhere."""
CLEAN = {"64", "96", "192", "256", "256 of sm_80", "256 of sm_86", "64 anywhere"}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("architecture", [80, 90, 100])
@pytest.mark.parametrize("name", ["64 causal", "128"])
def test_the_kernel_compiles_for_every_generation(real, name, architecture):
    used = compiled(real, name, architecture)
    assert used["registers"] <= 255
    assert used["spilled"] <= SPILLS


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", VARIANTS)
def test_every_kind_of_variant_compiles_and_keeps_its_sums_in_registers(real, name):
    used = compiled(real, name, 90)
    # What two blocks of 128 threads, or one of 256, may have of 65536.
    assert used["registers"] <= 255
    assert used["spilled"] <= (0 if name in CLEAN and real.version == PINNED else SPILLS)


BACKWARD = {
    "64": call(),
    "64 causal, dropout, mask": call(
        is_causal=True, dropout=0.1, mask=Matrix(0, (0, 0, 0, 1)), query=Matrix(2, (0, 0, 0, 1))
    ),
    "128 causal": call(width=128, is_causal=True),
    "192": call(width=192),
    "256": call(width=256),
}


@pytest.mark.slow
@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", BACKWARD)
def test_the_backward_kernels_compile_and_keep_their_sums_in_registers(real, name):
    made = BACKWARD[name]
    arrays = {"query": made.query, "key": made.key, "value": made.value}
    gradients = Gradients(made.out, 4096, arrays)
    for architecture in (80, 90, 100) if name == "128 causal" else (90,):
        for chosen in variants(made, gradients, H200):
            used = compiled_variant(real, chosen, architecture)
            assert used["registers"] <= 255
            assert used["spilled"] <= SPILLS


def compiled(real, name, architecture):
    made, limit = VARIANTS[name]
    return compiled_variant(real, variant(made, limit), architecture)


def compiled_variant(real, chosen, architecture):
    options = sources.attention_options(chosen, architecture)
    headers = {each: sources.source(each) for each in sources.HEADERS}
    name = chosen.name
    found = real.compile(
        name, sources.source(f"{name}.cu"), headers, [*options, "--ptxas-options=-v"]
    )
    assert found.code.startswith(b"\x7fELF")
    assert name.encode() in found.code
    registers = re.search(r"Used (\d+) registers", found.log)
    spilled = re.search(r"(\d+) bytes spill stores", found.log)
    assert registers, found.log
    assert spilled, found.log
    # What is not spilled but indexed while it runs would lie outside of the registers as well.
    stack = re.search(r"(\d+) bytes stack frame", found.log)
    assert int(stack[1]) < int(spilled[1]) + 16
    return {"registers": int(registers[1]), "spilled": int(spilled[1])}


def test_a_kernel_is_compiled_once_and_kept(real):
    made = variant(call(width=32), H200)
    first = sources.attention(made, (9, 0))
    assert first.startswith(b"\x7fELF")
    (file,) = os.scandir(sources.directory())
    assert file.name.endswith(".cubin")
    before = file.stat().st_mtime_ns
    sources.forget()
    assert sources.attention(made, (9, 0)) == first
    (again,) = os.scandir(sources.directory())
    assert again.stat().st_mtime_ns == before


def count(path):
    """How often the fake compiled."""
    with open(f"{path}.record", encoding="ascii") as record:
        return len(record.read())


def code(compiler, **changes):
    given = {
        "name": "a.cu",
        "text": "source",
        "headers": {"h": "text"},
        "options": ["-DA=1"],
        **changes,
    }
    return sources.code(compiler, **given)


def test_what_was_compiled_is_not_compiled_again(fake):
    path = fake()
    compiler = cuda_compiler.Compiler(path)
    assert code(compiler) == code(compiler) == b"code"
    assert count(path) == 1
    sources.forget()  # another process
    assert code(compiler) == b"code"
    assert count(path) == 1


@pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 32 + b"code"])
def test_a_damaged_file_is_compiled_again(fake, damage):
    path = fake()
    compiler = cuda_compiler.Compiler(path)
    code(compiler)
    (file,) = os.scandir(sources.directory())
    with open(file.path, "wb") as damaged:
        damaged.write(damage)
    sources.forget()
    assert code(compiler) == b"code"
    assert count(path) == 2
    sources.forget()
    assert code(compiler) == b"code"
    assert count(path) == 2


def test_all_that_the_code_follows_from_is_in_its_name(fake):
    path = fake()
    compiler = cuda_compiler.Compiler(path)
    changes = [{}, {"text": "other"}, {"headers": {"h": "other"}}, {"options": ["-DA=2"]}]
    for change in changes:
        code(compiler, **change)
    compiler.version = (13, 0)
    code(compiler)
    assert count(path) == len(os.listdir(sources.directory())) == len(changes) + 1


def test_the_oldest_kernels_go(fake, monkeypatch):
    monkeypatch.setattr(sources, "KEPT", 2)
    compiler = cuda_compiler.Compiler(fake())
    for text in "abcd":
        code(compiler, text=text)
    assert len(os.listdir(sources.directory())) == 2


def test_a_cache_that_cannot_be_written_is_no_error(fake, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BACKENDCFG_CACHE_DIR", str(tmp_path / "file"))
    assert code(cuda_compiler.Compiler(fake())) == b"code"


def test_a_program_that_does_not_compile_is_told_with_the_log(fake):
    path = fake(RESULT=6)
    with pytest.raises(InternalError) as caught:
        code(cuda_compiler.Compiler(path))
    assert caught.value.render() == (
        "error[internal]: `a.cu` does not compile\n"
        "  note: log\n"
        f"  note: by version 12.9, {path}\n"
        "  note: with -DA=1\n"
        "  state: nothing was compiled\n"
        "  help: report this, with all of the above"
    )
    assert not os.path.exists(sources.directory())


def test_a_compiler_that_breaks_is_told_with_its_error(fake):
    with pytest.raises(InternalError) as caught:
        code(cuda_compiler.Compiler(fake(RESULT=11)))
    assert caught.value.notes[:2] == ("NVRTC_ERROR_INTERNAL_ERROR", "log")


def test_a_compiler_that_ends_its_process_does_not_end_this_one(fake):
    path = fake(BREAKS=1)
    with pytest.raises(InternalError) as caught:
        code(cuda_compiler.Compiler(path))
    assert caught.value.notes == (
        "it ended the process that it ran in, by SIGABRT",
        f"by version 12.9, {path}",
        "with -DA=1",
    )
    assert not os.path.exists(sources.directory())


def test_the_log_of_the_real_compiler_is_told(real):
    with pytest.raises(InternalError) as caught:
        code(real, text="int main( {", headers={}, options=["--gpu-architecture=sm_90"])
    assert caught.value.notes[0].startswith("a.cu(1): error: ")
    assert caught.value.notes[-1] == "with --gpu-architecture=sm_90"


def test_code_is_for_the_newest_architecture_that_runs_on_the_device(fake):
    compiler = cuda_compiler.Compiler(fake())
    assert compiler.version == (12, 9)
    assert [compiler.architecture(each) for each in ((8, 0), (8, 9), (9, 0), (12, 1))] == [
        80,
        80,
        90,
        120,
    ]
    with pytest.raises(MissingLibraryError) as caught:
        compiler.architecture((10, 0))
    assert caught.value.message == "the CUDA compiler, version 12.9, does not compile for sm_100"
    assert caught.value.notes == (f"{compiler.path} compiles for sm_80, sm_90, sm_120",)


def test_wheels_come_before_variables(fake, monkeypatch, tmp_path):
    new, old = fake("site/nvidia/cu13/lib"), fake("site/nvidia/cuda_nvrtc/lib")
    toolkit = fake("toolkit/lib64")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    monkeypatch.setattr("backendcfg.probe.loaded.mapped_files", list)
    monkeypatch.setattr("backendcfg.probe.installed.loader_cache", dict)
    assert list(cuda_compiler.candidates()) == [new, old, toolkit]
    monkeypatch.setattr("backendcfg.probe.loaded.mapped_files", lambda: ["/x/libcuda.so", toolkit])
    monkeypatch.setattr(
        "backendcfg.probe.installed.loader_cache", lambda: {"libnvrtc.so.13": "/lib/libnvrtc.so.13"}
    )
    assert list(cuda_compiler.candidates()) == [toolkit, new, old, "/lib/libnvrtc.so.13"]


def test_one_that_is_broken_hides_no_other(fake, monkeypatch, tmp_path):
    broken = tmp_path / "libnvrtc.so.13"
    broken.write_text("no library")
    good = fake()
    monkeypatch.setattr(cuda_compiler, "candidates", lambda: iter([str(broken), good]))
    assert cuda_compiler.compiler().path == good


def test_what_cannot_be_used_is_told_file_by_file(fake, monkeypatch):
    old = fake("old", OLD=1)
    monkeypatch.setattr(cuda_compiler, "candidates", lambda: iter([old]))
    with pytest.raises(MissingLibraryError) as caught:
        cuda_compiler.compiler()
    assert caught.value.render() == (
        "error[missing-library]: no CUDA compiler, NVRTC, that was found can be used\n"
        f"  note: {old}: {old}: undefined symbol: nvrtcGetCUBINSize\n"
        "  state: nothing was compiled\n"
        "  help: run `pip install nvidia-cuda-nvrtc`, which needs neither a GPU nor a driver"
    )


def test_one_that_does_not_tell_its_version_cannot_be_used(fake):
    path = fake(STATUS=11)
    with pytest.raises(MissingLibraryError) as caught:
        cuda_compiler.Compiler(path)
    assert caught.value.message == "the CUDA compiler that was found cannot be used"
    assert caught.value.notes == (f"{path}: `nvrtcVersion` failed: NVRTC_ERROR_INTERNAL_ERROR",)


def test_without_a_compiler_it_is_told_where_was_looked(monkeypatch):
    monkeypatch.setattr(cuda_compiler, "candidates", lambda: iter(()))
    with pytest.raises(MissingLibraryError) as caught:
        cuda_compiler.compiler()
    assert caught.value.render() == (
        "error[missing-library]: no CUDA compiler, NVRTC, was found\n"
        "  note: libnvrtc.so is not in this process, in no wheel on sys.path, not below CUDA_PATH or "
        "CUDA_HOME, and not where the loader looks\n"
        "  state: nothing was compiled\n"
        "  help: run `pip install nvidia-cuda-nvrtc`, which needs neither a GPU nor a driver"
    )
