"""Stores a run: ``receipt.json``, the generated sources and their diffs, each file whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.receipt.record import Receipt, Variant, to_json

RECEIPT_NAME = "receipt.json"


def source_name(kernel_file: str, variant: Variant) -> str:
    """``igemm.cp_async2.cu``; ``igemm.cp_async2.unverified.cu`` unless the variant is accepted."""
    mark = "" if variant.status == "accepted" else ".unverified"
    return f"{Path(kernel_file).stem}.{variant.label}{mark}.cu"


def diff_name(kernel_file: str, variant: Variant) -> str:
    """``igemm.cp_async2.diff``."""
    return f"{Path(kernel_file).stem}.{variant.label}.diff"


def sources_of(receipt: Receipt) -> dict[str, str]:
    """File name to text of every generated source and diff; variants that were refused or failed have none."""
    files: dict[str, str] = {}
    for variant in receipt.variants:
        if variant.status in ("accepted", "built") and variant.source:
            files[source_name(receipt.kernel.file, variant)] = variant.source
            files[diff_name(receipt.kernel.file, variant)] = variant.diff
    return files


def with_paths(receipt: Receipt, out_dir: Path) -> Receipt:
    """The receipt with ``source_path`` and ``diff_path`` as `write_out` will place the files."""
    return replace(receipt, variants=tuple(_placed(receipt.kernel.file, v, out_dir) for v in receipt.variants))


def write_out(receipt: Receipt, out_dir: Path, sources: Mapping[str, str] | None = None) -> Receipt:
    """Write the sources, the diffs and last ``receipt.json`` into ``out_dir``.

    Files of the same names are replaced; nothing else there is touched. What an earlier run left under another name
    (a verified source where this run could verify nothing) stays: the receipt names the files that are this run's.

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
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            _write_whole(out_dir / name, text)
    except OSError as error:
        raise TilewrightError(
            "receipt/cannot_write",
            f"Cannot write the results: {error.strerror or error}.",
            {"file": error.filename or str(out_dir)},
            "Name a folder that you can write with --out.",
        ) from error
    return placed


def _placed(kernel_file: str, variant: Variant, out_dir: Path) -> Variant:
    if variant.status not in ("accepted", "built") or not variant.source:
        return variant
    source = str(out_dir / source_name(kernel_file, variant))
    return replace(variant, source_path=source, diff_path=str(out_dir / diff_name(kernel_file, variant)))


def _write_whole(path: Path, text: str) -> None:
    """Write beside the target and rename, so that a reader (or a killed run) never meets half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_text(text, encoding="utf-8", newline="")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
