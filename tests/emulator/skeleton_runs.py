"""Compiles a skeleton, runs its passes in the emulator, and says what is wrong with what came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tilewright.build.artifact import Artifact, BuildRequest
from tilewright.build.build import build
from tilewright.emulator.executor import EmulatorExecutor
from tilewright.emulator.options import EmulatorOptions
from tilewright.emulator.run import Emulation
from tilewright.launch.bind import bind
from tilewright.launch.executor import Program, RunResult
from tilewright.launch.sidecar import parse_sidecar
from tilewright.settings import Settings
from tilewright.skeleton.skeleton import Skeleton

FILE = "skeleton.cu"
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Done:
    """What the passes left behind, and the emulation of the last one."""

    arrays: dict[str, np.ndarray]
    emulations: tuple[Emulation, ...]
    problems: tuple[str, ...]

    @property
    def conflicts(self) -> int:
        """Shared-memory wavefronts beyond the ideal ones, of all passes."""
        lines = [line for e in self.emulations if e.counters for line in e.counters.lines.values()]
        return sum(line.wavefronts - line.ideal_wavefronts for line in lines)


def edited(skeleton: Skeleton, *edits: tuple[str, str]) -> Skeleton:
    """With other words in its text; each stands there once."""
    text = skeleton.text
    for old, new in edits:
        assert text.count(old) == 1, (text.count(old), old)
        text = text.replace(old, new)
    return replace(skeleton, text=text)


def compiled(skeleton: Skeleton, kernel: str, arch: str) -> Artifact:
    """The skeleton compiles, without a warning."""
    made = build(BuildRequest(skeleton.text, FILE, arch, kernel), Settings.from_environment())
    assert isinstance(made, Artifact), made.message
    return made


def run(
    skeleton: Skeleton, arch: str, sizes: Mapping[str, int], inputs: Arrays, outputs: Sequence[str], attempt: int = 0
) -> Done:
    """All passes. Outputs are poisoned: what nothing writes stays so.

    Args:
        inputs: flat or shaped, by argument.
        outputs: of the last pass: each is to be written once, element for element.
    """
    arrays = dict(inputs)
    launches = [(skeleton.kernel, skeleton.sidecar)]
    if skeleton.second is not None:
        launches.append((skeleton.second.kernel, skeleton.second.sidecar))
    emulations: list[Emulation] = []
    problems: list[str] = []
    for kernel, sidecar in launches:
        made = compiled(skeleton, kernel, arch)
        launch = bind(parse_sidecar(sidecar, Path("skeleton.toml")), sizes, skeleton.constants)
        given = {b.name: arrays[b.name].reshape(-1) if b.name in arrays else poison(b) for b in launch.buffers}
        program = Program(made.cubin, made.ptx, made.kernel, arch)
        executor = EmulatorExecutor(arch, EmulatorOptions(counters=True), FILE)
        result, emulation = executor.run_counted(program, launch, given, attempt=attempt)
        problems += problems_of(result)
        if emulation is None or result.error:
            break
        emulations.append(emulation)
        written = [b.name for b in launch.buffers if b.role == "out"]
        problems += coverage(emulation, [result.arrays[name] for name in written])
        arrays |= {name: result.arrays[name] for name in written}
    return Done({n: arrays[n] for n in outputs if n in arrays}, tuple(emulations), tuple(problems))


def problems_of(result: RunResult) -> list[str]:
    return ([result.error] if result.error else []) + [hazard.message for hazard in result.hazards]


def poison(array: object) -> np.ndarray:
    """Values that no skeleton computes."""
    dtype = array.dtype.numpy()  # type: ignore[attr-defined]
    count = array.storage_elements  # type: ignore[attr-defined]
    return np.full(count, -123457 if np.issubdtype(dtype, np.integer) else np.nan, dtype)


def coverage(emulation: Emulation, outputs: Sequence[np.ndarray]) -> list[str]:
    """Every element was written: none is poison. And none twice: no more bytes were written than there are."""
    found = [f"{count} elements were not written" for output in outputs if (count := untouched(output))]
    size = sum(output.nbytes for output in outputs)
    assert emulation.counters is not None
    written = emulation.counters.global_bytes_written
    return found + ([f"{written} bytes were written of {size}"] if written != size else [])


def untouched(output: np.ndarray) -> int:
    values = output.astype(np.float64)
    return int(np.isnan(values).sum() + (values == -123457).sum())
