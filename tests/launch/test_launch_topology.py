"""Processors, their cores and their memory nodes, from what the kernel shows."""

from __future__ import annotations

import os

import pytest

from backendcfg.launch import arrangement
from backendcfg.launch.arrangement import Processor
from backendcfg.probe.limits import listed_processors


def shown(processors):
    return arrangement.ranges([each.number for each in processors])


def test_a_machine_with_two_sockets_and_two_threads_a_core(xeon):
    assert xeon.nodes == (0, 1)
    assert xeon.processors[0] == Processor(0, 0, 0)
    assert xeon.processors[8] == Processor(16, 0, 0)
    assert xeon.processors[-1] == Processor(31, 15, 1)
    assert shown(xeon.physical()) == "0-15"
    assert shown(xeon.physical(1)) == "8-15"
    assert shown(xeon.logical(1)) == "8-15,24-31"


def test_what_may_not_be_used_is_not_there(machine):
    nodes = {0: [(0, 4), (1, 5)], 1: [(2, 6), (3, 7)]}
    found = machine(nodes, allowed={1, 4, 6, 7})
    assert shown(found.logical()) == "1,4,6-7"
    assert shown(found.physical()) == "1,4,6-7"
    assert [each.node for each in found.physical()] == [0, 0, 1, 1]
    assert found.nodes == (0, 1)


def test_nodes_come_one_after_the_other_whatever_the_numbers(machine):
    found = machine({0: [(0,), (2,)], 1: [(1,), (3,)]})
    assert [each.number for each in found.physical()] == [0, 2, 1, 3]


def test_a_node_that_is_memory_alone_has_no_processors(machine):
    assert machine({0: [(0,)], 2: []}).nodes == (0,)


def test_where_the_kernel_says_nothing_every_processor_is_a_core_of_node_zero(tmp_path):
    found = arrangement.read(str(tmp_path), allowed=[5, 3])
    assert found.processors == (Processor(3, 3, 0), Processor(5, 5, 0))
    assert (found.nodes, shown(found.physical(0))) == ((0,), "3,5")


def test_files_that_cannot_be_read_are_as_good_as_none(machine, tmp_path):
    machine({0: [(0, 1)]})
    devices = tmp_path / "sys/devices/system"
    (devices / "node/node0/cpulist").write_text("rubbish\n")
    (devices / "cpu/cpu1/topology/thread_siblings_list").write_bytes(b"\xff\n")
    found = arrangement.read(str(tmp_path), allowed=[0, 1])
    assert found.processors == (Processor(0, 0, 0), Processor(1, 1, 0))


def test_here_the_processors_are_those_of_the_affinity():
    assert {each.number for each in arrangement.read().processors} == os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", []), ("0", [0]), ("0-2,8", [0, 1, 2, 8]), (" 3 , 1-2\n", [3, 1, 2]), ("0,1,", [0, 1])],
)
def test_lists_of_the_kernel_are_read(text, expected):
    assert listed_processors(text) == expected


@pytest.mark.parametrize("text", ["a", "1-", "-1", "0x1", "1;2"])
def test_what_is_no_list_is_refused(text):
    with pytest.raises(ValueError, match="invalid literal"):
        listed_processors(text)


@pytest.mark.parametrize("found", [[], [0], [0, 1, 2, 8], [7, 3, 5, 4]])
def test_lists_are_written_as_they_are_read(found):
    assert listed_processors(arrangement.ranges(found)) == sorted(found)
