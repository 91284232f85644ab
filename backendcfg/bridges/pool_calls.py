"""The calls that read and set thread counts, bound to the libraries that are in this process.

Every symbol is looked up before a switch is made of it: a library that lacks one is listed in
`Inventory.missing` with the reason, so it can never look as if it had obeyed. Libraries are reached
with RTLD_NOLOAD, never loaded and never closed. What looking takes is imported here and not when
a scope looks: a process that another thread forks meanwhile would wait for that import for ever.
"""

from __future__ import annotations

import os
import re

from backendcfg import environ
from backendcfg.bridges.blis_architectures import VARIABLE as ARCH_TYPE
from backendcfg.bridges.blis_architectures import survives
from backendcfg.bridges.imports import mapped_set
from backendcfg.catalogue.cpu import (
    BLIS,
    LIBGOMP,
    LIBIOMP5,
    LIBOMP,
    MKL,
    MKL_CORE,
    MKL_RT,
    OPENBLAS,
)
from backendcfg.catalogue.variables import BLIS_WAYS
from backendcfg.probe import loaded
from backendcfg.records import field, record

TYPE_CHECKING = False
try:
    from backendcfg import _native
except ImportError:
    _native = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable, Iterable
    from typing import Any

    from backendcfg.probe.loaded import LoadedLibrary


_handles: dict[tuple[str, int], ctypes.CDLL] = {}


def handle(path: str) -> ctypes.CDLL | None:
    """A handle to a file that is loaded, or None; one per file, and never closed.

    What was replaced since has another inode, and is another file.
    """
    try:
        key = (path, os.stat(path).st_ino)
    except OSError:
        key = (path, 0)
    if key not in _handles:
        opened = loaded.handle_of(path)
        if opened is None:
            return None
        _handles[key] = opened
    return _handles[key]


TOP = 2**31 - 1


@record(frozen=True)
class Pool:
    """One library's calls.

    Attributes:
        label: "openblas[numpy]", "mkl[torch]", "openmp[libgomp torch]"; unique.
        kind: "openblas", "mkl", "blis" or "openmp".
        path: the file.
        get, set: the thread count that the library would use, and its setter.
        get_dynamic, set_dynamic: whether it may use fewer, where it has such a switch.
        core_type: the kernel set that it runs, for OpenBLAS and BLIS.
        set_local: for MKL, sets a count for the calling thread alone, 0 for none, and returns the
            one before.
        limit: the most threads that it was built for.
    """

    label: str
    kind: str
    path: str
    get: Callable[[], int]
    set: Callable[[int], None]
    get_dynamic: Callable[[], bool] | None = None
    set_dynamic: Callable[[int], None] | None = None
    core_type: Callable[[], str] | None = None
    set_local: Callable[[int], int] | None = None
    limit: int = TOP


