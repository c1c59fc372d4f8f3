"""Stores a run: ``receipt.json``, the generated sources and their diffs, each file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.receipt.record import VARIANT_NAMES, Receipt, Variant, from_json, to_json

RECEIPT_NAME = "receipt.json"
UNVERIFIED = ".unverified"
HOST_SUFFIX = ".launch.cuh"
_GENERATED = re.compile(rf".+\.(?:{'|'.join(VARIANT_NAMES)})\d*(?:{re.escape(UNVERIFIED)})?\.(?:cu|diff|launch\.cuh)")


def source_name(kernel_file: str, variant: Variant) -> str:
    """``igemm.cp_async2.cu``; ``igemm.cp_async2.unverified.cu`` unless the variant is accepted."""
    return f"{_stem(kernel_file, variant)}{_mark(variant)}.cu"


def diff_name(kernel_file: str, variant: Variant) -> str:
    """``igemm.cp_async2.diff``; ``igemm.cp_async2.unverified.diff`` unless the variant is accepted."""
    return f"{_stem(kernel_file, variant)}{_mark(variant)}.diff"


def host_name(kernel_file: str, variant: Variant) -> str:
    """``igemm.tma3.launch.cuh``, beside the source; ``igemm.tma3.unverified.launch.cuh`` unless it is accepted."""
    return f"{_stem(kernel_file, variant)}{_mark(variant)}{HOST_SUFFIX}"


def is_generated(name: str) -> bool:
    """Whether a file is called as `write_out` calls a variant's source, diff or host code."""
    return _GENERATED.fullmatch(name) is not None


def _stem(kernel_file: str, variant: Variant) -> str:
    return f"{Path(kernel_file).stem}.{variant.label}"


def _mark(variant: Variant) -> str:
    return "" if variant.status == "accepted" else UNVERIFIED


def sources_of(receipt: Receipt) -> dict[str, str]:
    """File name to text of every generated source and diff; variants that were refused or failed have none."""
    files: dict[str, str] = {}
    for variant in receipt.variants:
        if variant.status in ("accepted", "built") and variant.source:
            files[source_name(receipt.kernel.file, variant)] = variant.source
            files[diff_name(receipt.kernel.file, variant)] = variant.diff
            if variant.launch is not None and variant.launch.host_code:
                files[host_name(receipt.kernel.file, variant)] = variant.launch.host_code
    return files


def with_paths(receipt: Receipt, out_dir: Path) -> Receipt:
    """The receipt with ``source_path`` and ``diff_path`` as `write_out` will place the files."""
    return replace(receipt, variants=tuple(_placed(receipt.kernel.file, v, out_dir) for v in receipt.variants))


def write_out(receipt: Receipt, out_dir: Path, sources: Mapping[str, str] | None = None) -> Receipt:
    """Write the sources, the diffs and last ``receipt.json`` into ``out_dir``.

    Files of the same names are replaced. Where an earlier run left the same variant under its other name (verified
    then, not verified now, or the reverse), that file goes, so that it cannot be taken for this run's: only if the
    ``receipt.json`` there lists it and it still holds what that receipt says. Nothing else is touched. All texts are
    on the disk before the first name changes, so a full disk leaves the earlier run as it was.

    Args:
        out_dir: made if missing.
        sources: file name to text; by default `sources_of` the receipt.

    Returns:
        The receipt with the paths filled in.

    Raises:
        TilewrightError: ``receipt/cannot_write`` with the operating system's reason.
    """
    placed = with_paths(receipt, out_dir)
    files = dict(sources_of(receipt) if sources is None else sources)
    files[RECEIPT_NAME] = to_json(placed)
    write_whole(out_dir, files, last=RECEIPT_NAME, stale=_stale_twins(receipt, out_dir, set(files)))
    return placed


def write_whole(out_dir: Path, files: Mapping[str, str], *, last: str, stale: Iterable[Path] = ()) -> None:
    """Write everything beside its target, then rename: a reader, or a killed run, never meets half a file.

    Args:
        out_dir: made if missing.
        last: the name in ``files`` that lists the others, and changes after them; ``stale`` goes just before it.

    Raises:
        TilewrightError: ``receipt/cannot_write`` with the operating system's reason.
    """
    with _failing_on(out_dir):
        out_dir.mkdir(parents=True, exist_ok=True)
    parts = {name: out_dir / f".tilewright.{os.getpid()}.{index}.part" for index, name in enumerate(files)}
    try:
        for name, part in parts.items():
            with _failing_on(out_dir / name):
                part.write_text(files[name], encoding="utf-8", newline="")
        for name, part in parts.items():
            if name == last:  # until now the old one lists what is stale
                for path in stale:
                    with _failing_on(path):
                        path.unlink(missing_ok=True)
            with _failing_on(out_dir / name):
                part.replace(out_dir / name)
    finally:
        for part in parts.values():
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def _stale_twins(receipt: Receipt, out_dir: Path, new: Set[str]) -> list[Path]:
    """Files of the receipt that is there already: the same variant's, under the name that this run does not use."""
    try:
        earlier = from_json((out_dir / RECEIPT_NAME).read_bytes())
    except (OSError, ValueError, TilewrightError):
        return []  # none, or not one of ours: then nothing there is known to be
    twins: dict[str, str] = {}  # name → label
    for variant in receipt.variants:
        stem = _stem(receipt.kernel.file, variant)
        for suffix in (".cu", ".diff", HOST_SUFFIX):
            pair = {f"{stem}{suffix}", f"{stem}{UNVERIFIED}{suffix}"}
            if pair & new:
                twins |= dict.fromkeys(pair - new, variant.label)
    listed = [(v.label, v.source_path, v.source) for v in earlier.variants]
    listed += [(v.label, v.diff_path, v.diff) for v in earlier.variants]
    listed += [(v.label, v.launch.host_path, v.launch.host_code) for v in earlier.variants if v.launch is not None]
    return [
        out_dir / Path(path).name
        for label, path, text in listed
        if path and twins.get(Path(path).name) == label and _holds(out_dir / Path(path).name, text)
    ]


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return False


@contextlib.contextmanager
def _failing_on(target: Path) -> Iterator[None]:
    """Report what the operating system refuses with the name that the user knows, not the temporary one."""
    try:
        yield
    except OSError as error:
        raise _cannot_write(target, error) from error


def _cannot_write(target: Path, error: OSError) -> TilewrightError:
    message = f"Cannot write the results: {error.strerror or error}."
    hint = "Name a folder that you can write with --out."
    return TilewrightError("receipt/cannot_write", message, {"file": str(target)}, hint)


def _placed(kernel_file: str, variant: Variant, out_dir: Path) -> Variant:
    if variant.status not in ("accepted", "built") or not variant.source:
        return variant
    if variant.launch is not None and variant.launch.host_code:
        host = str(out_dir / host_name(kernel_file, variant))
        variant = replace(variant, launch=replace(variant.launch, host_path=host))
    source = str(out_dir / source_name(kernel_file, variant))
    return replace(variant, source_path=source, diff_path=str(out_dir / diff_name(kernel_file, variant)))
