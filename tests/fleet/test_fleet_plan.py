"""One plan for unlike hosts: what is set for all, what is refused, and what `run --fleet` holds."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backendcfg import session
from backendcfg.cli.main import main
from backendcfg.cli.sources import read_host
from backendcfg.errors import FleetDisagreesError, FleetUnlikeError
from backendcfg.fleet import levels
from backendcfg.fleet import planned as planned_for
from backendcfg.fleet.consensus import consensus
from backendcfg.resolve.plan import resolve
from backendcfg.transact.compiled import Asked, compile_plan

FILES = sorted((Path(__file__).parents[1] / "hosts").glob("*.json"))
COMMON = {"fleet.unlike": '"common"'}
GPU_HOST = "dgx-h100--openblas"
CPU_HOST = "docker-slim-without-scipy--openblas"


def host(name):
    return read_host(str(Path(__file__).parents[1] / "hosts" / f"{name}.json"))


def with_processor(base, name):
    """A host with the processor of another."""
    return base.model_copy(update={"cpu": host(name).cpu})


def planned(hosts, profile="reproducible", settings=None, ranks=1):
    def stack(arguments):
        return session.stack(profile, arguments=arguments)

    return consensus(profile, stack, settings or {}, hosts.items(), ranks)


def refusal(hosts, **options):
    with pytest.raises(FleetUnlikeError) as raised:
        planned(hosts, **options)
    return raised.value.render()


def pins(plan):
    return {pin.flag: pin.value for pin in plan.pins if pin.values}


def test_hosts_that_are_alike_need_nothing_and_keep_their_tier():
    first = host(GPU_HOST)
    other = first.model_copy(
        update={"gpus": tuple(gpu.model_copy(update={"uuid": "GPU-1"}) for gpu in first.gpus)}
    )
    plan = planned({"node-a": first, "node-b": other})
    assert (plan.hosts, plan.tier, plan.unlike, pins(plan)) == (2, "run-to-run", (), {})
    assert plan.settings == {"threads.count": "112"}


UNLIKE = {
    "node-a": with_processor(host(GPU_HOST), GPU_HOST),
    "node-b": with_processor(host(GPU_HOST), "epyc-h200-two-visible--openblas"),
}


def test_unlike_hosts_are_refused_with_what_would_be_set():
    assert refusal(UNLIKE) == (
        "error[fleet-unlike]: 2 hosts do not come to the same plan of profile `reproducible`\n"
        "  note: threads.count = 112: 112 on node-a; 192 on node-b\n"
        '  note: blas.openblas.core_type = "SkylakeX", torch.cpu_capability = "avx512",'
        ' onednn.max_cpu_isa = "avx512_core", blas.mkl.cbwr = "compatible",'
        ' environment = { NPY_DISABLE_CPU_FEATURES = "AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",'
        ' XLA_FLAGS = "--xla_cpu_max_isa=AVX512" }: sapphirerapids on node-a; zen4 on node-b\n'
        "  state: no plan was written\n"
        "  help: add `--set fleet.unlike=common` to set these for all"
    )


LEVELS = [
    ((GPU_HOST, "epyc-h200-two-visible--openblas"), "SkylakeX"),
    (("aws-g4dn-t4--openblas", "cloud-vm-zen4-no-gpu--openblas"), "SkylakeX"),
    ((GPU_HOST, "a10-nvml-mismatch--openblas"), "Haswell"),
    (("docker-slim-without-scipy--openblas", "debian-system-python--openblas"), "Haswell"),
    ((GPU_HOST, "epyc-h200-two-visible--openblas", "debian-blis--blis"), "Haswell"),
]


@pytest.mark.parametrize(("processors", "core_type"), LEVELS)
def test_every_library_is_brought_to_what_all_processors_have(processors, core_type):
    hosts = {name: with_processor(host(GPU_HOST), name) for name in processors}
    plan = planned(hosts, settings=COMMON)
    assert pins(plan)["blas.openblas.core_type"] == core_type
    assert plan.values["threads.count"] == min(one.cpu.cores for one in hosts.values())
    assert [one.name for one in plan.unlike] == ["processor"]
    # Each host comes to the very values of the plan by its settings.
    for one in hosts.values():
        found = resolve(session.stack("reproducible", arguments=plan.settings), one).values()
        assert {flag: found[flag] for flag in plan.values} == plan.values
    # Nothing is left that chooses by the processor.
    wanted = levels.of_level(plan.level, host(GPU_HOST).packages)
    there = {flag for flag in wanted if flag in plan.values}
    assert there == wanted.keys() - {"blas.blis.arch_type"}
    assert {flag: plan.values[flag] for flag in there} == {flag: wanted[flag] for flag in there}


def test_variables_of_a_profile_do_not_take_the_place_of_those_that_bring_libraries_together():
    settings = {**COMMON, "environment": "{ MINE = '1' }"}
    plan = planned(UNLIKE, settings=settings)
    assert set(plan.values["environment"]) == {"NPY_DISABLE_CPU_FEATURES", "XLA_FLAGS"}


def test_numpy_of_every_version_has_names_of_instruction_sets():
    names = {
        version: levels.of_level("x86_64_v3", {"numpy": version})["environment"]
        for version in ("2.3.5", "2.4rc1", "2.4.6", "3.0", "", "weird")
    }
    new = [version for version, found in names.items() if "X86_V4" in str(found)]
    assert new == ["2.4rc1", "2.4.6", "3.0"]


def test_processors_of_arm_come_to_the_kernels_that_all_of_them_run():
    grace = host("gh200-grace--openblas")
    lineage = ("neoverse_n1", "armv8.2a", "armv8.1a", "armv8a", "aarch64")
    older = grace.model_copy(
        update={
            "cpu": grace.cpu.model_copy(
                update={"microarchitecture": "neoverse_n1", "lineage": lineage, "cores": 64}
            )
        }
    )
    plan = planned({"grace": grace, "graviton": older}, settings=COMMON)
    assert pins(plan) == {
        "threads.count": 64,
        "blas.openblas.core_type": "armv8",
        "torch.cpu_capability": "default",
        "mkldnn.enabled": False,
    }


def test_processors_without_a_common_instruction_set_are_refused():
    old = host(CPU_HOST)
    lineage = ("ivybridge", "sandybridge", "x86_64_v2", "x86_64")
    cpu = old.cpu.model_copy(update={"microarchitecture": "ivybridge", "lineage": lineage})
    hosts = {"new": old, "old": old.model_copy(update={"cpu": cpu})}
    assert refusal(hosts, settings=COMMON) == (
        "error[fleet-unlike]: 2 hosts have no instruction set in common that libraries can be told"
        " to use\n"
        "  note: processor: zen2 on new; ivybridge on old\n"
        "  state: no plan was written\n"
        "  help: plan for each kind of host apart"
    )


def test_other_software_is_refused_also_where_the_rest_may_be_common():
    first = host(CPU_HOST)
    other = first.model_copy(update={"packages": {**first.packages, "numpy": "2.4.6"}})
    hosts = {"node-a": first, "node-b": first, "node-c": other}
    assert refusal(hosts, settings=COMMON) == (
        "error[fleet-unlike]: 3 hosts do not have the same software\n"
        "  note: package numpy: 2.2.6 on node-a, node-b; 2.4.6 on node-c\n"
        "  state: no plan was written\n"
        "  help: install the same versions, set the same variables, or plan for each kind apart"
    )


@pytest.mark.sweep(8)
@pytest.mark.parametrize(("a", "b"), list(itertools.combinations([path.stem for path in FILES], 2)))
def test_of_two_captured_hosts_each_is_named_with_its_software(a, b):
    hosts = {"node-a": host(a), "node-b": host(b)}
    said = refusal(hosts, settings=COMMON)
    assert said.startswith("error[fleet-unlike]: 2 hosts do not have the same software\n")
    differing = [line for line in said.splitlines() if line.startswith("  note: ")]
    assert all("node-a" in line and "node-b" in line for line in differing[:8])


def test_all_captured_hosts_at_once_differ_in_software():
    hosts = {path.stem: read_host(str(path)) for path in FILES}
    said = refusal(hosts, settings=COMMON).splitlines()
    assert said[0] == f"error[fleet-unlike]: {len(FILES)} hosts do not have the same software"
    assert said[1].startswith("  note: system: linux on ")
    assert said[1].endswith("; macos on macbook-m3-max-accelerate--native")


def test_a_number_of_threads_that_the_profile_gives_stays():
    plan = planned(UNLIKE, settings={**COMMON, "threads.count": "4"}, ranks=8)
    assert (plan.settings["threads.count"], plan.values["threads.count"]) == ("4", 4)
    assert "threads.count" not in pins(plan)


def test_ranks_of_a_host_share_its_cores():
    plan = planned({"node-a": host(GPU_HOST)}, ranks=8)
    assert plan.values["threads.count"] == 112 // 8


@pytest.mark.parametrize(("ranks", "settings"), [(113, {}), (8, {"threads.count": "16"})])
def test_more_threads_than_cores_over_all_ranks_are_refused(ranks, settings):
    threads = settings.get("threads.count", "1")
    assert refusal({"node-a": host(GPU_HOST)}, ranks=ranks, settings=settings) == (
        f"error[fleet-unlike]: {ranks} processes with {threads} thread{'s' * (ranks == 8)} on each"
        " host are more threads than cores\n"
        "  note: node-a: 112 cores\n"
        "  state: no plan was written\n"
        "  help: start fewer processes on a host, or set `threads.count` to less"
    )


def test_a_host_that_one_of_several_ranks_captured_is_refused():
    part = host(GPU_HOST)
    part = part.model_copy(update={"memory": part.memory.model_copy(update={"ranks": 4})})
    assert refusal({"node-a": part}).startswith(
        "error[fleet-unlike]: 1 of 1 host were captured by one of several processes, which has a"
        " part of the cores\n"
    )


def test_variables_that_no_flag_decides_must_be_equal_and_others_need_not_be():
    first = host(CPU_HOST)
    odd = first.model_copy(
        update={"environment": {"OPENBLAS_CORETYPE": "Haswell", "CUDA_VISIBLE_DEVICES": "1"}}
    )
    assert planned({"node-a": first, "node-b": odd}).unlike == ()
    odd = first.model_copy(update={"environment": {"NPY_DISABLE_CPU_FEATURES": "X86_V3"}})
    said = refusal({"node-a": first, "node-b": odd}, settings=COMMON)
    assert "note: variable NPY_DISABLE_CPU_FEATURES: none on node-a; X86_V3 on node-b\n" in said


def test_every_library_of_one_kind_and_owner_is_compared():
    first = host("debian-system-python--openblas")
    libraries = [
        one.model_copy(update={"version": "0.3.26"}) if "libblas.so.3" in one.path else one
        for one in first.libraries
    ]
    assert libraries != list(first.libraries)
    other = first.model_copy(update={"libraries": tuple(libraries)})
    said = refusal({"node-a": first, "node-b": other}, settings=COMMON)
    assert "note: library openblas of system: " in said


def test_a_rank_may_see_some_of_the_gpus_of_a_planned_host():
    both = host(GPU_HOST)
    gpus = (both.gpus[0], both.gpus[1].model_copy(update={"name": "NVIDIA L4"}))
    both = both.model_copy(update={"gpus": gpus})
    plan = planned({"node-a": both})
    assert plan.gpus == (("NVIDIA H100 80GB HBM3", "NVIDIA L4"),)
    found = resolve(session.stack("reproducible", arguments=plan.settings), both)
    compiled = compile_plan(found, {}, Asked())
    one = both.model_copy(update={"gpus": gpus[:1]})
    planned_for.refuse_unless_as_planned(plan, compiled, one, "fleet.json", {})
    for other in ((), (gpus[0].model_copy(update={"name": "Voodoo2"}),)):
        there = both.model_copy(update={"gpus": other})
        with pytest.raises(FleetDisagreesError) as raised:
            planned_for.refuse_unless_as_planned(plan, compiled, there, "fleet.json", {})
        assert raised.value.notes[0].startswith("GPUs: ")


def test_a_profile_with_the_same_bits_on_every_machine_needs_no_common_settings():
    hosts = {
        "node-a": host(CPU_HOST),
        "node-b": with_processor(host(CPU_HOST), "kubernetes-pod-1.5-of-64--openblas"),
    }
    plan = planned(hosts, profile="reproducible-anywhere")
    assert (plan.tier, pins(plan), plan.level) == ("cross-machine", {}, "")
    assert [one.name for one in plan.unlike] == ["processor"]


def test_a_host_that_cannot_keep_the_tier_is_named():
    hosts = {"node-a": host(GPU_HOST).model_copy(update={"gpus": ()}), "node-b": host(GPU_HOST)}
    said = refusal(hosts, profile="reproducible-anywhere").splitlines()
    assert said[0] == (
        "error[fleet-unlike]: profile `reproducible-anywhere` cannot be had on 1 of 2 hosts"
    )
    assert said[1].startswith(
        "  note: node-b: profile `reproducible-anywhere` cannot keep its tier"
    )


def test_flags_of_gpus_do_not_matter_to_a_host_that_has_none():
    hosts = {"node-a": host(GPU_HOST), "node-b": host(GPU_HOST).model_copy(update={"gpus": ()})}
    plan = planned(hosts)
    assert pins(plan) == {}
    assert plan.values["cuda.preferred_linalg_library"] == "cusolver"
    assert [str(one) for one in plan.unlike] == [
        "GPUs: NVIDIA H100 80GB HBM3 on node-a; none on node-b"
    ]


def test_what_a_profile_sets_on_some_hosts_only_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(
        'schema = 1\n[[when]]\ngpu.vendor = "nvidia"\nflags.seed.value = 7\n'
    )
    big = host(GPU_HOST)
    small = big.model_copy(update={"gpus": ()})
    assert refusal({"big": big, "small": small}, profile="./mine.toml", settings=COMMON) == (
        "error[fleet-unlike]: 2 hosts do not come to the same plan of profile `./mine.toml`\n"
        "  note: seed.value: 7 on big; off on small\n"
        "  state: no plan was written\n"
        "  help: set these flags in the profile, or plan for each kind of host apart"
    )


def test_a_plan_for_many_hosts_is_small():
    hosts = {f"node-{number}": UNLIKE[f"node-{'ab'[number % 2]}"] for number in range(2000)}
    plan = planned(hosts, settings=COMMON)
    assert plan.hosts == 2000
    assert len(plan.model_dump_json()) < 10_000


# --- the command line ---------------------------------------------------------------------------


@pytest.fixture(name="fleet")
def _fleet(tmp_path, monkeypatch, capsys):
    """Runs `backendcfg` in a folder of its own, and gives the exit code and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = main(list(words))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture(name="started")
