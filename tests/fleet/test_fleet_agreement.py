"""Whether ranks agree: in threads of one process, which tell each other through a board."""

from __future__ import annotations

import copy
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from backendcfg import errors
from backendcfg.fleet import agreement
from backendcfg.fleet.agreement import Agreement, Setting, compared

PARTS = {
    "switches": {
        "torch.num_threads": 4,
        "mkl[torch].local_threads": 0,
        "cublas_workspace_size": 4096,
    },
    "flags": {"threads.count": 4},
    "facts": {"torch.default_dtype": "float32", "torch.default_device": "cuda:1"},
    "variables": {"PYTHONHASHSEED": "0", "MKL_CBWR": "AUTO"},
    "libraries": {"libopenblas.so": "1-a"},
    "versions": {"numpy": "2.4.0"},
    "processor": {"name": "EPYC", "caches": ["32K"]},
    "devices": {},
}


class Board:
    """What all ranks of a group told."""

    def __init__(self, size):
        self.size, self.texts, self.changed = size, {}, threading.Condition()
        self.bytes = 0


class Rank:
    """One of the ranks of a board."""

    name = "all"

    def __init__(self, board, rank):
        self.board, self.rank, self.size = board, rank, board.size
        self.calls, self.names = count(), range(self.size)

    def tell(self, key, text):
        with self.board.changed:
            assert (key, self.rank) not in self.board.texts
            self.board.texts[key, self.rank] = text
            self.board.bytes += len(text)
            self.board.changed.notify_all()

    def ask(self, key, source, seconds):
        with self.board.changed:
            self.board.changed.wait_for(lambda: (key, source) in self.board.texts, seconds)
            return self.board.texts.get((key, source))

    def forget(self, key):
        with self.board.changed:
            del self.board.texts[key, self.rank]


def with_parts(changes):
    """The parts of a rank with some of them otherwise: `{"switches.torch.num_threads": 1}`."""
    parts = copy.deepcopy(PARTS)
    for name, value in changes.items():
        part, _, rest = name.partition(".")
        if value is None:
            parts[part].pop(rest, None)
        else:
            parts[part][rest] = value
    return parts


def outcomes(size, changes=None, *, absent=(), deadline=30.0):
    """What `compared` gives or raises in each rank, where some have other parts or are not there."""
    board = Board(size)
    changes = changes or {}
    ready = threading.Barrier(size - len(absent))

    def run(rank):
        ready.wait()
        host = f"node-{'ab'[rank >= size // 2]}"
        try:
            parts = with_parts(changes.get(rank, {}))
            return compared(Rank(board, rank), parts, host, deadline)
        except errors.BackendCfgError as error:
            return error

    ranks = [rank for rank in range(size) if rank not in absent]
    with ThreadPoolExecutor(size) as pool:
        return board, dict(zip(ranks, pool.map(run, ranks), strict=True))


def test_ranks_with_the_same_settings_agree():
    board, found = outcomes(4)
    assert set(found.values()) == {Agreement(4)}
    # A digest of each other rank, the answer of the first, and that it was read.
    assert len(board.texts) == 3 + 1 + 3


def test_one_rank_agrees_with_itself():
    _, found = outcomes(1)
    assert found == {0: Agreement(1)}


def test_where_there_is_one_rank_no_token_is_made(monkeypatch):
    monkeypatch.setattr(agreement, "group_of", lambda given=None, engine="": Rank(Board(1), 0))
    monkeypatch.setattr(agreement, "numerics_token", None)
    assert agreement.agree() == Agreement(1)


def test_every_rank_refuses_with_the_same_words_where_one_setting_differs():
    odd = {"switches.torch.num_threads": 1}
    _, found = outcomes(16, {3: odd, 9: odd})
    assert {str(one) for one in found.values()} == {
        "2 of 16 ranks compute otherwise than the other 14"
    }
    for one in found.values():
        assert isinstance(one, errors.FleetDisagreesError)
        assert list(one.notes) == [
            "torch.num_threads: 4 on 14 ranks, 1 on ranks 3, 9 (node-a, node-b)"
        ]
        assert one.state == "every rank refuses"
    assert len({id(one) for one in found.values()}) == 16


NO_DIFFERENCE = {
    "a library that was imported later": {
        "libraries.libscipy.so": "1-b",
        "versions.scipy": "1.17",
        "switches.openblas[scipy].threads": 4,
    },
    "devices of its own": {"variables.CUDA_VISIBLE_DEVICES": "1"},
    "a number of threads of its own": {"switches.mkl[torch].local_threads": 2},
    "processors of its own": {"variables.OMP_PLACES": "{4}"},
    "devices of JAX of its own": {
        "variables.JAX_LOCAL_DEVICE_IDS": "1",
        "facts.jax.config.jax_cuda_visible_devices": "1",
    },
    "the device that it computes on": {"facts.torch.default_device": "cuda:2"},
    "a switch that cannot be read yet": {"switches.cublas_workspace_size": "unreadable"},
    "a variable that a launcher changed after its start": {
        "variables.MKL_CBWR": ["COMPATIBLE", "AUTO"]
    },
}


