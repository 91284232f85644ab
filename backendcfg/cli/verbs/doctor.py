"""`backendcfg doctor`: whether everything that backendcfg rests on works here."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from backendcfg.cli.group import verb
from backendcfg.cli.output import Colour, current, says_no, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backendcfg.cli.examination import Finding

MARKS: dict[str, tuple[str, Colour]] = {
    "fine": ("ok", "green"),
    "note": ("note", "yellow"),
    "wrong": ("wrong", "red"),
}


@verb("doctor", "Manage", tolerant=True)
def command() -> None:
    """Check this installation and list every variable that is read.

    Exits with 1 when something is wrong.
    """
    from backendcfg import environ, session
    from backendcfg.cli.examination import examine
    from backendcfg.schema.profile import flags

    findings = examine(session.detect())
    set_here = {variable.name: variable.read() for variable in environ.VARIABLES}
    derived = {environ.flag_variable(flag): flag for flag in flags()}
    for name in derived:
        if text := environ.current().get(name):
            set_here[name] = text
    document = {
        "findings": [asdict(finding) for finding in findings],
        "variables": [
            {
                "name": variable.name,
                "since": variable.since,
                "summary": variable.summary,
                "value": set_here[variable.name],
            }
            for variable in environ.VARIABLES
        ],
        "flag_variables": derived,
        "set": {name: text for name, text in set_here.items() if text is not None},
    }
    current().answer(document, _lines(findings, set_here))
    if any(finding.state == "wrong" for finding in findings):
        says_no()


def _lines(findings: list[Finding], set_here: Mapping[str, str | None]) -> Iterator[str]:
    from backendcfg import environ
    from backendcfg.cli.wording import counted

    paint = current().paint
    rows = []
    for finding in findings:
        word, colour = MARKS[finding.state]
        rows.append((paint(word, colour), finding.topic, finding.detail))
        rows += [("", "", finding.help)] if finding.help else []
    yield from table(rows)
    yield ""
    yield "variables that are read:"
    variables = [
        (f"  {variable.name}", set_here[variable.name] or "", variable.summary)
        for variable in environ.VARIABLES
    ]
    variables += [
        (f"  {name}", text or "", "sets a flag")
        for name, text in set_here.items()
        if name not in {variable.name for variable in environ.VARIABLES}
    ]
    variables.append(("  BACKENDCFG_<FLAG>", "", "sets a flag, as BACKENDCFG_THREADS_COUNT=4"))
    yield from table(variables)
    yield ""
    wrong = sum(finding.state == "wrong" for finding in findings)
    yield f"{counted(wrong, 'thing')} wrong" if wrong else "nothing is wrong"
