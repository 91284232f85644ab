"""Child processes start under what is in force where they, or their pool, were made."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
import textwrap

import pytest

from backendcfg import __version__
from backendcfg.bridges.lineage import derived
from backendcfg.probe.limits import count_cores, read_limits
from backendcfg.session import children
from backendcfg.transact.compiled import Compiled

LOOK = """
import json, multiprocessing, os, subprocess, sys, threading
import backendcfg
def look(_=None):
    import numpy, threadpoolctl
    active = backendcfg.active()
    in_thread = []
    thread = threading.Thread(target=lambda: in_thread.append(backendcfg.active()))
    thread.start()
    thread.join()
    product = backendcfg.ops.matmul(numpy.ones((200, 3)), numpy.ones((3, 200)))
    return [
        active and active.name,
        threadpoolctl.threadpool_info()[0]["num_threads"],
        backendcfg.verify().ok and active == in_thread[0] and bool((product == 3).all()),
    ]
def answer(queue):
    queue.put(look())
def child(context):
    queue = context.SimpleQueue()
    process = context.Process(target=answer, args=(queue,))
    process.start()
    found = queue.get()
    process.join()
    return found + [process.exitcode, "_backendcfg" in vars(process)]
"""


@pytest.fixture(name="script")
def script_fixture(tmp_path):
    """Run a script of its own, which spawned children can import, and give what it printed."""

    def run(program, *, fails=0, look=LOOK, **variables):
        profiles = tmp_path / "user" / "profiles"
        profiles.mkdir(parents=True, exist_ok=True)
        (profiles / "one.toml").write_text("threads.count = 1\n")
        (profiles / "two.toml").write_text("threads.count = 2\n")
        (profiles / "all.toml").write_text("threads.count = 'auto'\n")
        file = tmp_path / "script.py"
        body = textwrap.indent(textwrap.dedent(program), "    ")
        file.write_text(f'{look}\nif __name__ == "__main__":\n{body}')
        child = subprocess.run(
            [sys.executable, str(file)],
            cwd=tmp_path,
            env={**os.environ, "BACKENDCFG_CONFIG_DIR": str(tmp_path / "user"), **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert fails == child.returncode, child.stderr
        return child.stdout, child.stderr

    return run


def printed(done):
    return [json.loads(line) for line in done[0].splitlines()]


def test_every_start_method_hands_over_the_base_and_the_scope(script):
    found = printed(
        script(
            """
            for method in ("fork", "spawn", "forkserver"):
                context = multiprocessing.get_context(method)
                bare = child(context)
                with backendcfg.profile("one"):
                    print(json.dumps([bare, child(context)]))
            backendcfg.apply("one", settings={"log.level": "error"})
            for method in ("fork", "spawn", "forkserver"):
                context = multiprocessing.get_context(method)
                based = child(context)
                with backendcfg.profile("tf32-off"):
                    # Its scope leaves the thread count of the base alone.
                    print(json.dumps([based, child(context)]))
            print(json.dumps(look()))
            """
        )
    )
    bare, one, off = [None, 2, True, 0, False], ["one", 1, True, 0, False], "tf32-off"
    assert [[bare, one]] * 3 + [[one, [off, *one[1:]]]] * 3 == found[:6]
    assert ["one", 1, True] == found[6]


@pytest.mark.exhaustive
def test_a_pool_keeps_what_was_in_force_where_it_was_made(script):
    found = printed(
        script(
            """
            from concurrent.futures import ProcessPoolExecutor
            for method in ("fork", "spawn"):
                context = multiprocessing.get_context(method)
                with backendcfg.profile("one"):
                    pool = context.Pool(1, maxtasksperchild=1)
                    executor = ProcessPoolExecutor(1, mp_context=context)
                outside = ProcessPoolExecutor(1, mp_context=context)
                with executor, outside:
                    # The second and third are replacements, which a thread of the pool starts.
                    replaced = [pool.apply(look)[0] for _ in range(3)]
                    pool.terminate()
                    pool.join()
                    with backendcfg.profile("tf32-off"):
                        first = [executor.submit(look).result()[0], outside.submit(look).result()[0]]
                    print(json.dumps([replaced, first]))
            with backendcfg.profile("one"):
                threads = multiprocessing.pool.ThreadPool(1)
            print(json.dumps(threads.apply(look)[0]))
            threads.terminate()
            """
        )
    )
    assert [[["one"] * 3, ["one", None]]] * 2 + [None] == found


@pytest.mark.exhaustive
def test_joblib_s_workers_have_what_was_in_force_when_they_were_started(script):
    pytest.importorskip("joblib")
    found = printed(
        script(
            """
            from joblib import Parallel, delayed
            from joblib.externals.loky import get_reusable_executor
            def ask(**how):
                return [one[0] for one in Parallel(2, **how)(delayed(look)() for _ in range(2))]
            with backendcfg.profile("one"):
                print(json.dumps([ask(), ask(backend="multiprocessing"), ask(backend="threading")]))
            print(json.dumps(ask()))
            get_reusable_executor().shutdown()
            print(json.dumps(ask()))
            get_reusable_executor().shutdown()
            """
        )
    )
    # Threads start at the base; the executor is kept by joblib, and its workers keep their profile.
    assert [[["one"] * 2, ["one"] * 2, [None] * 2], ["one"] * 2, [None] * 2] == found


def test_joblib_s_workers_share_the_cores_as_joblib_says_also_in_scopes_of_their_own(script):
    pytest.importorskip("joblib")
    look = LOOK + textwrap.dedent(
        """
        def threads():
            with backendcfg.profile("two"):
                inside = look()
            with backendcfg.profile("all"):
                return [one[1] for one in (look(), inside, look())]
        """
    )
    program = """
    import joblib._parallel_backends
    from joblib import Parallel, delayed, parallel_config
    joblib._parallel_backends.cpu_count = lambda: 6
    def ask(jobs):
        return Parallel(jobs)(delayed(threads)() for _ in range(jobs))
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "4"
    backendcfg.apply("two")
    print(json.dumps([ask(6), ask(2)]))
    with parallel_config(backend="loky", inner_max_num_threads=1):
        print(json.dumps(ask(2)))
    """
    few, share, explicit = [1, 2, 1], [2, 2, len(os.sched_getaffinity(0))], [1, 2, 1]
    share[2] = min(share[2], 3)
    assert printed(script(program, look=look)) == [[[few] * 6, [share] * 2], [explicit] * 2]


def test_workers_of_a_pool_share_the_cores_unless_the_profile_gives_a_number(script):
    look = LOOK + textwrap.dedent(
        """
        COUNT = [sys.executable, "-c", "import backendcfg; print(backendcfg.flags['threads.count'])"]
        @backendcfg.profile("all")
        def decorated():
            return look()[1]
        def threads(_=None):
            with backendcfg.profile("all"):
                inside = look()
            its_own = subprocess.run(COUNT, capture_output=True, check=True)
            return look()[1:] + [inside[1], decorated(), int(its_own.stdout)]
        """
    )
    program = """
    from concurrent.futures import ProcessPoolExecutor
    backendcfg.apply("all")
    before = decorated()  # with all cores, also in what a fork takes along
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        for workers in (2, None, 1):
            with context.Pool(workers) as pool:
                found = [pool.apply(threads)]
            with ProcessPoolExecutor(workers, mp_context=context) as executor:
                found += executor.map(threads, range(2))
            print(json.dumps(found))
        with backendcfg.profile("two"), context.Pool(2) as pool:
            print(json.dumps(pool.apply(look)))
    print(json.dumps([*look(), before, decorated()]))
    """
    cores = min(count_cores(os.sched_getaffinity(0)), read_limits().usable)
    half, least = max(1, cores // 2), max(1, cores // os.cpu_count())
    of_each = [[[share, True, share, share, share]] * 3 for share in (half, least, cores)]
    assert printed(script(program, look=look)) == [
        *[*of_each, ["two", 2, True]] * 3,
        ["all", cores, True, cores, cores],
    ]


@pytest.mark.slow
def test_executors_of_joblib_s_own_loky_share_the_cores(script):
    pytest.importorskip("joblib")
    program = """
    from joblib.externals.loky import ProcessPoolExecutor, get_reusable_executor
    backendcfg.apply("all")
    with get_reusable_executor(max_workers=2) as one, ProcessPoolExecutor(2) as other:
        print(json.dumps([each[:2] for pool in (one, other) for each in pool.map(look, range(2))]))
    """
    half = max(1, min(count_cores(os.sched_getaffinity(0)), read_limits().usable) // 2)
    assert printed(script(program)) == [[["all", half]] * 4]


def test_a_number_of_threads_stays_in_workers_of_workers(script):
    program = """
    from concurrent.futures import ProcessPoolExecutor
    def nested(_=None):
        context = multiprocessing.get_context("fork")
        with backendcfg.profile("two"), context.Pool(2) as pool:
            return [look()[1], pool.apply(look)[1], child(context)[1]]
    backendcfg.apply("all")
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as executor:
        print(json.dumps(executor.submit(nested).result()))
    """
    assert printed(script(program)) == [[2, 2, 2]]


@pytest.mark.torch
def test_ranks_by_fork_start_processes_of_their_own_and_undo_gives_the_functions_back(script):
    look = """
