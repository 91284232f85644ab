"""IPython and Jupyter: `%load_ext backendcfg` brings `%profile NAME` and `%%profile NAME`.

IPython hands its shell in; nothing here imports it before. A cell under `%%profile` is compiled as
the body of a `with`. A magic that ran the cell by itself could not `await` at its top level, and
IPython's events of a cell's end do not run in the context that an awaiting cell has.
"""

from __future__ import annotations

import ast
import re
import warnings

from backendcfg import environ
from backendcfg.errors import PendingWarning
from backendcfg.session import installed
from backendcfg.session.process import apply, undo
from backendcfg.session.view import active
from backendcfg.transact.outcome import listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from backendcfg.session.view import Active
    from backendcfg.transact.outcome import Report

NAME = "profile"
"""The name of both magics."""

_FIRST_LINE = re.compile(rf"%%{NAME}(?:[ \t]+(.*))?")

_QUOTED = re.compile(r"(?P<quote>[\"'])(?P<name>.*?)(?P=quote)(?:\s*#.*)?")

_extension: Extension | None = None
_applied_before: int | None = None
"""How many profiles were applied before the first `%profile NAME`; None where there was none."""


def load_ipython_extension(shell: Any) -> None:
    """Add the magics to a shell; IPython calls it for `%load_ext backendcfg`."""
    global _extension
    if _extension is None:
        _extension = Extension(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics; the profile that `%profile` put in force stays in force."""
    global _extension
    if _extension is not None:
        _extension.remove()
        _extension = None


class Extension:
    """The magics of one shell."""

    def __init__(self, shell: Any) -> None:
        """Register them; what had their names before comes back with `remove`."""
        self.shell = shell
        self._magics = shell.magics_manager.magics
        self._earlier = {kind: found.get(NAME) for kind, found in self._magics.items()}
        shell.register_magic_function(self.profile, "line_cell", NAME)
        shell.input_transformers_cleanup.append(_first_line_as_text)
        shell.ast_transformers.append(self)

    def remove(self) -> None:
        """Leave the shell as it was."""
        self.shell.input_transformers_cleanup.remove(_first_line_as_text)
        self.shell.ast_transformers.remove(self)
        for kind, magic in self._earlier.items():
            if magic is None:
                del self._magics[kind][NAME]
            else:
                self._magics[kind][NAME] = magic

    def profile(self, line: str, cell: str | None = None) -> Active | None:
        """Compute under a profile of backendcfg.

        `%profile NAME` puts it in force in this kernel, and says what is pending. `%profile` shows
        the profile in force, `%profile off` goes back to what was in force before the first
        `%profile NAME`. `%%profile NAME` at the top of a cell is `with backendcfg.profile(NAME):`
        over the cell. NAME is a profile, several joined by `+`, or a path to a file.
        """
        name = _name(line)
        if cell is not None:  # called by another magic; IPython's own cells come through `visit`
            self.shell.run_cell(f"%%{NAME} {name}\n{cell}")
        elif name == "off":
            print(self._off())
        elif name:
            print(self._apply(name))
        elif (found := active()) is not None:
            return found
        else:
            print(f"{_NONE}; `%{NAME} NAME` puts one in force")
        return None

    def _apply(self, name: str) -> str:
        global _applied_before
        if environ.disabled():
            return f"BACKENDCFG_DISABLE turns backendcfg off: `{name}` is not in force"
        before = installed.depth()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PendingWarning)  # the line below says the same
            report = apply(name)
        if _applied_before is None:
            _applied_before = before
        return _sentence(report)

    def _off(self) -> str:
        global _applied_before
        depth = installed.depth() if _applied_before is None else _applied_before
        report, told = installed.report(), f"`%{NAME}` has nothing to take back; "
        while installed.depth() > depth:
            report, told = undo(), ""
        _applied_before = None
        return told + (_NONE if report is None else _sentence(report))

    def visit(self, node: ast.AST) -> ast.AST:
        """The code of a cell, as the body of a scope if its first line says so; IPython calls this.

        The first line is a statement by now: a text, as tracebacks show it.
        """
        match node:
            case ast.Module(body=[ast.Expr(value=ast.Constant(value=str(text))) as first, *body]):
                found = _FIRST_LINE.fullmatch(text)
            case _:
                return node
        if found is None:
            return node
        for statement in self._shown(body):
            statement.value = _call("get_ipython().displayhook", statement.value)
        name = _call("get_ipython().var_expand", ast.Constant(_name(found[1] or "")))
        scope = ast.withitem(_call("__import__('backendcfg').profile", name))
        node.body = [ast.copy_location(ast.With(items=[scope], body=body or [ast.Pass()]), first)]
        return node

    def _shown(self, body: list[ast.stmt]) -> list[ast.Expr]:
        """The expressions whose values the cell shows: IPython looks for them outside blocks."""
        mode = self.shell.ast_node_interactivity
        last = {"all": body, "none": []}.get(mode, body[-1:])
        return [statement for statement in last if isinstance(statement, ast.Expr)]


_NONE = "no profile is in force in this kernel"


def _name(line: str) -> str:
    """What stands after a magic, without a comment, and without quotes around all of it."""
    line = line.strip()
    if (found := _QUOTED.fullmatch(line)) is not None:
        return found["name"]
    return re.split(r"(?:^|\s)#", line)[0].rstrip()


def _call(function: str, argument: ast.expr) -> ast.Call:
    return ast.Call(ast.parse(function, mode="eval").body, [argument], [])


def _first_line_as_text(lines: list[str]) -> list[str]:
    """A cell that begins with `%%profile NAME`, with that line as a statement that does nothing."""
    first = lines[0].rstrip() if lines else ""
    if not _FIRST_LINE.fullmatch(first):
        return lines
    from IPython.core import inputtransformer2

    as_usual: Callable[[list[str]], list[str]] = inputtransformer2.cell_magic
    return [f"{first!r}\n", *as_usual(lines[1:])]


# IPython then takes the cell for complete where it takes that of any other magic for complete.
_first_line_as_text.has_side_effects = True  # type: ignore[attr-defined]


def _sentence(report: Report) -> str:
    """What is in force, and what of it is not, in one line."""
    if report.profile == "none" and not installed.depth():
        parts = [_NONE]
    elif report.tier != "none" and not report.in_force:
        parts = [f"`{report.profile}` is in force in this kernel, its tier `{report.tier}` is not"]
    else:
        parts = [f"`{report.profile}` is in force in this kernel"]
    missing: dict[tuple[str, str], list[str]] = {}
    for one in report.outcomes:
        if one.state not in ("set", "unchanged", "dormant") and one.flag not in report.dormant:
            missing.setdefault((one.state, one.because), []).append(one.switch)
    for (state, because), switches in missing.items():
        parts.append(f"{state}: {listed(switches)} ({because})")
    if any(state == "pending" for state, _ in missing):
        parts.append(f"run `!backendcfg apply {report.profile}` and restart the kernel")
    return "; ".join(parts)
