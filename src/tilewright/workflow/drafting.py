"""The sidecar of a kernel that has none: drafted, kept in the cache, and written beside the kernel where asked."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tilewright import __version__
from tilewright.build.cache import Cache
from tilewright.errors import EXIT_MISSING, TilewrightError
from tilewright.launch.sidecar import parse_sidecar
from tilewright.launch.spec import LaunchSpec
from tilewright.receipt.record import Refusal
from tilewright.settings import Settings
from tilewright.verification.baseline import NO_LIMITS
from tilewright.workflow.draft.result import Draft
from tilewright.workflow.reading import code_fingerprint, headers_digest, includes_of, read_file
from tilewright.workflow.running import Ran

FORMAT = 1
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Initialised:
    """What ``tilewright init`` did.

    Attributes:
        path: of the sidecar. text: what it holds.
        guesses: what it rests on. problem: why it has to be completed by hand; "" where it fits.
    """

    path: Path
    text: str
    guesses: tuple[str, ...]
    problem: str = ""


def draft_for(
    raw: bytes,
    path: Path,
    kernel: str | None,
    arch: str,
    settings: Settings,
    use_cache: bool,
    say: Progress,
    only_tiled: bool = False,
) -> Draft:
    """The draft of a kernel's sidecar, from the cache or made now.

    Args:
        only_tiled: spare the work for a kernel without a K-loop.

    Raises:
        TilewrightError: as opening the file does: no kernel, several, CUDA that does not compile.
    """
    cache = Cache(settings.cache_dir, "draft")
    include = includes_of(raw, path, None)
    folders = [os.path.relpath(folder, path.resolve().parent) for folder in include]
    parts = [FORMAT, __version__, code_fingerprint(), hashlib.sha256(raw).hexdigest(), path.name, kernel, arch]
    parts += [headers_digest(raw, path, include), folders, only_tiled]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    found = cache.get_value(key, Draft) if use_cache else None
    if found is not None:
        return found
    from tilewright.workflow.draft.draft import draft
    from tilewright.workflow.opening import open_file

    say("compiling the baseline")
    made = draft(open_file(raw, path, kernel, None, arch, settings, use_cache), path, say, only_tiled)
    if use_cache:
        cache.put_value(key, made)
    return made


def draft_or_none(
    raw: bytes, path: Path, kernel: str | None, arch: str, settings: Settings, use_cache: bool, say: Progress
) -> Draft | None:
    """As ``draft_for``, for a run that can do without: None where nothing here can compile."""
    try:
        return draft_for(raw, path, kernel, arch, settings, use_cache, say, only_tiled=True)
    except TilewrightError as error:
        if error.exit_code == EXIT_MISSING:
            return None  # a machine that works from the cache; the study says what is missing, if it is
        raise


def draft_misfit(draft: Draft | None, ran: Ran) -> str:
    """Why a draft turned out wrong when the baseline ran; "" where it did not, or the fault is the kernel's own."""
    if draft is None or not draft.fits or ran.baseline_verify.verdict != "failed":
        return ""
    hazards = [hazard for hazard in ran.baseline_verify.hazards if not hazard.kind.startswith(NO_LIMITS)]
    if ran.refusal is not None and draft.is_told and not hazards:
        return ""
    if hazards:
        return f"{hazards[0].kind}: {hazards[0].message}"
    return ran.baseline_verify.reason or "the kernel fails when launched so"


def guesses_of(draft: Draft | None) -> tuple[str, ...]:
    """For the receipt's assumptions."""
    return tuple(f"guessed: {guess}" for guess in draft.guesses) if draft is not None and draft.fits else ()


def draft_notes(draft: Draft | None, path: Path, refusal: Refusal | None) -> tuple[str, ...]:
    """For the receipt's notes."""
    if draft is None or (not draft.fits and refusal is not None):
        return ()
    if draft.fits:
        return (f"No sidecar: one was drafted. Check what was guessed; `tilewright init {path}` keeps it.",)
    return (
        f"A drafted sidecar does not fit: {draft.problem}. `tilewright init {path}` writes it; complete it by hand.",
    )


def spec_of(draft: Draft, path: Path) -> LaunchSpec | None:
    """The draft, read as any sidecar is; None where it has a problem."""
    return parse_sidecar(draft.text, path.with_suffix(".toml")) if draft.fits else None


def init(
    path: Path,
    *,
    kernel: str | None = None,
    arch: str | None = None,
    force: bool = False,
    settings: Settings,
    use_cache: bool = True,
    progress: Progress | None = None,
) -> Initialised:
    """Write the drafted sidecar beside a kernel.

    Args:
        path: a CUDA source. kernel: which ``__global__`` function, where it has several.
        force: replace a sidecar that is there already.

    Raises:
        TilewrightError: bad input, ``init/exists``, or something missing.
    """
    from tilewright.gpu.device import find_gpu
    from tilewright.workflow.reading import target_for

    raw = read_file(path)
    gpu = find_gpu()
    target = target_for(arch, None, gpu.arch if gpu is not None else None)
    place = sidecar_path(raw, path, kernel)
    if place.exists() and not force:
        raise _exists(place)
    draft = draft_for(raw, path, kernel, target.arch, settings, use_cache, progress or (lambda _: None))
    save(place, draft.text, force=force)
    return Initialised(place, draft.text, draft.guesses, draft.problem)


def sidecar_path(raw: bytes, path: Path, kernel: str | None) -> Path:
    """``FILE.toml``; ``FILE.NAME.toml`` where the file has several kernels.

    Raises:
        TilewrightError: no such kernel, or several and none named.
    """
    from tilewright.source.reader import read_source

    source = read_source(raw, str(path))
    name = source.kernel(kernel).name
    return path.with_suffix(".toml") if len(source.kernels) == 1 else path.with_name(f"{path.stem}.{name}.toml")


def save(place: Path, text: str, *, force: bool = False) -> None:
    """Write a sidecar, whole or not at all; one that is there stays unless ``force``.

    Raises:
        TilewrightError: ``init/exists``.
        OSError: the system refuses.
    """
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        if force:
            part.replace(place)
        else:
            _place(part, place)
    except FileExistsError:
        raise _exists(place) from None
    finally:
        part.unlink(missing_ok=True)


def _place(part: Path, place: Path) -> None:
    """Give a file its name, unless there is one of that name, also where that came into being just now."""
    try:
        os.link(part, place)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: the name is taken first
        place.touch(exist_ok=False)
        part.replace(place)


def _exists(place: Path) -> TilewrightError:
    return TilewrightError(
        "init/exists", "There is a sidecar already.", {"file": str(place)}, "Replace it with --force, or edit it."
    )
