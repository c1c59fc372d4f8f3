"""The timing loop on a simulated clock, and that only what passed is timed."""

from __future__ import annotations

import random
from typing import Any

import pytest
from fake_executor import FakeExecutor, program
from launch_samples import CONSTANTS, gemm_spec

from tilewright.gpu.device import GpuInfo
from tilewright.gpu.driver import DeviceError
from tilewright.launch.bind import LaunchChange
from tilewright.measure import measure as measure_module
from tilewright.measure.measure import Measurement, Plan, Work, evaluate, measure, not_run, sample
from tilewright.verification.baseline import baseline_runs
from tilewright.verification.verdict import Passed, Verification

QUICK = Plan(warmup_rounds=1, min_rounds=30, max_rounds=60, noise_target=0.0, budget_s=60)
INFO = GpuInfo(
    index=0,
    name="NVIDIA H200",
    arch="sm_90",
    driver="580.159.03",
    cuda=(13, 0),
    sms=132,
    l2_bytes=60 << 20,
    memory_bytes=1 << 37,
    clock_mhz=1980,
    smem_per_block_bytes=232448,
    smem_per_sm_bytes=233472,
    reserved_smem_bytes=1024,
    registers_per_sm=65536,
    threads_per_sm=2048,
    blocks_per_sm=32,
)


class SimulatedClock:
    """Contenders with a true time each, 1 % of noise, and a clock that slows down as it heats."""

    def __init__(self, true_us: dict[str, float], noise: float = 0.01) -> None:
        self.true_us, self.noise = true_us, noise
        self.order: list[str] = []
        self.random = random.Random(11)

    def time_us(self, name: str) -> float:
        self.order.append(name)
        heat = 1 + 0.3 * min(len(self.order) / 300, 1)
        return self.true_us[name] * heat * (1 + self.noise * self.random.random())


def test_rounds_are_interleaved_and_warm_up_is_not_counted() -> None:
    clock = SimulatedClock({"baseline": 10, "b": 9, "c": 8})
    samples = sample(clock, ["baseline", "b", "c"], QUICK)
    assert clock.order[:6] == ["baseline", "b", "c", "baseline", "b", "c"]
    assert {len(times) for times in samples.values()} == {60}
    assert len(clock.order) == 3 * 61


def test_it_stops_at_the_noise_target_and_at_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["baseline", "b"]
    quiet = sample(SimulatedClock(dict.fromkeys(names, 10.0), noise=0.0), names, Plan(noise_target=0.003))
    assert len(quiet["b"]) == 30
    noisy = sample(
        SimulatedClock(dict.fromkeys(names, 10.0), noise=0.3), names, Plan(noise_target=0.003, max_rounds=200)
    )
    assert len(noisy["b"]) == 200
    ticks = iter(range(10_000))
    monkeypatch.setattr(measure_module.time, "monotonic", lambda: float(next(ticks)))
    late = sample(SimulatedClock(dict.fromkeys(names, 10.0), noise=0.3), names, Plan(budget_s=0.5))
    assert len(late["b"]) == 6


def test_evaluate_gives_every_figure() -> None:
    clock = SimulatedClock({"baseline": 100.0, "fast": 50.0, "slow": 120.0, "equal": 100.0, "baseline, again": 100.0})
    samples = sample(clock, list(clock.true_us), QUICK)
    common = Measurement(size="default", card="NVIDIA H200", driver="580", date="2026-01-01T00:00:00+00:00")
    work = Work(ops=2e9, dram_bytes=1e6, attainable_ops_per_s=1e14)
    results = evaluate(samples, common, work)
    assert list(results) == ["baseline", "fast", "slow", "equal"]
    assert [one.verdict for one in results.values()] == ["same", "faster", "slower", "same"]
    fast = results["fast"]
    assert fast.speedup == pytest.approx(2.0, rel=0.01)
    assert fast.speedup_low is not None
    assert fast.speedup_high is not None
    assert fast.speedup_low <= fast.speedup <= fast.speedup_high
    assert results["baseline"].speedup == 1.0
    assert fast.median_us is not None
    assert fast.min_us is not None
    assert fast.iqr_us is not None
    assert 50 <= fast.min_us <= fast.median_us <= 66
    assert fast.iqr_us > 0
    assert fast.samples == 60
    assert fast.gflops == pytest.approx(2e9 / fast.median_us / 1e3)
    assert fast.gbps == pytest.approx(1e6 / fast.median_us / 1e3)
    assert fast.roofline_share == pytest.approx(2e9 / (fast.median_us * 1e-6) / 1e14)
    assert (fast.size, fast.card, fast.driver, fast.date) == ("default", "NVIDIA H200", "580", common.date)
    assert evaluate(samples, common, Work())["fast"].gflops is None


