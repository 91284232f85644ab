"""`backendcfg explain FLAG`: its value, who set it, what that hides; or which flags there are.

`backendcfg explain OPERATION`: whose code computes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from backendcfg.cli.group import verb
from backendcfg.cli.options import FlagName, ProfileName, host_option, set_option
from backendcfg.cli.output import block, current, table
from backendcfg.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backendcfg.schema.base import FlagField
    from backendcfg.schema.plan import Plan


CALIBRATED = ("blas.library", "ops.calibration")
"""Flags that decide, together with the calibration, which library computes."""


@verb("explain", "Look")
@click.argument("words", metavar="[FLAG | WORDS...]", type=FlagName(), nargs=-1)
@click.option(
    "--profile",
    "name",
    metavar="PROFILE",
    type=ProfileName(),
    help="Explain it under PROFILE instead of the one in force here.",
)
@set_option
@host_option
def command(
    words: tuple[str, ...], name: str | None, settings: Mapping[str, str], host_file: str | None
) -> None:
    """Say where the value of a flag comes from, and what the flag does.

    Other WORDS find flags by name, by PyTorch's names, by variable or by what they do: `explain
    tf32`, `explain deterministic algorithms`. Without any, list every flag. The name of an
    operation, as `torch.mm` or `np.matmul`, is run: it says whose code computes it here.
    """
    from backendcfg.cli import sources
    from backendcfg.resolve.explain import explain_flag, find_flags
    from backendcfg.schema.profile import flags
    from backendcfg.session.choice import chosen
    from backendcfg.session.planning import compiled_pick

    asked = " ".join(words)
    found = find_flags(asked) if words else tuple(flags())
    # Of the routes, those of products are called as the operation is.
    is_route = found == (f"route.{asked}",) and asked.endswith(".matmul")
    is_operation = is_route or not (found or _near(asked, 0.8))
    if is_operation and (operation := _operation(asked)):
        if settings or host_file is not None:
            raise UsageError(
                f"`--set` and `--host` are for flags, and `{operation}` is an operation",
                helps=[f"name a profile: `backendcfg explain {operation} --profile fast`"],
            )
        # What is wrong with the profile is told here, and not by the process that computes.
        if name is not None:
            sources.plan(name, {}, None)
        elif (picked := chosen()) is not None:
            compiled_pick(picked)
        _explain_operation(operation, name)
        return
    if not found:
        raise unknown_flag(asked)
    if len(found) > 1:
        summaries = {name: flags()[name].flag.summary for name in found}
        current().answer(summaries, table(list(summaries.items())))
        return
    flag = found[0]
    plan = sources.plan(name, settings, host_file)
    document = _document(flags()[flag], plan)
    if flag in CALIBRATED and host_file is None:
        document["calibration"] = _calibration(plan)
    current().answer(document, _lines(flags()[flag], explain_flag(plan, flag), document))


def _operation(asked: str) -> str:
    """The whole name of what may be an operation of a package that computes; "" for anything else.

    >>> _operation("np.matmul"), _operation("torch.matmul"), _operation("threads.cuont")
    ('numpy.matmul', 'torch.mm', '')
    """
    from backendcfg.catalogue.frameworks import BY_NAME, JAX, NUMPY, TORCH

    short = {"np": NUMPY.name, "F": f"{TORCH.name}.nn.functional", "jnp": f"{JAX.name}.numpy"}
    head, _, rest = asked.partition(".")
    name = f"{short.get(head, head)}.{rest}"
    known = name.partition(".")[0] in (*BY_NAME, "ops")
    if name == f"{TORCH.name}.matmul":  # what computes it
        return f"{TORCH.name}.mm"
    return name if known and rest.replace(".", "_").isidentifier() else ""


def _explain_operation(operation: str, profile: str | None) -> None:
    """Say whose code computes an operation in a process that this shell starts."""
    from backendcfg import childprocess, environ
    from backendcfg.schema.profile import flags

    environment = environ.copy()
    if profile is not None:
        environment[environ.PROFILE.name] = profile
    found = childprocess.testimony(
        "backendcfg.audit.evidence.served",
        environment,
        task=f"the process that computes `{operation}`",
        remedy="call `backendcfg.verify(measure=True)` in the program that you care about",
        name=operation,
    )
    if not found["served"]:
        package, last = operation.partition(".")[0], operation.rpartition(".")[2]
        route = f"route.{package}.{last}"
        raise UsageError(
            f"`{operation}` is neither a flag nor an operation that is measured",
            helps=[
                *([f"run `backendcfg explain {route}`"] if route in flags() else []),
                f"those of its package are {', '.join(found['known'])}"
                if found["known"]
                else "run `backendcfg verify --measure` for those that are",
            ],
        )
    known = {key: found[key] for key in ("profile", "served")}
    current().answer({"operation": operation, **known}, _served(operation, found))


def _served(operation: str, found: Mapping[str, Any]) -> Iterator[str]:
    under = f"under profile `{found['profile']}`" if found["profile"] else "without a profile"
    yield current().paint(f"{operation} on the CPU, {under}", "bold")
    rows = [
        (dtype, who["library"], f"{100 * who['part']:.0f} %", who["kernel"])
        if who
        else (dtype, "not known", "", "")
        for dtype, who in found["served"].items()
    ]
    yield from table(rows, ("dtype", "served by", "samples", "function"))


def _calibration(plan: Plan) -> dict[str, Any]:
    """Whether our own operations go by measured speed under a plan for this machine."""
    from backendcfg.cli.wording import calibrated
    from backendcfg.transact.compiled import Asked, compile_plan

    return calibrated(compile_plan(plan, {}, Asked()))


def _near(words: str, cutoff: float) -> list[str]:
    """The flag whose name is nearest to what was given, if one is as near as that: 1 is equal."""
    import difflib

    from backendcfg.schema.profile import flags

    return difflib.get_close_matches(words, list(flags()), n=1, cutoff=cutoff)


def unknown_flag(words: str) -> Exception:
    """The error for words that lead to no flag."""
    from backendcfg.errors import UnknownFlagError

    return UnknownFlagError(
        f"no flag has `{words}` in its name, in PyTorch's name for it or in what it does",
        helps=[
            *(f"did you mean `{name}`?" for name in _near(words, 0.6)),
            "run `backendcfg explain` to list every flag",
        ],
    )


def _targets(declared: FlagField) -> list[str]:
    """The flags that a legacy spelling stands for; the flag itself where it is none."""
    spelled = [flag for values in declared.flag.spells.values() for flag in values]
    return list(dict.fromkeys(spelled)) or [declared.name]


def _document(declared: FlagField, plan: Plan) -> dict[str, Any]:
    from backendcfg.environ import flag_variable

    entries = [plan.entry(flag) for flag in _targets(declared)]
    return {
        "flag": declared.name,
        "summary": declared.flag.summary,
        "readers": list(declared.flag.readers),
        "needs": list(declared.flag.needs),
        "source": declared.flag.source,
        "variable": flag_variable(declared.name),
        "default": declared.default,
        "entries": [entry.model_dump(mode="json") for entry in entries],
        "choices": [
            choice.model_dump(mode="json")
            for choice in plan.choices
            if choice.flag in _targets(declared)
        ],
    }


def _lines(
    declared: FlagField, lines: tuple[str, ...], document: Mapping[str, Any]
) -> Iterator[str]:
    from backendcfg.environ import flag_variable
    from backendcfg.resolve.words import listed, literal
    from backendcfg.schema.describe import Kind, words

    if declared.flag.spells:
        yield f"{declared.name} is an older spelling of {listed(_targets(declared))}"
    for line in lines:
        yield line if line.startswith(" ") else current().paint(line, "bold")
    yield ""
    yield from block("does", [declared.flag.summary], "bold")
    yield from block("accepts", [words(Kind.field(declared.info))], "bold")
    yield from block("default", [literal(declared.default)], "bold")
    yield from block("read by", [", ".join(declared.flag.readers)], "bold")
    if "calibration" in document:
        from backendcfg.cli.wording import calibration_words

        yield from block("speed", [calibration_words(document["calibration"])], "bold")
    if declared.flag.needs:
        yield from block("needs", [" or ".join(declared.flag.needs)], "bold")
    yield from block("variable", [flag_variable(declared.name)], "bold")
    if declared.flag.source:
        yield from block("source", [declared.flag.source], "bold")
