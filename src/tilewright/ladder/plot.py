"""A picture of a family: what each rung costs, as a share of the first one, in SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from tilewright.ladder.report import LadderBench, RungRecord

_WIDTH, _LEFT, _RIGHT, _BAR, _GAP, _TOP = 720, 170, 70, 11, 12, 34
_COUNTED = ("instructions", "global_sectors", "shared_wavefronts")
_FONT = 'font-family="sans-serif" font-size="11"'
_COLOURS = ("#4477aa", "#66ccee", "#228833", "#ee6677")


@dataclass(frozen=True)
class Series:
    """One quantity: its value for each rung, None where it is not known."""

    name: str
    values: tuple[float | None, ...]

    @property
    def shares(self) -> tuple[float | None, ...]:
        """Of the first value that is there and not zero."""
        base = next((value for value in self.values if value), None)
        return tuple(None if value is None or base is None else value / base for value in self.values)


def series_of(rows: Sequence[RungRecord], measured: LadderBench | None) -> tuple[Series, ...]:
    """What is drawn: counters that are not zero everywhere, and the measured time where there is one."""
    found = [Series(k.replace("_", " "), tuple(row.counters.get(k) for row in rows)) for k in _COUNTED]
    if measured is not None and measured.rungs:
        first = measured.rungs[0]
        times = {r.rung: r.median_us for r in measured.rungs if (r.dtype, r.size) == (first.dtype, first.size)}
        found.append(Series(f"measured time, {first.dtype}", tuple(times.get(row.rung) for row in rows)))
    return tuple(series for series in found if any(series.values))


def plot(title: str, rows: Sequence[RungRecord], measured: LadderBench | None = None) -> str:
    """Bars, a group a rung."""
    drawn = series_of(rows, measured)
    most = max((share for s in drawn for share in s.shares if share is not None), default=1.0)
    step = len(drawn) * _BAR + _GAP
    height = _TOP + len(rows) * step
    scale = (_WIDTH - _LEFT - _RIGHT) / most
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" {_FONT}>',
        f"<title>{escape(title)}: shares of the first rung</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    for index, series in enumerate(drawn):
        x = _LEFT + index * 135
        lines.append(f'<rect x="{x}" y="10" width="9" height="9" fill="{_COLOURS[index]}"/>')
        lines.append(f'<text x="{x + 13}" y="18">{escape(series.name)}</text>')
    for number, row in enumerate(rows):
        top = _TOP + number * step
        lines.append(f'<text x="{_LEFT - 8}" y="{top + step / 2:g}" text-anchor="end">{escape(row.rung)}</text>')
        for index, series in enumerate(drawn):
            share = series.shares[number]
            if share is None:
                continue
            y = top + index * _BAR
            lines.append(
                f'<rect x="{_LEFT}" y="{y}" width="{share * scale:.1f}" height="{_BAR - 2}" fill="{_COLOURS[index]}"/>'
                f'<text x="{_LEFT + share * scale + 4:.1f}" y="{y + 8}" font-size="9">{share:.3g}</text>'
            )
    return "\n".join([*lines, "</svg>", ""])