import json, multiprocessing, os, backendcfg
def tell(*_):
    os.write(1, f"{json.dumps([one.name for one in backendcfg.session.installed.in_force().plans])}\\n".encode())
def rank(number):
    with backendcfg.profile("one"):
        process = multiprocessing.get_context("fork").Process(target=tell)
        process.start()
        process.join()
"""
    program = """
    import sys
    found = []
    def wrapped():
        modules = torch.multiprocessing, sys.modules["torch.multiprocessing.spawn"]
        found.append([hasattr(module.start_processes, "__wrapped__") for module in modules])
    backendcfg.apply("two")
    import torch.multiprocessing
    wrapped()
    backendcfg.undo()
    wrapped()
    backendcfg.apply("two")
    with backendcfg.profile("tf32-off"):
        torch.multiprocessing.start_processes(rank, nprocs=2, start_method="fork")
    print(json.dumps(found))
    """
    *of_ranks, wrapped = printed(script(program, look=look))
    assert of_ranks == [["two", "tf32-off", "one"]] * 2
    assert wrapped == [[True, True], [False, False]]


@pytest.mark.torch
def test_pytorch_s_workers_obey_and_differ_and_are_the_same_in_every_run(script):
    program = """
    import torch.multiprocessing
    from torch.utils.data import DataLoader
    backendcfg.apply("reproducible", settings={"threads.count": 2})
    torch.multiprocessing.start_processes(tell, nprocs=2, start_method="fork", join=True)
    torch.multiprocessing.spawn(tell, nprocs=1)
    for method in ("fork", "spawn"):
        loader = DataLoader(Numbers(), num_workers=2, multiprocessing_context=method)
        print(json.dumps([one.tolist()[0] for one in loader]), flush=True)
    """
    look = """
