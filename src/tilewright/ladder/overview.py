"""All families against their peers, in a table: a page of its own, from the same records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tilewright.ladder.bench_text import grouped, sizes_text
from tilewright.ladder.report import LadderBench, PeerPoint
from tilewright.receipt.drawing import factor

KEPT = 0.97  # of the best peer: below it, a rung is not worth calling
LARGE_BYTES = 1 << 28  # beyond any L2: where a rung's share of a copy says something


def overview(reports: Iterable[LadderBench]) -> str:
    """``docs/ladder/peers.md``."""
    reports = [report for report in reports if report.points]
    rows = [
        (report, dtype, group, points)
        for report in reports
        for (dtype, group), points in grouped(report.points).items()
        if any(p.ratio is not None for p in points)
    ]
    exact = [p for _, _, group, points in rows if not group for p in points if p.ratio is not None]
    cards = sorted({f"{r.card} (driver {r.driver}, PyTorch {r.torch}, Triton {r.triton})" for r in reports})
    behind = sum((p.ratio or 0.0) < KEPT for p in exact)
    lines = [
        "# The ladder against PyTorch and Triton",
        "",
        "<!-- made by benchmarks/ladder_pages.py: not to be edited -->",
        "",
        f"On {'; '.join(cards)}, {_dates(reports)}: the rung that a call without a name got that day, against the "
        "fastest of PyTorch's operator, `torch.compile` of it, and Triton's tutorial kernel where there is one. The "
        "ratio is that "
        f"one's time over ours. Of {len(exact):,} sets of sizes (peers of full precision), {len(exact) - behind:,} "
        f"have at least {KEPT}; {behind} have less, and stand below. A page a family has them all.",
        "",
        "| family | type | sizes | geometric mean | least | below 0.97 | not timed | least share of a copy, large |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_row(report, dtype, group, points) for report, dtype, group, points in rows]
    lines += [
        "",
        "## Losses",
        "",
        "| family | type | sizes | rung | us | best peer | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for report, dtype, group, points in rows:
        lost = sorted((p for p in points if p.ratio is not None and p.ratio < KEPT), key=lambda p: p.ratio or 0.0)
        lines += [_loss(report, dtype, group, p) for p in lost]
    return "\n".join(lines) + "\n"


def _dates(reports: Sequence[LadderBench]) -> str:
    days = sorted({report.date[:10] for report in reports})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}" if days else "no day"


def _row(report: LadderBench, dtype: str, group: str, points: Sequence[PeerPoint]) -> str:
    ratios = [p.ratio for p in points if p.ratio is not None]
    mean = math.exp(sum(math.log(r) for r in ratios) / len(ratios))
    shares = [p.copy_share for p in points if p.copy_share is not None and p.total_bytes >= LARGE_BYTES]
    cells = (
        f"[{report.family}]({report.family}.md)",
        f"{dtype}{', ' + group.upper() if group else ''}",
        f"{len(ratios)}",
        factor(mean),
        factor(min(ratios)),
        f"{sum(r < KEPT for r in ratios)}",
        f"{len(points) - len(ratios)}",
        f"{min(shares):.0%}" if shares and report.points[0].flops <= 64 * report.points[0].total_bytes else "-",
    )
    return f"| {' | '.join(cells)} |"


def _loss(report: LadderBench, dtype: str, group: str, point: PeerPoint) -> str:
    ours = next((c.median_us for c in point.contenders if c.name == point.rung), None)
    told = f"{ours:.4g}" if ours is not None else "-"
    kind = f"{dtype}{', ' + group.upper() if group else ''}"
    cells = (report.family, kind, sizes_text(point), point.rung, told, point.best_peer, factor(point.ratio))
    return f"| {' | '.join(cells)} |"
