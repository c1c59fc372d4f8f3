"""The emulator next to a real GPU: every example and variant on the same inputs, at the sizes that verification takes.

Works from the cache of studies (TILEWRIGHT_CACHE), which `tilewright pipeline examples/NAME.cu --arch sm_90a` fills on
a machine with a compiler; where the GPU is, NumPy, msgspec, rich, cyclopts and cuda-core are enough.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright import __version__
from tilewright.emulator.executor import EmulatorExecutor
from tilewright.gpu.device import find_gpu
from tilewright.gpu.executor import GpuExecutor
from tilewright.launch.bind import BoundLaunch, LaunchChange, bind
from tilewright.launch.executor import Program, RunResult
from tilewright.launch.inputs import make_inputs
from tilewright.launch.sidecar import load_sidecar
from tilewright.receipt.record import variant_label
from tilewright.settings import Settings
from tilewright.verification.baseline import POISONS, run_poisoned
from tilewright.verification.compare import bitwise, root_mean_square, within
from tilewright.verification.reference import Reference, load_reference
from tilewright.verification.tolerance import Tolerance, derive, read_arithmetic
from tilewright.workflow.main_job import _Job
from tilewright.workflow.reading import read_file, target_for
from tilewright.workflow.study import Study

if TYPE_CHECKING:
    from tilewright.build.artifact import Artifact
    from tilewright.launch.spec import LaunchSpec

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
NAMES = ("igemm_wmma", "hgemm_mma", "hgemm_wmma", "sgemm_float4")
STAGES = (2, 3, 4)
SEED = 20260301
BASELINE = "baseline"


@dataclass(frozen=True)
class Example:
    """One file with everything that runs it."""

    name: str
    spec: LaunchSpec
    study: Study
    reference: Reference

    @property
    def sets(self) -> dict[str, Mapping[str, int]]:
        """The sidecar's, but for the large one, and trip counts of the main loop."""
        return {**{k: v for k, v in self.spec.sizes.items() if k != "default"}, **(self.study.extra_sets or {})}

    def contenders(self) -> Iterator[tuple[str, Artifact, LaunchChange]]:
        yield BASELINE, self.study.baseline, LaunchChange()
        for v in self.study.variants:
            if v.artifact is not None:
                yield variant_label(v.name, v.stages), v.artifact, LaunchChange(shared_bytes=v.dynamic_bytes)


def load(name: str, arch: str, settings: Settings) -> Example:
    """From the cache where no compiler is; else studied now.

    Raises:
        TilewrightError: neither.
    """
    path = EXAMPLES / f"{name}.cu"
    spec = load_sidecar(path.with_suffix(".toml"))
    assert spec.reference is not None
    job = _Job(read_file(path), path, None, spec, target_for(arch, spec, None), STAGES, None, settings, True)
    return Example(name, spec, job.study(lambda _: None), load_reference(spec.reference))


def chosen(sets: Mapping[str, Mapping[str, int]], most: int) -> dict[str, Mapping[str, int]]:
    """The sidecar's sets, and so many of the trip counts, the smallest first."""
    named = {k: v for k, v in sets.items() if "=" not in k}
    trips = [k for k in sets if "=" in k]
    return named | {k: sets[k] for k in trips[:most]}


def timed(executor: Any, program: Program, launch: BoundLaunch, inputs: Mapping[str, Any]) -> tuple[RunResult, float]:
    begin = time.perf_counter()
    result = run_poisoned(executor, program, launch, inputs, POISONS[0], 0)
    return result, time.perf_counter() - begin


def compare(
    example: Example, program: Program, launch: BoundLaunch, inputs: Mapping[str, Any], gpu: RunResult, cpu: RunResult
) -> dict[str, Any]:
    """Both results of one launch, and each of them against the float64 reference."""
    expected = example.reference.compute(launch, inputs)
    types = [array.dtype for array in launch.arrays if array.is_read_first]
    arithmetic = read_arithmetic(program.ptx, types)
    length = launch.sizes.get(example.study.reduction or "K")
    outputs = {}
    for buffer in launch.buffers:
        if not buffer.is_written:
            continue
        values = expected[buffer.name]
        tolerance = derive(buffer.dtype, types, arithmetic, length, root_mean_square(values.astype(np.float64)))
        left, right = launch.view(buffer.name, gpu.arrays), launch.view(buffer.name, cpu.arrays)
        difference = bitwise(gpu.arrays[buffer.name], cpu.arrays[buffer.name])
        outputs[buffer.name] = {
            "elements": difference.total,
            "differ": difference.count,
            **distances(left, right, tolerance),
            "tolerance": {"absolute": tolerance.absolute, "relative": tolerance.relative},
            "gpu_to_reference": to_reference(left, values, tolerance),
            "emulator_to_reference": to_reference(right, values, tolerance),
        }
    return outputs


