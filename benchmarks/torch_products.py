"""PyTorch's products: by its own kernels, and routed to ours.

    python benchmarks/torch_products.py [--quick]

What a program calls is the same in both turns: `route.torch.matmul` is on in one, "float32" for
products of that type, else as "native". A small product, measured before and after the first turn
of a route, shows what it costs calls that it leaves to PyTorch.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

from measure import Row, emit, nanoseconds, options, side_by_side

SHAPES = ((1, 1024, 1024), (16, 1024, 1024), (128, 768, 3072), (512, 512, 512))
"""Rows of the input, inputs and outputs of a layer: one token, a few, and a batch of training."""
WIDE = ((2, 64, 64), (4, 768, 3072), (4, 256, 50257), (64, 64, 64), (512, 768, 50257))
"""The same of float32: small layers, and GPT-2's last one."""


class Route:
    """Turns a route, or several, on and off in a microsecond."""

    def __init__(self, *replaced: Any) -> None:
        import torch

        self.torch, self.replaced = torch, replaced
        # While there is another thread our kernels stay in place and pass calls on.
        self.ended = threading.Event()
        threading.Thread(target=self.ended.wait, daemon=True).start()
        self.on()

    def on(self) -> None:
        for each in self.replaced:
            each.serve(self.torch, "benchmark")

    def off(self) -> None:
        for each in self.replaced:
            each.give_back("benchmark")


def rows(*, quick: bool) -> list[Row]:
    """A row for each call, type and shape."""
    import torch

    from backendcfg.ops import torch_products

    rounds = 5 if quick else 15
    found = []
    small = {"x": torch.randn(7, 7), "torch": torch}
    for value, replaced, dtypes, shapes in (
        ("float32", torch_products.FLOAT32, (torch.float32,), SHAPES + WIDE),
        ("native", torch_products.NARROW, (torch.bfloat16, torch.float16), SHAPES),
    ):
        plain = side_by_side({"mm": "torch.mm(x, x)"}, small, rounds=rounds)["mm"]
        route = Route(replaced)
        routed = side_by_side({"mm": "torch.mm(x, x)"}, small, rounds=rounds)["mm"]
        against = f"{nanoseconds(plain)} without the route"
        what = f'mm, 7 x 7 x 7, float32, left to PyTorch by the route "{value}"'
        ratio = f"{routed / plain:.2f} of its time"
        found.append(Row(what, nanoseconds(routed), against, ratio))
        for dtype, (m, k, n) in itertools.product(dtypes, shapes):
            x, w, c = (torch.randn(shape).to(dtype) for shape in ((m, k), (n, k), (m, n)))
            names: dict[str, Any] = {"x": x, "w": w, "b": w.mT.contiguous(), "torch": torch}
            names |= {"c": c, "linear": torch.nn.functional.linear}
            for what, call in (
                (f"linear, ({m}, {k}) to {n}", "linear(x, w)"),
                (f"mm, {m} x {k} x {n}", "torch.mm(x, b)"),
                (f"the gradient of w, ({m}, {k}) to {n}", "torch.mm(c.mT, x)"),
            ):
                found.append(row(route, f"{what}, {str(dtype)[6:]}", call, names, rounds))
        route.off()
    return found


def row(route: Route, what: str, call: str, names: dict[str, Any], rounds: int) -> Row:
    """One call, by our kernels and by PyTorch's in turns."""
    taken = side_by_side(
        {"ours": f"on(); {call}", "theirs": f"off(); {call}", "on": "on()", "off": "off()"},
        {**names, "on": route.on, "off": route.off},
        rounds=rounds,
    )
    ours, theirs = taken["ours"] - taken["on"], taken["theirs"] - taken["off"]
    against = f"{nanoseconds(theirs)} by PyTorch's kernels"
    return Row(what, nanoseconds(ours), against, f"{theirs / ours:.2f} of its speed")


if __name__ == "__main__":
    emit(rows(quick=options(__doc__).parse_args().quick))
