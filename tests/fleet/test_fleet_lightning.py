"""The processes of Lightning's own launcher share their host, and agree before they train."""

from __future__ import annotations

import importlib.util
import json

import pytest
from running import run_program

from backendcfg.probe.limits import read_cores, read_limits

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("lightning") is None, reason="lightning is not installed"
    ),
]

# Each process writes what it met, because Lightning's processes mix up what they print.
PROGRAM = """
import json, os, sys
import lightning, torch
from backendcfg.errors import FleetDisagreesError
from backendcfg.fleet.lightning import SharedCores

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

class Odd(lightning.Callback):
    def setup(self, trainer, module, stage):
        if trainer.global_rank == 1 and "odd" in sys.argv:
            torch.backends.mkldnn.deterministic = not torch.backends.mkldnn.deterministic

if __name__ == "__main__":
    data = torch.utils.data.TensorDataset(torch.arange(128.0).reshape(16, 8))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    trainer = lightning.Trainer(
        callbacks=[Odd(), SharedCores()], accelerator="cpu", devices=2, strategy="ddp", max_epochs=1,
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )
    model, met = Model(), {}
    try:
        trainer.fit(model, loader)
        met["weights"] = model.layer.weight.tolist()
    except FleetDisagreesError as error:
        met["refused"] = str(error)
    met["threads"] = torch.get_num_threads()
    with open(f"met-{trainer.global_rank}.json", "w") as file:
        json.dump(met, file)
    os._exit(0)  # threads of gloo may end the process with a signal
"""


@pytest.fixture(name="met")
def _met(tmp_path):
    """Run the program under a profile, and give what each of its two processes met."""

    def run(profile, *words):
        run_program(tmp_path, PROGRAM, *words, under=profile)
        return [json.loads((tmp_path / f"met-{rank}.json").read_text()) for rank in range(2)]

    return run


def test_processes_share_the_cores_and_train_alike(met):
    first, second = met("reproducible")
    assert first == second
    assert first["threads"] == max(1, read_cores(read_limits()).count // 2)
    assert met("reproducible") == [first, second]


@pytest.mark.exhaustive
def test_processes_with_other_settings_refuse_before_they_train(met):
    assert [one["refused"] for one in met("tf32-off", "odd")] == [
        "2 ranks do not compute alike"
    ] * 2
