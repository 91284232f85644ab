"""PyTorch's tree of float32 precisions, with its older switches kept in step.

PyTorch 2.9 and later keep a precision for each operation of each backend: six leaves (products,
convolutions and recurrent layers on CUDA and in oneDNN), under a parent for each backend and one
for all. Beside that tree the older switches `cuda.matmul.allow_tf32`, `cudnn.allow_tf32` and
`set_float32_matmul_precision` are kept, and reading one raises where it contradicts the leaves;
`torch.export`, `cudnn.flags()` and TorchInductor do read them. So a leaf is written together with
the older switch that it belongs to.

Parents are never written: one release differs from the next in which leaves they reach, and
`torch.backends.mkldnn.fp32_precision` writes the parent of all. Measured with the CPU build of
2.13; that CUDA's kernels obey the leaves was read in PyTorch's sources, not run.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Key = tuple[str, str]

CUDA_PRODUCTS, CONVOLUTIONS, RECURRENT = ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn")
CPU_PRODUCTS = ("mkldnn", "matmul")
"""oneDNN serves Intel's GPUs with the same leaves."""
LEAVES = (
    CUDA_PRODUCTS,
    CONVOLUTIONS,
    RECURRENT,
    CPU_PRODUCTS,
    ("mkldnn", "conv"),
    ("mkldnn", "rnn"),
)

_OTHER = {CONVOLUTIONS: RECURRENT, RECURRENT: CONVOLUTIONS}


class Tree:
    """The leaves of one PyTorch, and what was last written into each from here.

    Attributes:
        torch: the module.
        readers: by leaf, what reads it. A function of its own for each: a scope calls it thrice.
        writers: by leaf, what sets it and brings the older switch in step with it.
        written: by leaf, the value last written from here.
        warned: whether somebody was told of a state that an older switch has no name for.
    """

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.calls = torch._C
        self.warned = False
        self.get = torch._C._get_fp32_precision_getter
        self.set = torch._C._set_fp32_precision_setter
        self.written: dict[Key, str] = {}
        self.readers = {key: self._reader(key) for key in LEAVES}
        self.writers = {key: self._writer(key) for key in LEAVES}

    def read(self, key: Key) -> str:
        """What a leaf itself holds; where that cannot be told from its parent's value, "none".

        PyTorch says only what is in force. Put back, "none" is in force as the parent is, which
        nobody here changes.
        """
        return self.readers[key]()

    def write(self, key: Key, value: str) -> None:
        """Set a leaf, and bring the older switch in step with it."""
        self.writers[key](value)

    def _reader(self, key: Key) -> Callable[[], str]:
        get, written, (backend, operation) = self.get, self.written, key

        def read() -> str:
            value: str = get(backend, operation)
            if value == "none" or written.get(key) == value:
                return value
            return "none" if get(backend, "all") == value else value

        return read

    def _writer(self, key: Key) -> Callable[[str], None]:
        if key == CUDA_PRODUCTS:
            return self._write_cuda_product
        if key == CPU_PRODUCTS:
            return self._write_cpu_product
        if key in _OTHER:
            return self._writer_for_cudnn(key, _OTHER[key])
        set_leaf, written, (backend, operation) = self.set, self.written, key

        def write(value: str) -> None:
            set_leaf(backend, operation, value)
            written[key] = value

        return write

    def effective(self, key: Key) -> str:
        """What is in force at a leaf, which a parent may decide."""
        return str(self.get(*key))

    def is_readable(self) -> bool:
        """Whether every older switch can be read."""
        try:
            self.calls._get_cublas_allow_tf32()
            self.calls._get_cudnn_allow_tf32()
            self.calls._get_float32_matmul_precision()
        except RuntimeError:
            return False
        return True

    def _write_cuda_product(self, value: str) -> None:
        """`allow_tf32` means TF32 here; "medium" is that, and bfloat16 in oneDNN."""
        if value == "tf32" or (value == "none" and self._in_force(CUDA_PRODUCTS, value) == "tf32"):
            self._allow_tf32(value, self.read(CPU_PRODUCTS))
            return
        # Unlike "highest", this leaves oneDNN's leaf alone.
        self.calls._set_cublas_allow_tf32(False)
        self.written[CUDA_PRODUCTS] = "ieee"
        if value != "ieee":
            self.set(*CUDA_PRODUCTS, value)
            self.written[CUDA_PRODUCTS] = value

    def _write_cpu_product(self, value: str) -> None:
        self.set(*CPU_PRODUCTS, value)
        self.written[CPU_PRODUCTS] = value
        if self.get(*CUDA_PRODUCTS) == "tf32":
            self._allow_tf32(self.read(CUDA_PRODUCTS), value)

    def _allow_tf32(self, on_cuda: str, on_cpu: str) -> None:
        """Name what is in force for products, TF32 on CUDA, and give both leaves their values."""
        if self._in_force(CPU_PRODUCTS, on_cpu) == "bf16":
            self.calls._set_float32_matmul_precision("medium")
            self._correct(CPU_PRODUCTS, "bf16", on_cpu)
        else:
            self.calls._set_cublas_allow_tf32(True)
        self._correct(CUDA_PRODUCTS, "tf32", on_cuda)

    def _writer_for_cudnn(self, key: Key, other: Key) -> Callable[[str], None]:
        """`cudnn.allow_tf32` is one switch for both leaves; it can follow where they agree."""
        get, set_leaf, written, (backend, operation) = self.get, self.set, self.written, key
        read_other, calls = self.readers[other], self.calls

        def write(value: str) -> None:
            own = read_other()
            # What a leaf that holds "none" obeys; as `_in_force`, without the calls.
            parent = get(backend, "all") if "none" in (value, own) else ""
            allow = (value if value != "none" else parent) == "tf32"
            if ((own if own != "none" else parent) == "tf32") is not allow:
                set_leaf(backend, operation, value)
                written[key] = value
                return
            calls._set_cudnn_allow_tf32(allow)
            written[key] = written[other] = now = "tf32" if allow else "none"
            # It knows fewer values than there are.
            if value != now:
                set_leaf(backend, operation, value)
                written[key] = value
            if own != now:
                set_leaf(*other, own)
                written[other] = own

        return write

    def _in_force(self, key: Key, own: str) -> str:
        """What kernels obey where a leaf itself holds `own`."""
        return own if own != "none" else str(self.get(key[0], "all"))

    def _correct(self, key: Key, written: str, right: str) -> None:
        """Set a leaf to its right value after an older switch, which has fewer values, wrote it."""
        self.written[key] = written
        if written != right:
            self.set(*key, right)
            self.written[key] = right


