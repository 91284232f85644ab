"""The float32 precision of PyTorch: which leaf of its tree a plan decides, and to what.

A parent that a profile sets is written into the leaves below it; see `precision_tree`. What a
precision does on a GPU was read in PyTorch's sources, not run.
"""

from __future__ import annotations

from backendcfg import log
from backendcfg.bridges.torch.precision_tree import (
    CONVOLUTIONS,
    CPU_PRODUCTS,
    CUDA_PRODUCTS,
    RECURRENT,
    LegacyTree,
    Tree,
    tree_of,
)
from backendcfg.bridges.torch.switches import absent, has_gpu_build
from backendcfg.transact.switch import AnytimeSwitch, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from backendcfg.bridges.torch.precision_tree import Key

LEAVES = {
    "cuda.matmul.fp32_precision": CUDA_PRODUCTS,
    "cudnn.conv.fp32_precision": CONVOLUTIONS,
    "cudnn.rnn.fp32_precision": RECURRENT,
    "mkldnn.matmul.fp32_precision": CPU_PRODUCTS,
    "mkldnn.conv.fp32_precision": ("mkldnn", "conv"),
    "mkldnn.rnn.fp32_precision": ("mkldnn", "rnn"),
}
PARENTS = {
    "cuda": ("cudnn.fp32_precision", "fp32_precision"),
    "mkldnn": ("mkldnn.fp32_precision", "fp32_precision"),
}
FLAGS = frozenset({*LEAVES, *(flag for parents in PARENTS.values() for flag in parents)})

_FLAG_OF = {key: flag for flag, key in LEAVES.items()}
_WITH_OLDER_SWITCH = (CUDA_PRODUCTS, CPU_PRODUCTS, CONVOLUTIONS, RECURRENT)


class Leaf(AnytimeSwitch):
    """One leaf of the tree: "none", "ieee", "tf32" or "bf16"."""

    def __init__(self, tree: Tree, key: Key, wanted: str, why_not: str) -> None:
        self.name = f"torch.backends.{_FLAG_OF[key]}"
        self.key = key
        self.wanted = wanted
        self.read = tree.readers[key]
        self.write = tree.writers[key]
        self._tree = tree
        self._why_not = why_not

    def in_force(self) -> str:
        """What PyTorch computes by, also where a parent decides."""
        return self._tree.effective(self.key)

    def unsupported(self) -> str:
        """Why PyTorch cannot take the value wanted, or ""."""
        return self._why_not

    def writer(self) -> str:
        """Who writes "none" over "ieee"."""
        of_cudnn = self.key in (CONVOLUTIONS, RECURRENT)
        if of_cudnn and self.wanted == "ieee" and self.read() == "none":
            return "torch.export or torch.backends.cudnn.flags(), which put `allow_tf32` back"
        return ""


class Unset(AnytimeSwitch):
    """Whether cuDNN's leaves are as PyTorch starts them: TF32 unless a parent says otherwise.

    No function of PyTorch writes that state, and `cudnn.flags()` and `torch.export` end it too.
    Nobody sees it but who writes a parent afterwards.
    """

    name = "torch.backends.cudnn.fp32_precision_unset"
    reversible = False

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def read(self) -> bool:
        """Whether the leaf of convolutions still follows its parents.

        Raises:
            RuntimeError: finding out would disturb a computation that may be under way on a GPU.
        """
        tree, here = self.tree, self.tree.get(*CONVOLUTIONS)
        if tree.written.keys() & {CONVOLUTIONS, RECURRENT}:
            return False
        if (parent := tree.get("cuda", "all")) != "none":
            return bool(here == parent)
        if here != "tf32":
            return False
        if tree.torch.cuda.is_initialized():
            raise RuntimeError("CUDA is in use, and asking changes the precision for a moment")
        tree.set("cuda", "all", "ieee")
        try:
            follows: bool = tree.get(*CONVOLUTIONS) == "ieee"
        finally:
            tree.set("cuda", "all", "none")
        return follows

    def write(self, value: bool) -> None:
        """Give both leaves the value that they have."""
        for key in (CONVOLUTIONS, RECURRENT):
            self.tree.write(key, self.tree.read(key))


class Readable(AnytimeSwitch):
    """Whether the older switches can be read, for a program that had set them and leaves apart."""

    name = "torch.backends.older_precision_switches_readable"
    reversible = False
    follows = False

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def read(self) -> bool:
        """Whether none of them raises."""
        return self.tree.is_readable()

    def write(self, value: bool) -> None:
        """Bring them in step with the leaves, which keep their values."""
        for key in (CUDA_PRODUCTS, CONVOLUTIONS):
            self.tree.write(key, self.tree.read(key))


def collect(torch: Any, values: Mapping[str, Any], asked: Collection[str]) -> list[Setting]:
    """The leaves that a plan decides, itself or by a parent.

    Args:
        torch: the module.
        values: every flag with its value.
        asked: the flags that somebody set.
    """
    if FLAGS.isdisjoint(asked):
        return []
    tree = tree_of(torch)
    wanted = {
        key: precision(flag, values, asked)
        for flag, key in LEAVES.items()
        if _is_asked(flag, asked)
    }
    _complete(torch, wanted, values, asked)
    result = []
    for key in _ordered(wanted):
        value, flag = wanted[key]
        leaf = Leaf(tree, key, value, _why_not(tree, key, wanted))
        result.append(Setting(leaf, value, flag))
    if type(tree) is Tree:
        _warn_unreadable(tree, wanted)
        result += _irreversible(tree, wanted)
    return result


