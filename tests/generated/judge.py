"""Runs the whole job on a random kernel and holds what it offers against the kernel itself, at other sizes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from choices import Choices, draw
from render import Kernel, sizes_of

import tilewright
from tilewright.errors import TilewrightError
from tilewright.settings import Settings


@dataclass(frozen=True)
class Judged:
    """What became of one kernel.

    Attributes:
        baseline: ``passed`` where the kernel itself runs without hazards: only then does the rest count.
        offered: labels of the variants that were accepted. wrong: those that differ from the kernel at fresh sizes.
        refused: code and message of the whole kernel's refusal, or of its variants'.
        failed: variants that were made and did not pass their own verification: not offered, a fault all the same.
    """

    seed: int
    choices: str
    trap: str
    baseline: str
    offered: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    error: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        return asdict(self)


def judge(
    seed: int, folder: Path, settings: Settings, *, trap: bool = False, arch: str = "sm_86", names: tuple[str, ...] = ()
) -> Judged:
    """Generate the kernel of a seed, run ``pipeline``, and verify every accepted variant at other sizes.

    Args:
        folder: an empty one, for sources and sidecars. names: only these variants; all by default.
    """
    choices = draw(seed, trap)
    start = Judged(seed, choices.text(), choices.trap, "not_run")
    path = folder / f"gemm_{seed}.cu"
    writer = Kernel(choices)
    path.write_text(writer.text(), "utf-8")
    path.with_suffix(".toml").write_text(writer.sidecar(sizes_of(choices)), "utf-8")
    try:
        outcome = tilewright.pipeline(
            path, arch=arch, stages=(2, 3), variants=names or None, settings=settings, run=True
        )
    except TilewrightError as error:
        return Judged(seed, choices.text(), choices.trap, "error", error=f"{error.code}: {error.message} {error.facts}")
    receipt = outcome.receipt
    offered = [v for v in receipt.variants if v.status == "accepted"]
    refusals = (
        [f"{receipt.refusal.code}: {receipt.refusal.message} (line {receipt.refusal.line})"] if receipt.refusal else []
    )
    refusals += [f"{v.name} {v.stages}: {v.refusal.code}: {v.refusal.message}" for v in receipt.variants if v.refusal]
    failed = [f"{v.name} {v.stages}: {v.verify.reason}" for v in receipt.variants if v.status == "failed"]
    wrong = [
        f"{v.name} {v.stages}: {why}" for v in offered if (why := _fresh(v, path, choices, writer, arch, settings))
    ]
    return Judged(
        start.seed, start.choices, start.trap, receipt.baseline.verify.verdict,
        tuple(f"{v.name} {v.stages}" for v in offered), tuple(wrong), tuple(failed), tuple(refusals),
    )  # fmt: skip


def _fresh(variant: Any, path: Path, choices: Choices, writer: Kernel, arch: str, settings: Settings) -> str:
    """Why a variant is wrong at sizes that its rewrite was not verified at; "" where it is right."""
    spec = path.with_name(f"fresh_{path.stem}.toml")
    spec.write_text(writer.sidecar(sizes_of(choices, fresh=True)), "utf-8")
    candidate = path.with_name(f"{path.stem}_{variant.name}_{variant.stages}.cu")
    candidate.write_text(variant.source, "utf-8")
    shared = variant.launch.shared_bytes if variant.launch is not None else None
    result = tilewright.verify(
        candidate, against=path, spec=spec, arch=arch, shared_bytes=shared, settings=settings, use_cache=True
    )
    return "" if result.exit_code == 0 else str(result.report)[:600]
