"""Runs the whole job on a kernel and holds what it offers against the kernel itself, at other sizes."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from choices import draw
from mutations import mutant
from render import Kernel
from render_sidecar import sidecar, sizes_of

import tilewright
from tilewright.build.artifact import Artifact
from tilewright.emulator.executor import EmulatorExecutor
from tilewright.emulator.options import EmulatorOptions
from tilewright.errors import TilewrightError
from tilewright.launch.bind import LaunchChange
from tilewright.launch.executor import Program
from tilewright.launch.sidecar import load_sidecar
from tilewright.receipt.record import variant_label
from tilewright.settings import Settings
from tilewright.verification.baseline import baseline_runs
from tilewright.verification.variant import verify
from tilewright.workflow.opening import Opened, open_file
from tilewright.workflow.studying import study

_MAX_SECONDS = 120.0  # of one run in the emulator: a mutant's loop may not end


@dataclass(frozen=True)
class Judged:
    """What became of one kernel.

    Attributes:
        choices: what it is made of. trap: what must keep every rewrite of it from being offered, or "".
        baseline: ``passed`` where the kernel itself runs without hazards: only then does the rest count.
        offered: labels of the variants that were accepted. wrong: those that differ from the kernel at fresh sizes.
        unjudged: accepted, but the kernel itself fails at the fresh sizes, and why.
        refused: code and message of the whole kernel's refusal, or of its variants'.
        failed: variants that were made and did not pass their own verification: not offered, a fault all the same.
    """

    seed: int
    choices: str
    trap: str
    baseline: str
    offered: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    unjudged: str = ""
    failed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    error: str = ""

    @property
    def rash(self) -> tuple[str, ...]:
        """What was offered in spite of the trap. What an earlier tile left in *one* buffer stays there for a rewrite
        that keeps one buffer, so that one may be offered, and is held against the kernel as any other is.
        """
        single = "ldg_single" if self.trap == "stale_fill" else None
        return tuple(x for x in self.offered if self.trap and x.split()[0] != single)

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "rash": self.rash}


@dataclass(frozen=True)
class Asked:
    """What is asked of ``pipeline``.

    Attributes:
        names: only these variants; all by default. stages: of rings.
    """

    settings: Settings
    arch: str = "sm_86"
    names: tuple[str, ...] = ()
    stages: tuple[int, ...] = (2, 3)


def judge(seed: int, folder: Path, asked: Asked, *, trap: bool = False) -> Judged:
    """Generate the kernel of a seed, run ``pipeline``, and verify every accepted variant at other sizes.

    Args:
        folder: an empty one, for sources and sidecars.
    """
    choices = draw(seed, trap)
    path = folder / f"gemm_{seed}.cu"
    path.write_text(Kernel(choices).text(), "utf-8")
    path.with_suffix(".toml").write_text(sidecar(choices, sizes_of(choices)), "utf-8")
    fresh = path.with_name(f"fresh_{path.stem}.toml")
    fresh.write_text(sidecar(choices, sizes_of(choices, fresh=True)), "utf-8")
    return _judge_file(Judged(seed, choices.text(), choices.trap, "not_run"), path, fresh, asked)


def judge_mutant(seed: int, folder: Path, asked: Asked) -> Judged:
    """The same for an example with a small random edit: what it computes now is what has to be kept."""
    made = mutant(seed)
    path = folder / f"{made.example}.cu"
    path.write_text(made.text, "utf-8")
    path.with_suffix(".toml").write_text(made.sidecar, "utf-8")
    fresh = path.with_name(f"fresh_{path.stem}.toml")
    fresh.write_text(made.fresh, "utf-8")
    return _judge_file(Judged(seed, f"{made.example}: {made.what}", "", "not_run"), path, fresh, asked)


def _judge_file(start: Judged, path: Path, fresh: Path, asked: Asked) -> Judged:
    names = asked.names or None
    try:
        outcome = tilewright.pipeline(
            path, arch=asked.arch, stages=asked.stages, variants=names, settings=asked.settings, run=True
        )
    except TilewrightError as error:
        return replace(start, baseline="error", error=f"{error.code}: {error.message} {error.facts}")
    receipt = outcome.receipt
    offered = [v for v in receipt.variants if v.status == "accepted"]
    refusals = (
        [f"{receipt.refusal.code}: {receipt.refusal.message} (line {receipt.refusal.line})"] if receipt.refusal else []
    )
    refusals += [f"{v.name} {v.stages}: {v.refusal.code}: {v.refusal.message}" for v in receipt.variants if v.refusal]
    wrong, unjudged = _fresh(offered, path, fresh, asked) if offered else ((), "")
    return replace(
        start,
        baseline=receipt.baseline.verify.verdict,
        offered=tuple(f"{v.name} {v.stages}" for v in offered),
        wrong=wrong,
        unjudged=unjudged,
        failed=tuple(f"{v.name} {v.stages}: {v.verify.reason}" for v in receipt.variants if v.status == "failed"),
        refused=tuple(refusals),
    )


def _fresh(variants: list[Any], path: Path, other: Path, asked: Asked) -> tuple[tuple[str, ...], str]:
    """What is wrong with variants at sizes that they were not verified at; and why that cannot be told."""
    spec, arch, settings = load_sidecar(other), asked.arch, asked.settings
    executor = EmulatorExecutor(arch, EmulatorOptions(max_seconds=_MAX_SECONDS), path.name)
    opened = open_file(path.read_bytes(), path, None, spec, arch, settings, True)
    constants = opened.kernel.constants.names()
    kept = baseline_runs(_program(opened.baseline), spec, constants, executor, secrets.randbits(32))
    if kept.verification.verdict != "passed":
        return (), kept.verification.reason
    wrong: list[str] = []
    changes = (
        _changes(opened, asked) if any(v.launch.extra_args or v.launch.changed_constants for v in variants) else {}
    )
    for v in variants:
        built = opened.compiler.build(v.source)
        assert isinstance(built, Artifact), built
        seen = verify(kept, _program(built), changes.get(v.label) or LaunchChange(v.launch.changed_bytes), executor)
        if seen.verdict != "passed" or seen.hazards:
            wrong.append(f"{v.name} {v.stages}: {seen.verdict}: {seen.reason} {seen.hazards[:1]}"[:600])
    return tuple(wrong), ""


def _program(built: Artifact) -> Program:
    return Program(built.cubin, built.ptx, built.kernel, built.arch)


def _changes(opened: Opened, asked: Asked) -> dict[str, LaunchChange]:
    """What variants change of their launch: a receipt tells it to people, by declarations."""
    made = study(opened, asked.stages, asked.names or None, lambda _: None)
    return {variant_label(v.name, v.stages): v.change for v in made.variants if v.refusal is None}
