"""Products of halves under load: ours, ``torch.mm`` and the best of cublasLt's heuristic, with joules of a product.

    PYTHONPATH=src python benchmarks/hgemm_sustained.py --out benchmarks/results/h200-hgemm-sustained.json --budget 165

On a card, with PyTorch; ``ladder_pages.py`` makes a table of the file. The most important shapes come first, and the
file is written after each: a run that ends early leaves what it has. `PROTOCOL` says what is timed, and how.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import cublaslt_best
import msgspec

from tilewright.gpu.device import GpuInfo, find_gpu
from tilewright.gpu.executor import GpuExecutor
from tilewright.ladder.arena import Arena
from tilewright.ladder.building import Build, build_apart
from tilewright.ladder.comparing import Contender, sentence
from tilewright.ladder.compiling import compile_rung
from tilewright.ladder.family import Family, Rung, load_family
from tilewright.ladder.launching import arch_of, runs_code
from tilewright.ladder.specs import rung_spec
from tilewright.ladder.sustained import OURS, Sustained, SustainedBench, SustainedPoint
from tilewright.measure.measure import Plan, sample
from tilewright.measure.ratios import speedup
from tilewright.settings import Settings

PROTOCOL = (
    "Contenders take turns, one behind the other without pauses: of each four graphs of about 20 ms, of which the "
    "last one is timed, for the clock follows the power of what ran before, and who is timed at once has the clock "
    "of another; random normal data, each result right against float64; us are medians, ratios those of the rounds "
    "(six or more), with the interval of their median. The rung is what a call gets; cublasLt's best is the fastest "
    "of 16 offers of its heuristic in a short trial; PyTorch adds parts of k in float32 (its reduced-precision "
    "reductions are off). Joules of a product, where power limits it (from 6e10 multiply-adds on), are watts times "
    "its time, both while that contender alone runs for nine tenths of a second; watts are the card's energy "
    "counter between two of its steps in that time, over what lies between them."
)
GRAPH_US = 20_000.0
LEADS = 3  # graphs of a contender's own before the one that is timed
MOST_CALLS = 2000
OFFERS = 16
TRIAL_US = 1500.0  # of a graph of an offer
WINDOW_S = 0.9  # of a contender alone: nine steps of the energy counter
WEIGHED = 60_000_000_000  # multiply-adds: from there on power limits a product
OTHERS_S = 2.0  # of a shape, beside joules
LARGE = ((4096, 4096, 4096), (8192, 8192, 8192), (16384, 16384, 16384))
FEW_ROWS = (
    (1, 4096, 4096), (16, 4096, 4096), (128, 4096, 4096), (16, 14336, 4096), (128, 14336, 4096), (128, 8192, 8192),
    (1, 14336, 4096), (1, 8192, 28672), (8, 14336, 4096), (32, 4096, 4096), (32, 4096, 14336), (64, 4096, 4096),
    (64, 14336, 4096), (64, 8192, 8192), (128, 1024, 8192), (128, 4096, 14336), (16, 128256, 4096), (128, 128256, 4096),
)  # fmt: skip
OTHERS = (
    (4096, 14336, 4096), (8192, 28672, 8192), (4097, 4104, 4104), (2048, 2048, 2048), (1024, 1024, 1024),
    (256, 4096, 4096), (512, 14336, 4096), (256, 14336, 4096), (512, 4096, 4096), (256, 8192, 8192), (512, 8192, 28672),
    (1024, 14336, 4096), (2048, 11008, 4096), (4096, 4096, 11008), (4096, 4096, 14336), (2048, 5120, 4096),
    (2056, 5000, 4008), (1000, 3000, 2000), (257, 1000, 777), (2047, 2049, 2050), (1024, 1024, 4096),
    (3072, 3072, 3072), (6144, 6144, 6144), (12288, 12288, 12288), (5000, 5000, 5000), (512, 512, 512),
)  # fmt: skip
# Rows and columns that tiles of 128 do not divide, as batches have them.
BETWEEN = (
    (24, 4096, 4096), (24, 14336, 4096), (48, 5120, 5120), (96, 4096, 4096), (96, 14336, 4096), (96, 8192, 8192),
    (160, 4096, 4096), (160, 14336, 4096), (160, 8192, 8192), (192, 6144, 4096), (192, 4096, 14336), (224, 5120, 5120),
    (320, 4096, 4096), (320, 14336, 4096), (320, 8192, 8192), (384, 2048, 2048), (384, 4096, 4096), (448, 4096, 14336),
    (640, 4096, 4096), (640, 14336, 4096), (768, 2048, 2048), (768, 8192, 8192), (1536, 1024, 4096), (1536, 4096, 4096),
)  # fmt: skip
PARTS = (LARGE, FEW_ROWS, BETWEEN, OTHERS)
CASES = [(dtype, shape) for part in PARTS for shape in part for dtype in ("bfloat16", "float16")]


class Card:
    """NVML's figures of the first card, through its C interface (NVML API Reference, "Device Queries")."""

    _SM_CLOCK, _GPU_SENSOR = 1, 0  # nvmlClockType_t, nvmlTemperatureSensors_t

    def __init__(self) -> None:
        self._lib: Any = None
        with suppress(OSError):
            lib = ctypes.CDLL("libnvidia-ml.so.1")
            self._card = ctypes.c_void_p()
            if not lib.nvmlInit_v2() and not lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._card)):
                self._lib = lib

    def energy_mj(self) -> int | None:
        """Millijoules since the driver was loaded; None where it does not say."""
        return self._asked("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong())

    def sm_mhz(self) -> int | None:
        return self._asked("nvmlDeviceGetClockInfo", ctypes.c_uint(), self._SM_CLOCK)

    def celsius(self) -> int | None:
        return self._asked("nvmlDeviceGetTemperature", ctypes.c_uint(), self._GPU_SENSOR)

    def _asked(self, call: str, out: Any, *which: int) -> int | None:
        if self._lib is None or getattr(self._lib, call)(self._card, *which, ctypes.byref(out)):
            return None
        return int(out.value)


def watts_of(readings: list[tuple[float, int]]) -> float | None:
    """Watts between the first step of the counter and its last one; None where it made less than two.

    Args:
        readings: seconds and millijoules, in order. Of the first reading nobody knows when the counter came to it.
    """
    steps = [now for before, now in pairwise(readings) if now[1] != before[1]]
    if len(steps) < 2:
        return None
    (begin_s, begin_mj), (end_s, end_mj) = steps[0], steps[-1]
    return (end_mj - begin_mj) / 1e3 / (end_s - begin_s)


class LoadClock:
    """Times contenders by name, see ``measure.Clock``: a graph of each, of so many calls.

    Args:
        stream: the current one, and not the default one.
    """

    def __init__(self, torch: Any, stream: Any, contenders: Mapping[str, Contender], card: Card) -> None:
        self._torch, self._stream, self._card = torch, stream, card
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._graphs: dict[str, tuple[Any, int]] = {name: self._captured(one.call) for name, one in contenders.items()}

    def _captured(self, call: Callable[[], Any]) -> tuple[Any, int]:
        calls = max(1, min(MOST_CALLS, round(GRAPH_US / self._elapsed_us(call, 4))))
        graph = self._torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for _ in range(calls):
                call()
        finally:
            graph.capture_end()
        return graph, calls

    def _elapsed_us(self, call: Callable[[], Any], times: int) -> float:
        self._start.record(self._stream)
        for _ in range(times):
            call()
        self._end.record(self._stream)
        self._end.synchronize()
        return max(1.0, float(self._start.elapsed_time(self._end)) * 1e3 / times)

    def time_us(self, name: str) -> float:
        """Microseconds of one call."""
        graph, calls = self._graphs[name]
        for _ in range(LEADS):
            graph.replay()
        return self._elapsed_us(graph.replay, 1) / calls

    def loaded(self, name: str, us: float, seconds: float) -> Sustained:
        """A contender that runs alone for so long. ``us``: of its calls, which the result takes over."""
        graph, calls = self._graphs[name]
        times = max(2, round(seconds * 1e6 / (us * calls)))
        energies: list[tuple[float, int]] = []
        clocks: list[int] = []
        heats: list[int] = []

        def read() -> None:
            told, now = self._card.energy_mj(), time.perf_counter()
            if told is None or not energies or told != energies[-1][1]:  # asking for more would blur when it steps
                energies.extend([] if told is None else [(now, told)])
                mhz, celsius = self._card.sm_mhz(), self._card.celsius()
                clocks.extend([] if mhz is None else [mhz])
                heats.extend([] if celsius is None else [celsius])

        self._start.record(self._stream)
        for _ in range(times):
            graph.replay()
            read()  # here, too: a queue that is full holds the host up until most have run
        self._end.record(self._stream)
        while not self._end.query():
            read()
            time.sleep(0.0005)
        here_us = float(self._start.elapsed_time(self._end)) * 1e3 / (times * calls)
        watts = watts_of(energies)
        return Sustained(
            us,
            joules=None if watts is None else watts * here_us / 1e6,
            watts=watts,
            sm_mhz=median(clocks) if clocks else None,
            celsius=median(heats) if heats else None,
        )

    def close(self) -> None:
        self._stream.synchronize()
        for graph, _ in self._graphs.values():
            graph.reset()


def sizes_of(shape: tuple[int, int, int]) -> dict[str, int]:
    m, n, k = shape
    return {"M": m, "N": n, "K": k, "ld_a": k, "ld_b": n}


def best(family: Family, dtype: str, shape: tuple[int, int, int], info: GpuInfo) -> Rung:
    return family.best(sizes_of(shape), dtype, lambda arch: runs_code(arch, info.arch))


class Bench:
    """What stays from shape to shape."""

    def __init__(self, torch: Any, stream: Any, family: Family, info: GpuInfo, settings: Settings) -> None:
        self._torch, self._stream, self._family, self._info, self._settings = torch, stream, family, info, settings
        self._executor = GpuExecutor(info)
        self._card = Card()

    def point(self, dtype: str, shape: tuple[int, int, int], window_s: float) -> SustainedPoint:
        """Check, time, and weigh the contenders at a shape."""
        arena = Arena(self._torch, self._family, dtype, sizes_of(shape))
        rung = best(self._family, dtype, shape, self._info)
        defines = told_of(rung)
        messages: dict[str, str] = {}
        offers: list[float | None] = []
        ready: dict[str, Contender] = {}
        for name, made in (
            (OURS, lambda: self._ours(arena, rung)),
            ("torch", lambda: self._torch_mm(arena)),
            ("cublaslt", lambda: self._cublaslt(arena, offers)),
        ):
            try:
                one = made()
                why = arena.check(one)
            except Exception as error:  # a contender that refuses a shape says why; the others are timed
                why = sentence(error)
            if why:
                messages[name] = why
            else:
                ready[name] = one
        point = SustainedPoint(dtype, shape, rung.name, defines, 0, {}, {}, tuple(offers), messages)
        return self._timed(point, ready, window_s) if ready else point

    def _timed(self, point: SustainedPoint, ready: Mapping[str, Contender], window_s: float) -> SustainedPoint:
        clock = LoadClock(self._torch, self._stream, ready, self._card)
        try:
            samples = sample(clock, list(ready), Plan(warmup_rounds=1, min_rounds=10, max_rounds=10, budget_s=0.4))
            times = {
                name: clock.loaded(name, median(us), window_s) if window_s else Sustained(median(us))
                for name, us in samples.items()
            }
        finally:
            clock.close()
        peers = [name for name in samples if name != OURS and OURS in samples]
        ratios = {name: speedup(samples[name], samples[OURS]) for name in peers}
        return replace(point, rounds=len(next(iter(samples.values()))), times=times, ratios=ratios)

    def _ours(self, arena: Arena, rung: Rung) -> Contender:
        compiled = compile_rung(rung_spec(self._family, rung, arena.dtype), self._settings, arch_of(rung, self._info))
        return arena.rung(compiled, self._executor)

    def _torch_mm(self, arena: Arena) -> Contender:
        (a, b), (c,) = arena.inputs, arena.made()
        call = self._torch.mm
        return Contender("torch", "eager", lambda: call(a, b, out=c), lambda _: arena.made(), arena.poison)

    def _cublaslt(self, arena: Arena, offers: list[float | None]) -> Contender:
        (a, b), (c,) = arena.inputs, arena.made()
        sizes = arena.sizes
        least_us = max(5.0, 2e-6 * sizes["M"] * sizes["N"] * sizes["K"] / 800)  # at 800 TFLOPS
        call, times = cublaslt_best.best_of(a, b, c, OFFERS, max(1, min(50, round(TRIAL_US / least_us))), 3)
        offers += times
        return Contender("cublaslt", "eager", call, lambda _: arena.made(), arena.poison)


def kept_of(record: Path | None, info: GpuInfo) -> tuple[SustainedPoint, ...]:
    """Points of an earlier record that may stand in this one: timed alike, on such a card, and with a ratio."""
    if record is None:
        return ()
    told = msgspec.json.decode(record.read_bytes(), type=SustainedBench)
    if (told.protocol, told.card, told.driver) != (PROTOCOL, info.name, info.driver):
        sys.exit(f"{record} was made in another way, or on another card or driver: it has nothing that can be kept.")
    return tuple(point for point in told.points if point.ratios)


def known(
    points: Sequence[SustainedPoint], dtype: str, shape: tuple[int, int, int], rung: Rung
) -> SustainedPoint | None:
    """The point of a shape, if it is of that rung with its defines."""
    for point in points:
        if (point.dtype, point.sizes, point.rung, dict(point.defines)) == (dtype, shape, rung.name, told_of(rung)):
            return point
    return None


def told_of(rung: Rung) -> dict[str, str | int | float]:
    return {name: value for name, value in rung.defines.items() if name.startswith("TW_")}


def rounded(value: Any) -> Any:
    """Numbers of five digits: no card repeats more."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list | tuple) else value


def written(bench: SustainedBench, out: Path) -> None:
    """The record, a line a shape."""
    told = rounded(msgspec.to_builtins(bench))
    points = ",\n".join(msgspec.json.encode(point).decode() for point in told.pop("points"))
    new = out.with_suffix(".new")
    new.write_text(f'{msgspec.json.encode(told).decode()[:-1]},"points":[\n{points}\n]}}\n', "utf-8")
    new.replace(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=260.0, help="seconds, all together")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 1), help="that build")
    parser.add_argument("--have", type=Path, help="a record: shapes that get the same rung now are not timed again")
    args = parser.parse_args()
    end = time.monotonic() + args.budget
    info = find_gpu()
    if info is None:
        sys.exit("there is no GPU here")
    earlier = kept_of(args.have, info)
    family, settings = load_family("hgemm"), Settings.from_environment()
    builds: dict[object, Build] = {}  # one for each rung with its defines
    for dtype, shape in CASES:
        rung = best(family, dtype, shape, info)
        key = (rung.name, dtype, tuple(sorted(rung.defines.items())))
        builds.setdefault(key, Build("hgemm", rung.name, dtype, tuple(sizes_of(shape).items())))
    for line in build_apart(builds.values(), info, settings, args.jobs, end):
        print(f"building {line}")
    import torch

    for product in ("bf16", "fp16"):
        setattr(torch.backends.cuda.matmul, f"allow_{product}_reduced_precision_reduction", False)
    date = datetime.now(UTC).isoformat(timespec="seconds")
    told = SustainedBench(PROTOCOL, info.name, info.driver, date, str(torch.__version__), ())
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        bench = Bench(torch, stream, family, info, settings)
        for index, (dtype, shape) in enumerate(CASES):
            if (kept := known(earlier, dtype, shape, best(family, dtype, shape, info))) is not None:
                told = replace(told, points=(*told.points, kept), left_out=_names(CASES[index + 1 :]))
                continue
            window_s = WINDOW_S if math.prod(shape) >= WEIGHED else 0.0
            if end - time.monotonic() < OTHERS_S + 3 * window_s:
                break
            point = bench.point(dtype, shape, window_s)
            told = replace(told, points=(*told.points, point), left_out=_names(CASES[index + 1 :]))
            written(told, args.out)
            ratios = " ".join(f"{name} {ratio.value:.3f}" for name, ratio in point.ratios.items())
            left = f"{end - time.monotonic():.0f} s left"
            print(dtype, *shape, point.rung, ratios, *point.messages.values(), left, flush=True)
        written(told, args.out)  # what is kept behind the last that was timed, too


def _names(cases: list[tuple[str, tuple[int, int, int]]]) -> tuple[str, ...]:
    return tuple(f"{dtype} {'x'.join(map(str, shape))}" for dtype, shape in cases)


if __name__ == "__main__":
    main()