class LegacyTree(Tree):
    """CUDA's leaves in PyTorch 2.8 and older, which has the older switches alone."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.calls = torch._C
        self.readers = {key: self._reader(key) for key in LEAVES}
        self.writers = {key: self._writer(key) for key in LEAVES}

    def effective(self, key: Key) -> str:
        """What is in force at a leaf: there are no parents."""
        return self.readers[key]()

    def _reader(self, key: Key) -> Callable[[], str]:
        """Either "tf32" or "ieee"; convolutions and recurrent layers share a switch."""
        of_cuda, of_cudnn = self.calls._get_cublas_allow_tf32, self.calls._get_cudnn_allow_tf32
        read = of_cuda if key == CUDA_PRODUCTS else of_cudnn
        return lambda: "tf32" if read() else "ieee"

    def _writer(self, key: Key) -> Callable[[str], None]:
        of_cuda, of_cudnn = self.calls._set_cublas_allow_tf32, self.calls._set_cudnn_allow_tf32
        write = of_cuda if key == CUDA_PRODUCTS else of_cudnn
        return lambda value: write(value == "tf32")


_trees: list[Tree] = []


def tree_of(torch: Any) -> Tree:
    """The one tree of a PyTorch, which remembers what was written."""
    for tree in _trees:
        if tree.torch is torch:
            return tree
    has_tree = hasattr(torch._C, "_get_fp32_precision_getter")
    _trees.append(Tree(torch) if has_tree else LegacyTree(torch))
    return _trees[-1]
