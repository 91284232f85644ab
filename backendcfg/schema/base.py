"""The base of every document model, the small value types that they share, and what a flag is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from backendcfg.records import field, record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo
    from pydantic.json_schema import JsonSchemaValue

SCHEMA_VERSION = 1

Value = Any  # a JSON value: bool, int, float, str, list or dict of these

Rank = Literal[
    "default",
    "system-file",
    "user-file",
    "project-file",
    "profile-by-environment",
    "environment",
    "profile-by-argument",
    "argument",
]
"""Who asked for a value, weakest first. A profile's payload has the rank of whoever picked it."""

Tier = Literal[
    "none", "run-to-run", "thread-invariant", "restart", "cross-machine", "batch-invariant"
]


class Document(BaseModel):
    """Strict, closed and immutable: `"8"` is not 8, 1 is not true, an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


Name = TypeVar("Name", bound=str)


class Preference(Document, Generic[Name]):
    """A choice of library with a strength.

    Attributes:
        prefer: the first usable one is taken; when none is, the default rule decides, loudly.
        require: this one or an error.
        forbid: never one of these.
    """

    # Lists, because a validator that runs before this one makes Pydantic read JSON as Python
    # objects, and strict mode then refuses a list where a tuple is meant.
    prefer: list[Name] = []
    require: Name | None = None
    forbid: list[Name] = []


class _Spelled:
    """Lets a bare string stand for `{ prefer = [string] }`, in validation and in the schema."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        def spelled_out(value: Any) -> Any:
            return {"prefer": [value]} if isinstance(value, str) else value

        return core_schema.no_info_before_validator_function(spelled_out, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        table = handler(schema)
        names = handler.resolve_ref_schema(table)["properties"]["prefer"]["items"]
        return {"anyOf": [names, table]}


SPELLED = _Spelled()


def candidates(annotation: Any) -> tuple[str, ...]:
    """The names that a `Preference` field chooses among, in the default order."""
    if isinstance(annotation, type) and issubclass(annotation, Preference):
        (literal,) = get_args(annotation.model_fields["prefer"].annotation)
        return get_args(literal)
    return ()


Threads = Literal["auto"] | Annotated[int, Field(ge=1, le=4096)]
Fp32 = Literal["none", "ieee", "tf32", "bf16"]

Need = str
"""What must be on the host for a flag to matter: see `backendcfg.resolve.facts`."""


@record(frozen=True)
class Flag:
    """Everything that is derived for a flag: TOML key, variable, help, docs, dormancy.

    Attributes:
        summary: what the flag does, for people.
        readers: who obeys it: `native` (our operations), a framework, a library, `environment`.
        needs: what the host must have for it to matter, any of; empty means always.
        source: where the fact comes from.
        bits: whether it can change the bits of a result.
        trusted: whether only a trusted project may set it.
        carried: whether this release has a switch for it, or an operation of ours that reads it.
            What has none is validated, resolved and explained, and reported as dormant.
        in_c: whether C has its value in a snapshot: C reads it, or keeps something with the
            snapshot that follows from it. All other flags stay in Python.
        calls: for a switch of PyTorch that takes the flag's value as it is, the two functions of
            `torch._C` that read and write it: "_{}_cudnn_enabled" is `_get_cudnn_enabled` and
            `_set_cudnn_enabled`. The bridge and the face in `backends/` need no more than this.
        spells: for a legacy spelling, what each of its values writes: `{value: {flag: value}}`.
    """

    summary: str
    readers: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    source: str = ""
    bits: bool = True
    trusted: bool = False
    carried: bool = True
    in_c: bool = False
    calls: str = ""
    spells: Mapping[Any, Mapping[str, Any]] = field(default_factory=dict)


@record(frozen=True)
class FlagField:
    """A flag as found in a model: its full name, its metadata and its field."""

    name: str
    flag: Flag
    info: FieldInfo

    @property
    def default(self) -> Any:
        """The value that holds when nobody sets the flag, as JSON data."""
        value = self.info.get_default(call_default_factory=True)
        if isinstance(value, BaseModel):
            return value.model_dump(mode="json", exclude_defaults=True)
        return list(value) if isinstance(value, tuple) else value


def iterate(model: type[BaseModel], prefix: str = "") -> Iterator[FlagField]:
    """Every flag of a model and of the tables in it, in the order of declaration."""
    for name, info in model.model_fields.items():
        marks = [mark for mark in info.metadata if isinstance(mark, Flag)]
        if marks:
            yield FlagField(prefix + name, marks[0], info)
        elif isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from iterate(info.annotation, f"{prefix}{name}.")
