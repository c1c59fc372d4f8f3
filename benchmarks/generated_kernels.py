"""Runs the whole job on many random kernels and writes down what was offered, and whether any of it was wrong.

    python benchmarks/generated_kernels.py --count 300 --jobs 2 --out benchmarks/results/generated.json

``--traps``: kernels that must not be rewritten. ``--mutations``: the examples with small random edits.
Every variant that the tool accepts is verified once more against its kernel, at sizes that the tool did not use.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "generated"))

_NAMES = {"kernels": "tiled kernels", "traps": "tiled kernels with a trap", "mutations": "edits of the examples"}


def one(seed: int, what: str, arch: str, names: tuple[str, ...], stages: tuple[int, ...]) -> dict[str, Any]:
    """One kernel, in a folder and with a cache of its own."""
    from judge import Asked, Judged, judge, judge_mutant

    from tilewright.settings import Settings

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        asked = Asked(Settings(cache_dir=root / "cache"), arch, names, stages)
        try:
            if what == "mutations":
                found = judge_mutant(seed, root, asked)
            else:
                found = judge(seed, root, asked, trap=what == "traps")
        except Exception as error:  # a crash is a fault of its own kind, and must not end the run
            found = Judged(seed, "", "", "error", error=f"crash: {error!r}")
    return {**found.record(), "seconds": round(time.perf_counter() - start, 2)}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts over the kernels whose baseline passes."""
    legal = [r for r in rows if r["baseline"] == "passed" and not r["error"]]
    offered = [r for r in legal if r["offered"]]
    variants = Counter(name.split()[0] for r in legal for name in r["offered"])
    reasons = Counter(r["refused"][0].split(":")[0] for r in legal if not r["offered"] and r["refused"])
    return {
        "kernels": len(rows),
        "baseline_passed": len(legal),
        "accepted": len(offered),
        "accepted_share": round(len(offered) / max(len(legal), 1), 4),
        "variants_accepted": sum(variants.values()),
        "accepted_by_variant": dict(variants),
        "wrong": sum(len(r["wrong"]) for r in rows),
        "offered_in_spite_of_a_trap": sum(len(r["rash"]) for r in rows),
        "failed_own_verification": sum(len(r["failed"]) for r in rows),
        "not_judged_at_other_sizes": sum(bool(r["unjudged"]) for r in rows),
        "errors": sum(bool(r["error"]) for r in rows),
        "refusals": dict(reasons),
    }


def _mark(row: dict[str, Any], what: str) -> str:
    """How a line of progress begins; "" for a kernel of which nothing need be said."""
    if row["wrong"] or row["rash"]:
        return "WRONG "
    if row["failed"]:
        return "FAILED "
    if row["error"].startswith("crash") or (
        row["error"] and what != "mutations"
    ):  # an edit may leave what does not compile
        return "ERROR "
    return "" if row["offered"] else f"baseline {row['baseline']}, refused "


def _write(a: argparse.Namespace, what: str, rows: list[dict[str, Any]]) -> None:
    head = {
        "what": f"random {_NAMES[what]} through `pipeline`, accepted variants verified again at other sizes",
        "date": datetime.date.today().isoformat(),
        "executor": "emulator",
        "arch": a.arch,
        "machine": platform.machine(),
        "python": platform.python_version(),
        "kind": what,
        "seeds": [a.first, a.first + len(rows)],
        "variants": a.variants,
        "stages": a.stages,
    }
    a.out.write_text(json.dumps({**head, "summary": summary(rows), "kernels": rows}, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--arch", default="sm_86")
    parser.add_argument("--traps", action="store_true", help="kernels that must not be rewritten")
    parser.add_argument("--mutations", action="store_true", help="edited examples")
    parser.add_argument("--variants", default="ldg,ldg_single,cp_async")
    parser.add_argument("--stages", default="2,3", help="of the rings")
    parser.add_argument("--out", type=Path)
    a = parser.parse_args()
    names, stages = tuple(a.variants.split(",")), tuple(int(n) for n in a.stages.split(","))
    seeds = range(a.first, a.first + a.count)
    what = "mutations" if a.mutations else "traps" if a.traps else "kernels"
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(a.jobs) as pool:
        for row in pool.map(partial(one, what=what, arch=a.arch, names=names, stages=stages), seeds):
            rows.append(row)
            mark = _mark(row, what)
            if mark or len(rows) % 20 == 0:
                why = row["error"] or row["wrong"] or row["failed"] or row["refused"][:1]
                print(f"{len(rows)}/{a.count} seed {row['seed']} {mark}{why}", flush=True)
            if a.out and (len(rows) % 10 == 0 or len(rows) == a.count):  # a run takes long: what there is, is kept
                _write(a, what, rows)
    counts = summary(rows)
    print(json.dumps(counts, indent=1))
    return 1 if counts["wrong"] or counts["offered_in_spite_of_a_trap"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
