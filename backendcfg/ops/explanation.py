"""Which library would serve an operation here and now, and why the others would not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backendcfg import _native, native
from backendcfg.dispatch import snapshots
from backendcfg.dispatch.providers import PROVIDERS
from backendcfg.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}


@dataclass(frozen=True)
class Reason:
    """Why a provider does not serve; `path` is its file when it is open."""

    provider: str
    path: str
    why: str


@dataclass(frozen=True)
class Explanation:
    """Who would serve an operation, and why nobody else.

    Attributes:
        operation: what would be called: "sgemm".
        sizes: m, n, k of one product.
        profile: the profile in force, or "" for none.
        provider: who serves, or "" when nobody can.
        path: the file; "" for the reference, which is compiled in.
        reasons: one for each other provider.
    """

    operation: str
    sizes: tuple[int, int, int]
    profile: str
    provider: str
    path: str
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        m, n, k = self.sizes
        under = f"profile `{self.profile}`" if self.profile else "no profile"
        lines = [f"{self.operation} of ({m}, {k}) and ({k}, {n}) under {under}"]
        width = max(len(name) for name in (self.provider, *(r.provider for r in self.reasons)))
        if self.provider:
            lines.append(f"  {self.provider:<{width}}  serves: {self.path or 'compiled in'}")
        lines += [f"  {r.provider:<{width}}  {r.why}" for r in self.reasons]
        return "\n".join(lines)


def explain(operation: str, shapes: Sequence[Sequence[int]], dtype: Any = "float64") -> Explanation:
    """Who would serve an operation in this context, by the code that makes the choice.

    Args:
        operation: "matmul".
        shapes: of its operands, as NumPy gives them: `((m, k), (k, n))`.
        dtype: of the product: float32, float64, complex64 or complex128.

    Raises:
        InvalidArgumentError: there is no such operation, or the operands do not fit it.
        MissingLibraryError: the profile in force needs a library that cannot be opened.
    """
    if operation != "matmul":
        raise InvalidArgumentError(
            f'explain: `operation` must be "matmul", not {operation!r}',
            helps=["it is the only operation that backendcfg serves itself"],
        )
    m, n, k = _sizes(shapes)
    kind = "gemv" if 1 in (m, n) else "gemm"
    name = _letter(dtype) + kind
    snapshot = _native.snapshot()
    current = _native.current()
    serving, others = None, []
    for handle in native.ordered(snapshot, name):
        opened, verdict = native.describe(handle), native.judge(snapshot, name, handle, (m, n, k))
        if verdict == "serves":
            serving = opened
        else:
            others.append(Reason(opened.name, opened.path, verdict))
    reasons = [Reason(r.provider, r.path, _why(r.why, serving)) for r in others]
    listed = {r.provider for r in reasons} | ({serving.name} if serving else set())
    absent = snapshots.reasons(snapshot)
    reasons += [
        Reason(p.name, "", absent.get(p.name, "not among those that the profile may use"))
        for p in PROVIDERS
        if p.name not in listed
    ]
    return Explanation(
        name,
        (m, n, k),
        current.name if current else "",
        serving.name if serving else "",
        serving.path if serving else "",
        tuple(reasons),
    )


def _why(verdict: str, serving: native.Opened | None) -> str:
    if verdict == "too-large":
        return "a size does not fit its 32-bit integers"
    return f"behind `{serving.name}`" if serving else verdict


def _letter(dtype: Any) -> str:
    import numpy as np

    try:
        return _LETTERS[np.dtype(dtype).name]
    except (KeyError, TypeError):
        raise InvalidArgumentError(
            f"explain: `dtype` must be one of {', '.join(_LETTERS)}, not {dtype!r}"
        ) from None


def _has_product(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    if not a or not b or min(*a, *b) < 0 or a[-1] != b[-2 if len(b) > 1 else 0]:
        return False
    pairs = zip(reversed(a[:-2]), reversed(b[:-2]), strict=False)
    return all(left == right or 1 in (left, right) for left, right in pairs)


def _sizes(shapes: Sequence[Sequence[int]]) -> tuple[int, int, int]:
    """m, n and k of each product, by the rules of `matmul`."""
    try:
        a, b = (tuple(int(size) for size in shape) for shape in shapes)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"explain: `shapes` must be two shapes, ((m, k), (k, n)), not {shapes!r}"
        ) from None
    if not _has_product(a, b):
        raise InvalidArgumentError(
            f"explain: `shapes` {a} and {b} have no product",
            helps=["the last dimension of the first is the second to last of the other"],
        )
    return (a[-2] if len(a) > 1 else 1, b[-1] if len(b) > 1 else 1, a[-1])
