"""A library that alone serves a family of operations on NVIDIA's devices, or why it cannot.

found = choose("cufft", kind=2)
found.library, found.driver     # handles; or 0, and `found.reasons`
"""

from __future__ import annotations

from backendcfg.gpu.libraries.files import BY_NAME
from backendcfg.gpu.libraries.opening import Unusable, open_device
from backendcfg.gpu.products.gemm import CUDA, KINDS
from backendcfg.records import field, record


@record(frozen=True)
class Chosen:
    """The library that serves, or why there is none.

    Attributes:
        library: its handle; 0 where there is none.
        driver: that of the driver.
        path: the file of the library.
        reasons: why not, a line each.
    """

    library: int = 0
    driver: int = 0
    path: str = ""
    reasons: tuple[str, ...] = field(default_factory=tuple)


def choose(name: str, kind: int, oldest: tuple[int, int, int] = (0, 0, 0)) -> Chosen:
    """Who serves on devices of a kind.

    Args:
        name: of the library.
        kind: of the devices, as DLPack numbers it.
        oldest: its oldest version that is served, where kinds of libraries do not say it.
    """
    title = BY_NAME[name].title
    if kind != CUDA:
        return Chosen(reasons=(f"{title} is NVIDIA's: it serves no {KINDS[kind]} device",))
    driver = open_device("cuda")
    if isinstance(driver, Unusable):
        return Chosen(reasons=driver.reasons)
    library = open_device(name)
    if isinstance(library, Unusable):
        return Chosen(reasons=library.reasons)
    if library.version < oldest:
        version, least = (".".join(map(str, each)) for each in (library.version, oldest[:2]))
        reason = f"{library.path} is {title} {version}: {least} is the oldest served"
        return Chosen(reasons=(reason,))
    return Chosen(library.handle, driver.handle, library.path)
