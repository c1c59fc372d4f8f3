"""What a bench will need, built beforehand: a list of builds, which processes without PyTorch may share out."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from tilewright.errors import TilewrightError
from tilewright.ladder.compiling import compile_rung
from tilewright.ladder.counted import counted
from tilewright.ladder.family import Family, Rung, load_family
from tilewright.ladder.launching import arch_of, runs_code
from tilewright.ladder.picking import best_of, groups_of
from tilewright.ladder.specs import rung_spec
from tilewright.settings import Settings

if TYPE_CHECKING:
    from tilewright.gpu.device import GpuInfo


@dataclass(frozen=True)
class Build:
    """One rung for one element type.

    Attributes:
        sizes: that its defines follow, ``(("N", 4096), ...)``; None for those of its file.
        is_counted: what the emulator counts of it is wanted, too.
    """

    family: str
    rung: str
    dtype: str
    sizes: tuple[tuple[str, int], ...] | None = None
    is_counted: bool = False

    @property
    def title(self) -> str:
        """``softmax 02_block float16 R=1 C=31``."""
        at = "" if self.sizes is None else "".join(f" {name}={value}" for name, value in self.sizes)
        return f"{self.family} {self.rung} {self.dtype}{at}"


def builds_of(
    family: Family,
    rungs: Iterable[Rung],
    dtypes: Iterable[str],
    sets: Iterable[tuple[str, Mapping[str, int]]],
    info: GpuInfo,
) -> tuple[Build, ...]:
    """What ``timing.bench`` needs at the sets that have a name, and ``bench_peers`` at all; each once.

    Those that are counted stand first: they take longest.
    """
    rungs = tuple(r for r in rungs if r.min_arch is None or runs_code(r.min_arch, info.arch))  # the others are not run
    sets = tuple(sets)
    found: dict[tuple[object, ...], Build] = {}

    def want(rung: Rung, dtype: str, sizes: Mapping[str, int] | None) -> None:
        key = (dtype, rung.name, tuple(sorted(rung.defines.items())))
        at = None if sizes is None else tuple(sizes.items())
        found.setdefault(key, Build(family.name, rung.name, dtype, at, is_counted=sizes is None))

    for dtype in dtypes:
        for rung in (r for r in rungs if dtype in r.dtypes):
            want(rung, dtype, None)
        for name, sizes in sets:
            for rung in (r for r in rungs if name and (r.sized or r.choices) and dtype in r.dtypes):
                want(rung.at(sizes, dtype), dtype, sizes)
            for group in groups_of(family):
                best = best_of(family, group, sizes, dtype, info)
                if best is not None:
                    want(family.rung(best.name), dtype, None)
                    want(best, dtype, sizes)
    return tuple(sorted(found.values(), key=lambda build: not build.is_counted))


def build_one(build: Build, info: GpuInfo, settings: Settings) -> str:
    """Build one, into the cache. What is wrong with it; "" for nothing."""
    family = _family(build.family)
    rung = family.rung(build.rung)
    one = rung if build.sizes is None else rung.at(dict(build.sizes), build.dtype)
    try:
        compile_rung(rung_spec(family, one, build.dtype), settings, arch_of(one, info))
        if build.is_counted:
            counted(family, rung, build.dtype, settings)
    except TilewrightError as error:
        return error.message
    return ""


@cache
def _family(name: str) -> Family:
    return load_family(name)


BuildOne = Callable[[Build, "GpuInfo", Settings], str]


def build_apart(
    builds: Iterable[Build],
    info: GpuInfo,
    settings: Settings,
    jobs: int,
    until: float,
    work: BuildOne = build_one,
) -> list[str]:
    """Build in so many processes at a time, each a fresh interpreter: nothing is forked, so what this process has
    loaded cannot break them. One that dies takes its build along, and nothing else.

    Args:
        until: of ``time.monotonic``. work: what is done with one, a function of a module.

    Returns:
        What is wrong, each with the build's title.
    """
    queue, wrong = deque(builds), list[str]()

    def serve() -> None:
        worker: _Worker | None = None
        while queue and time.monotonic() < until:
            try:
                build = queue.popleft()
            except IndexError:  # another one was faster
                break
            worker = worker or _Worker(work, info, settings)
            why = worker.ask(build, until)
            if why:
                wrong.append(f"{build.title}: {why}")
            if not worker.is_alive:
                worker = None
        if worker is not None:
            worker.end()

    threads = [threading.Thread(target=serve) for _ in range(min(jobs, len(queue)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong + [f"{build.title}: not begun, out of time" for build in queue]


class _Worker:
    """A process that builds one after another."""

    def __init__(self, work: BuildOne, info: GpuInfo, settings: Settings) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, work, info, settings), daemon=True)
        self._process.start()
        theirs.close()  # so that the pipe ends with the process
        self.is_alive = True

    def ask(self, build: Build, until: float) -> str:
        """What is wrong with a build. Afterwards the worker may be dead."""
        try:
            self._pipe.send(build)
            if self._pipe.poll(max(0.0, until - time.monotonic())):
                return str(self._pipe.recv())
            why = "stopped, out of time"
        except (EOFError, OSError):
            self._process.join(5.0)
            why = f"its process died, exit code {self._process.exitcode}"
        self.end()
        return why

    def end(self) -> None:
        """Stop it, whatever it does."""
        self.is_alive = False
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _work(pipe: Any, work: BuildOne, info: GpuInfo, settings: Settings) -> None:
    while True:
        try:
            build = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(work(build, info, settings))
        except Exception as error:  # of this one; the next may do
            pipe.send(f"{type(error).__name__}: {error}")