import json, os, random, backendcfg, numpy, torch
def tell(rank):
    deterministic = torch.are_deterministic_algorithms_enabled()
    drawn = [random.random(), numpy.random.rand(), float(torch.rand(1))]
    line = json.dumps([rank, deterministic, torch.get_num_threads(), *drawn])
    os.write(1, f"{line}\\n".encode())  # in one piece, as two processes write at once
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, at):
        drawn = [random.random(), numpy.random.rand(), float(torch.rand(1))]
        deterministic = torch.are_deterministic_algorithms_enabled()
        return torch.tensor([deterministic, torch.get_num_threads(), *drawn])
"""
    once, again = (printed(script(program, look=look)) for _ in range(2))
    assert sorted(once[:2]) + once[2:] == sorted(again[:2]) + again[2:]
    processes, loaders = [*sorted(once[:2]), once[2]], once[3:]
    assert [[0, True, 2], [1, True, 2], [0, True, 2]] == [one[:3] for one in processes]
    # PyTorch gives each worker of a DataLoader one thread, and seeds it; both stay so.
    assert [[1.0, 1.0]] * 4 == [one[:2] for loader in loaders for one in loader]
    drawn = [tuple(one[3:]) for one in processes] + [tuple(o[2:]) for one in loaders for o in one]
    for generator in zip(*drawn, strict=True):
        assert 7 == len(set(generator))


def test_seeds_differ_between_children_and_are_the_same_in_every_run(script):
    look = """
import json, multiprocessing, random, backendcfg
def draw(queue, itself=False):
    if itself:
        backendcfg.apply(settings={"seed.value": 7})
    queue.put(random.random())
