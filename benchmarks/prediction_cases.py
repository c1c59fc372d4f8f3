"""The cases of the prediction's benchmark: compiled kernels at one size each, with what was measured of them.

The inputs are made on the card and are not kept here, since they hold the machine code of public kernels:
``times.json`` (rows of measured medians by contender, see `Case`) and one pickled study for each kernel.
"""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from tilewright.launch.bind import LaunchChange, bind
from tilewright.plan.compiled import BASELINE, Built
from tilewright.receipt.record import variant_label
from tilewright.sass.listing import disassemble
from tilewright.sass.schedule import Schedule, schedule_of
from tilewright.settings import Settings
from tilewright.workflow.built import warps_math
from tilewright.workflow.study import StudiedVariant, Study

# Medians whose interquartile range is wider than this share of them say little: those contenders are left out.
MOST_SPREAD = 0.10


@dataclass(frozen=True)
class Case:
    """One kernel at one size.

    Attributes:
        origin: where the kernel comes from, under a neutral name.
        set: the name of the sizes. dims: the sizes.
        measured: median microseconds by contender: the baseline and accepted variants.
        builds: the same contenders, compiled.
    """

    name: str
    origin: str
    set: str
    dims: Mapping[str, int]
    measured: Mapping[str, float]
    builds: Mapping[str, Built]
    card: str
    driver: str
    date: str


def collect(times: Path, studies: Path, settings: Settings) -> list[Case]:
    """Every row of the times, with its kernels taken apart."""
    by_file: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in json.loads(times.read_text("utf-8")):
        by_file[row["file"]].append(row)
    cases: list[Case] = []
    for file, rows in sorted(by_file.items()):
        kept = pickle.loads((studies / f"{file}.pkl").read_bytes())
        cases += _cases(kept["study"], kept["spec"], rows, settings)
    return cases


def _cases(study: Study, spec: Any, rows: list[dict[str, Any]], settings: Settings) -> Iterator[Case]:
    schedules: dict[str, Schedule | None] = {}
    first = "default" if "default" in spec.sizes else next(iter(spec.sizes))
    parts = dict(_contenders(study))
    for label, (artifact, change, _, _) in parts.items():
        function = disassemble(artifact.cubin, settings).function(artifact.kernel)
        x, y, z = bind(spec, first, study.constants, change).block
        boxes = tuple(prod(box.box[1:]) for box in change.tensor_maps)
        schedules[label] = schedule_of(function, (x, y, z), boxes) if function is not None else None
    for row in rows:
        builds: dict[str, Built] = {}
        for label, timed in row["contenders"].items():
            schedule = schedules.get(label)
            if schedule is None or timed["iqr_us"] > MOST_SPREAD * timed["median_us"]:
                continue
            artifact, change, smem_bytes, side = parts[label]
            launch = bind(spec, row["set"], study.constants, change)
            before = prod(bind(spec, row["set"], study.constants).block)
            threads, blocks = prod(launch.block), prod(launch.grid)
            whole = _math(study, spec, row["dims"])
            math = warps_math(whole, side, before, threads) if whole is not None else None
            builds[label] = Built(schedule, artifact.resources.registers, smem_bytes, threads, blocks, math)
        if BASELINE in builds and len(builds) > 1:
            measured = {label: row["contenders"][label]["median_us"] for label in builds}
            about = (row["card"], row["driver"], row["date"])
            yield Case(row["name"], row["origin"], row["set"], row["dims"], measured, builds, *about)


def _contenders(study: Study) -> Iterator[tuple[str, tuple[Any, LaunchChange, int, str]]]:
    """(label, (build, change of the launch, shared bytes, halved side)) of the baseline and of every variant."""
    yield BASELINE, (study.baseline, LaunchChange(), study.baseline_resources.smem_bytes or 0, "")

    def part(v: StudiedVariant) -> tuple[Any, LaunchChange, int, str]:
        return v.artifact, v.change, v.resources.smem_bytes or 0, v.side

    for v in study.variants:
        if v.artifact is not None:
            yield variant_label(v.name, v.stages), part(v)
            if v.early is not None:
                yield variant_label(v.name, v.stages) + "/early", part(v.early)


def _math(study: Study, spec: Any, dims: Mapping[str, int]) -> float | None:
    """Math of one warp in one block of the baseline: that of a tile, times the tiles at these sizes.

    None where the number of tiles is not known, as `workflow.built` has it.
    """
    proofs = (study.baseline_proof, *(v.proof for v in study.variants if not v.side))
    per_tile = next((proof.mma_per_tile for proof in proofs if proof.mma_per_tile), None)
    tiles = study.loop.num_tiles if study.loop is not None else None
    reduction = study.reduction if study.reduction in dims else "K"
    default = spec.sizes.get("default", {}).get(reduction)
    times = dims[reduction] / default if default and reduction in dims else 1.0
    return float(tiles) * times * per_tile if tiles and per_tile else None
