"""`backendcfg validate FILE...`: everything that is wrong with profile and settings files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from backendcfg.cli.group import verb
from backendcfg.cli.output import current
from backendcfg.errors import BackendCfgError, SeveralErrors

if TYPE_CHECKING:
    from collections.abc import Iterator


@verb("validate", "Write profiles")
@click.argument("files", metavar="FILE...", type=click.Path(), nargs=-1, required=True)
def command(files: tuple[str, ...]) -> None:
    """Check profile and settings files, every fault of each at once.

    A file named backendcfg.toml, config.toml or pyproject.toml is read as settings, any other as
    a profile. Exits with 2 when one is wrong.
    """
    from backendcfg.load.document import read_any

    faults: list[BackendCfgError] = []
    for path in files:
        try:
            read_any(path)
        except BackendCfgError as error:
            faults.append(error)
    if len(faults) == 1:
        raise faults[0]
    if faults:
        each = [one for fault in faults for one in _each(fault)]
        raise SeveralErrors(f"{len(each)} errors in {len(faults)} files", errors=each)
    current().answer({"files": list(files), "valid": True}, _lines(files))


def _each(error: BackendCfgError) -> tuple[BackendCfgError, ...]:
    return error.errors if isinstance(error, SeveralErrors) else (error,)


def _lines(files: tuple[str, ...]) -> Iterator[str]:
    for path in files:
        yield f"{path} is valid"
