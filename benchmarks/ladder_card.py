"""Times the whole ladder on a card: every family and element type, against its peers, over its sweep.

    PYTHONPATH=src python benchmarks/ladder_card.py --out out/card --triton-tutorials CHECKOUT/python/tutorials

Needs PyTorch, which only the processes that time load; nothing is ever forked, here or there. First everything is
built and counted, ``--jobs`` at a time, by processes without PyTorch. Then families are timed in the order that they
are named in (else those of many rungs first), ``--at-once`` at a time, each in a fresh interpreter: what is timed has
the card for itself (``measure/turns.py``), while the others load, compile and check. A record is written as soon as an
element type is done: a process that crashes, or takes too long, loses that element type and nothing else, and the
family's others are begun anew.

``OUT/records`` holds a record for each family and element type; ``OUT/ladder.tar.gz`` one a family, joined, for
``results/``; ``OUT/ladder.txt`` the same as text (both anew after each family); ``OUT/ladder.log`` seconds, who waited
for the card and who had it, and what went wrong. ``--have OUT/records`` (or a folder of ``ladder-FAMILY.json``) leaves
out what an earlier run did; ``--build-only --card FILE`` builds for a card that is not here, whose cache may then be
carried to it.

Where time is short, all sizes get fewer rounds; sizes are left out only where there is no time at all. ``ladder.log``
says what it came to, and what the rest would take at that pace.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tilewright.errors import TilewrightError
from tilewright.gpu.device import GpuInfo
from tilewright.ladder.bench_text import grouped, summary
from tilewright.ladder.building import Build, build_apart, builds_of
from tilewright.ladder.family import Family, load_families, load_family
from tilewright.ladder.report import LadderBench, joined, split
from tilewright.ladder.report_text import render_bench
from tilewright.ladder.sweep import sweep_sizes
from tilewright.ladder.yardstick import build_copy
from tilewright.settings import Settings

BUILD_SHARE = 0.35  # of the time, at the most
PATIENCE = 1.6  # times its share of what is left is when a family begins no further sizes
GRACE_S = 30.0  # until it is stopped then
LEAST_S = 15.0  # with less left, nothing is begun
AT_ONCE = 6  # families; as many of the largest sizes, with what checks them, take about 100 of an H200's 139 GiB
TURNS = "turns: "  # as a bench begins the line that says how long it had the card
NOT_BEGUN = "not begun: "  # as ``peer_bench`` says of sizes that it left out
ASK = "import sys, msgspec; from tilewright.gpu.device import find_gpu; print(msgspec.json.encode(find_gpu()).decode())"
Parts = dict[tuple[str, str], LadderBench]


@dataclass(frozen=True)
class Bench:
    """How a family is timed. ``command``: what is called; ``more``: words for all families."""

    command: tuple[str, ...]
    more: tuple[str, ...]
    records: Path

    def words(self, family: str, dtypes: Iterable[str], *more: str) -> list[str]:
        return [*self.command, family, "--dtype", ",".join(dtypes), *self.more, *more]

    def file(self, family: str, dtype: str) -> Path:
        return self.records / f"ladder-{family}-{dtype}.json"


def card_here() -> GpuInfo | None:
    """The card, asked for by another process."""
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, env=environment())
    if done.returncode:
        sys.exit(f"asking for the card: exit code {done.returncode}: {done.stderr[-1500:]}")
    return msgspec.json.decode(done.stdout, type=GpuInfo | None)


def environment() -> dict[str, str]:
    """What processes that time are told: where they were if they crash, and to start no processes of their own."""
    return {"PYTHONFAULTHANDLER": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1", **os.environ}


def planned(families: Mapping[str, tuple[str, ...]], has_sweep: bool, info: GpuInfo) -> list[Build]:
    """What has to be built for families and their element types."""
    out: list[Build] = []
    for name, dtypes in families.items():
        family = load_family(name)
        sets: list[tuple[str, Mapping[str, int]]] = [("default", family.sizes["default"])]
        sets += [("", sizes) for sizes in sweep_sizes(family)] if has_sweep else []
        out += builds_of(family, family.rungs, dtypes, sets, info)
    return out


def run_until(words: Sequence[str], log: Path, until: float) -> int | None:
    """A process's exit code; None where it had to be stopped. What it says is in the log."""
    with log.open("wb") as file:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment())
        try:
            return process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None
        finally:
            process.kill()
            process.wait()


