"""A profile with everything that it extends, as one TOML document that means the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.errors import shown_path
from backendcfg.resolve.words import assignment, literal
from backendcfg.schema.profile import flags

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backendcfg.schema.layer import Assignment, Layer, Stack


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
    for flag in [flag for flag in found if _covers(name, flag)]:
        del found[flag]
    table, _, variable = name.partition(".")
    if variable and table == "environment" and table in found:
        one, layer = found[table]
        rest = {key: text for key, text in one.value.items() if key != variable}
        found[table] = (one.model_copy(update={"value": rest}), layer)


def _covers(name: str, flag: str) -> bool:
    """Whether dropping `name` unsets `flag`."""
    declared = flags().get(name)
    spelled = declared.flag.spells.values() if declared else ()
    names = {name, *(target for values in spelled for target in values)}
    return any(flag == gone or flag.startswith(f"{gone}.") for gone in names)


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
                if one.flag not in written and not any(_covers(name, one.flag) for name in dropped)
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
