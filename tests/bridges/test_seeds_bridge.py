"""The `[seed]` table: where generators start, and that they go back."""

from __future__ import annotations

import json
import os
import random
import sys
from types import ModuleType

import numpy as np
import pytest

from backendcfg.bridges import entropy, generators, lineage, seeds
from backendcfg.registry import base
from backendcfg.schema.profile import defaults

ALL = {**defaults(), "seed.value": 7}


@pytest.fixture(name="run")
def run_fixture(lines):
    return lines


@pytest.fixture(autouse=True)
def _generators_as_before():
    state = random.getstate()
    yield
    generators._seeded.clear()
    lineage.become(())
    random.setstate(state)


def wanted(values, asked):
    return {one.switch.name: one.wanted for one in seeds.settings(values, asked)}


def test_nothing_is_seeded_unless_somebody_asks():
    assert {} == wanted(ALL, [])
    assert {} == wanted({**ALL, "seed.value": "off"}, ["seed.value"])
    assert "off" == defaults()["seed.value"]


def test_each_library_can_be_left_out():
    assert 7 == wanted(ALL, ["seed.value"])["random.seed"]
    assert "random.seed" not in wanted({**ALL, "seed.python": False}, ["seed.value", "seed.python"])


def test_child_processes_get_seeds_of_their_own_that_are_always_the_same():
    # printf 7/1 | sha1sum | cut -c1-8
    found = [lineage.derived(7, identity) for identity in ((), (1,), (2,), (1, 1), (12,))]
    assert [7, 3480938489, 985944777, 3124953839, 4050632623] == found
    lineage.become((2,))
    assert 985944777 == wanted(ALL, ["seed.value"])["random.seed"]


def test_python_s_generator_is_seeded_remembered_and_put_back():
    switch = generators.Python()
    before = switch.read()
    assert before.startswith("unseeded, state ")
    expected = random.Random(before.state[1][0])
    expected.setstate(random.getstate())
    switch.write(7)
    assert 7 == switch.read()
    assert random.Random(7).random() == random.random()
    half_way = switch.read()
    assert 7 == half_way  # drawing is no change of the seed
    switch.write(9)
    assert 9 == switch.read()
    switch.write(half_way)
    follows = random.Random(7)
    follows.random()
    assert (7, follows.random()) == (switch.read(), random.random())
    switch.write(before)
    assert before == switch.read()
    assert expected.random() == random.random()


def test_what_was_read_is_plain_in_reports():
    switch = generators.Python()
    before = switch.read()
    switch.write(7)
    outcome = base.Setting(switch, 7, "seed.value")
    from copy import deepcopy

    assert [str, int] == [type(deepcopy(before)), type(deepcopy(switch.read()))]
    assert "7" == json.dumps(switch.read())
    assert outcome.wanted == switch.read()


def test_a_generator_that_does_not_follow_its_seed_is_a_failure(monkeypatch):
    monkeypatch.setattr(random, "seed", lambda seed: None)
    with pytest.raises(RuntimeError, match=r"^random\.seed: its state is not that of a generator"):
        generators.Python().write(7)


def test_children_of_os_fork_draw_other_numbers_of_python_and_the_same_in_every_run(run):
    code = """
import json, os, backendcfg
backendcfg.apply(settings={"seed.value": 7})
import random
def forked(draws):
    reading, writing = os.pipe()
    if os.fork() == 0:
        drawn = [random.random()]
        if draws:
            drawn += forked(draws - 1)
        state = next(r.state for r in backendcfg.verify().readings if r.switch == "random.seed")
        os.write(writing, json.dumps([*drawn, state]).encode())
        os._exit(0)
    os.wait()
    return json.loads(os.read(reading, 9999))
print(json.dumps([random.random(), *forked(1), *forked(0), random.random()]))
"""
    one, other = run(code)[0], run(code)[0]
    assert one == other
    numbers = [value for value in one if value != "ok"]
    assert (len(one) - len(numbers), len(set(numbers))) == (3, 5)


def test_a_forked_child_without_a_seed_of_ours_has_python_s_own():
    generators.Python().write(generators.Python().read())
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(generators.Python().read()).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        assert file.read().startswith(b"unseeded, state ")
    assert 0 == os.waitpid(child, 0)[1]


