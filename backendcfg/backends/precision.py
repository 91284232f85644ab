"""The tree of float32 precisions: what is in force at a leaf that leaves it to its parent.

    fp32_precision -> cudnn.fp32_precision  -> cuda.matmul, cudnn.conv, cudnn.rnn
                   -> mkldnn.fp32_precision -> mkldnn.matmul, mkldnn.conv, mkldnn.rnn

As in PyTorch 2.13, where this was measured on the CPU build: a reader gets the effective value.
cuDNN's two leaves start as "tf32 unless a parent is set"; here that is a leaf at "tf32" that nobody
set. CUDA has no bfloat16 mode for float32, so a parent's "bf16" reads "none" there.
"""

from __future__ import annotations

from backendcfg.backends.base import asked, assign, read, refuse_unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ROOT = "fp32_precision"
CUDNN = ("cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision")
ONEDNN = (
    "mkldnn.matmul.fp32_precision",
    "mkldnn.conv.fp32_precision",
    "mkldnn.rnn.fp32_precision",
)


def effective(flag: str) -> str:
    """The precision in force at a node of the tree: its own, else its nearest parent's."""
    own: str = read(flag)
    if own != "none" and (flag not in CUDNN or asked(flag)):
        return own
    on_cuda = flag.startswith("cud")
    for parent in _parents(flag):
        if (value := read(parent)) != "none":
            return "none" if on_cuda and value == "bf16" else str(value)
    return own


def _parents(flag: str) -> tuple[str, ...]:
    if flag == ROOT:
        return ()
    backend = "cudnn.fp32_precision" if flag.startswith("cud") else "mkldnn.fp32_precision"
    return (ROOT,) if flag == backend else (backend, ROOT)


def is_tf32(*leaves: str) -> bool:
    """What a legacy `allow_tf32` reads: whether every leaf computes in TF32."""
    return all(effective(leaf) == "tf32" for leaf in leaves)


def legacy(*leaves: str) -> bool | None:
    """The same for `set_flags`, which is given it back later; None where the leaves differ."""
    found = {effective(leaf) == "tf32" for leaf in leaves}
    return found.pop() if len(found) == 1 else None


class Leaf:
    """`cudnn.conv`, `mkldnn.matmul` and the like: one assignable `fp32_precision`.

    Args:
        name: what messages call it: "backendcfg.backends.cudnn.conv".
        flag: the flag.
    """

    __slots__ = ("_flag", "_name")

    def __init__(self, name: str, flag: str) -> None:
        self._name = name
        self._flag = flag

    @property
    def fp32_precision(self) -> str:
        """The precision in force: "none", "ieee", "tf32" or, in oneDNN, "bf16"."""
        return effective(self._flag)

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        """Set it for this process."""
        assign({self._flag: value})

    def __getattr__(self, attr: str) -> Any:
        if attr.startswith("__"):
            raise AttributeError(attr)
        refuse_unknown(self, self._name, attr)

    def __setattr__(self, attr: str, value: Any) -> None:
        if attr not in ("fp32_precision", "_flag", "_name"):
            refuse_unknown(self, self._name, attr)
        super().__setattr__(attr, value)

    def __dir__(self) -> list[str]:
        return ["fp32_precision"]

    def __repr__(self) -> str:
        return f"<{self._name}: fp32_precision={self.fp32_precision!r}>"
