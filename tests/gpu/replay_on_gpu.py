"""Makes the launches of a file of replays on the GPU that is here, and compares what they leave behind.

    python tests/gpu/replay_on_gpu.py REPLAYS --out result.json --raw raw.zip

A kernel of the table has a process of its own; the other launches share one until it fails. A launch that takes longer
than a limit loses its process and nothing else. Needs Python, NumPy and cuda-bindings.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from distances import compare
from replays import Archive, Gpu, GpuError, Replay

KERNEL_LIMIT_S, LIMIT_S = 20.0, 5.0
START_S = 60.0  # a child's first answer: imports, and the driver's start
ENOUGH_FAULTS = 25  # of one group: something is wrong with all of them
NEAR = 2
SHOWN = 6  # of a group; the rest is in the file
RAW_BYTES = 12 << 20
SAME, DIFFERS, ERROR = "same", "differs", "error"


def child(path: Path, raw: Path) -> None:
    """Runs the cases whose numbers come in, a line of JSON for each."""
    archive = Archive(path)
    gpu = Gpu()
    answers = os.fdopen(os.dup(1), "w")  # printf of a kernel goes to 1
    os.dup2(2, 1)
    for line in sys.stdin:
        index = int(line)
        try:
            answer = one(archive, gpu, index, raw)
        except GpuError as error:
            answer = {"status": ERROR, "message": str(error)}
        answers.write(json.dumps({"index": index, **answer}) + "\n")
        answers.flush()
        if answer["status"] == ERROR:
            os._exit(1)  # the context may be lost: the parent starts another child


def one(archive: Archive, gpu: Gpu, index: int, raw: Path) -> dict[str, Any]:
    replay = archive.replays[index]
    after, seconds = gpu.run(archive, replay)
    found = {}
    for number, (buffer, got) in enumerate(zip(replay.buffers, after, strict=True)):
        want = archive.array(buffer.after or buffer.before)
        if not buffer.is_compared or (not buffer.after and bytes(got) == bytes(want)):
            continue
        distance = compare(buffer.type, got, want)
        found[buffer.name] = distance
        if distance["differ"]:
            (raw / f"{index:05}-{number}").write_bytes(bytes(got))
    differ = any(distance["differ"] for distance in found.values())
    return {"status": DIFFERS if differ else SAME, "seconds": seconds, "buffers": found}


class Child:
    """A process that runs cases one after the other."""

    def __init__(self, path: Path, raw: Path) -> None:
        command = [sys.executable, __file__, str(path), "--child", "--raw", str(raw)]
        with Path(raw, "stderr.txt").open("ab") as said:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._is_new = True

    def ask(self, index: int, limit_s: float) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(f"{index}\n".encode())
            stdin.flush()
        except OSError:
            return {"index": index, "status": ERROR, "message": "CHILD_ENDED: before it was asked"}
        limit_s += START_S if self._is_new else 0.0
        self._is_new = False
        if not self._selector.select(limit_s):
            return {"index": index, "status": ERROR, "message": f"TIMED_OUT: no answer within {limit_s:g} s"}
        line = stdout.readline()
        if not line:
            message = f"CHILD_ENDED: with {self._process.wait()} and no answer"
            return {"index": index, "status": ERROR, "message": message}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._selector.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # where a kernel hangs, the driver lets it go later
            self._process.wait(10)


def run_all(path: Path, replays: Sequence[Replay], raw: Path, budget_s: float) -> Iterator[dict[str, Any]]:
    """An answer a case, in the order of the file."""
    faults: dict[str, int] = {}
    end = time.monotonic() + budget_s
    running: Child | None = None
    for index, replay in enumerate(replays):
        why = "too many of its group have failed" if faults.get(replay.group, 0) >= ENOUGH_FAULTS else ""
        why = "out of time" if time.monotonic() > end else why
        if why:
            yield {"index": index, "status": ERROR, "message": f"NOT_RUN: {why}"}
            continue
        if running is None:
            running = Child(path, raw)
        answer = running.ask(index, KERNEL_LIMIT_S if replay.group == "kernels" else LIMIT_S)
        if answer["status"] == ERROR:
            faults[replay.group] = faults.get(replay.group, 0) + 1
        if answer["status"] == ERROR or replay.group == "kernels":
            running.end()
            running = None
        yield answer
    if running is not None:
        running.end()


def card() -> dict[str, str]:
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return {"card": "", "driver": ""}
    name, driver = text.splitlines()[0].split(", ")
    return {"card": name, "driver": driver}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("replays", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--raw", type=Path, required=True, help="a zip archive of what differs, to be looked at later")
    parser.add_argument("--budget-s", type=float, default=300.0, help="what has not begun by then is not run")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.replays, options.raw)
        return
    replays = Archive(options.replays).replays
    with tempfile.TemporaryDirectory() as folder:
        answers = list(run_all(options.replays, replays, Path(folder), options.budget_s))
        with zipfile.ZipFile(options.raw, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(Path(folder).iterdir(), reverse=True):  # what children have said, then from the last on
                if options.raw.stat().st_size < RAW_BYTES:
                    archive.write(file, file.name)
    rows = [{"name": r.name, "group": r.group, "note": r.note, **a} for r, a in zip(replays, answers, strict=True)]
    result = {"benchmark": "replay_on_gpu", **card(), "date": datetime.now(UTC).isoformat(timespec="seconds")}
    result["cases"] = rows
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    show(rows)


def show(rows: Sequence[dict[str, Any]]) -> None:
    """A line a group, and a line for each of the first cases that are not the same."""
    for group in dict.fromkeys(row["group"] for row in rows):
        mine = [row for row in rows if row["group"] == group]
        counts = {status: sum(row["status"] == status for row in mine) for status in (SAME, DIFFERS, ERROR)}
        print(f"{group}: {len(mine)} launches, " + ", ".join(f"{n} {status}" for status, n in counts.items()))
        others = [row for row in mine if row["status"] != SAME]
        if group == "probes":
            others = [row for row in others if row["status"] == ERROR or not is_near(row)]
            print(f"  {len(mine) - len(others)} within {NEAR} units in the last place; further:")
        for row in others[: 2 * SHOWN if group == "probes" else SHOWN]:
            label = " / ".join(text for text in (row["name"][:80], row["note"][:40]) if text)
            print(f"  {label}: {said(row)[:120]}")


def is_near(row: dict[str, Any]) -> bool:
    """Units in the last place of each number, or (of sums) of the largest number around."""
    found = [found for found in row["buffers"].values() if found["differ"]]
    return all(
        not one.get("special") and min(one.get("ulp", NEAR + 1), one.get("of_largest", NEAR + 1)) <= NEAR
        for one in found
    )


def said(row: dict[str, Any]) -> str:
    if row["status"] == ERROR:
        return str(row["message"])
    parts = []
    for name, found in row["buffers"].items():
        if found["differ"]:
            found = {key: value for key, value in found.items() if value}
            parts.append(
                " ".join([name, *(f"{k}={v if k != 'of_largest' else round(v, 2)}" for k, v in found.items())])
            )
    return "; ".join(parts)


if __name__ == "__main__":
    main()