def test_every_library_is_seeded_when_it_comes_and_once(run):
    once, again, other = (
        run(
            """
            import json, sys, backendcfg
            assert not {"random", "numpy", "numpy.random"} & set(sys.modules)
            backendcfg.apply(settings={"seed.value": int(sys.argv[1]) if sys.argv[1:] else SEED})
            import random
            drawn = [random.random()]
            import numpy
            drawn += [random.random(), numpy.random.rand()]
            backendcfg.reload()
            import numpy.linalg
            backendcfg.apply(settings={"seed.value": SEED, "log.level": "error"})
            print(json.dumps(drawn + [random.random(), numpy.random.rand()]))
            print(json.dumps([backendcfg.verify().ok, sorted(
                [r.switch, r.found, r.state] for r in backendcfg.verify().readings
                if r.flag == "seed.value")]))
            """.replace("SEED", seed)
        )
        for seed in ("7", "7", "8")
    )
    assert once == again
    assert not set(once[0]) & set(other[0])
    follows = random.Random(7)
    assert [follows.random() for _ in range(3)] == [once[0][0], once[0][1], once[0][3]]
    names = ["numpy.random.default_rng", "numpy.random.seed", "random.Random", "random.seed"]
    seeded = [[name, 7, "ok"] for name in names]
    assert [True, seeded] == once[1]


def test_undo_puts_every_generator_back_into_the_state_that_it_had(run):
    [[before, after, reports]] = run(
        """
        import json, random, numpy, backendcfg
        random.seed(1), numpy.random.seed(2)
        expected = random.Random(1).random(), numpy.random.RandomState(2).rand()
        report = backendcfg.apply(settings={"seed.value": 7})
        random.random(), numpy.random.rand(), numpy.random.standard_normal()
        json.dumps(report.to_dict())
        backendcfg.undo()
        found = [o.state for o in report.outcomes if o.flag == "seed.value"]
        print(json.dumps([expected, [random.random(), numpy.random.rand()], found]))
        """
    )
    assert (before, ["set"] * 4) == (after, reports)


def test_a_failed_apply_leaves_the_generators_as_they_were(run):
    [[found, expected]] = run(
        """
        import json, random, numpy, numpy.random, backendcfg
        from backendcfg.bridges import generators
        random.seed(1)
        backendcfg.apply(settings={"seed.value": 3})
        follows = random.Random(3)
        first = random.random(), follows.random()
        def refuse(self, seed): raise OSError("no")
        generators.NumPy.start = refuse
        try:
            backendcfg.apply(settings={"seed.value": 7})
        except backendcfg.errors.RolledBackError:
            print(json.dumps([random.random(), follows.random()]))
        """
    )
    assert expected == found


@pytest.mark.exhaustive
def test_another_bit_generator_takes_no_seed_and_does_not_fail_the_apply(run):
    [[state, because]] = run(
        """
        import json, numpy.random, backendcfg
        numpy.random.set_bit_generator(numpy.random.PCG64(1))
        report = backendcfg.apply(settings={"seed.value": 7})
        [one] = [o for o in report.outcomes if o.switch == "numpy.random.seed"]
        print(json.dumps([one.state, one.because]))
        """
    )
    assert ("unsupported", "the program put a PCG64 there, which takes no seed") == (state, because)


@pytest.mark.torch
def test_pytorch_says_what_it_was_seeded_with(run):
    found = run(
        """
        import json, backendcfg
        backendcfg.apply(settings={"seed.value": 7})
        import torch
        def reading():
            [one] = [r for r in backendcfg.verify().readings if r.switch == "torch.manual_seed"]
            return [one.found, one.state, one.because]
        drawn = float(torch.rand(1))
        print(json.dumps([reading(), drawn, float(torch.manual_seed(7) and torch.rand(1))]))
        torch.manual_seed(42)
        print(json.dumps(reading()))
        backendcfg.undo()
        torch.manual_seed(5)
        torch.rand(3)
        expected = torch.get_rng_state()
        backendcfg.apply(settings={"seed.value": 7})
        torch.rand(3)
        backendcfg.undo()
        print(json.dumps([torch.initial_seed(), bool((torch.get_rng_state() == expected).all())]))
        """
    )
    assert [7, "ok", ""] == found[0][0]
    assert found[0][1] == found[0][2]
    assert [42, "differs", "the program seeded it itself, after the profile did"] == found[1]
    assert [5, True] == found[2]


