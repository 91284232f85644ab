"""`backendcfg schema WHICH`: the JSON Schema of a document, for editors and other tools."""

from __future__ import annotations

import json

import click

from backendcfg.cli.group import verb
from backendcfg.cli.output import current

DOCUMENTS = ("profile", "settings", "host", "plan")


@verb("schema", "Write profiles")
@click.argument("which", metavar="[DOCUMENT]", type=click.Choice(DOCUMENTS), default="profile")
def command(which: str) -> None:
    """Print the JSON Schema of a kind of document.

    DOCUMENT is profile, which is the default, or settings, host or plan.
    """
    from backendcfg.schema.export import json_schema

    text = json_schema(which)
    current().answer(json.loads(text), text.splitlines(), exact=True)
