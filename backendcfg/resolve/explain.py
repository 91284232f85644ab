"""Explanations: which flags a word means, where a value comes from, why a profile does not fit.

And how two plans differ, and what a profile says with everything that it extends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.errors import shown_path
from backendcfg.records import record
from backendcfg.resolve.ground import covers
from backendcfg.resolve.words import assignment, literal, set_at
from backendcfg.schema.describe import Kind
from backendcfg.schema.profile import flags
from backendcfg.schema.torch_backends import INITIALS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backendcfg.errors import BackendCfgError
    from backendcfg.schema.base import FlagField
    from backendcfg.schema.host import Host
    from backendcfg.schema.plan import Check, Choice, Entry, Origin, Plan
    from backendcfg.schema.profile import Assignment, Layer, Stack


@record(frozen=True)
class WhyNot:
    """What the resolver looked at, and what it made of it.

    Attributes:
        name: the profile.
        checks: every requirement of the profile and of its tier, met and unmet.
        conditions: what `[[when]]` tables found; an unmet one only leaves that table out.
        choices: how each library was chosen, with the reasons against the others.
        refusals: every error that keeps the profile from resolving.
    """

    name: str
    checks: tuple[Check, ...]
    conditions: tuple[Check, ...]
    choices: tuple[Choice, ...]
    refusals: tuple[BackendCfgError, ...]

    @property
    def fits(self) -> bool:
        """Whether the profile resolves on this host."""
        return not self.refusals

    @property
    def unmet(self) -> tuple[Check, ...]:
        """The requirements that do not hold."""
        return tuple(check for check in self.checks if not check.met)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON-ready data."""
        return {
            "name": self.name,
            "fits": self.fits,
            "checks": [check.model_dump(mode="json") for check in self.checks],
            "conditions": [check.model_dump(mode="json") for check in self.conditions],
            "choices": [choice.model_dump(mode="json") for choice in self.choices],
            "refusals": [error.to_dict() for error in self.refusals],
        }


def why_not(stack: Stack, host: Host) -> WhyNot:
    """Why a profile does not resolve on a host, or what it rests on when it does."""
    from backendcfg.resolve.plan import examine

    found = examine(stack, host)
    return WhyNot(
        found.name,
        (*found.requires, *(kept.check for kept in found.tier)),
        found.conditions,
        found.choices,
        found.refusals,
    )


def explain_flag(plan: Plan, flag: str) -> tuple[str, ...]:
    """Where a value comes from, what it won over, and how the host changed it, as lines.

    A legacy spelling explains the flags that it stands for.
    """
    field = flags()[flag]
    meant = dict.fromkeys(name for spelled in field.flag.spells.values() for name in spelled)
    return tuple(line for name in meant or (flag,) for line in _lines(plan, plan.entry(name)))


def _lines(plan: Plan, entry: Entry) -> Iterator[str]:
    yield f"{assignment(entry.flag, entry.value)}  from {set_at(entry.origin)}"
    if (change := entry.adaptation) is not None:
        yield (
            f"  adapted: requested {literal(change.requested)}, got {literal(change.got)}, "
            f"because {change.because}"
        )
    if entry.idle:
        yield f"  dormant: {entry.idle}"
    for choice in plan.choices:
        if choice.flag == entry.flag:
            yield f"  usable, best first: {', '.join(choice.order)}"
            for one in choice.conditional:
                yield f"  {one.candidate} {'; '.join(one.reasons)}"
            for one in choice.rejected:
                yield f"  not {one.candidate}: {'; '.join(one.reasons)}"
    for hidden in entry.hides:
        # No preference among libraries is an empty table, which says nothing to a reader.
        value = literal(hidden.value) if hidden.value != {} else "nothing"
        yield f"  hides {value} from {set_at(hidden.origin)}"


@record(frozen=True)
class Difference:
    """A flag that two plans give different values.

    Attributes:
        flag: its name.
        left, right: the values in the first and the second plan.
        left_origin, right_origin: who set them.
    """

    flag: str
    left: Any
    right: Any
    left_origin: Origin
    right_origin: Origin


def diff(left: Plan, right: Plan) -> tuple[Difference, ...]:
    """Every flag whose value differs between two plans, in schema order."""
    return tuple(
        Difference(one.flag, one.value, other.value, one.origin, other.origin)
        for one, other in zip(left.entries, right.entries, strict=True)
        if one.value != other.value
    )


def toml(stack: Stack) -> Iterator[str]:
    """The profile as TOML lines, each value with the file and line that it comes from."""
    layers = [layer for layer in stack.layers if layer.profile]
    yield f"# {stack.name}"
    for layer in layers:
        yield f"# {layer.title}: {shown_path(layer.path)}{', shipped' if layer.shipped else ''}"
    yield "schema = 1"
    if stack.description:
        yield f"description = {literal(stack.description)}"
    yield ""
    for one, layer in merged(layers):
        yield f"{one.flag} = {literal(one.value)}  # {layer.profile}:{one.place.line}"
    yield from _requirements(layers)
    yield from _conditionals(layers)


def merged(layers: list[Layer]) -> list[tuple[Assignment, Layer]]:
    """What the layers set without a condition: the strongest of each flag, with its layer."""
    found: dict[str, tuple[Assignment, Layer]] = {}
    for layer in layers:
        for dropped in layer.dropped:
            _drop(dropped.flag, found)
        for one in layer.assignments:
            value = one.value
            if one.flag == "environment" and one.flag in found:  # variables add up
                value = {**found.pop(one.flag)[0].value, **value}
            found.pop(one.flag, None)
            found[one.flag] = (one.model_copy(update={"value": value}), layer)
    return list(found.values())