@pytest.mark.tensorflow
def test_tensorflow_says_what_it_was_seeded_with(run):
    found = run(
        """
        import json, backendcfg
        backendcfg.apply(settings={"seed.value": 7})
        import tensorflow as tf
        def reading():
            [one] = [r for r in backendcfg.verify().readings if r.switch == "tensorflow.random.seed"]
            return [one.found, one.state]
        drawn = float(tf.random.uniform(()))
        tf.random.set_seed(7)
        print(json.dumps([reading(), drawn, float(tf.random.uniform(()))]))
        tf.random.set_seed(42)
        print(json.dumps(reading()))
        backendcfg.undo()
        tf.random.set_seed(5)
        tf.random.uniform(())
        backendcfg.apply(settings={"seed.value": 7})
        tf.random.uniform(())
        backendcfg.undo()
        after = float(tf.random.uniform(()))
        tf.random.set_seed(5)
        tf.random.uniform(())
        print(json.dumps([after, float(tf.random.uniform(()))]))
        """,
        TF_CPP_MIN_LOG_LEVEL="3",
    )
    assert [[7, "ok"], *found[0][1:2] * 2] == found[0]
    assert [42, "differs"] == found[1]
    assert found[2][0] == found[2][1]


@pytest.mark.jax
def test_jax_has_no_generator_to_seed_and_takes_the_flag_as_a_key(run):
    found = run(
        """
        import json, backendcfg
        backendcfg.apply(settings={"seed.value": 7})
        import jax
        key = jax.random.key(backendcfg.flags["seed.value"])
        drawn = [float(jax.random.uniform(key)), float(jax.random.uniform(jax.random.key(7)))]
        print(json.dumps([drawn, [r.switch for r in backendcfg.verify().readings
                                  if r.flag == "seed.value" and "jax" in r.switch]]))
        """
    )
    assert [[found[0][0][0]] * 2, []] == found[0]


FORKS = """
    import os, json
    from multiprocessing import Pool
    import backendcfg
    backendcfg.apply(settings={{"seed.value": 0}})
    {before}
    def in_task(_):
        return random.random()
    def draw(name):
        import random, numpy as np
        found = [np.random.default_rng().random(), random.random()]
        found += [np.random.rand()] * {after}
        globals()["random"] = random
        with Pool(1) as pool:
            found += pool.map(in_task, [0])
        print(json.dumps([name, found]), flush=True)
    for name in ("first", "second"):
        if not (child := os.fork()):
            if name == "second" and not (grandchild := os.fork()):
                draw("of second")
                os._exit(0)
            name == "second" and os.waitpid(grandchild, 0)
            draw(name)
            os._exit(0)
        os.waitpid(child, 0)
    draw("parent")
"""


@pytest.mark.slow
def test_forked_children_draw_apart_although_they_import_first(run):
    """As workers of PySpark and of servers do; a second run draws the same."""
    program = FORKS.format(before="", after=1)
    lines = sorted(run(program))
    assert lines == sorted(run(program))
    drawn = [number for _, found in lines for number in found]
    assert len(set(drawn)) == len(drawn) == 16
    imported = dict(run(FORKS.format(before="import random, numpy as np; np.random", after=0)))
    assert imported == {name: [*found[:2], found[-1]] for name, found in lines}


@pytest.mark.exhaustive
def test_numba_s_generators_are_seeded_in_each_thread_and_task_and_put_back(run):
    pytest.importorskip("numba")
    drawn, threads, tasks, checked = run(
        """
        import json, multiprocessing, threading, backendcfg
        backendcfg.apply(settings={"seed.value": 7})
        import numba, numpy, random
        from numba import _helperlib
        pointers = _helperlib.rnd_get_py_state_ptr(), _helperlib.rnd_get_np_state_ptr()
        @numba.njit
        def both():
            return random.random(), numpy.random.random()
        def draw(_=None):
            return both()
        print(json.dumps([draw(), draw()]))
        found = []
        for name in ("one", "other", "one"):
            thread = threading.Thread(target=lambda: found.append(draw()), name=name)
            thread.start()
            thread.join()
        print(json.dumps(found))
        with multiprocessing.get_context("fork").Pool(1) as pool:
            print(json.dumps(pool.map(draw, range(2))))
        [reading] = [one for one in backendcfg.verify().readings if "numba" in one.switch]
        backendcfg.undo()
        _helperlib.rnd_seed(pointers[0], 5), draw()
        before = [_helperlib.rnd_get_state(pointer) for pointer in pointers]
        backendcfg.apply(settings={"seed.value": 8})
        drawn = draw()
        backendcfg.undo()
        after = [_helperlib.rnd_get_state(pointer) for pointer in pointers]
        print(json.dumps([reading.switch, reading.found, reading.state, drawn, before == after]))
        """
    )

    def expected(*path, count=1, seed=7):
        stream = np.random.RandomState(lineage.derived(seed, path))
        return [[number, number] for number in stream.rand(count)]

    assert expected(count=2) == drawn
    names = ("one", 1), ("other", 1), ("one", 2)
    assert [expected("thread", *name)[0] for name in names] == threads
    assert [expected("pool", 1, 0, at)[0] for at in (0, 1)] == tasks
    assert ["numba.random.seed", 7, "ok", expected(seed=8)[0], True] == checked


