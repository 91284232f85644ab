"""Draws ratios as horizontal bars: a plain SVG that a page can show and a reader can diff."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

LABEL, PLOT, VALUE, STEP, TOP = 390, 320, 60, 22, 56
"""Pixels: widths of the columns, height of a bar with its gap, and where the bars begin."""

OURS, BEHIND, GRID, TEXT = "#2563a8", "#b3541e", "#9aa3ad", "#57606a"
"""Colours that are read on a light page and on a dark one."""


def bars(title: str, peer: str, values: Sequence[tuple[str, float]]) -> str:
    """A chart of how many times as fast as a peer something is.

    Args:
        title: above the bars.
        peer: what 1.0 stands for.
        values: a label and a ratio for each bar, in this order.

    Returns:
        The SVG. Bars below 1.0 have another colour.
    """
    most = max(1.0, *(ratio for _, ratio in values))
    scale = PLOT / most
    width, height = LABEL + PLOT + VALUE, TOP + STEP * len(values) + 12
    one = LABEL + scale
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'font-family="system-ui, sans-serif" font-size="12">'
        ),
        f"<title>{escape(title)}</title>",
        f'<text x="8" y="20" font-size="14" font-weight="600" fill="{TEXT}">{escape(title)}</text>',
        f'<text x="{one:.1f}" y="44" text-anchor="middle" fill="{TEXT}">{escape(peer)} = 1</text>',
    ]
    for place, (label, ratio) in enumerate(values):
        y = TOP + STEP * place
        colour = OURS if ratio >= 1 else BEHIND
        parts += [
            (
                f'<text x="{LABEL - 8}" y="{y + 12}" text-anchor="end" fill="{TEXT}">'
                f"{escape(label)}</text>"
            ),
            (
                f'<rect x="{LABEL}" y="{y}" width="{ratio * scale:.1f}" height="{STEP - 6}" '
                f'fill="{colour}"/>'
            ),
            (
                f'<text x="{LABEL + ratio * scale + 6:.1f}" y="{y + 12}" fill="{TEXT}">'
                f"{ratio:.2f}</text>"
            ),
        ]
    parts.append(
        f'<line x1="{one:.1f}" y1="{TOP - 6}" x2="{one:.1f}" y2="{height - 8}" '
        f'stroke="{GRID}" stroke-dasharray="3 3"/>'
    )
    return "\n".join([*parts, "</svg>", ""])
