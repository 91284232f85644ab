"""`backendcfg purge`: everything that backendcfg keeps outside its package, shown or removed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from backendcfg.cli.group import verb
from backendcfg.cli.output import block, current

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from backendcfg.session.shell import Kept

MEANS = {
    "state": "what is active, and what was",
    "cache": "made again when it is needed",
    "code": "what PyTorch compiled under profiles; made again when it is needed",
    "trust": "which projects' files you trust",
    "start-up": "whether plain `python` obeys",
}


@verb("purge", "Manage", tolerant=True, interrupted="what it removed before is gone")
@click.option("--yes", is_flag=True, help="Remove it.")
def command(*, yes: bool) -> None:
    """Show everything that backendcfg keeps; with `--yes`, remove it.

    That is the state, the cache, the code that PyTorch compiled under profiles, the record of trust
    and the start-up files of this environment. Settings and profiles that you wrote stay.
    """
    from backendcfg.load.locations import user_dir
    from backendcfg.session import shell

    found = shell.kept()
    if yes:
        shell.remove(found)
    document = {"kept": [asdict(one) for one in found], "removed": yes}
    current().answer(document, _lines(found, str(user_dir()), removed=yes))


def _lines(found: Sequence[Kept], own: str, *, removed: bool) -> Iterator[str]:
    from backendcfg.resolve.words import counted, size

    if not found:
        yield "nothing is kept"
        return
    if removed:
        yield from (f"removed {one.path}" for one in found)
        yield from block("next", ["pip uninstall backendcfg"], "bold")
        return
    for kind, means in MEANS.items():
        paths = [
            f"{one.path} ({counted(one.files, 'file')}, {size(one.bytes)})"
            for one in found
            if one.kind == kind
        ]
        yield from block(kind, [*paths, means] if paths else [], "bold")
    yield from block("not ours", [f"{own}: settings and profiles that you wrote stay"], "bold")
    yield from block("next", ["backendcfg purge --yes"], "bold")
