"""`tilewright prove`: the overlap proof of a cubin, or of a source that is compiled first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright import __version__
from tilewright.errors import EXIT_CHECK_FAILED, EXIT_OK, EXIT_REFUSED, TilewrightError
from tilewright.gpu.device import find_gpu
from tilewright.receipt import evidence, record
from tilewright.receipt.reports import ProvenKernel, ProveReport
from tilewright.settings import Settings
from tilewright.workflow.reading import read_file, sidecar_for, target_for

if TYPE_CHECKING:
    from tilewright.sass.listing import Function


@dataclass(frozen=True)
class ProveOutcome:
    """Exit code 0: every kernel overlaps; 1: one does not; 4: one is not understood."""

    report: ProveReport
    exit_code: int


def prove(
    path: Path,
    *,
    kernel: str | None = None,
    arch: str | None = None,
    settings: Settings,
    progress: Callable[[str], None] | None = None,
) -> ProveOutcome:
    """Disassemble and judge; see :mod:`tilewright.sass.proof`.

    Raises:
        TilewrightError: no such file or kernel, neither cubin nor CUDA, a corrupt cubin, no disassembler.
    """
    raw = read_file(path)
    report = (
        _of_cubin(raw, path, kernel, settings)
        if raw[:4] == b"\x7fELF"
        else _of_source(raw, path, kernel, arch, settings)
    )
    verdicts = [k.proof.verdict for k in report.kernels]
    code = EXIT_OK
    if "unknown" in verdicts:
        code = EXIT_REFUSED
    if "no_overlap" in verdicts:
        code = EXIT_CHECK_FAILED
    return ProveOutcome(report, code)


def _of_cubin(raw: bytes, path: Path, kernel: str | None, settings: Settings) -> ProveReport:
    from tilewright.sass.listing import disassemble
    from tilewright.sass.proof import prove as judge
    from tilewright.workflow.records import proof_record

    listing = disassemble(raw, settings)
    functions = _named(listing.functions, kernel)
    if not functions:
        have = ", ".join(f.name for f in listing.functions) or "none"
        raise TilewrightError(
            "sass/unknown_kernel", f"The cubin holds no kernel {kernel!r}; it holds {have}.", {"file": str(path)}
        )
    kernels = tuple(
        ProvenKernel(f.name, proof_record(judge(f), None), evidence.Resources(registers=f.registers)) for f in functions
    )
    return ProveReport(
        tool=record.Tool(__version__, disassembler="nvdisasm"),
        file=str(path),
        arch=functions[0].arch,
        arch_reason="the cubin's",
        kernels=kernels,
    )


def _named(functions: tuple[Function, ...], kernel: str | None) -> list[Function]:
    """The kernel of exactly that name, else those whose mangled name holds it as a whole word of its own length."""
    exact = [f for f in functions if kernel is None or f.name == kernel]
    if exact or kernel is None:
        return exact
    return [f for f in functions if f.name.startswith("_Z") and f"{len(kernel)}{kernel}" in f.name]


def _of_source(raw: bytes, path: Path, kernel: str | None, arch: str | None, settings: Settings) -> ProveReport:
    from tilewright.workflow.opening import open_file
    from tilewright.workflow.records import proof_record, resources_record
    from tilewright.workflow.variants import proof_of

    spec = sidecar_for(path, None, kernel)
    gpu = find_gpu()
    target = target_for(arch, spec, gpu.arch if gpu is not None else None)
    opened = open_file(raw, path, kernel, spec, target.arch, settings, True)
    proof = proof_record(proof_of(opened.baseline, opened.compiler), None)
    proven = ProvenKernel(opened.function.name, proof, resources_record(opened.baseline, 0))
    return ProveReport(
        tool=record.Tool(__version__, opened.baseline.toolchain, "nvdisasm"),
        file=str(path),
        arch=target.arch,
        arch_reason=target.reason,
        kernels=(proven,),
    )
