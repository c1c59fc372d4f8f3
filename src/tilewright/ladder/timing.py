"""Rungs on a card: judged there at the small sets, then timed, interleaved, from a cold L2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from tilewright.errors import EXIT_CHECK_FAILED, TilewrightError
from tilewright.gpu.buffers import DeviceArrays
from tilewright.gpu.driver import DeviceError, allocate, checked, fill, release, synchronize
from tilewright.gpu.executor import GpuExecutor, kernel_arguments
from tilewright.gpu.stopwatch import LEAST_FLUSH_BYTES
from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.counted import counted, of_this_tile, threads_of
from tilewright.ladder.family import Family, Rung
from tilewright.ladder.launching import arch_of, runs_code
from tilewright.ladder.predicting import CardRates, precision_of, predict, rates_of, with_prediction
from tilewright.ladder.report import LadderBench, TimedRung
from tilewright.ladder.running import Operation, RungRun, judge, operation, operation_launch
from tilewright.ladder.specs import bound_launches, cleared_before, figure, rung_spec
from tilewright.launch.bind import BoundArray, BoundLaunch
from tilewright.launch.executor import Hazard
from tilewright.launch.inputs import make_inputs, poisoned_outputs, repeating_inputs
from tilewright.measure.measure import Plan, sample
from tilewright.measure.ratios import speedup, spread
from tilewright.measure.turns import Turns
from tilewright.plan.compiled import load_model
from tilewright.settings import Settings
from tilewright.verification.runs import POISONS

if TYPE_CHECKING:
    import numpy as np

    from tilewright.gpu.device import GpuInfo

DRAWN = 1 << 22  # random values of an array that is only timed; they repeat


@dataclass(frozen=True)
class _Step:
    """One kernel of a rung, ready to be launched. ``cleared``: (address, bytes) of what has to be zero before it."""

    kernel: Any
    launch: BoundLaunch
    arguments: list[np.generic | np.ndarray]
    cleared: tuple[tuple[int, int], ...]


def run_on_gpu(compiled: CompiledRung, what: Operation, executor: GpuExecutor) -> RungRun:
    """Run a rung on a card, each kernel with fresh buffers between red zones, and judge what came of it.

    Raises:
        TilewrightError: ``ladder/limit`` where the rung does not take the sizes.
    """
    arrays: dict[str, Any] = dict(what.inputs)
    hazards: list[Hazard] = []
    for program, launch in zip(
        compiled.programs, bound_launches(compiled.spec, what.sizes, compiled.constants), strict=True
    ):
        fresh = {**make_inputs(launch, 0), **poisoned_outputs(launch, POISONS[0])}
        given = {b.name: arrays.get(b.name, fresh[b.name]) for b in launch.buffers}
        result = executor.run(program, launch, given)
        hazards += result.hazards
        if result.error:
            return RungRun(False, result.error, tuple(hazards))
        arrays |= result.arrays
    return judge(compiled, what, arrays, tuple(hazards))


class RungStopwatch:
    """Times rungs on one set of the family's arrays, which stays on the device. A context manager.

    Args:
        rungs: by name. launch: the family's own arguments. arrays: the first values of its inputs, which repeat.
    """

    def __init__(
        self,
        executor: GpuExecutor,
        rungs: Mapping[str, CompiledRung],
        launch: BoundLaunch,
        arrays: Mapping[str, np.ndarray],
    ) -> None:
        self._executor, self._rungs, self._launch, self._arrays = executor, rungs, launch, arrays
        self._steps: dict[str, list[_Step]] = {}
        self._stack = ExitStack()
        self._flush_bytes = max(2 * executor.info.l2_bytes, LEAST_FLUSH_BYTES)
        self._count = 0

    def __enter__(self) -> RungStopwatch:
        try:
            shared = self._stack.enter_context(DeviceArrays(self._executor.stream_handle))
            shared.lay_out(self._launch, self._arrays, POISONS[0])
            self._scratch = self._allocated(self._flush_bytes)
            for name, compiled in self._rungs.items():
                self._steps[name] = self._prepared(compiled, shared)
            self._start, self._end = _event_of(self._executor), _event_of(self._executor)
        except BaseException as error:
            self.__exit__(type(error), error)
            raise
        return self

    def __exit__(self, kind: object = None, error: object = None, trace: object = None) -> None:
        if not (isinstance(error, DeviceError) and error.is_hung):
            self._stack.close()

    def _allocated(self, count_bytes: int) -> int:
        base = allocate(max(count_bytes, 256))
        self._stack.callback(release, base)
        return base

    def _prepared(self, compiled: CompiledRung, shared: DeviceArrays) -> list[_Step]:
        own: dict[str, int] = {}
        known = {b.name for b in self._launch.buffers}
        launches = bound_launches(compiled.spec, self._launch.sizes, compiled.constants)
        kept = compiled.spec.rung.kept
        for buffer in (b for launch in launches for b in launch.buffers):
            if buffer.name not in known and buffer.name not in own:
                own[buffer.name] = self._allocated(_bytes_of(buffer))
                if buffer.name in kept:
                    fill(own[buffer.name], 0, _bytes_of(buffer), self._executor.stream_handle)

        def pointer(name: str) -> int:
            return own[name] if name in own else shared.pointer(name)

        inputs = [*(b.name for b in self._launch.buffers if b.is_read_first), *kept]
        steps = []
        for program, launch, cleared in zip(compiled.programs, launches, cleared_before(launches, inputs), strict=True):
            zeros = tuple((pointer(b.name), _bytes_of(b)) for b in cleared)
            kernel = self._executor.kernel(program, launch)
            steps.append(_Step(kernel, launch, kernel_arguments(launch, pointer), zeros))
        return steps

    def time_us(self, name: str) -> float:
        """Microseconds of one rung, all its kernels, after everything was driven out of the L2."""
        executor = self._executor
        self._count += 1
        fill(self._scratch, self._count % 256, self._flush_bytes, executor.stream_handle)
        executor.stream.record(self._start)
        for step in self._steps[name]:
            for address, count_bytes in step.cleared:  # a part of what the rung costs
                fill(address, 0, count_bytes, executor.stream_handle)
            executor.launch(step.kernel, step.launch, None, step.arguments)  # type: ignore[arg-type]  # not asked for
        executor.stream.record(self._end)
        synchronize(executor.stream_handle)
        return float(self._end - self._start) * 1000.0


def card_rates(executor: GpuExecutor) -> CardRates:
    """What the card's copies reach now (1 GiB, from a cold L2), with the tables' rates and cost of a launch."""
    from cuda.bindings import driver

    count_bytes, rounds = 1 << 30, 10
    source, target = allocate(count_bytes), allocate(count_bytes)
    stream, times = executor.stream_handle, []
    try:
        fill(source, 1, count_bytes, stream)
        start, end = _event_of(executor), _event_of(executor)
        for _ in range(rounds):
            executor.stream.record(start)
            checked(driver.cuMemcpyDtoDAsync(target, source, count_bytes, stream))
            executor.stream.record(end)
            synchronize(stream)
            times.append(float(end - start) / 1000.0)
    finally:
        release(source)
        release(target)
    launch_us = load_model().launch_cycles / (executor.info.clock_mhz or 1000)
    return rates_of(executor.info.name, 2 * count_bytes / median(times), launch_us)


def _event_of(executor: GpuExecutor) -> Any:
    from cuda.core import EventOptions

    try:
        options = EventOptions(timing_enabled=True)
    except TypeError:
        options = EventOptions(enable_timing=True)  # cuda-core 1.0
    return executor.device.create_event(options)


def _bytes_of(buffer: BoundArray) -> int:
    return buffer.storage_elements * buffer.dtype.item_bytes


def bench(
    family: Family,
    rungs: tuple[Rung, ...],
    dtypes: tuple[str, ...],
    sizes: tuple[str, ...],
    info: GpuInfo,
    settings: Settings,
    progress: Callable[[str], None],
    plan: Plan | None = None,
    turns: Turns | None = None,
) -> LadderBench:
    """Judge, then time, each of the rungs for each element type and set of sizes.

    Args:
        plan: when to stop; by default 10 seconds a set.
        turns: with other processes at this card.

    Raises:
        TilewrightError: ``ladder/card_fault`` (exit 1): a rung took the card's context with it.
    """
    turns = turns or Turns()
    with turns.shared():
        executor = GpuExecutor(info)
        with turns.alone():
            rates = card_rates(executor)
    timed: list[TimedRung] = []
    for dtype in dtypes:
        passed: dict[str, CompiledRung] = {}
        failed: dict[str, str] = {}
        # Inputs and references cost more than the runs: all rungs have the same ones.
        small = {size: operation(family, dtype, family.sizes[size]) for size in family.emulated_sets()}
        for rung in rungs:
            if dtype in rung.dtypes and not _not_here(rung, info):
                progress(f"{family.name} {rung.name}, {dtype}: is it right here")
                compiled, why = _judged(family, rung, dtype, small, executor, settings, turns)
                if compiled is not None and not why:
                    passed[rung.name] = compiled
                else:
                    failed[rung.name] = why
        for size in sizes:
            progress(f"{family.name}, {dtype}, {size}: timing")
            here, wrong = dict(passed), dict(failed)
            own = [r for r in rungs if (r.sized or r.choices) and r.name in passed]  # defines of their own at each size
            for rung in own:
                sized = rung.at(family.sizes[size], dtype)
                if sized.misfit(family.sizes[size]):  # `_timed` says why, and such defines need not even compile
                    here[rung.name] = replace(passed[rung.name], spec=replace(passed[rung.name].spec, rung=sized))
                    continue
                compiled, why = _judged(family, sized, dtype, small, executor, settings, turns, family.sizes[size])
                if compiled is not None and not why:
                    here[rung.name] = compiled
                else:
                    here.pop(rung.name)
                    wrong[rung.name] = why
            rows = _timed(family, rungs, dtype, size, here, wrong, executor, plan or Plan(), turns)
            timed += [_foretold(family, row, here.get(row.rung), rates, settings) for row in rows]
    date = datetime.now(UTC).isoformat(timespec="seconds")
    told = LadderBench(family.name, family.title, info.name, info.driver, date, tuple(timed))
    return replace(told, copy_gbps=rates.dram_bytes / 1e9, launch_us=rates.launch_us)


def _foretold(
    family: Family, row: TimedRung, compiled: CompiledRung | None, rates: CardRates, settings: Settings
) -> TimedRung:
    """The row with what it should take, by what the emulator counts of the rung."""
    if row.verdict != "passed" or compiled is None:
        return row
    rung = family.rung(row.rung)
    foretold = predict(
        family,
        row.sizes,
        row.dtype,
        rates,
        precision=precision_of(family, row.dtype, "tf32" if "tf32" in rung.name else ""),
        runs=of_this_tile(counted(family, rung, row.dtype, settings), compiled),
        threads=threads_of(compiled, row.sizes),
    )
    return with_prediction(row, foretold)


def _not_here(rung: Rung, info: GpuInfo) -> str:
    """Why a card cannot run a rung, right or wrong; "" where it can."""
    if rung.min_arch is None or runs_code(rung.min_arch, info.arch):
        return ""
    return f"not here: it needs {rung.min_arch}, and the card is {info.arch}"


def _judged(
    family: Family,
    rung: Rung,
    dtype: str,
    small: Mapping[str, Operation],
    executor: GpuExecutor,
    settings: Settings,
    turns: Turns,
    within: Mapping[str, int] | None = None,
) -> tuple[CompiledRung | None, str]:
    """A rung built for the card, and what is wrong with it there: "" where it passed at every small set (``within`` the
    sizes that it is built for; at those themselves where it takes no others)."""
    try:
        compiled = compile_rung(rung_spec(family, rung, dtype), settings, arch_of(rung, executor.info))
    except TilewrightError as error:
        return None, error.message
    sets = {size: small[size] for size in family.emulated_sets(rung, within)}
    if within is not None and not sets:
        sets = {"the sizes that it is built for": operation(family, dtype, within)}
    for size, what in sets.items():
        with turns.shared():
            done = run_on_gpu(compiled, what, executor)
        if not done.passed:
            _need_context(executor, family, dtype, (rung.name,), f"{size}: {done.message}")
            return compiled, f"{size}: {done.message}"
    return compiled, ""


def _need_context(executor: GpuExecutor, family: Family, dtype: str, rungs: tuple[str, ...], why: str) -> None:
    """Without a context all that this process would still run fails, PyTorch's kernels, too: say whose fault it is."""
    if executor.is_dead:
        again = f"tilewright ladder run {family.name} --rung {rungs[0]} --dtype {dtype} --size all"
        hint = f"{again}: the emulator may say why; compute-sanitizer on the card. --rung leaves others out here."
        message = f"{family.name} {' or '.join(rungs)}, {dtype}, took the card's context with it. {why}"
        raise TilewrightError("ladder/card_fault", message, {}, hint, EXIT_CHECK_FAILED)


