"""`tilewright pipeline`: the whole job, one receipt."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright import __version__
from tilewright.build.cache import Cache
from tilewright.build.nvrtc import toolchain
from tilewright.errors import EXIT_CHECK_FAILED, EXIT_OK, EXIT_REFUSED
from tilewright.gpu.device import GpuInfo, find_gpu
from tilewright.launch.spec import LaunchSpec
from tilewright.receipt import record
from tilewright.receipt.checklist import build_checklist
from tilewright.receipt.write import sources_of, write_out
from tilewright.settings import Settings
from tilewright.workflow.attribution import PIPELINED, attribute
from tilewright.workflow.deciding import decision_for
from tilewright.workflow.draft.result import Draft
from tilewright.workflow.drafting import (
    draft_misfit,
    draft_notes,
    draft_or_none,
    guesses_of,
    save,
    sidecar_path,
    spec_of,
)
from tilewright.workflow.reading import (
    Target,
    code_fingerprint,
    headers_digest,
    includes_of,
    read_file,
    sidecar_for,
    target_for,
)
from tilewright.workflow.running import Ran, early_label, is_emulated, run_all, waited_label, widened_label
from tilewright.workflow.study import StudiedVariant, Study

Progress = Callable[[str], None]
FORMAT = 2


@dataclass(frozen=True)
class PipelineOutcome:
    """What one run of the main job yields.

    Attributes:
        sources: file name → text of every generated source and diff.
        exit_code: as DESIGN.md's table.
        hung: a kernel never came back; leave the process without waiting for the GPU.
    """

    receipt: record.Receipt
    sources: Mapping[str, str]
    exit_code: int
    hung: bool = False


def pipeline(
    path: Path,
    *,
    kernel: str | None = None,
    arch: str | None = None,
    spec: Path | None = None,
    stages: tuple[int, ...] = (2, 3, 4),
    variants: tuple[str, ...] | None = None,
    out: Path | None = None,
    settings: Settings,
    use_cache: bool = True,
    run: bool = True,
    progress: Progress | None = None,
    save_draft: bool = False,
) -> PipelineOutcome:
    """Decide, rewrite, verify, time and prove.

    Args:
        path: a CUDA source. kernel: which ``__global__`` function, where it has several.
        arch: target; the GPU's by default, else the sidecar's, else sm_86.
        spec: the sidecar; by default the one beside ``path``.
        stages: rings of cp_async, bulk and tma. variants: only these; None for all.
        out: folder for sources, diffs and ``receipt.json``; None writes nothing.
        run: False leaves a GPU alone, and drafts no sidecar.
        save_draft: keep a sidecar that was drafted, beside the kernel.

    Raises:
        TilewrightError: bad input (exit 2) or something missing (exit 3); nothing is written then.
    """
    say = progress or (lambda _: None)
    begin = time.perf_counter()
    raw = read_file(path)
    sidecar = sidecar_for(path, spec, kernel)
    gpu = find_gpu() if run else None
    target = target_for(arch, sidecar, gpu.arch if gpu is not None else None)
    draft = None
    if sidecar is None and run:
        draft = draft_or_none(raw, path, kernel, target.arch, settings, use_cache, say)
        sidecar = spec_of(draft, path) if draft is not None else None
    job = _Job(raw, path, kernel, sidecar, target, stages, variants, settings, use_cache, draft)
    studied = job.study(say)
    studied_s = time.perf_counter() - begin
    ran = job.ran(studied, gpu, run, say)
    misfit = draft_misfit(draft, ran)
    if draft is not None and misfit:
        # A verdict that rests on a wrong guess is none.
        job = replace(job, sidecar=None, draft=replace(draft, problem=misfit))
        studied = job.study(say)
        ran = job.ran(studied, gpu, run, say)
    receipt = _receipt(job, studied, ran, gpu)
    if save_draft and job.draft is not None and job.draft.fits:
        place = sidecar_path(raw, path, kernel)
        save(place, job.draft.text)
        receipt = replace(receipt, notes=(*receipt.notes, f"the drafted sidecar is kept as {place}"))
    total_s = time.perf_counter() - begin
    timings = {"study": round(studied_s, 3), "run": round(total_s - studied_s, 3), "total": round(total_s, 3)}
    receipt = replace(receipt, timings_s=timings)
    sources = sources_of(receipt)
    if out is not None:
        receipt = write_out(receipt, out, sources)
    return PipelineOutcome(receipt, sources, _exit_code(receipt), ran.hung)


@dataclass(frozen=True)
class _Job:
    raw: bytes
    path: Path
    kernel: str | None
    sidecar: LaunchSpec | None
    target: Target
    stages: tuple[int, ...]
    variants: tuple[str, ...] | None
    settings: Settings
    use_cache: bool
    draft: Draft | None = None

    def key(self) -> str:
        """Everything that decides a study: contents only, no path of the machine."""
        include = includes_of(self.raw, self.path, self.sidecar)
        parts = [
            FORMAT,
            __version__,
            code_fingerprint(),
            hashlib.sha256(self.raw).hexdigest(),
            self.path.name,
            self.kernel,
            hashlib.sha256(self._sidecar_text()).hexdigest() if self.sidecar is not None else None,
            headers_digest(self.raw, self.path, include),
            self.target.arch,
            self.stages,
            self.variants,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _sidecar_text(self) -> bytes:
        if self.draft is not None and self.draft.fits:
            return self.draft.text.encode()
        return self.sidecar.path.read_bytes() if self.sidecar is not None else b""

    def study(self, say: Progress) -> Study:
        """From the cache; else made now. Another compiler's study counts only where none can be made here."""
        cache = Cache(self.settings.cache_dir, "study")
        key = self.key()
        if self.use_cache:
            found = cache.get_value(key, Study)
            if found is not None and (toolchain() == found.toolchain or not _can_study(self.settings)):
                return replace(found, kernel=replace(found.kernel, file=str(self.path)))
        from tilewright.workflow.opening import open_file
        from tilewright.workflow.studying import study

        say("compiling the baseline")
        opened = open_file(
            self.raw, self.path, self.kernel, self.sidecar, self.target.arch, self.settings, self.use_cache
        )
        made = study(opened, self.stages, self.variants, say)
        if self.use_cache:
            cache.put_value(key, made)
        return made

    def ran(self, studied: Study, gpu: GpuInfo | None, run: bool, say: Progress) -> Ran:
        """What running showed. The emulator's verdicts depend on contents alone, so they are kept; a GPU's are not."""
        emulates = run and self.sidecar is not None and is_emulated(self.target.arch, gpu)
        cache = Cache(self.settings.cache_dir, "emulated")
        if emulates and self.use_cache:
            key = hashlib.sha256(f"{self.key()}/{studied.toolchain}/{self._reference()}".encode()).hexdigest()
            found = cache.get_value(key, Ran)
            if found is not None:
                return found
        made = run_all(studied, self.path, self.sidecar, self.target.arch, gpu, run, say)
        if emulates and self.use_cache and _is_settled(made):
            cache.put_value(key, made)
        return made

    def _reference(self) -> str:
        reference = self.sidecar.reference if self.sidecar is not None else None
        return hashlib.sha256(reference.read_bytes()).hexdigest() if reference is not None else ""


