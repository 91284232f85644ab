"""Products of 2:4 sparse matrices by cuSPARSELt: the calls behind `backendcfg.ops.sparse`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg import _native
from backendcfg.cache import BoundedCache
from backendcfg.errors import InvalidArgumentError, MissingLibraryError
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.gpu import messages, own_library
from backendcfg.gpu.arrays import SIZES, Arguments, DeviceView
from backendcfg.gpu.libraries.calling import Fault, Session
from backendcfg.gpu.libraries.opening import SoleLibrary, sole_library
from backendcfg.gpu.sparse import cusparselt
from backendcfg.gpu.sparse.cusparselt import (
    ALIGNMENT,
    Matrix,
    Operands,
    Product,
    SparseHandle,
)
from backendcfg.ops.arrays import element_named
from backendcfg.ops.devices import place_named, place_of
from backendcfg.ops.explanation import Answer, Question, Reason
from backendcfg.ops.serving import served
from backendcfg.ops.sparse import Compressed, SparseAlgorithm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.gpu.libraries.calling import Work


BECAUSE = "it multiplies 2:4 sparse matrices"


# The bytes that a product works in, by library, device and `cusparselt.product`.
_workspaces: BoundedCache[tuple[str, int, Product], int] = BoundedCache(512)


class _Product(NamedTuple):
    """One product, ready to be run."""

    given: Arguments
    chosen: SoleLibrary
    numbers: Product
    a: DeviceView
    b: DeviceView
    bias: DeviceView | None
    copy: Any
    shape: tuple[int, int]
    element: str


def sparse_compress(a: Any) -> Compressed:
    """See `backendcfg.ops.sparse_compress`."""
    given = Arguments("sparse_compress", {"a": a})
    view = _view(given, "a")
    if why := cusparselt.misfit(view.shape, view.element):
        given.refuse(f"`a` must {why}")
    chosen = _chosen(given, view, SparseAlgorithm())
    _known(given, "a")
    dense = a
    leading = view.strides[0]
    if view.strides[1] != 1 or not _is_aligned(view, leading) or leading < view.shape[1]:
        dense, view = _copied(given, "a", a, view.shape, view.element)
        leading = view.shape[1]
    matrix = Matrix(view.shape[0], view.shape[1], leading, cusparselt.NUMBERS[view.element])
    invalid, answer = given.make((1,), "int32")
    work = given.work(chosen.library, chosen.driver, view, answer)
    with _session(given, work) as handle:
        handle.check(matrix, view.address, answer.address)
    if int(invalid.item()):
        given.refuse(
            "`a` must have at most 2 numbers other than 0 in every 4 of a row",
            helps=["prune it first: keep the 2 largest of every 4"],
        )
    with _session(given, work) as handle:
        size, buffer_size = handle.sizes(matrix)
    memory, compressed = given.make((size,), "uint8")
    room, buffer = given.make((buffer_size,), "uint8") if buffer_size else (None, None)
    work = given.work(chosen.library, chosen.driver, view, compressed, buffer)
    with _session(given, work) as handle:
        place = buffer.address if buffer is not None else 0
        handle.compress(matrix, view.address, compressed.address, place)
    del room, dense  # their library gives the memory to what comes next on the stream
    served("sparse_compress", "cusparselt", BECAUSE, view.shape, view.element)
    return Compressed((view.shape[0], view.shape[1]), view.element, view.place, memory)


def sparse_matmul(
    compressed: Compressed, b: Any, bias: Any, algorithm: SparseAlgorithm | int | None
) -> Any:
    """See `backendcfg.ops.sparse_matmul`."""
    it = _product("sparse_matmul", compressed, b, bias, algorithm)
    result, _ = _run(it, search=False)
    flags = FlagsInForce()
    if flags["ops.check_finite"] and it.element != "int32":
        own_library.check_finite("sparse_matmul", result)
    served("sparse_matmul", "cusparselt", BECAUSE, (*it.shape, compressed.shape[1]), it.element)
    return result


def sparse_search(compressed: Compressed, b: Any, bias: Any) -> SparseAlgorithm:
    """See `backendcfg.ops.sparse_search`."""
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
    view = _view(given, "b")
    a = given.hold("compressed", compressed.memory)
    (m, k), element = compressed.shape, compressed.dtype
    if view.element != element:
        given.refuse(f"`b` must hold {element}, as the compressed matrix does")
    if why := cusparselt.misfit_dense(view.shape, k, element):
        given.refuse(f"`b` must {why}")
    how = _algorithm(given, algorithm)
    chosen = _chosen(given, view, how)
    added = _bias(given, element, m) if bias is not None else None
    n, copy = view.shape[1], None
    by_rows, by_columns = view.strides[1] == 1, view.strides[0] == 1
    transposed = element == "int8" or (by_columns and not by_rows)
    leading, length = (view.strides[1], k) if transposed else (view.strides[0], n)
    lies_well = by_columns if transposed else by_rows
    if not lies_well or leading < length or not _is_aligned(view, leading):
        turned = (1, 0) if transposed else (0, 1)
        _known(given, "b")
        value = own_library.turned(b, turned)
        copy, view = _copied(given, "b", value, tuple(value.shape), element)
        leading = length
    numbers = cusparselt.product(
        (m, n, k),
        element,
        leading,
        added.address if added is not None else 0,
        how,
        transposed=transposed,
    )
    result = cusparselt.RESULT[element]
    return _Product(given, chosen, numbers, a, view, added, copy, (m, n), result)


def _run(it: _Product, *, search: bool) -> tuple[Any, tuple[int, ...]]:
    """Multiply, or search; the result, and what a search found."""
    given, chosen = it.given, it.chosen
    result, written = given.make(it.shape, it.element)
    work = given.work(chosen.library, chosen.driver, it.b, it.a, it.bias, written)
    key = (chosen.path, written.ordinal, it.numbers)
    size = _workspaces.get(key)
    if size is None:
        with _session(given, work) as handle:
            size = handle.workspace(it.numbers)
        _workspaces.put(key, size)
    room, area = given.make((size,), "uint8") if size else (None, None)
    work = given.work(chosen.library, chosen.driver, it.b, it.a, it.bias, written, area)
    place = area.address if area is not None else 0
    operands = Operands(it.a.address, it.b.address, written.address, place)
    found: tuple[int, ...] = ()
    with _session(given, work) as handle:
        if search:
            found = handle.search(it.numbers, operands)
        else:
            handle.multiply(it.numbers, operands)
    del room  # not before: its library gives the memory to what comes next on the stream
    return result, found


@contextmanager
def _session(given: Arguments, work: Work) -> Iterator[SparseHandle]:
    """A handle for one call; what fails is raised as `Arguments.failed` does."""
    try:
        with Session(work, SparseHandle) as handle:
            yield handle
    except Fault as fault:
        given.failed("cuSPARSELt", fault.args)


def _view(given: Arguments, name: str) -> DeviceView:
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


def _chosen(given: Arguments, view: DeviceView, how: SparseAlgorithm) -> SoleLibrary:
    messages.refuse_unkept(given.operation, cusparselt.unkept(FlagsInForce().tier, how))
    chosen = sole_library("cusparselt", view.kind, cusparselt.OLDEST)
    if chosen.library is None:
        raise MissingLibraryError(
            f"{given.operation}: no library can multiply 2:4 sparse matrices on {view.place}",
            notes=list(chosen.reasons),
            state="nothing was computed",
            helps=["install the wheel nvidia-cusparselt-cu12 or -cu13", "or use `ops.matmul`"],
        )
    return chosen


def _is_aligned(view: DeviceView, leading: int) -> bool:
    """Whether memory and rows lie as cuSPARSELt needs it."""
    step = leading * SIZES[view.element]
    return view.address % ALIGNMENT == 0 and step % ALIGNMENT == 0


def _copied(
    given: Arguments, name: str, value: Any, shape: tuple[int, ...], element: str
) -> tuple[Any, DeviceView]:
    _known(given, name)
    copy, view = given.make(shape, element)
    own_library.fill(copy, value, zero=False)
    return copy, view


def _bias(given: Arguments, element: str, rows: int) -> DeviceView:
    if element == "int8":
        given.refuse("`bias` must be left out for int8", helps=["add it to the result"])
    view = given.take("bias")
    if view.element != element or view.shape != (rows,):
        given.refuse(f"`bias` must hold {rows} numbers of {element}, one for each row")
    if not view.is_dense or view.address % ALIGNMENT:
        given.refuse("`bias` must be dense and aligned to 16 bytes", helps=["copy it"])
    return view


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


def explain_sparse(question: Question) -> Answer:
    """`shapes` are of the matrix and, for products, of `b`; `device` is where."""
    operation = question.operation
    shapes = question.read_shapes()
    count = 1 if operation == "sparse_compress" else 2
    if shapes is None or len(shapes) != count:
        many = "one shape in a list" if count == 1 else "two shapes"
        raise InvalidArgumentError(f"explain: `shapes` must be {many}, not {question.shapes!r}")
    name = element_named(question.dtype)
    place = place_of(question.option("device", "cuda:0"))
    why = cusparselt.misfit(shapes[0], name)
    if not why and count == 2:
        why = cusparselt.misfit_dense(shapes[1], shapes[0][1], name)
    if why:
        raise InvalidArgumentError(f"explain: an operand must {why}")
    chosen = SoleLibrary(reasons=("the CPU has no sparse products",))
    where = "the CPU"
    if place is not None:
        chosen = sole_library("cusparselt", place[0], cusparselt.OLDEST)
        where = place_named(place)
    broken = cusparselt.unkept(FlagsInForce().tier)
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
        cusparselt.FLAGS,
    )
