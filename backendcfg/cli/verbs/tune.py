"""`backendcfg tune`: measure which library is the fastest here, for our own operations to use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from backendcfg.cli.group import verb
from backendcfg.cli.options import profile_argument
from backendcfg.cli.output import block, current, says_no, table
from backendcfg.resolve.words import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.dispatch.calibration import Table
    from backendcfg.session.tuning import Tuned
    from backendcfg.transact.compiled import Compiled


@verb("tune", "Manage", interrupted="the calibration of before, if any, is as it was")
@profile_argument()
@click.option(
    "--seconds",
    metavar="N",
    type=click.FloatRange(min=1, max=3600),
    default=60.0,
    show_default=True,
    help="Measure for N seconds at most.",
)
@click.option(
    "--noise",
    metavar="PERCENT",
    type=click.FloatRange(min=0),
    default=20.0,
    show_default=True,
    help="Store nothing when turns differ by more than PERCENT.",
)
@click.option(
    "--show", is_flag=True, help="Measure nothing; show what is stored, and whether it is used."
)
def command(name: str | None, seconds: float, noise: float, *, show: bool) -> None:
    """Measure which library is fastest here, by operation, type and size.

    With the threads and kernels of PROFILE, and the libraries that it may use. `backendcfg.ops`
    goes by it from then on, but under a profile that has a tier. Exits with 1 when turns differ too
    much for the result to be stored.
    """
    compiled = _compiled(name)
    if show:
        _show(compiled)
        return
    from backendcfg.session.tuning import tune

    tuned = tune(compiled, seconds, noise / 100)
    document = _document(compiled, tuned.table, tuned.path)
    if not tuned.complete:
        current().note(f"the time of {seconds:g} s was up before every turn was taken")
    if busy := _busy():
        current().note(f"{busy}: measure again when no other program computes")
    for other, why in tuned.absent.items():
        current().note(f"not measured: {other}: {why}")
    document["seconds"] = round(tuned.seconds, 1)
    document["complete"] = tuned.complete
    document["absent"] = tuned.absent
    document["noise"] = round(tuned.noise, 3)
    if not tuned.path:
        document["unused"] = (
            f"turns differ by {100 * tuned.noise:.0f} %, more than {noise:g} %, so it is not "
            "stored; measure again when no other program computes"
        )
    current().answer(document, [*_lines(document), *_end(tuned)])
    if not tuned.path:
        says_no()


def _busy() -> str:
    """What says that other programs are computing, or ""."""
    from backendcfg.probe.limits import read_limits

    usable = read_limits().usable
    load = os.getloadavg()[0]
    if load > 1.5 * usable + 1:
        return f"{load:.0f} programs were computing on {usable} processors"
    return ""


def _compiled(name: str | None) -> Compiled:
    """The plan of a name; without one of the profile in force here, else of none."""
    from backendcfg.session import planning
    from backendcfg.session.choice import chosen

    picked = chosen(name)
    if picked is None:
        return planning.compiled(None, rank="default")
    return planning.compiled_pick(picked)


def _show(compiled: Compiled) -> None:
    from backendcfg.dispatch import calibration

    threads = calibration.threads(compiled.values, compiled.asked)
    found = calibration.read(threads)
    if isinstance(found, str):
        document = {"profile": compiled.name, "table": None, "unused": found}
        current().answer(document, block("stored", [f"nothing to use: {found}"], "bold"))
        return
    document = _document(compiled, found, calibration.path(threads))
    current().answer(document, _lines(document))


def _document(compiled: Compiled, found: Table, path: str) -> dict[str, Any]:
    """What is stored, and what becomes of it under a profile whose libraries were all open."""
    from backendcfg.dispatch import calibration, speed

    usable = calibration.table_for(compiled)
    names = [name for name in compiled.named or compiled.order if name in found.libraries]
    decision = speed.decide(found, names) if names else speed.Decision()
    return {
        "profile": compiled.name,
        "path": path,
        "unused": usable if isinstance(usable, str) else "",
        "fastest": {
            operation: {
                size: min(row, key=lambda name: row[name].seconds) for size, row in sizes.items()
            }
            for operation, sizes in found.times.items()
        },
        "chosen": decision.fastest,
        "threads_of": decision.pool,
        "table": found.to_dict(),
    }


def _lines(document: dict[str, Any]) -> Iterator[str]:
    from backendcfg.dispatch.calibration import Table, in_words

    found = Table.from_dict(document["table"])
    yield from block("stored", [document["path"]] if document["path"] else [], "bold")
    yield from block(
        "measured", [f"{found.day} with {in_words(found.threads)} on {found.processor}"], "bold"
    )
    for name, library in found.libraries.items():
        version = f" {library.version}" if library.version else ""
        yield from block("", [f"{name}{version}: {library.path}"])
    used = document["unused"] or "yes, where no profile or one without a tier is in force"
    yield from block("used", [f"no: {used}" if document["unused"] else used], "bold")
    if document["threads_of"]:
        yield from block(
            "threads", [f"{document['threads_of']}'s compute every size that is worth them"], "bold"
        )
    yield ""
    yield from table(
        list(_rows(found, document["chosen"])),
        ["operation", "size", "fastest", "chosen", "took"],
    )


def _rows(found: Table, chosen: dict[str, dict[int, str]]) -> Iterator[tuple[str, ...]]:
    """One row for each operation and size: the fastest, the chosen one, and what each took."""
    for operation, sizes in found.times.items():
        for size, row in sorted(sizes.items()):
            took = sorted(row.items(), key=lambda entry: entry[1].seconds)
            yield (
                operation,
                _size(operation, size),
                took[0][0],
                chosen.get(operation, {}).get(size, "-"),
                ", ".join(f"{name} {duration(one.seconds)}" for name, one in took),
            )


def _size(operation: str, size: int) -> str:
    """The square case that was measured for a class."""
    dimensions = 2 if operation.endswith("gemv") else 3
    return f"n = {round(2 ** (size / dimensions))}"


def _end(tuned: Tuned) -> Iterator[str]:
    if not tuned.path:
        return
    yield ""
    yield from block("next", ["processes that start from now on use it; docs/tuning.md"], "bold")
