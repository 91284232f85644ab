"""The launcher with PyTorch's options: `python -m backendcfg.backends.xeon.run_cpu`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from argparse import ArgumentParser

import pytest

from backendcfg.backends.xeon import run_cpu
from backendcfg.errors import InvalidArgumentError
from backendcfg.launch import launcher as launching
from backendcfg.launch.arrangement import Request

HERE = sorted(os.sched_getaffinity(0))
PROGRAM = """\
import json, os, sys
print(json.dumps([sorted(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"], sys.argv[1:]]))
"""


@pytest.fixture(name="program")
def _program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


@pytest.fixture(name="launcher")
def _launcher(tmp_path):
    """`launcher("--ninstances", "2", ...)` runs it as a process; its streams as text."""

    def launcher(*words, module="backendcfg.backends.xeon.run_cpu", **variables):
        return subprocess.run(
            [sys.executable, "-m", module, *words],
            env={**os.environ, **variables},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return launcher


def shown(done):
    assert done.returncode == 0, done.stderr
    pairs = (line.partition("]:") for line in sorted(done.stdout.splitlines()))
    return {name.strip("["): json.loads(text) for name, _, text in pairs}


def options(*words):
    return run_cpu._options(run_cpu.create_args().parse_args([*words, "x.py"]))


def test_without_options_one_instance_has_every_core(launcher, program):
    found = shown(launcher(program, "--epochs", "3"))
    cores, threads, words = found["run0"]
    assert (list(found), words) == (["run0"], ["--epochs", "3"])
    assert set(cores) <= set(HERE)
    assert threads == str(len(cores))


@pytest.mark.skipif(len(HERE) < 2, reason="needs two processors")
def test_instances_have_cores_of_their_own(launcher, program, tmp_path):
    words = ("--ninstances", "2", "--log_path", "logs", "--log-file-prefix", "exp", program)
    found = shown(launcher(*words))
    assert [len(cores) == int(threads) for cores, threads, _ in found.values()] == [True, True]
    assert not set(found["exp0"][0]) & set(found["exp1"][0])
    assert json.loads((tmp_path / "logs" / "exp1.stdout.log").read_text()) == found["exp1"]


def test_a_preset_is_told_and_not_obeyed(launcher, program):
    """PyTorch's launcher lets seven threads run on one core."""
    done = launcher("--core-list", str(HERE[0]), program, OMP_NUM_THREADS="7")
    assert shown(done) == {"run0": [[HERE[0]], "1", []]}
    assert "WARNING - OMP_NUM_THREADS=7 contradicts 1 bound cores; instances get 1" in done.stderr


def test_a_module_and_a_program_that_is_not_python(launcher, program):
    done = launcher("-m", "program", PYTHONSAFEPATH="")
    assert list(shown(done)) == ["run0"]
    done = launcher("--no_python", "echo", "--hello")
    assert (done.stdout, done.returncode) == ("[run0]:--hello\n", 0)
    done = launcher("echo")
    assert (done.stdout, done.returncode) == ("", 2)
    assert "error[invalid-argument]: `echo` is not a Python script\n" in done.stderr


def test_the_status_of_an_instance_is_the_launcher_s(launcher, tmp_path):
    (tmp_path / "fails.py").write_text("raise SystemExit(4)")
    done = launcher("fails.py")
    assert done.returncode == 4
    assert "ERROR - instance 0 on core" in done.stderr
    assert run_cpu.main(run_cpu.create_args().parse_args([str(tmp_path / "fails.py")])) == 4


def test_main_takes_parsed_arguments_and_returns_the_status(program, capfd):
    parser = ArgumentParser()
    run_cpu.create_args(parser)
    assert run_cpu.main(parser.parse_args(["--core-list", str(HERE[0]), program, "a"])) == 0
    assert json.loads(capfd.readouterr().out.partition("]:")[2]) == [[HERE[0]], "1", ["a"]]


@pytest.mark.parametrize(
    ("words", "request_"),
    [
        ((), Request()),
        (("--ninstances", "3", "--ncores_per_instance", "2"), Request(instances=3, cores=2)),
        (("--node-id", "1", "--use-logical-core"), Request(node=1, logical=True)),
        (
            ("--core-list", "0, 2", "--ncores-per-instance", "1"),
            Request(processors=(0, 2), cores=1),
        ),
        (("--latency-mode",), Request(mode="latency")),
        (("--throughput_mode",), Request(mode="throughput")),
        (("--multi-instance",), Request(mode="throughput")),
        (("--multi-instance", "--ninstances", "2"), Request(instances=2)),
        (("--rank", "1", "--skip-cross-node-cores"), Request(rank=1, skip_cross_node=True)),
    ],
)
def test_the_options_say_what_they_say_to_pytorch(words, request_):
    assert options(*words).request == request_


@pytest.mark.parametrize(
    ("words", "bound"),
    [
        ((), (True, True)),
        (("--disable-numactl",), (True, False)),
        (("--disable-taskset",), (True, True)),
        (("--disable-numactl", "--disable_taskset"), (False, False)),
    ],
)
def test_what_is_bound_can_be_chosen(words, bound):
    found = options(*words)
    assert (found.processors, found.memory) == bound


def test_a_rank_of_torchrun_uses_its_part_of_the_cores(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert options().request.part == (3, 4)


@pytest.mark.parametrize(
    ("words", "installed", "expected"),
    [
        ((), {"tcmalloc", "jemalloc"}, ("tcmalloc", "iomp5")),
        ((), {"jemalloc"}, ("jemalloc", "iomp5")),
        (("--disable-iomp",), set(), ()),
        (("--enable_jemalloc",), set(), ("jemalloc", "iomp5")),
        (("--enable-tcmalloc", "--disable_iomp"), set(), ("tcmalloc",)),
        (("--use-default-allocator",), {"tcmalloc"}, ("iomp5",)),
    ],
)
def test_what_is_preloaded(words, installed, expected, monkeypatch):
    monkeypatch.setattr(launching, "find", lambda kind, _: "/x.so" if kind in installed else "")
    assert options(*words).preload == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--latency-mode", "--throughput-mode"), "give --latency-mode or --throughput-mode"),
        (("--enable-tcmalloc", "--enable-jemalloc"), "give --enable-tcmalloc or --enable-jemalloc"),
    ],
)
def test_options_that_contradict_each_other_are_refused(words, message):
    with pytest.raises(InvalidArgumentError, match=message):
        options(*words)


def described(parser):
    """Every option: its spellings, whether it takes a value, its default."""
    return {
        tuple(sorted(action.option_strings)) or action.dest: (action.nargs, action.default)
        for action in parser._actions
        if action.dest != "help"
    }


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_the_options_are_those_of_pytorch(tmp_path):
    code = (
        "import json, sys\n"
        "from argparse import ArgumentParser\n"
        "from torch.backends.xeon.run_cpu import create_args\n"
        "parser = ArgumentParser()\n"
        "create_args(parser)\n"
        "print(json.dumps([[sorted(a.option_strings) or a.dest, a.nargs, a.default]\n"
        "    for a in parser._actions if a.dest != 'help']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "BACKENDCFG_DISABLE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = {
        tuple(names) if isinstance(names, list) else names: (nargs, default)
        for names, nargs, default in json.loads(done.stdout)
    }
    # argparse turns the text "-1" into the number when it parses.
    theirs[("--rank",)] = (None, -1)
    assert described(run_cpu.create_args()) == theirs
