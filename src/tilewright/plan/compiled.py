"""How long compiled kernels take beside one another: the K-loop of each simulated, then the launch round it.

A launch is rounds of blocks. The SM with the most blocks runs as many at a time as fit, and what is left over at the
end; a round lasts as long as the K-loop of its blocks does (`pipes`), and what stands before and behind it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import isfinite, log
from pathlib import Path

from tilewright.arch.arch import Arch, load_arch
from tilewright.arch.card import OF_FP16, Card, assumed_card
from tilewright.arch.occupancy import occupancy
from tilewright.plan.pipes import QUARTERS, Rates, cycles_per_trip
from tilewright.sass.schedule import Schedule, Slot

BASELINE = "baseline"
# A K-loop of unknown length counts as one so long that nothing round it matters.
LONG = 1e9


@dataclass(frozen=True)
class Built:
    """A build, and how it is launched.

    Attributes:
        schedule: its K-loop.
        registers: per thread. smem_bytes: per block, as launched. threads: per block.
        blocks: of the launch; None where that is not known.
        math: of one warp in one block, counted as in the schedule; None where that is not known.
    """

    schedule: Schedule
    registers: int
    smem_bytes: int
    threads: int
    blocks: int | None = None
    math: float | None = None


@dataclass(frozen=True)
class Spread:
    """How far measured speedups lay from the predicted ones on the calibration data, as natural logarithms.

    Attributes:
        low, high: quantiles of log(measured / predicted): a range reaches from one to the other.
        caution: what is taken off log(predicted) when variants are ranked: the risk that the gain is not there.
    """

    low: float
    high: float
    caution: float


@dataclass(frozen=True)
class Model:
    """The calibrated model, as ``rates.toml`` holds it.

    Attributes:
        rates: of the reference card's architecture. reference: that architecture.
        block_cycles: of a block, beside its K-loop. edge_cycles: per instruction that stands before or behind it.
        launch_cycles: of a launch, beside its blocks.
        blend: of the last round, how much of it runs beside the round before.
        spreads: by kind of variant.
        elsewhere: by how much ranges are wider on other architectures: their logarithms are multiplied.
        cards: what it was calibrated on. cases: (kernel, size) cases that the spreads are taken from.
    """

    rates: Rates
    reference: str
    block_cycles: float
    edge_cycles: float
    launch_cycles: float
    blend: float
    spreads: Mapping[str, Spread]
    elsewhere: float
    cards: tuple[str, ...]
    cases: int

    def on(self, arch: Arch) -> Rates:
        """The rates of another architecture: each scaled as the architectures' tables say."""
        if arch.name == self.reference:
            return self.rates
        own = load_arch(self.reference)
        latency = arch.l2_latency_cycles / own.l2_latency_cycles
        by_table = {
            "global_latency": latency,
            "async_latency": latency,
            "bulk_latency": latency,
            "shared_latency": arch.smem_latency_cycles / own.smem_latency_cycles,
            "pass_cycles": own.smem_bytes_per_cycle / arch.smem_bytes_per_cycle,
            "matrix_macs_per_cycle": arch.fp16_mac_per_cycle / own.fp16_mac_per_cycle,
            "l2_bytes_per_cycle": arch.l2_bytes_per_cycle / own.l2_bytes_per_cycle,
            "fma_cycles": own.fma_lanes_per_cycle / arch.fma_lanes_per_cycle,
        }
        return Rates(**{f.name: getattr(self.rates, f.name) * by_table.get(f.name, 1.0) for f in fields(Rates)})

    def spread(self, label: str, arch: Arch) -> Spread:
        """Of a variant, by its label."""
        found = self.spreads.get(kind_of(label), self.spreads["other"])
        wider = 1.0 if arch.name == self.reference else self.elsewhere
        return Spread(found.low * wider, found.high * wider, found.caution)


def kind_of(label: str) -> str:
    """``cp_async`` of ``cp_async3``, ``ldg`` of ``ldg/early``: what spreads are kept by."""
    return label.split("/")[0].rstrip("0123456789")


@lru_cache(maxsize=1)
def load_model() -> Model:
    """The model that is shipped."""
    return parse_model(Path(__file__).with_name("rates.toml").read_text("utf-8"))


def parse_model(text: str) -> Model:
    """Make a `Model` of a data file's text."""
    data = tomllib.loads(text)
    launch, calibration = data["launch"], data["calibration"]
    return Model(
        rates=Rates(**{name: row["value"] for name, row in data["rates"].items()}),
        reference=calibration["arch"],
        block_cycles=launch["block_cycles"]["value"],
        edge_cycles=launch["edge_cycles"]["value"],
        launch_cycles=launch["launch_cycles"]["value"],
        blend=launch["blend"]["value"],
        spreads={name: Spread(**row) for name, row in data["spread"].items()},
        elsewhere=calibration["elsewhere"],
        cards=tuple(calibration["cards"]),
        cases=calibration["cases"],
    )