def _is_settled(ran: Ran) -> bool:
    """Nothing failed. A failure may be the machine's (a run that took too long), so it is looked at anew each time."""
    verdicts = [ran.baseline_verify.verdict, *(one.verdict for one in ran.verify.values())]
    return ran.baseline_verify.verdict == "passed" and "failed" not in verdicts


def _can_study(settings: Settings) -> bool:
    """Whether compiler, parser and disassembler are here; a GPU box may have none of them and works from the cache."""
    from importlib.util import find_spec

    from tilewright.sass.nvdisasm import find_nvdisasm

    parser = find_spec("tree_sitter") is not None and find_spec("tree_sitter_cuda") is not None
    return toolchain() is not None and parser and find_nvdisasm(settings) is not None


# -- the record --------------------------------------------------------------------------------------


def _receipt(job: _Job, studied: Study, ran: Ran, gpu: GpuInfo | None) -> record.Receipt:
    refusal = ran.refusal or studied.refusal
    receipt = record.Receipt(
        tool=record.Tool(__version__, studied.toolchain, studied.disassembler),
        kernel=replace(studied.kernel, source_sha256=hashlib.sha256(job.raw).hexdigest()),
        arch=job.target.arch,
        arch_reason=job.target.reason,
        refusal=refusal,
        baseline=record.Baseline(
            ran.baseline_verify,
            studied.baseline_proof,
            ran.baseline_measure,
            studied.baseline_resources,
            ran.baseline_verify.hazards,
        ),
        tile=studied.tile,
        loop=studied.loop,
        preconditions=studied.preconditions,
        budget=studied.budget,
        proposals=studied.proposals,
        decision=decision_for(studied, job.target.arch, gpu),
        variants=tuple(_variant(v, studied, ran) for v in studied.variants),
        assumptions=(*studied.assumptions, *guesses_of(job.draft)),
        notes=(*studied.notes, *ran.notes, *draft_notes(job.draft, job.path, refusal)),
    )
    receipt = replace(receipt, choice=_choice(receipt))
    return replace(receipt, checklist=build_checklist(receipt))


