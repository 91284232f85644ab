"""Frozen dataclasses that are cheap to declare, for modules that every start imports.

`import dataclasses` brings in `inspect`, `ast` and `dis`, and compiles code for each class. For
type checkers a record is a frozen dataclass, and `dataclasses.fields`, `asdict` and `replace` take
it for one; at run time it is a plain class with attributes. A record cannot extend another record.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as record
    from dataclasses import field, replace
    from typing import Any, NoReturn

__all__ = ["field", "record", "replace"]


class _Field:
    """What a field has beside its name."""

    def __init__(
        self,
        *,
        default_factory: Callable[[], Any] | None = None,
        repr: bool = True,  # noqa: A002
    ) -> None:
        self.default_factory = default_factory
        self.repr = repr


class _DataclassFields:
    """`__dataclass_fields__`, made when `dataclasses` first asks a record for it."""

    def __init__(self, annotations: dict[str, str], special: dict[str, _Field]) -> None:
        self.annotations = annotations
        self.special = special

    def __get__(self, _: object, owner: type) -> dict[str, Any]:
        import dataclasses

        fields: list[Any] = []
        for name, annotation in self.annotations.items():
            default = getattr(owner, name, dataclasses.MISSING)
            about: dict[str, Any] = {} if default is dataclasses.MISSING else {"default": default}
            if (special := self.special.get(name)) is not None:
                about["repr"] = special.repr
                if special.default_factory is not None:
                    about["default_factory"] = special.default_factory
            fields.append((name, annotation, dataclasses.field(**about)))
        twin: Any = dataclasses.make_dataclass(owner.__name__, fields, frozen=True)
        owner.__dataclass_params__ = twin.__dataclass_params__  # type: ignore[attr-defined]
        owner.__dataclass_fields__ = twin.__dataclass_fields__  # type: ignore[attr-defined]
        found: dict[str, Any] = twin.__dataclass_fields__
        return found


def _record(*, frozen: bool) -> Callable[[type], type]:
    """Make a class a record; `frozen=True` is spelled out for the reader and the type checker."""
    if not frozen:
        raise TypeError("a record is frozen")
    return _complete


def _complete(cls: Any) -> type:
    annotations: dict[str, str] = cls.__annotations__
    names = tuple(annotations)
    special = {name: value for name in names if isinstance(value := vars(cls).get(name), _Field)}
    for name in special:
        delattr(cls, name)
    defaults = {name: vars(cls)[name] for name in names if name in vars(cls)}
    shown = [name for name in names if name not in special or special[name].repr]

    def initialise(self: Any, /, *values: Any, **named: Any) -> None:
        if len(values) > len(names):
            raise TypeError(f"{cls.__name__} has {len(names)} fields, not {len(values)}")
        state = self.__dict__
        state.update(zip(names, values, strict=False))
        for name in names[len(values) :]:
            if name in named:
                state[name] = named.pop(name)
            elif name in defaults:
                state[name] = defaults[name]
            elif name in special and (make := special[name].default_factory) is not None:
                state[name] = make()
            else:
                raise TypeError(f"{cls.__name__} needs a value for {name!r}")
        for name in named:
            twice = "two values for" if name in names else "no field"
            raise TypeError(f"{cls.__name__} has {twice} {name!r}")

    def represent(self: Any) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({fields})"

    cls.__init__ = initialise
    if "__repr__" not in vars(cls):
        cls.__repr__ = represent
    cls.__eq__ = _equal
    cls.__hash__ = _hash
    cls.__setattr__ = _refuse
    cls.__delattr__ = _refuse
    cls.__match_args__ = names  # type: ignore[misc]
    cls.__dataclass_fields__ = _DataclassFields(annotations, special)
    return cls  # type: ignore[no-any-return]


def _equal(self: Any, other: Any) -> bool:
    return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(tuple(self.__dict__.values()))


def _refuse(self: Any, name: str, _: object = None) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot change field {name!r}")


def _replace(obj: Any, /, **changes: Any) -> Any:
    """A copy of a record with other values."""
    return type(obj)(**{**obj.__dict__, **changes})


if not TYPE_CHECKING:
    field, record, replace = _Field, _record, _replace
