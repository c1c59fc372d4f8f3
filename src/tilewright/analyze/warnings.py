"""The mistakes that are easily made with these figures."""

from __future__ import annotations

from tilewright.analyze.facts import Facts
from tilewright.analyze.record import Roofline

# A time that beats the roof by this much was not measured as the roof assumes.
IMPOSSIBLE = 1.05
HIGH_SHARE, LOW_SHARE = 0.75, 0.25
# About what a launch takes beside its work: 3.1 us fitted on an H200 (tile/data/cost.toml, launch_us).
LAUNCH_US = 3.0


def warnings_for(facts: Facts, roof: Roofline, seconds: float | None, setmaxnreg: str) -> tuple[str, ...]:
    """Pitfalls that apply here, the gravest first."""
    found: list[str] = []
    fit = facts.fit
    if fit is not None and not fit.blocks_per_sm:
        found.append(
            f"not one block fits on an SM of {facts.arch.name}: {fit.limiter} stop it ({facts.smem_bytes:,} shared "
            f"bytes, {facts.registers} registers, {facts.threads} threads): the launch fails"
        )
    if setmaxnreg:
        found.append(setmaxnreg)
    least = least_us(facts)
    if least is not None and least < LAUNCH_US and fit is not None and fit.blocks_per_sm:
        found.append(
            f"by the floors the work takes {least:.2g} us, and launching it some {LAUNCH_US:.0f}: none of these gains "
            "would show in its time; fuse it with its neighbours, or give a launch more to do"
        )
    beaten = [row for row in roof.rows if row.level == "DRAM" and row.share is not None and row.share > IMPOSSIBLE]
    size, device = facts.dram_bytes.value, facts.device
    fits_l2 = size is not None and device is not None and size <= device.l2_bytes
    for row in beaten:
        why = "the bytes come from L2" if fits_l2 else "check the time, and the operations and bytes"
        found.append(f"{row.share:.0%} of the {row.precision} roof: no measurement can show that; {why}")
    if fits_l2 and size is not None and device is not None:
        found.append(
            f"the working set of {size / 2**20:.1f} MiB fits in the L2 of {device.name} ({device.l2_bytes / 2**20:.0f} "
            "MiB): timed warm, its bytes come from there, and DRAM figures mean nothing; flush L2 between runs"
        )
    if roof.rows:
        found.append(
            "peaks are dense: figures with structured sparsity, twice as high in datasheets, are not used here"
        )
    if facts.dram_bytes.value and facts.dram_bytes.source.startswith("given"):
        found.append("bytes are as given: check that outputs are among them, and that each byte counts once")
    if facts.flops.source.startswith("given"):
        found.append(
            "operations are as given: of the whole launch (FLOP), not per second (FLOP/s); a multiply-add is two"
        )
    if fit is not None and fit.blocks_per_sm and fit.share < LOW_SHARE:
        found.append(
            f"{fit.share:.0%} occupancy is low; a kernel with much work in flight per warp may well be fastest so: "
            "occupancy is a means, not the goal"
        )
    elif fit is not None and fit.share > HIGH_SHARE:
        found.append(f"{fit.share:.0%} occupancy: more is rarely worth anything, and it is not the goal")
    if "duration_ns" in facts.metrics:
        found.append("ncu's durations are no benchmark (clocks are locked, caches flushed): they are not used as times")
    return tuple(found)


def least_us(facts: Facts) -> float | None:
    """The highest floor of the launch in microseconds; None where the floors are not those of a whole launch."""
    if facts.device is None or facts.blocks is None or not facts.demand.is_whole:
        return None
    return max(facts.before.cycles.values()) / facts.device.boost_clock_hz * 1e6
