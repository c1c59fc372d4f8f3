"""`tilewright tile`: card, candidates and choice; compiled where asked for; the skeleton and the plan, written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright import __version__
from tilewright.arch.arch import default_arch, load_arch
from tilewright.arch.devices import Device, devices_called, find_device, known_devices
from tilewright.errors import EXIT_OK, EXIT_REFUSED, TilewrightError
from tilewright.gpu.device import find_gpu
from tilewright.receipt.record import Tool
from tilewright.receipt.tile_report import TileReport
from tilewright.settings import Settings
from tilewright.tile.choice import heads
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Target, request
from tilewright.tile.parameters import load_parameters
from tilewright.workflow.tile_files import write_tile
from tilewright.workflow.tile_skeletons import skeleton_of

if TYPE_CHECKING:  # what evaluates the model needs NumPy, which the other verbs may do without
    from tilewright.tile.ranges import RangeChoice
    from tilewright.tile.selection import Selection

CALIBRATED_ON = "NVIDIA H200"


@dataclass(frozen=True)
class TileOutcome:
    """Exit code 0: something was chosen, and written as a kernel; 4: chosen, but there is no such kernel here."""

    report: TileReport
    exit_code: int


def tile(
    op: str,
    dims: Sequence[str],
    *,
    dtype: str | None = None,
    device: str | None = None,
    arch: str | None = None,
    target: Target = "cuda",
    top: int = 12,
    compiles: bool = False,
    out: Path | None = None,
    settings: Settings,
    progress: Callable[[str], None] | None = None,
) -> TileOutcome:
    """Candidates, choice, partition, skeleton and tuning plan of an op.

    Args:
        dims: ``M=4096``; one may be a range, ``M=1..4096``.
        compiles: compile the first ``top`` candidates, and choose among them by what ptxas gave; not Triton's.
        out: a folder for the skeleton, its sidecar and the plan.

    Raises:
        TilewrightError: an unknown op, dim, element type, card or architecture; nothing fits.
    """
    from tilewright.tile.autotune import tuning_plan
    from tilewright.tile.ranges import choices_by_range
    from tilewright.tile.selection import select
    from tilewright.workflow.tile_compiled import compiled

    if top < 1:
        raise TilewrightError("tile/bad_top", f"A table of {top} candidates is none.", {"top": top}, "Write --top 1.")
    say = progress or (lambda step: None)
    asked = request(op, tuple(dims), dtype)
    card, reason = card_for(device, arch)
    machine, cost = Machine(load_arch(card.arch), card), load_parameters()
    say("timing the legal space")
    found = select(asked.op, machine, cost, target)
    notes = _model_notes(found, card, target)
    if compiles and target == "cuda":
        found = compiled(found, machine, cost, top, settings, say)
    elif compiles:
        notes = (*notes, "Not compiled: Triton's registers and spills are not asked for here.")
    ranges: tuple[RangeChoice, ...] = ()
    if asked.dynamic is not None:
        say("walking the range")
        ranges = choices_by_range(asked.op, asked.dynamic, machine, cost, target)
    plan = tuning_plan(found.op, found.candidates, machine, target)
    report = TileReport(
        tool=Tool(__version__),
        op=asked.op.name,
        dims=plan.dims,
        dynamic=asked.dynamic.dim if asked.dynamic is not None else "",
        dtype=asked.op.dtype,
        target=target,
        arch=machine.arch.name,
        device=card.name,
        device_reason=reason,
        smem_max_bytes=machine.arch.smem_optin_max_bytes,
        legal=len(found.candidates),
        calibrated=found.calibrated and card.name == CALIBRATED_ON,
        candidates=heads(found.candidates, top),
        choice=found.choice,
        partition=found.partition,
        advice=found.advice,
        rules=found.rules,
        ranges=ranges,
        skeleton=skeleton_of(found.op, found.choice.candidate, machine, target),
        plan=plan,
        notes=notes,
    )
    exit_code = EXIT_REFUSED if report.skeleton.refusal else EXIT_OK
    return TileOutcome(write_tile(report, out) if out is not None else report, exit_code)


def card_for(device: str | None, arch: str | None) -> tuple[Device, str]:
    """``--device``, else the GPU of this machine, else the first card of ``--arch`` (sm_86), and why it.

    Raises:
        TilewrightError: ``tile/unknown_device``, ``arch/unknown``, ``tile/device_arch``.
    """
    known = known_devices()
    if device is not None:
        found = _called(device)
        if arch is not None and load_arch(arch).name != found.arch:
            raise TilewrightError(
                "tile/device_arch",
                f"{found.name} is {found.arch}, not {load_arch(arch).name}.",
                {"device": found.name, "arch": arch},
                "Leave out one of --device and --arch.",
            )
        return found, "as asked with --device"
    gpu = find_gpu() if arch is None else None
    here = find_device(gpu.name, gpu.sms, gpu.memory_bytes) if gpu is not None else None
    if here is not None:
        return here, "this machine's GPU"
    name = load_arch(arch or (gpu.arch if gpu is not None else default_arch())).name
    of_arch = [d for d in known if d.arch == name]
    if not of_arch:
        raise TilewrightError(
            "tile/unknown_device",
            f"There is no card of {name} in Tilewright's tables.",
            {"arch": name, "known": [d.name for d in known]},
            f"Name one with --device: {', '.join(d.name for d in known)}.",
        )
    why = "" if arch is not None else f": {gpu.name} is not in them" if gpu is not None else ": no --device, no GPU"
    return of_arch[0], f"the first card of {name} in the tables{why}"


def _called(text: str) -> Device:
    """The one card of that name: ``4090``, ``a100 sxm4 80``."""
    found = devices_called(text)
    if len(found) == 1:
        return found[0]
    names = [d.name for d in found or known_devices()]
    what = f"'{text}' may be one of {len(found)} cards" if found else f"There is no card '{text}'"
    raise TilewrightError(
        "tile/unknown_device",
        f"{what} in Tilewright's tables.",
        {"device": text, "known": names},
        f"Name one: {', '.join(names)}.",
    )


def _model_notes(found: Selection, card: Device, target: Target) -> tuple[str, ...]:
    notes: list[str] = []
    if not found.calibrated:
        notes.append("The times of this kind of op are from first principles, not calibrated: the order counts.")
    elif card.name != CALIBRATED_ON:
        notes.append(
            f"The model was calibrated on an {CALIBRATED_ON}; for {card.name} its rates are scaled from the tables."
        )
    if target == "triton":
        notes.append("The times are those of the CUDA skeleton of the same tile; Triton lays out its warps itself.")
    return tuple(notes)
