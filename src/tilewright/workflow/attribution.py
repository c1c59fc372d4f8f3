"""What a measured gain came from: the controls of the same interleaved run, divided by one another."""

from __future__ import annotations

from math import prod

from tilewright.arch.arch import load_arch
from tilewright.arch.occupancy import occupancy
from tilewright.receipt import record
from tilewright.workflow.running import Ran, waited_label, widened_label
from tilewright.workflow.study import StudiedVariant, Study

# Variants that overlap: held against the baseline with wider loads alone, and against themselves without the overlap.
PIPELINED = ("ldg", "ldg_single", "cp_async", "bulk", "tma")


def attribute(v: StudiedVariant, studied: Study, ran: Ran, label: str) -> record.Attribution | None:
    """What ran as ``label``: factors whose product is the variant's speedup, and the warps per SM before and after.

    None where nothing ran.

    cp_async with S stages: width = baseline / widened; asynchronous copy = widened / ring of 2 that waits at once;
    overlap = that / ring of 2; stages = ring of 2 / ring of S. Where no copy is widened, width is 1; where no ring of 2
    was built, the variant's own ring takes its place. ldg: stages = widened / its twin that stores before it computes
    (a second buffer, one barrier less); overlap = that twin / ldg. widen: width is all of it. cap_registers and retile
    have no factor of these: what they change is how many warps an SM holds, and the depth of a tile.
    """
    own = _time(ran, label)
    base = ran.baseline_measure.median_us
    if own is None or base is None:
        return None
    before, after = _warps_of_baseline(studied), _warps(studied, v, ran)
    if v.name == "widen":
        return record.Attribution(base / own, None, None, None, before, after)
    if v.name not in PIPELINED:
        return record.Attribution(warps_per_sm_before=before, warps_per_sm_after=after)
    wide = _time(ran, widened_label(studied)) if studied.widened is not None else base
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


def _warps_of_baseline(studied: Study) -> int | None:
    used = studied.baseline_resources
    return _resident(studied, studied.tile.threads if studied.tile else None, used.registers, used.smem_bytes)


def _warps(studied: Study, v: StudiedVariant, ran: Ran) -> int | None:
    """With the variant's own registers, shared memory and block."""
    launch = ran.launches.get(record.variant_label(v.name, v.stages))
    block = [x for x in launch.block if isinstance(x, int)] if launch is not None else []
    threads = prod(block) if len(block) == 3 else studied.tile.threads if studied.tile else None
    return _resident(studied, threads, v.resources.registers, v.resources.smem_bytes)


def _resident(studied: Study, threads: int | None, registers: int | None, smem_bytes: int | None) -> int | None:
    if threads is None or registers is None or smem_bytes is None:
        return None
    return occupancy(load_arch(studied.baseline.arch), threads, registers, smem_bytes).warps_per_sm
