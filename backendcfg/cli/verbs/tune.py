"""`backendcfg tune`: measure which library is the fastest here, or what makes a program faster."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from backendcfg.cli.group import Verb, verb
from backendcfg.cli.options import profile_argument
from backendcfg.cli.output import block, current, says_no, table
from backendcfg.errors import UsageError
from backendcfg.resolve.words import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.dispatch.calibration import Table
    from backendcfg.session.tuning import Tuned
    from backendcfg.transact.compiled import Compiled


SECONDS = 60.0
SECONDS_OF_PROGRAM = 600.0
ROUNDS = 3

COMMAND = f"{__name__}.command"
"""Where the context keeps the words after `--`; None where there is no `--`."""


class TuneVerb(Verb):
    """Takes the line apart: `tune [OPTIONS] [PROFILE] [-- COMMAND...]`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remember what stands after `--` in `ctx.meta`: click drops the word."""
        separated = "--" in args
        end = args.index("--") if separated else len(args)
        ctx.meta[COMMAND] = args[end + 1 :] if separated else None
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Those of click, and the command."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


@verb("tune", "Manage", cls=TuneVerb, interrupted="the calibration of before, if any, is as it was")
@profile_argument()
@click.option(
    "--seconds",
    metavar="N",
    type=click.FloatRange(min=1, max=3600),
    help=f"Measure for N seconds at most; {SECONDS:g} unless given, {SECONDS_OF_PROGRAM:g} with"
    " a command.",
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
@click.option(
    "--rounds",
    metavar="N",
    type=click.IntRange(min=1, max=1000),
    help=f"Run the command N times under each choice; {ROUNDS} unless given.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(),
    help="Write the choices that make the command faster to FILE, as a profile.",
)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    name: str | None,
    seconds: float | None,
    noise: float,
    *,
    show: bool,
    rounds: int | None,
    output: str | None,
) -> None:
    """Measure which library is fastest here, or what makes a command faster.

    Libraries by operation, type and size, with the threads and kernels of PROFILE, and those that
    it may use. `backendcfg.ops` goes by it from then on, but under a profile that has a tier. Exits
    with 1 when turns differ too much for the result to be stored.

    With a command, nothing is stored: it is run under PROFILE (else the one in force, else `fast`),
    under none, and under PROFILE with each of a few flags set otherwise.
    """
    words: list[str] | None = ctx.meta[COMMAND]
    _refuse_mixed(ctx, with_command=words is not None)
    if words is not None:
        from backendcfg.cli import choosing
        from backendcfg.cli.sides import check

        current().interrupted = choosing.STATE
        check("tune", name or choosing.USUAL, tuple(words))
        choosing.measure(
            name,
            words,
            rounds=rounds or ROUNDS,
            seconds=seconds or SECONDS_OF_PROGRAM,
            path=output,
        )
        return
    seconds = seconds or SECONDS
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


def _refuse_mixed(ctx: click.Context, *, with_command: bool) -> None:
    """Refuse options of the other form.

    Raises:
        UsageError: one is given.
    """
    options = {"show": "--show", "noise": "--noise"} if with_command else {}
    options = options or {"rounds": "--rounds", "output": "--output"}
    for parameter, option in options.items():
        source = ctx.get_parameter_source(parameter)
        if source is not click.core.ParameterSource.COMMANDLINE:
            continue
        if with_command:
            message, remedy = "is for libraries, not for a command", "leave out the option"
        else:
            message, remedy = "is for a command", "write `backendcfg tune -- python train.py`"
        raise UsageError(f"`{option}` {message}", helps=[remedy])


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
    from backendcfg.session.shell import environment_of_run

    threads = calibration.threads(compiled.values, compiled.asked)
    found = calibration.read(threads, environment_of_run(compiled))
    if isinstance(found, str):
        document = {"profile": compiled.name, "table": None, "unused": found}
        current().answer(document, block("stored", [f"nothing to use: {found}"], "bold"))
        return
    document = _document(compiled, found, calibration.path(threads))
    current().answer(document, _lines(document))


def _document(compiled: Compiled, found: Table, path: str) -> dict[str, Any]:
    """What is stored, and what becomes of it under a profile whose libraries were all open."""
    from backendcfg.dispatch import calibration, speed
    from backendcfg.session.shell import environment_of_run

    usable = calibration.table_for(compiled, environment_of_run(compiled))
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
