"""Every benchmark, each ratio beside its target; writes the table of docs/performance.md.

    python benchmarks/run.py            # measure, print, and write the table
    python benchmarks/run.py --quick    # fewer rounds; prints only

What needs a package that is not installed is left out, and said.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

from measure import Row, in_child, machine, table

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

GROUPS = (
    ("Scopes beside JAX and threadpoolctl", "scopes.py", ("jax",), ("jax", "threadpoolctl")),
    ("Scopes beside PyTorch", "scopes.py", ("torch",), ("torch",)),
    ("Processes", "startup.py", (), ()),
    ("`ops.matmul`", "matmul.py", (), ()),
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


def main() -> int:
    """Measure; 1 when a target is missed."""
    quick = "--quick" in sys.argv
    print(machine(), "\n", flush=True)
    groups = measured(quick=quick)
    if not quick:
        write(groups)
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
