"""The picture of the verbs' cost against the number of nodes, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Mapping
from math import log10

_WIDTH, _HEIGHT, _LEFT, _TOP = 460, 260, 60, 40
_COLOURS = ("#d1495b", "#30638e", "#6a994e", "#8d99ae")
_SIZES, _TIMES = (1, 10, 100, 1000, 5000), (0.1, 0.3, 1, 3, 10)


def draw(lines: Mapping[str, Mapping[int, float]]) -> str:
    """SVG. ``lines``: milliseconds by the number of nodes, for each line; 'target' is dashed."""
    width, height = _LEFT + _WIDTH + 20, _TOP + _HEIGHT + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11" role="img">',
        "<title>Milliseconds a call takes, by the number of nodes named in it</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="20" font-weight="bold">ms a call (p50), by nodes named</text>',
    ]
    for time in _TIMES:
        parts.append(f'<path d="M{_LEFT} {_y(time):.1f}h{_WIDTH}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{_y(time) + 4:.1f}" text-anchor="end">{time:g}</text>'
        )
    for size in _SIZES:
        y = _TOP + _HEIGHT + 16
        parts.append(f'<text x="{_x(size):.1f}" y="{y}" text-anchor="middle">{size:,}</text>')
    for number, (name, points) in enumerate(lines.items()):
        colour = "#999" if name == "target" else _COLOURS[number % len(_COLOURS)]
        dash = ' stroke-dasharray="5 4"' if name == "target" else ""
        path = " ".join(f"{_x(n):.1f},{_y(ms):.1f}" for n, ms in sorted(points.items()))
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>'
        )
        x, y = _LEFT + 130 * number, _TOP + _HEIGHT + 42
        parts.append(f'<path d="M{x} {y - 4}h16" stroke="{colour}" stroke-width="3"{dash}/>')
        parts.append(f'<text x="{x + 20}" y="{y}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _x(size: float) -> float:
    return _LEFT + _WIDTH * log10(size) / log10(_SIZES[-1])


def _y(time: float) -> float:
    low, high = log10(_TIMES[0]), log10(_TIMES[-1])
    clipped = min(high, max(low, log10(time)))
    return _TOP + _HEIGHT * (high - clipped) / (high - low)
