"""Replace kernels of PyTorch by ours, and give them back.

They are replaced below autograd, vmap, autocast and the compiler, so that all of these work as they
do with PyTorch's own. https://docs.pytorch.org/docs/2.13/library.html

A kernel in Python costs a call 3 to 8 us. One in C, by PyTorch's stable interface for C
(`native/src/python/torch_interface.h`), costs half a microsecond, but in 2.13 that
interface has no `Scalar`, which `addmm` takes.
"""

from __future__ import annotations

import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

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


class KernelsInC(NamedTuple):
    """Kernels of ours that PyTorch calls without Python in between.

    Attributes:
        operators: of `aten`, which they replace.
        lacks: says of a PyTorch, by the file of `torch._C`, which function it lacks, or None.
        serve: replaces PyTorch's kernels where that is not done, by the same file; with None, lets
            ours pass every call on.
        restore: gives PyTorch its kernels back.
    """

    operators: tuple[str, ...] = ()
    lacks: Callable[[str], str | None] = lambda _: None
    serve: Callable[[str | None], None] = lambda _: None
    restore: Callable[[], None] = lambda: None


_lock = threading.Lock()
_registered: list[_Registration] = []
"""What PyTorch has of ours, oldest first. Kernels in Python pass calls on to the kernels that they
found, so those must be there as long; kernels in C pass them on to PyTorch's own."""


class _Registration(NamedTuple):
    """Kernels that took the place of others.

    Attributes:
        of: whose they are.
        library: PyTorch's record of those in Python.
    """

    of: Replaced
    library: Any


class Replaced:
    """Some of PyTorch's kernels, all of which are replaced together, or none."""

    def __init__(
        self,
        kernels: Sequence[Kernel],
        in_c: KernelsInC | None = None,
        otherwise: Callable[[Any], str] = lambda _: "",
    ) -> None:
        """Replace nothing yet.

        Args:
            kernels: those in Python.
            in_c: those in C.
            otherwise: tries a PyTorch; why ours would not do the same, or "".
        """
        self._kernels = kernels
        self._in_c = in_c or KernelsInC()
        self._otherwise = otherwise
        self._wanted: set[Hashable] = set()

    @property
    def is_on(self) -> bool:
        """Whether our kernels run now."""
        return bool(self._wanted)

    def is_wanted(self, by: Hashable) -> bool:
        """Whether it is one of those for whom our kernels run."""
        return by in self._wanted

    def why_not(self, torch: Any) -> str:
        """Why a PyTorch cannot be served, or ""."""
        if not hasattr(torch.library, "get_kernel") or not all(
            hasattr(torch.ops.aten, operator) for operator in self._operators
        ):
            return f"PyTorch {torch.__version__} does not give its kernels out"
        if function := self._in_c.lacks(torch._C.__file__):
            return f"PyTorch {torch.__version__} lacks `{function}`"
        return self._otherwise(torch)

    def serve(self, torch: Any, by: Hashable) -> None:
        """Replace them, if nobody has; `by` wants it until it gives them back."""
        with _lock:
            if not self._is_reached():
                _registered.append(_Registration(self, self._replace(torch)))
            self._in_c.serve(torch._C.__file__)
            self._wanted.add(by)

    def give_back(self, by: Hashable) -> None:
        """Give PyTorch its kernels back once nobody else wants ours; twice does nothing.

        A kernel that another thread may be looking up must not be taken away: PyTorch's table has
        no lock, and the process would crash. So while other threads run Python ours stay in place,
        and pass every call on to PyTorch's.
        """
        with _lock:
            self._wanted.discard(by)
            if self._wanted or not self.is_registered:
                return
            self._in_c.serve(None)
            # `threading` does not count those that it did not start.
            if len(sys._current_frames()) > 1:
                return
            kept: set[str] = set()
            for each in reversed(tuple(_registered)):
                if each.of._wanted or not kept.isdisjoint(each.of._operators):
                    kept.update(each.of._operators)
                else:
                    each.of._in_c.restore()
                    each.library._destroy()
                    _registered.remove(each)

    @property
    def is_registered(self) -> bool:
        """Whether PyTorch has our kernels, which may pass every call on."""
        return any(each.of is self for each in _registered)

    @property
    def _operators(self) -> set[str]:
        of_python = (kernel.operator.partition(".")[0] for kernel in self._kernels)
        return {*of_python, *self._in_c.operators}

    def _is_reached(self) -> bool:
        """Whether calls come to our kernels: none in C took their place since."""
        for each in reversed(_registered):
            if each.of is self:
                return True
            if not self._operators.isdisjoint(each.of._in_c.operators):
                return False
        return False

    def _replace(self, torch: Any) -> Any:
        made = torch.library.Library("aten", "IMPL")
        try:
            with warnings.catch_warnings():
                # That kernels are replaced, of which PyTorch warns once, is what was asked for.
                warnings.simplefilter("ignore")
                for kernel in self._kernels:
                    operator, key = kernel.operator, kernel.key
                    theirs = torch.library.get_kernel(f"aten::{operator}", key)
                    made.impl(operator, self._call(kernel, theirs), key, with_keyset=True)
                # Of those in C it would warn on standard error, which hears no filter: let it warn
                # of an operator that nobody calls.
                if self._in_c.operators and hasattr(torch.ops.aten, "_test_optional_intlist"):
                    made.impl("_test_optional_intlist", lambda values, _: values, "CPU")
        except BaseException:
            made._destroy()
            raise
        return made

    def _call(self, kernel: Kernel, theirs: Any) -> Any:
        def call(keys: Any, *given: Any, **named: Any) -> Any:
            found = kernel.call(*given, **named) if self._wanted else NotImplemented
            if found is NotImplemented and kernel.unlocked is not None:
                found = kernel.unlocked(*given, **named)
            if found is NotImplemented:
                return theirs.call_boxed(keys, *given, **named)
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
