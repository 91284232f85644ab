"""Workers of Ray under a profile, on one node and on two that Ray takes for different machines."""

from __future__ import annotations

import importlib.util
import json

import pytest
from running import run_program

from backendcfg.session.starting import START

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed"
)

# What is found goes to a file, because Ray prints what workers print, too.
PROGRAM = """
import json, os, sys
import backendcfg
import ray as engine
from backendcfg.fleet import ray

NODE = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 80 * 2**20}

def init(**options):
    engine.init("local", **NODE, logging_level="error", **options)

def described():
    import hashlib, numpy
    active = backendcfg.active()
    square = numpy.random.default_rng(3).standard_normal((300, 300)).astype("f4")
    return {
        "profile": active and active.name,
        "verified": backendcfg.verify().ok,
        "threads": [os.environ.get("OMP_NUM_THREADS"), backendcfg.flags["threads.count"]],
        "hash": hash("backendcfg"),
        "bits": hashlib.sha256((square @ square).tobytes()).hexdigest(),
        "pid": os.getpid(),
        "core type": os.environ.get("OPENBLAS_CORETYPE"),
    }

@engine.remote
def state():
    return described()

@engine.remote
class Actor:
    def state(self):
        return described()

    def limit_threads(self):
        import numpy, threadpoolctl
        threadpoolctl.threadpool_limits(2, user_api="blas")

def refusal(function, *positional, **named):
    try:
        return str(function(*positional, **named))
    except Exception as error:
        return error.render() if hasattr(error, "render") else type(error).__name__[-1500:]

found = {}
BODY
engine.shutdown()
with open("found.json", "w") as file:
    json.dump(found, file)
"""


@pytest.fixture(name="found")
def _found(tmp_path):
    """Run statements that put something in `found`, and give that and what Ray printed."""

    def run(body, *, under="", **environment):
        text = PROGRAM.replace("BODY", body)
        environment = {"RAY_USAGE_STATS_ENABLED": "0", **environment}
        printed = run_program(tmp_path, text, under=under, **environment)
        return json.loads((tmp_path / "found.json").read_text()), printed

    return run


ONE_NODE = """
init(runtime_env=ray.runtime_env("reproducible"))
found["tasks"] = [engine.get(state.remote()) for _ in range(2)]
wide = state.options(num_cpus=2, runtime_env=ray.runtime_env("reproducible", threads=2))
found["wide"] = engine.get(wide.remote())
actors = [Actor.remote() for _ in range(2)]
found["actors"] = engine.get([actor.state.remote() for actor in actors])
found["agreed"] = [str(ray.agree(actors)), str(ray.agree())]
engine.get(actors[1].limit_threads.remote())
names = [actor._actor_id.hex()[:16] for actor in actors]
said = refusal(ray.agree, actors)
for number, name in enumerate(names):
    said = said.replace(name, f"{{{number}}}")
found["refused"] = said.replace(os.uname().nodename, "{host}")
"""


def test_tasks_and_actors_compute_under_the_profile_with_a_thread_for_each_processor(found):
    first, _ = found(ONE_NODE)
    again, _ = found(ONE_NODE)
    assert first["agreed"] == ["Agreement(size=2, unlike=())", "Agreement(size=1, unlike=())"]
    assert first["refused"] == (
        "error[fleet-disagrees]: 2 actors do not compute alike\n"
        "  note: openblas[numpy].threads: 1 on actor {0}, 2 on actor {1} ({host})\n"
        "  state: they go on\n"
        "  help: start all under one profile:"
        " `ray.init(runtime_env=backendcfg.fleet.ray.runtime_env())`"
    )
    narrow = [*first["tasks"], *first["actors"], *again["tasks"], *again["actors"]]
    # Ray reuses a worker, but not for a task with another number of threads.
    assert first["tasks"][0]["pid"] == first["tasks"][1]["pid"] != first["wide"]["pid"]
    for one in [*narrow, first["wide"]]:
        del one["pid"]
        assert (one["profile"], one["verified"]) == ("reproducible", True)
    assert all(one == narrow[0] for one in narrow)
    assert narrow[0]["threads"] == ["1", 1]
    assert first["wide"]["threads"] == ["2", 2]


