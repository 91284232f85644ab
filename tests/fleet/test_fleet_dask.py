"""Workers of Dask under a profile: those that run, those that join, and those that cannot have it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest
from running import run_program

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="distributed is not installed"
)

# Workers import this file, as they would a program's modules. What is found goes to a file, because
# Dask logs to what a program prints to.
PROGRAM = """
import hashlib, json, os, signal, socket, sys
import backendcfg
from distributed import Client, LocalCluster, Nanny, Worker
from backendcfg.fleet import dask

def state():
    import numpy
    active = backendcfg.active()
    square = numpy.random.default_rng(3).standard_normal((300, 300)).astype("f4")
    return {
        "profile": active and active.name,
        "verified": backendcfg.verify().ok,
        "variables": [os.environ.get(n) for n in ("OMP_NUM_THREADS", "PYTHONHASHSEED")],
        "hash": hash("backendcfg"),
        "bits": hashlib.sha256((square @ square).tobytes()).hexdigest(),
        "inherited": "BACKENDCFG_INHERIT" in os.environ,
    }

def draw():
    import numpy
    return numpy.random.rand()

def with_name(function, dask_worker):
    return str(dask_worker.name), function()

def by_name(client, function=state):
    return dict(sorted(client.run(with_name, function).values()))

def limit_threads():
    import numpy, threadpoolctl
    threadpoolctl.threadpool_limits(2, user_api="blas")

def anew(client, pid):
    while True:
        try:
            if by_name(client, os.getpid).get("0", pid) != pid:
                return True
        except OSError:
            pass  # the scheduler does not know yet that the worker is gone

def refusal(function, *positional, **named):
    try:
        return str(function(*positional, **named))
    except Exception as error:
        names = {a: w["name"] for a, w in client.scheduler_info(n_workers=-1)["workers"].items()}
        said = error.render() if hasattr(error, "render") else repr(error.__cause__)
        for address, name in names.items():
            said = said.replace(address, f"{{worker {name}}}")
        return said.replace(socket.gethostname(), "{host}")

def cluster(count, **options):
    return LocalCluster(
        n_workers=count, threads_per_worker=1, dashboard_address=":0", **options
    )

if __name__ == "__main__":
    found = {}
    with cluster(WORKERS) as local, Client(local) as client:
        BODY
    with open("found.json", "w") as file:
        json.dump(found, file)
"""


@pytest.fixture(name="found")
def _found(tmp_path):
    """Run statements with `client` and `local`, a cluster, and give what they put in `found`."""

    def run(body, *, workers=2, under="", **environment):
        body = "\n        ".join(body.strip().splitlines())
        text = PROGRAM.replace("BODY", body).replace("WORKERS", str(workers))
        environment = {"PYTHONPATH": str(tmp_path), **environment}
        printed = run_program(tmp_path, text, under=under, **environment)
        return json.loads((tmp_path / "found.json").read_text()), printed

    return run


UNDER_A_PROFILE = """
before = dict(os.environ)
found["installed"] = str(dask.install(client, "reproducible"))
found["leaked"] = [n for n in os.environ if os.environ[n] != before.get(n)]
found["draws"] = by_name(client, draw)
found["first"] = by_name(client)
local.adapt(minimum=3, maximum=3)
client.wait_for_workers(3)
pids = by_name(client, os.getpid)
os.kill(pids["0"], signal.SIGKILL)
found["anew"] = anew(client, pids["0"])
found["all"] = by_name(client)
found["agreed"] = refusal(dask.agree, client)
"""


def test_workers_that_run_and_that_join_later_are_under_the_profile(found):
    first, _ = found(UNDER_A_PROFILE)
    again, _ = found(UNDER_A_PROFILE, OPENBLAS_CORETYPE="Haswell")
    assert first["installed"] == "Agreement(size=2, unlike=())"
    assert first["agreed"] == "Agreement(size=3, unlike=())"
    assert first["leaked"] == []
    # A worker that was killed, and one that came since, are as the first ones.
    assert {**first["all"], **first["first"]} == first["all"] == again["all"]
    workers = list(first["all"].values())
    assert workers[0] == workers[1] == workers[2]
    assert workers[0] == {
        "profile": "reproducible",
        "verified": True,
        "variables": ["1", "0"],
        "hash": workers[0]["hash"],
        "bits": workers[0]["bits"],
        "inherited": True,
    }
    # What a worker draws follows from its name: others draw otherwise, and itself in another run alike.
    assert len(set(first["draws"].values())) == 2
    assert first["draws"] == again["draws"]


def test_a_worker_with_other_settings_is_named(found):
    refused, _ = found(
        """