def tail(log: Path, most: int = 1500) -> str:
    """What a crash said: from the fault handler's line on, else the end."""
    text = log.read_text(errors="replace")
    at = text.find("Fatal Python error")
    return text[at:][:most] if at >= 0 else text[-most:]


def time_family(bench: Bench, name: str, dtypes: Sequence[str], enough: float, end: float, say: Say) -> Parts:
    """Time a family's element types. A process that ends without a record of one is begun anew for those behind it.

    Args:
        enough: when no further sizes are begun, end: when everything is over, both of ``time.monotonic``.
    """
    todo, found = list(dtypes), Parts()
    while todo and end - time.monotonic() > LEAST_S:
        begin, began_at = time.monotonic(), time.time()
        log = bench.records / f"{name}.log"
        for dtype in todo:
            bench.file(name, dtype).unlink(missing_ok=True)
        most = max(LEAST_S, enough - begin)
        words = bench.words(name, todo, "--records", str(bench.records), "--at-most", f"{most:.0f}")
        code = run_until(words, log, min(end, begin + most + GRACE_S))
        say.all(f"{name}: {line}" for line in log.read_text(errors="replace").splitlines() if line.startswith(TURNS))
        done = [dtype for dtype in todo if bench.file(name, dtype).exists()]
        for dtype in done:
            file = bench.file(name, dtype)
            report = read(file)
            if report is not None:
                found[name, dtype] = report
                say(f"{name} {dtype}: {told(report)} ({file.stat().st_mtime - began_at:.0f} s from the start)")
        todo = [dtype for dtype in todo if dtype not in done]
        if code is None:
            say(f"{name} {' '.join(todo)}: stopped, out of time")
            break
        if todo:  # a process that did one, and then no more, may have broken what it was in: the next one tells
            first = todo[0] if done else todo.pop(0)
            say(f"{name} {first}: no record ({time.monotonic() - begin:.0f} s); exit code {code}: {tail(log)}")
    if todo:
        say(f"{name} {' '.join(todo)}: not done, out of time")
    return found


def read(file: Path) -> LadderBench | None:
    """A record; None for a file that is none."""
    with suppress(msgspec.DecodeError, msgspec.ValidationError, OSError):
        return msgspec.json.decode(file.read_bytes(), type=LadderBench)
    return None


def told(report: LadderBench) -> str:
    """A record in a line."""
    failed = [f"{r.rung} failed" for r in report.rungs if r.verdict == "failed"]
    lines = [f"{' '.join(key).strip()} {summary(points)}" for key, points in grouped(report.points).items()]
    return "; ".join(lines + failed) or f"{len(report.rungs)} rungs"


def records_of(folder: Path) -> Parts:
    """What earlier runs left: records of families, and of their element types, the newest where there are several."""
    parts = Parts()
    for file in sorted(folder.glob("ladder-*.json")):
        report = read(file)
        for dtype, part in split(report).items() if report is not None else ():
            key = (part.family, dtype)
            if key not in parts or parts[key].date <= part.date:
                parts[key] = part
    return parts


def is_whole(part: LadderBench) -> bool:
    """Nothing of it was left out."""
    return not any(point.message.startswith(NOT_BEGUN) for point in part.points)


def order_of(key: tuple[str, str], dtypes: Sequence[str]) -> int:
    return dtypes.index(key[1]) if key[1] in dtypes else len(dtypes)


def conditions(part: LadderBench) -> tuple[str, ...]:
    """What benches have to share that are joined."""
    return part.card, part.torch, part.triton, part.compiled


