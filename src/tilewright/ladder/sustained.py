"""Products timed until power sets the clock, with what each costs in joules: the record, and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean

from tilewright.measure.ratios import Ratio

OURS = "ours"
PEERS = {"torch": "torch.mm", "cublaslt": "cublasLt's best"}
FEW_ROWS = 128


@dataclass(frozen=True)
class Sustained:
    """One contender at one shape.

    Attributes:
        us: of a product, the median over the rounds. joules: of a product, None where the card's counter moved less
            than twice while it ran. watts: of the whole card. sm_mhz, celsius: medians while the joules were counted.
    """

    us: float
    joules: float | None = None
    watts: float | None = None
    sm_mhz: float | None = None
    celsius: float | None = None


@dataclass(frozen=True)
class SustainedPoint:
    """One shape in one element type.

    Attributes:
        rung, defines: what was chosen for it. rounds: of samples.
        times: by contender, `OURS` and some of `PEERS`. ratios: by peer, its time over ours in the same round.
        offers_us: of each offer of cublasLt's heuristic, in its order, by a short trial; None for one that did not run.
        messages: by contender, why it took no part: a wrong result, for one.
    """

    dtype: str
    sizes: tuple[int, int, int]
    rung: str
    defines: Mapping[str, str | int | float]
    rounds: int
    times: Mapping[str, Sustained]
    ratios: Mapping[str, Ratio]
    offers_us: tuple[float | None, ...] = ()
    messages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SustainedBench:
    """What a run found. ``protocol``: in words. ``left_out``: shapes that there was no time for."""

    protocol: str
    card: str
    driver: str
    date: str
    torch: str
    points: tuple[SustainedPoint, ...]
    left_out: tuple[str, ...] = ()


def summary(points: Sequence[SustainedPoint], peer: str) -> str:
    """``47 shapes, geometric mean 1.03x; 19 of at most 128 rows 1.05x; the worst 0.86x at 16x4096x4096``."""
    known = [(point.ratios[peer].value, point) for point in points if peer in point.ratios]
    if not known:
        return "not timed"
    told = f"{len(known)} shapes, geometric mean {geometric_mean(value for value, _ in known):.3f}x"
    few = [value for value, point in known if point.sizes[0] <= FEW_ROWS]
    if few:
        told += f"; {len(few)} of at most {FEW_ROWS} rows {geometric_mean(few):.3f}x"
    worst, point = min(known, key=lambda one: one[0])
    return f"{told}; the worst {worst:.3f}x at {_shape(point)}"


def markdown_sustained(bench: SustainedBench) -> list[str]:
    """The record as a section of a page."""
    lines = [
        "## Under load, and in joules",
        "",
        f"On {bench.card} (driver {bench.driver}, {bench.date}), PyTorch {bench.torch}. {bench.protocol}",
    ]
    heads = ["M x N x K", "rung", "us"]
    for name in PEERS.values():
        heads += [f"{name}, us", "ratio (interval)"]
    everyone = " / ".join(("ours", *PEERS.values()))
    heads += [f"{unit}: {everyone}" for unit in ("J", "W", "MHz")] + ["°C"]
    for dtype in dict.fromkeys(point.dtype for point in bench.points):
        points = [point for point in bench.points if point.dtype == dtype]
        ahead = "; against ".join(f"{name}: {summary(points, peer)}" for peer, name in PEERS.items())
        lines += ["", f"{dtype}, against {ahead}.", "", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
        lines += [f"| {' | '.join(_cells(point))} |" for point in points]
        told = [line for point in points for line in _messages(point)]
        lines += ["", *told] if told else []
    return lines


def _cells(point: SustainedPoint) -> list[str]:
    ours = point.times.get(OURS)
    out = [_shape(point), point.rung, _number(ours.us if ours else None)]
    for peer in PEERS:
        time, ratio = point.times.get(peer), point.ratios.get(peer)
        out.append(_number(time.us if time else None))
        out.append(f"{ratio.value:.3f}x ({ratio.low:.3f} to {ratio.high:.3f})" if ratio else "-")
    everyone = [point.times.get(name) for name in (OURS, *PEERS)]
    for figure in ("joules", "watts", "sm_mhz"):
        out.append(" / ".join(_number(getattr(each, figure) if each else None) for each in everyone))
    return [*out, _number(ours.celsius if ours else None)]


def _messages(point: SustainedPoint) -> list[str]:
    return [f"- {point.dtype} {_shape(point)}, {who}: {why}" for who, why in point.messages.items()]


def _shape(point: SustainedPoint) -> str:
    return "x".join(map(str, point.sizes))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
