"""NVIDIA's compute-sanitizer over every rung of a family at its small sizes, on a card; one record of what it says.

    python benchmarks/ladder_sanitizer.py hgemm matmul --tools memcheck racecheck --out benchmarks/results/NAME.json

A few rungs and a tool are a process of their own, several at once: the tools slow kernels down and the card waits.
Where a group is not clean each of its rungs is run alone, so that a finding has its rung. What `KNOWN` explains is run
once more with the control's edits, and with a race put into those; it counts as explained only where the first is clean
and the second is not. What a rung computes is judged as well, so that a run in which nothing was launched is none.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from sanitizer_reports import SUMMARY, Finding, edited, findings, known_of

from tilewright.gpu.device import GpuInfo, find_gpu

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
FOUND = 9  # the exit code that says so
# cuda-core asks for parameters until the driver says that there are no more: that is no fault of a kernel.
OPTIONS = {"memcheck": ["--report-api-errors", "no"], "racecheck": ["--racecheck-num-workers", "2"]}

Edits = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Job:
    """Rungs of a family under one tool. edits: of the source of each, of a control."""

    family: str
    tool: str
    rungs: tuple[str, ...]
    edits: Edits = ()


@dataclass(frozen=True)
class Outcome:
    """failure: why it is none: a time limit, wrong results, no launch; "" otherwise."""

    job: Job
    runs: int
    findings: tuple[Finding, ...]
    failure: str = ""

    @property
    def is_clean(self) -> bool:
        return not self.findings and not self.failure


def inner(name: str, rungs: Sequence[str], edits: Edits) -> int:
    """Rungs of a family, at every small size and dtype; what failed goes to stderr.

    Returns:
        0, or 1 where a result was wrong.
    """
    from tilewright.gpu.executor import GpuExecutor
    from tilewright.ladder.compiling import compile_rung
    from tilewright.ladder.family import load_family
    from tilewright.ladder.launching import arch_of
    from tilewright.ladder.running import operation
    from tilewright.ladder.specs import rung_spec
    from tilewright.ladder.timing import run_on_gpu
    from tilewright.settings import Settings

    card = _card()
    family, executor, runs, wrong = load_family(name), GpuExecutor(card), 0, 0
    for rung in map(family.rung, rungs):
        text = edited(rung.file, edits) if edits else None
        for dtype in rung.dtypes:
            spec = rung_spec(family, rung, dtype)
            compiled = compile_rung(spec, Settings.from_environment(), arch_of(rung, card), text=text)
            for size in family.emulated_sets(rung):
                print(f"RUN {rung.name} {dtype} {size}", flush=True)
                done = run_on_gpu(compiled, operation(family, dtype, family.sizes[size]), executor)
                runs += 1
                if not done.passed:
                    wrong += 1
                    print(f"WRONG {rung.name} {dtype} {size}: {done.message}", file=sys.stderr)
    print(f"RUNS {runs} WRONG {wrong}")
    return int(wrong > 0)


def outer(job: Job, sanitizer: str, limit_s: float) -> Outcome:
    """One process under one tool."""
    command = [sanitizer, "--tool", job.tool, "--print-limit", "3000", "--show-backtrace", "device"]
    command += [*OPTIONS.get(job.tool, []), "--error-exitcode", str(FOUND), sys.executable, __file__]
    command += ["--inner", job.family, "--rungs", *job.rungs, "--edits", json.dumps(job.edits)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(job, 0, (), f"not over after {limit_s:.0f} s")
    text = done.stdout + "\n" + done.stderr
    runs = re.search(r"RUNS (\d+) WRONG (\d+)", done.stdout)
    said, found = SUMMARY.search(text), findings(text)
    last = next((line for line in reversed(text.splitlines()) if line.strip("= ")), "")
    failure = ""
    if runs is None or said is None:
        failure = f"exit {done.returncode}, no summary: {last}"
    elif runs.group(2) != "0":
        failure = f"{runs.group(2)} wrong results"
    elif not found and (done.returncode != 0 or said.group(1) != "0"):
        failure = f"exit {done.returncode}, {said.group(1)} reports, none of them read"
    return Outcome(job, int(runs.group(1)) if runs else 0, found, failure)


def rows_of(done: Iterable[Outcome], run: Callable[[list[Job]], list[Outcome]]) -> list[dict[str, object]]:
    """Of groups that have run: those that are not clean rung by rung, with their controls; a row a family and tool.

    Args:
        run: many jobs at once, their outcomes in the same order.
    """
    done = list(done)
    unclean = [o for o in done if not o.is_clean]
    apart = [Job(o.job.family, o.job.tool, (rung,)) for o in unclean if len(o.job.rungs) > 1 for rung in o.job.rungs]
    alone = [*run(apart), *(o for o in unclean if len(o.job.rungs) == 1)]
    single = {(o.job.family, o.job.tool, o.job.rungs[0]): o for o in alone}
    known = {
        (o.job.family, o.job.tool, o.job.rungs[0], edits)
        for o in single.values()
        for found in o.findings
        if (entry := known_of(found, o.job.tool, o.job.family, o.job.rungs[0])) is not None
        for edits in (entry.edits, entry.edits + entry.broken)
    }
    controls = [Job(family, tool, (rung,), edits) for family, tool, rung, edits in sorted(known)]
    checked = {(o.job.family, o.job.tool, o.job.rungs[0], o.job.edits): o for o in run(controls)}
    rows: dict[tuple[str, str], dict[str, object]] = {}
    for outcome in done:
        key = outcome.job.family, outcome.job.tool
        row = rows.setdefault(key, {"family": key[0], "tool": key[1], "verdict": "clean", "runs": 0, "findings": []})
        row["runs"] = int(str(row["runs"])) + outcome.runs
        if outcome.is_clean:
            continue
        of_rungs = [single[(*key, rung)] for rung in outcome.job.rungs]
        if all(o.is_clean for o in of_rungs):  # it was there, and is not attributed
            of_rungs = [outcome]
        told = [entry for o in of_rungs for entry in _told(o, checked)]
        row["findings"] = [*row["findings"], *told]  # type: ignore[misc]
        explained = row["verdict"] != "faults" and all(entry.get("explained") for entry in told)
        row["verdict"] = "explained" if explained else "faults"
    return list(rows.values())


def _told(outcome: Outcome, checked: dict[tuple[str, str, str, Edits], Outcome]) -> list[dict[str, object]]:
    """A rung's findings for the record; `explained`: why one is no fault, where the control says so too."""
    job, told = outcome.job, []
    for found in outcome.findings:
        entry: dict[str, object] = {"rung": " ".join(job.rungs), **asdict(found)}
        known = known_of(found, job.tool, job.family, job.rungs[0]) if len(job.rungs) == 1 else None
        if known is not None:
            of_rung = job.family, job.tool, job.rungs[0]
            control, broken = checked[*of_rung, known.edits], checked[*of_rung, known.edits + known.broken]
            entry["control"] = f"{_said(control)}; broken: {_said(broken)}"
            races = any(each.what.startswith("race") for each in broken.findings)
            if control.is_clean and control.runs == outcome.runs and races:
                entry["explained"] = known.why
        told.append(entry)
    if outcome.failure:
        told.append({"rung": " ".join(job.rungs), "what": outcome.failure})
    return told