def _drop(name: str, found: dict[str, tuple[Assignment, Layer]]) -> None:
    """Unset a flag, a whole table, one variable, or what a legacy spelling stands for."""
    for flag in [flag for flag in found if covers(name, flag)]:
        del found[flag]
    table, _, variable = name.partition(".")
    if variable and table == "environment" and table in found:
        one, layer = found[table]
        rest = {key: text for key, text in one.value.items() if key != variable}
        found[table] = (one.model_copy(update={"value": rest}), layer)


def _requirements(layers: list[Layer]) -> Iterator[str]:
    needed: dict[str, Any] = {}
    others: list[str] = []
    for layer in layers:
        for requirement in layer.requires:
            condition = requirement.condition.model_dump(mode="json", exclude_defaults=True)
            for key, value in _flat(condition):
                if needed.setdefault(key, value) != value:
                    others.append(f"# and {assignment(key, value)}  # {layer.profile}")
    if needed:
        yield ""
        yield "[requires]"
        yield from (assignment(key, value) for key, value in needed.items())
        yield from others


def _conditionals(layers: list[Layer]) -> Iterator[str]:
    for number, layer in enumerate(layers):
        later = layers[number + 1 :]
        written = {one.flag for after in later for one in after.assignments}
        dropped = [one.flag for after in later for one in after.dropped]
        for when in layer.whens:
            live = [
                one
                for one in when.assignments
                if one.flag not in written and not any(covers(name, one.flag) for name in dropped)
            ]
            if not live:
                continue
            condition = when.condition.model_dump(mode="json", exclude_defaults=True)
            yield ""
            yield f"[[when]]  # {layer.profile}:{when.place.line}"
            yield from (assignment(key, value) for key, value in _flat(condition))
            yield from (assignment(f"flags.{one.flag}", one.value) for one in live)


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """A nested table as dotted keys; names of libraries may need no quotes, as TOML has it."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


OTHER_NAMES = {
    "fp32_precision": "torch.set_float32_matmul_precision",
    "cuda.matmul.fp32_precision": "torch.set_float32_matmul_precision",
    "mkldnn.matmul.fp32_precision": "torch.set_float32_matmul_precision",
    "threads.count": "torch.set_num_threads OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS",
    "threads.interop": "torch.set_num_interop_threads",
    "determinism.algorithms": "torch.are_deterministic_algorithms_enabled",
    "determinism.fill_uninitialized_memory": "torch.utils.deterministic",
    "quantized.engine": "torch.backends.quantized.supported_engines",
    "seed.numpy": "np.random.seed",
    "seed.python": "random.seed",
}
"""What else people call a flag, where nothing of it says so."""


_STOP_WORDS = frozenset(
    (
        *("a", "an", "are", "can", "do", "does", "for", "have", "how", "i", "in", "is", "many"),
        *("my", "number", "of", "off", "on", "set", "should", "the", "to", "turn", "use", "what"),
        *("which", "with"),
    )
)
"""Words that no flag is looked for by."""


def find_flags(words: str) -> tuple[str, ...]:
    """The flag of this name; else those that every word leads to, first whose name says it.

    Args:
        words: `"tf32"`, `"allow_tf32"`, `"torch.backends.cudnn.benchmark"`, `"how many threads"`.
            Each is looked for, in lower case, in names, summaries and values.
    """
    said = [word.removeprefix("torch.backends.") for word in words.lower().rstrip("?").split()]
    asked = [word for word in said if word not in _STOP_WORDS] or said
    if len(asked) == 1 and asked[0] in flags():
        return (asked[0],)
    ranked: dict[str, int] = {}
    for name, field in flags().items():
        ranks = [_rank(word, name, field) for word in asked]
        if ranks and None not in ranks:
            ranked[name] = max(rank for rank in ranks if rank is not None)
    return tuple(sorted(ranked, key=lambda name: ranked[name]))


def _rank(word: str, name: str, field: FlagField) -> int | None:
    """How closely a word leads to a flag: 0 is its name, None not at all."""
    parts = name.split(".")
    if word in (name, parts[-1]):
        return 0
    if word in parts:
        return 1
    places = (name, _other_names(name, field), field.flag.summary, _values(field))
    for rank, text in enumerate(places, start=2):
        if word in text.lower():
            return rank
    return None


def _other_names(name: str, field: FlagField) -> str:
    """PyTorch's functions, older spellings, and variables that set the flag."""
    names = [OTHER_NAMES.get(name, "")]
    names += [field.flag.calls.format(verb) for verb in ("get", "set") if field.flag.calls]
    names += [each.variable for each in INITIALS if each.flag == name]
    names += [
        other
        for other, spelling in flags().items()
        if any(name in meant for meant in spelling.flag.spells.values())
    ]
    return " ".join(names)


def _values(field: FlagField) -> str:
    """The words that the flag takes, or in an array, but for those that many flags take."""
    kind = Kind.field(field.info)
    element = kind.at([0])
    values = kind.literals() + (element.literals() if element else ())
    return " ".join({str(value) for value in values} - {"none", "default", "auto"})
