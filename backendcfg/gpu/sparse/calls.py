"""Products of 2:4 sparse matrices on NVIDIA's devices, by cuSPARSELt.

compressed = ops.sparse_compress(weight)          # at most 2 of every 4 numbers are not 0
result = ops.sparse_matmul(compressed, inputs)    # weight @ inputs
fastest = ops.sparse_search(compressed, inputs)   # once for a shape
result = ops.sparse_matmul(compressed, inputs, algorithm=fastest)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from backendcfg import _native
from backendcfg.errors import InvalidArgumentError, MissingLibraryError, TierNotKeptError
from backendcfg.flags import FlagsInForce
from backendcfg.gpu import own_library
from backendcfg.gpu.arrays import SIZES, Arguments, Held
from backendcfg.gpu.libraries import alone as device_alone
from backendcfg.gpu.products import calls, choice
from backendcfg.gpu.products.gemm import KINDS
from backendcfg.gpu.sparse import library as device_sparse
from backendcfg.gpu.sparse.library import SparseAlgorithm
from backendcfg.ops.arrays import element_named
from backendcfg.ops.explanation import Answer, Question, Reason
from backendcfg.ops.serving import served

__all__ = ["Compressed", "SparseAlgorithm", "sparse_compress", "sparse_matmul", "sparse_search"]

BECAUSE = "it multiplies 2:4 sparse matrices"
KEPT = 512
OPERATIONS = ("sparse_compress", "sparse_matmul", "sparse_search")


@dataclass(frozen=True, eq=False)
class Compressed:
    """A 2:4 sparse matrix in cuSPARSELt's own form, which `sparse_matmul` takes.

    Attributes:
        shape: (rows, columns) of the matrix.
        dtype: of its numbers: "float16", "bfloat16", "int8".
        device: its place: "cuda:0".
        memory: the compressed bytes, an array of the library that owned the matrix.
    """

    shape: tuple[int, int]
    dtype: str
    device: str
    memory: Any = field(repr=False)


# The bytes that a product works in, by library, device and numbers.
_areas: dict[tuple[int, int, tuple[int, ...]], int] = {}


class _Product(NamedTuple):
    """One product, ready to be run."""

    given: Arguments
    chosen: device_alone.Chosen
    numbers: tuple[int, ...]
    a: Held
    b: Held
    bias: Held | None
    copy: Any
    shape: tuple[int, int]
    element: str


def sparse_compress(a: Any) -> Compressed:
    """Compress a matrix of which at most 2 of every 4 numbers of a row are not 0.

    It is checked on the device first, and the answer waited for. float16 and bfloat16 need rows and
    columns in multiples of 16, int8 of 32.

    Args:
        a: (m, k), PyTorch's or CuPy's, on an NVIDIA device.

    Raises:
        InvalidArgumentError: it is no such matrix, or not 2:4.
        MissingLibraryError: there is no cuSPARSELt.
        DeviceFailedError: the device failed.
    """
    given = Arguments("sparse_compress", {"a": a})
    held = _held(given, "a")
    if why := device_sparse.misfit(held.shape, held.element):
        given.refuse(f"`a` must {why}")
    chosen = _chosen(given, held, SparseAlgorithm())
    _known(given, "a")
    dense = a
    leading = held.strides[0]
    if held.strides[1] != 1 or not _is_aligned(held, leading) or leading < held.shape[1]:
        dense, held = _copied(given, "a", a, held.shape, held.element)
        leading = held.shape[1]
    matrix = (held.shape[0], held.shape[1], leading, device_sparse.NUMBERS[held.element])
    invalid, answer = given.make((1,), "int32")
    work = given.work(chosen.library, chosen.driver, held, answer)
    _succeed(given, _native.device_sparse_check(work, matrix, held.address, answer.address))
    if int(invalid.item()):
        given.refuse(
            "`a` must have at most 2 numbers other than 0 in every 4 of a row",
            helps=["prune it first: keep the 2 largest of every 4"],
        )
    size, buffer_size, fault = _native.device_sparse_sizes(work, matrix)
    _succeed(given, fault)
    memory, compressed = given.make((size,), "uint8")
    room, buffer = given.make((buffer_size,), "uint8") if buffer_size else (None, None)
    fault = _native.device_sparse_compress(
        given.work(chosen.library, chosen.driver, held, compressed, buffer),
        matrix,
        held.address,
        compressed.address,
        buffer.address if buffer is not None else 0,
    )
    del room, dense  # their library gives the memory to what comes next on the stream
    _succeed(given, fault)
    served("sparse_compress", "cusparselt", BECAUSE, held.shape, held.element)
    return Compressed((held.shape[0], held.shape[1]), held.element, held.place, memory)


def sparse_matmul(
    compressed: Compressed,
    b: Any,
    bias: Any = None,
    *,
    algorithm: SparseAlgorithm | int | None = None,
) -> Any:
    """The product of a compressed matrix and another, and perhaps a number added to each row.

    float16 and bfloat16 are summed in float32 and rounded once; int8 gives int32, exactly.

    Args:
        compressed: (m, k), from `sparse_compress`.
        b: (k, n), of the same type at the same place; n in multiples of 8, for int8 of 16. Read by
            rows or by columns where it lies; int8 by columns alone, and copied else.
        bias: m numbers of the same type, one for each row; not for int8.
        algorithm: from `sparse_search`, or its number; 0 by default.

    Returns:
        (m, n), by rows, of the library that owns `b`.

    Raises:
        InvalidArgumentError: an argument does not fit.
        MissingLibraryError: there is no cuSPARSELt.
        TierNotKeptError: it does not keep what the profile promises.
        DeviceFailedError: the device failed.
    """
    it = _product("sparse_matmul", compressed, b, bias, algorithm)
    result, _ = _run(it, search=False)
    flags = FlagsInForce()
    if flags["ops.check_finite"] and it.element != "int32":
        calls.finite("sparse_matmul", result)
    served("sparse_matmul", "cusparselt", BECAUSE, (*it.shape, compressed.shape[1]), it.element)
    return result


def sparse_search(compressed: Compressed, b: Any, bias: Any = None) -> SparseAlgorithm:
    """The algorithm that multiplies fastest here, as cuSPARSELt measures it; waits for the device.

    Args:
        compressed: as for `sparse_matmul`.
        b: the same.
        bias: the same.

    Raises:
        InvalidArgumentError: an argument does not fit.
        MissingLibraryError: there is no cuSPARSELt.
        DeviceFailedError: the device failed.
    """
    _, found = _run(_product("sparse_search", compressed, b, bias, None), search=True)
    return SparseAlgorithm(*found)


def _product(
    operation: str,
    compressed: Compressed,
    b: Any,
    bias: Any,
    algorithm: SparseAlgorithm | int | None,
) -> _Product:
    given = Arguments(operation, {"b": b, "bias": bias})
    if not isinstance(compressed, Compressed):
        given.refuse(
            f"`compressed` must come from `ops.sparse_compress`, not {type(compressed).__name__}"
        )
    held = _held(given, "b")
    a = given.hold("compressed", compressed.memory)
    (m, k), element = compressed.shape, compressed.dtype
    if held.element != element:
        given.refuse(f"`b` must hold {element}, as the compressed matrix does")
    if why := device_sparse.misfit_dense(held.shape, k, element):
        given.refuse(f"`b` must {why}")
    how = _algorithm(given, algorithm)
    chosen = _chosen(given, held, how)
    added = _bias(given, element, m) if bias is not None else None
    n, copy = held.shape[1], None
    by_rows, by_columns = held.strides[1] == 1, held.strides[0] == 1
    transposed = element == "int8" or (by_columns and not by_rows)
    leading, length = (held.strides[1], k) if transposed else (held.strides[0], n)
    lies_well = by_columns if transposed else by_rows
    if not lies_well or leading < length or not _is_aligned(held, leading):
        turned = (1, 0) if transposed else (0, 1)
        _known(given, "b")
        value = own_library.turned(b, turned)
        copy, held = _copied(given, "b", value, tuple(value.shape), element)
        leading = length
    numbers = device_sparse.product(
        (m, n, k),
        element,
        leading,
        added.address if added is not None else 0,
        how,
        transposed=transposed,
    )
    result = device_sparse.RESULT[element]
    return _Product(given, chosen, numbers, a, held, added, copy, (m, n), result)


def _run(it: _Product, *, search: bool) -> tuple[Any, tuple[int, int, int, int]]:
    """Multiply, or search; the result, and what a search found."""
    given, chosen = it.given, it.chosen
    result, written = given.make(it.shape, it.element)
    work = given.work(chosen.library, chosen.driver, it.b, it.a, it.bias, written)
    key = (chosen.library, written.ordinal, it.numbers)
    size = _areas.get(key)
    if size is None:
        size, fault = _native.device_sparse_area(work, it.numbers)
        _succeed(given, fault)
        if len(_areas) >= KEPT:
            _areas.clear()
        _areas[key] = size
    room, area = given.make((size,), "uint8") if size else (None, None)
    work = given.work(chosen.library, chosen.driver, it.b, it.a, it.bias, written, area)
    pointers = (it.a.address, it.b.address, written.address, area.address if area else 0)
    found, fault = (0, 1, 0, -1), None
    if search:
        found, fault = _native.device_sparse_search(work, it.numbers, *pointers)
    else:
        fault = _native.device_sparse_multiply(work, it.numbers, *pointers)
    del room  # not before: its library gives the memory to what comes next on the stream
    _succeed(given, fault)
    return result, found


def _held(given: Arguments, name: str) -> Held:
    value = given.given[name]
    if not _native.device_holds(value):
        given.refuse(
            f"`{name}` must be an array on an NVIDIA device",
            helps=["on the CPU nothing is gained by 2:4: use `ops.matmul`"],
        )
    return given.take(name)


def _known(given: Arguments, name: str) -> None:
    if not own_library.is_known(given.given[name]):
        given.refuse(f"`{name}` must be PyTorch's or CuPy's", helps=["pass it as one of theirs"])


def _chosen(given: Arguments, held: Held, how: SparseAlgorithm) -> device_alone.Chosen:
    if broken := device_sparse.unkept(FlagsInForce().tier, how):
        raise TierNotKeptError(
            f"{given.operation}: {broken}",
            state="nothing was computed",
            helps=["use a profile of a lower tier"],
        )
    chosen = device_alone.choose("cusparselt", held.kind, device_sparse.OLDEST)
    if not chosen.library:
        raise MissingLibraryError(
            f"{given.operation}: no library can multiply 2:4 sparse matrices on {held.place}",
            notes=list(chosen.reasons),
            state="nothing was computed",
            helps=["install the wheel nvidia-cusparselt-cu12 or -cu13", "or use `ops.matmul`"],
        )
    return chosen


def _is_aligned(held: Held, leading: int) -> bool:
    """Whether memory and rows lie as cuSPARSELt needs it."""
    step = leading * SIZES[held.element]
    return held.address % device_sparse.ALIGNMENT == 0 and step % device_sparse.ALIGNMENT == 0


def _copied(
    given: Arguments, name: str, value: Any, shape: tuple[int, ...], element: str
) -> tuple[Any, Held]:
    _known(given, name)
    copy, held = given.make(shape, element)
    own_library.fill(copy, value, zero=False)
    return copy, held


def _bias(given: Arguments, element: str, rows: int) -> Held:
    if element == "int8":
        given.refuse("`bias` must be left out for int8", helps=["add it to the result"])
    held = given.take("bias")
    if held.element != element or held.shape != (rows,):
        given.refuse(f"`bias` must hold {rows} numbers of {element}, one for each row")
    if not held.is_dense or held.address % device_sparse.ALIGNMENT:
        given.refuse("`bias` must be dense and aligned to 16 bytes", helps=["copy it"])
    return held


def _algorithm(given: Arguments, algorithm: Any) -> SparseAlgorithm:
    if algorithm is None:
        return SparseAlgorithm()
    if isinstance(algorithm, SparseAlgorithm):
        return algorithm
    if isinstance(algorithm, bool) or not hasattr(algorithm, "__index__") or algorithm < 0:
        given.refuse(
            f"`algorithm` must be a number from 0 on, or from `sparse_search`, not {algorithm!r}"
        )
    return SparseAlgorithm(int(algorithm))


def _succeed(given: Arguments, fault: tuple[str, int, str] | None) -> None:
    if fault is not None:
        _failed(given, fault)


def _failed(given: Arguments, fault: tuple[str, int, str]) -> NoReturn:
    given.failed("cuSPARSELt", fault)


def explain_sparse(question: Question) -> Answer:
    """`shapes` are of the matrix and, for products, of `b`; `device` is where."""
    operation = question.operation
    shapes = question.read_shapes()
    count = 1 if operation == "sparse_compress" else 2
    if shapes is None or len(shapes) != count:
        many = "one shape in a list" if count == 1 else "two shapes"
        raise InvalidArgumentError(f"explain: `shapes` must be {many}, not {question.shapes!r}")
    name = element_named(question.dtype)
    place = choice.place_of(question.option("device", "cuda:0"))
    why = device_sparse.misfit(shapes[0], name)
    if not why and count == 2:
        why = device_sparse.misfit_dense(shapes[1], shapes[0][1], name)
    if why:
        raise InvalidArgumentError(f"explain: an operand must {why}")
    chosen = device_alone.Chosen(reasons=("the CPU has no sparse products",))
    where = "the CPU"
    if place is not None:
        chosen = device_alone.choose("cusparselt", place[0], device_sparse.OLDEST)
        where = f"{KINDS[place[0]]}:{place[1]}"
    broken = device_sparse.unkept(FlagsInForce().tier)
    reasons = (broken,) if broken else chosen.reasons
    said = " and ".join(map(str, shapes))
    return Answer(
        operation,
        f"{operation} of {said} on {where}",
        tuple(size for shape in shapes for size in shape),
        "" if reasons else "cusparselt",
        "" if reasons else chosen.path,
        "" if reasons else BECAUSE,
        tuple(Reason("cusparselt", "", each) for each in reasons),
        device_sparse.FLAGS,
    )
