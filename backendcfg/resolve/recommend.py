"""Which profiles fit a host, the most suitable first, each with the reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from backendcfg.records import record
from backendcfg.resolve.ground import core_count
from backendcfg.resolve.plan import Examination, examine
from backendcfg.resolve.tiers import TIER
from backendcfg.resolve.words import literal
from backendcfg.schema.base import Tier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backendcfg.schema.host import Host
    from backendcfg.schema.plan import Entry
    from backendcfg.schema.profile import Stack


Purpose = Literal["training", "inference", "papers", "debugging"]
TIERS = get_args(Tier)

_TF32 = {"tf32": 1, "bf16": 2}
REDUCING: dict[str, dict[Any, int]] = {
    "fp32_precision": _TF32,
    "cuda.matmul.fp32_precision": _TF32,
    "cudnn.fp32_precision": _TF32,
    "cudnn.conv.fp32_precision": _TF32,
    "cudnn.rnn.fp32_precision": _TF32,
    "mkldnn.fp32_precision": _TF32,
    "mkldnn.matmul.fp32_precision": _TF32,
    "mkldnn.conv.fp32_precision": _TF32,
    "mkldnn.rnn.fp32_precision": _TF32,
    "onednn.default_fpmath_mode": {"tf32": 1, "bf16": 2, "f16": 2, "any": 2},
    "jax.default_matmul_precision": {"tensorfloat32": 1, "high": 1, "bfloat16": 2},
    "tensorflow.tensor_float_32_execution": {True: 1},
    "cupy.compute_type": {"tf32": 1},
    "cuda.matmul.allow_fp16_reduced_precision_reduction": {True: 2},
    "cuda.matmul.allow_bf16_reduced_precision_reduction": {True: 2},
    "cuda.matmul.allow_fp16_accumulation": {True: 2},
    "cuda.allow_fp16_bf16_reduction_math_sdp": {True: 2},
}
"""How far values reduce precision: 1 is TF32, 2 is 16 bits."""

SPEED: dict[str, Any] = {
    "threads.count": "auto",
    "cudnn.benchmark": True,
    "torch.tunable_op": True,
    "jax.autotune_level": 4,
    "cuda.matmul.fp32_precision": "tf32",
    "cudnn.conv.fp32_precision": "tf32",
    "cudnn.rnn.fp32_precision": "tf32",
    "jax.default_matmul_precision": "tensorfloat32",
    "tensorflow.tensor_float_32_execution": True,
    "cupy.compute_type": "tf32",
}
"""What makes programs faster within TF32's accuracy."""

INFERENCE: dict[str, Any] = {"mha.fastpath_enabled": True}
"""What makes inference faster beside it."""


@record(frozen=True)
class Recommendation:
    """A profile on a host.

    Attributes:
        name: the profile.
        fits: whether it resolves here.
        reasons: why not; or what it does here, what was adapted and what has no effect.
    """

    name: str
    fits: bool
    reasons: tuple[str, ...]


def recommend(
    stacks: Sequence[Stack], host: Host, purpose: Purpose | None = None
) -> tuple[Recommendation, ...]:
    """Every profile, ordered: those that fit, then by what they are wanted for.

    Without a purpose one that reduces the precision of float32 or sums in 16 bits stands behind
    all that do not, and one without a tier behind those with one. For training and inference, those
    come first that make most things faster, and TF32 may; what reduces more than that stays behind.
    For papers it is the strongest tier without reduced precision; for debugging, what makes
    libraries talk, and then a tier.

    A profile that leaves processors idle stands behind those that use them. Between equals it
    counts how much of what a profile asks has an effect here, then the order of `stacks`.
    """
    found = [examine(stack, host) for stack in stacks]
    found.sort(key=lambda one: (bool(one.refusals), *_order(one, purpose), _share_idle(one)))
    return tuple(
        Recommendation(one.name, fits=not one.refusals, reasons=_reasons(one)) for one in found
    )


