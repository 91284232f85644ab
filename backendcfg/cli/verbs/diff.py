"""`backendcfg diff A B`: the flags in which two profiles differ on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from backendcfg.cli.group import verb
from backendcfg.cli.options import ProfileName, host_option, set_option
from backendcfg.cli.output import current, says_no, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backendcfg.resolve.explain import Difference
    from backendcfg.schema.plan import Plan


@verb("diff", "Look")
@click.argument("first", metavar="A", type=ProfileName())
@click.argument("second", metavar="B", type=ProfileName())
@set_option
@host_option
@click.option("--exit-code", is_flag=True, help="Exit with 1 when they differ.")
def command(
    first: str, second: str, settings: Mapping[str, str], host_file: str | None, exit_code: bool
) -> None:
    """Compare what two profiles mean here, flag by flag."""
    from backendcfg.cli import sources
    from backendcfg.resolve.explain import diff
    from backendcfg.resolve.plan import resolve

    host = sources.host(host_file)
    stacks = [sources.stack(sources.picked(name, settings)) for name in (first, second)]
    a, b = (resolve(stack, host) for stack in stacks)
    different = diff(a, b)
    document = {
        "a": a.name,
        "b": b.name,
        "flags": [{"flag": one.flag, "a": one.left, "b": one.right} for one in different],
    }
    current().answer(document, _lines(a, b, different))
    if exit_code and different:
        says_no()


def _lines(a: Plan, b: Plan, different: tuple[Difference, ...]) -> Iterator[str]:
    from backendcfg.resolve.words import literal

    if not different:
        yield f"{a.name} and {b.name} mean the same on this host"
        return
    rows = []
    for one in different:
        dormant = a.entry(one.flag).idle
        note = f"dormant: {dormant}" if dormant else ""
        rows.append((one.flag, literal(one.left), literal(one.right), note))
    yield from table(rows, ("flag", a.name, b.name, ""))
