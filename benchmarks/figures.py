"""Figures of a benchmark, and a plot of them as SVG, for the page that `all.py` makes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

FIGURES = "GOBBLIN_BENCH_FIGURES"
"""Variable that names the file to which benchmarks add their figures; without it they only print."""
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 320, 60, 40, 30
COLORS = ("#0b6e4f", "#c0392b", "#2c5aa0", "#b7791f", "#6b4c9a")


@dataclass(frozen=True)
class Figure:
    """A median of one side."""

    side: str
    of: int
    """How much work: datasets, rows."""
    value: float
    """Seconds by the clock."""
    cpu_s: float


def save_figures(title: str, figures: Sequence[Figure]) -> None:
    """Add figures to the file that the variable names; do nothing if it is not set."""
    if path := os.environ.get(FIGURES):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"title": title, "figures": [asdict(figure) for figure in figures]}) + "\n")


def load_figures(path: Path) -> list[tuple[str, list[Figure]]]:
    """Return titles and figures that `save_figures` wrote."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = map(json.loads, lines)
    return [(one["title"], [Figure(**figure) for figure in one["figures"]]) for one in found]


def plot(title: str, figures: Sequence[Figure]) -> str:
    """Return seconds by amount of work as SVG, a line for each side, both axes logarithmic.

    Example:
        >>> plot("t", [Figure("ours", 10, 1.0, 2.0)]).startswith("<svg")
        True
    """
    xs, ys = [figure.of for figure in figures], [max(figure.value, 0.01) for figure in figures]
    across, up = _scale(xs, LEFT, WIDTH - 150), _scale(ys, HEIGHT - BOTTOM, TOP + 10)
    parts = [f'<text x="{LEFT}" y="18" font-weight="bold">{escape(title)}</text>']
    for number, side in enumerate(dict.fromkeys(figure.side for figure in figures)):
        color = COLORS[number % len(COLORS)]
        points = sorted((figure.of, max(figure.value, 0.01)) for figure in figures if figure.side == side)
        places = [(across(x), up(y)) for x, y in points]
        parts.append(
            f'<polyline fill="none" stroke="{color}" stroke-width="2" '
            f'points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'
        )
        for (x, y), (_, seconds) in zip(places, points, strict=True):
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>')
            parts.append(f'<text x="{x:.1f}" y="{y - 7:.1f}" text-anchor="middle">{seconds:.3g} s</text>')
        parts.append(f'<text x="{WIDTH - 140}" y="{TOP + 20 + 18 * number}" fill="{color}">{escape(side)}</text>')
    parts += [
        f'<text x="{across(x):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{x:,}</text>' for x in sorted({*xs})
    ]
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{inside}\n</svg>'
    )


def _scale(values: Sequence[float], first: float, last: float) -> Callable[[float], float]:
    """Return the function from amounts to places, by their logarithms."""
    low, high = math.log(min(values)), math.log(max(values))

    def place(value: float) -> float:
        share = (math.log(value) - low) / (high - low) if high > low else 0.5
        return first + share * (last - first)

    return place
