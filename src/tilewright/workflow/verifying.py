"""`tilewright verify`: any kernel with a sidecar, alone or as a candidate against its baseline."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tilewright import __version__
from tilewright.errors import EXIT_CHECK_FAILED, EXIT_MISSING, EXIT_OK, EXIT_REFUSED, TilewrightError
from tilewright.gpu.device import arch_mismatch, find_gpu
from tilewright.launch.bind import BoundLaunch, bind
from tilewright.launch.executor import Executor
from tilewright.receipt import record
from tilewright.receipt.verify_report import Counted, MutantRow, VerifyReport
from tilewright.settings import Settings
from tilewright.workflow.candidates import Candidate, Request

if TYPE_CHECKING:
    from tilewright.emulator.options import Schedule
    from tilewright.verification.baseline import BaselineRecord
    from tilewright.verification.verdict import Verification

Progress = Callable[[str], None]
ExecutorName = Literal["emulator", "gpu"]


@dataclass(frozen=True)
class VerifyOutcome:
    """Exit code 0: it passed; 1: a check failed; 4: nothing here can run it."""

    report: VerifyReport
    exit_code: int


def verify(
    path: Path,
    *,
    against: Path | None = None,
    kernel: str | None = None,
    arch: str | None = None,
    spec: Path | None = None,
    executor: ExecutorName | None = None,
    schedule: Schedule | None = None,
    is_loose: bool = False,
    mutate: bool = False,
    shared_bytes: int | None = None,
    max_seconds: float | None = 600.0,
    seed: int | None = None,
    settings: Settings | None = None,
    use_cache: bool = True,
    progress: Progress | None = None,
) -> VerifyOutcome:
    """Run a kernel at every size set of its sidecar and look for wrong values and hazards.

    Alone, it is compared with itself in another order of threads, and with the sidecar's reference where there is one.

    Args:
        path: a CUDA source, or a Python file with a Triton kernel.
        against: the baseline; ``path`` is then a candidate for its place, compared bit for bit.
        kernel: which ``__global__`` function of ``path``.
        spec: the sidecar; by default the one beside ``path``, else, for a candidate, the baseline's.
        executor: ``emulator`` (the default) or ``gpu``, which sees no races.
        schedule: one order of threads for all runs of the emulator.
        is_loose: results within a tolerance of the baseline's will do.
        mutate: also break its synchronisation, place by place, and say which breaks are found.
        shared_bytes: dynamic shared memory of ``path``'s launch, where the sidecar is the baseline's.
        max_seconds: a run of the emulator that takes longer is stopped, and has failed; None: no bound.
        seed: of the inputs; a fresh one by default.

    Raises:
        TilewrightError: bad input (exit 2) or something missing (exit 3).
    """
    say = progress or (lambda _: None)
    begin = time.perf_counter()
    path, against = Path(path), None if against is None else Path(against)
    settings = settings or Settings.from_environment()
    if max_seconds is not None and max_seconds <= 0:
        raise TilewrightError("verify/max_seconds", f"--max-seconds is {max_seconds:g}; it must be above 0.")
    job = Request(path, against, kernel, arch, spec, shared_bytes, settings, use_cache)
    say("compiling")
    target, candidate, baseline = job.open()
    runner = _executor(executor, target.arch, schedule, max_seconds, path)
    kept = _baseline_runs(baseline or candidate, runner, secrets.randbits(32) if seed is None else seed, say)
    verdict = kept.verification
    if baseline is not None:
        verdict = _compare(candidate, baseline, kept, runner, shared_bytes, is_loose, say)
    from tilewright.workflow.records import verification_record

    say("counting")
    counted = _count(candidate, baseline, kept, runner, shared_bytes) if verdict.verdict == "passed" else None
    is_right = verdict.verdict == "passed"
    mutants = _mutants(candidate, baseline, kept, runner, shared_bytes, say) if mutate and is_right else ()
    report = VerifyReport(
        tool=record.Tool(__version__, candidate.compiler),
        kernel=candidate.kernel,
        arch=target.arch,
        arch_reason=target.reason,
        executor=runner.name,
        schedule=schedule or "",
        verify=verification_record(verdict),
        against=baseline.kernel if baseline is not None else None,
        baseline=verification_record(kept.verification) if baseline is not None else None,
        counted=counted,
        mutants=mutants,
        notes=(
            f"seed of the inputs: {kept.seed}",
            *_reservations(baseline or candidate, mutate, is_right),
            *(f"left out: {x}" for x in kept.left_out),
        ),
        timings_s={"total": round(time.perf_counter() - begin, 3)},
    )
    return VerifyOutcome(report, _exit_code(report))


def _reservations(base: Candidate, mutate: bool, is_right: bool) -> tuple[str, ...]:
    """What a pass does not say."""
    out: list[str] = []
    if base.spec.reference is None:
        out.append(
            "no [reference] in the sidecar: the kernel was compared with itself only, not with what it should compute"
        )
    if mutate and not is_right:
        out.append("not broken further, since it does not pass as it is")
    elif mutate:
        out.append("of the places in its PTX, at most 8 of a kind were broken, spread over the kernel")
    return tuple(out)


def _exit_code(report: VerifyReport) -> int:
    """A baseline that fails its own check is a failed check too: nothing can be held against it."""
    runs = [report.verify, *([report.baseline] if report.baseline is not None else [])]
    if any(run.verdict == "failed" or run.hazards for run in runs):
        return EXIT_CHECK_FAILED
    return EXIT_OK if report.verify.verdict == "passed" else EXIT_REFUSED


def _executor(
    name: ExecutorName | None, arch: str, schedule: Schedule | None, max_seconds: float | None, path: Path
) -> Executor:
    if name != "gpu":
        from tilewright.emulator.executor import EmulatorExecutor
        from tilewright.emulator.options import EmulatorOptions

        return EmulatorExecutor(arch, EmulatorOptions(schedule=schedule, max_seconds=max_seconds), path.name)
    gpu = find_gpu()
    if gpu is None:
        raise TilewrightError(
            "gpu/none",
            "There is no GPU here.",
            hint="The emulator needs none: --executor emulator.",
            exit_code=EXIT_MISSING,
        )
    if arch_mismatch(arch, gpu.arch):
        raise TilewrightError(
            "gpu/other_arch",
            f"The code is for {arch}, and the GPU here is {gpu.arch}.",
            hint=f"Build for it with --arch {gpu.arch}, or use --executor emulator.",
        )
    from tilewright.gpu.executor import GpuExecutor

    return GpuExecutor(gpu)


def _baseline_runs(base: Candidate, runner: Executor, seed: int, say: Progress) -> BaselineRecord:
    from tilewright.verification.baseline import baseline_runs
    from tilewright.verification.reference import load_reference

    return baseline_runs(
        base.program,
        base.spec,
        base.constants,
        runner,
        seed,
        load_reference(base.spec.reference) if base.spec.reference is not None else None,
        base.extra_sets,
        base.reduction or "K",
        lambda name: say(f"{Path(base.kernel.file).name} at {name}"),
    )


def _launch_at(
    candidate: Candidate, baseline: Candidate, shared_bytes: int | None
) -> Callable[[Mapping[str, int]], BoundLaunch]:
    """The candidate's launch: by its own sidecar, or by the baseline's with the constants of its own file."""
    constants = {**baseline.constants, **candidate.constants}

    def at(sizes: Mapping[str, int]) -> BoundLaunch:
        launch = bind(candidate.spec, sizes, constants)
        return launch if shared_bytes is None else replace(launch, shared_bytes=shared_bytes)

    return at


def _compare(
    candidate: Candidate,
    baseline: Candidate,
    kept: BaselineRecord,
    runner: Executor,
    shared_bytes: int | None,
    is_loose: bool,
    say: Progress,
) -> Verification:
    from tilewright.verification.variant import verify as verify_variant

    name = Path(candidate.kernel.file).name
    return verify_variant(
        kept,
        candidate.program,
        None,
        runner,
        lambda n: say(f"{name} at {n}"),
        launch_at=_launch_at(candidate, baseline, shared_bytes),
        is_loose=is_loose,
    )


def _count(
    candidate: Candidate, baseline: Candidate | None, kept: BaselineRecord, runner: Executor, shared_bytes: int | None
) -> Counted | None:
    from tilewright.workflow.counting import count

    base = baseline or candidate
    launch_at = _launch_at(candidate, base, shared_bytes) if baseline is not None else None
    return count(
        candidate.program, kept, runner, launch_at=launch_at, reduction=base.reduction, extra_sets=base.extra_sets
    )


def _mutants(
    candidate: Candidate,
    baseline: Candidate | None,
    kept: BaselineRecord,
    runner: Executor,
    shared_bytes: int | None,
    say: Progress,
) -> tuple[MutantRow, ...]:
    """Broken twins of the candidate, and what finds each."""
    from tilewright.verification.mutation import judge_mutants

    if runner.name != "emulator":
        raise TilewrightError(
            "verify/mutants", "Mutants are made of PTX, which only the emulator runs.", hint="Leave --executor out."
        )
    if kept.verification.verdict != "passed":
        return ()
    launch_at = None if baseline is None else _launch_at(candidate, baseline, shared_bytes)
    say("breaking it")
    twins = candidate.mutants()
    verdicts = judge_mutants(kept, twins, None, runner, lambda n: say(f"mutant {n}"), launch_at=launch_at)
    return tuple(MutantRow(v.name, v.description, v.line, v.caught, v.by, v.message, v.is_equivalent) for v in verdicts)
