"""Timing: the loop over rounds, and what its samples say."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, Protocol

from tilewright.gpu.driver import DeviceError
from tilewright.gpu.executor import GpuExecutor
from tilewright.gpu.stopwatch import Stopwatch
from tilewright.launch.bind import BoundLaunch, bind
from tilewright.launch.inputs import make_inputs, poisoned_outputs
from tilewright.measure.ratios import Ratio, compare, noise_band, speedup, spread
from tilewright.verification.baseline import BaselineRecord
from tilewright.verification.runs import POISONS
from tilewright.verification.verdict import Passed

if TYPE_CHECKING:
    import numpy as np

BASELINE = "baseline"
_LEAST_ROUNDS = 6
_CONTROL = "baseline, again"  # the same kernel twice in each round: the noise floor of this run


@dataclass(frozen=True)
class Plan:
    """When to stop.

    Attributes:
        warmup_rounds: not counted.
        min_rounds, max_rounds: of samples.
        noise_target: stop when the confidence interval of every speedup is within this share of it, to either side.
        budget_s: stop after this time, whatever the noise; but not before six rounds, for fewer have no 95 % interval.
    """

    warmup_rounds: int = 3
    min_rounds: int = 30
    max_rounds: int = 1000
    noise_target: float = 0.003
    budget_s: float = 10.0


@dataclass(frozen=True)
class Work:
    """What one launch does, for rates.

    Attributes:
        ops: floating-point or integer operations; None where they are not known.
        dram_bytes: unique bytes read and written.
        attainable_ops_per_s: what the card's roofline allows for this work; None without a table for the card.
    """

    ops: float | None = None
    dram_bytes: float | None = None
    attainable_ops_per_s: float | None = None


@dataclass(frozen=True)
class Measurement:
    """One contender's time at one size.

    Attributes:
        size: name of the size set.
        median_us, min_us, iqr_us: of the samples, from a cold L2; microseconds.
        samples: how many.
        gflops: 10**9 operations per second, integer ones too, at the median.
        gbps: 10**9 bytes per second at the median, unique bytes only.
        roofline_share: of the attainable rate, 0 to 1.
        speedup: median over the rounds of baseline time / this time.
        speedup_low, speedup_high: its 95 % confidence interval.
        card, driver, date: where and when (ISO 8601, UTC).
        clock_mhz: the SM clock after the last round.
        verdict: against the baseline, which is "same" as itself; ``not_run`` where nothing was timed.
        reason: why not, or what makes the verdict ambiguous.
    """

    size: str = ""
    median_us: float | None = None
    min_us: float | None = None
    iqr_us: float | None = None
    samples: int = 0
    gflops: float | None = None
    gbps: float | None = None
    roofline_share: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    card: str = ""
    driver: str = ""
    date: str = ""
    clock_mhz: int | None = None
    verdict: Literal["faster", "same", "slower", "ambiguous", "not_run"] = "not_run"
    reason: str = ""


def not_run(reason: str, size: str = "") -> Measurement:
    """Nothing was timed, and this is why."""
    return Measurement(size=size, reason=reason)


class Clock(Protocol):
    """Times one launch of a contender by its name: a ``Stopwatch``, or a simulation of one."""

    def time_us(self, name: str) -> float: ...


def measure(
    record: BaselineRecord,
    baseline: Passed | None,
    variants: Mapping[str, Passed],
    executor: GpuExecutor | None,
    work: Work | None = None,
    size: str = "default",
    plan: Plan | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Measurement]:
    """Time the baseline and every variant at one size set, interleaved.

    Args:
        record: the baseline's verification: it holds the sidecar, the constants and the inputs.
        baseline, variants: only what has passed; a baseline of None (it failed) gives not_run for all.
        executor: None gives not_run for all.
        work: for rates and the roofline.
        size: name of the set; ``default`` is the one that is timed.
        progress: called with the rounds done and the most that there will be.

    Returns:
        By name, the baseline as ``"baseline"``.
    """
    names = [BASELINE, *variants]
    if executor is None or baseline is None:
        why = "no GPU to time it on" if executor is None else "the baseline did not pass verification"
        return dict.fromkeys(names, not_run(why, size))
    passed = {BASELINE: baseline, **variants}
    launches = {name: bind(record.spec, size, record.constants, one.change) for name, one in passed.items()}
    contenders = {name: (passed[name].program, launches[name]) for name in names}
    contenders[_CONTROL] = contenders[BASELINE]
    arrays = {**_inputs(record, size, launches[BASELINE]), **poisoned_outputs(launches[BASELINE], POISONS[0])}
    try:
        with Stopwatch(executor, contenders, arrays) as stopwatch:
            samples = sample(stopwatch, list(contenders), plan or Plan(), progress)
            clock_mhz = stopwatch.clock_mhz()
    except DeviceError as error:
        return dict.fromkeys(names, not_run(f"the GPU failed while timing: {executor.bury(error)}", size))
    common = Measurement(
        size=size,
        card=executor.info.name,
        driver=executor.info.driver,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        clock_mhz=clock_mhz,
    )
    return evaluate(samples, common, work or Work())


def sample(
    clock: Clock, names: list[str], plan: Plan, progress: Callable[[int, int], None] | None = None
) -> dict[str, list[float]]:
    """Rounds of A B C A B C …, each contender once a round, until the plan is met. Samples by name, in rounds."""
    for _ in range(plan.warmup_rounds):
        for name in names:
            clock.time_us(name)
    samples: dict[str, list[float]] = {name: [] for name in names}
    begin = time.monotonic()
    for done in range(1, plan.max_rounds + 1):
        for name in names:
            samples[name].append(clock.time_us(name))
        if progress:
            progress(done, plan.max_rounds)
        if done >= _LEAST_ROUNDS and time.monotonic() - begin > plan.budget_s:
            break
        if done >= plan.min_rounds and _is_quiet(samples, plan):
            break
    return samples


def _is_quiet(samples: Mapping[str, list[float]], plan: Plan) -> bool:
    first, *others = samples.values()
    # Looking at the interval after every round and stopping at a lucky one would flatter it; every tenth is enough.
    return len(first) % 10 == 0 and all(speedup(first, other).half_width <= plan.noise_target for other in others)


def evaluate(samples: Mapping[str, list[float]], common: Measurement, work: Work) -> dict[str, Measurement]:
    """Samples of one run → a measurement for each contender.

    Args:
        samples: by name, in rounds, the baseline's under ``"baseline"``; with the control, if there is one.
        common: size, card, driver, date.
    """
    base = samples[BASELINE]
    control = speedup(base, samples[_CONTROL]) if _CONTROL in samples else Ratio(1.0, 1.0, 1.0)
    band = noise_band(control)
    results: dict[str, Measurement] = {}
    for name, times in samples.items():
        if name == _CONTROL:
            continue
        ratio = speedup(base, times)
        verdict = compare(ratio, band)
        results[name] = replace(
            _rates(common, times, work),
            speedup=ratio.value,
            speedup_low=ratio.low,
            speedup_high=ratio.high,
            verdict=verdict,
            reason=_reason(ratio, band) if verdict == "ambiguous" else "",
        )
    return results


def _rates(common: Measurement, times: list[float], work: Work) -> Measurement:
    figures = spread(times)
    rate = work.ops / figures.median_us * 1e6 if work.ops else None
    return replace(
        common,
        median_us=figures.median_us,
        min_us=figures.min_us,
        iqr_us=figures.iqr_us,
        samples=figures.samples,
        gflops=rate / 1e9 if rate else None,
        gbps=work.dram_bytes / figures.median_us / 1e3 if work.dram_bytes else None,
        roofline_share=rate / work.attainable_ops_per_s if rate and work.attainable_ops_per_s else None,
    )


def _reason(ratio: Ratio, band: float) -> str:
    return f"the 95 % interval {ratio.low:.3f} to {ratio.high:.3f} neither stays within {band:.1%} of 1 nor clears it"


def _inputs(record: BaselineRecord, size: str, launch: BoundLaunch) -> dict[str, np.ndarray]:
    """The inputs that verification used, where it ran this size."""
    found = next((one for one in record.sets if one.name == size), None)
    return dict(found.inputs) if found else dict(make_inputs(launch, record.seed))
