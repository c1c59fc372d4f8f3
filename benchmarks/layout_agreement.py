"""Layout algebra against the published implementation on many random layouts; writes `results/layout-agreement.json`.

    python benchmarks/layout_agreement.py [--layouts 10000] [--out FILE]

Needs `nvidia-cutlass` (README.md, the tests). Exit code 1 where a case is wrong.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "unit"))


def main() -> int:
    from layout_agreement import OPERATIONS, run_all
    from layout_oracle import DISTRIBUTION, VERSION

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layouts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "layout-agreement.json")
    options = parser.parse_args()
    rows = {}
    for operation in OPERATIONS:
        tally = run_all(options.layouts, options.seed, (operation,))[operation]
        differences = {verdict.name.lower(): count for verdict, count in sorted(tally.differences.items(), key=str)}
        rows[operation] = {"layouts": tally.layouts, "same": tally.same, **differences, "wrong": tally.wrong}
        print(operation, rows[operation], flush=True)
    record = {
        "against": f"{DISTRIBUTION} {VERSION}",
        "date": datetime.date.today().isoformat(),
        "seed": options.seed,
        "operations": rows,
    }
    options.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 1 if any(row["wrong"] for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
