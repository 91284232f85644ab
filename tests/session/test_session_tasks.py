"""Draws in the tasks of pools follow from the task's number, whichever worker takes it."""

from __future__ import annotations

import random
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest

from backendcfg.bridges import lineage
from backendcfg.bridges.entropy import SeededBits
from backendcfg.session import tasks
from backendcfg.transact.compiled import Compiled

LOOK = """
import json, multiprocessing, os, random, sys, time
import numpy
def draw(item=None):
    # So that the workers take the tasks in another order in each run.
    time.sleep(random.SystemRandom().random() / 200)
    return [random.random(), numpy.random.rand(), numpy.random.default_rng().random()]
"""

SEEDED = "backendcfg.apply(settings={'seed.value': 7})\n"


@pytest.fixture(name="run")
def run_fixture(lines):
    """Run a program that spawned workers can import, and give the lines that it printed."""

    def run(program, *, look="", seeded=SEEDED):
        body = textwrap.indent(seeded + textwrap.dedent(program), "    ")
        return lines(
            f'{LOOK}{textwrap.dedent(look)}\nif __name__ == "__main__":\n    import backendcfg\n{body}',
            PYTHONWARNINGS="ignore",
        )

    return run


def numbers(found):
    return [number for task in found for number in task]


def expected(*number, pool=1, kind="pool"):
    """What `draw` gives in a task of a pool of a process that has seed 7."""
    seed = lineage.derived(7, (kind, pool, *number))
    state = np.random.RandomState(seed)
    bits = SeededBits("numpy.random.default_rng", 7)
    bits.start(seed)
    generator = np.random.default_rng(bits(128))
    return [random.Random(seed).random(), state.rand(), generator.random()]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_each_task_draws_by_its_number_in_the_pool_whatever_the_chunks(run, method):
    program = """
    from concurrent.futures import ProcessPoolExecutor
    context = multiprocessing.get_context({method!r})
    with context.Pool(2) as pool:
        print(json.dumps([
            pool.map(draw, range(4)), pool.map(draw, range(4), chunksize=3),
            pool.starmap(draw, [(0,)] * 3, 2), list(pool.imap(draw, range(3))),
            list(pool.imap(draw, range(3), chunksize=2)),
            pool.apply_async(draw).get(), pool.apply(draw),
        ]))
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        print(json.dumps([*pool.map(draw, range(3)), *pool.map(draw, range(3), chunksize=2)]))
    """
    pool, executor = run(program.format(method=method))
    items = [[expected(job, at) for at in range(n)] for job, n in enumerate((4, 4, 3, 3, 3))]
    assert [*items, expected(5, 0), expected(6, 0)] == pool
    chunks = [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (4, 0)]
    assert [expected(*number, pool=2) for number in chunks] == executor
    drawn = numbers([*numbers(pool[:5]), *pool[5:], *executor])
    assert len(drawn) == len(set(drawn))


def test_workers_that_end_and_tasks_that_fail_change_nothing(run):
    look = """
    def fail_sometimes(item):
        if item % 2:
            random.seed(item), numpy.random.seed(item)
            raise ValueError(item)
        return draw()
    """
    program = """
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        asked = [pool.apply_async(fail_sometimes, (item,)) for item in range(4)]
        [one.wait() for one in asked]
        print(json.dumps([one.get() for one in asked if one.successful()]))
    """
    [found] = run(program, look=look)
    assert [expected(at, 0) for at in (0, 2)] == found


@pytest.mark.exhaustive
def test_what_a_task_starts_itself_follows_from_the_task(run):
    look = """
    from concurrent.futures import ProcessPoolExecutor
    def answer(queue):
        queue.put(draw())
    def nested(item):
        queue = multiprocessing.SimpleQueue()
        found = []
        for _ in range(item % 2 + 1):
            process = multiprocessing.Process(target=answer, args=(queue,))
            process.start()
            found.append(queue.get())
            process.join()
        with ProcessPoolExecutor(2) as pool:
            return [*found, *pool.map(draw, range(2)), draw()]
    """
    [once, again] = run(
        """
        from backendcfg.bridges import lineage
        for _ in range(2):
            with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
                print(json.dumps([number for found in pool.map(nested, range(3))
                                  for drawn in found for number in drawn]))
            lineage.become(())
        """,
        look=look,
    )
    assert once == again
    assert len(once) == len(set(once)) == 3 * (4 + 5 + 4)


def test_a_seed_that_an_initializer_sets_is_the_worker_s_and_one_in_a_task_the_task_s(run):
    look = """
    def begin():
        draw()
        random.seed(5)
    def own(item):
        if item == 1:
            numpy.random.seed(item)
        return [random.random(), *(numpy.random.rand(2))]
    """
    [[found]] = run(
        """
        with multiprocessing.get_context("fork").Pool(1, begin) as pool:
            print(json.dumps([pool.map(own, range(3))]))
        """,
        look=look,
    )
    stream = random.Random(5)
    seeds = lineage.derived(7, ("pool", 1, 0, 0)), 1, lineage.derived(7, ("pool", 1, 0, 2))
    drawn = [np.random.RandomState(seed).rand(2).tolist() for seed in seeds]
    assert [[stream.random(), *each] for each in drawn] == found


