"""What it costs a program of PyTorch that its operations are recorded, as `prove --why` does.

    python benchmarks/recorder.py [--quick]

Steps of training with and without the recorder alternate in one process.
"""

from __future__ import annotations

import sys
import tempfile

import torch
from measure import Row, emit, nanoseconds, side_by_side

from backendcfg.audit.trace import streams, torch_operations


def training(what, network, batch, optimizer, mode, *, limit, rounds):
    """A step of training: forward, backward, and the optimizer's."""

    def step():
        optimizer.zero_grad()
        network(batch).square().mean().backward()
        optimizer.step()

    def recorded():
        with mode():
            step()

    took = side_by_side(
        {"ours": "recorded()", "theirs": "step()"},
        {"recorded": recorded, "step": step},
        rounds=rounds,
        turn=0.05,
    )
    ratio = took["ours"] / took["theirs"]
    return Row(
        what,
        nanoseconds(took["ours"]),
        f"{nanoseconds(took['theirs'])} without",
        f"{ratio:.2f} of its time",
        f"<= {limit}",
        ratio <= limit,
    )


def main() -> int:
    """A transformer's layer of the size of BERT's, and a network of two small layers."""
    rounds = 5 if "--quick" in sys.argv else 31
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
    small = torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    with tempfile.TemporaryDirectory() as folder:
        streams.want(folder, streams.Wanted())
        mode = torch_operations.modes(streams.Recorder(folder))
        rows = [
            training(
                "TransformerEncoderLayer(768, 12, 3072), (4, 128, 768), AdamW",
                layer,
                torch.randn(4, 128, 768),
                torch.optim.AdamW(layer.parameters()),
                mode,
                limit=1.3,
                rounds=rounds,
            ),
            training(
                "MLP of 10, 64 and 1, (256, 10), Adam",
                small,
                torch.randn(256, 10),
                torch.optim.Adam(small.parameters()),
                mode,
                limit=4.0,
                rounds=rounds,
            ),
        ]
    emit(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
