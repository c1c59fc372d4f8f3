"""What `tilewright tile --out` writes: kernel, sidecars, reference, plan and report, all or nothing.

The kernel is there to be filled in, so that what somebody has edited since is never written over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.receipt.record import to_json
from tilewright.receipt.tile_report import TileReport, TileSkeleton
from tilewright.receipt.write import write_whole

REPORT = "tile.json"
PLAN = "plan.json"


def write_tile(report: TileReport, out: Path) -> TileReport:
    """Write into a folder, made if missing; what an earlier run left there under other names goes, if it is unedited.

    Returns:
        The report with the files that were written.

    Raises:
        TilewrightError: ``tile/exists``, where a file is not what an earlier run wrote; ``receipt/cannot_write``.
    """
    texts = {PLAN: to_json(report.plan), **_texts(report.skeleton)}
    report = replace(report, skeleton=replace(report.skeleton, files=tuple(str(out / n) for n in (*texts, REPORT))))
    texts[REPORT] = to_json(report)
    earlier = _earlier(out)
    foreign = [name for name, text in texts.items() if _would_be_lost(out / name, text, earlier)]
    if foreign:
        raise TilewrightError(
            "tile/exists",
            f"{', '.join(foreign)} in {out}: edited, or not written by this command; it would be lost.",
            {"folder": str(out), "files": foreign},
            "Name another folder with --out, or move it away.",
        )
    stale = [out / name for name, text in earlier.items() if name not in texts and _holds(out / name, text)]
    write_whole(out, texts, last=REPORT, stale=stale)
    return report


def _texts(made: TileSkeleton) -> dict[str, str]:
    """File name to text of a skeleton's files."""
    texts = {
        f"{made.kernel}{made.suffix}": made.source,
        f"{made.kernel}.toml": made.sidecar,
        f"{made.kernel}_reference.py": made.reference,
        f"{made.kernel}.{made.second_kernel}.toml": made.second_sidecar,
    }
    return {name: text for name, text in texts.items() if text}


def _earlier(out: Path) -> Mapping[str, str]:
    """What the report that is there says was written; empty where there is none of ours."""
    try:
        text = (out / REPORT).read_text("utf-8")
        read: dict[str, Any] = json.loads(text)
        names = {field.name for field in fields(TileSkeleton)}
        skeleton = TileSkeleton(**{name: value for name, value in read["skeleton"].items() if name in names})
        return {PLAN: json.dumps(read["plan"]), **_texts(skeleton), REPORT: text}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _would_be_lost(path: Path, new: str, earlier: Mapping[str, str]) -> bool:
    if not path.exists() or _holds(path, new):
        return False
    return path.name not in earlier or not _holds(path, earlier[path.name])


def _holds(path: Path, text: str) -> bool:
    """The same text, or (plans) the same JSON."""
    try:
        there = path.read_text("utf-8")
        return there == text or (path.name == PLAN and json.loads(there) == json.loads(text))
    except (OSError, ValueError):
        return False
