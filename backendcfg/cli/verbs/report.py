"""`backendcfg report RESULTS FILE`: the report of what `prove`, `compare` or `verify` found."""

from __future__ import annotations

import click

from backendcfg.cli.group import verb
from backendcfg.cli.options import refuse_unwritable, write_report


@verb("report", "Prove", interrupted="the report is as it was before")
@click.argument("results", metavar="RESULTS", type=click.Path())
@click.argument("path", metavar="FILE", type=click.Path())
def command(results: str, path: str) -> None:
    """Write a report of earlier results, as a page of HTML.

    RESULTS is a file with what `backendcfg --json prove`, `compare` or `verify` printed. The page
    needs no other file, loads nothing and runs no script.
    """
    from backendcfg.audit.report import page
    from backendcfg.audit.report.data import evidence

    page.check()
    refuse_unwritable(path, "report", page.MARK, "FILE")
    write_report(evidence(results), path)