def _order(found: Examination, purpose: Purpose | None) -> tuple[float, ...]:
    """What decides between two profiles that fit; the smaller comes first."""
    reduced = max((level for level, _ in _reductions(found)), default=0)
    talks, idle = _is_verbose(found), _leaves_idle(found)
    tier = TIERS.index(found.ground.value(TIER))
    if purpose in ("training", "inference"):
        faster = {**SPEED, **INFERENCE} if purpose == "inference" else SPEED
        return (reduced > 1, talks, idle, tier > 0, -_speedups(found, faster), reduced)
    if purpose == "papers":
        return (reduced, talks, idle, -tier)
    if purpose == "debugging":
        return (reduced, not talks, tier == 0)
    return (reduced, talks, idle, tier == 0)


def _reductions(found: Examination) -> list[tuple[int, str]]:
    """How far each flag that the profile sets and something here reads reduces precision."""
    return [
        (REDUCING[entry.flag][value], entry.flag)
        for entry in _asked(found)
        if not entry.idle
        and isinstance(value := entry.value, str | bool)
        and value in REDUCING.get(entry.flag, {})
    ]


def _speedups(found: Examination, faster: Mapping[str, Any]) -> int:
    """How many things the profile asks that make programs faster here."""
    asked = [entry for entry in _asked(found) if not entry.idle]
    wished = {e.flag: e.adaptation.requested if e.adaptation else e.value for e in asked}
    return sum(wished.get(flag) == value for flag, value in faster.items())


def _asked(found: Examination) -> list[Entry]:
    return [entry for entry in found.entries if entry.origin.rank != "default"]


def _is_verbose(found: Examination) -> bool:
    """Whether it is for looking at what libraries do rather than for working."""
    return any(
        found.ground.value(flag) != quiet
        for flag, quiet in (("mkl.verbose", 0), ("mkldnn.verbose", 0))
    )


def _leaves_idle(found: Examination) -> bool:
    """Whether cores that are for this process would do nothing."""
    return bool(found.ground.value("threads.count") < core_count(found.ground.host))


def _share_idle(found: Examination) -> float:
    asked = _asked(found)
    idle = sum(1 for entry in asked if entry.idle or _gave_way(entry))
    return idle / len(asked) if asked else 0.0


def _gave_way(entry: Entry) -> bool:
    """Whether the host changed a wish; "auto" asks to be filled in and is none."""
    return entry.adaptation is not None and entry.adaptation.requested != "auto"


def _reasons(found: Examination) -> tuple[str, ...]:
    if found.refusals:
        return tuple(error.message for error in found.refusals)
    asked = _asked(found)
    idle: dict[str, list[str]] = {}
    for entry in asked:
        if entry.idle:
            idle.setdefault(entry.idle, []).append(entry.flag)
    used = len(asked) - sum(len(flags) for flags in idle.values())
    tier = found.ground.value(TIER)
    reasons = [] if tier == "none" else [f"it keeps its tier here: `{tier}`"]
    if reducing := [flag for _, flag in _reductions(found)]:
        others = f" and {len(reducing) - 1} more" if len(reducing) > 1 else ""
        reasons.append(f"it reduces precision: `{reducing[0]}`{others}")
    if _leaves_idle(found):
        count = found.ground.value("threads.count")
        reasons.append(f"it computes on {count} of {core_count(found.ground.host)} cores")
    reasons += [f"{used} of its {len(asked)} flags {'has' if used == 1 else 'have'} an effect here"]
    reasons += [f"{len(flags)} without effect: {reason}" for reason, flags in idle.items()]
    reasons += [
        f"`{entry.flag}` becomes {literal(entry.adaptation.got)} instead of "
        f"{literal(entry.adaptation.requested)}: {entry.adaptation.because}"
        for entry in asked
        if entry.adaptation is not None and _gave_way(entry) and not entry.idle
    ]
    return tuple(reasons)