@record(frozen=True)
class Inventory:
    """What can be steered in this process, and what cannot.

    Attributes:
        pools: in the order of `loaded.libraries_in_process`, OpenMP runtimes last.
        missing: `{switch name: why it is not offered}`, where the library lacks what it takes.
        waiting: the same for libraries that are loaded and have not started.
        started: `{label: kind}` of the libraries that have read their variables.
        files: `{label: path}` of every library, also of those without a pool.
    """

    pools: tuple[Pool, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    started: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


_last: tuple[Any, Inventory] = (None, Inventory())
_names: dict[str, str] = {}


def inventory() -> Inventory:
    """The pools of this process; rebuilt only after a library was loaded or unloaded."""
    global _last
    now = mapped_set()
    if now is None or _last[0] != now:
        libraries = loaded.libraries_in_process()
        _last = (now, take_inventory(libraries, layers_open=_mkl_layers_open(), names=_names))
    return _last[1]


def take_inventory(
    libraries: Iterable[LoadedLibrary],
    *,
    layers_open: bool = True,
    names: dict[str, str] | None = None,
) -> Inventory:
    """Bind the calls of the given libraries.

    Args:
        libraries: ones that are in this process; others are listed as missing.
        layers_open: whether libmkl_rt has opened its layers; asking it before would open them.
        names: labels by file, from before; new ones are added, so that a switch that somebody has
            set keeps its name when a second library of the same owner is loaded.
    """
    wanted = [x for x in libraries if x.kind in _BINDERS]
    # Intel's and LLVM's runtimes abort the process when a second one initialises, and any call
    # initialises: https://github.com/joblib/threadpoolctl/blob/master/multiple_openmp.md
    rivals = [x.path for x in wanted if _runtime(x) in (LIBIOMP5.name, LIBOMP.name)]
    names = {} if names is None else names
    pools: list[Pool] = []
    missing: dict[str, str] = {}
    waiting: dict[str, str] = {}
    started: dict[str, str] = {}
    files: dict[str, str] = {}
    for library in sorted(wanted, key=_is_openmp):
        label = names.setdefault(library.path, _label(library, names))
        files[label] = library.path
        if _is_mkl_rt(library.path) and not layers_open:
            waiting[f"{label}.threads"] = (
                "nobody has called it yet, and asking it would make it choose its layers; "
                "MKL_NUM_THREADS still decides"
            )
            continue
        started[label] = "mkl_rt" if _is_mkl_rt(library.path) else library.kind
        if library.path in rivals and len(rivals) > 1:
            missing[f"{label}.threads"] = (
                f"{len(rivals)} LLVM-like OpenMP runtimes are loaded; "
                f"calling one that has not started aborts the process: {', '.join(rivals)}"
            )
            continue
        opened = handle(library.path)
        if opened is None:
            missing[f"{label}.threads"] = f"{library.path} is not in this process"
            continue
        pool = _BINDERS[library.kind](opened, library, label, missing)
        if pool is not None:
            pools.append(pool)
    return Inventory(tuple(pools), missing, waiting, started, files)


def _is_mkl_rt(path: str) -> bool:
    return os.path.basename(path).startswith(MKL_RT)


def _mkl_layers_open() -> bool:
    return any(MKL_CORE in os.path.basename(path) for path in loaded.mapped_files())


def _label(library: LoadedLibrary, names: dict[str, str]) -> str:
    runtime = _runtime(library)
    plain = f"{library.kind}[{runtime + ' ' if runtime else ''}{library.owner}"
    with_file = f"{plain} {os.path.basename(library.path)}]"
    taken = {label for path, label in names.items() if path != library.path}
    return next(
        label
        for label in (f"{plain}]", with_file, f"{plain} {library.path}]")
        if label not in taken
    )


def _runtime(library: LoadedLibrary) -> str:
    """`libgomp` of `libgomp-e985bcbb.so.1.0.0`, for OpenMP runtimes."""
    if library.kind != "openmp":
        return ""

    found = re.match(r"lib[A-Za-z]+5?", os.path.basename(library.path))
    return found.group() if found else os.path.basename(library.path)


def _is_openmp(library: LoadedLibrary) -> bool:
    return library.kind == "openmp"


def _call(handle: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    """A function with its prototype, or None; one object per caller, shared with nobody."""
    try:
        function = handle[name]
    except AttributeError:
        return None
    function.restype, function.argtypes = result, list(arguments)
    return function


def _quick(handle: ctypes.CDLL, name: str, *prototype: Any) -> Any:
    """The same without ctypes between, for what scopes call whenever they are entered and left."""
    import ctypes

    function = _call(handle, name, *prototype)
    makers = {
        (ctypes.c_int,): "asking",
        (ctypes.c_bool,): "asking_whether",
        (None, ctypes.c_int): "telling",
        (ctypes.c_int, ctypes.c_int): "exchanging",
    }
    if function is None or _native is None or prototype not in makers:
        return function
    return getattr(_native, makers[prototype])(ctypes.cast(function, ctypes.c_void_p).value)


def _pair(
    handle: ctypes.CDLL,
    names: tuple[str, str],
    switch: str,
    missing: dict[str, str],
    prototypes: tuple[Any, Any],
    *,
    stores: bool,
) -> tuple[Any, Any]:
    """A getter and a setter, or two None and the reason in `missing`.

    Args:
        handle: the library.
        names: of the two functions.
        switch: whose they are.
        missing: see `Inventory`.
        prototypes: what the getter returns and what the setter takes.
        stores: whether the setter only stores the value. One that waits for a lock, or starts
            threads, is called without the interpreter lock.
    """
    result, argument = prototypes
    get = _quick(handle, names[0], result)
    set_ = (_quick if stores else _call)(handle, names[1], None, argument)
    absent = [name for name, call in zip(names, (get, set_), strict=True) if call is None]
    if absent:
        missing[switch] = f"it has no {' and no '.join(absent)}"
        return None, None
    return get, set_


def _openblas(
    handle: ctypes.CDLL, library: LoadedLibrary, label: str, missing: dict[str, str]
) -> Pool | None:
    import ctypes

    def name(middle: str) -> str:
        return f"{library.prefix}openblas_{middle}{library.suffix}"

    names, counts = (name("get_num_threads"), name("set_num_threads")), (ctypes.c_int, ctypes.c_int)
    get, set_ = _pair(handle, names, f"{label}.threads", missing, counts, stores=False)
    core = _call(handle, name("get_corename"), ctypes.c_char_p)
    if core is None or core() is None:
        missing[f"{label}.core_type"] = (
            f"it has no {name('get_corename')}" if core is None else "it gives no core type"
        )
    if get is None:
        return None
    config = _call(handle, name("get_config"), ctypes.c_char_p)
    built_for = re.search(rb"MAX_THREADS=(\d+)", (config and config()) or b"")
    return Pool(
        label,
        OPENBLAS.name,
        library.path,
        get,
        set_,
        core_type=None if f"{label}.core_type" in missing else lambda: _text(core, label),
        limit=int(built_for.group(1)) if built_for else TOP,
    )


def _text(call: Callable[[], bytes | None], label: str) -> str:
    answer = call()
    if answer is None:
        raise RuntimeError(f"{label} gives no core type")
    return answer.decode(errors="replace")


def _mkl(
    handle: ctypes.CDLL, library: LoadedLibrary, label: str, missing: dict[str, str]
) -> Pool | None:
    import ctypes

    # The names in small letters are Fortran's, which take addresses; these take values.
    inside_torch = os.path.basename(library.path).startswith("libtorch_cpu")
    style = "mkl_serv_{}" if inside_torch else "MKL_{}"

    def name(words: str) -> str:
        return style.format(words if inside_torch else words.title())

    names, counts = (name("get_max_threads"), name("set_num_threads")), (ctypes.c_int, ctypes.c_int)
    get, set_ = _pair(handle, names, f"{label}.threads", missing, counts, stores=True)
    names, whether = (name("get_dynamic"), name("set_dynamic")), (ctypes.c_bool, ctypes.c_int)
    get_dynamic, set_dynamic = _pair(
        handle, names, f"{label}.dynamic", missing, whether, stores=True
    )
    if get is None:
        return None
    local = _quick(handle, name("set_num_threads_local"), ctypes.c_int, ctypes.c_int)

    def of_process() -> int:
        # Its getter answers for the calling thread, whose own count hides the process's.
        mine: int = local(0)
        try:
            count: int = get()
        finally:
            if mine:
                local(mine)
        return count

    getter = get if local is None else of_process
    return Pool(
        label, MKL.name, library.path, getter, set_, get_dynamic, set_dynamic, set_local=local
    )


def _blis(
    handle: ctypes.CDLL, library: LoadedLibrary, label: str, missing: dict[str, str]
) -> Pool | None:
    import ctypes

    told = environ.foreign([ARCH_TYPE]).get(ARCH_TYPE, "")
    if told and not survives(library.path, told):
        # Any call makes BLIS look at the variable, and abort if it cannot serve it.
        missing[f"{label}.threads"] = f"it aborts the process at its first call: {ARCH_TYPE}={told}"
        return None
    names = ("bli_thread_get_num_threads", "bli_thread_set_num_threads")
    counts = (ctypes.c_int64, ctypes.c_int64)
    get, set_ = _pair(handle, names, f"{label}.threads", missing, counts, stores=False)
    if get is None:
        return None
    for name in BLIS_WAYS:
        ways = _call(handle, f"bli_thread_get_{name[5:].lower()}", ctypes.c_int64)
        # Versions differ in whether an unset way reads as -1 or 1.
        if environ.foreign([name]) or (ways is not None and ways() > 1):
            missing[f"{label}.threads"] = (
                f"{name} and its sisters say how loops are split, which outranks any thread count"
            )
            return None
    core = None
    query = _call(handle, "bli_arch_query_id", ctypes.c_int)
    spell = _call(handle, "bli_arch_string", ctypes.c_char_p, ctypes.c_int)
    if query is None or spell is None or spell(query()) is None:
        missing[f"{label}.core_type"] = "it has no bli_arch_query_id and bli_arch_string"
    else:
        core = lambda: _text(lambda: spell(query()), label)
    # BLIS answers -1 while nobody has said a count, and then uses one thread.
    return Pool(label, BLIS.name, library.path, lambda: max(1, get()), set_, core_type=core)


def _openmp(
    handle: ctypes.CDLL, library: LoadedLibrary, label: str, missing: dict[str, str]
) -> Pool | None:
    import ctypes

    # The runtimes of Intel and LLVM wait for a lock there, and end threads that are too many.
    stores = os.path.basename(library.path).startswith(LIBGOMP.name)
    names, counts = (LIBGOMP.symbol, "omp_set_num_threads"), (ctypes.c_int, ctypes.c_int)
    get, set_ = _pair(handle, names, f"{label}.threads", missing, counts, stores=stores)
    names, whether = ("omp_get_dynamic", "omp_set_dynamic"), (ctypes.c_bool, ctypes.c_int)
    get_dynamic, set_dynamic = _pair(
        handle, names, f"{label}.dynamic", missing, whether, stores=stores
    )
    if get is None:
        return None
    return Pool(label, "openmp", library.path, get, set_, get_dynamic, set_dynamic)


_BINDERS: dict[str, Callable[[ctypes.CDLL, LoadedLibrary, str, dict[str, str]], Pool | None]] = {
    OPENBLAS.name: _openblas,
    MKL.name: _mkl,
    BLIS.name: _blis,
    "openmp": _openmp,
}
