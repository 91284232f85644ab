"""Replace kernels of PyTorch by ours, and give them back.

They are replaced below autograd, vmap, autocast and the compiler, so that all of these work as they
do with PyTorch's own. https://docs.pytorch.org/docs/2.13/library.html

A kernel in Python costs a call some 8 us. PyTorch's stable interface for C (`torch/csrc/stable`)
costs nothing that can be measured, but in 2.13 it has no `Scalar`, which `addmm` takes.
"""

from __future__ import annotations

import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray


class Kernel(NamedTuple):
    """One of ours, and which of PyTorch's it replaces.

    Attributes:
        operator: of `aten`, with its overload: "mm", "mm.out".
        call: takes what the operator takes; NotImplemented leaves a call to PyTorch.
        key: the dispatch key: "CPU", "AutogradCPU".
        unlocked: computes what is left to PyTorch with PyTorch's bits and without the GIL;
            NotImplemented where it cannot. PyTorch's own kernel is then called, with the GIL held.
    """

    operator: str
    call: Any
    key: str = "CPU"
    unlocked: Any = None


class Replaced:
    """Some of PyTorch's kernels, all of which are replaced together, or none."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self._theirs: dict[str, Any] = {}
        self._kernels = kernels
        self._lock = threading.Lock()
        self._wanted: set[Hashable] = set()
        self._library: Any = None

    @property
    def is_on(self) -> bool:
        """Whether our kernels run now."""
        return bool(self._wanted)

    def is_wanted(self, by: Hashable) -> bool:
        """Whether it is one of those for whom our kernels run."""
        return by in self._wanted

    def why_not(self, torch: Any) -> str:
        """Why a PyTorch cannot be served, or ""."""
        operators = (kernel.operator.partition(".")[0] for kernel in self._kernels)
        if hasattr(torch.library, "get_kernel") and all(
            hasattr(torch.ops.aten, operator) for operator in operators
        ):
            return ""
        return f"PyTorch {torch.__version__} does not give its kernels out"

    def serve(self, torch: Any, by: Hashable) -> None:
        """Replace them, if nobody has; `by` wants it until it gives them back."""
        with self._lock:
            if self._library is None:
                self._library = self._replace(torch)
            self._wanted.add(by)

    def give_back(self, by: Hashable) -> None:
        """Give PyTorch its kernels back once nobody else wants ours; twice does nothing.

        A kernel that another thread may be looking up must not be taken away: PyTorch's table has
        no lock, and the process would crash. So while other threads run Python ours stay in place,
        and pass every call on to PyTorch's.
        """
        with self._lock:
            self._wanted.discard(by)
            # `threading` does not count those that it did not start.
            alone = len(sys._current_frames()) == 1
            if not self._wanted and self._library is not None and alone:
                self._library._destroy()
                self._library = None

    def _replace(self, torch: Any) -> Any:
        made = torch.library.Library("aten", "IMPL")
        try:
            for kernel in self._kernels:
                operator, key = kernel.operator, kernel.key
                self._theirs[operator] = torch.library.get_kernel(f"aten::{operator}", key)
                with warnings.catch_warnings():
                    # That a kernel is replaced is what was asked for.
                    warnings.simplefilter("ignore")
                    made.impl(operator, self._call(kernel), key, with_keyset=True)
        except BaseException:
            made._destroy()
            raise
        return made

    def _call(self, kernel: Kernel) -> Any:
        def call(keys: Any, *given: Any, **named: Any) -> Any:
            found = kernel.call(*given, **named) if self._wanted else NotImplemented
            if found is NotImplemented and kernel.unlocked is not None:
                found = kernel.unlocked(*given, **named)
            if found is NotImplemented:
                return self._theirs[kernel.operator].call_boxed(keys, *given, **named)
            return found

        return call


def array(tensor: Any) -> NDArray[Any]:
    """The memory of a tensor on the CPU; bfloat16, which NumPy lacks, as uint16."""
    import torch

    if tensor.requires_grad:
        tensor = tensor.detach()
    return (tensor.view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor).numpy()  # type: ignore[no-any-return]


def tensor_of(array: NDArray[Any], dtype: Any) -> Any:
    """A tensor over the memory of an array; of bfloat16 where that is its type and it is uint16."""
    import torch

    tensor = torch.from_numpy(array)
    return tensor if tensor.dtype is dtype else tensor.view(dtype)
