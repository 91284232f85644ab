"""One process of the show: random profiles, and PyTorch's public functions under each.

    python walk_torch.py never | switched SEED | "never computing" | computing

Prints PyTorch's state before and after as one line of JSON.
"""

from __future__ import annotations

import json
import random
import sys

import torch
import torch._inductor.config
import torch_state


class Model(torch.nn.Module):
    """A convolution, a product and attention: one of each kind of kernel."""

    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(2, 4, 3, padding=1)
        self.projection = torch.nn.Linear(8, 8)

    def forward(self, images):
        rows = self.projection(self.convolution(images).flatten(1, 2))
        split = rows.unflatten(-1, (2, 4)).transpose(1, 2)
        return torch.nn.functional.scaled_dot_product_attention(split, split, split)


def computed(model, images):
    """What PyTorch computes in each way, and the float64 result that it should be near."""
    with torch.no_grad():
        right = double(model)(images.double())
        exported = torch.export.export(model, (images,))
        torch._dynamo.reset()
        found = {
            "eager": model(images),
            "export": exported.module()(images),
            "compile": torch.compile(model, backend="aot_eager")(images),
            "inductor": torch.compile(model, backend="inductor")(images),
        }
        errors = {name: float((value - right).abs().max()) for name, value in found.items()}
        matrix = images[0, 0]
        u, s, v = torch.linalg.svd(matrix, full_matrices=False)
        errors["svd"] = float((u * s @ v - matrix).abs().max())
        errors["solve"] = float((torch.linalg.solve(matrix, matrix) - torch.eye(8)).abs().max())
        product = torch.einsum("ij,jk,kl->il", matrix, matrix, matrix)
        exact = matrix.double() @ matrix.double() @ matrix.double()
        errors["einsum"] = float((product - exact).abs().max() / exact.abs().max())
    return errors


def double(model):
    import copy

    return copy.deepcopy(model).double()


def getters():
    """What the older getters say of the precision; in a state that mixes both APIs, they raise."""
    backends = torch.backends
    with backends.cudnn.flags():
        pass
    return [
        torch.get_float32_matmul_precision(),
        backends.cuda.matmul.allow_tf32,
        backends.cudnn.allow_tf32,
    ]


def data():
    torch.manual_seed(0)
    return Model().eval(), torch.randn(3, 2, 8, 8)


def never():
    before = torch_state.state()
    return {"before": before, "under a parent": torch_state.leaves_under_a_parent()}


def switched(seed):
    import backendcfg

    shipped = _shipped()
    before, generators = torch_state.state(), torch_state.generators()
    draw = random.Random(seed)
    applied, irreversible, wrong, depth = [], set(), [], 0
    order = [draw.choice(shipped) for _ in range(100 - len(shipped))] + shipped
    draw.shuffle(order)
    for name in order:
        for outcome in backendcfg.apply(name).outcomes:
            if outcome.state == "irreversible":
                irreversible.add(outcome.switch)
        applied.append(name)
        depth += 1
        wrong += [
            repr(reading)
            for reading in backendcfg.verify().readings
            if reading.state in ("differs", "unreadable", "stuck")
        ]
        # Some are taken back at once, some lie under others for a while.
        while depth and draw.random() < 0.6:
            backendcfg.undo()
            depth -= 1
        with backendcfg.profile(draw.choice(shipped)):
            pass
    while depth:
        backendcfg.undo()
        depth -= 1
    return {
        "before": before,
        "after": torch_state.state(),
        "generators": [generators, torch_state.generators()],
        "under a parent": torch_state.leaves_under_a_parent(),
        "wrong": wrong,
        "rounds": len(applied),
        "applied": sorted(set(applied)),
        "shipped": shipped,
        "irreversible": sorted(irreversible),
    }


def computing(*, under_profiles):
    model, images = data()
    shipped = _shipped() if under_profiles else [""]
    results = {}
    for name in shipped:
        if under_profiles:
            import backendcfg

            backendcfg.apply(name)
        results[name] = {
            "errors": computed(model, images),
            "export": "exported",
            "getters": getters(),
        }
        if under_profiles:
            backendcfg.undo()
    return {"results": results, "shipped": shipped, "after": torch_state.state()}


def _shipped():
    from backendcfg.load.locations import profiles

    return sorted(one.name for one in profiles())


def main(kind, *words):
    told = {
        "never": never,
        "switched": lambda: switched(*map(int, words)),
        "never computing": lambda: computing(under_profiles=False),
        "computing": lambda: computing(under_profiles=True),
    }[kind]()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
