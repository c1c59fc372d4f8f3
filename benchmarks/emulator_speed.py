"""How fast the emulator is on one core, next to numba's CUDA simulator and Triton's interpreter.

Each run (a contender, an example, a size, a mode) has a process of its own, pinned to one core with the rest. The
processes of a group take turns, A B C A B C …, so that a machine that slows down slows all of them down.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
CONTENDERS = HERE / "contenders"
INSTALL = {"numba": "pip install numba", "triton": "pip install triton torch", "torch": "pip install triton torch"}
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")}
MODES = ("values", "checks", "checks_warp_serial")
FEWEST = 3  # samples of a run that takes long
RSS_LIMIT = 2 << 30


class Run(NamedTuple):
    """What one process does, M = N = K = ``size``."""

    contender: str
    example: str
    size: int
    mode: str

    @property
    def label(self) -> str:
        return f"{self.contender} {self.example} {self.size} {self.mode}"

    @property
    def multiply_adds(self) -> int:
        return self.size**3


@dataclass
class Taken:
    """What a run took: its first time (PTX read and compiled, decorated code seen), then one time a round."""

    first_s: float = 0.0
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    peak_bytes_before: int = 0
    versions: dict[str, str] = field(default_factory=dict)


NUMBA = Run("numba", "igemm_wmma", 64, "tile_16")
TRITON = Run("triton", "igemm_wmma", 512, "block_64x64x32")  # the example's own tile
TRITON_LARGE = Run("triton", "igemm_wmma", 512, "block_128x128x64")  # an eighth of the steps to interpret
VALUES, CHECKS, CHECKS_WARP_SERIAL = (Run("emulator", "igemm_wmma", 512, mode) for mode in MODES)
VALUES_64 = Run("emulator", "igemm_wmma", 64, "values")

# Which time is divided by which, a multiply-add of each.
RATIOS = {
    "numba_64_to_values_512": (NUMBA, VALUES),
    "numba_64_to_checks_512": (NUMBA, CHECKS),
    "numba_64_to_values_64": (NUMBA, VALUES_64),
    "triton_512_to_values_512": (TRITON, VALUES),
    "triton_512_to_checks_512": (TRITON, CHECKS),
    "triton_512_large_blocks_to_values_512": (TRITON_LARGE, VALUES),
    "triton_512_large_blocks_to_checks_512": (TRITON_LARGE, CHECKS),
}


def groups() -> list[list[Run]]:
    """Runs that take turns. First those that are compared."""
    others = ("sgemm_float4", "hgemm_mma", "hgemm_wmma")
    return [
        [VALUES, CHECKS, CHECKS_WARP_SERIAL, VALUES_64, NUMBA, TRITON, TRITON_LARGE],
        [Run("emulator", "igemm_wmma", 64, mode) for mode in MODES[1:]],
        *([Run("emulator", "igemm_wmma", size, mode) for mode in MODES] for size in (128, 256)),
        *([Run("emulator", name, size, mode) for mode in MODES] for name in others for size in (256, 512)),
    ]


def is_enough(times: Sequence[float], rounds: int, budget_s: float) -> bool:
    """Whether a run has its samples: one a round, or fewer where they have taken long."""
    return len(times) >= rounds or (len(times) >= FEWEST and sum(times) >= budget_s)


def spread(times: Sequence[float]) -> dict[str, float]:
    """Median, least and interquartile range of two or more times, all in seconds."""
    low, _, high = statistics.quantiles(times, n=4, method="inclusive")
    return {"median_s": statistics.median(times), "min_s": min(times), "iqr_s": high - low, "samples": len(times)}


def ratio(slow: tuple[Run, Taken], fast: tuple[Run, Taken]) -> dict[str, float]:
    """Time of ``slow`` over time of ``fast``, a multiply-add each, over the rounds that both ran."""
    work = fast[0].multiply_adds / slow[0].multiply_adds
    each = [s / f * work for s, f in zip(slow[1].wall_s, fast[1].wall_s, strict=False)]
    return {"median": statistics.median(each), "min": min(each), "max": max(each), "samples": len(each)}


def ratios(taken: dict[Run, Taken]) -> dict[str, dict[str, float]]:
    return {
        name: ratio((slow, taken[slow]), (fast, taken[fast]))
        for name, (slow, fast) in RATIOS.items()
        if slow in taken and fast in taken
    }


def targets(taken: dict[Run, Taken], by: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """What was promised, beside what was measured; a target whose contender is missing has no ``measured``."""

    def target(what: str, limit: float, measured: float | None, is_upper: bool) -> dict[str, Any]:
        met = None if measured is None else (measured <= limit if is_upper else measured >= limit)
        return {"what": what, "at_most" if is_upper else "at_least": limit, "measured": measured, "met": met}

    def median(run: Run) -> float | None:
        return statistics.median(taken[run].wall_s) if run in taken else None

    peaks = [t.peak_bytes for run, t in taken.items() if run.contender == "emulator"]
    return [
        target("values_512_s", 0.4, median(VALUES), True),
        target("checks_512_s", 1.5, median(CHECKS), True),
        target("checks_warp_serial_512_s", 1.5, median(CHECKS_WARP_SERIAL), True),
        target("numba_64_to_values_512", 1000.0, by.get("numba_64_to_values_512", {}).get("median"), False),
        target("triton_512_to_values_512", 1.0, by.get("triton_512_to_values_512", {}).get("median"), False),
        target("peak_bytes", RSS_LIMIT, max(peaks, default=None), True),
    ]


def record(taken: dict[Run, Taken], missing: dict[str, str], machine: dict[str, Any], date: str) -> dict[str, Any]:
    """The whole measurement, as it is written."""
    by = ratios(taken)
    tools = {name: v for t in taken.values() for name, v in t.versions.items()}
    return {
        "benchmark": "emulator_speed",
        "machine": machine,
        "tool": {
            "version": version("tilewright"),
            "python": platform.python_version(),
            **dict(sorted(tools.items())),
        },
        "date": date,
        "targets": targets(taken, by),
        "ratios": by,
        "runs": [entry(run, t) for run, t in taken.items()],
        "missing": missing,
    }


def entry(run: Run, taken: Taken) -> dict[str, Any]:
    times = spread(taken.wall_s)
    return {
        **run._asdict(),
        **times,
        "first_s": taken.first_s,
        "cpu_median_s": statistics.median(taken.cpu_s),
        "ns_per_multiply_add": times["median_s"] / run.multiply_adds * 1e9,
        "peak_bytes": taken.peak_bytes,
        "peak_bytes_before": taken.peak_bytes_before,
    }


class MissingError(Exception):
    """A contender's package is not installed."""


