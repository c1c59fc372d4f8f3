"""Nsight Compute beside cuBLAS at sizes of HGEMM: what stalls, how busy tensor cores, L2 and memory are, which clock.

    PYTHONPATH=src python benchmarks/hgemm_profile.py 4097x4104x4104 1024x1024x4096 --out benchmarks/results/NAME.json

Needs PyTorch and ``ncu`` on a card. Each kernel is run alone, several times over with its data as the run before left
it: times are those of a profiler, and comparable with each other only.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

SECTIONS = ("SpeedOfLight", "ComputeWorkloadAnalysis", "WarpStateStats", "LaunchStats")
# name in the report → name in the record
KEPT = {
    "Duration": "duration",
    "SM Frequency": "sm_clock",
    "Compute (SM) Throughput": "sm_busy",
    "L2 Cache Throughput": "l2_busy",
    "L1/TEX Cache Throughput": "l1_busy",
    "DRAM Throughput": "dram_busy",
    "L2 Hit Rate": "l2_hits",
    "SM Busy": "issue_busy",
    "Grid Size": "blocks",
    "Block Size": "threads",
    "Registers Per Thread": "registers",
    "Waves Per SM": "waves",
}
WORDS = ("stall", "tensor", "gmma")  # what names of further figures that are kept have in them


def inner(shapes: Iterable[str]) -> None:
    """One call of each side, behind one that compiles and is left out (`profiled` counts launches from a mark on)."""
    import torch

    from tilewright import ops

    for shape in shapes:
        m, n, k = map(int, shape.split("x"))
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
        for call in (torch.mm, ops.hgemm):
            call(a, b)
            torch.cuda.synchronize()
        torch.cuda.nvtx.range_push("profiled")
        for call in (torch.mm, ops.hgemm):
            call(a, b)
            torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()


def profiled(shapes: Sequence[str], limit_s: float) -> list[dict[str, object]]:
    """A row a kernel: of each shape torch.mm's, then ours, the last of which is called hgemm."""
    command = ["ncu", "--clock-control", "none", "--nvtx", "--nvtx-include", "profiled/", "--csv", "--page", "details"]
    command += ["--print-details", "all"]
    for section in SECTIONS:
        command += ["--section", section]
    command += [sys.executable, __file__, *shapes, "--inner"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    lines = done.stdout.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return [{"error": (done.stdout + done.stderr)[-2000:]}]
    kernels: dict[str, dict[str, object]] = {}
    left = list(shapes)
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        if row["ID"] not in kernels:
            name = row["Kernel Name"]
            kernels[row["ID"]] = {"shape": left[0] if left else "", "kernel": name[:80]}
            if name.startswith("hgemm"):
                left = left[1:]
        kernels[row["ID"]].update(figure(row))
    return list(kernels.values())


def figure(row: Mapping[str, str]) -> dict[str, object]:
    """A line of the profiler's table, where it is one that is kept."""
    name, value = row["Metric Name"], row["Metric Value"].replace(",", "")
    short = KEPT.get(name) or (name if any(word in name.lower() for word in WORDS) else "")
    if not short or not value:
        return {}
    try:
        return {short: f"{float(value):g} {row['Metric Unit']}".strip()}
    except ValueError:
        return {short: value}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="+")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.inner:
        return inner(args.shapes)
    rows = profiled(args.shapes, args.limit)
    for row in rows:
        print(json.dumps(row))
    if args.out:
        date = datetime.now(UTC).isoformat(timespec="seconds")
        args.out.write_text(json.dumps({"date": date, "rows": rows}, indent=1) + "\n", "utf-8")
    return None


if __name__ == "__main__":
    main()
