"""The best rung of each set of sizes against PyTorch, ``torch.compile`` and Triton's tutorials, on a card."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilewright.errors import EXIT_MISSING, TilewrightError
from tilewright.gpu.driver import DeviceError
from tilewright.gpu.executor import GpuExecutor
from tilewright.ladder.arena import Arena
from tilewright.ladder.comparing import Contender, contest, sentence
from tilewright.ladder.compiled_peers import CompiledPeers, PeerOptions, compiling_aside, load_compiler
from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.counted import Counted, counted, of_this_tile, threads_of
from tilewright.ladder.family import Family, Rung
from tilewright.ladder.graphs import GraphClock, Protocol, card_rates, flush_bytes, host_us, protocol_for
from tilewright.ladder.launching import arch_of
from tilewright.ladder.pacing import Pace
from tilewright.ladder.peers import Tutorial, peers_of, tutorial_of
from tilewright.ladder.picking import best_of, groups_of
from tilewright.ladder.predicting import CardRates, Foretold, precision_of, predict, rates_of
from tilewright.ladder.report import PeerPoint, TimedContender
from tilewright.ladder.specs import figure, rung_spec
from tilewright.ladder.tutorials import load_tutorial
from tilewright.ladder.yardstick import build_copy, load_copy
from tilewright.measure.measure import Plan
from tilewright.measure.turns import Turns
from tilewright.settings import Settings

if TYPE_CHECKING:
    from tilewright.gpu.device import GpuInfo

MOST_RESERVED = 0.25  # of the card's memory, from one set of sizes to the next
WAITS_S = (2.0, 4.0, 8.0, 0.0)  # for memory that other processes have, between attempts
NOT_BEGUN = "not begun: "  # how the messages of sets begin that nobody tried
HOST_BYTES = 1 << 20  # calls are timed on the host where the card needs less time than that
Sets = Iterable[tuple[str, Mapping[str, int]]]


@dataclass(frozen=True)
class PeerTimes:
    """What `bench_peers` found; see ``report.LadderBench``."""

    points: tuple[PeerPoint, ...]
    torch: str
    triton: str
    copy_gbps: float
    launch_us: float


def warm_peers(family: Family, dtypes: Iterable[str], sets: Sets, settings: Settings, options: PeerOptions) -> None:
    """Have PyTorch and Triton compile what `bench_peers` will ask them for: they keep it in caches of their own.

    Raises:
        TilewrightError: as `bench_peers`.
    """
    torch = need_torch()
    compiled = CompiledPeers(torch, options)
    if options.is_compiled:
        load_compiler()
    tutorial, function = _tutorial(family, settings, options)
    with torch.no_grad():
        for dtype in dtypes:
            for _, sizes in sets:
                if options.is_static:
                    compiled.forget()
                with suppress(Exception):  # what fails here fails again when it is timed, and is told then
                    arena = Arena(torch, family, dtype, sizes)
                    _warm(arena, compiled, tutorial, function)
                    torch.cuda.synchronize()
                    del arena
                torch.cuda.empty_cache()  # others may be at the same


def _warm(arena: Arena, compiled: CompiledPeers, tutorial: Tutorial | None, function: Any) -> None:
    """One call of all that is compiled for a set of sizes."""
    for peer in peers_of(arena.family.name):
        for one in compiled.contenders(arena, peer):
            one.call()
    if tutorial is not None:
        foreign = arena.tutorial(tutorial, function)
        if not foreign.why:
            foreign.call()


def need_torch() -> Any:
    """PyTorch. Raises TilewrightError: ``ladder/no_torch`` (exit 3)."""
    try:
        import torch
    except ImportError:
        hint = "Install it: pip install 'tilewright[torch]'; --alone times the rungs without."
        raise TilewrightError("ladder/no_torch", "Peers need PyTorch.", {}, hint, EXIT_MISSING) from None
    return torch


def _tutorial(family: Family, settings: Settings, options: PeerOptions) -> tuple[Tutorial | None, Any]:
    """Triton's tutorial of a family, and its function, where it was asked for."""
    tutorial = tutorial_of(family.name)
    if tutorial is None or options.tutorials is None:
        return None, None
    return tutorial, load_tutorial(options.tutorials, tutorial.file, tutorial.function, settings.cache_dir)


