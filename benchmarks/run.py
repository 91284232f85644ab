"""Every benchmark, each ratio beside its target; writes the tables and the chart of performance.md.

    python benchmarks/run.py            # measure, print, and write them
    python benchmarks/run.py --quick    # fewer rounds; prints only

What needs a package that is not installed is left out, and said.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

from chart import bars
from measure import Row, in_child, machine, options, table

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
CHART = PAGE.with_name("attention-speed.svg")
CHARTED = ("Attention", "Attention going backward")
"""Groups whose ratios are speeds relative to PyTorch's."""
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

GROUPS = (
    ("Scopes of the profiles that ship", "scopes.py", ("shipped",), ("scipy", "torch", "jax")),
    ("The same, nothing loaded", "scopes.py", ("bare",), ()),
    ("Scopes beside JAX and threadpoolctl", "scopes.py", ("jax",), ("jax", "threadpoolctl")),
    ("Scopes beside PyTorch", "scopes.py", ("torch",), ("torch",)),
    ("Processes", "startup.py", (), ()),
    ("`ops.matmul`", "matmul.py", (), ()),
    ("NumPy's products", "numpy_products.py", (), ()),
    ("NumPy's element-wise functions", "numpy_elementwise.py", (), ()),
    ("PyTorch's products", "torch_products.py", (), ("torch",)),
    ("PyTorch's dropout", "torch_dropout.py", (), ("torch",)),
    ("`ops.linalg`", "linalg.py", (), ("scipy", "torch", "threadpoolctl")),
    ("Convolution, einsum and Fourier", "transforms.py", (), ("torch", "scipy", "threadpoolctl")),
    ("Attention", "attention.py", (), ("torch",)),
    ("Attention going backward", "attention_backward.py", (), ("torch",)),
    ("Small calls of PyTorch's attention", "attention_small.py", (), ("torch",)),
    ("Calls on devices", "device_calls.py", (), ("torch",)),
    ("Recording operations", "recorder.py", (), ("torch",)),
    ("Ranks", "ranks.py", (), ("torch",)),
    (
        "Programs that nobody rewrote",
        "programs.py",
        (),
        ("scipy", "sklearn", "torch", "transformers"),
    ),
)
"""Title, script, its arguments, and the packages that it needs."""


def measured(*, quick: bool) -> list[tuple[str, list[Row] | str]]:
    """The rows of each group, or why it was left out."""
    found: list[tuple[str, list[Row] | str]] = []
    for title, script, arguments, packages in GROUPS:
        missing = [name for name in packages if importlib.util.find_spec(name) is None]
        if missing:
            found.append((title, f"not measured: {', '.join(missing)} not installed"))
            continue
        rows = in_child(script, *arguments, *(["--quick"] if quick else []))
        found.append((title, rows))
        print(f"## {title}\n\n{table(rows)}\n", flush=True)
    return found


def write(groups: list[tuple[str, list[Row] | str]]) -> None:
    """Replace what stands between the markers of the page."""
    parts = [machine()]
    for title, rows in groups:
        parts.append(f"### {title}\n\n{rows if isinstance(rows, str) else table(rows)}")
    block = f"{BEGIN}\n\n" + "\n\n".join(parts) + f"\n\n{END}"
    page = PAGE.read_text()
    PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: block, page, flags=re.DOTALL))


def draw(groups: list[tuple[str, list[Row] | str]]) -> None:
    """Write the chart of the page; nothing where its groups were not measured."""
    values = [
        (row.what if title == CHARTED[0] else f"backward: {row.what}", float(row.ratio.split()[0]))
        for title, rows in groups
        if title in CHARTED and not isinstance(rows, str)
        for row in rows
        if row.what.endswith("2 threads") and row.ratio.endswith("of its speed")
    ]
    if values:
        CHART.write_text(bars("Attention, as many times as fast", "PyTorch's", values))


def main() -> int:
    """Measure; 1 when a target is missed."""
    quick = options(__doc__).parse_args().quick
    print(machine(), "\n", flush=True)
    groups = measured(quick=quick)
    if not quick:
        write(groups)
        draw(groups)
    missed = [
        row.what
        for _, rows in groups
        if not isinstance(rows, str)
        for row in rows
        if row.met is False
    ]
    print(f"missed: {'; '.join(missed)}" if missed else "every target met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
