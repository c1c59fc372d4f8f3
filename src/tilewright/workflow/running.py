"""The half of the job that launches: verification and timing on a GPU, or plain words about why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.gpu.device import GpuInfo, arch_mismatch
from tilewright.launch.bind import LaunchChange, bind
from tilewright.launch.executor import Program
from tilewright.launch.spec import LaunchSpec
from tilewright.receipt import evidence, record
from tilewright.workflow.study import Study

if TYPE_CHECKING:
    from tilewright.build.artifact import Artifact
    from tilewright.measure.measure import Work
    from tilewright.verify.verdict import Verification

Progress = Callable[[str], None]
_PRECISION = {"int8": "int8", "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float8_e4m3fn": "fp8"}


@dataclass(frozen=True)
class Ran:
    """What running showed, by variant label; a control's label is the variant's and ``/waited``, or ``widened``.

    ``hung``: a kernel never came back, so the process has to be left without waiting for the GPU.
    """

    baseline_verify: evidence.Verification
    baseline_measure: evidence.Measurement
    verify: dict[str, evidence.Verification] = field(default_factory=dict)
    measure: dict[str, evidence.Measurement] = field(default_factory=dict)
    launches: dict[str, record.Launch] = field(default_factory=dict)
    hung: bool = False
    notes: tuple[str, ...] = ()
    refusal: record.Refusal | None = None


def run_all(
    studied: Study, path: Path, spec: LaunchSpec | None, arch: str, gpu: GpuInfo | None, run: bool, say: Progress
) -> Ran:
    """Verify and time every built variant, where a GPU and a sidecar allow it."""
    why = _why_not(spec, arch, gpu, run)
    if why or gpu is None or spec is None:
        labels = [label for label, _, _ in contenders(studied)]
        return Ran(
            evidence.Verification(reason=why),
            evidence.Measurement(reason=why),
            dict.fromkeys(labels, evidence.Verification(reason=why)),
            dict.fromkeys(labels, evidence.Measurement(reason=why)),
            _launches(studied, spec),
        )
    return _on_gpu(studied, path, spec, gpu, say)


def _why_not(spec: LaunchSpec | None, arch: str, gpu: GpuInfo | None, run: bool) -> str:
    if spec is None:
        return "no sidecar says how to launch it"
    if not run:
        return "running was switched off"
    if gpu is None:
        return "no GPU here"
    mismatch = arch_mismatch(arch, gpu.arch)
    return f"built for {arch}, and the GPU here is {gpu.arch}" if mismatch else ""


def _launches(studied: Study, spec: LaunchSpec | None) -> dict[str, record.Launch]:
    """How each variant is launched at the default sizes."""
    out: dict[str, record.Launch] = {}
    base = bind(spec, "default", studied.constants) if spec is not None else None
    for v in studied.variants:
        if v.refusal is None:
            shared = v.dynamic_bytes if v.dynamic_bytes is not None else (base.shared_bytes if base is not None else 0)
            grid, block = (base.grid, base.block) if base is not None else ((), ())
            out[record.variant_label(v.name, v.stages)] = record.Launch(grid, block, shared)
    return out


def _on_gpu(studied: Study, path: Path, spec: LaunchSpec, gpu: GpuInfo, say: Progress) -> Ran:
    import secrets

    from tilewright.gpu.executor import GpuExecutor
    from tilewright.measure.measure import BASELINE, measure
    from tilewright.verify.baseline import baseline_runs
    from tilewright.verify.reference import load_reference
    from tilewright.verify.variant import verify
    from tilewright.verify.verdict import Passed
    from tilewright.workflow.records import measurement_record, verification_record

    executor = GpuExecutor(gpu)
    reference = load_reference(spec.reference) if spec.reference is not None else None
    seed = secrets.randbits(32)
    baseline = _program(studied.baseline)
    kept = baseline_runs(
        baseline,
        spec,
        studied.constants,
        executor,
        seed,
        reference,
        studied.extra_sets,
        studied.reduction or "K",
        lambda name: say(f"baseline at {name}"),
    )
    verdicts: dict[str, Verification] = {}
    passed: dict[str, Passed] = {}
    for label, artifact, dynamic_bytes in contenders(studied):
        change = LaunchChange(shared_bytes=dynamic_bytes)
        verdicts[label] = verify(
            kept,
            _program(artifact),
            change,
            executor,
            lambda n, x=label: say(f"{x} at {n}"),  # type: ignore[misc]
        )
        if verdicts[label].verdict == "passed":
            passed[label] = Passed(_program(artifact), change, verdicts[label])
    base = Passed(baseline, LaunchChange(), kept.verification) if kept.verification.verdict == "passed" else None
    say("timing")
    times = measure(
        kept,
        base,
        passed,
        executor,
        _work(studied, spec, gpu),
        progress=lambda done, most: say(f"timing, round {done} of at most {most}"),
    )
    why = evidence.Measurement(reason="only what passed verification is timed")
    notes = [f"seed of the inputs: {seed}"]
    notes += [f"not asked of the variants, since the baseline does not handle it: {x}" for x in kept.left_out]
    return Ran(
        verification_record(kept.verification),
        measurement_record(times[BASELINE]),
        {k: verification_record(v) for k, v in verdicts.items()},
        {k: measurement_record(times[k]) if k in times else why for k in verdicts},
        _launches(studied, spec),
        executor.is_hung,
        tuple(notes),
    )


def contenders(studied: Study) -> list[tuple[str, Artifact, int | None]]:
    """(label, build, dynamic bytes) of everything that is verified and timed: variants, then their controls."""
    built = [(record.variant_label(v.name, v.stages), v) for v in studied.variants if v.artifact is not None]
    out = [(label, v.artifact, v.dynamic_bytes) for label, v in built if v.artifact is not None]
    if studied.widened is not None:
        out.append((WIDENED, studied.widened.artifact, None))
    out += [
        (waited_label(label), v.waited.artifact, v.waited.dynamic_bytes) for label, v in built if v.waited is not None
    ]
    return out


WIDENED = "widened"


def waited_label(label: str) -> str:
    """The label of a variant's twin whose wait stands before the compute phase."""
    return f"{label}/waited"


def _program(artifact: Artifact) -> Program:
    return Program(artifact.cubin, artifact.ptx, artifact.kernel, artifact.arch)


def _work(studied: Study, spec: LaunchSpec, gpu: GpuInfo) -> Work:
    """Operations and unique bytes of the default launch, where the tile says what it computes."""
    from tilewright.arch.devices import find_device
    from tilewright.arch.roofline import attainable
    from tilewright.measure.measure import Work

    launch = bind(spec, "default", studied.constants)
    moved = sum(b.storage_elements * b.dtype.item_bytes * (2 if b.role == "inout" else 1) for b in launch.buffers)
    tile, tiles = studied.tile, studied.loop.num_tiles if studied.loop is not None else None
    if tile is None or tiles is None or None in (tile.BM, tile.BN, tile.BK):
        return Work(None, float(moved), None)
    x, y, z = launch.grid
    ops = 2.0 * (tile.BM or 0) * (tile.BN or 0) * (tile.BK or 0) * tiles * x * y * z
    device = find_device(gpu.name)
    inputs = [b.dtype.name for b in launch.buffers if b.role == "in"]
    peak = device.peaks.get(_PRECISION.get(inputs[0], "")) if device is not None and inputs else None
    if device is None or peak is None:
        return Work(ops, float(moved), None)
    return Work(ops, float(moved), attainable(peak, device.dram_bytes_per_s, ops, float(moved)))
