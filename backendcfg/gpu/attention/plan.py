"""What is cached of the calls of one kind, and our own kernels put on a stream by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg import _native
from backendcfg.gpu.kernels import loading

if TYPE_CHECKING:
    from backendcfg.dispatch.attention_shapes import Shapes
    from backendcfg.gpu.arrays import Arguments, DeviceView
    from backendcfg.gpu.attention.call import Launch
    from backendcfg.gpu.attention.cudnn import Prepared
    from backendcfg.gpu.attention.cudnn_backward import GradientPlans
    from backendcfg.gpu.kernels.sources import Kernel


class AttentionPlan(NamedTuple):
    """What all calls of one kind have in common.

    Attributes:
        shapes: their sizes.
        kernel: who serves: "flash", "efficient", "math" or "cudnn".
        because: why that one.
        driver: of the device.
        capability: of the device.
        memories: shared memory of a block and the second-level cache, in bytes.
        kernels: those that were loaded, by variant; how memory is aligned decides between them.
        is_grouped: whether several heads of query share one of key and value.
        rounds: whether `math` may round scores and weights of 16 bits to 16 bits.
        is_checked: whether a result that is not finite is refused.
        by_cudnn: what cuDNN runs; None where it does not serve.
        gradients: what cuDNN runs for the gradients; None where nothing needs one.
    """

    shapes: Shapes
    kernel: str
    because: str
    driver: loading.Driver
    capability: tuple[int, int]
    memories: tuple[int, int]
    kernels: dict[Kernel, Any]
    is_grouped: bool
    rounds: bool
    is_checked: bool
    by_cudnn: Prepared | None = None
    gradients: GradientPlans | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape of the scores and the width, as `explain` and `trace` tell them."""
        return (*self.shapes.scores, self.shapes.width)


def put(
    given: Arguments, held: tuple[DeviceView | None, ...], plan: AttentionPlan, start: Launch
) -> None:
    """Put a kernel on the stream of the first array, in order with those of the others.

    It is loaded when it is first needed, and compiled where no compiled one is on disk.

    Raises:
        DeviceFailedError: the driver failed.
    """
    kernel = plan.kernels.get(start.kernel)
    if kernel is None:
        ordinal = given.first.ordinal
        kernel = loading.attention(plan.driver, ordinal, plan.capability, start.kernel)
        if isinstance(kernel, tuple):
            given.failed(plan.kernel, kernel)
        plan.kernels[start.kernel] = kernel
    _, _, _, stream, others, settles = given.work(0, plan.driver.handle, *held)
    fault = _native.device_launch(
        *(kernel, stream, others, settles, start.grid, start.threads, start.arguments)
    )
    if fault is not None:
        given.failed(plan.kernel, fault)