dask.install(client, "tf32-off", threads=1)
odd = [a for a, w in client.scheduler_info()["workers"].items() if w["name"] == 1]
client.run(limit_threads, workers=odd)
found["refused"] = refusal(dask.agree, client)
""",
        workers=3,
    )
    text = refused["refused"].replace("{worker 0}, {worker 2}", "{two}")
    assert text.replace("{worker 2}, {worker 0}", "{two}") == (
        "error[fleet-disagrees]: 1 of 3 workers computes otherwise than the other 2\n"
        "  note: openblas[numpy].threads: 1 on workers {two}, 2 on worker {worker 1} ({host})\n"
        "  state: they go on\n"
        '  help: start all under one profile: `backendcfg.fleet.dask.install(client, "fast")`'
    )


def test_another_profile_takes_the_place_of_the_first_and_uninstall_ends_it(found):
    each, logged = found(
        """
dask.install(client, "reproducible")
dask.install(client, "tf32-off")
found["second"] = by_name(client)
found["wrong"] = refusal(dask.install, client, "nonesuch").splitlines()[0]
found["after"] = by_name(client)
dask.uninstall(client)
client.restart()
found["none"] = by_name(client)
""",
        workers=1,
    )
    assert each["second"]["0"]["profile"] == each["after"]["0"]["profile"] == "tf32-off"
    assert each["wrong"] == "error[unknown-profile]: profile `nonesuch` does not exist"
    assert each["none"]["0"]["profile"] is None
    # What Dask itself sets: see Nanny's `pre-spawn-environ`.
    assert each["none"]["0"]["variables"] == each["second"]["0"]["variables"] == ["1", "6640"]
    assert "Traceback" not in logged


def test_the_profile_that_is_installed_wins_over_that_of_the_program(found):
    both, _ = found(
        """
dask.install(client, "reproducible")
found["workers"] = by_name(client)
found["program"] = backendcfg.active().name
""",
        workers=1,
        under="fast",
    )
    assert both["program"] == "fast"
    assert both["workers"]["0"]["profile"] == "reproducible"
    assert both["workers"]["0"]["verified"]


CANNOT = """
with open("mine.toml", "w") as file:
    file.write('schema = 1\\nextends = ["tf32-off"]\\n')
dask.install(client, "./mine.toml")
os.remove("mine.toml")

async def start(kind, **options):
    async with kind(client.scheduler.address, host="127.0.0.1", **options) as one:
        await one.finished()

found["nanny"] = refusal(client.sync, start, Nanny, dashboard_address=":0")
found["alone"] = refusal(client.sync, start, Worker, dashboard_address=":0")
found["workers"] = len(by_name(client))
"""


def test_a_worker_that_cannot_be_under_the_profile_does_not_join(found):
    met, logged = found(CANNOT, workers=1)
    assert met["workers"] == 1
    assert "UnreadableFileError: cannot read " in logged
    # The nanny says so, and ends; what has no nanny closes itself.
    assert met["nanny"].startswith("UnreadableFileError('cannot read ")
    assert met["alone"] == "None"


def test_workers_that_are_the_program_are_refused_with_the_line_that_starts_it(found):
    refused, _ = found(
        """
