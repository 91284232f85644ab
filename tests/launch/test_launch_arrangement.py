"""Which instance gets which cores, on machines made of files."""

from __future__ import annotations

import pytest
from launch_machines import cores

from backendcfg.errors import InvalidArgumentError
from backendcfg.launch.arrangement import Request, arrange, listed, ranges


def given(machine, usable=999, **request):
    """The processors of each instance, and the notes."""
    arranged = arrange(machine, Request(**request), usable)
    return [ranges(share.processors) for share in arranged.shares], list(arranged.notes)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, ["0-15"]),
        ({"node": 1}, ["8-15"]),
        ({"logical": True}, ["0-31"]),
        ({"node": 0, "logical": True}, ["0-7,16-23"]),
        ({"instances": 2}, ["0-7", "8-15"]),
        ({"instances": 4, "node": 1}, ["8-9", "10-11", "12-13", "14-15"]),
        ({"cores": 4}, ["0-3", "4-7", "8-11", "12-15"]),
        ({"instances": 3, "cores": 2}, ["0-1", "2-3", "4-5"]),
        ({"instances": 5}, ["0-2", "3-5", "6-8", "9-11", "12-14"]),
        ({"instances": 2, "rank": 1}, ["8-15"]),
        ({"instances": 2, "cores": 3, "rank": 0}, ["0-2"]),
        ({"mode": "latency"}, ["0-3", "4-7", "8-11", "12-15"]),
        ({"mode": "throughput"}, ["0-7", "8-15"]),
        ({"cores": 3, "skip_cross_node": True}, ["0-2", "3-5", "8-10", "11-13"]),
        ({"cores": 3, "instances": 3, "skip_cross_node": True}, ["0-2", "3-5", "8-10"]),
        ({"cores": 8, "skip_cross_node": True}, ["0-7", "8-15"]),
        ({"processors": (0, 1, 2, 3), "instances": 2, "cores": 2}, ["0-1", "2-3"]),
        ({"processors": (0, 1, 2, 3), "cores": 2}, ["0-1", "2-3"]),
        ({"processors": (9, 0, 17)}, ["0,9,17"]),
        ({"part": (1, 2)}, ["8-15"]),
        ({"part": (0, 3), "instances": 2}, ["0-1", "8-9"]),
    ],
)
def test_cores_are_given_out_in_order(xeon, request_, expected):
    found, notes = given(xeon, **request_)
    assert found == expected
    assert [note for note in notes if "memory of nodes" not in note] == []


def test_a_list_is_given_out_in_its_order(xeon):
    arranged = arrange(xeon, Request(processors=(5, 1, 4, 0), cores=2), 999)
    assert [share.processors for share in arranged.shares] == [(5, 1), (4, 0)]


def test_an_instance_across_two_nodes_is_told(xeon):
    found, notes = given(xeon, cores=5)
    assert found == ["0-4", "5-9", "10-14"]
    assert notes == [
        (
            "instance 1 on cores 5-9 has memory of nodes 0, 1;"
            " --skip-cross-node-cores leaves such cores unused"
        )
    ]
    assert arrange(xeon, Request(cores=5), 999).shares[1].nodes == (0, 1)


def test_one_instance_on_the_whole_machine_is_meant_to_cross(xeon):
    assert given(xeon) == (["0-15"], [])


def test_an_instance_stays_on_one_node_where_numbers_alternate(machine):
    found = machine({0: [(0,), (2,), (4,)], 1: [(1,), (3,), (5,)]})
    assert given(found, instances=2) == (["0,2,4", "1,3,5"], [])


def test_one_instance_per_node_takes_nodes_as_large_as_they_are(machine):
    found = machine({0: cores(0, 4), 1: cores(4, 2)})
    assert given(found, mode="throughput") == (["0-3", "4-5"], [])


def test_a_small_machine_has_one_instance_in_latency_mode(machine):
    assert given(machine({0: cores(0, 2)}), mode="latency") == (["0-1"], [])


def test_what_a_mode_overrides_is_told(xeon):
    found, notes = given(xeon, mode="throughput", instances=3, cores=2, node=1, logical=True)
    assert found == ["0-7", "8-15"]
    assert notes == [
        "throughput mode takes every core; node and logical cores ignored",
        "throughput mode sets the number of instances and their cores",
    ]


QUOTA = "4 of 16 cores are used, because the cgroup gives the time of 4 processors"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, ["0-3"]),
        ({"instances": 2}, ["0-1", "2-3"]),
        ({"cores": 2}, ["0-1", "2-3"]),
        ({"mode": "latency"}, ["0-3"]),
    ],
)
def test_under_a_quota_no_more_cores_are_used_than_it_pays_for(xeon, request_, expected):
    assert given(xeon, usable=4, **request_) == (expected, [QUOTA])


def test_more_than_the_quota_pays_for_is_given_when_asked_for_and_told(xeon):
    found, notes = given(xeon, usable=4, instances=2, cores=3)
    assert found == ["0-2", "3-5"]
    assert notes == ["the cgroup gives the time of 4 processors, and 6 cores are bound"]
    found, notes = given(xeon, usable=4, instances=6)
    assert found == [f"{2 * first}-{2 * first + 1}" for first in range(6)]
    assert notes == ["the cgroup gives the time of 4 processors, and 12 cores are bound"]
    found, notes = given(xeon, usable=1, cores=3)
    assert found == ["0-2"]
    assert notes == ["the cgroup gives the time of 1 processor, and 3 cores are bound"]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"instances": 17}, "17 instances are asked for, and 16 cores may be used"),
        ({"instances": 3, "cores": 6}, "3 x 6 cores are asked for, and 16 cores may be used"),
        ({"cores": 17}, "1 x 17 cores are asked for, and 16 cores may be used"),
        ({"node": 2}, "there is no memory node 2 here"),
        ({"processors": (0, 40, 41)}, "this process may not use processor 40-41"),
        ({"processors": (1, 1)}, "the list of cores names one twice, or none"),
        ({"processors": (1,), "node": 0}, "give a list of cores or a node, not both"),
        ({"instances": 2, "rank": 2}, "there is no instance 2: the instances are 0 to 1"),
        ({"instances": 0}, "the instances must be 1 or more, not 0"),
        ({"cores": 0}, "the cores of an instance must be 1 or more, not 0"),
        ({"rank": -2}, "the rank must be 0 or more, not -2"),
        ({"part": (0, 9), "instances": 2}, "8 cores cannot be divided among 9 local ranks"),
        (
            {"cores": 9, "skip_cross_node": True},
            "1 x 9 cores are asked for, and the nodes hold 0 instances of 9 cores each",
        ),
        (
            {"instances": 5, "cores": 3, "skip_cross_node": True},
            "5 x 3 cores are asked for, and the nodes hold 4 instances of 3 cores each",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(xeon, request_, message):
    with pytest.raises(InvalidArgumentError) as caught:
        arrange(xeon, Request(**request_), 999)
    assert caught.value.message == message


def test_a_node_without_usable_processors_is_refused(machine):
    found = machine({0: cores(0, 2), 1: cores(2, 2)}, allowed=[0, 1])
    with pytest.raises(InvalidArgumentError) as caught:
        arrange(found, Request(node=1), 999)
    assert caught.value.message == "this process may use no processor of node 1"
    assert caught.value.notes == ("it may use 0-1",)


def test_lists_in_words():
    assert listed("0, 1, 2") == (0, 1, 2)
    assert listed("3-5,1") == (3, 4, 5, 1)
    assert listed(None) is None
    with pytest.raises(InvalidArgumentError, match='"0; 1" is not a list of cores'):
        listed("0; 1")