def precision(leaf: str, values: Mapping[str, Any], asked: Collection[str]) -> tuple[str, str]:
    """The value of a leaf and the flag that decides it: its own, else its parents', else its own.

    The same rule as the resolver's (`resolve/ground.py`).
    """
    if leaf in asked and values[leaf] != "none":
        return values[leaf], leaf
    backend = LEAVES[leaf][0]
    for parent in PARENTS[backend]:
        if parent in asked and (value := values[parent]) != "none":
            # CUDA has no bfloat16 mode for float32; PyTorch reads the parent as none there.
            return ("none" if value == "bf16" and backend == "cuda" else value), parent
    deciders = [flag for flag in (leaf, *PARENTS[backend]) if flag in asked]
    return values[leaf], deciders[0] if deciders else leaf


def _is_asked(leaf: str, asked: Collection[str]) -> bool:
    return leaf in asked or any(parent in asked for parent in PARENTS[LEAVES[leaf][0]])


def _complete(
    torch: Any,
    wanted: dict[Key, tuple[str, str]],
    values: Mapping[str, Any],
    asked: Collection[str],
) -> None:
    """Add the leaves without which an older switch could not be read."""
    for one, other in ((CONVOLUTIONS, RECURRENT), (RECURRENT, CONVOLUTIONS)):
        if one in wanted and other not in wanted:
            wanted[other] = precision(_FLAG_OF[other], values, asked)[0], wanted[one][1]
    on_cpu = wanted.get(CPU_PRODUCTS)
    if (
        on_cpu is not None
        and on_cpu[0] in ("tf32", "bf16")
        and CUDA_PRODUCTS not in wanted
        and not has_gpu_build(torch)
    ):
        # As set_float32_matmul_precision does; nothing computes by it in such a build.
        wanted[CUDA_PRODUCTS] = "tf32", on_cpu[1]


def _ordered(wanted: Mapping[Key, tuple[str, str]]) -> list[Key]:
    """TF32 on CUDA comes before, and goes after, what oneDNN may only do together with it."""
    order = [key for key in LEAVES.values() if key in wanted]
    if CPU_PRODUCTS in wanted and wanted.get(CUDA_PRODUCTS, ("",))[0] != "tf32":
        order.remove(CPU_PRODUCTS)
        order.insert(0, CPU_PRODUCTS)
    return order


def _why_not(tree: Tree, key: Key, wanted: Mapping[Key, tuple[str, str]]) -> str:
    """Why PyTorch cannot take the value wanted at a leaf, or ""."""
    if key in (CONVOLUTIONS, RECURRENT):
        conv, rnn = wanted[CONVOLUTIONS][0], wanted[RECURRENT][0]
        if (conv == "tf32") != (rnn == "tf32"):
            return (
                f'convolutions would be "{conv}" and recurrent layers "{rnn}", but'
                " `torch.backends.cudnn.allow_tf32` is one switch for both: reading it and"
                " torch.export would raise; give both one value"
            )
    if isinstance(tree, LegacyTree) and (key[0] == "mkldnn" or wanted[key][0] == "none"):
        return absent(tree.torch)
    return ""


def _irreversible(tree: Tree, wanted: Mapping[Key, tuple[str, str]]) -> list[Setting]:
    """What goes with the leaves and cannot be put back."""
    result = []
    value, flag = wanted.get(CONVOLUTIONS, ("tf32", ""))
    if value != "tf32" and not _why_not(tree, CONVOLUTIONS, wanted):
        result.append(Setting(Unset(tree), False, flag))
    if not tree.is_readable() and _can_be_readable(tree, wanted):
        result.append(Setting(Readable(tree), True, next(iter(wanted.values()))[1]))
    return result


def _can_be_readable(tree: Tree, wanted: Mapping[Key, tuple[str, str]]) -> bool:
    """Whether the older switches have names for what the leaves will hold."""
    cuda, cpu, conv, rnn = (_to_be(tree, wanted, key) for key in _WITH_OLDER_SWITCH)
    return (cuda == "tf32" or cpu in ("none", "ieee")) and (conv == "tf32") == (rnn == "tf32")


def _warn_unreadable(tree: Tree, wanted: Mapping[Key, tuple[str, str]]) -> None:
    """Say, once in a process, that a plan wants what one older switch has no name for."""
    cuda, cpu = (_to_be(tree, wanted, key) for key in (CUDA_PRODUCTS, CPU_PRODUCTS))
    decided = CUDA_PRODUCTS in wanted or CPU_PRODUCTS in wanted
    if decided and cuda != "tf32" and cpu in ("tf32", "bf16") and not tree.warned:
        tree.warned = True
        log.warning(
            "torch.get_float32_matmul_precision() raises where `mkldnn.matmul.fp32_precision` is"
            ' "%s" and `cuda.matmul.fp32_precision` is "%s": PyTorch has no older name for that',
            cpu,
            cuda,
        )


def _to_be(tree: Tree, wanted: Mapping[Key, tuple[str, str]], key: Key) -> str:
    """What a leaf will hold under the plan."""
    return wanted[key][0] if key in wanted else str(tree.get(*key))
