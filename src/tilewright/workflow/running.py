"""The half of the job that launches: verification and timing on a GPU; without one, verification in the emulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
    from tilewright.launch.executor import Executor
    from tilewright.measure.measure import Work
    from tilewright.verification.baseline import BaselineRecord
    from tilewright.verification.verdict import Verification

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
    """Verify every built variant, and time it where a GPU allows it."""
    if spec is None or not run:
        why = "running was switched off" if spec is not None else "no sidecar says how to launch it"
        labels = [label for label, _, _ in contenders(studied)]
        return Ran(
            evidence.Verification(reason=why),
            evidence.Measurement(reason=why),
            dict.fromkeys(labels, evidence.Verification(reason=why)),
            dict.fromkeys(labels, evidence.Measurement(reason=why)),
            _launches(studied, spec),
        )
    if gpu is None:
        return _in_emulator(studied, path, spec, arch, "no GPU here", say)
    if is_emulated(arch, gpu):
        return _in_emulator(studied, path, spec, arch, f"built for {arch}, and the GPU here is {gpu.arch}", say)
    return _on_gpu(studied, path, spec, gpu, say)


def is_emulated(arch: str, gpu: GpuInfo | None) -> bool:
    """No GPU here can run code for ``arch``."""
    return gpu is None or bool(arch_mismatch(arch, gpu.arch))


def _launches(studied: Study, spec: LaunchSpec | None) -> dict[str, record.Launch]:
    """How each variant is launched at the default sizes."""
    out: dict[str, record.Launch] = {}
    for v in studied.variants:
        if v.refusal is None:
            own = bind(spec, "default", studied.constants, v.change) if spec is not None else None
            shared = own.shared_bytes if own is not None else v.change.shared_bytes or 0
            grid, block = (own.grid, own.block) if own is not None else ((), ())
            added = (*(m.declaration for m in v.change.tensor_maps), *(f.declaration for f in v.change.flags))
            out[record.variant_label(v.name, v.stages)] = record.Launch(
                grid,
                block,
                shared,
                added,
                v.change.shared_bytes,
                dict(v.change.constants),
                _changes_grid(studied, spec, v.change),
                v.host_code,
            )
    return out


def _changes_grid(studied: Study, spec: LaunchSpec | None, change: LaunchChange) -> bool:
    """Whether the caller has to launch other blocks; without a sidecar, whether it might."""
    if spec is None or not change.constants:
        return bool(change.constants)
    for name in spec.sizes:
        own, new = (bind(spec, name, studied.constants, LaunchChange(constants=c)) for c in ({}, change.constants))
        if (own.grid, own.block) != (new.grid, new.block):
            return True
    return False


def _verify_baseline(studied: Study, spec: LaunchSpec, executor: Executor, say: Progress) -> BaselineRecord:
    """The baseline at every size set, on inputs of a fresh seed."""
    import secrets

    from tilewright.verification.baseline import baseline_runs
    from tilewright.verification.reference import load_reference

    return baseline_runs(
        _program(studied.baseline),
        spec,
        studied.constants,
        executor,
        secrets.randbits(32),
        load_reference(spec.reference) if spec.reference is not None else None,
        {**(studied.extra_sets or {}), **(studied.ragged_sets if executor.name == "emulator" else {})},
        studied.reduction or "K",
        lambda name: say(f"baseline at {name}"),
    )


def _verify_others(
    contending: list[tuple[str, Artifact, LaunchChange]], kept: BaselineRecord, executor: Executor, say: Progress
) -> dict[str, Verification]:
    """Every contender against the baseline."""
    from tilewright.verification.variant import verify

    verdicts: dict[str, Verification] = {}
    for label, artifact, change in contending:
        program = _program(artifact)
        verdicts[label] = verify(kept, program, change, executor, lambda n, x=label: say(f"{x} at {n}"))  # type: ignore[misc]
    return verdicts


def _race(seen: Verification) -> record.Refusal | None:
    """A race in the kernel that was handed over: no rewrite of it can be held against anything."""
    from tilewright.verification.baseline import NO_LIMITS

    race = next((hazard for hazard in seen.hazards if hazard.kind.startswith(NO_LIMITS)), None)
    if race is None:
        return None
    hint = "Mend the kernel first; `tilewright verify` on it shows every hazard."
    return record.Refusal("baseline_race", f"{race.kind}: {race.message}", race.line, hint)


def _notes(kept: BaselineRecord) -> tuple[str, ...]:
    left_out = [f"left out: {x}" for x in kept.left_out]
    return (f"seed of the inputs: {kept.seed}", *left_out)


def _in_emulator(studied: Study, path: Path, spec: LaunchSpec, arch: str, no_gpu: str, say: Progress) -> Ran:
    """Values and hazards on the CPU. Controls are only there to be timed, so they are left alone."""
    from tilewright.emulator.executor import EmulatorExecutor
    from tilewright.workflow.records import verification_record

    executor = EmulatorExecutor(arch, main_file=path.name)
    kept = _verify_baseline(studied, spec, executor, say)
    everything = contenders(studied)
    variants = [row for row in everything if not _is_control(row[0]) and not row[0].endswith(EARLY)]
    verdicts = _verify_others(variants, kept, executor, say)
    records = {label: verification_record(verdict) for label, verdict in verdicts.items()}
    untimed = evidence.Measurement(reason=no_gpu)
    left = evidence.Verification(reason=f"a control is there to be timed: {no_gpu}")
    return Ran(
        verification_record(kept.verification),
        untimed,
        {label: records.get(label, left) for label, _, _ in everything},
        {label: untimed for label, _, _ in everything},
        _launches(studied, spec),
        notes=_notes(kept),
        refusal=_race(kept.verification),
    )


def _look_for_races(
    studied: Study,
    path: Path,
    spec: LaunchSpec,
    arch: str,
    verdicts: dict[str, Verification],
    is_baseline_right: bool,
    say: Progress,
) -> dict[str, Verification]:
    """Baseline and variants in the emulator at every size set but the default one: a GPU shows values, not races."""
    from tilewright.emulator.executor import EmulatorExecutor
    from tilewright.measure.measure import BASELINE

    if not is_baseline_right:
        return {}
    executor = EmulatorExecutor(arch, main_file=path.name)
    others = {name: sizes for name, sizes in spec.sizes.items() if name != "default"}
    small = replace(spec, sizes=others or spec.sizes)
    kept = _verify_baseline(studied, small, executor, lambda x: say(f"races: {x}"))
    rows = [row for row in contenders(studied) if not _is_control(row[0]) and verdicts[row[0]].verdict == "passed"]
    seen = _verify_others(rows, kept, executor, lambda x: say(f"races: {x}"))
    return {BASELINE: kept.verification, **seen}


def _on_gpu(studied: Study, path: Path, spec: LaunchSpec, gpu: GpuInfo, say: Progress) -> Ran:
    from tilewright.gpu.executor import GpuExecutor
    from tilewright.measure.measure import BASELINE, measure
    from tilewright.verification.verdict import Passed, not_run, with_races
    from tilewright.workflow.records import measurement_record, verification_record

    unseen = not_run("not looked at")
    executor = GpuExecutor(gpu)
    kept = _verify_baseline(studied, spec, executor, say)
    verdicts = _verify_others(contenders(studied), kept, executor, say)
    races = _look_for_races(studied, path, spec, gpu.arch, verdicts, kept.verification.verdict == "passed", say)
    verdicts = {label: with_races(verdict, races.get(label, unseen)) for label, verdict in verdicts.items()}
    on_baseline = with_races(kept.verification, races.get(BASELINE, unseen))
    passed = {
        label: Passed(_program(artifact), change, verdicts[label])
        for label, artifact, change in contenders(studied)
        if verdicts[label].verdict == "passed"
    }
    base = Passed(_program(studied.baseline), LaunchChange(), on_baseline) if on_baseline.verdict == "passed" else None
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
    return Ran(
        verification_record(on_baseline),
        measurement_record(times[BASELINE]),
        {k: verification_record(v) for k, v in verdicts.items()},
        {k: measurement_record(times[k]) if k in times else why for k in verdicts},
        _launches(studied, spec),
        executor.is_hung,
        _notes(kept),
        _race(on_baseline),
    )


def contenders(studied: Study) -> list[tuple[str, Artifact, LaunchChange]]:
    """(label, build, change of the launch) of everything that is verified and timed: variants, then their controls."""
    built = [(record.variant_label(v.name, v.stages), v) for v in studied.variants if v.artifact is not None]
    out = [(label, v.artifact, v.change) for label, v in built if v.artifact is not None]
    if studied.widened is not None and widened_label(studied) == WIDENED:
        out.append((WIDENED, studied.widened.artifact, studied.widened.change))
    built += [(early_label(label), v.early) for label, v in built if v.early is not None]
    out += [(label, v.artifact, v.change) for label, v in built if label.endswith(EARLY) and v.artifact is not None]
    out += [(waited_label(label), v.waited.artifact, v.waited.change) for label, v in built if v.waited is not None]
    return out


WIDENED = "widened"
EARLY = "/early"


def widened_label(studied: Study) -> str:
    """What the baseline with its loads widened runs as: the variant `widen` where that was made, else a control."""
    made = any(v.name == "widen" and v.artifact is not None for v in studied.variants)
    return record.variant_label("widen", 1) if made else WIDENED


def _is_control(label: str) -> bool:
    return label == WIDENED or label.endswith("/waited")


def early_label(label: str) -> str:
    """The label of a variant with its loads in front of the barrier."""
    return label + EARLY


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
    device = find_device(gpu.name, gpu.sms, gpu.memory_bytes)
    inputs = [b.dtype.name for b in launch.buffers if b.role == "in"]
    peak = device.peaks.get(_PRECISION.get(inputs[0], "")) if device is not None and inputs else None
    if device is None or peak is None:
        return Work(ops, float(moved), None)
    return Work(ops, float(moved), attainable(peak, device.dram_bytes_per_s, ops, float(moved)))
