"""From a path to bytes, sidecar, architecture and target: everything that can be wrong before any work is done."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.launch.kernel_names import is_same_kernel
from tilewright.launch.sidecar import find_sidecar, load_sidecar
from tilewright.launch.spec import LaunchSpec
from tilewright.receipt.record import from_json
from tilewright.receipt.write import RECEIPT_NAME, is_generated

_LISTED = 4  # names of other files in a message


@dataclass(frozen=True)
class Target:
    """The architecture and the sentence that says why it."""

    arch: str
    reason: str


def read_file(path: Path) -> bytes:
    """The bytes of a source file, without a byte order mark.

    Raises:
        TilewrightError: ``source/no_file``, ``source/no_cu_files``, ``source/is_directory``, ``source/unreadable``,
            ``source/not_text``.
    """
    facts = {"file": str(path)}
    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise TilewrightError("source/unreadable", f"The file cannot be read: {error.strerror}.", facts) from None
    if is_folder:
        found = sorted(p.name for p in path.glob("*.cu"))
        if not found:
            raise no_sources(path)
        raise TilewrightError(
            "source/is_directory",
            f"This is a folder with {len(found)} .cu files; one file at a time.",
            facts,
            f"Name one: {path / found[0]}",
        )
    if path.suffix == ".json" and (hint := _about(path)):
        raise TilewrightError("source/not_text", "This is a receipt, no CUDA C++.", facts, hint)
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except FileNotFoundError:
        raise TilewrightError("source/no_file", "There is no such file.", facts, "Check the path.") from None
    except OSError as error:
        raise TilewrightError(
            "source/unreadable", f"The file cannot be read: {error.strerror or error}.", facts
        ) from None


def no_sources(folder: Path) -> TilewrightError:
    """``source/no_cu_files``: what a folder without CUDA sources of the user's holds instead, and what to do."""
    names = sorted(p.name + "/" * p.is_dir() for p in folder.iterdir()) if folder.is_dir() else []
    made = [name for name in names if is_generated(name)]
    have = [_some([name for name in names if name not in made])] if len(made) < len(names) else []
    have += [f"what an earlier run wrote ({_some(made)})"] if made else []
    message = "The folder holds no CUDA source (.cu, .cuh) of yours: "
    message += f"it has {' and '.join(have)}." if have else "it is empty."
    hint = _about(folder / RECEIPT_NAME) or "Name a .cu file, or a folder that holds one."
    return TilewrightError("source/no_cu_files", message, {"file": str(folder)}, hint)


def _some(names: Sequence[str]) -> str:
    return ", ".join([*names[:_LISTED], *(["…"] if len(names) > _LISTED else [])])


def _about(receipt: Path) -> str:
    """What to do with a receipt; "" where a file is none of ours."""
    try:
        kernel = from_json(receipt.read_bytes()).kernel.file
    except (OSError, ValueError, TilewrightError):
        return ""
    return f"The receipt is of {kernel}: name that file, or put a variant into it: `tilewright apply {receipt}`."


def sidecar_for(path: Path, spec: Path | None, kernel: str | None) -> LaunchSpec | None:
    """The sidecar that was named, or the one beside the kernel, or None.

    Raises:
        TilewrightError: a sidecar that cannot be read, or one for another kernel than the one asked for.
    """
    found = spec if spec is not None else find_sidecar(path, kernel)
    if found is None:
        return None
    loaded = load_sidecar(found)
    if kernel is not None and not is_same_kernel(loaded.kernel, kernel):
        raise loaded.error(
            ("kernel",),
            "other_kernel",
            f"The sidecar is for {loaded.kernel}, not for {kernel}.",
            "Name the right sidecar with --spec.",
        )
    return loaded


def target_for(arch: str | None, spec: LaunchSpec | None, gpu_arch: str | None) -> Target:
    """``--arch``, else the GPU's, else the sidecar's, else sm_86.

    Raises:
        TilewrightError: ``arch/unknown``.
    """
    from tilewright.arch.arch import default_arch, load_arch

    if arch is not None:
        return Target(load_arch(arch).name, "as asked with --arch")
    if gpu_arch is not None:
        try:
            return Target(load_arch(gpu_arch).name, "the GPU's")
        except TilewrightError:
            raise TilewrightError(
                "arch/unknown",
                f"This machine's GPU is {gpu_arch}, which has no table yet.",
                hint="Name another target with --arch.",
            ) from None
    if spec is not None and spec.arch is not None:
        try:
            return Target(load_arch(spec.arch).name, "the sidecar's; no GPU, no --arch")
        except TilewrightError as error:
            raise spec.error(("arch",), "unknown_arch", error.message, error.hint) from None
    return Target(default_arch(), "no GPU and no --arch")


def includes_of(raw: bytes, path: Path, spec: LaunchSpec | None) -> tuple[Path, ...]:
    """Folders with headers: the sidecar's; without one, the nearest that hold what the file includes."""
    if spec is not None:
        return spec.build.include
    from tilewright.workflow.draft.includes import guessed_includes

    return guessed_includes(raw.decode(errors="replace"), path)


def headers_digest(raw: bytes, path: Path, include: Sequence[Path]) -> str:
    """SHA-256 of every header that the compiler will see besides CUDA's own, by name and content."""
    from tilewright.source.device_view import device_view

    view = device_view(raw.decode(errors="replace"), path, include)
    return hashlib.sha256(repr(sorted(view.headers)).encode()).hexdigest()


@cache
def code_fingerprint() -> str:
    """SHA-256 over the package's own files: a study made by other code is not taken from the cache."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".toml")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
