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
from tilewright.errors import TilewrightError
from tilewright.launch.sidecar import parse_sidecar
from tilewright.launch.spec import LaunchSpec
from tilewright.settings import Settings
from tilewright.workflow.draft.result import Draft
from tilewright.workflow.reading import code_fingerprint, headers_digest, includes_of, read_file

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
    raw: bytes, path: Path, kernel: str | None, arch: str, settings: Settings, use_cache: bool, say: Progress
) -> Draft:
    """The draft of a kernel's sidecar, from the cache or made now.

    Raises:
        TilewrightError: as opening the file does: no kernel, several, CUDA that does not compile.
    """
    cache = Cache(settings.cache_dir, "draft")
    include = includes_of(raw, path, None)
    folders = [os.path.relpath(folder, path.resolve().parent) for folder in include]
    parts = [FORMAT, __version__, code_fingerprint(), hashlib.sha256(raw).hexdigest(), path.name, kernel, arch]
    parts += [headers_digest(raw, path, include), folders]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    found = cache.get_value(key, Draft) if use_cache else None
    if found is not None:
        return found
    from tilewright.workflow.draft.draft import draft
    from tilewright.workflow.opening import open_file

    say("compiling the baseline")
    made = draft(open_file(raw, path, kernel, None, arch, settings, use_cache), path, say)
    if use_cache:
        cache.put_value(key, made)
    return made


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
            os.link(part, place)  # fails where the name exists, also where it came into being just now
    except FileExistsError:
        raise _exists(place) from None
    finally:
        part.unlink(missing_ok=True)


def _exists(place: Path) -> TilewrightError:
    return TilewrightError(
        "init/exists", "There is a sidecar already.", {"file": str(place)}, "Replace it with --force, or edit it."
    )
