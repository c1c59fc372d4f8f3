"""NVIDIA's compute-sanitizer over every rung of a family at its small sizes, on a card; one record of what it says.

    python benchmarks/ladder_sanitizer.py hgemm matmul --tools memcheck racecheck --out benchmarks/results/NAME.json

Each family and tool is a process of its own, several at once: the tools slow kernels down and the card waits. What a
rung computes is judged as well, so that a run in which nothing was launched is none.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from tilewright.gpu.device import GpuInfo, find_gpu

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?|hazards? displayed)")
FOUND = 9  # the exit code that says so


def inner(name: str) -> int:
    """Every rung of a family, at every small size and dtype; what failed goes to stderr.

    Returns:
        0, or 1 where a result was wrong.
    """
    from tilewright.gpu.executor import GpuExecutor
    from tilewright.ladder.compiling import compile_rung
    from tilewright.ladder.family import load_family
    from tilewright.ladder.launching import arch_of, runs_code
    from tilewright.ladder.running import operation
    from tilewright.ladder.specs import rung_spec
    from tilewright.ladder.timing import run_on_gpu
    from tilewright.settings import Settings

    card = _card()
    family, executor, runs, wrong = load_family(name), GpuExecutor(card), 0, 0
    for rung in family.rungs:
        if rung.min_arch is not None and not runs_code(rung.min_arch, card.arch):
            continue
        for dtype in rung.dtypes:
            compiled = compile_rung(rung_spec(family, rung, dtype), Settings.from_environment(), arch_of(rung, card))
            for size in family.emulated_sets(rung):
                done = run_on_gpu(compiled, operation(family, dtype, family.sizes[size]), executor)
                runs += 1
                if not done.passed:
                    wrong += 1
                    print(f"{rung.name} {dtype} {size}: {done.message}", file=sys.stderr)
    print(f"RUNS {runs} WRONG {wrong}")
    return int(wrong > 0)


def outer(name: str, tool: str, limit_s: float) -> dict[str, object]:
    """One process under one tool."""
    # cuda-core asks for parameters until the driver says that there are no more: that is no fault of a kernel.
    quiet = ["--report-api-errors", "no"] if tool == "memcheck" else []
    command = ["compute-sanitizer", "--tool", tool, *quiet, "--error-exitcode", str(FOUND), sys.executable, __file__]
    try:
        done = subprocess.run([*command, "--inner", name], capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return {"family": name, "tool": tool, "verdict": f"not over after {limit_s:.0f} s"}
    said = SUMMARY.search(done.stdout + done.stderr)
    runs = re.search(r"RUNS (\d+) WRONG (\d+)", done.stdout)
    clean = done.returncode == 0 and said is not None and said.group(1) == "0" and runs is not None
    row: dict[str, object] = {"family": name, "tool": tool, "verdict": "clean" if clean else "faults"}
    row |= {"errors": int(said.group(1)) if said else None, "runs": int(runs.group(1)) if runs else 0}
    if not clean:
        text = [line for line in (done.stdout + done.stderr).splitlines() if line.strip("= ")]
        row |= {"exit": done.returncode, "said": text[:40]}
    return row


def _card() -> GpuInfo:
    card = find_gpu(0)
    if card is None:
        raise SystemExit("There is no GPU here.")
    return card


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=["memcheck", "racecheck"])
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one process")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--inner", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.inner:
        return inner(args.inner)
    card = _card()
    pairs = [(name, tool) for tool in args.tools for name in args.families]
    with ThreadPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(lambda pair: outer(*pair, args.limit), pairs))
    for row in rows:
        print(f"{row['family']:<18} {row['tool']:<10} {row['verdict']:<8} {row.get('runs', 0)} runs")
    if args.out:
        date = datetime.now(UTC).isoformat(timespec="seconds")
        told = {"card": card.name, "driver": card.driver, "date": date, "rows": rows}
        args.out.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    return int(any(row["verdict"] != "clean" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