def pack(parts: Parts, out: Path) -> None:
    """What there is so far."""
    texts = []
    with tarfile.open(out / "ladder.new", "w:gz") as packed:
        for name in dict.fromkeys(family for family, _ in parts):
            order = load_family(name).dtypes
            mine = [
                part
                for (family, _), part in sorted(parts.items(), key=lambda item: order_of(item[0], order))
                if family == name
            ]
            newest = max(mine, key=lambda part: part.date)
            report = joined([part for part in mine if conditions(part) == conditions(newest)])
            file = out / f"ladder-{name}.json"
            file.write_bytes(msgspec.json.encode(rounded(msgspec.to_builtins(report))) + b"\n")
            packed.add(file, file.name)
            texts.append(render_bench(report, width=190))
            file.unlink()
    (out / "ladder.new").replace(out / "ladder.tar.gz")
    (out / "ladder.txt").write_text("\n".join(texts), "utf-8")


def rounded(value: object) -> object:
    """A record with numbers of five digits: no card repeats more, and a file is half as long."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list | tuple) else value


class Say:
    """Prints lines as they come, and adds them to a file: a run that is stopped leaves them."""

    def __init__(self, file: Path) -> None:
        self._file, self._lock = file, threading.Lock()

    def __call__(self, line: str) -> None:
        with self._lock, self._file.open("a", encoding="utf-8") as log:
            log.write(f"{line}\n")
            print(line, flush=True)

    def all(self, lines: Iterable[str]) -> None:
        for line in lines:
            self(line)


def warm(bench: Bench, families: Mapping[str, tuple[str, ...]], jobs: int, until: float, say: Say) -> None:
    """Have PyTorch and Triton compile, several at a time, what they will be asked for, into their caches."""
    queue = [(name, dtype) for name, dtypes in families.items() for dtype in dtypes]

    def serve() -> None:
        while time.monotonic() < until:
            try:
                name, dtype = queue.pop(0)
            except IndexError:
                return
            log = bench.records / f"warm-{name}-{dtype}.log"
            code = run_until(bench.words(name, [dtype], "--build-only"), log, until)
            if code:
                say(f"warming {name} {dtype}: exit code {code}: {tail(log, 600)}")

    threads = [threading.Thread(target=serve) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def wanted(names: Sequence[str], dtype: str, have: Parts) -> dict[str, tuple[str, ...]]:
    """The element types of each family that are not whole yet, in the order of the names; else the longest first."""
    chosen: list[Family] = [load_family(name) for name in names]
    if not names:  # the longest first: one that is begun last has the card, and the rest of the time, for itself
        chosen = sorted(load_families(), key=lambda family: -len(family.rungs) * len(family.dtypes))
    out = {}
    for family in chosen:
        asked = family.dtypes if dtype == "all" else tuple(d for d in dtype.split(",") if d in family.dtypes)
        left = tuple(d for d in asked if (family.name, d) not in have or not is_whole(have[family.name, d]))
        if left:
            out[family.name] = left
    return out


def read_words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help="the most important one first; default: all")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--have", type=Path, help="a folder of records: what is in it is not timed again")
    parser.add_argument("--triton-tutorials", type=Path)
    parser.add_argument("--dtype", default="all", help="one, or several with commas between")
    parser.add_argument("--compile", default="auto", choices=("auto", "static", "off"))
    parser.add_argument("--seconds", default="0.05", help="for each set of sizes")
    parser.add_argument("--budget", type=float, default=530.0, help="seconds, all together")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="families, which take turns at the card")
    parser.add_argument(
        "--warm", type=float, default=0.0, help="seconds for PyTorch to compile beforehand, in parallel"
    )
    parser.add_argument("--no-sweep", action="store_true")
    parser.add_argument("--autotune", action="store_true", help="best without the sweep: a minute a family")
    parser.add_argument("--build-only", action="store_true", help="fill the cache, and time nothing")
    parser.add_argument("--card", type=Path, help="JSON of a GpuInfo to build for, in place of the card that is here")
    parser.add_argument("--command", nargs="+", help="in place of `tilewright ladder bench`, for tests")
    return parser.parse_args()


def main() -> None:
    args = read_words()
    begin = time.monotonic()
    end = begin + args.budget
    info = msgspec.json.decode(args.card.read_bytes(), type=GpuInfo) if args.card else card_here()
    if info is None:
        sys.exit("there is no GPU here")
    records = args.out / "records"
    records.mkdir(parents=True, exist_ok=True)
    say = Say(args.out / "ladder.log")
    parts = records_of(args.have) if args.have else Parts()
    parts = {key: part for key, part in parts.items() if part.card == info.name}
    families = wanted(args.families, args.dtype, parts)
    say(f"{info.name}, {info.arch}: {sum(map(len, families.values()))} to do, {len(parts)} there")

    more = ["--compile", args.compile, "--seconds", args.seconds]
    more += [] if args.no_sweep else ["--sweep"]
    more += ["--autotune"] if args.autotune else []
    more += ["--triton-tutorials", str(args.triton_tutorials)] if args.triton_tutorials else []
    if args.at_once > 1:
        more += ["--turns", str(args.out / "turns"), "--at-once", str(args.at_once)]
    command = args.command or (sys.executable, "-m", "tilewright", "ladder", "bench")
    bench = Bench(tuple(command), tuple(more), records)

    builds = planned(families, not args.no_sweep, info)
    settings = Settings.from_environment()
    for line in build_apart(builds, info, settings, args.jobs, begin + BUILD_SHARE * args.budget):
        say(f"building {line}")
    with suppress(TilewrightError):  # who needs it says so
        build_copy(info.arch, settings)
    say(f"{len(builds)} builds: {time.monotonic() - begin:.0f} s")
    if args.build_only:
        return
    if args.warm:
        warm(bench, families, args.jobs, min(end, time.monotonic() + args.warm), say)
        say(f"warmed: {time.monotonic() - begin:.0f} s since the start")
    time_all(bench, families, parts, args.out, end, say, args.at_once)


def enough_for(weight: float, ahead: float, now: float, end: float, at_once: int) -> float:
    """When a family begins no further sizes: its share of what is left, and a bit more, for some need less.

    Args:
        weight: of the family. ahead: of it, of all that are not begun, and of what others have yet to do.
    """
    left = end - LEAST_S / 3 - now
    return now + left * min(1.0, PATIENCE * at_once * weight / ahead)


def time_all(
    bench: Bench,
    families: Mapping[str, tuple[str, ...]],
    parts: Parts,
    out: Path,
    end: float,
    say: Say,
    at_once: int = 1,
) -> None:
    """So many families at a time, one after another. One weighs as much as it has element types, and one more: for
    loading PyTorch, and compiling for the first time."""
    weights = {name: len(dtypes) + 1 for name, dtypes in families.items()}
    whole, begin = sum(weights.values()), time.monotonic()
    queue, running, lock = deque(families), set[str](), threading.Lock()

    def ahead() -> float:
        return sum(weights[name] for name in queue) + sum(weights[name] for name in running) / 2

    def serve() -> None:
        while True:
            with lock:
                if not queue:
                    return
                name, now = queue.popleft(), time.monotonic()
                enough = enough_for(weights[name], weights[name] + ahead(), now, end, at_once)
                running.add(name)
            if end - now < LEAST_S:
                say(f"{name}: not begun, out of time")
                found = Parts()
            else:
                found = time_family(bench, name, families[name], enough, end, say)
            with lock:
                running.remove(name)
                if not found:
                    continue
                parts.update(found)
                took, rest = time.monotonic() - now, ahead()
                pace = (time.monotonic() - begin) / (whole - rest) * rest
                left_s = end - time.monotonic()
                say(f"{name}: {took:.0f} s; at this pace the rest would take {pace:.0f} s; {left_s:.0f} s left")
                pack(parts, out)

    threads = [threading.Thread(target=serve) for _ in range(max(1, min(at_once, len(families))))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pack(parts, out)


if __name__ == "__main__":
    main()