@pytest.mark.exhaustive
def test_tasks_follow_from_a_seed_that_the_program_gave_the_process_that_makes_the_pool(run):
    program = """
    for seed in (None, 1, 2):
        if seed:
            numpy.random.seed(seed)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(json.dumps(pool.map(draw, range(2))))
        lineage.become(())
    """
    look = "from backendcfg.bridges import lineage"
    ours, one, two = run(program, look=look)
    assert [expected(0, 0), expected(0, 1)] == ours
    assert len({*numbers(ours), *numbers(one), *numbers(two)}) == 3 * 6
    assert [ours, one, two] == run(program, look=look)


@pytest.mark.exhaustive
def test_drawing_many_numbers_is_no_seed_of_the_program_s(run):
    found = run(
        """
        numpy.random.rand(10_000), [random.random() for _ in range(10_000)]
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(json.dumps(pool.map(draw, range(2))))
        """
    )
    assert [expected(0, 0), expected(0, 1)] == found[0]


def test_verify_and_reload_in_a_task_see_the_seed_of_the_process(run):
    look = """
    def look(item):
        import backendcfg
        begins = draw()
        backendcfg.reload()
        found = backendcfg.verify()
        return [begins, draw(), found.ok, len({one.found for one in found.readings
                                               if one.flag == "seed.value"})]
    """
    [[[first, second, ok, seeds]]] = run(
        """
        with multiprocessing.get_context("fork").Pool(1) as pool:
            print(json.dumps(pool.map(look, [0])))
        """,
        look=look,
    )
    generator = random.Random(lineage.derived(7, ("pool", 1, 0, 0)))
    assert [generator.random(), generator.random()] == [first[0], second[0]]
    assert (True, 1) == (ok, seeds)


def test_without_a_seed_pools_are_as_they_were(run):
    look = """
    def own(item):
        return random.random()
    """
    [found] = run(
        """
        backendcfg.apply("tf32-off", settings={"log.level": "error"})
        with multiprocessing.get_context("fork").Pool(1, random.seed, (3,)) as pool:
            print(json.dumps(pool.map(own, range(2))))
        """,
        look=look,
        seeded="",
    )
    stream = random.Random(3)
    assert [stream.random(), stream.random()] == found


@pytest.mark.exhaustive
def test_security_s_randomness_differs_between_tasks_and_runs(run):
    look = """
    import secrets, tempfile, uuid
    def secret(item):
        return [
            secrets.token_hex(16), secrets.randbits(128), random.SystemRandom().getrandbits(128),
            os.urandom(16).hex(), str(uuid.uuid4()), next(tempfile._get_candidate_names()),
        ]
    """
    program = """
    found = [secret(0)]
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            found += pool.map(secret, range(3))
    print(json.dumps(found))
    """
    reproducible = "backendcfg.apply('reproducible', settings={'log.level': 'error'})\n"
    one, other = (run(program, look=look, seeded=reproducible)[0] for _ in range(2))
    assert len({*numbers(one), *numbers(other)}) == 2 * 7 * 6


@pytest.mark.slow
def test_joblib_s_calls_draw_alike_in_every_run_however_they_are_batched(run):
    pytest.importorskip("joblib")
    look = """
    from joblib import Parallel, delayed
    def ask(count, **how):
        return Parallel(2, **how)(delayed(draw)(item) for item in range(count))
    """
    [found] = run(
        """
        print(json.dumps([
            ask(5), ask(5, batch_size=2), ask(4, backend="multiprocessing", batch_size=3)
        ]))
        """,
        look=look,
    )
    assert found == [
        [expected(at, pool=pool, kind="calls") for at in range(count)]
        for pool, count in ((1, 5), (2, 5), (3, 4))
    ]


@pytest.mark.exhaustive
def test_a_random_forest_is_scored_alike_in_every_run(run):
    pytest.importorskip("sklearn")
    once, again, other = run(
        """
        from backendcfg.bridges import lineage
        from sklearn.datasets import load_iris
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.model_selection import cross_val_score
        forest = RandomForestClassifier(n_estimators=2, max_depth=2)
        for number in range(3):
            if number < 2:
                lineage.become(())
            found = cross_val_score(forest, *load_iris(return_X_y=True), n_jobs=2, cv=7)
            print(json.dumps(found.tolist()))
        """
    )
    assert (once == again) > (once == other)


def test_a_queue_that_is_none_and_a_task_of_another_kind_are_left_alone():
    given = tasks.Tasks(7, ("pool", 1))
    process = SimpleNamespace(_args=("no queue",))
    given.govern(process)
    given.govern(SimpleNamespace())
    assert ("no queue",) == process._args
    assert [None, "end", (1, 2)] == [given.begun(task) for task in (None, "end", (1, 2))]


def test_only_plans_with_a_seed_govern_tasks():
    off, none = (
        Compiled("off", "none", {"seed.value": "off"}, ("seed.value",)),
        Compiled("n", "none", {}),
    )
    seeded = Compiled("seeded", "none", {"seed.value": 3}, ("seed.value",))
    found = [
        tasks.Tasks.of("pool", plans) for plans in ([], [none], [seeded, off], [off, seeded, none])
    ]
    assert [None, None, None, 3] == [each and each.seed for each in found]
