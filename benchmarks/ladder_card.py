"""Times the whole ladder on a card: every family and element type, against its peers, over its sweep.

    PYTHONPATH=src python benchmarks/ladder_card.py --out out/card --triton-tutorials CHECKOUT/python/tutorials

Needs PyTorch. First everything is built, several families at a time; then families are timed one after the other, each
in a process of its own, so that one that fails, or takes too long, loses nothing but itself. ``ladder.tar.gz`` holds a
record a family (``ladder-FAMILY.json``, for ``results/``), ``ladder.txt`` the same as text, ``ladder.log`` what went
wrong; they are rewritten after each family.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

BUILD_SHARE = 0.35  # of the time, at the most
PATIENCE = 2.5  # times its share of what is left is what a family may take


def child(work: Callable[[], int], out: Path, log: Path) -> int:
    """Start a process that does some work; stdout and stderr go to files. Returns its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for path, number in ((out, 1), (log, 2)):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, number)
        code = work()
        sys.stdout.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def wait(pid: int, until: float) -> int | None:
    """A child's exit code; None where it had to be stopped."""
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def build_all(works: Iterable[tuple[str, Callable[[], int]]], jobs: int, folder: Path, until: float) -> list[str]:
    """Run works, so many at a time. What went wrong."""
    running: dict[int, tuple[str, Path]] = {}
    wrong: list[str] = []
    queue = list(works)
    while (queue or running) and time.monotonic() < until:
        while queue and len(running) < jobs:
            name, work = queue.pop(0)
            log = folder / f"build-{name}.log"
            running[child(work, folder / f"build-{name}.txt", log)] = (name, log)
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            time.sleep(0.05)
            continue
        name, log = running.pop(pid)
        if status:
            wrong.append(f"building {name}: {log.read_text(errors='replace')[-500:]}")
    for pid, (name, _) in running.items():
        wait(pid, 0.0)
        wrong.append(f"building {name}: stopped, out of time")
    return wrong + [f"building {name}: not begun, out of time" for name, _ in queue]


def touch_card() -> int:
    """Whether a process that was forked can use the card."""
    import torch

    return int(torch.ones(1, device="cuda").sum().item() != 1)


def pack(folder: Path, out: Path, log: list[str]) -> None:
    """What there is so far."""
    import msgspec

    from tilewright.ladder.report import LadderBench
    from tilewright.ladder.report_text import render_bench

    texts = []
    with tarfile.open(out / "ladder.new", "w:gz") as packed:
        for file in sorted(folder.glob("ladder-*.json")):
            with suppress(msgspec.DecodeError):  # of one that is being written, or was stopped
                texts.append(render_bench(msgspec.json.decode(file.read_bytes(), type=LadderBench), width=190))
                packed.add(file, file.name)
    (out / "ladder.new").replace(out / "ladder.tar.gz")
    (out / "ladder.txt").write_text("\n".join(texts), "utf-8")
    (out / "ladder.log").write_text("\n".join(log) + "\n", "utf-8")


def told(file: Path) -> str:
    """A family in a line."""
    import msgspec

    from tilewright.ladder.bench_text import grouped, summary
    from tilewright.ladder.report import LadderBench

    with suppress(msgspec.DecodeError, OSError):
        report = msgspec.json.decode(file.read_bytes(), type=LadderBench)
        return "; ".join(
            f"{' '.join(key).strip()}: {summary(points)}" for key, points in grouped(report.points).items()
        )
    return "no record"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help="default: all")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--triton-tutorials", type=Path)
    parser.add_argument("--dtype", default="all")
    parser.add_argument("--compile", default="auto", choices=("auto", "static", "off"))
    parser.add_argument("--seconds", default="0.05", help="for each set of sizes")
    parser.add_argument("--budget", type=float, default=530.0, help="seconds, all together")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--no-sweep", action="store_true")
    parser.add_argument("--autotune", action="store_true", help="best without the sweep: a minute a family")
    args = parser.parse_args()
    end = time.monotonic() + args.budget
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # asking for a card leaves no context behind
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # processes of its own would cost each family seconds

    import torch._dynamo
    import torch._inductor.compile_fx  # noqa: F401  # once, for all children

    from tilewright.cli.app import main as tilewright
    from tilewright.ladder.family import KERNELS, load_family

    names = args.families or sorted(file.parent.name for file in KERNELS.glob("*/ladder.toml"))
    more = ["--compile", args.compile, "--seconds", args.seconds]
    more += [] if args.no_sweep else ["--sweep"]
    more += ["--autotune"] if args.autotune else []
    more += ["--triton-tutorials", str(args.triton_tutorials)] if args.triton_tutorials else []

    folder = Path(tempfile.mkdtemp())
    is_clean = wait(child(touch_card, folder / "touch.txt", folder / "touch.log"), time.monotonic() + 30) == 0

    def bench(name: str, dtype: str, flag: str) -> Callable[[], int]:
        words = ["ladder", "bench", name, "--dtype", dtype, *more, flag]
        if is_clean:
            return lambda: tilewright(words)
        # Importing has touched the card here, and a forked process cannot use it then.
        return lambda: os.execv(sys.executable, [sys.executable, "-m", "tilewright", *words])

    args.out.mkdir(parents=True, exist_ok=True)
    dtypes = {name: load_family(name).dtypes if args.dtype == "all" else (args.dtype,) for name in names}
    works = [(f"{name}-{dtype}", bench(name, dtype, "--build-only")) for name in names for dtype in dtypes[name]]
    log = [] if is_clean else ["processes are started anew: the card is in use once PyTorch is imported"]
    log += build_all(works, args.jobs, folder, time.monotonic() + BUILD_SHARE * args.budget)
    print(f"built, {end - time.monotonic():.0f} s left", *log, sep="\n", flush=True)
    for left, name in zip(range(len(names), 0, -1), names, strict=True):
        begin = time.monotonic()
        if end - begin < 5:
            log.append(f"{name}: not begun, out of time")
            continue
        until = min(end, begin + PATIENCE * (end - begin) / left)
        file = folder / f"ladder-{name}.json"
        code = wait(child(bench(name, args.dtype, "--json"), file, folder / f"{name}.log"), until)
        line = f"{name}: {told(file)} ({time.monotonic() - begin:.0f} s)"
        if code:
            said = "".join(f.read_text(errors="replace")[-700:] for f in (folder / f"{name}.log", file))
            line += f"; exit code {code}: {said}"
        log.append(line if code is not None else f"{name}: stopped, out of time")
        print(log[-1], flush=True)
        pack(folder, args.out, log)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