def test_a_numba_that_has_its_generators_elsewhere_is_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba._helperlib", ModuleType("_helperlib"))
    because = "this release of Numba has its generators elsewhere"
    assert generators.Numba().unsupported() == because


def test_names_of_threads_are_not_counted_for_ever(monkeypatch):
    monkeypatch.setattr(lineage, "MOST_NAMES", 3)
    lineage.become(())
    assert ("pool", 1) == lineage.group("pool")
    assert [("thread", name, 1) for name in "abc"] == [lineage.thread(name) for name in "abc"]
    assert ("pool", 2) == lineage.group("pool")


UNSEEDED = """
import json, os, backendcfg
backendcfg.apply(settings={"seed.value": 7})
import random, numpy, scipy.sparse, scipy.sparse.linalg
class Mine(random.Random):
    def __init__(self): super().__init__()
def draw():
    rng = numpy.random
    drawn = [rng.default_rng().random(), rng.RandomState().rand(), rng.PCG64().random_raw()]
    return [*drawn, random.Random().random(), Mine().random()]
"""


@pytest.mark.exhaustive
def test_generators_without_a_seed_start_alike_in_every_run(run):
    code = (
        UNSEEDED
        + """
matrix = scipy.sparse.eye_array(50, format="csr") * 3
matrix[3, 4] = matrix[4, 3] = 1
found = [draw(), draw(), scipy.sparse.linalg.eigsh(matrix, k=2)[1].tobytes().hex()]
own = [numpy.random.default_rng(5).random(), random.Random(5).random()]
backendcfg.undo()
print(json.dumps([found, own, draw(), "backendcfg" in random.Random.seed.__module__]))
"""
    )
    (one, own, after, stays), (other, same, later, _) = run(code)[0], run(code)[0]
    assert (one, stays) == (other, False)
    assert own == same == [0.8050029237453802, random.Random(5).random()]
    values = [*one[0], *one[1], *after, *later]
    assert len(set(values)) == len(values)


def test_a_fork_draws_other_numbers_than_its_parent_and_the_same_in_every_run(run):
    code = (
        UNSEEDED
        + """
def forked():
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, json.dumps(draw()).encode())
        os._exit(0)
    os.wait()
    return json.loads(os.read(reading, 9999))
print(json.dumps([draw(), forked(), forked(), draw()]))
"""
    )
    one, other = run(code)[0], run(code)[0]
    assert one == other
    values = [value for drawn in one for value in drawn]
    assert len(set(values)) == len(values)


@pytest.mark.slow
def test_security_s_randomness_is_never_touched(run):
    code = """
import json, os, backendcfg
backendcfg.apply("reproducible")
import random, secrets, tempfile, uuid, numpy.random
assert backendcfg.flags["seed.value"] == 0
drawn = [
    secrets.token_hex(16), secrets.randbits(128), random.SystemRandom().getrandbits(128),
    os.urandom(16).hex(), str(uuid.uuid4()), next(tempfile._get_candidate_names()),
]
print(json.dumps(drawn))
"""
    one, other = run(code)[0], run(code)[0]
    assert [first == second for first, second in zip(one, other, strict=True)] == [False] * 6


def test_a_numpy_that_takes_its_entropy_otherwise_is_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy.random.bit_generator", ModuleType("bit_generator"))
    because = "this release of `numpy.random` takes entropy in another way"
    assert entropy.EntropyOfNumPy().unsupported() == because
