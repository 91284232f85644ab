"""`backendcfg validate [FILE...]`: everything that is wrong with profile and settings files."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from backendcfg.cli.group import verb
from backendcfg.cli.options import host_option
from backendcfg.cli.output import current, says_no
from backendcfg.errors import UnreadableFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.errors import BackendCfgError
    from backendcfg.session.project import Checked


DOCUMENTS = ("profile", "settings", "host", "plan")


@verb("validate", "Write")
@click.argument("files", metavar="[FILE...]", type=click.Path(), nargs=-1)
@host_option
@click.option(
    "--schema",
    metavar="DOCUMENT",
    type=click.Choice(DOCUMENTS),
    is_flag=False,
    flag_value="profile",
    help="Print the JSON Schema of a profile, or of DOCUMENT: settings, host or plan.",
)
def command(files: tuple[str, ...], host_file: str | None, schema: str | None) -> None:
    """Check profile and settings files, every fault of each at once.

    Without FILE, those of this project. A file named backendcfg.toml, config.toml or pyproject.toml
    is read as settings, any other as a profile: with the profiles that it extends, and whether its
    flags fit together on this machine. Exits with 1 when one is wrong. `--schema` is for editors,
    which check while you write.
    """
    from backendcfg.cli import sources
    from backendcfg.cli.wording import no_project
    from backendcfg.environ import OWN_IT
    from backendcfg.session import project

    if schema is not None:
        _print_schema(schema, files)
        return
    files = files or project.files()
    if not files:
        unowned = no_project()
        raise UsageError(
            "no file is named, and this folder is in no project",
            notes=unowned,
            helps=[
                "name files: `backendcfg validate mine.toml`",
                OWN_IT if unowned else "or run `backendcfg init`",
            ],
        )
    host = sources.host(host_file)
    checked = [project.check(path, host) for path in files]
    by_file = _faults(checked)
    faults = [error for each in by_file.values() for error in each]
    if unreadable := next((one for one in faults if isinstance(one, UnreadableFileError)), None):
        raise unreadable
    document = {
        "files": list(files),
        "valid": not faults,
        "faults": [error.to_dict() for error in faults],
        "obstacles": [error.to_dict() for one in checked for error in one.obstacles],
    }
    current().answer(document, _lines(checked))
    if faults:
        if not current().as_json:
            _complain(by_file)
        says_no()


def _print_schema(document: str, files: tuple[str, ...]) -> None:
    from backendcfg.schema.export import json_schema

    if files:
        raise UsageError(
            "`backendcfg validate --schema` takes no file",
            helps=["write `backendcfg validate --schema profile` for the schema of a profile"],
        )
    text = json_schema(document)
    current().answer(json.loads(text), text.splitlines(), exact=True)


def _faults(checked: list[Checked]) -> dict[str, list[BackendCfgError]]:
    """The faults by file, each once: whoever picks or extends a file has its faults, too."""
    found: dict[str, list[BackendCfgError]] = {one.path: [] for one in checked}
    files = {os.path.abspath(path): path for path in found}
    told = set()
    for one in checked:
        for error in one.faults:
            text = json.dumps(error.to_dict())
            if text not in told:
                told.add(text)
                place = os.path.abspath(error.spans[0].path) if error.spans else ""
                found[files.get(place, one.path)].append(error)
    return {path: each for path, each in found.items() if each}


def _complain(by_file: dict[str, list[BackendCfgError]]) -> None:
    """Every fault on standard error, and how many there are."""
    from backendcfg.cli.main import show
    from backendcfg.resolve.words import counted

    for error in (error for each in by_file.values() for error in each):
        show(error, current())
        current().note("")
    count = sum(map(len, by_file.values()))
    where = next(iter(by_file)) if len(by_file) == 1 else f"{len(by_file)} files"
    current().note(f"{counted(count, 'error')} in {where}")


def _lines(checked: list[Checked]) -> Iterator[str]:
    for one in checked:
        if one.faults:
            continue
        yield f"{one.path} is valid"
        for error in one.obstacles:
            yield f"  but cannot be used here: {error.message}"