def bench_peers(
    family: Family,
    dtypes: tuple[str, ...],
    sets: Sets,
    info: GpuInfo,
    settings: Settings,
    options: PeerOptions,
    progress: Callable[[str], None],
    until: float = math.inf,
    sharers: int = 1,
    turns: Turns | None = None,
) -> PeerTimes:
    """Time the best rungs against their peers, interleaved.

    Args:
        until: of ``time.monotonic``: sets that were not begun by then are recorded as such. Where time is short, each
            set gets fewer rounds, so that there are none of those.
        sharers: so many calls, this one included, share what is left until then once the first set is done: loading
            PyTorch and compiling for the first time is nobody's share.
        turns: with other processes at this card.

    Raises:
        TilewrightError: ``ladder/no_torch`` (exit 3); ``ladder/no_tutorial``.
    """
    torch, turns = need_torch(), turns or Turns()
    sets = tuple(sets)
    named = [(dtype, name, sizes) for dtype in dtypes for name, sizes in sets]
    found: dict[int, list[PeerPoint]] = {}
    with compiling_aside(turns, options):
        with turns.shared():
            stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), torch.no_grad():
            ring = _Ring(torch, stream, family, info, settings, options, turns)
            pace = Pace(options.seconds, until, len(named))
            for done, index in enumerate(largest_first(family, named)):
                dtype, name, sizes = named[index]
                progress(f"{family.name}, {dtype}, {' '.join(f'{k}={v}' for k, v in sizes.items())}")
                why = "the card failed before" if ring.is_broken else "out of time" if pace.is_over else ""
                if why:
                    found[index] = [_untimed(dtype, name, sizes, NOT_BEGUN + why)]
                    continue
                found[index] = ring.points(dtype, name, sizes, pace.begin())
                pace.end()
                if not done:
                    now = time.monotonic()
                    pace = Pace(options.seconds, now + (until - now) / sharers, len(named) - 1)
    rates = ring.rates
    points = [point for index in range(len(named)) for point in found[index]]
    return PeerTimes(tuple(points), str(torch.__version__), _triton_version(), rates.dram_bytes / 1e9, rates.launch_us)


def largest_first(family: Family, named: Sequence[tuple[str, str, Mapping[str, int]]]) -> list[int]:
    """In which order sets are timed: element type by element type, the most bytes first.

    ``torch.compile`` makes sizes symbolic at the second one, and tunes that program to it, for all that follow. Tuned
    to a few elements, it took a hundred times as long for many.
    """
    order = {dtype: place for place, dtype in enumerate(dict.fromkeys(dtype for dtype, _, _ in named))}

    def place_of(index: int) -> tuple[int, float]:
        dtype, _, sizes = named[index]
        return order[dtype], -figure(family.bytes, family, sizes, dtype)

    return sorted(range(len(named)), key=place_of)


def _untimed(dtype: str, name: str, sizes: Mapping[str, int], why: str) -> PeerPoint:
    return PeerPoint(dtype, name, sizes, "", True, 0, 0.0, 0.0, "", message=why)


def _triton_version() -> str:
    try:
        import triton
    except ImportError:
        return ""
    return str(triton.__version__)


def is_short_of_memory(points: Iterable[PeerPoint]) -> bool:
    """Someone took no part for want of memory."""
    points = tuple(points)
    messages = [p.message for p in points] + [c.message for p in points for c in p.contenders]
    return any(word in message for message in messages for word in ("OutOfMemoryError", "OUT_OF_MEMORY"))


@dataclass(frozen=True)
class _Draft:
    """A point that is to be timed. ``rung``: ours, with the defines for its sizes; None where none takes them."""

    point: PeerPoint
    rung: Rung | None
    protocol: Protocol


