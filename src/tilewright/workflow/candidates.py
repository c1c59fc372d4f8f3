"""The kernels that `tilewright verify` runs: the one in question, and the baseline that it is held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.errors import EXIT_BAD_INPUT, TilewrightError
from tilewright.launch.executor import Program
from tilewright.launch.spec import LaunchSpec
from tilewright.receipt import record
from tilewright.settings import Settings
from tilewright.workflow.reading import Target, read_file, sidecar_for, target_for

if TYPE_CHECKING:
    from tilewright.verification.mutation import ProgramMutant


@dataclass(frozen=True)
class Candidate:
    """A kernel that can be run.

    Attributes:
        spec: the sidecar that says how. constants: of its file.
        mutants: makes its broken twins.
        extra_sets: sizes for its K-loop's trip counts, where it has one; reduction: what the loop runs over.
    """

    kernel: record.Kernel
    program: Program
    spec: LaunchSpec
    constants: Mapping[str, int | float]
    compiler: str
    mutants: Callable[[], tuple[ProgramMutant, ...]]
    reduction: str | None = None
    extra_sets: Mapping[str, Mapping[str, int]] | None = None


@dataclass(frozen=True)
class Request:
    """What was asked for; see ``workflow.verify``."""

    path: Path
    against: Path | None
    kernel: str | None
    arch: str | None
    spec: Path | None
    shared_bytes: int | None
    settings: Settings
    use_cache: bool

    def open(self) -> tuple[Target, Candidate, Candidate | None]:
        """The target, the kernel in question, and the baseline it is held against."""
        _check_shared_bytes(self.shared_bytes, self.against)
        if self.against is None:
            sidecar = sidecar_for(self.path, self.spec, self.kernel)
            if sidecar is None:
                raise _no_sidecar(self.path)
            target = target_for(self.arch, sidecar, None)
            return target, self._candidate(self.path, self.kernel, sidecar, target), None
        sidecar = sidecar_for(self.against, self.spec, None)
        if sidecar is None:
            raise _no_sidecar(self.against)
        target = target_for(self.arch, sidecar, None)
        baseline = self._candidate(self.against, None, sidecar, target)
        # A baseline of the other language says nothing of this launch.
        needs_own = (self.path.suffix == ".py") != (sidecar.triton is not None)
        own = sidecar_for(self.path, None, self.kernel) if self.spec is None or needs_own else None
        if own is None and needs_own:
            raise _no_sidecar(self.path)
        name = self.kernel if own is not None else self.kernel or _kernel_of(self.path, sidecar.kernel)
        candidate = self._candidate(self.path, name, own or sidecar, target)
        _check_arguments(candidate.spec, sidecar)
        return target, candidate, baseline

    def _candidate(self, path: Path, kernel: str | None, spec: LaunchSpec, target: Target) -> Candidate:
        if path.suffix == ".py":
            return self._triton_candidate(path, replace(spec, kernel=kernel or spec.kernel), target)
        if spec.triton is not None:
            raise spec.error(("triton",), "bad_value", f"[triton] is for a Python file, and {path.name} is CUDA.")
        from tilewright.kloop.kernel import Refusal
        from tilewright.workflow.mutating import all_mutants
        from tilewright.workflow.opening import open_file
        from tilewright.workflow.trip_sets import trip_sets
        from tilewright.workflow.understanding import understand

        raw = read_file(path)
        opened = open_file(raw, path, kernel, spec, target.arch, self.settings, self.use_cache)
        constants = opened.kernel.constants.names()
        tiled = understand(opened.kernel, opened.block, opened.shared_bytes, opened.no_alias)
        reduction, extra = (None, {}) if isinstance(tiled, Refusal) else trip_sets(tiled, spec, constants, (2, 3, 4))
        built = opened.baseline
        program = Program(built.cubin, built.ptx, built.kernel, built.arch)
        return Candidate(
            record.Kernel(str(path), opened.function.qualified, opened.function.line),
            program,
            spec,
            constants,
            built.toolchain or "",
            lambda: all_mutants(raw.decode(), program, opened.compiler),
            reduction,
            extra,
        )

    def _triton_candidate(self, path: Path, spec: LaunchSpec, target: Target) -> Candidate:
        from tilewright.triton.build import build_triton
        from tilewright.verification.mutation import ptx_programs

        made = build_triton(path, spec, target.arch, self.settings, use_cache=self.use_cache)
        kernel = record.Kernel(str(path), spec.kernel, made.line)
        program = made.program
        return Candidate(kernel, program, made.spec, made.constants, made.toolchain, lambda: ptx_programs(program))


def _check_shared_bytes(shared_bytes: int | None, against: Path | None) -> None:
    if shared_bytes is None or (shared_bytes >= 0 and against is not None):
        return
    message = (
        f"{shared_bytes} bytes of shared memory cannot be asked for."
        if shared_bytes < 0
        else "--shared-bytes is for a candidate that is launched by its baseline's sidecar."
    )
    hint = "Without --against, the sidecar says it: [launch] shared_bytes."
    raise TilewrightError("verify/shared_bytes", message, hint=hint, exit_code=EXIT_BAD_INPUT)


def _no_sidecar(path: Path) -> TilewrightError:
    read_file(path)  # a file that is not there is the greater news
    return TilewrightError(
        "verify/no_sidecar",
        "Nothing says how the kernel is launched.",
        {"file": str(path), "need": f"{path.stem}.toml beside it, or --spec"},
        f"`tilewright init {path}` drafts one; examples/igemm_wmma.toml is one that is complete.",
        EXIT_BAD_INPUT,
    )


def _kernel_of(path: Path, name: str) -> str | None:
    """The kernel of the baseline's name, where the candidate has it; else its only one decides."""
    if path.suffix == ".py":
        return name
    from tilewright.source.reader import read_source

    found = [k.name for k in read_source(read_file(path), str(path)).kernels]
    return name if name in found or len(found) != 1 else found[0]


def _check_arguments(candidate: LaunchSpec, baseline: LaunchSpec) -> None:
    """The same arrays, by name, element type and role: the candidate gets the baseline's inputs."""
    need = {arg.name: f"{arg.dtype.name} {arg.role}" for arg in baseline.args if arg.is_pointer}
    have = {arg.name: f"{arg.dtype.name} {arg.role}" for arg in candidate.args if arg.is_pointer}
    if need != have:
        names = sorted(name for name in {**need, **have} if need.get(name) != have.get(name))
        odd = "; ".join(f"'{name}' is {have.get(name, 'missing')}, not {need.get(name, 'there')}" for name in names)
        message = f"the candidate's arrays must be the baseline's, and {odd}."
        raise candidate.error(("args",), "other_arguments", message)