def test_noise_that_hides_a_small_gain_is_ambiguous() -> None:
    clock = SimulatedClock({"baseline": 100.0, "b": 97.0, "baseline, again": 100.0}, noise=0.5)
    samples = sample(clock, list(clock.true_us), Plan(min_rounds=20, max_rounds=20, noise_target=0.0))
    result = evaluate(samples, Measurement(), Work())["b"]
    assert result.verdict in ("ambiguous", "same")
    assert result.verdict == "same" or "interval" in result.reason


class FakeStopwatch:
    """Stands in for the GPU's: half the time for variants with more shared memory; fails for the kernel "dies"."""

    def __init__(self, executor: Any, contenders: Any, arrays: Any) -> None:
        self.contenders, self.arrays = contenders, arrays

    def __enter__(self) -> FakeStopwatch:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def time_us(self, name: str) -> float:
        one, launch = self.contenders[name]
        if one.kernel == "dies":
            raise DeviceError("CUDA_ERROR_ILLEGAL_ADDRESS")
        assert set(self.arrays) == {"a", "b", "c"}
        return 50.0 if launch.shared_bytes else 100.0

    def clock_mhz(self) -> int:
        return 1755


class FakeGpu:
    info = INFO

    def bury(self, error: DeviceError) -> str:
        return str(error)


def passed(kernel: str = "", shared_bytes: int | None = None) -> Passed:
    return Passed(program(kernel), LaunchChange(shared_bytes=shared_bytes), Verification("passed", "gpu"))


RECORD = baseline_runs(program(), gemm_spec(), CONSTANTS, FakeExecutor(), 7)


def test_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_module, "Stopwatch", FakeStopwatch)
    gpu: Any = FakeGpu()
    results = measure(RECORD, passed(), {"cp_async": passed(shared_bytes=64), "ldg": passed()}, gpu, plan=QUICK)
    assert list(results) == ["baseline", "cp_async", "ldg"]
    assert [one.verdict for one in results.values()] == ["same", "faster", "same"]
    assert results["cp_async"].speedup == 2.0
    assert (results["ldg"].card, results["ldg"].driver, results["ldg"].clock_mhz) == ("NVIDIA H200", "580.159.03", 1755)
    assert results["ldg"].date.endswith("+00:00")
    dead = measure(RECORD, passed(), {"ldg": passed("dies")}, gpu, plan=QUICK)
    assert dead["baseline"] == dead["ldg"]
    assert dead["ldg"].reason == "the GPU failed while timing: CUDA_ERROR_ILLEGAL_ADDRESS"


def test_nothing_is_timed_without_a_gpu_or_a_passed_baseline() -> None:
    assert measure(RECORD, passed(), {"ldg": passed()}, None) == {
        "baseline": not_run("no GPU to time it on", "default"),
        "ldg": not_run("no GPU to time it on", "default"),
    }
    gpu: Any = FakeGpu()
    assert measure(RECORD, None, {"ldg": passed()}, gpu)["ldg"].reason == "the baseline did not pass verification"


@pytest.mark.parametrize("verdict", ["failed", "not_run"])
def test_only_what_passed_can_be_handed_over(verdict: Any) -> None:
    with pytest.raises(ValueError, match=verdict):
        Passed(program(), LaunchChange(), Verification(verdict))