class _Ring:
    """What stays from one set of sizes to the next. ``is_broken``: a fault has ended this process's use of the card."""

    is_broken = False

    def __init__(
        self,
        torch: Any,
        stream: Any,
        family: Family,
        info: GpuInfo,
        settings: Settings,
        options: PeerOptions,
        turns: Turns,
    ) -> None:
        self._torch, self._stream, self._family, self._info = torch, stream, family, info
        self._settings, self._options, self._turns = settings, options, turns
        self._compiled = CompiledPeers(torch, options)
        if options.is_compiled:
            load_compiler()
        self._operator = options.operator(family.name) if options.operator else None
        self._built: dict[Any, CompiledRung] = {}
        self._runs: dict[tuple[str, str], tuple[Counted, ...]] = {}
        self._tutorial, self._function = _tutorial(family, settings, options)
        build_copy(info.arch, settings)  # on the host: it is in the cache then
        with turns.shared():
            self._executor = GpuExecutor(info)
            self._copy = load_copy(info.arch, settings)
            with turns.alone():
                dram_bytes, launch_us = card_rates(torch, stream, info.l2_bytes, self._copy)
            self._flush = torch.empty(flush_bytes(info.l2_bytes), dtype=torch.uint8, device="cuda")
        self.rates: CardRates = rates_of(info.name, dram_bytes, launch_us)

    def points(self, dtype: str, name: str, sizes: Mapping[str, int], seconds: float) -> list[PeerPoint]:
        """A point for each group of peers, each timed for so many seconds; again where others had the memory."""
        for wait_s in WAITS_S:
            found = self._points(dtype, name, sizes, seconds)
            if self._turns.at_once == 1 or self.is_broken or not is_short_of_memory(found):
                break
            with self._turns.shared():
                self._torch.cuda.empty_cache()
            time.sleep(wait_s)
        return found

    def _points(self, dtype: str, name: str, sizes: Mapping[str, int], seconds: float) -> list[PeerPoint]:
        try:
            drafts = [self._draft(dtype, name, sizes, group) for group in groups_of(self._family)]
            with self._turns.shared():
                try:
                    return self._timed(drafts, dtype, sizes, seconds)
                finally:
                    self._trim()
        except Exception as error:  # too little memory, a fault of the card: other sizes may do
            with self._turns.shared():
                try:
                    self._torch.cuda.synchronize()
                    self._torch.cuda.empty_cache()
                except Exception:
                    self.is_broken = True
            return [_untimed(dtype, name, sizes, sentence(error))]

    def _trim(self) -> None:
        """Give memory back that is more than this process's share of the card, and not after each set of sizes: getting
        it anew costs more than most points."""
        if self._torch.cuda.memory_reserved() > MOST_RESERVED * self._info.memory_bytes / self._turns.at_once:
            self._torch.cuda.empty_cache()

    def _draft(self, dtype: str, name: str, sizes: Mapping[str, int], group: str) -> _Draft:
        """What the host knows: nothing of it touches the card."""
        family = self._family
        total_bytes, flops = (figure(text, family, sizes, dtype) for text in (family.bytes, family.flops))
        rung = best_of(family, group, sizes, dtype, self._info)
        is_cold = protocol_for(total_bytes, 1.0, self._info.l2_bytes).is_cold
        precision = precision_of(family, dtype, group)
        least = predict(family, sizes, dtype, self.rates, precision=precision, is_cold=is_cold)
        protocol = protocol_for(total_bytes, least.us, self._info.l2_bytes)
        foretold = self._foretold(sizes, dtype, group, rung, is_cold)
        point = PeerPoint(
            dtype, name, sizes, group, is_cold, protocol.calls, total_bytes, flops, rung.name if rung else ""
        )
        if rung is not None:
            point = replace(point, predicted_us=foretold.us, predicted_bound=foretold.bound)
        return _Draft(point, rung, protocol)

    def _timed(self, drafts: Sequence[_Draft], dtype: str, sizes: Mapping[str, int], seconds: float) -> list[PeerPoint]:
        if self._options.is_static:
            self._compiled.forget()
        arena = Arena(self._torch, self._family, dtype, sizes)
        return [self._point(arena, draft, seconds) for draft in drafts]

    def _point(self, arena: Arena, draft: _Draft, seconds: float) -> PeerPoint:
        contenders = self._contenders(arena, draft)

        def check(one: Contender) -> str:
            with self._turns.alone() if one.is_tuned else self._turns.shared():
                return arena.check(one)

        plan = Plan(warmup_rounds=2, min_rounds=10, max_rounds=200, budget_s=seconds)
        with ExitStack() as stack:

            def clock_for(ready: Mapping[str, Contender]) -> GraphClock:
                clock = GraphClock(self._torch, self._stream, ready, draft.protocol, self._flush)
                stack.callback(clock.close)
                stack.enter_context(self._turns.alone())  # rounds are next, and calls that the host times
                return clock

            done = contest(draft.point, contenders, check, clock_for, plan)
            if draft.point.total_bytes > HOST_BYTES:
                return done
            with self._turns.alone():
                return self._with_host_times(done, contenders)

    def _contenders(self, arena: Arena, draft: _Draft) -> list[Contender]:
        """Ours first, then the peers of the group."""
        group = draft.point.group
        out = [self._rung(arena, draft.rung)] if draft.rung is not None else []
        if not group and self._operator is not None:
            out.append(arena.op(self._operator))
        for peer in peers_of(arena.family.name):
            if peer.group == group:
                out += [arena.peer(peer), *self._compiled.contenders(arena, peer)]
        if not group and self._tutorial is not None:
            out.append(arena.tutorial(self._tutorial, self._function))
        return [*out, *arena.copies(draft.protocol.is_cold, self._copy)]

    def _foretold(self, sizes: Mapping[str, int], dtype: str, group: str, rung: Rung | None, is_cold: bool) -> Foretold:
        """By what the emulator counts of the rung, where it builds."""
        runs: tuple[Counted, ...] = ()
        threads = 0.0
        if rung is not None:
            with suppress(TilewrightError):  # it is told where it is timed
                key = (rung.name, dtype)
                if key not in self._runs:
                    self._runs[key] = counted(self._family, self._family.rung(rung.name), dtype, self._settings)
                compiled = self._compile(dtype, rung)
                runs, threads = of_this_tile(self._runs[key], compiled), threads_of(compiled, sizes)
        precision = precision_of(self._family, dtype, group)
        return predict(
            self._family, sizes, dtype, self.rates, precision=precision, is_cold=is_cold, runs=runs, threads=threads
        )

    def _compile(self, dtype: str, rung: Rung) -> CompiledRung:
        key = (dtype, rung.name, tuple(rung.defines.items()), tuple(rung.limits.items()))
        if key not in self._built:
            spec = rung_spec(self._family, rung, dtype)
            self._built[key] = compile_rung(spec, self._settings, arch_of(rung, self._info))
        return self._built[key]

    def _rung(self, arena: Arena, rung: Rung) -> Contender:
        try:
            return arena.rung(self._compile(arena.dtype, rung), self._executor)
        except (TilewrightError, DeviceError) as error:
            return Contender(rung.name, "rung", lambda: None, why=str(error))

    def _with_host_times(self, point: PeerPoint, contenders: list[Contender]) -> PeerPoint:
        """What a call costs a Python program: of the operator, and of the peers."""
        calls = {c.name: c.call for c in contenders if c.kind not in ("rung", "copy")}

        def told(one: TimedContender) -> TimedContender:
            if one.verdict != "passed" or one.name not in calls:
                return one
            return replace(one, host_us=host_us(self._torch, calls[one.name]))

        return replace(point, contenders=tuple(map(told, point.contenders)))
