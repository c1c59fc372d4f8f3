"""A GEMM in NumPy behind the Executor protocol, whole and with each of the faults that verification must find."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tilewright.launch.bind import BoundLaunch
from tilewright.launch.executor import Hazard, Program, RunResult

Arrays = dict[str, np.ndarray]


def program(fault: str = "") -> Program:
    """A program whose name says what is wrong with it."""
    return Program(cubin=b"", ptx="", kernel=fault, arch="sm_90")


@dataclass
class FakeExecutor:
    """Runs ``c = alpha * a @ b`` in float32, then what the program's fault does to it.

    ``runs`` counts the launches; ``error_at`` makes the run with that number fail, and every later one too;
    ``refuses_at`` makes that one run fail alone.
    """

    name: Literal["gpu", "emulator"] = "gpu"
    arch: str = "sm_90"
    error_at: int | None = None
    refuses_at: int | None = None
    runs: int = 0
    log: list[tuple[str, tuple[int, int, int], int]] = field(default_factory=list)

    @property
    def is_dead(self) -> bool:
        return self.error_at is not None and self.runs >= self.error_at

    def part_of(self, size_set: str) -> str:
        return "all"

    def run(self, program: Program, launch: BoundLaunch, arrays: Mapping[str, np.ndarray], **_: object) -> RunResult:
        self.runs += 1
        self.log.append((program.kernel, launch.grid, launch.shared_bytes))
        if self.is_dead:
            return RunResult({}, error="CUDA_ERROR_ILLEGAL_ADDRESS")
        if self.runs == self.refuses_at:
            return RunResult({}, error="CUDA_ERROR_INVALID_VALUE")
        after = {name: array.copy() for name, array in arrays.items()}
        m, n, k = (int(launch.scalars[name]) for name in "MNK")
        a = launch.view("a", arrays).astype(np.float32)
        b = launch.view("b", arrays).astype(np.float32)
        result = (np.float32(launch.scalars["alpha"]) * (a @ b)).astype(np.float32)
        c = after["c"].reshape(m, n)
        before = c.copy()
        c[...] = result
        hazards = FAULTS[program.kernel](self, after, c, before, (m, n, k))
        return RunResult(after, hazards)


def _none(_self: FakeExecutor, _after: Arrays, _c: np.ndarray, _before: np.ndarray, _sizes: object) -> tuple[()]:
    return ()


def _skip_epilogue_tile(
    self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object
) -> tuple[()]:
    """The last K-tile is never computed."""
    m, n, k = sizes  # type: ignore[misc]
    last = max(0, (k - 1) // 4 * 4)
    a, b = after["a"].reshape(m, k)[:, :last], after["b"].reshape(k, n)[:last]
    c[...] = (np.float32(0.5) * (a.astype(np.float32) @ b.astype(np.float32))).astype(np.float32)
    return ()


def _unwritten_row(self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object) -> tuple[()]:
    c[-1] = before[-1]
    return ()


def _input_modified(self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object) -> tuple[()]:
    if after["b"].size:
        after["b"][-1] += 1
    return ()


def _one_ulp(self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object) -> tuple[()]:
    c[0, 0] = np.nextafter(c[0, 0], np.float32(np.inf))
    return ()


def _negative_zero(self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object) -> tuple[()]:
    c[c == 0] = np.float32(-0.0)
    return ()


def _nan(self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object) -> tuple[()]:
    c[0, 0] = np.nan
    return ()


def _nan_payload(self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object) -> tuple[()]:
    c.view(np.uint32)[0, 0] = 0x7FC00001
    return ()


def _out_of_bounds(
    self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object
) -> tuple[Hazard]:
    return (Hazard("out_of_bounds_write", None, "4 bytes after the end of 'c' were written"),)


def _race(self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object) -> tuple[()]:
    c[0, 0] += self.runs % 2 == 0
    return ()


def _float_atomics(self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object) -> tuple[()]:
    c *= np.float32(1 + 2.0**-22 * (self.runs % 3))
    return ()


def _slightly_wrong(self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object) -> tuple[()]:
    _float_atomics(self, after, c, before, sizes)
    c[0] *= np.float32(1.01)
    return ()


def _accumulates(self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object) -> tuple[()]:
    """beta * C with beta = 1: the output is read."""
    c += np.where(np.isnan(before), np.float32(7), before)
    return ()


def _upper_triangle(self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object) -> tuple[()]:
    lower = np.tril(np.ones(c.shape, bool), -1)
    c[lower] = before[lower]
    return ()


def _triangle_and_more(
    self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object
) -> tuple[()]:
    _upper_triangle(self, after, c, before, sizes)
    c[-1, 0] = 3
    return ()


def _k0_stray(
    self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object
) -> tuple[Hazard, ...]:
    return _out_of_bounds(self, after, c, before, sizes) if sizes[2] == 0 else ()  # type: ignore[index]


def _does_nothing(self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object) -> tuple[()]:
    c[...] = before
    return ()


def _does_nothing_at_k0(
    self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object
) -> tuple[()]:
    return _does_nothing(self, after, c, before, sizes) if sizes[2] == 0 else ()  # type: ignore[index]


def _all_nan(self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object) -> tuple[()]:
    c[...] = np.nan
    return ()


def _nan_at_k0(self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object) -> tuple[()]:
    return _all_nan(self, after, c, before, sizes) if sizes[2] == 0 else ()  # type: ignore[index]


def _wrong_second_time(
    self: FakeExecutor, after: Arrays, c: np.ndarray, before: np.ndarray, sizes: object
) -> tuple[()]:
    """As a race does it: right in the first run, far off in the second."""
    _float_atomics(self, after, c, before, sizes)
    if self.runs % 2 == 0:
        c[0] += 3
    return ()


FAULTS: Mapping[str, Callable[..., tuple[Hazard, ...]]] = {
    "": _none,
    "skip_epilogue_tile": _skip_epilogue_tile,
    "unwritten_row": _unwritten_row,
    "input_modified": _input_modified,
    "one_ulp": _one_ulp,
    "negative_zero": _negative_zero,
    "nan": _nan,
    "nan_payload": _nan_payload,
    "out_of_bounds": _out_of_bounds,
    "race": _race,
    "float_atomics": _float_atomics,
    "slightly_wrong": _slightly_wrong,
    "accumulates": _accumulates,
    "upper_triangle": _upper_triangle,
    "triangle_and_more": _triangle_and_more,
    "k0_stray": _k0_stray,
    "does_nothing": _does_nothing,
    "does_nothing_at_k0": _does_nothing_at_k0,
    "all_nan": _all_nan,
    "nan_at_k0": _nan_at_k0,
    "wrong_second_time": _wrong_second_time,
}
