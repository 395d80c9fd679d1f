"""The picture: for each trace, what is handed out against what has been asked for, a line per policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from statistics import fmean

from tests.bench.packing.inflation import Run

_COLOURS = {
    "fragmentation": "#d1495b",
    "fragmentation, learned": "#edae49",
    "fgd": "#00798c",
    "binpack": "#30638e",
    "first-fit": "#6a994e",
    "spread": "#8d99ae",
}
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 300, 200, 46, 34, 44
# Below 70 % everything fits under every policy but spread.
_FROM, _TO, _LOW, _HIGH = 70, 130, 70, 100


def draw(runs: Sequence[Run]) -> str:
    """SVG: panels side by side, two a row."""
    names = list(dict.fromkeys(r.trace for r in runs))
    policies = list(dict.fromkeys(r.policy for r in runs))
    rows = -(-len(names) // 2)
    width = 2 * (_LEFT + _WIDTH) + 20
    height = _TOP + rows * (_HEIGHT + _GAP) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="11" role="img">',
        "<title>Cards handed out against cards asked for, by policy</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for i, name in enumerate(names):
        x = _LEFT + (i % 2) * (_LEFT + _WIDTH)
        y = _TOP + (i // 2) * (_HEIGHT + _GAP)
        parts += _panel(x, y, name, [r for r in runs if r.trace == name], policies)
    parts += _legend(policies, height - 12)
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    x: int, y: int, name: str, runs: Sequence[Run], policies: Iterable[str]
) -> Iterable[str]:
    yield f'<text x="{x}" y="{y - 8}" font-weight="bold">{escape(name)}</text>'
    for percent in range(_LOW, _HIGH + 1, 10):
        at = y + _scale(percent, _LOW, _HIGH, _HEIGHT, 0)
        yield f'<path d="M{x} {at:.1f}h{_WIDTH}" stroke="#ddd"/>'
        yield f'<text x="{x - 6}" y="{at + 4:.1f}" text-anchor="end">{percent}</text>'
    for percent in range(_FROM, _TO + 1, 10):
        at = x + _scale(percent, _FROM, _TO, 0, _WIDTH)
        yield f'<text x="{at:.1f}" y="{y + _HEIGHT + 14}" text-anchor="middle">{percent}</text>'
    for policy in policies:
        curves = [r.curve for r in runs if r.policy == policy]
        if not curves:
            continue
        points = [
            (percent, max(fmean(c[min(percent, len(c) - 1)] for c in curves), _LOW))
            for percent in range(_FROM, _TO + 1)
        ]
        path = " ".join(
            f"{x + _scale(p, _FROM, _TO, 0, _WIDTH):.1f},{y + _scale(v, _LOW, _HIGH, _HEIGHT, 0):.1f}"
            for p, v in points
        )
        colour = _COLOURS.get(policy, "#000")
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>'


def _legend(policies: Sequence[str], y: int) -> Iterable[str]:
    x = _LEFT
    for policy in policies:
        yield f'<path d="M{x} {y - 4}h16" stroke="{_COLOURS.get(policy, "#000")}" stroke-width="3"/>'
        yield f'<text x="{x + 20}" y="{y}">{escape(policy)}</text>'
        x += 34 + 7 * len(policy)


def _scale(value: float, low: float, high: float, start: float, end: float) -> float:
    return start + (value - low) / (high - low) * (end - start)