def _variant(v: StudiedVariant, studied: Study, ran: Ran) -> record.Variant:
    if v.refusal is not None:
        return record.Variant(v.name, v.stages, "refused", v.refusal, notes=v.notes)
    if ran.refusal is not None:
        return record.Variant(v.name, v.stages, "refused", ran.refusal, notes=v.notes)
    unlike = _unlike_at_half(v, ran)
    if unlike is not None:
        return record.Variant(v.name, v.stages, "refused", unlike, notes=v.notes)
    v, label = _faster_order(v, ran)
    verify, measure = ran.verify[label], ran.measure[label]
    status: record.Status = {"passed": "accepted", "failed": "failed", "not_run": "built"}[verify.verdict]  # type: ignore[assignment]
    return record.Variant(
        v.name,
        v.stages,
        status,
        None,
        v.source,
        v.diff,
        launch=ran.launches.get(record.variant_label(v.name, v.stages)),
        resources=v.resources,
        verify=verify,
        proof=v.proof,
        measure=measure,
        controls=_controls(v, label, studied, ran),
        attribution=attribute(v, studied, ran, label),
        notes=v.notes,
    )


def _unlike_at_half(v: StudiedVariant, ran: Ran) -> record.Refusal | None:
    """At half a tile the kernel itself computes something else: its constant cannot be halved, which is no fault."""
    seen = ran.verify.get(record.variant_label("retile", 1)) if v.name == "retile" else None
    if seen is None or seen.verdict != "failed":
        return None
    where = "; ".join(f"{c.size}: {c.message or 'results differ'}" for c in seen.checks if c.verdict == "failed")
    return record.Refusal(
        "not_proven", f"at half of {v.side} the kernel does not compute the same: {where or seen.reason}"
    )


def _faster_order(v: StudiedVariant, ran: Ran) -> tuple[StudiedVariant, str]:
    """Of a variant that was timed in two orders the faster one, with the label that it ran as."""
    label = record.variant_label(v.name, v.stages)
    early = early_label(label)
    if v.early is None or ran.verify[label].verdict != "passed" or ran.verify[early].verdict != "passed":
        return v, label
    mine, its = ran.measure[label].speedup, ran.measure[early].speedup
    if mine is None or its is None:
        return v, label
    told = f"timed with its loads behind the barrier, {mine:.2f}x, and in front of it, {its:.2f}x: the faster is kept"
    chosen, at = (v.early, early) if its > mine else (v, label)
    return replace(chosen, notes=(*chosen.notes, told)), at


def _controls(v: StudiedVariant, label: str, studied: Study, ran: Ran) -> tuple[record.Control, ...]:
    out: list[record.Control] = []
    widened = studied.widened if v.name in PIPELINED else None
    for control, key in ((widened, widened_label(studied)), (v.waited, waited_label(label))):
        if control is not None:
            out.append(record.Control(control.name, control.proof, ran.verify[key], ran.measure[key]))
    return tuple(out)


def _choice(receipt: record.Receipt) -> record.Choice | None:
    """The fastest accepted variant that beats the baseline; where nothing was timed, none."""
    best = max(
        (v for v in receipt.variants if v.status == "accepted" and v.measure.verdict == "faster"),
        key=lambda v: v.measure.speedup or 0.0,
        default=None,
    )
    if best is None:
        return None
    same = "same bits" if best.verify.bit_identical else "within tolerance"
    reason = f"{best.measure.speedup:.2f}x on {best.measure.card}, {same} at {len(best.verify.sizes)} size sets"
    return record.Choice(best.name, best.stages, reason)


def _exit_code(receipt: record.Receipt) -> int:
    if receipt.baseline.hazards or receipt.baseline.verify.verdict == "failed":
        return EXIT_CHECK_FAILED
    if receipt.refusal is not None:
        return EXIT_CHECK_FAILED if receipt.refusal.code == "baseline_race" else EXIT_REFUSED
    if any(v.status == "failed" for v in receipt.variants):
        return EXIT_CHECK_FAILED
    made = any(v.status in ("accepted", "built") for v in receipt.variants)
    reasoned = receipt.decision is not None and receipt.decision.verdict == "do_not_pipeline"
    return EXIT_OK if made or reasoned else EXIT_REFUSED