class Process:
    """A contender that waits for its turn."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.taken = Taken()
        command = [sys.executable, str(CONTENDERS / "child.py"), *map(str, run)]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        first = self._answer()
        if "missing" in first:
            self.close()
            raise MissingError(first["missing"])
        self.taken.first_s, self.taken.versions = first["first_s"], first["versions"]
        self.taken.peak_bytes_before = first["peak_bytes_before"]

    def turn(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write("run\n")
        self._child.stdin.flush()
        times = self._answer()
        self.taken.wall_s.append(times["wall_s"])
        self.taken.cpu_s.append(times["cpu_s"])

    def end(self) -> None:
        """
        Raises:
            SystemExit: what it computed is wrong: its times mean nothing.
        """
        assert self._child.stdin is not None
        self._child.stdin.close()
        last = self._answer()
        self.taken.peak_bytes = last["peak_bytes"]
        self.close()
        if last["fault"]:
            raise SystemExit(f"{self.run.label}: {last['fault']}")

    def close(self) -> None:
        for stream in (self._child.stdin, self._child.stdout):
            assert stream is not None
            stream.close()
        self._child.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise SystemExit(f"{self.run.label}: ended with {self._child.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def measure(group: Sequence[Run], rounds: int, budget_s: float, missing: dict[str, str]) -> dict[Run, Taken]:
    """Let the runs of a group take turns. ``missing`` gets the packages that are not there."""
    processes = []
    for run in group:
        try:
            processes.append(Process(run))
        except MissingError as error:
            name = str(error)
            missing[name] = INSTALL.get(name, f"pip install {name}")
            print(f"{run.label}: {name} is not installed; {missing[name]}", file=sys.stderr)
    waiting = list(processes)
    while waiting:
        for process in waiting:
            process.turn()
        waiting = [p for p in waiting if not is_enough(p.taken.wall_s, rounds, budget_s)]
    for process in processes:
        process.end()
        median = statistics.median(process.taken.wall_s)
        print(f"{process.run.label:45} {median:9.4f} s  {process.taken.peak_bytes >> 20:5} MiB", file=sys.stderr)
    return {p.run: p.taken for p in processes}


def one_core() -> dict[str, Any]:
    """Keep this process and its children to one core, and say what machine it is: no names of hosts."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[-1:])
    os.environ.update(ONE_THREAD)
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    blas = {name: os.environ[name] for name in ("OPENBLAS_CORETYPE",) if name in os.environ}
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(allowed),
        "cores_used": 1,
        "system": platform.system(),
        "load_before": os.getloadavg()[0],
        **blas,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "emulator-speed.json")
    parser.add_argument("--rounds", type=int, default=9, help="samples a run")
    parser.add_argument("--budget-s", type=float, default=45.0, help=f"after {FEWEST} samples: seconds a run may take")
    parser.add_argument("--compared", action="store_true", help="only the runs that are compared, at 64 and 512")
    options = parser.parse_args()
    if options.rounds < FEWEST:
        parser.error(f"--rounds: {FEWEST} at least")
    machine = one_core()
    chosen = groups()[:1] if options.compared else groups()
    examples = sorted({run.example for group in chosen for run in group})
    subprocess.run([sys.executable, str(CONTENDERS / "with_emulator.py"), *examples], check=True)
    taken: dict[Run, Taken] = {}
    missing: dict[str, str] = {}
    for group in chosen:
        taken |= measure(group, options.rounds, options.budget_s, missing)
    result = record(taken, missing, machine, datetime.now(UTC).isoformat(timespec="seconds"))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    for row in result["targets"]:
        print(json.dumps(row))
    for name, row in result["ratios"].items():
        print(f"{name:40} {row['median']:12.2f}  ({row['min']:.2f} to {row['max']:.2f})")
    print(options.out)


if __name__ == "__main__":
    main()
