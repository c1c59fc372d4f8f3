"""One contender in a process of its own: runs once, then once for each line ``run`` that it reads, till its input ends.

Called with contender, example, size and mode. Writes one JSON object a line: the first run (with what is compiled or
decorated only once), each later one, and at the end the peak of its memory.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

KIB = 1024  # the unit of ru_maxrss on Linux


def timed(run: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = run()
    return result, {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


def main() -> None:
    # Answers go where standard output went; what a library prints does not get among them.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    contender, example, size, mode = sys.argv[1:]

    def say(**answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")

    try:
        module = importlib.import_module(f"with_{contender}")
    except ModuleNotFoundError as error:
        say(missing=error.name)
        return
    run, fault = module.prepare(example, int(size), mode)
    before = peak_bytes()
    result, times = timed(run)
    say(first_s=times["wall_s"], versions=module.versions(), peak_bytes_before=before)
    for _ in sys.stdin:
        result, times = timed(run)
        say(**times)
    peak = peak_bytes()  # before the result is looked at: the check's own arrays are no cost of the contender's
    say(peak_bytes=peak, fault=fault(result))


if __name__ == "__main__":
    main()
