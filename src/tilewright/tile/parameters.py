"""The cost model's free figures, from ``data/cost.toml``: each with its source, measured or fitted."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from typing import Any

from tilewright.errors import TilewrightError

KINDS = ("documented", "measured", "fitted", "estimate")


@dataclass(frozen=True)
class CostParameters:
    """What the model knows beyond `Arch` and `Device`. ``*_share`` is a part of what those state, 0 to 1 (or a little
    more).

    Attributes:
        mma_share: of the architecture's ``mma.sync`` multiply-adds per cycle.
        fragment_cycles: per step, what a warp waits for its fragments and sums beyond the time of its products.
        shared_share: of the shared-memory bytes per cycle.
        l2_share: of the bytes per cycle that one SM takes in from L2, while all SMs do.
        l2_port_share: the same where few SMs ask.
        load_latency_cycles: from a copy's issue to its landing, under load.
        copy_instructions: per copy of 16 bytes and thread: address, guards, the copy.
        fragment_instructions: per ldmatrix.
        tile_instructions: per warp and tile of K: loop, ring, barrier.
        barrier_cycles: per tile of K, for the block's barrier and the warps that arrive late.
        prologue_cycles: per block, from its start to the first product.
        epilogue_cycles: per block, from the last product to the block's end, without the bytes written.
        store_bytes_per_cycle: written by one SM.
        overlap: share of a block's prologue and epilogue that another resident block's work hides.
        clumping: in the last wave, how far an SM with free places is filled up while others have none, 0 to 1.
        dram_share: of the card's DRAM bytes per second.
        stream_share: the same for kernels that stream everything once.
        l2_usable_share: of L2 that keeps inputs for a later wave.
        launch_us: of a launch, whatever it does.
        second_pass_us: of split-K's second launch, beyond its bytes.
        reduce_bytes_per_s: read and written by split-K's second pass.
        smoothness: exponent of the smooth maximum over the pipes.
    """

    mma_share: float
    fragment_cycles: float
    shared_share: float
    l2_share: float
    l2_port_share: float
    load_latency_cycles: float
    copy_instructions: float
    fragment_instructions: float
    tile_instructions: float
    barrier_cycles: float
    prologue_cycles: float
    epilogue_cycles: float
    store_bytes_per_cycle: float
    overlap: float
    clumping: float
    dram_share: float
    stream_share: float
    l2_usable_share: float
    launch_us: float
    second_pass_us: float
    reduce_bytes_per_s: float
    smoothness: float

    sources: Mapping[str, str] = field(repr=False, compare=False)
    kinds: Mapping[str, str] = field(repr=False, compare=False)


def load_parameters() -> CostParameters:
    """The parameters that come with Tilewright."""
    return parse_parameters(files(__package__).joinpath("data", "cost.toml").read_text("utf-8"))


def parse_parameters(text: str) -> CostParameters:
    """Read a parameter file.

    Raises:
        TilewrightError: ``tile/bad_data``, when a figure, its source or its kind is missing, or one is not known.
    """
    rows: dict[str, dict[str, Any]] = tomllib.loads(text)["gemm"]
    wanted = parameter_names()
    unsourced = sorted(name for name, row in rows.items() if not row.get("source") or row.get("kind") not in KINDS)
    if set(rows) != set(wanted) or unsourced:
        facts = {"missing": sorted(set(wanted) - set(rows)), "unknown": sorted(set(rows) - set(wanted))}
        facts["unsourced"] = unsourced
        raise TilewrightError("tile/bad_data", f"The cost model's parameters do not fit: {facts}.", facts)
    return CostParameters(
        **{name: float(rows[name]["value"]) for name in wanted},
        sources={name: row["source"] for name, row in rows.items()},
        kinds={name: row["kind"] for name, row in rows.items()},
    )


def parameter_names() -> tuple[str, ...]:
    """The figures' names, in their order."""
    return tuple(f.name for f in fields(CostParameters) if f.name not in ("sources", "kinds"))