def _started(tmp_path):
    """`backendcfg run` with some options, in a process of its own."""

    def run(*words):
        done = subprocess.run(
            [sys.executable, "-m", "backendcfg", "run", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run


SHOW = [
    "--",
    sys.executable,
    "-c",
    "import backendcfg as b; print(b.active().name, b.flags.threads.count)",
]


def test_a_plan_is_written_over_no_other_file(fleet, tmp_path):
    (tmp_path / "train.py").write_text("print('mine')\n")
    code, shown, said = fleet("fleet", "plan", "fast", "here.json", "-o", "train.py")
    assert (code, shown) == (2, "")
    assert said == (
        "error[usage]: train.py is there already, and is no fleet plan\n"
        "  state: nothing was changed\n"
        "  help: give another file with `--output`\n"
    )
    assert (tmp_path / "train.py").read_text() == "print('mine')\n"


@pytest.mark.slow
def test_a_host_is_captured_planned_for_and_held_to_the_plan(fleet, started, tmp_path, monkeypatch):
    name = os.uname().nodename
    assert fleet("detect", "--capture", "hosts/%h.json")[::2] == (0, f"wrote hosts/{name}.json\n")
    code, shown, said = fleet("fleet", "plan", "reproducible", f"hosts/{name}.json", "-o", "f.json")
    assert (code, said) == (0, "wrote f.json\n")
    assert "made equal  nothing had to be" in shown
    plan = json.loads((tmp_path / "f.json").read_text())
    expected = f"reproducible {plan['values']['threads.count']}\n"
    assert started("--fleet", "f.json", *SHOW) == (0, expected, "")
    # What the plan leaves at its default may not be set here either.
    fleet("fleet", "plan", "tf32-off", f"hosts/{name}.json", "-o", "other.json")
    code, _, said = started("--fleet", "other.json", "--set", "python.hash_seed=7", *SHOW)
    assert (code, said.splitlines()[1]) == (
        3,
        "  note: python.hash_seed: 7 here, random in the plan",
    )
    monkeypatch.setenv("BACKENDCFG_DISABLE", "1")
    code, _, said = started("--fleet", "f.json", *SHOW)
    assert (code, said.splitlines()[1], said.splitlines()[-1]) == (
        3,
        "  note: backendcfg is turned off here, by BACKENDCFG_DISABLE",
        "  help: run `unset BACKENDCFG_DISABLE`",
    )
    monkeypatch.delenv("BACKENDCFG_DISABLE")
    code, _, said = started("--fleet", "f.json", "--locked", "run.lock", *SHOW)
    assert said.startswith("error[usage]: `--locked` and `--fleet` each say what is to be here\n")
    # What is set otherwise here is refused, and so is what is installed otherwise.
    code, _, said = started("--fleet", "f.json", "--set", "seed.value=7", *SHOW)
    assert code == 3
    assert said == (
        "error[fleet-disagrees]: this host is not as f.json has it\n"
        "  note: seed.value: 7 here, 0 in the plan\n"
        "  state: the command was not started\n"
        "  help: drop `--set seed.value=7`, or give it to `backendcfg fleet plan`\n"
    )
    plan["builds"]["package numpy"] = "1.0"
    plan["processors"], plan["gpus"] = ["z80"], [["Voodoo2"]]
    (tmp_path / "other.json").write_text(json.dumps(plan))
    code, _, said = started("--fleet", "other.json", *SHOW)
    assert code == 3
    assert [line.partition(":")[0] for line in said.replace("  note: ", "").splitlines()][1:4] == [
        "package numpy",
        "processor",
        "GPUs",
    ]
    assert " here, 1.0 in the plan\n" in said


def test_a_plan_with_more_threads_than_cores_is_refused(fleet, started, tmp_path):
    fleet("detect", "--capture", "here.json")
    fleet("fleet", "plan", "reproducible", "here.json", "-o", "f.json")
    plan = json.loads((tmp_path / "f.json").read_text())
    plan["values"]["threads.count"] = 4096
    plan["settings"]["threads.count"] = "4096"
    (tmp_path / "f.json").write_text(json.dumps(plan))
    code, _, said = started("--fleet", "f.json", *SHOW)
    assert code == 3
    assert "note: threads.count: 4096 in the plan, and this process may use " in said


@pytest.mark.slow
def test_a_plan_is_of_its_profile(fleet, started, tmp_path):
    fleet("detect", "--capture", "here.json")
    fleet("fleet", "plan", "tf32-off", "here.json", "-o", "f.json")
    code, shown, said = started("fast", "--fleet", "f.json", *SHOW)
    assert (code, shown) == (2, "")
    assert said == (
        "error[usage]: f.json is a plan of profile `tf32-off`, not of `fast`\n"
        "  state: nothing was changed\n"
        "  help: write `backendcfg run tf32-off --fleet f.json -- COMMAND`\n"
    )
    (tmp_path / "mine.toml").write_text('schema = 1\nextends = "tf32-off"\n')
    fleet("fleet", "plan", "./mine.toml", "here.json", "-o", "f.json")
    code, _, said = started("--fleet", "f.json", *SHOW)
    assert code == 2
    assert said.splitlines()[0] == (
        "error[usage]: f.json is of a profile in a file, `./mine.toml`, which is to be named"
    )
    code, shown, _ = started("mine.toml", "--fleet", "f.json", *SHOW)
    assert (code, Path(shown.split()[0]).name) == (0, "mine.toml")


UNSAFE = {
    "environment": "{ LD_PRELOAD = '/tmp/x.so' }",
    "blas.path": "'/tmp/x.so'",
}


@pytest.mark.parametrize("flag", UNSAFE)
def test_a_plan_sets_nothing_that_may_run_code(fleet, started, tmp_path, flag):
    fleet("detect", "--capture", "here.json")
    fleet("fleet", "plan", "tf32-off", "here.json", "-o", "f.json")
    plan = json.loads((tmp_path / "f.json").read_text())
    plan["settings"][flag] = UNSAFE[flag]
    (tmp_path / "f.json").write_text(json.dumps(plan))
    code, shown, said = started("--fleet", "f.json", *SHOW)
    assert (code, shown) == (2, "")
    assert said == (
        f"error[invalid-fleet-plan]: f.json sets `{flag}`, which may run any code\n"
        "  state: nothing was changed\n"
        "  help: set it in a profile that this user has or trusts, and plan with that\n"
    )


def test_hosts_with_one_name_are_refused(fleet, tmp_path):
    for folder in ("a", "b"):
        fleet("detect", "--capture", str(tmp_path / folder / "%h.json"))
    name = os.uname().nodename
    code, _, said = fleet("fleet", "plan", "fast", f"a/{name}.json", f"b/{name}.json")
    assert code == 2
    assert said.splitlines()[0] == (
        f"error[usage]: a/{name}.json and b/{name}.json have the same name, so hosts could not be"
        " told apart"
    )


def test_an_existing_plan_stays_where_no_other_can_be_made(fleet, tmp_path):
    old = '{"builds": {}}'
    (tmp_path / "f.json").write_text(old)
    files = [str(path) for path in FILES[:2]]
    code, shown, said = fleet("fleet", "plan", "fast", *files, "-o", "f.json")
    assert (code, shown) == (3, "")
    assert said.startswith("error[fleet-unlike]: 2 hosts do not have the same software\n")
    assert (tmp_path / "f.json").read_text() == old
