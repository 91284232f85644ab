"""Which shapes make a call of attention, and what is wrong with those that do not.

The rules are those of `torch.nn.functional.scaled_dot_product_attention`: (..., heads, length,
width), where everything before the length broadcasts. What is wrong is a sentence that names the
argument, for the operation to refuse and for `can_use_*` to tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.records import record

if TYPE_CHECKING:
    from backendcfg.dispatch.array_facts import ArrayFacts
    from backendcfg.dispatch.attention_facts import Call

ELEMENTS = ("float32", "float64", "bfloat16", "float16")
"""What attention computes with."""


@record(frozen=True)
class Shapes:
    """The sizes of a call.

    Attributes:
        lead: what query, key, value and the result have before (length, width), broadcast.
        queries, keys: lengths.
        width: of query and key.
        value_width: of value and the result.
    """

    lead: tuple[int, ...]
    queries: int
    keys: int
    width: int
    value_width: int

    @property
    def out(self) -> tuple[int, ...]:
        """The shape of the result."""
        return (*self.lead, self.queries, self.value_width)

    @property
    def scores(self) -> tuple[int, ...]:
        """The shape that a mask broadcasts to."""
        return (*self.lead, self.queries, self.keys)


def sizes(call: Call) -> Shapes:
    """The sizes of a call in which nothing is wrong; see `problem`."""
    query, key, value = call.query.shape, call.key.shape, call.value.shape
    leads = [query[:-2], key[:-2], value[:-2]]
    if call.enable_gqa:
        leads = [query[:-2], (*key[:-3], 1), (*value[:-3], 1)]
    lead = leads[0]
    for other in leads[1:]:
        lead = broadcast(lead, other) or ()
    return Shapes(lead, query[-2], key[-2], query[-1], value[-1])


def problem(call: Call) -> str:
    """What is wrong with the arrays of a call, or ""."""
    for find in (_dimensions, _elements, _lengths, _leading, _mask):
        if wrong := find(call):
            return wrong
    return ""


def broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...] | None:
    """The common shape of two, or None."""
    rank = max(len(one), len(other))
    left, right = (1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other
    pairs = list(zip(left, right, strict=True))
    if any(a != b and 1 not in (a, b) for a, b in pairs):
        return None
    return tuple(b if a == 1 else a for a, b in pairs)


def _dimensions(call: Call) -> str:
    for name, array in _named(call).items():
        if len(array.shape) < (least := 3 if call.enable_gqa else 2):
            what = "(..., heads, length, width)" if least == 3 else "(..., length, width)"
            return f"`{name}` must have at least {least} dimensions, {what}, not {len(array.shape)}"
    return ""


def _elements(call: Call) -> str:
    if call.query.element not in ELEMENTS:
        return f"`query` must hold {listed(ELEMENTS)}, not {call.query.element}"
    for name, array in _named(call).items():
        if array.element != call.query.element:
            return f"`{name}` must hold {call.query.element}, as `query` does, not {array.element}"
    # PyTorch takes float32 beside 16 bits as well.
    allowed = tuple(dict.fromkeys(("bool", "float32", call.query.element)))
    if call.query.element == "float64":
        allowed = ("bool", "float64")
    if call.mask is not None and call.mask.element not in allowed:
        return f"`attn_mask` must hold {listed(allowed)}, not {call.mask.element}"
    return ""


def _lengths(call: Call) -> str:
    query, key, value = call.query.shape, call.key.shape, call.value.shape
    if key[-1] != query[-1]:
        return f"`key` must be as wide as `query`, {query[-1]}, not {key[-1]}"
    if value[-2] != key[-2]:
        return f"`value` must be as long as `key`, {key[-2]}, not {value[-2]}"
    return ""


def _leading(call: Call) -> str:
    lead = call.query.shape[:-2]
    for name, array in list(_named(call).items())[1:]:
        other = array.shape[:-2]
        if call.enable_gqa:
            heads, wanted = array.shape[-3], call.query.shape[-3]
            if not heads or wanted % heads:
                return f"the {heads} heads of `{name}` must divide the {wanted} of `query`"
            other = (*array.shape[:-3], 1)
        if (common := broadcast(lead, other)) is None:
            return (
                f"the leading dimensions of `{name}`, {array.shape[:-2]}, must broadcast with "
                f"{'those of `query`' if name == 'key' else 'the others'}, {lead}"
            )
        lead = common
    return ""


def _mask(call: Call) -> str:
    if call.mask is None:
        return ""
    scores = sizes(call).scores
    if broadcast(call.mask.shape, scores) == scores:
        return ""
    return f"`attn_mask` of shape {call.mask.shape} must broadcast to the scores, {scores}"


def _named(call: Call) -> dict[str, ArrayFacts]:
    return {"query": call.query, "key": call.key, "value": call.value}


def listed(words: tuple[str, ...]) -> str:
    """Words in a sentence: "a, b or c"."""
    return f"{', '.join(words[:-1])} or {words[-1]}"
