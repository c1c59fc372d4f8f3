"""A picture of a sweep: the fastest peer's time over ours, against the bytes of a call, in SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from tilewright.ladder.bench_text import grouped
from tilewright.ladder.report import PeerPoint

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 300, 46, 16, 34, 40
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
_FONT = 'font-family="sans-serif" font-size="11"'
_LEAST, _MOST = 0.5, 2.0  # are always drawn


def plot_ratios(title: str, points: Sequence[PeerPoint]) -> str:
    """A dot a set of sizes, a colour an element type and group; both axes logarithmic; "" for no sizes."""
    drawn = [p for p in points if p.ratio and p.total_bytes > 0]
    if not drawn:
        return ""
    ratios, sizes = [p.ratio or 1.0 for p in drawn], [p.total_bytes for p in drawn]
    low, high = min(_LEAST, *ratios), max(_MOST, *ratios)
    first, last = math.floor(math.log10(min(sizes))), math.ceil(math.log10(max(sizes)) + 1e-9)

    def x_of(total_bytes: float) -> float:
        return _LEFT + (math.log10(total_bytes) - first) / max(last - first, 1) * (_WIDTH - _LEFT - _RIGHT)

    def y_of(ratio: float) -> float:
        return _TOP + math.log(high / ratio) / math.log(high / low) * (_HEIGHT - _TOP - _BOTTOM)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {_FONT}>',
        f"<title>{escape(title)}: the fastest peer's time over ours, by bytes of a call</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for power in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1):
        y, weight = y_of(2.0**power), 1.5 if power == 0 else 0.4
        lines.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="#888" stroke-width="{weight}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{2.0**power:g}x</text>'
        )
    for power in range(first, last + 1, 2):
        lines.append(f'<text x="{x_of(10.0**power):.1f}" y="{_HEIGHT - 22}" text-anchor="middle">{_told(power)}</text>')
    lines.append(
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">bytes of a call; above 1x ours is faster, below 1x we lose</text>'
    )
    for index, ((dtype, group), own) in enumerate(grouped(drawn).items()):
        colour, x = _COLOURS[index % len(_COLOURS)], _LEFT + index * 110
        lines.append(f'<circle cx="{x + 4}" cy="15" r="4" fill="{colour}"/>')
        lines.append(f'<text x="{x + 13}" y="19">{escape(f"{dtype} {group}".strip())}</text>')
        lines += [
            f'<circle cx="{x_of(p.total_bytes):.1f}" cy="{y_of(p.ratio or 1.0):.1f}" r="3" fill="{colour}"/>'
            for p in own
        ]
    return "\n".join([*lines, "</svg>", ""])


def _told(power: int) -> str:
    """``10 kB``."""
    unit = ("B", "kB", "MB", "GB", "TB")[power // 3]
    return f"{10 ** (power % 3)} {unit}"