with cluster(1, processes=False) as threads, Client(threads) as own:
    found["said"] = refusal(dask.install, own, "tf32-off", threads=1)
    found["left"] = len(own.scheduler_info()["workers"])
    found["plugins"] = own.run_on_scheduler(
        lambda dask_scheduler: dask.NAME
        in {*dask_scheduler.worker_plugins, *dask_scheduler.nanny_plugins}
    )
"""
    )
    where, _, rest = refused["said"].partition(" is not under ")
    assert where.startswith("error[fleet-worker]: worker inproc://")
    assert rest.splitlines()[0] == ("profile `tf32-off`, and is this program itself")
    assert rest.splitlines()[-1] == (
        "  help: start the program by `backendcfg run tf32-off --set=threads.count=1 -- python ...`"
    )
    assert (refused["left"], refused["plugins"]) == (1, False)


def test_an_asynchronous_client_is_refused():
    script = """
import asyncio
from distributed import Client, Scheduler
from backendcfg.fleet import dask

async def main():
    async with Scheduler(dashboard_address=None, port=0) as scheduler:
        async with Client(scheduler.address, asynchronous=True) as client:
            try:
                dask.install(client, "fast")
            except Exception as error:
                print(error.render())

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == (
        "error[usage]: the client is asynchronous, and this waits for the workers\n"
        "  state: nothing was changed\n"
        "  help: call it with a client of its own, `Client(address)`\n"
    ), done.stderr


def test_a_worker_that_dies_at_its_start_is_told_and_nothing_is_installed(found):
    met, logged = found(
        """
fails = "import os\\nif 'BACKENDCFG_INHERIT' in os.environ: raise RuntimeError('it dies')\\n"
with cluster(1, preload=[fails]) as dying, Client(dying) as own:
    found["said"] = refusal(dask.install, own, "tf32-off")
    found["plugins"] = own.run_on_scheduler(
        lambda dask_scheduler: dask.NAME
        in {*dask_scheduler.worker_plugins, *dask_scheduler.nanny_plugins}
    )
""",
        workers=0,
    )
    assert met["said"] == (
        "error[fleet-worker]: a worker did not start under the profile, and its nanny has ended\n"
        "  note: what it printed says why\n"
        "  state: further workers start as before; those that have started anew are under the"
        " profile until `client.restart()`"
    )
    assert not met["plugins"]
    assert "RuntimeError: it dies" in logged


def test_other_children_of_the_program_are_as_before_while_workers_start(found):
    met, _ = found(
        """
import subprocess, threading
ask = "import os; print(os.environ.get('BACKENDCFG_INHERIT'), os.environ['PYTHONHASHSEED'])"
def child():
    # A copy: the C library's own may move meanwhile, as another thread sets variables.
    here = dict(os.environ)
    return subprocess.check_output([sys.executable, "-S", "-c", ask], text=True, env=here)
found["seen"] = []
installing = threading.Thread(target=dask.install, args=(client, "reproducible"))
installing.start()
while installing.is_alive():
    found["seen"].append(child())
found["after"] = child()
backendcfg.apply("tf32-off")
found["inherit"] = json.loads(os.environ["BACKENDCFG_INHERIT"])["requests"][0]["name"]
"""
    )
    # Dask's own seed of hashes. Children that start in the milliseconds in which a worker does may
    # have some of its variables; the many others have none.
    assert met["seen"].count("None 6640\n") > len(met["seen"]) / 2
    assert met["after"] == "None 6640\n"
    assert {seen.split()[-1] for seen in met["seen"]} <= {"6640", "0"}
    assert met["inherit"] == "tf32-off"


def test_without_backendcfg_dask_starts_its_workers(found):
    met, _ = found(
        """
found["installed"] = str(dask.install(client, "reproducible"))
found["workers"] = by_name(client)
""",
        workers=1,
        BACKENDCFG_DISABLE="1",
    )
    assert met["installed"] == "Agreement(size=1, unlike=())"
    assert met["workers"]["0"]["profile"] is None
    assert met["workers"]["0"]["variables"] == ["1", "6640"]
