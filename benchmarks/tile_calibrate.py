"""Fits the tile model's parameters to measured times, on the calibration shapes only.

    pip install scipy
    python benchmarks/tile_calibrate.py tile_measured.json --seconds 600     # rewrites tile/data/cost.toml

The loss of a shape is the mean squared log error over its configurations, those near the best weighted most, plus
the expected slowdown of a choice that is made by the predicted times (a soft minimum, so that the fit sees a slope).
Shapes weigh the same. Differential evolution over the parameters' logarithms within the bounds below, then Powell.
No row of a test shape is read: `calibration` drops them before anything is computed.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.arch.arch import load_arch
from tilewright.arch.devices import find_device
from tilewright.skeleton.gemm import GemmTile
from tilewright.tile.columns import Columns, columns
from tilewright.tile.gemm_time import gemm_time
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Gemm
from tilewright.tile.parameters import CostParameters, load_parameters, parameter_names

HERE = Path(__file__).parent
COST = HERE.parent / "src" / "tilewright" / "tile" / "data" / "cost.toml"
# What each may be, from what is physically possible. What is measured elsewhere is not fitted.
BOUNDS: dict[str, tuple[float, float]] = {
    "mma_share": (0.75, 1.0),
    "fragment_cycles": (10, 110),
    "shared_share": (0.8, 1.0),
    "l2_share": (0.8, 1.5),
    "l2_port_share": (1.2, 2.0),
    "load_latency_cycles": (500, 1600),
    "copy_instructions": (4, 20),
    "fragment_instructions": (1, 3),
    "tile_instructions": (10, 150),
    "barrier_cycles": (5, 200),
    "prologue_cycles": (500, 4000),
    "epilogue_cycles": (100, 4000),
    "store_bytes_per_cycle": (8, 128),
    "overlap": (0.05, 1.0),
    "clumping": (0.05, 1.0),
    "dram_share": (0.4, 1.0),
    "l2_usable_share": (0.05, 1.0),
    "launch_us": (0.5, 5.0),
    "second_pass_us": (0.5, 5.0),
    "reduce_bytes_per_s": (5e11, 1.2e13),
    "smoothness": (2.5, 12.0),
}
NEAR = 3.0  # weight (best / time) ** NEAR
SOFT = 0.02
CHOICE_WEIGHT = 2.0


@dataclass(frozen=True)
class Case:
    """One shape: its space, and the measured microseconds."""

    name: str
    op: Gemm
    space: Columns
    measured_us: np.ndarray[Any, np.dtype[np.float64]]


def calibration_names() -> set[str]:
    """The shapes that may be fitted on."""
    lists = tomllib.loads((HERE / "tile_shapes.toml").read_text("utf-8"))
    return {shape["name"] for shape in lists["calibration"]}


def cases(report: dict[str, Any], names: set[str], machine: Machine) -> list[Case]:
    """The named shapes of a report of tile_space.py, with registers as the model estimates them."""
    out = []
    for shape in report["shapes"]:
        if shape["name"] in names:
            tiles = [GemmTile(*row["config"]) for row in shape["rows"]]
            op = Gemm(shape["m"], shape["n"], shape["k"], shape["batch"])
            times = np.array([row["median_us"] for row in shape["rows"]])
            out.append(Case(shape["name"], op, columns(tiles, op.dtype, machine.arch), times))
    return out


def loss(cost: CostParameters, found: list[Case], machine: Machine) -> float:
    """Mean over the shapes; see the module's text."""
    total = 0.0
    for case in found:
        predicted = gemm_time(case.op, case.space, machine, cost).seconds * 1e6
        best = case.measured_us.min()
        weight = (best / case.measured_us) ** NEAR
        error = np.log(predicted / case.measured_us)
        picked = np.exp(-(predicted / predicted.min() - 1) / SOFT)
        slowdown = float((picked * case.measured_us).sum() / picked.sum() / best - 1)
        total += float((weight * error**2).sum() / weight.sum()) + CHOICE_WEIGHT * slowdown
    return total / len(found)


def with_values(cost: CostParameters, logs: Any) -> CostParameters:
    """Parameters from their logarithms, in the order of `BOUNDS`."""
    return replace(cost, **{name: math.exp(value) for name, value in zip(BOUNDS, logs, strict=True)})


def fitted(found: list[Case], machine: Machine, start: CostParameters, seconds: float, seed: int) -> CostParameters:
    """The best parameters found in the time."""
    from scipy.optimize import differential_evolution, minimize

    bounds = [(math.log(low), math.log(high)) for low, high in BOUNDS.values()]
    began = time.monotonic()
    first = [
        min(max(math.log(getattr(start, name)), low), high) for name, (low, high) in zip(BOUNDS, bounds, strict=True)
    ]

    def judged(logs: Any) -> float:
        return loss(with_values(start, logs), found, machine)

    def late(_: Any, convergence: float = 0.0) -> bool:
        return time.monotonic() - began > 0.7 * seconds

    coarse = differential_evolution(
        judged, bounds, x0=first, seed=seed, popsize=6, maxiter=100_000, tol=1e-6, polish=False, callback=late
    )
    left = max(seconds - (time.monotonic() - began), 1.0)
    evaluations = max(int(left / ((time.monotonic() - began) / coarse.nfev)), 50)
    fine = minimize(judged, coarse.x, method="Powell", bounds=bounds, options={"maxfev": evaluations})
    best = fine.x if fine.fun < coarse.fun else coarse.x
    print(f"loss {judged(first):.4f} -> {min(fine.fun, coarse.fun):.4f}, {coarse.nfev + fine.nfev} evaluations")
    return with_values(start, best)


def written(cost: CostParameters, report: dict[str, Any]) -> str:
    """The parameter file's text: what is not fitted stays as it is."""
    count = len(calibration_names())
    source = f"Fitted to {count} shapes on {report['card']}, driver {report['driver']}, {report['date']}"
    lines = [
        "# What the time model of `tilewright tile` knows beyond the tables of architectures and cards. Fitted figures",
        "# are one model's coefficients, no measurements of the hardware: some stand at the edge of what is plausible.",
        "",
        "[gemm]",
    ]
    for name in parameter_names():
        kind, why = ("fitted", source) if name in BOUNDS else (cost.kinds[name], cost.sources[name])
        lines.append(f'{name} = {{ value = {getattr(cost, name):.4g}, kind = "{kind}", source = "{why}" }}')
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=COST)
    options = parser.parse_args()
    report = json.loads(Path(options.measured).read_text("utf-8"))
    device = find_device(report["card"])
    assert device is not None
    machine = Machine(load_arch(report["arch"]), device)
    found = cases(report, calibration_names(), machine)
    cost = fitted(found, machine, load_parameters(), options.seconds, options.seed)
    options.out.write_text(written(cost, report), "utf-8")
    for case in found:
        predicted = gemm_time(case.op, case.space, machine, cost).seconds * 1e6
        chosen = float(case.measured_us[int(np.argmin(predicted))])
        print(f"{case.name:24} chosen {chosen:9.1f} us, best {case.measured_us.min():9.1f} us")


if __name__ == "__main__":
    main()
