"""Our own kernels put on the stream of a call's arrays, each loaded when it is first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg import _native
from backendcfg.gpu.kernels import loading

if TYPE_CHECKING:
    from backendcfg.gpu.arrays import Arguments, DeviceView
    from backendcfg.gpu.attention.flash_backward_variants import Variant as BackwardVariant
    from backendcfg.gpu.attention.flash_variants import Launch, Variant
    from backendcfg.gpu.attention.forward import Plan
    from backendcfg.gpu.attention.plain_programs import Program, Start


def put(
    given: Arguments,
    held: tuple[DeviceView | None, ...],
    plan: Plan,
    chosen: Variant | BackwardVariant | Program,
    start: Launch | Start,
) -> None:
    """Put a kernel on the stream of the first array, in order with those of the others.

    Raises:
        DeviceFailedError: the driver failed.
    """
    query = given.first
    kernel = plan.kernels.get(chosen)
    if kernel is None:
        kernel = loading.attention(plan.driver, query.ordinal, plan.capability, chosen)
        if isinstance(kernel, tuple):
            given.failed(plan.kernel, kernel)
        plan.kernels[chosen] = kernel
    _, _, _, stream, others, settles = given.work(0, plan.driver.handle, *held)
    fault = _native.device_launch(
        kernel,
        stream,
        others,
        settles,
        start.grid,
        start.threads,
        start.arguments,
    )
    if fault is not None:
        given.failed(plan.kernel, fault)
