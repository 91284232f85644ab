"""The base of every document model, and the small value types that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

if TYPE_CHECKING:
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
