"""Cuts a receipt down to what was measured, under benchmarks/results/."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
_TIMES = ("median_us", "min_us", "iqr_us", "samples", "gflops", "gbps", "roofline_share", "speedup", "verdict")


def times(measure: dict[str, Any]) -> dict[str, Any]:
    return {key: measure[key] for key in _TIMES}


def verified(verify: dict[str, Any]) -> dict[str, Any]:
    return {key: verify[key] for key in ("verdict", "executor", "sizes", "bit_identical", "max_abs_error")}


def variant(entry: dict[str, Any], predicted: dict[str, Any]) -> dict[str, Any]:
    label = entry["name"] + (str(entry["stages"]) if entry["name"] == "cp_async" else "")
    return {
        "variant": label,
        "stages": entry["stages"],
        "predicted": predicted.get(label),
        "measured": times(entry["measure"]),
        "verify": verified(entry["verify"]),
        "proof": {key: entry["proof"][key] for key in ("verdict", "tiles_in_flight", "mma_per_tile", "wait")},
        "registers": entry["resources"]["registers"],
        "smem_bytes": entry["resources"]["smem_bytes"],
        "controls": {c["name"]: {"proof": c["proof"]["verdict"], **times(c["measure"])} for c in entry["controls"]},
        "attribution": entry["attribution"],
    }


def record(receipt: dict[str, Any]) -> dict[str, Any]:
    """The measured part of one receipt.

    Raises:
        SystemExit: where the receipt holds no measurement.
    """
    baseline = receipt["baseline"]
    if baseline["measure"]["verdict"] == "not_run":
        raise SystemExit(f"nothing was measured: {baseline['measure']['reason']}")
    predicted = receipt["decision"]["predicted"]
    return {
        "kernel": Path(receipt["kernel"]["file"]).name,
        "arch": receipt["arch"],
        "tool": receipt["tool"],
        "card": baseline["measure"]["card"],
        "driver": baseline["measure"]["driver"],
        "date": baseline["measure"]["date"],
        "size": baseline["measure"]["size"],
        "baseline": {"measured": times(baseline["measure"]), "verify": verified(baseline["verify"])},
        "decision": receipt["decision"]["verdict"],
        "choice": receipt["choice"],
        "variants": [variant(v, predicted) for v in receipt["variants"] if v["status"] == "accepted"],
    }


def main() -> None:
    RESULTS.mkdir(exist_ok=True)
    for name in sys.argv[1:]:
        result = record(json.loads(Path(name).read_text()))
        card = result["card"].replace("NVIDIA ", "").replace(" ", "_").lower()
        target = RESULTS / f"{card}-{Path(result['kernel']).stem}.json"
        target.write_text(json.dumps(result, indent=1) + "\n")
        print(target)


if __name__ == "__main__":
    main()