@pytest.mark.parametrize("changes", NO_DIFFERENCE.values(), ids=NO_DIFFERENCE)
def test_what_ranks_have_otherwise_by_right_is_no_difference(changes):
    _, found = outcomes(4, {2: changes})
    assert set(found.values()) == {Agreement(4)}


DIFFERENCES = {
    "switches.torch.num_threads": (
        1,
        "torch.num_threads: 4 on ranks 0, 1, 3, 1 on rank 2 (node-b)",
    ),
    "facts.torch.default_dtype": (
        "float64",
        'facts.torch.default_dtype: "float32" on ranks 0, 1, 3, "float64" on rank 2 (node-b)',
    ),
    "variables.PYTHONHASHSEED": (
        ["7", "0"],
        'variables.PYTHONHASHSEED: "0" on ranks 0, 1, 3, "7" on rank 2 (node-b)',
    ),
    "libraries.libopenblas.so": (
        "1-b",
        'libraries.libopenblas.so: "1-a" on ranks 0, 1, 3, "1-b" on rank 2 (node-b)',
    ),
    "variables.NVIDIA_TF32_OVERRIDE": (
        "1",
        'variables.NVIDIA_TF32_OVERRIDE: unset on ranks 0, 1, 3, "1" on rank 2 (node-b)',
    ),
    "flags.cudnn.benchmark": (
        True,
        "flags.cudnn.benchmark: unset on ranks 0, 1, 3, true on rank 2 (node-b)",
    ),
    "versions.numpy": (
        "2.3.0",
        'versions.numpy: "2.4.0" on ranks 0, 1, 3, "2.3.0" on rank 2 (node-b)',
    ),
    "flags.threads.count": (2, "flags.threads.count: 4 on ranks 0, 1, 3, 2 on rank 2 (node-b)"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_each_part_that_is_a_setting_counts(name):
    value, note = DIFFERENCES[name]
    _, found = outcomes(4, {2: {name: value}})
    assert [one.notes for one in found.values()] == [(note,)] * 4


def test_hosts_that_are_not_alike_are_told_and_are_no_disagreement():
    _, found = outcomes(4, {2: {"processor.name": "Xeon"}, 3: {"processor.name": "Xeon"}})
    unlike = Setting("host.name", (("EPYC", (0, 1)), ("Xeon", (2, 3))), ("node-b",))
    assert {one.size for one in found.values()} == {4}
    assert [[each.values for each in one.unlike] for one in found.values()] == [[unlike.values]] * 4
    assert [each.name for each in found[1].unlike] == ["processor.name"]
    _, found = outcomes(4, {2: {"processor.name": "Xeon"}, 1: {"switches.torch.num_threads": 1}})
    assert list(found[3].notes) == [
        "torch.num_threads: 4 on ranks 0, 2, 3, 1 on rank 1 (node-a)",
        'their hosts are not alike: processor.name: "EPYC" on ranks 0, 1, 3, "Xeon" on rank 2 (node-b)',
    ]


def test_ranks_that_are_not_there_are_named_by_those_that_are():
    begin = time.monotonic()
    _, found = outcomes(6, absent=(2, 5), deadline=1.0)
    assert time.monotonic() - begin < 20
    for one in found.values():
        assert isinstance(one, errors.FleetTimeoutError)
        assert str(one) == "ranks 2, 5 did not answer in time"


def test_without_the_first_rank_the_others_say_so(monkeypatch):
    monkeypatch.setattr(agreement, "GRACE", 0.1)
    _, found = outcomes(3, absent=(0,), deadline=0.1)
    assert [str(one) for one in found.values()] == ["rank 0 did not answer in time"] * 2


def test_many_kinds_are_asked_until_one_is_found_that_differs(monkeypatch):
    monkeypatch.setattr(agreement, "MOST_ASKED", 2)
    later = {rank: {f"versions.package{rank}": "1"} for rank in range(1, 9)}
    _, found = outcomes(9, later)
    assert set(found.values()) == {Agreement(9)}
    later[8] |= {"versions.numpy": "1.26.0"}
    _, found = outcomes(9, later)
    assert list(found[4].notes) == [
        'versions.numpy: "2.4.0" on 8 ranks, "1.26.0" on rank 8 (node-b)'
    ]


def test_a_rank_that_gave_up_before_the_first_began_is_named_by_it(monkeypatch):
    board, gave_up = Board(3), threading.Event()
    monkeypatch.setattr(agreement, "GRACE", 0.5)

    def run(rank):
        try:
            if rank == 1:
                return compared(Rank(board, rank), PARTS, "node-a", 0.1)
            gave_up.wait()
            return compared(Rank(board, rank), PARTS, "node-a", 1.0)
        except errors.FleetTimeoutError as error:
            return str(error)
        finally:
            gave_up.set()

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run, range(3))) == [
            "rank 1 did not answer in time",
            "rank 0 did not answer in time",
            "rank 1 did not answer in time",
        ]


