"""How long a first use compiles: the rung that each operation of the ladder picks, in each element type.

    python benchmarks/ladder_compile.py --out benchmarks/results/ladder-compile.json

Processor seconds of NVRTC for each kernel, at the family's ``default`` sizes, for sm_90a; no GPU needed. What compiles
first in a process also loads the compiler, so one kernel is compiled before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from datetime import UTC, datetime
from pathlib import Path

from tilewright.build import compile_worker
from tilewright.build.nvrtc import Compiled, Program, run, toolchain
from tilewright.ladder.compiling import compile_rung
from tilewright.ladder.family import Family, load_families
from tilewright.ladder.launching import runs_code
from tilewright.ladder.specs import rung_spec
from tilewright.settings import Settings

ARCH = "sm_90a"


def seconds_of(family: Family, dtype: str) -> dict[str, object]:
    """One rung's kernels, the longest of them."""
    taken: list[float] = []

    def timed(program: Program) -> Compiled:
        begin = time.process_time()
        done = run(program)
        taken.append(time.process_time() - begin)
        return done

    rung = family.best(family.sizes["default"], dtype, lambda least: runs_code(least, "sm_90"))
    apart, compile_worker.compile_apart = compile_worker.compile_apart, timed
    try:
        compile_rung(rung_spec(family, rung, dtype), Settings.from_environment(), ARCH, use_cache=False)
    finally:
        compile_worker.compile_apart = apart
    return {"family": family.name, "rung": rung.name, "dtype": dtype, "kernels": len(taken), "longest_s": max(taken)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    families = load_families()
    seconds_of(families[0], families[0].dtypes[0])
    rows = [seconds_of(family, dtype) for family in families for dtype in family.dtypes]
    for row in sorted(rows, key=lambda row: float(str(row["longest_s"])), reverse=True)[:10]:
        print(f"{row['longest_s']:6.2f} s  {row['family']} {row['rung']} {row['dtype']}")
    if args.out:
        date = datetime.now(UTC).isoformat(timespec="seconds")
        told = {"toolchain": toolchain(), "arch": ARCH, "cpu": platform.processor() or platform.machine(), "date": date}
        lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
        head = json.dumps(told)[:-1]
        args.out.write_text(f'{head}, "rows": [\n{lines}\n]}}\n', "utf-8")


if __name__ == "__main__":
    main()