def distances(left: Any, right: Any, tolerance: Tolerance) -> dict[str, float]:
    """Between two results: absolute, relative to the larger one, and in units of the tolerance of either."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    with np.errstate(all="ignore"):
        away = np.where(a == b, 0.0, np.abs(a - b))
        larger = np.maximum(np.abs(a), np.abs(b))
        relative = np.where(away > 0, away / larger, 0.0)
        units = away / (tolerance.absolute + tolerance.relative * larger)
    return {
        "max_abs": float(away.max(initial=0.0)),
        "max_rel": float(relative.max(initial=0.0)),
        "max_tolerances": float(np.where(away > 0, units, 0.0).max(initial=0.0)),
    }


def to_reference(result: Any, values: Any, tolerance: Tolerance) -> dict[str, Any]:
    miss = within(result, values.astype(np.float64), tolerance)
    return {"within": miss.count == 0, "max_abs": miss.max_abs}


def agreement(example: Example, gpu: GpuExecutor, most_trips: int) -> Iterator[dict[str, Any]]:
    """A row for each variant and size."""
    emulator = EmulatorExecutor(example.study.baseline.arch, main_file=f"{example.name}.cu")
    for label, artifact, change in example.contenders():
        program = Program(artifact.cubin, artifact.ptx, artifact.kernel, artifact.arch)
        for name, sizes in chosen(example.sets, most_trips).items():
            launch = bind(example.spec, sizes, example.study.constants, change)
            inputs = make_inputs(launch, SEED)
            on_gpu, gpu_s = timed(gpu, program, launch, inputs)
            on_cpu, cpu_s = timed(emulator, program, launch, inputs)
            row: dict[str, Any] = {"kernel": example.name, "variant": label, "set": name, "size": dict(sizes)}
            row |= {"gpu_s": round(gpu_s, 6), "emulator_s": round(cpu_s, 6)}
            row["hazards"] = [h.message for h in (*on_gpu.hazards, *on_cpu.hazards)]
            row["error"] = on_gpu.error or on_cpu.error
            if row["error"] is None:
                row["outputs"] = compare(example, program, launch, inputs, on_gpu, on_cpu)
                row["same_bits"] = all(x["differ"] == 0 for x in row["outputs"].values())
            yield row


def is_sound(row: Mapping[str, Any]) -> bool:
    """Both ran, no hazard was seen, and both are within tolerance of the reference."""
    if row["error"] or row["hazards"]:
        return False
    return all(x[f"{who}_to_reference"]["within"] for x in row["outputs"].values() for who in ("gpu", "emulator"))


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """A line an example, and one for each row that is not sound."""
    lines = []
    for name in dict.fromkeys(row["kernel"] for row in rows):
        mine = [row for row in rows if row["kernel"] == name]
        ran = [row for row in mine if row["error"] is None]
        outputs = [x for row in ran for x in row["outputs"].values()]
        same = sum(row["same_bits"] for row in ran)
        worst = {key: max((x[key] for x in outputs), default=0.0) for key in ("max_abs", "max_rel", "max_tolerances")}
        seconds = [sum(row[key] for row in mine) for key in ("emulator_s", "gpu_s")]
        lines.append(
            f"{name}: {len({row['variant'] for row in mine})} programs, {len(mine)} launches, {same} the same bits, "
            f"{sum(map(is_sound, mine))} sound; max abs {worst['max_abs']:.3g}, rel {worst['max_rel']:.3g}, "
            f"{worst['max_tolerances']:.3g} tolerances; emulator {seconds[0]:.1f} s, GPU {seconds[1]:.1f} s"
        )
        for row in [row for row in mine if not is_sound(row)][:3]:
            why = row["error"] or "; ".join(row["hazards"][:1]) or json.dumps(row["outputs"])
            lines.append(f"  {row['variant']} {row['set']}: {why[:200]}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "h200-emulator-agreement.json")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--trips", type=int, default=4, help="trip counts of the main loop, beside the sidecar's sizes")
    parser.add_argument("--budget-s", type=float, default=240.0, help="what has not begun by then is not run")
    parser.add_argument("examples", nargs="*", default=NAMES, metavar="EXAMPLE")
    options = parser.parse_args()
    info = find_gpu()
    if info is None:
        raise SystemExit("no GPU here; nvidia-smi shows why")
    gpu, settings = GpuExecutor(info), Settings.from_environment()
    end = time.monotonic() + options.budget_s
    rows: list[dict[str, Any]] = []
    left_out = []
    for name in options.examples:
        example = load(name, options.arch, settings)
        for row in agreement(example, gpu, options.trips):
            rows.append(row)
            if time.monotonic() > end:
                left_out.append(f"{name} after {row['variant']} {row['set']}")
                break
    result = {
        "benchmark": "emulator_agreement",
        "card": info.name,
        "driver": info.driver,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "tool": {"version": __version__, "numpy": np.__version__},
        "arch": options.arch,
        "seed": SEED,
        "left_out": left_out,
        "rows": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join([*summary(rows), *(f"not run: {x}" for x in left_out)]))


if __name__ == "__main__":
    main()