# What a block waits for in front of its K-loop, once: the first tile. The baseline waits for it in the loop, as for any
# tile; what was rewritten finds it there.
_FIRST_TILE = {
    "ldg": "global_latency",
    "ldg_single": "global_latency",
    "cp_async": "async_latency",
    "bulk": "bulk_latency",
    "tma": "bulk_latency",
}


def first_tile_cycles(label: str, rates: Rates) -> float:
    """How long a variant waits for its first tile in front of the K-loop."""
    is_ring_of_halves = kind_of(label) == "retile" and label != "retile"
    name = "async_latency" if is_ring_of_halves else _FIRST_TILE.get(kind_of(label))
    return float(getattr(rates, name)) if name is not None else 0.0


def launch_cycles(label: str, built: Built, arch: Arch, model: Model, card: Card | None = None) -> float | None:
    """Cycles of a launch (of a block, where it is not known how many there are).

    Args:
        card: how many SMs, and how fast their matrix units are; by default the architecture's assumed one.

    None where no block fits on an SM, or where the simulated K-loop comes to no end: it was read wrongly then.
    """
    fit = occupancy(arch, built.threads, built.registers, built.smem_bytes).blocks_per_sm
    if fit < 1:
        return None
    card = card or assumed_card(arch.name)
    rates, schedule = model.on(arch), on_card(built.schedule, arch, card)
    warps = -(-built.threads // arch.warp_size)
    math = LONG if built.math is None else built.math
    once = model.block_cycles + first_tile_cycles(label, rates)

    def round_of(blocks: int) -> float:
        loop = cycles_per_trip(schedule, warps, blocks, rates) / schedule.math_per_trip
        edges = (schedule.before + schedule.after) * max(1.0, warps * blocks / QUARTERS)
        return math * loop + once + model.edge_cycles * edges

    if built.blocks is None:
        return _ended(round_of(fit) / fit)
    most = -(-built.blocks // card.sms)  # of the SM that gets the most
    resident = min(fit, most)
    whole, rest = divmod(most, resident)
    full = round_of(resident)
    last = 0.0
    if rest:
        last = (1 - model.blend) * round_of(rest) + model.blend * full * rest / resident
    return _ended(whole * full + last + model.launch_cycles)


def _ended(cycles: float) -> float | None:
    return cycles if isfinite(cycles) else None


def on_card(schedule: Schedule, arch: Arch, card: Card) -> Schedule:
    """The trip with its matrix instructions as slow as on that card.

    The rates know one speed of the matrix units, that of FP16, with the others in proportion. Where a precision is out
    of proportion (GeForce with sums in FP32, INT8 on sm_103a), it counts as so many more multiply-adds.
    """

    def slower(slot: Slot) -> Slot:
        if not slot.precision:
            return slot
        usual = arch.fp16_mac_per_cycle * {**OF_FP16, "int8": 2.0}[slot.precision]
        return slot._replace(macs=slot.macs * usual / card.mac_per_cycle(arch, slot.precision))

    return replace(schedule, trip=tuple(map(slower, schedule.trip)), others=tuple(map(slower, schedule.others)))


def speedups(builds: Mapping[str, Built], arch: Arch, model: Model, card: Card | None = None) -> dict[str, float]:
    """Predicted speedup over the baseline, by label; none where the baseline's K-loop was not read, or does not fit."""
    own = builds.get(BASELINE)
    base = launch_cycles(BASELINE, own, arch, model, card) if own is not None else None
    if base is None:
        return {}
    others = {label: built for label, built in builds.items() if label != BASELINE}
    cycles = {label: launch_cycles(label, built, arch, model, card) for label, built in others.items()}
    return {label: base / took for label, took in cycles.items() if took is not None}


def ranked(predicted: Mapping[str, float], arch: Arch, model: Model) -> tuple[str, ...]:
    """Labels, the best first, the baseline among them: by predicted speedup less what is not trusted of it.

    Of equals, as far as two digits show, the baseline comes first, then labels as they sort: of one kind, fewer stages.
    """
    scores = {label: log(speedup) - model.spread(label, arch).caution for label, speedup in predicted.items()}
    scores[BASELINE] = 0.0
    order = sorted(scores, key=lambda label: (label != BASELINE, label))
    return tuple(sorted(order, key=lambda label: -round(scores[label], 2)))
