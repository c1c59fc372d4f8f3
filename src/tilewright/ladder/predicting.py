"""How long a rung should take: what it moves and computes, over what the card was measured, or is said, to do.

The least time that each part of the card needs for its share, and the longest of these, besides what a launch costs.
Unique bytes come from DRAM (from L2 where they lie there already); where the emulator has counted small runs of the
rung, its sectors, its wavefronts of shared memory and its instructions, scaled to the size, bound it too.
It is no simulation: waiting is not in it, which makes it too short, and every sector that is asked for is taken for
one of L2, though L1 may hold it, which makes it too long for rungs that read the same lines again and again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.arch.arch import load_arch
from tilewright.arch.devices import Device, find_device
from tilewright.ladder.counted import Counted, work_of
from tilewright.ladder.family import Family
from tilewright.ladder.report import TimedRung
from tilewright.ladder.specs import figure

SECTOR_BYTES = 32
WARP = 32
ISSUES_PER_CYCLE = 4  # CUDA C++ Programming Guide, multiprocessor levels 7.x to 12.x: four warp schedulers an SM


@dataclass(frozen=True)
class CardRates:
    """What a card does in a second, and what a launch costs.

    Attributes:
        dram_bytes: bytes read and written by a device copy, as measured.
        launch_us: from one kernel of a CUDA graph to the next that waits for it, as measured.
        l2_bytes, issues, wavefronts: to all SMs; warp-instructions; of shared memory. None without the card's table.
        peaks: operations by precision, of the table.
    """

    dram_bytes: float
    launch_us: float
    l2_bytes: float | None = None
    issues: float | None = None
    wavefronts: float | None = None
    peaks: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Foretold:
    """``bound``: dram, l2, shared, issue, a precision, or launch."""

    us: float
    bound: str


def rates_of(card: str, dram_bytes: float, launch_us: float) -> CardRates:
    """Measured rates with those of the tables, where they have the card."""
    device = find_device(card)
    return CardRates(dram_bytes, launch_us) if device is None else _with_tables(device, dram_bytes, launch_us)


def _with_tables(device: Device, dram_bytes: float, launch_us: float) -> CardRates:
    cycles = device.sms * device.boost_clock_hz
    l2_bytes = load_arch(device.arch).l2_bytes_per_cycle * cycles
    return CardRates(dram_bytes, launch_us, l2_bytes, ISSUES_PER_CYCLE * cycles, cycles, device.peaks)


def predict(
    family: Family,
    sizes: Mapping[str, int],
    dtype: str,
    rates: CardRates,
    *,
    precision: str = "fp32",
    is_cold: bool = True,
    runs: Sequence[Counted] = (),
    threads: float = 0.0,
) -> Foretold:
    """The bound of one call.

    Args:
        precision: of the sums, a key of the device's peaks.
        is_cold: the data comes from DRAM; else from L2.
        runs: of the rung, as `counted` makes them. threads: that it launches at these sizes.
    """
    unique, flops = (figure(text, family, sizes, dtype) for text in (family.bytes, family.flops))
    seconds = {"dram": unique / rates.dram_bytes} if is_cold else {}
    work = work_of(family, sizes, dtype)

    def at_size(counter: str) -> float:
        return scaled([(run.work, run.threads, run.counters.get(counter, 0.0)) for run in runs], work, threads)

    if rates.l2_bytes:
        seconds["l2"] = max(unique, at_size("global_sectors") * SECTOR_BYTES) / rates.l2_bytes
    if rates.issues:
        seconds["issue"] = at_size("instructions") / WARP / rates.issues
    if rates.wavefronts:
        seconds["shared"] = at_size("shared_wavefronts") / rates.wavefronts
    if rates.peaks and precision in rates.peaks:
        seconds[precision] = flops / rates.peaks[precision]
    launches = int(runs[0].counters.get("launches", 1)) if runs else 1
    launch_s = launches * rates.launch_us * 1e-6
    bound = max(seconds, key=lambda name: seconds[name], default="launch")
    longest = seconds.get(bound, 0.0)
    return Foretold((longest + launch_s) * 1e6, "launch" if launch_s > longest else bound)


def scaled(seen: Sequence[tuple[float, float, float]], work: float, threads: float) -> float:
    """A counter at another size: so much for each thread that is launched, so much for each piece of work.

    Args:
        seen: work, threads and count of one run, or of two, the first one the larger. One says the count per work
            alone; so do two that would give a share below zero, or have the same threads for each piece of work.
    """
    if not seen:
        return 0.0
    (work0, threads0, count0), *others = seen
    per_work, per_thread = count0 / work0, 0.0
    if others and threads:
        work1, threads1, count1 = others[0]
        determinant = work0 * threads1 - work1 * threads0
        if abs(determinant) > 0.05 * work0 * threads1:  # nearer, and the difference of two runs would say too little
            a = (count0 * threads1 - count1 * threads0) / determinant
            b = (work0 * count1 - work1 * count0) / determinant
            if a >= 0 and b >= 0:
                per_work, per_thread = a, b
    return per_work * work + per_thread * threads


def precision_of(family: Family, dtype: str, group: str = "") -> str:
    """The key of the peaks: of a group of rungs and peers that has its own, or what the family says of a dtype."""
    return group or family.precision.get(dtype, "fp32")


def with_prediction(rung: TimedRung, foretold: Foretold) -> TimedRung:
    return replace(rung, predicted_us=foretold.us, predicted_bound=foretold.bound)
