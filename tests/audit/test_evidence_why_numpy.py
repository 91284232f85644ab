"""Why runs of programs that compute with NumPy differ: planted faults, and what is named for each."""

from __future__ import annotations

import json
import os
import sys

import pytest

from backendcfg.cli.main import main

pytestmark = pytest.mark.usefixtures("idle")

FAULTS = {
    "a generator without a seed": (
        """
        import numpy as np
        x = np.arange(6.0) + 1
        x += np.random.default_rng().normal(size=6)
        """,
        {
            "operation": "numpy.random.Generator.normal float64",
            "place": "script.py:4",
            "cause": "generator",
            "other_inputs": ("the state of the generator",),
        },
    ),
    "the order of a set": (
        """
        import numpy as np
        parts = {name: np.full(4, len(name)) * 1.0 for name in ["a", "bb", "ccc", "dddd"]}
        total = np.zeros(4)
        for name in sorted(parts, reverse=bool(odd)):
            total = np.maximum(total, parts[name])
        """,
        {"operation": "numpy.maximum float64", "place": "script.py:6", "cause": "order"},
    ),
    "the order in which tasks end": (
        """
        import threading
        from concurrent.futures import ThreadPoolExecutor, as_completed
        import numpy as np
        first = threading.Event()
        def work(number):
            if number != odd:
                first.wait()
            found = np.exp(np.full(2, float(number)))
            if number == odd:
                callback.append(lambda done: first.set())
            return found
        callback = []
        total = np.zeros(2)
        with ThreadPoolExecutor(2) as pool:
            futures = [pool.submit(work, number) for number in range(2)]
            for future in as_completed(futures):
                total = np.add(total, future.result())
                first.set()
        """,
        {
            "operation": "numpy.add float64",
            "place": "script.py:18",
            "stream": "0-0",
            "cause": "order",
        },
    ),
    "a draw in one of many tasks": (
        """
        from concurrent.futures import ThreadPoolExecutor
        import numpy as np
        def work(number):
            x = np.random.default_rng(None if number == 2 else number).normal(size=9)
            return np.sqrt(np.dot(x, x))
        with ThreadPoolExecutor(3) as pool:
            for found in pool.map(work, range(4)):
                np.exp(found)
        """,
        {
            "operation": "numpy.random.Generator.normal float64",
            "place": "script.py:5",
            "stream": "0-0.2",
            "cause": "generator",
        },
    ),
    "a sum that tasks add to as they come": (
        """
        import threading
        from concurrent.futures import ThreadPoolExecutor
        import numpy as np
        first, total = threading.Event(), np.full(2, 0.25)
        def work(number):
            if number != odd:
                first.wait()
            np.add(total, np.exp([number + 0.5, number]), out=total)
            first.set()
        with ThreadPoolExecutor(2) as pool:
            pool.submit(work, 0), pool.submit(work, 1)
        """,
        {
            "operation": "numpy.add float64",
            "place": "script.py:9",
            "stream": "0-0.0",
            "index": 1,
            "cause": "threads",
            "other_inputs": ("input 1: float64[2]",),
        },
    ),
    "memory that C code writes to": (
        """
        import ctypes, os
        import numpy as np
        x = np.zeros(2)
        ctypes.memmove(x.ctypes.data, os.urandom(4), 4)
        np.negative(x)
        """,
        {
            "operation": "numpy.negative float64",
            "place": "script.py:6",
            "cause": "outside",
            "same_inputs": False,
        },
    ),
    "a sum that threads of C code add to as they come": (
        """
        import ctypes, subprocess
        import numpy as np
        source = r'''
        #include <pthread.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
        static float total;
        static int added, first;
        static const float *values;
        static void *add(void *given) {
            long number = (long)given;
            pthread_mutex_lock(&lock);
            while (!added && number != first) pthread_cond_wait(&changed, &lock);
            for (int i = 0; i < 1000; i++) total += values[1000 * number + i];
            added = 1;
            pthread_cond_broadcast(&changed);
            pthread_mutex_unlock(&lock);
            return 0;
        }
        float sum(const float *given, int comes_first) {
            pthread_t threads[2];
            values = given, total = 0, added = 0, first = comes_first;
            for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, add, (void *)i);
            for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
            return total;
        }'''
        library = f"./sum-{odd}.so"
        compile = ["cc", "-shared", "-fPIC", "-pthread", "-xc", "-", "-o", library]
        subprocess.run(compile, input=source, text=True, check=True)
        sum_of = ctypes.CDLL(library).sum
        sum_of.restype = ctypes.c_float
        x = np.random.default_rng(0).normal(size=2000).astype(np.float32)
        total = sum_of(ctypes.c_void_p(x.ctypes.data), odd)
        np.negative(np.float32(total))
        """,
        {
            "operation": "numpy.negative float32",
            "place": "script.py:35",
            "cause": "outside",
            "same_inputs": False,
        },
    ),
    "an object that cannot be read": (
        """
        import os
        import numpy as np
        class Given:
            def __array__(self, dtype=None, copy=None):
                return np.frombuffer(os.urandom(8), np.int64)
        np.negative(Given())
        """,
        {
            "operation": "numpy.negative int64",
            "place": "script.py:7",
            "cause": "",
            "same_inputs": None,
        },
    ),
    "one operation more": (
        "import numpy as np\nx = np.ones(2) + 1\nif odd: x = x * 2\nx = x + 1\n",
        {
            "operation": "numpy.add float64",
            "other": "numpy.multiply float64",
            "same_inputs": None,
        },
    ),
}


@pytest.mark.slow
@pytest.mark.sweep(3)
@pytest.mark.parametrize(("script", "expected"), FAULTS.values(), ids=FAULTS)
def test_the_first_operation_that_differs_is_named_with_what_parts_it(script, expected, searched):
    found = searched(script)
    (step,) = found.steps
    assert found.obstacle == ""
    assert {name: getattr(step, name) for name in expected} == expected


@pytest.mark.exhaustive
def test_a_number_of_threads_that_parts_a_product_is_cured_by_the_flag_for_it(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(
        "import numpy as np; x = np.random.default_rng(0).normal(size=10**6); print(np.dot(x, x))"
    )
    words = ["prove", "tf32-off", "--runs", "3", "--also", "threads=1", "--why", "--"]
    assert main(["--json", *words, sys.executable, "script.py"]) == 1
    found = json.loads(capsys.readouterr().out)
    (step,) = found["why"]["steps"]
    assert (step["operation"], step["cause"]) == ("numpy.dot float64", "surroundings")
    assert (step["same_inputs"], step["differing"]) == (True, 1)
    assert found["cure"] == {"threads.count": os.cpu_count()}


@pytest.mark.exhaustive
def test_draws_without_a_seed_are_followed_and_cured(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(
        "import numpy as np; x = np.random.normal(size=(4, 3)); print((x @ x.T).sum())"
    )
    words = ["prove", "tf32-off", "--runs", "2", "--why", "--", sys.executable, "script.py"]
    assert main(["--json", *words]) == 1
    found = json.loads(capsys.readouterr().out)
    (step,) = found["why"]["steps"]
    assert [each["operation"] for each in step["followed"]] == [
        "numpy.random.RandomState.normal float64",
        "numpy.matmul float64",
        "numpy.add.reduce float64",
    ]
    assert all(each["apart"] > 0 for each in step["followed"])
    assert found["cure"] == {"seed.value": 0}
