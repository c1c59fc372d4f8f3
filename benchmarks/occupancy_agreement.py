"""Occupancy next to NVIDIA's own calculator: many random launches of every architecture that it knows.

    python benchmarks/occupancy_agreement.py --count 100000

Writes results/occupancy_agreement.json. The oracle is cuda_occupancy.h of the nvidia-cuda-runtime package, compiled by
NVRTC and run by the emulator (tests/unit/occupancy_oracle.py); the tests do the same with fewer launches.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "unit"))

from occupancy_oracle import DEVICES, ask, differences, draw  # noqa: E402

from tilewright import __version__  # noqa: E402
from tilewright.arch.arch import load_arch  # noqa: E402

BATCH = 20000


def agreement(name: str, count: int, seed: int) -> dict[str, Any]:
    """One architecture: how many launches, how many answers that differ, and what the answers were."""
    arch, rng = load_arch(name), np.random.default_rng(seed)
    start = time.perf_counter()
    wrong: list[str] = []
    blocks: Counter[int] = Counter()
    carveouts = asked = 0
    while asked < count:
        launches = draw(name, min(BATCH, count - asked), rng)
        said = ask(name, launches)
        wrong += list(differences(arch, launches, said))
        blocks.update(said["blocks"].tolist())
        carveouts += int((launches.columns["carveout"] >= 0).sum())
        asked += len(launches)
    return {
        "launches": asked,
        "with_a_chosen_carveout": carveouts,
        "different": len(wrong),
        "first_differences": wrong[:5],
        "blocks_per_sm": {str(n): times for n, times in sorted(blocks.items())},
        "seconds": round(time.perf_counter() - start, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="launches per architecture")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "occupancy_agreement.json")
    options = parser.parse_args()
    found = {}
    for name in DEVICES:
        found[name] = agreement(name, options.count, options.seed)
        print(f"{name:8} {found[name]['launches']:>8} launches, {found[name]['different']} different", flush=True)
    record = {
        "oracle": f"cuda_occupancy.h of nvidia-cuda-runtime {metadata.version('nvidia-cuda-runtime')}",
        "run_by": f"the emulator of tilewright {__version__}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "seed": options.seed,
        "compared": "blocks per SM, each limit, the limiting factors, registers and shared bytes as handed out",
        "known_difference": "256 registers a thread: the header lets them pass, a thread has 255; not drawn",
        "architectures": found,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if any(row["different"] for row in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