def _timed(
    family: Family,
    rungs: tuple[Rung, ...],
    dtype: str,
    size: str,
    passed: Mapping[str, CompiledRung],
    failed: Mapping[str, str],
    executor: GpuExecutor,
    plan: Plan,
    turns: Turns,
) -> list[TimedRung]:
    sizes = family.sizes[size]
    draft = partial(TimedRung, dtype=dtype, size=size, sizes=sizes, verdict="not_run")
    taken = [r for r in rungs if dtype in r.dtypes]
    out = [draft(r.name, r.technique, message=_not_here(r, executor.info)) for r in taken]
    out = [replace(r, verdict="failed", message=failed[r.rung]) if r.rung in failed else r for r in out]
    out = [replace(r, message=passed[r.rung].spec.rung.misfit(sizes)) if r.rung in passed else r for r in out]
    ready = {r.rung: passed[r.rung] for r in out if r.rung in passed and not r.message}
    if not ready:
        return out
    launch = operation_launch(family, dtype, sizes)
    arrays = repeating_inputs(launch, 0, DRAWN)
    try:
        with turns.shared(), RungStopwatch(executor, ready, launch, arrays) as stopwatch, turns.alone():
            samples = sample(stopwatch, list(ready), plan)
    except DeviceError as error:
        why = f"the GPU failed while timing: {executor.bury(error)}"
        _need_context(executor, family, dtype, tuple(ready), why)
        return [replace(r, message=why) if r.rung in ready else r for r in out]
    base = next(iter(samples.values()))
    total_bytes, flops = (figure(text, family, sizes, dtype) for text in (family.bytes, family.flops))
    return [_rated(r, samples[r.rung], base, total_bytes, flops) if r.rung in ready else r for r in out]


def _rated(rung: TimedRung, times: list[float], base: list[float], total_bytes: float, flops: float) -> TimedRung:
    figures, ratio = spread(times), speedup(base, times)
    return replace(
        rung,
        verdict="passed",
        median_us=figures.median_us,
        min_us=figures.min_us,
        iqr_us=figures.iqr_us,
        samples=figures.samples,
        gbps=total_bytes / figures.median_us / 1e3,
        gflops=flops / figures.median_us / 1e3 if flops else None,
        speedup=ratio.value,
        speedup_low=ratio.low,
        speedup_high=ratio.high,
    )
