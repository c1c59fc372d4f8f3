"""`tilewright apply`: an accepted variant put into the user's file, with the launches in that file that it changes."""

from __future__ import annotations

import codecs
import contextlib
import difflib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from tilewright.arch.arch import load_arch
from tilewright.errors import EXIT_REFUSED, TilewrightError
from tilewright.receipt.record import Receipt, Variant, from_json
from tilewright.workflow.launch_edits import with_launches
from tilewright.workflow.reading import read_file


@dataclass(frozen=True)
class Applied:
    """What was done, or would be.

    Attributes:
        path: of the file. variant: its label.
        diff: unified, from the file as it is.
        notes: what changed besides the kernel, one sentence each.
        is_written: False for a dry run.
    """

    path: Path
    variant: str
    diff: str
    notes: tuple[str, ...]
    is_written: bool


def apply(receipt_file: Path, *, variant: str | None = None, dry_run: bool = False) -> Applied:
    """Replace a kernel by a variant of its receipt.

    Args:
        receipt_file: ``receipt.json``. variant: a label, such as ``cp_async3``; by default the receipt's choice.
        dry_run: write nothing.

    Raises:
        TilewrightError: bad input (exit 2), or what cannot be applied safely (exit 4, ``apply/…``): nothing is written.
    """
    receipt = _read_receipt(receipt_file)
    path = Path(receipt.kernel.file)
    chosen = _chosen(receipt, variant)
    if chosen.status != "accepted":
        raise _refused("not_accepted", _why_not(chosen), receipt, "Only a variant that was verified can be applied.")
    raw = read_file(path)
    _check_unchanged(receipt, raw)
    limit = load_arch(receipt.arch).smem_static_max_bytes
    before = raw.decode()
    after, notes = with_launches(before, receipt.kernel, chosen, limit)
    diff = "".join(
        difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path.name}", f"b/{path.name}"
        )
    )
    if not dry_run:
        _write(path.resolve(), raw, after.encode(), receipt)
    return Applied(path, chosen.label, diff, notes, not dry_run)


def _read_receipt(file: Path) -> Receipt:
    try:
        data = file.read_bytes()
    except OSError as error:
        message = f"The receipt cannot be read: {error.strerror or error}."
        hint = "`tilewright pipeline KERNEL.cu --out DIR` writes DIR/receipt.json."
        raise TilewrightError("apply/no_receipt", message, {"file": str(file)}, hint) from None
    return from_json(data, file=str(file))


def _chosen(receipt: Receipt, label: str | None) -> Variant:
    accepted = [v.label for v in receipt.variants if v.status == "accepted"]
    listed = f"Accepted are {', '.join(accepted)}." if accepted else "The receipt has no accepted variant."
    wanted = label or (receipt.choice.label if receipt.choice is not None else None)
    if wanted is None and not accepted:
        raise _refused("not_accepted", listed, receipt, "`tilewright pipeline` says why.")
    if wanted is None:
        message = f"The receipt chooses no variant, since none was timed as faster. {listed}"
        raise TilewrightError(
            "apply/which", message, {"file": receipt.kernel.file}, f"Name one: --variant {accepted[0]}."
        )
    found = next((v for v in receipt.variants if wanted in (v.label, v.name)), None)
    if found is None:
        raise TilewrightError("apply/unknown_variant", f"The receipt has no variant {wanted!r}.", {}, listed)
    return found


def _why_not(variant: Variant) -> str:
    if variant.refusal is not None:
        return f"{variant.label} was refused: {variant.refusal.message}."
    if variant.status == "built":
        return f"{variant.label} is built, and nothing has verified it: {variant.verify.reason or 'it was not run'}."
    return f"{variant.label} failed: {variant.verify.reason or 'see the receipt'}."


def _check_unchanged(receipt: Receipt, raw: bytes) -> None:
    if not receipt.kernel.source_sha256:
        raise _refused("old_receipt", "The receipt does not say which text of the file it saw.", receipt, _AGAIN)
    if hashlib.sha256(raw).hexdigest() != receipt.kernel.source_sha256:
        raise _refused(
            "changed", "The file is not the one that the receipt is about: its text has changed.", receipt, _AGAIN
        )


_AGAIN = "Run `tilewright pipeline` again, then apply its receipt."


def _refused(reason: str, message: str, receipt: Receipt, hint: str) -> TilewrightError:
    facts = {"file": receipt.kernel.file}
    return TilewrightError(f"apply/{reason}", message, facts, hint, EXIT_REFUSED)


def _write(path: Path, seen: bytes, text: bytes, receipt: Receipt) -> None:
    """Whole or not at all, with the file's own mode and byte order mark; only if it still is what was looked at."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        now = path.read_bytes()
        mark = codecs.BOM_UTF8 if now.startswith(codecs.BOM_UTF8) else b""
        part.write_bytes(mark + text)
        part.chmod(path.stat().st_mode & 0o7777)
        if path.read_bytes().removeprefix(codecs.BOM_UTF8) != seen:
            raise _refused("changed", "The file has changed just now.", receipt, _AGAIN)
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
