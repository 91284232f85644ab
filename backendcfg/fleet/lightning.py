"""Lightning: the processes of one host share its cores, and agree before they train.

`Trainer(strategy="ddp")` starts the other processes of a host from the first, which has resolved
its profile for all cores by then; and it does not tell them how many they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning.pytorch import Callback

from backendcfg import environ
from backendcfg.fleet import workers
from backendcfg.fleet.agreement import agree
from backendcfg.probe.limits import local_rank, read_cores, read_limits
from backendcfg.session import adjust, installed

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer


class SharedCores(Callback):  # type: ignore[misc]
    """A callback for `Trainer(callbacks=[SharedCores()])` in a program under a profile.

    Where the profile has `threads.count = "auto"`, each process gets its part of the cores of its
    host. Then all processes hold their settings against each other, as `fleet.agree()` does.
    """

    def __init__(self, *, agree: bool = True) -> None:
        """Say whether processes are to agree; else cores are shared alone."""
        self.agree = agree

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Share and agree, once processes have found each other and before anything is computed.

        Raises:
            FleetDisagreesError: processes have other settings; it names them, in each alike.
            FleetTimeoutError: one did not answer in time.
        """
        applied = installed.in_force()
        if environ.disabled() or applied is None:
            return
        processes = trainer.num_devices
        # A launcher such as torchrun has said already how many share the host.
        shares = processes > 1 and local_rank(environ.copy()) is None
        if shares and workers.leaves_threads_open(applied.plans[-1].request):
            cores = read_cores(read_limits()).count
            adjust.assign({"threads.count": max(1, cores // processes)})
        if self.agree and trainer.world_size > 1:
            agree()