"""
    program = """
    backendcfg.apply(settings={"seed.value": 7})
    found = []
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        for _ in range(2):
            process = context.Process(target=draw, args=(queue,))
            process.start()
            found.append(queue.get())
            process.join()
    backendcfg.undo()
    process = context.Process(target=draw, args=(queue, True))
    process.start()
    found.append(queue.get())
    process.join()
    print(json.dumps(found))
    """
    [once] = printed(script(program, look=look))
    assert [random.Random(derived(7, (n,))).random() for n in range(1, 8)] == once


@pytest.mark.slow
def test_a_program_gets_the_profile_of_the_process_and_no_scope(script):
    found = printed(
        script(
            """
            def program(**variables):
                done = subprocess.run(
                    [sys.executable, "-c", "import backendcfg as b; a = b.active(); "
                     "print(a and [a.name, a.source, b.flags['threads.count']])"],
                    env={**os.environ, **variables}, cwd="/", capture_output=True, text=True,
                )
                assert done.returncode == 0, done.stderr
                return done.stdout.strip()
            before = dict(os.environ)
            with backendcfg.profile("one"):
                print(json.dumps(program()))
            backendcfg.apply("one")
            with backendcfg.profile("tf32-off"):
                print(json.dumps(program()))
            backendcfg.apply("tf32-off", settings={"threads.count": 1})
            print(json.dumps([program(), program(BACKENDCFG_PROFILE="debug")]))
            backendcfg.undo()
            print(json.dumps([program(), program(BACKENDCFG_DISABLE="1")]))
            backendcfg.undo()
            print(json.dumps(before == dict(os.environ)))
            """
        )
    )
    one, off = "['one', 'the parent process', 1]", "['tf32-off', 'the parent process', 1]"
    assert ["None", one, [off, "['debug', 'BACKENDCFG_PROFILE', 1]"]] == found[:3]
    assert [[one, "None"], True] == found[3:]


def test_what_a_program_finds_by_itself_is_not_handed_over(script):
    found = printed(
        script(
            """
            print(json.dumps([backendcfg.active().name, "BACKENDCFG_INHERIT" in os.environ]))
            backendcfg.apply(settings={"threads.count": 2})
            over = json.loads(os.environ["BACKENDCFG_INHERIT"])
            print(json.dumps([over["over"], over["requests"][0]["name"]]))
            """,
            BACKENDCFG_PROFILE="one",
        )
    )
    assert [["one", False], ["one", "one"]] == found


@pytest.mark.slow
def test_a_program_of_a_worker_finds_what_one_of_the_main_process_finds(script, tmp_path):
    program = """
    for chosen in ("", "one"):
        if chosen:
            backendcfg.apply(chosen)
        found = []
        for method in ("fork", "spawn", "forkserver"):
            with multiprocessing.get_context(method).Pool(1) as pool:
                found.append(pool.apply(seen_by_program))
        print(json.dumps(found))
    """
    look = (
        LOOK
        + """
def seen_by_program():
    code = "import os, backendcfg; print(backendcfg.active().name, 'BACKENDCFG_INHERIT' in os.environ)"
    done = subprocess.run([sys.executable, "-c", code], cwd="sub", capture_output=True, text=True)
    return done.stdout + done.stderr