def test_a_rank_that_ends_before_it_tells_its_settings_is_named(monkeypatch):
    monkeypatch.setattr(agreement, "GRACE", 0.5)

    class Ending(Rank):
        def tell(self, key, text):
            if not key.endswith("/settings"):
                super().tell(key, text)

    board = Board(4)

    def run(rank):
        kind = Ending if rank in (2, 3) else Rank
        parts = with_parts({"versions.numpy": f"2.{rank}.0"})
        try:
            return compared(kind(board, rank), parts, "node-a", 5.0)
        except errors.FleetTimeoutError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(run, range(4))) == {"ranks 2, 3 did not answer in time"}


def test_where_all_are_odd_in_something_none_is_called_the_odd_one():
    odd = {rank: {f"versions.package{rank}": "2"} for rank in range(3)}
    plain = {f"versions.package{rank}": "1" for rank in range(3)}
    _, found = outcomes(3, {rank: plain | one for rank, one in odd.items()})
    assert str(found[0]) == "3 ranks do not compute alike"
    _, found = outcomes(40, {rank: {"switches.torch.num_threads": rank} for rank in range(40)})
    assert str(found[0]) == "40 ranks do not compute alike"
    (note,) = found[0].notes
    assert note.startswith("torch.num_threads: 0 on rank 0, 1 on rank 1, 2 on rank 2")
    assert note.endswith("8 on rank 8, and 24 more values (node-a, node-b)")


def test_of_many_settings_and_ranks_the_first_are_named():
    odd = {f"versions.package{number}": "2" for number in range(10)}
    plain = dict.fromkeys(odd, "1")
    changes = {rank: odd if rank % 2 else plain for rank in range(20)}
    _, found = outcomes(20, changes)
    assert str(found[0]) == "20 ranks do not compute alike"
    assert len(found[0].notes) == 9
    assert found[0].notes[0] == (
        'versions.package0: "1" on 10 ranks, "2" on ranks 1, 3, 5, 7, 9, 11, 13, 15 and 2 more'
        " (node-a, node-b)"
    )
    assert found[0].notes[-1] == "and 2 more settings"


class Told(Rank):
    """Rank 0 where all others have told what it asks them for."""

    def __init__(self, size, parts_of):
        super().__init__(Board(size), 0)
        self.parts_of, self.asked, self.read = parts_of, [], 0

    def ask(self, key, source, seconds):
        if key.endswith("/read"):
            self.read += 1
            return ""
        answers = iter(["nonce", json.dumps({"ask": [1]}), "{}"])
        texts = {}
        other = Rank(Board(2), 1)
        other.tell = lambda key, text: texts.setdefault(key.rpartition("/")[2], text)
        other.ask = lambda *_: next(answers)
        compared(other, self.parts_of(source), f"node-{source // 8}", 60.0)
        what = key.rpartition("/")[2]
        if what == "settings":
            self.asked.append(source)
        return texts[what]


@pytest.mark.slow
def test_ten_thousand_ranks_exchange_digests_and_few_settings():
    odd = {17: {"versions.numpy": "2.3.0"}, 4242: {"versions.numpy": "2.3.0"}}
    xeon = {"processor.name": "Xeon"}
    ranks = Told(10_000, lambda rank: with_parts(odd.get(rank, xeon if rank % 8 == 7 else {})))
    with pytest.raises(errors.FleetDisagreesError) as raised:
        compared(ranks, PARTS, "node-0", 60.0)
    assert raised.value.notes == (
        'versions.numpy: "2.4.0" on 9998 ranks, "2.3.0" on ranks 17, 4242 (node-2, node-530)',
        (
            'their hosts are not alike: processor.name: "EPYC" on 8750 ranks,'
            ' "Xeon" on ranks 7, 15, 23, 31, 39, 47, 55, 63 and 1242 more'
            " (node-0, node-1, node-2, node-3, node-4, node-5, node-6, node-7)"
        ),
    )
    assert ranks.asked == [7, 17]
    assert ranks.read == 9999
    assert ranks.board.bytes < 200_000


def test_ranks_with_other_numbers_of_cores_are_told_what_makes_them_agree():
    differ = {"all asked": True, "host": []}
    names = ("flags.threads.count", "flags.threads.interop", "switches.torch.num_threads")
    differ["settings"] = [
        {"name": name, "values": [[2, [0]], [1, [1]]], "hosts": []} for name in names
    ]
    with pytest.raises(errors.FleetDisagreesError) as raised:
        agreement._concluded(differ, 2)
    assert raised.value.helps == (
        "give all ranks as many cores, or set `threads.count` to a number",
    )
    differ["settings"][0]["name"] = "flags.cudnn.benchmark"
    with pytest.raises(errors.FleetDisagreesError) as raised:
        agreement._concluded(differ, 2)
    assert raised.value.helps == (
        "start all under one profile: `backendcfg run reproducible -- LAUNCHER ...`",
    )