def _said(outcome: Outcome) -> str:
    words = f"{sum(each.reports for each in outcome.findings)} reports in {outcome.runs} runs"
    return f"{words}, {outcome.failure}" if outcome.failure else words


def groups(name: str, tool: str, card: GpuInfo, size: int) -> list[Job]:
    """A family's rungs that run on a card, so many a process; one of each `size`-th, as neighbours cost alike."""
    from tilewright.ladder.family import load_family
    from tilewright.ladder.launching import runs_code

    rungs = [r.name for r in load_family(name).rungs if r.min_arch is None or runs_code(r.min_arch, card.arch)]
    count = max(1, round(len(rungs) / size))
    return [Job(name, tool, tuple(rungs[i::count])) for i in range(count)]


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
    parser.add_argument("--group", type=int, default=4, help="rungs of one process")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one process")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds for all; what has no time left is said")
    parser.add_argument("--sanitizer", default="compute-sanitizer", help="the program")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--inner", help=argparse.SUPPRESS)
    parser.add_argument("--rungs", nargs="*", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--edits", type=json.loads, default=[], help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.inner:
        return inner(args.inner, args.rungs, tuple((old, new) for old, new in args.edits))
    card = _card()
    deadline = time.monotonic() + args.budget
    with ThreadPoolExecutor(args.jobs) as pool:

        def one(job: Job) -> Outcome:
            limit_s = min(args.limit, deadline - time.monotonic())
            return outer(job, args.sanitizer, limit_s) if limit_s > 1 else Outcome(job, 0, (), "no time left for it")

        def run(jobs: list[Job]) -> list[Outcome]:
            return list(pool.map(one, jobs))

        jobs = [job for tool in args.tools for name in args.families for job in groups(name, tool, card, args.group)]
        rows = rows_of(run(jobs), run)
    for row in rows:
        print(f"{row['family']:<18} {row['tool']:<10} {row['verdict']:<10} {row['runs']} runs")
        for entry in row["findings"]:  # type: ignore[attr-defined]
            places = " ".join(f"{file}:{line}" for file, line in entry.get("places", ()))
            print(f"    {entry['rung']}: {entry['what']} {places}{' (explained)' if entry.get('explained') else ''}")
    if args.out:
        date = datetime.now(UTC).isoformat(timespec="seconds")
        asked = subprocess.run([args.sanitizer, "--version"], capture_output=True, text=True, check=False)
        version = next((line for line in asked.stdout.splitlines() if line.startswith("Version")), "")
        told = {"card": card.name, "driver": card.driver, "sanitizer": version, "date": date, "rows": rows}
        args.out.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    return int(any(row["verdict"] == "faults" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