"""
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "backendcfg.toml").write_text('profile = "all"\n')
    (tmp_path / "sub" / "backendcfg.toml").write_text('profile = "two"\n')
    found = printed(script(program, look=look))
    assert found == [["two False\n"] * 3, ["one True\n"] * 3]


def test_a_wrong_value_in_the_variable_is_an_error(python):
    told = python("import backendcfg", fails=1, BACKENDCFG_INHERIT="{}")
    assert told.endswith(
        "InvalidValueError: BACKENDCFG_INHERIT does not hold what backendcfg puts there\n"
        "  state: nothing was changed\n"
        "  help: run `unset BACKENDCFG_INHERIT`\n"
    )


def test_nothing_is_wrapped_while_nothing_is_in_force(script):
    script(
        """
        from multiprocessing.process import BaseProcess
        from concurrent.futures.process import ProcessPoolExecutor
        from multiprocessing.pool import Pool
        def methods():
            return (BaseProcess.start, BaseProcess._bootstrap, Pool.__init__,
                    Pool._guarded_task_generation, ProcessPoolExecutor.__init__,
                    ProcessPoolExecutor._spawn_process)
        before = methods()
        assert backendcfg.session.children._watch == []
        for _ in range(2):
            backendcfg.apply("one")
            assert not any(now is then for now, then in zip(methods(), before, strict=True))
            assert [m.__wrapped__ for m in methods()] == list(before)
            backendcfg.undo()
            assert before == methods()
        backendcfg.apply("one")
        backendcfg.apply("tf32-off")
        assert [m.__wrapped__ for m in methods()] == list(before)
        """,
        look=LOOK + "\nimport backendcfg.session.children",
    )


def test_nothing_is_wrapped_where_backendcfg_is_disabled(script):
    script(
        """
        before = multiprocessing.process.BaseProcess.start, threading.Thread._bootstrap_inner
        backendcfg.apply("one")
        with backendcfg.profile("one"):
            now = multiprocessing.process.BaseProcess.start, threading.Thread._bootstrap_inner
        assert before == now
        """,
        BACKENDCFG_DISABLE="1",
    )


def test_modules_imported_later_are_wrapped_and_own_classes_work(script):
    found = printed(
        script(
            """
            assert "multiprocessing.process" not in sys.modules
            with backendcfg.profile("one"):
                import multiprocessing
                class Own(multiprocessing.Process):
                    def start(self):
                        self.told = "started"
                        super().start()
                    def run(self):
                        print(json.dumps([backendcfg.active().name, self.told, "run" in vars(self)]))
                own = Own()
                own.start()
                own.join()
                print(json.dumps(own.exitcode))
            """,
            look="import json, sys, backendcfg",
        )
    )
    assert [["one", "started", False], 0] == found


def test_a_child_that_cannot_take_over_ends_with_the_reason(script):
    refusing = """
def refuse(self, value):
    raise OSError("not in this process")
if __name__ != "__main__":
    import numpy
    from backendcfg.bridges import pools
    pools.Threads.write = refuse
"""
    done = script(
        """
        for method in ("spawn", "forkserver"):
            process = multiprocessing.get_context(method).Process(target=print)
            with backendcfg.profile("one"):
                process.start()
            process.join()
            print(json.dumps(process.exitcode), flush=True)
        """,
        look=LOOK + refusing,
    )
    assert [1, 1] == printed(done)
    assert 2 == done[1].count("RolledBackError: applying profile `one` failed")
    assert 2 == done[1].count("OSError: not in this process")


GIVEN = children.Inheritance((Compiled("given", "none", {"log.level": "error"}),), (1,))


def unpickle(*options, **variables):
    program = (
        "import pickle, sys\n"
        "loaded = pickle.load(sys.stdin.buffer)\n"
        "module = sys.modules.get('backendcfg')\n"
        "print(loaded, module is not None and module.active())\n"
    )
    done = subprocess.run(
        [sys.executable, *options, "-c", program],
        input=pickle.dumps(GIVEN),
        env={**os.environ, **variables},
        capture_output=True,
        check=True,
    )
    return done.stdout.decode(), done.stderr.decode()


def test_unpickling_applies_in_any_child_that_has_backendcfg():
    out, err = unpickle()
    assert out.startswith("None Active(name='given'")
    assert "the parent process" in out
    assert "" == err


def test_unpickling_does_no_harm_where_there_is_no_backendcfg():
    assert ("None False\n", "") == unpickle("-S", "-I")


def test_unpickling_does_nothing_where_backendcfg_is_disabled():
    assert ("None None\n", "") == unpickle(BACKENDCFG_DISABLE="1")


@pytest.mark.exhaustive
def test_a_child_with_another_release_takes_over_nothing_and_says_so(monkeypatch):
    monkeypatch.setattr(children, "__version__", "9.9")
    out, err = unpickle(BACKENDCFG_PROFILE="tf32-off")
    assert "Active(name='tf32-off'" in out
    assert (
        f"this process has backendcfg {__version__} and cannot take over from its parent, which"
        " has 9.9\n"
    ) == err


def test_nothing_in_force_is_pickled_as_nothing():
    assert "" == pickle.loads(pickle.dumps(children.Inheritance((), (1,))))