TWO_NODES = """
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 1})
os.environ["OPENBLAS_CORETYPE"] = "Haswell"
cluster.add_node(num_cpus=1, object_store_memory=NODE["object_store_memory"])
del os.environ["OPENBLAS_CORETYPE"]
engine.init(cluster.address, runtime_env=ray.runtime_env(PROFILE), logging_level="error")
place = lambda node: NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
found["states"] = [
    engine.get(state.options(scheduling_strategy=place(node)).remote()) for node in engine.nodes()
]
found["agreed"] = refusal(ray.agree)
engine.shutdown()
cluster.shutdown()
"""


def test_a_node_that_was_started_with_another_core_type_computes_as_the_others(found):
    both, _ = found(TWO_NODES.replace("PROFILE", '"reproducible"'))
    assert both["agreed"] == "Agreement(size=2, unlike=())"
    assert {one["bits"] for one in both["states"]} == {both["states"][0]["bits"]}
    assert [one["core type"] for one in both["states"]] == [None, None]
    assert all(one["verified"] for one in both["states"])


@pytest.mark.exhaustive
def test_where_the_profile_says_nothing_of_it_the_other_core_type_is_named(found):
    both, _ = found(TWO_NODES.replace("PROFILE", '"tf32-off"'))
    assert both["agreed"].startswith("error[fleet-disagrees]: 2 nodes do not compute alike\n")
    assert "variables.OPENBLAS_CORETYPE: " in both["agreed"]
    assert '"Haswell" on node ' in both["agreed"]


def test_run_gives_the_workers_of_a_driver_the_profile(found):
    ran, _ = found("init()\nfound['state'] = engine.get(state.remote())", under="reproducible")
    assert ran["state"]["profile"] == "reproducible"
    assert ran["state"]["verified"]
    assert ran["state"]["threads"] == ["1", 1]


@pytest.mark.exhaustive
def test_a_driver_with_a_runtime_environment_of_ours_keeps_it_under_run(found):
    body = """
init(runtime_env=ray.runtime_env("tf32-off", over={"env_vars": {"MINE": "1"}}))
found["state"] = engine.get(state.remote())
found["own"] = engine.get(engine.remote(lambda: os.environ["MINE"]).remote())
"""
    ran, _ = found(body, under="reproducible")
    assert ran["own"] == "1"
    assert ran["state"]["profile"] == "tf32-off"


def test_workers_that_inherit_a_profile_have_a_thread_each(found):
    ran, _ = found("init()\nfound['state'] = engine.get(state.remote())", BACKENDCFG_PROFILE="fast")
    assert ran["state"]["profile"] == "fast"
    assert ran["state"]["threads"] == ["1", 1]


DRAWS = """
@engine.remote(num_cpus=0)
class Worker:
    def draw(self):
        import numpy
        return numpy.random.rand()

init()
several = [Worker.remote() for _ in range(2)]
found["drawn"] = engine.get([each.draw.remote() for each in several])
"""


def test_no_two_workers_that_inherit_a_profile_draw_the_same(found):
    ran, _ = found(DRAWS, BACKENDCFG_PROFILE="reproducible")
    first, second = ran["drawn"]
    assert first != second


CANNOT = """
with open("mine.toml", "w") as file:
    file.write('schema = 1\\nextends = ["tf32-off"]\\n')
environment = ray.runtime_env("./mine.toml")
os.remove("mine.toml")
init()
alone = state.options(max_retries=0, runtime_env=environment)
found["met"] = refusal(engine.get, alone.remote(), timeout=120)
found["others"] = engine.get(state.remote())["profile"]
"""


