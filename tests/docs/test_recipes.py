"""The recipes of docs/recipes are true: what a page shows is written and run, and prints what it says.

A block whose first or second line is a comment with a file's name is that file. Commands follow `$ `, and
what they print follows them; `...` stands for any text, and alone in a line for any lines. Digests
are compared with each other, not with the page's. Docker, Slurm and GitHub are not here: their
files are read, and what they would start is started.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from side_by_side import free_port

TREE = Path(__file__).parents[2]
RECIPES = TREE / "docs" / "recipes"
ACTION = TREE / ".github" / "actions" / "validate" / "action.yml"
HOOKS = TREE / ".pre-commit-hooks.yaml"
MODULES = {
    "backendcfg": "backendcfg",
    "pytest": "pytest",
    "torchrun": "torch.distributed.run",
}
"""Commands on the pages, with the modules that they run: this environment need not be activated."""

pytestmark = pytest.mark.skipif(not RECIPES.exists(), reason="needs the source tree")


def needs(module, name):
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{name} is not installed")


def blocks(page, language):
    text = (RECIPES / f"{page}.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def files(page):
    """The files that the page shows, by name."""
    named = [(re.search(r"\A(?:#!.*\n)?# ([\w.]+)\n", text), text) for text in blocks(page, r"\w+")]
    return {found[1]: text for found, text in named if found}


def commands(page):
    """Each command of the page, with the lines that are shown under it."""
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            yield command, lines


class Shell:
    """A user without settings, in a folder with the files of a page, on at most two processors."""

    def __init__(self, root, page):
        self.folder, names = root / "project", root / "bin"
        self.folder.mkdir()
        names.mkdir()
        for name, text in files(page).items():
            (self.folder / name).write_text(text)
        self.names = names
        self.name("python", sys.executable)
        for name, module in MODULES.items():
            self.name(name, sys.executable, "-m", module)
        self.environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")},
            "HOME": str(root),
            "NO_COLOR": "1",
            "PATH": os.pathsep.join([str(names), os.environ["PATH"]]),
        }
        for name in ("CONFIG", "SYSTEM", "STATE", "CACHE"):
            self.environment[f"BACKENDCFG_{name}_DIR"] = str(root / name.lower())

    def name(self, name, *words):
        """Give a command line a name of its own."""
        shim = self.names / name
        shim.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        shim.chmod(0o755)

    def run(self, command, **variables):
        """What a command line prints, with its exit code where that is not 0."""
        few = sorted(os.sched_getaffinity(0))[:2]
        done = subprocess.run(
            ["bash", "-c", f"exec 2>&1\n{command}"],
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            preexec_fn=lambda: os.sched_setaffinity(0, few),
        )
        return done.stdout + (f"[exit code {done.returncode}]\n" if done.returncode else "")


def digests_numbered(lines):
    """Lines with the first digest as <0>, the next other one as <1>, and so on."""
    numbers = {}
    return [
        re.sub(r"\b[0-9a-f]{16}\b", lambda d: numbers.setdefault(d[0], f"<{len(numbers)}>"), line)
        for line in lines
    ]


def follow(page, run):
    """Run each command of a page, and compare what it prints with what the page shows."""
    shown, printed = [], []
    for command, expected in commands(page):
        shown += [f"$ {command}", *expected]
        printed += [f"$ {command}", *run(command).splitlines()]
    assert shown
    shown, printed = digests_numbered(shown), digests_numbered(printed)
    pattern = "".join(
        r"(?:.*\n)*?" if line == "..." else ".*".join(map(re.escape, line.split("..."))) + r"\n"
        for line in shown
    )
    if not re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)):
        printed = "\n".join(printed)
        pytest.fail(f"docs/recipes/{page}.md says otherwise:\n{printed}", pytrace=False)


@pytest.fixture(name="shell")
def _shell(tmp_path, request):
    return Shell(tmp_path, request.param)


def of(page):
    return pytest.mark.parametrize("shell", [page], indirect=True)


@pytest.mark.slow
@of("pytest")
def test_pytest(shell):
    follow("pytest", shell.run)


@pytest.mark.torch
@needs("torch", "PyTorch")
@of("torchrun")
def test_torchrun(shell):
    def run(command):
        # PyTorch aborts a rank that has done everything now and then, without backendcfg, too.
        # https://github.com/pytorch/pytorch/pull/179291
        for _ in range(4):
            printed = shell.run(command)
            if "terminate called without an active exception" not in printed:
                break
        return printed

    follow("torchrun", run)


@needs("hydra", "Hydra")
@of("hydra")
def test_hydra(shell):
    follow("hydra", shell.run)
    (saved,) = shell.folder.glob("multirun/*/*/0/.hydra/config.yaml")
    assert "numerics: fast" in saved.read_text()
    (loop,) = blocks("hydra", "sh")
    lines = [line for line in shell.run(loop).splitlines() if re.match(r"\S+: \d", line)]
    assert [line.partition(":")[0] for line in lines] == ["reproducible", "fast"]


@pytest.mark.slow
@needs("ipykernel", "ipykernel")
@of("jupyter")
def test_jupyter(shell, monkeypatch):
    from jupyter_client.manager import start_new_kernel

    (spec,) = blocks("jupyter", "json")
    kernels = shell.folder / "kernels" / "reproducible"
    kernels.mkdir(parents=True)
    (kernels / "kernel.json").write_text(spec)
    monkeypatch.setenv("JUPYTER_PATH", str(shell.folder))
    for name, text in shell.environment.items():
        monkeypatch.setenv(name, text)
    (session,) = blocks("jupyter", "pycon")
    *statements, expected = session.replace(">>> ", "").splitlines()
    manager, client = start_new_kernel(startup_timeout=120, kernel_name="reproducible")
    try:
        shown = []
        client.execute_interactive(
            "\n".join(statements),
            timeout=120,
            output_hook=lambda message: shown.append(message["content"]),
        )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    results = [content["data"]["text/plain"] for content in shown if "data" in content]
    assert results == [expected], shown


@pytest.mark.exhaustive
@of("slurm")
def test_slurm(shell):
    """A fake srun: it starts the tasks of one node one after the other, as srun(1) says it names them."""
    script = files("slurm")["train.sbatch"]
    (tasks,) = re.findall(r"^#SBATCH --ntasks-per-node=(\d+)$", script, re.MULTILINE)
    assert re.findall(r"^#SBATCH --nodes=(\d+)$", script, re.MULTILINE) == ["1"]
    (shell.names / "srun").write_text(
        "#!/bin/sh\n"
        f"for task in $(seq 0 {int(tasks) - 1}); do\n"
        f"SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NTASKS={tasks} "
        f'SLURM_STEP_TASKS_PER_NODE={tasks} "$@" || exit\n'
        "done\n"
    )
    (shell.names / "srun").chmod(0o755)
    (printed,) = [text for text in blocks("slurm", "text") if text.startswith("rank 0")]
    assert shell.run("bash train.sbatch") == printed

    # Applied on the login node, which has the same home directory.
    assert "is active" in shell.run("backendcfg apply reproducible")
    applied = shell.run("srun python -c 'import random; print(random.random())'", SLURM_NODEID="0")
    assert set(applied.split()) == {re.findall(r"draw (.*)", printed)[0]}


@pytest.mark.torch
@needs("torch", "PyTorch")
@needs("yaml", "PyYAML")
@of("kubernetes")
def test_kubernetes(shell):
    """The containers of a job, without the cluster: what it resolves the name of a pod to, and its index."""
    import yaml

    service, job = yaml.safe_load_all(files("kubernetes")["train.yaml"])
    spec = job["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    name = f"{job['metadata']['name']}-0.{spec['template']['spec']['subdomain']}"
    assert variables["MASTER_ADDR"] == name
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert (variables["WORLD_SIZE"], spec["completionMode"]) == (
        str(spec["completions"]),
        "Indexed",
    )
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = shlex.join(container["command"])
    ranks = [
        f"JOB_COMPLETION_INDEX={rank} {command} >{rank}.log 2>{rank}.err &" for rank in range(2)
    ]
    printed = shell.run("\n".join([*ranks, "wait"]) + "\ncat 0.log 1.log", **variables)
    (shown,) = blocks("kubernetes", "text")
    assert printed == shown
    refused = shell.run(
        "\n".join([ranks[0], ranks[1].replace("exec", "exec env BACKENDCFG_PROFILE=tf32-off")])
        + "\nwait\ncat 0.err 1.err",
        **variables | {"MASTER_PORT": str(free_port())},
    )
    assert refused.count("FleetDisagreesError: 2 ranks do not compute alike") == 2


class Image:
    """What a Dockerfile makes, in a virtual environment: its RUN lines are run, and then its CMD."""

    def __init__(self, shell, root):
        self.shell, self.root = shell, root
        self.user, self.command = "root", None

    def __call__(self, command):
        words = shlex.split(command)
        assert words[0] == "docker"
        if words[1:] == ["build", "-t", "train", "."]:
            return self.build()
        assert words[1] == "run"
        words = words[2:]
        variables = {}
        while words[0] == "-e":
            name, _, variables[name] = words[1].partition("=")
            words = words[2:]
        assert words[0] == "train"
        return self.run(shlex.join(words[1:] or self.command), **variables)

    def run(self, command, **variables):
        return self.shell.run(
            command,
            HOME=str(self.root / self.user),
            PATH=os.pathsep.join([str(self.root / "env" / "bin"), os.environ["PATH"]]),
            **{
                f"BACKENDCFG_{name}_DIR": str(self.root / self.user / name.lower())
                for name in ("CONFIG", "STATE", "CACHE")
            },
            **variables,
        )

    def build(self):
        printed = ""
        for line in (self.shell.folder / "Dockerfile").read_text().splitlines()[1:]:
            step, _, rest = line.partition(" ")
            if step == "USER":
                self.user = rest
            elif step == "CMD":
                self.command = json.loads(rest)
            elif line == "RUN pip install /dist/*.whl":
                self.install()
            elif step == "RUN" and not rest.startswith("useradd "):
                printed += self.run(rest)
            else:
                assert step in ("FROM", "COPY", "WORKDIR") or rest.startswith("useradd")
        return printed

    def install(self):
        """A new environment with all that this interpreter has, its start-up files among it."""
        venv.create(self.root / "env", symlinks=True)
        (packages,) = (self.root / "env" / "lib").glob("python*/site-packages")
        lines = [f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages()]
        (packages / "all.pth").write_text("".join(lines))
        script = self.root / "env" / "bin" / "backendcfg"
        python = self.root / "env" / "bin" / "python"
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(python))} -m backendcfg "$@"\n')
        script.chmod(0o755)


@pytest.mark.exhaustive
@of("docker")
def test_docker(shell, tmp_path):
    follow("docker", Image(shell, tmp_path))


def git(folder, *words):
    user = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *user, *words], cwd=folder, check=True, capture_output=True)


GOOD = 'schema = 1\nextends = "fast"\n\nthreads.count = 4\n'
BAD = GOOD.replace("threads", "treads")


@pytest.fixture(name="team")
def _team(shell):
    """The shell of a project with a good profile."""
    (shell.folder / "profiles").mkdir()
    (shell.folder / "profiles" / "team.toml").write_text(GOOD)
    (shell.folder / "backendcfg.toml").write_text('profile = "team"\n')
    return shell


@needs("pre_commit", "pre-commit")
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@of("checks")
def test_pre_commit(team, tmp_path):
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    shutil.copy(HOOKS, hooks)
    git(hooks, "init", "-q")
    git(hooks, "add", "-A")
    git(hooks, "commit", "-qm", "hooks")
    git(hooks, "tag", "v0.1.0")
    (config,) = [text for text in blocks("checks", "yaml") if text.startswith("repos:")]
    config = config.replace("https://github.com/OWNER/backendcfg", str(hooks))
    (team.folder / ".pre-commit-config.yaml").write_text(config)
    (team.folder / "other.toml").write_text("treads.count = 4\n")
    git(team.folder, "init", "-q")
    git(team.folder, "add", "-A")
    team.name("pre-commit", sys.executable, "-m", "pre_commit")
    everything = team.run("pre-commit run --all-files")
    assert re.search(r"^backendcfg validate\.+Passed$", everything, re.MULTILINE), everything

    (team.folder / "profiles" / "team.toml").write_text(BAD)
    (shown,) = [text for text in blocks("checks", "text") if text.startswith("backendcfg val")]
    assert team.run("pre-commit run --files profiles/team.toml").strip() == (
        f"{shown.strip()}\n\n[exit code 1]"
    )


@of("checks")
def test_the_action_of_github(team):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    action = yaml.safe_load(ACTION.read_text())
    assert action["runs"]["using"] == "composite"
    install, validate = action["runs"]["steps"]
    assert {step["shell"] for step in (install, validate)} == {"bash"}
    (root,) = re.findall(r'pip install "\$GITHUB_ACTION_PATH/(.*)"', install["run"])
    assert (ACTION.parent / root).resolve() == TREE
    assert team.run(install["run"], GITHUB_ACTION_PATH=str(ACTION.parent)) == (
        f"{team.names}/backendcfg\n"
    )
    assert validate["env"] == {"FILES": "${{ inputs.files }}"}
    assert validate["working-directory"] == "${{ inputs.directory }}"
    assert {name: one["default"] for name, one in action["inputs"].items()} == {
        "files": "",
        "directory": ".",
    }

    def check(files):
        return team.run(validate["run"], FILES=files)

    assert check("") == "backendcfg.toml is valid\nprofiles/team.toml is valid\n"
    (team.folder / "profiles" / "other.toml").write_text(BAD)
    assert check("backendcfg.toml profiles/*m.toml").endswith("team.toml is valid\n")
    assert check("profiles/other.toml").endswith("[exit code 1]\n")
    assert "unknown key `treads`" in check("")

    workflow = yaml.safe_load(next(t for t in blocks("checks", "yaml") if t.startswith("name:")))
    *_, step = workflow["jobs"]["validate"]["steps"]
    assert step["uses"] == "OWNER/backendcfg/.github/actions/validate@v0.1.0"
    assert set(step["with"]) <= set(action["inputs"])


def test_every_recipe_is_in_the_list_and_has_a_test():
    pages = {path.stem for path in RECIPES.glob("*.md")} - {"README"}
    listed = set(re.findall(r"\]\((\w+)\.md\)", (RECIPES / "README.md").read_text()))
    tested = set(re.findall(r'^@of\("(\w+)"\)$', Path(__file__).read_text(), re.MULTILINE))
    assert pages == listed == tested
