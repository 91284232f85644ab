"""Memory that a program has freed stays with the process where a profile says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from backendcfg.bridges import memory

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="macOS and Windows have no glibc"
)

GIB = 1 << 30

FAULTS = """
import json, resource, sys
from backendcfg.bridges import memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        bytearray(64 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def setting(kept=1 << 30):
    found = memory.settings({"memory.keep_freed": kept}, ["memory.keep_freed"])
    return found[0] if found else None
"""


def test_pages_of_a_large_array_are_not_fetched_anew(answer):
    code = f"""{FAULTS}
before = faults()
one = setting()
read = [one.switch.read()]
one.switch.write(one.wanted)
faults()  # the first array still needs its pages
print(json.dumps([before, faults(), *read, one.switch.read(), one.switch.dormant()]))
"""
    before, after, read, kept, dormant = answer(code)
    pages = (64 << 20) // 4096
    assert (before >= pages, after < pages // 8) == (True, True), (before, after)
    assert (read, kept, dormant) == (0, GIB, "")


def test_a_child_that_is_forked_keeps_its_part(answer):
    code = f"""{FAULTS}
import os
one = setting()
one.switch.write(one.wanted)
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
reading, writing = os.pipe()
if os.fork() == 0:
    inner = os.fork()
    if inner == 0:
        os.write(writing, json.dumps([one.switch.read(), setting().wanted]).encode())
        os._exit(0)
    os.waitpid(inner, 0)
    os._exit(0)
os.wait()
whole = json.loads(os.read(reading, 100))
memory._forked.clear()
memory._processors = lambda: 4
if os.fork() == 0:
    os.write(writing, json.dumps([one.switch.read(), setting().wanted]).encode())
    os._exit(0)
os.wait()
print(json.dumps([whole, json.loads(os.read(reading, 100)), one.switch.read()]))
"""
    assert answer(code) == [[GIB, GIB], [GIB // 4, GIB // 4], GIB]


def test_a_part_is_never_less_than_what_glibc_keeps_by_itself(monkeypatch):
    monkeypatch.setattr(memory, "_forked", [1])
    monkeypatch.setattr(memory, "_processors", lambda: 64)
    wanted = [
        memory.settings({"memory.keep_freed": kept}, {"memory.keep_freed"})[0].wanted
        for kept in (8 * GIB, 128 << 20, 1 << 20)
    ]
    assert wanted == [128 << 20, 64 << 20, 1 << 20]


@pytest.mark.parametrize(
    ("variables", "because"),
    [
        ({"MALLOC_TRIM_THRESHOLD_": "1"}, "MALLOC_TRIM_THRESHOLD_ decides"),
        ({"MALLOC_MMAP_THRESHOLD_": "1"}, "MALLOC_MMAP_THRESHOLD_ decides"),
        ({"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1"}, "GLIBC_TUNABLES decides"),
        ({"GLIBC_TUNABLES": "glibc.pthread.rseq=1"}, ""),
    ],
)
def test_what_the_user_told_glibc_stays(answer, variables, because):
    code = f"{FAULTS}\nprint(json.dumps(setting().switch.dormant()))"
    assert answer(code, **variables) == because


def test_another_malloc_is_left_alone(answer, tmp_path):
    source = Path(__file__).parents[2] / "native" / "fakes" / "other_malloc.c"
    library = tmp_path / "libother.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    code = f"{FAULTS}\none = setting().switch\nprint(json.dumps([one.dormant(), one.read()]))"
    assert answer(code, LD_PRELOAD=str(library)) == [
        "another malloc than glibc's serves this process",
        0,
    ]


def test_a_profile_that_keeps_nothing_or_does_not_ask_leaves_malloc_alone():
    assert memory.settings({"memory.keep_freed": 0}, {"memory.keep_freed"}) == []
    assert memory.settings({"memory.keep_freed": GIB}, {"threads.count"}) == []


def test_an_undo_says_that_it_stays(answer):
    code = """
import json, backendcfg
backendcfg.apply("fast", settings={"memory.keep_freed": 1 << 30})
[left] = [one for one in backendcfg.undo().outcomes if one.flag == "memory.keep_freed"]
print(json.dumps([left.switch, left.state, left.because]))
"""
    assert answer(code, BACKENDCFG_DISABLE="0") == [
        "malloc.keep_freed",
        "irreversible",
        "the value it had cannot be written back",
    ]


def test_malloc_is_told_whole_numbers_that_it_can_take(answer):
    code = """
import json
from backendcfg import _native
said = []
for given in ((0,), (-1,), (1 << 31,), (1, 2), ("1",)):
    try:
        _native.keep_freed(*given)
    except (ValueError, TypeError) as error:
        said.append(f"{type(error).__name__}: {error}")
print(json.dumps([*said, _native.keep_freed()]))
"""
    assert answer(code) == [
        "ValueError: cannot keep 0 bytes: 1 to 2147483647",
        "ValueError: cannot keep -1 bytes: 1 to 2147483647",
        "ValueError: cannot keep 2147483648 bytes: 1 to 2147483647",
        "TypeError: keep_freed takes at most one argument",
        "TypeError: 'str' object cannot be interpreted as an integer",
        0,
    ]
