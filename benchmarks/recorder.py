"""What it costs a program that its operations are recorded, as `prove --why` does.

    python benchmarks/recorder.py [--quick]

Steps with and without the recorder alternate in one process: of training in PyTorch, of k-means in
NumPy, and calls of NumPy on few numbers. Without it, a call of NumPy's still looks whether anybody
wants to be told of it.
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np
import torch
from measure import Row, emit, nanoseconds, options, side_by_side

from backendcfg import _native
from backendcfg.audit.trace import numpy_operations, streams, torch_operations


def training(what, network, batch, optimizer, mode, *, limit, rounds):
    """A step of training: forward, backward, and the optimizer's."""

    def step():
        optimizer.zero_grad()
        network(batch).square().mean().backward()
        optimizer.step()

    def recorded():
        with mode():
            step()

    return row(what, step, recorded, limit=limit, rounds=rounds)


def kmeans():
    """A step of Lloyd's algorithm: 100000 points in 2 dimensions, 8 means."""
    points = np.random.default_rng(0).normal(size=(100_000, 2))
    means = points[:8].copy()

    def step():
        nearest = ((points[:, None] - means) ** 2).sum(2).argmin(1)
        for k in range(len(means)):
            means[k] = points[nearest == k].mean(0)

    return step


def few_numbers():
    """A hundred times three ufuncs on three numbers."""
    x, y = np.random.default_rng(0).normal(size=(2, 3))

    def step():
        for _ in range(100):
            np.tanh(x * y + 1.0)

    return step


def computing(what, step, *, rounds):
    """A step of NumPy's, once with calls told to the recorder."""
    tells = _native.bind(computed=None)

    def recorded():
        _native.bind(**tells)
        step()
        _native.bind(computed=None)

    try:
        return row(what, step, recorded, rounds=rounds)
    finally:
        _native.bind(**tells)


def row(what, step, recorded, *, rounds, limit=None):
    """How long a step takes recorded, against without."""
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
        f"<= {limit}" if limit else "",
        ratio <= limit if limit else None,
    )


def main() -> int:
    """A transformer's layer of the size of BERT's, a network of two small layers, and NumPy."""
    rounds = 5 if options(__doc__).parse_args().quick else 31
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
    small = torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    with tempfile.TemporaryDirectory() as folder:
        streams.want(folder, streams.Wanted())
        recorder = streams.Recorder(folder)
        mode = torch_operations.modes(recorder)
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
        numpy_operations.watch("numpy", recorder)
        rows += [
            computing("NumPy: a step of k-means of 100000 points", kmeans(), rounds=rounds),
            computing("NumPy: 300 ufuncs on 3 numbers", few_numbers(), rounds=rounds),
        ]
    emit(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