def test_a_worker_that_cannot_be_under_the_profile_fails_its_task_and_hangs_nothing(found):
    met, printed = found(CANNOT)
    assert met == {"met": "WorkerCrashedError", "others": None}
    assert "UnreadableFileError: cannot read mine.toml: no such file or directory" in printed


INHERITED = """
os.mkdir("elsewhere")
where = {"working_dir": "elsewhere"}
engine.init("local", **NODE, logging_level="error", runtime_env=ENVIRONMENT)
found["met"] = refusal(engine.get, state.options(max_retries=0).remote(), timeout=120)
"""

# As the start-up file of an installation has it, also where there is none.
INHERITING = {"BACKENDCFG_PROFILE": "./mine.toml", "PYTHONPATH": START}


@pytest.mark.exhaustive
def test_a_worker_does_not_end_at_its_start_for_what_it_inherits(found, tmp_path):
    (tmp_path / "mine.toml").write_text('schema = 1\nextends = "tf32-off"\n')
    # The variable names a file that is not where the worker works.
    met, printed = found(INHERITED.replace("ENVIRONMENT", "where"), **INHERITING)
    assert met["met"] == "WorkerCrashedError"
    assert "UnreadableFileError: cannot read mine.toml: no such file or directory" in printed


@pytest.mark.exhaustive
def test_a_runtime_environment_wins_over_what_a_worker_inherits(found, tmp_path):
    (tmp_path / "mine.toml").write_text('schema = 1\nextends = "tf32-off"\n')
    ours = 'ray.runtime_env("reproducible", over=where)'
    met, _ = found(INHERITED.replace("ENVIRONMENT", ours), **INHERITING)
    assert "'profile': 'reproducible', 'verified': True" in met["met"]


HOOKS = """
def mine():
    os.environ["MINE"] = str(backendcfg.active() and backendcfg.active().name)

init(runtime_env=ray.runtime_env("tf32-off", over={"worker_process_setup_hook": mine}))
found["job"] = engine.get(engine.remote(lambda: os.environ["MINE"]).remote())
found["task"] = refusal(ray.runtime_env, "fast")
"""


@pytest.mark.exhaustive
def test_a_hook_of_the_program_is_called_under_the_profile(found):
    met, _ = found(HOOKS)
    assert met["job"] == "tf32-off"
    assert met["task"] == (
        "error[usage]: the job has a `worker_process_setup_hook`, which workers of another runtime"
        " environment do not run\n"
        "  state: nothing was changed\n"
        "  help: give the profile to the job: `ray.init(runtime_env=runtime_env(over=...))`"
    )


@pytest.mark.exhaustive
def test_the_environment_of_a_job_stays_under_run(found):
    body = """
from ray.job_config import JobConfig
init(job_config=JobConfig(runtime_env={"env_vars": {"MINE": "1"}}))
found["own"] = engine.get(engine.remote(lambda: os.environ.get("MINE")).remote())
found["profile"] = engine.get(state.remote())["profile"]
"""
    ran, _ = found(body, under="tf32-off")
    assert ran == {"own": "1", "profile": "tf32-off"}


def test_environments_are_made_from_what_ray_takes(found):
    body = """
found["none"] = ray.runtime_env("tf32-off", over={"env_vars": None})["env_vars"]
found["hook"] = ray.hook({"env_vars": None})["env_vars"]
with backendcfg.profile("tf32-off"):
    found["scope"] = json.loads(ray.runtime_env()["env_vars"]["BACKENDCFG_WORKER"])
os.environ["BACKENDCFG_DISABLE"] = "1"
found["off"] = [ray.runtime_env("fast"), ray.hook(None), ray.hook({"pip": []})]
"""
    made, _ = found(body, BACKENDCFG_PROFILE="fast")
    assert set(made["none"]) == {"BACKENDCFG_WORKER", "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"}
    assert set(made["hook"]) >= {"BACKENDCFG_WORKER"}
    assert [one["name"] for one in made["scope"]] == ["fast", "tf32-off"]
    assert made["off"] == [{}, None, {"pip": []}]
