"""`backendcfg trust [PATH]`: let a project's files name libraries and variables."""

from __future__ import annotations

import os

import click

from backendcfg.cli.group import verb
from backendcfg.cli.output import current
from backendcfg.errors import UsageError


@verb(
    "trust",
    "Write",
    interrupted="what was trusted still is, or all of it changed; see `backendcfg trust --list`",
)
@click.argument("path", metavar="[PATH]", type=click.Path(), required=False)
@click.option("--list", "listing", is_flag=True, help="List the trusted files.")
@click.option("--revoke", is_flag=True, help="Trust the files of PATH no longer.")
def command(path: str | None, listing: bool, revoke: bool) -> None:
    """Trust a project's files as they are now, or one file.

    Without PATH it is the project of this folder. A file that changes may not run code any more. A
    plain `python` starts under what the project picks until `--revoke`.
    """
    from backendcfg import session
    from backendcfg.load import trust

    if listing and (revoke or path):
        raise UsageError(
            "`backendcfg trust --list` takes nothing else", helps=["run `backendcfg trust --list`"]
        )
    root = path or os.curdir
    if listing:
        recorded = {file: state(file, digest) for file, digest in trust.recorded().items()}
        lines = [f"{file}{f' ({why})' if why else ''}" for file, why in sorted(recorded.items())]
        document = [{"path": file, "problem": why} for file, why in sorted(recorded.items())]
        current().answer({"trusted": document}, lines or ["no file is trusted"])
    elif revoke:
        files = session.distrust(root)
        lines = [f"{file} is no longer trusted" for file in files]
        current().answer({"revoked": list(files)}, lines or ["no file of it was trusted"])
    else:
        files = session.trust(root)
        current().answer(
            {"trusted": list(files)}, [f"{file} is trusted as it is now" for file in files]
        )


def state(file: str, digest: str) -> str:
    """Why a recorded file is not trusted any more, or "" while it is."""
    from backendcfg.errors import UnreadableFileError
    from backendcfg.load.text import read_text

    try:
        now = read_text(file).digest
    except UnreadableFileError as error:
        return error.message
    return "" if now == digest else "changed since, so it is not trusted"
