"""How long a rung should take: what it moves and computes, over what the card was measured, or is said, to do.

The least time that each part of the card needs for its share, and the longest of these, besides what a launch costs.
Unique bytes come from DRAM (from L2 where they lie there already); where the emulator has counted a small run of the
rung, its sectors, its wavefronts of shared memory and its instructions, scaled by the operation's work, bound it too.
It is a bound, not a simulation: waiting is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.arch.arch import load_arch
from tilewright.arch.devices import Device, find_device
from tilewright.ladder.counted import COUNTED_AT
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
    launches: int = 1,
    counters: Mapping[str, float] | None = None,
) -> Foretold:
    """The bound of one call.

    Args:
        precision: of the sums, a key of the device's peaks.
        is_cold: the data comes from DRAM; else from L2.
        counters: of the rung at the family's small set, see ``running.counters_of``.
    """
    unique, flops = (figure(text, family, sizes, dtype) for text in (family.bytes, family.flops))
    seconds = {"dram": unique / rates.dram_bytes} if is_cold else {}
    touched = unique
    if counters:
        scale = _scale(family, sizes, dtype)
        touched = max(unique, counters.get("global_sectors", 0.0) * SECTOR_BYTES * scale)
        launches = int(counters.get("launches", launches))
        if rates.issues:
            seconds["issue"] = counters.get("instructions", 0.0) / WARP * scale / rates.issues
        if rates.wavefronts:
            seconds["shared"] = counters.get("shared_wavefronts", 0.0) * scale / rates.wavefronts
    if rates.l2_bytes:
        seconds["l2"] = touched / rates.l2_bytes
    if rates.peaks and precision in rates.peaks:
        seconds[precision] = flops / rates.peaks[precision]
    launch_s = launches * rates.launch_us * 1e-6
    bound = max(seconds, key=lambda name: seconds[name], default="launch")
    longest = seconds.get(bound, 0.0)
    return Foretold((longest + launch_s) * 1e6, "launch" if launch_s > longest else bound)


def _scale(family: Family, sizes: Mapping[str, int], dtype: str) -> float:
    """How much more work there is than at the small set: operations, or bytes where there are none."""
    small = family.sizes[COUNTED_AT]
    text = family.flops if figure(family.flops, family, small, dtype) else family.bytes
    return figure(text, family, sizes, dtype) / figure(text, family, small, dtype)


def precision_of(group: str) -> str:
    """Of a group of rungs and peers: the key of the peaks."""
    return group or "fp32"


def with_prediction(rung: TimedRung, foretold: Foretold) -> TimedRung:
    return replace(rung, predicted_us=foretold.us, predicted_bound=foretold.bound)
