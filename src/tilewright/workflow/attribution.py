"""What a measured gain came from: the controls of the same interleaved run, divided by one another."""

from __future__ import annotations

from tilewright.receipt import record
from tilewright.workflow.running import WIDENED, Ran, waited_label
from tilewright.workflow.study import StudiedVariant, Study


def attribute(v: StudiedVariant, studied: Study, ran: Ran) -> record.Attribution | None:
    """Factors whose product is the variant's speedup; None where nothing was timed.

    cp_async with S stages: width = baseline / widened; asynchronous copy = widened / ring of 2 that waits at once;
    overlap = that / ring of 2; stages = ring of 2 / ring of S. Where no copy is widened, width is 1; where no ring of 2
    was built, the variant's own ring takes its place. ldg: stages = widened / its twin that stores before it computes
    (a second buffer, one barrier less); overlap = that twin / ldg.
    """
    label = record.variant_label(v.name, v.stages)
    own = _time(ran, label)
    base = ran.baseline_measure.median_us
    if own is None or base is None:
        return None
    wide = _time(ran, WIDENED) if studied.widened is not None else base
    before, after = _warps(studied, 1), _warps(studied, v.stages)
    if v.name == "cp_async":
        labels = {record.variant_label(x.name, x.stages) for x in studied.variants if x.artifact is not None}
        ring = record.variant_label("cp_async", 2)
        ring = ring if ring in labels else label
        two, waited = _time(ran, ring), _time(ran, waited_label(ring))
        return record.Attribution(
            _ratio(base, wide), _ratio(wide, waited), _ratio(waited, two), _ratio(two, own), before, after
        )
    waited = _time(ran, waited_label(label))
    return record.Attribution(_ratio(base, wide), None, _ratio(waited, own), _ratio(wide, waited), before, after)


def _time(ran: Ran, label: str) -> float | None:
    measured = ran.measure.get(label)
    return measured.median_us if measured is not None else None


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def _warps(studied: Study, stages: int) -> int | None:
    row = next((r for r in studied.budget if r.stages == stages), None)
    return row.warps_per_sm if row is not None else None
