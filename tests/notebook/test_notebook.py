"""`%profile` and `%%profile` in a real kernel, and the notebook in docs/."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("ipykernel")
pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

from kernels import NOTEBOOK, Kernel  # noqa: E402


@pytest.fixture(name="running", scope="module")
def _running(tmp_path_factory):
    with Kernel(tmp_path_factory.mktemp("kernel")) as kernel:
        yield kernel


AS_AT_FIRST = """\
%unload_ext backendcfg
import backendcfg
while backendcfg.active():
    backendcfg.undo()
get_ipython().ast_node_interactivity = "last_expr"
"""


@pytest.fixture(name="kernel")
def _kernel(running):
    """The kernel of this module, as it was at first."""
    running.shows(AS_AT_FIRST)
    return running


NONE = "no profile is in force in this kernel"
FAST = "`fast` is in force in this kernel\n"
FOR_GOOD = "irreversible: `malloc.keep_freed` (the value it had cannot be written back)"
NAME = "getattr(__import__('backendcfg').active(), 'name', None)"


def test_profile_puts_a_profile_in_force_and_off_takes_it_back(kernel):
    shown = kernel.shows(
        "%load_ext backendcfg",
        "%profile",
        "%profile fast",
        "%profile tf32-off",
        "%profile",
        "%profile off",
        "%profile off",
        "import backendcfg; backendcfg.apply('fast'); None",
        "%profile tf32-off",
        "%profile off",
    )
    assert shown == [
        "",
        f"{NONE}; `%profile NAME` puts one in force\n",
        FAST.replace("\n", f"; {FOR_GOOD}\n"),
        "`tf32-off` is in force in this kernel\n",
        "Active(name='tf32-off', tier='none', source='backendcfg.apply', scoped=False)\n",
        f"{NONE}\n",
        f"`%profile` has nothing to take back; {NONE}\n",
        "",
        "`tf32-off` is in force in this kernel\n",
        FAST,
    ]


def test_a_name_may_be_quoted_and_a_comment_may_follow(kernel):
    shown = kernel.shows(
        "%load_ext backendcfg",
        "%profile 'tf32-off'  # for the plots",
        "%profile off # again",
        f'%%profile "tf32-off" # only here\n{NAME}',
        f"%%profile tf32-off # only here\n{NAME}",
        "%profile # which?",
    )
    in_force = "`tf32-off` is in force in this kernel\n"
    there = "'tf32-off'\n"
    none = f"{NONE}; `%profile NAME` puts one in force\n"
    assert shown == ["", in_force, f"{NONE}\n", there, there, none]


def test_what_is_pending_is_said_in_one_line(kernel):
    _, pending, scope = kernel.shows(
        "%load_ext backendcfg", "%profile reproducible", f"%%profile reproducible\n{NAME}"
    )
    assert re.fullmatch(
        "`reproducible` is in force in this kernel, its tier `run-to-run` is not;"
        r" pending: .*`PYTHONHASHSEED`.* \(this interpreter has started\);"
        " run `!backendcfg apply reproducible` and restart the kernel\n",
        pending,
    )
    assert scope == "'reproducible'\n"


@pytest.mark.slow
def test_a_kernel_that_starts_under_the_profile_has_nothing_pending(tmp_path):
    with Kernel(tmp_path, BACKENDCFG_PROFILE="reproducible") as kernel:
        shown = kernel.shows("%load_ext backendcfg", "%profile reproducible", "%profile off")
    in_force = "`reproducible` is in force in this kernel\n"
    assert shown == ["", in_force, in_force]


def test_a_cell_is_a_scope_whatever_ends_it(kernel):
    ends = {
        f"{NAME}": "'fast'",
        "1 / 0": "ZeroDivisionError",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)": "KeyboardInterrupt",
        f"import asyncio; await asyncio.sleep(0, {NAME})": "'fast'",
        "os.kill(os.getpid(), signal.SIGINT); await asyncio.sleep(60)": "CancelledError",
        "await asyncio.sleep(0); 1 / 0": "ZeroDivisionError",
        "import sys; sys.exit()": "SystemExit",
    }
    cells = [cell for body in ends for cell in (f"%%profile fast\n\n{body}", NAME)]
    _, _, *shown = kernel.shows("%load_ext backendcfg", "%profile tf32-off", *cells)
    for end, expected in zip(shown[::2], ends.values(), strict=True):
        assert expected in end
    assert shown[1::2] == ["'tf32-off'\n"] * len(ends)


def test_a_cell_shows_what_it_would_show_without_the_scope(kernel):
    magic = "get_ipython()"
    shown = kernel.shows(
        "%load_ext backendcfg",
        "%%profile fast\nthrice = '''a\n  b''' * 3\n1\nthrice",
        "_ == thrice",
        "%%profile fast\nthrice;",
        "%%profile fast\n# nothing",
        f"%%profile {{'fa' + 'st'}}\n%%time\n{NAME}",
        f"%%capture out\n%%profile fast\nprint({NAME})",
        "out.stdout",
        f"{magic}.run_cell_magic('profile', 'fast', \"{NAME}\")",
        f"{magic}.ast_node_interactivity = 'all'",
        "%%profile fast\n1\n2",
        f"{magic}.ast_node_interactivity = 'none'",
        "%%profile fast\n1\n2",
        f"print({magic}.input_transformer_manager.check_complete('%%profile fast\\n1'))",
    )
    assert shown[1:5] == ["'a\\n  ba\\n  ba\\n  b'\n", "True\n", "", ""]
    assert shown[5].endswith("'fast'\n")
    assert shown[6:] == [
        "",
        "'fast\\n'\n",
        "'fast'\n",
        "",
        "1\n2\n",
        "",
        "",
        "('incomplete', 0)\n",
    ]


def test_an_error_of_the_package_is_its_message(kernel):
    shown = kernel.shows(
        "import backendcfg\ndef deep(n):\n    return deep(n - 1) if n else backendcfg.ops.matmul([1], 2)",
        "deep(0)",
        "deep(30)",
        "%load_ext backendcfg",
        "%profile fsat",
        "%%profile fsat\n1",
        "%%profile\n1",
        "with backendcfg.profile('tf32off'):\n    pass",
    )
    message = (
        "error[invalid-argument]: matmul: `a` must be an array, not list\n"
        "  state: nothing was computed\n"
        "  help: pass `numpy.asarray(x)`\n"
        "  at: line 1 of a cell: deep({})\n"
    )
    where = "  at: line 3 of a cell: return deep(n - 1) if n else backendcfg.ops.matmul([1], 2)"
    assert shown[1:3] == [
        message.format(0) + where,
        message.format(30) + f"  ...\n{where}\n{where}",
    ]
    for cell, near, line in (
        (4, "fast", "get_ipython().run_line_magic('profile', 'fsat')"),
        (5, "fast", "'%%profile fsat'"),
        (7, "tf32-off", "with backendcfg.profile('tf32off'):"),
    ):
        first, *_, nearest, place = shown[cell].splitlines()
        assert first.startswith("error[unknown-profile]: profile `")
        assert nearest == f"  help: did you mean `{near}`?"
        assert place == f"  at: line 1 of a cell: {line}"
    assert shown[6].startswith('error[invalid-value]: "" is not the name of a profile\n')


def test_what_was_there_before_comes_back_with_unload(kernel):
    state = (
        "shell = get_ipython(); found = shell.magics_manager.magics;"
        " print(found['line'].get('profile'), found['cell'].get('profile'),"
        " shell.input_transformers_cleanup[4:], shell.ast_transformers)"
    )
    before, *_, kept, after, again, once_more = kernel.shows(
        state,
        "%load_ext backendcfg",
        "%profile fast",
        "%unload_ext backendcfg\n" + NAME,
        state,
        "%reload_ext backendcfg\n%reload_ext backendcfg\n%profile off",
        "%profile",
    )
    assert kept == "'fast'\n"
    assert after == before
    assert again == once_more.partition(";")[0] + "\n" == "no profile is in force in this kernel\n"


@pytest.mark.slow
def test_the_notebook_in_docs_shows_what_it_shows(tmp_path):
    committed = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(committed)
    with Kernel(tmp_path) as kernel:
        done = kernel.run(committed.cells)
    for was, now in zip(committed.cells, done, strict=True):
        assert was.get("execution_count") == now.get("execution_count")
        if "this-machine" in was.metadata.get("tags", []):
            before, after = ([sorted(one.data) for one in cell.outputs] for cell in (was, now))
            assert before == after == [["text/html", "text/plain"]]
        else:
            assert was.get("outputs") == now.get("outputs")
