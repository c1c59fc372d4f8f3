"""The best rung of each set of sizes against PyTorch, ``torch.compile`` and Triton's tutorials, on a card."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tilewright.errors import EXIT_MISSING, TilewrightError
from tilewright.gpu.driver import DeviceError
from tilewright.gpu.executor import GpuExecutor
from tilewright.ladder.arena import Arena
from tilewright.ladder.comparing import Contender, contest, sentence
from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.counted import Counted, counted, threads_of
from tilewright.ladder.family import Family, Rung
from tilewright.ladder.graphs import GraphClock, card_rates, flush_bytes, host_us, protocol_for
from tilewright.ladder.launching import arch_of
from tilewright.ladder.peers import Peer, PeerCall, Tutorial, peers_of, tutorial_of
from tilewright.ladder.picking import best_of, groups_of
from tilewright.ladder.predicting import CardRates, Foretold, precision_of, predict, rates_of
from tilewright.ladder.report import PeerPoint, TimedContender
from tilewright.ladder.specs import figure, rung_spec
from tilewright.ladder.tutorials import load_tutorial
from tilewright.measure.measure import Plan
from tilewright.settings import Settings

if TYPE_CHECKING:
    from tilewright.gpu.device import GpuInfo

CompileMode = Literal["auto", "static", "off"]
AUTOTUNED = "max-autotune-no-cudagraphs"
MOST_PROGRAMS = 4096
MOST_RESERVED = 0.25  # of the card's memory, from one set of sizes to the next
NOT_BEGUN = "not begun: "  # how the messages of sets begin that nobody tried
HOST_BYTES = 1 << 20  # calls are timed on the host where the card needs less time than that
Sets = Iterable[tuple[str, Mapping[str, int]]]


@dataclass(frozen=True)
class PeerOptions:
    """Whom to time.

    Attributes:
        tutorials: ``python/tutorials`` of a checkout of Triton; None leaves them out.
        compiled: ``torch.compile`` as it is called plainly, which makes shapes dynamic once they change (``auto``);
            anew for each set of sizes (``static``); or not at all.
        autotune: ``torch.compile`` with ``max-autotune-no-cudagraphs``, for each set of sizes.
        seconds: for each set, once everything is compiled.
        operator: a family's name → its operator of ``tilewright.ops``, which is timed as a user calls it.
    """

    tutorials: Path | None = None
    compiled: CompileMode = "auto"
    autotune: bool = False
    seconds: float = 0.5
    operator: Callable[[str], Any] | None = None

    @property
    def is_static(self) -> bool:
        """Something is compiled anew for each set of sizes."""
        return self.autotune or self.compiled == "static"


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
    compiled = _Compiled(torch, options.compiled)
    allow_programs()
    tutorial, function = _tutorial(family, settings, options)
    with torch.no_grad():
        for dtype in dtypes:
            for _, sizes in sets:
                if options.is_static:
                    compiled.forget()
                with suppress(Exception):  # what fails here fails again when it is timed, and is told then
                    arena = Arena(torch, family, dtype, sizes)
                    _warm(arena, compiled, options, tutorial, function)
                    torch.cuda.synchronize()
                    del arena
                torch.cuda.empty_cache()  # others may be at the same


def _warm(arena: Arena, compiled: _Compiled, options: PeerOptions, tutorial: Tutorial | None, function: Any) -> None:
    """One call of all that is compiled for a set of sizes."""
    for peer in peers_of(arena.family.name):
        for one in compiled.contenders(arena, peer, options):
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
) -> PeerTimes:
    """Time the best rungs against their peers, interleaved.

    Args:
        until: of ``time.monotonic``: sets that were not begun by then are recorded as such.

    Raises:
        TilewrightError: ``ladder/no_torch`` (exit 3); ``ladder/no_tutorial``.
    """
    torch = need_torch()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        ring = _Ring(torch, stream, family, info, settings, options)
        points = []
        for dtype in dtypes:
            for name, sizes in sets:
                progress(f"{family.name}, {dtype}, {' '.join(f'{k}={v}' for k, v in sizes.items())}")
                why = "the card failed before" if ring.is_broken else "out of time" if time.monotonic() > until else ""
                points += [_untimed(dtype, name, sizes, NOT_BEGUN + why)] if why else ring.points(dtype, name, sizes)
    rates = ring.rates
    return PeerTimes(tuple(points), str(torch.__version__), _triton_version(), rates.dram_bytes / 1e9, rates.launch_us)


def _untimed(dtype: str, name: str, sizes: Mapping[str, int], why: str) -> PeerPoint:
    return PeerPoint(dtype, name, sizes, "", True, 0, 0.0, 0.0, "", message=why)


def _triton_version() -> str:
    try:
        import triton
    except ImportError:
        return ""
    return str(triton.__version__)


def allow_programs() -> None:
    """As many programs of one function as there are types and sizes: beyond a few, nothing would be compiled."""
    import torch._dynamo as dynamo

    for name in ("recompile_limit", "cache_size_limit", "accumulated_recompile_limit", "accumulated_cache_size_limit"):
        if hasattr(dynamo.config, name):  # their names, before and after PyTorch 2.7
            setattr(dynamo.config, name, MOST_PROGRAMS)


@dataclass
class _Compiled:
    """What ``torch.compile`` made of the formulas: one function for all sizes, or one for each."""

    torch: Any
    mode: CompileMode
    _made: dict[Any, Any] = field(default_factory=dict)

    def forget(self) -> None:
        """Before other sizes, where each has programs of its own: those of the last one are in nobody's way then."""
        self.torch._dynamo.reset()
        self._made.clear()

    def of(self, peer: Peer, call: PeerCall, autotune: bool = False) -> Callable[..., Any]:
        is_static = autotune or self.mode == "static"
        results = tuple(r.dtype for r in call.results) if not (is_static or peer.is_shaped) else call.results
        shapes = tuple((tuple(x.shape), x.stride()) for x in call.inputs) if is_static else ()
        key = (peer.name, tuple(x.dtype for x in call.inputs), tuple(call.numbers.items()), results, shapes, autotune)
        if key not in self._made:
            torch, numbers, outputs = self.torch, dict(call.numbers), call.results

            def run(*inputs: Any) -> Any:
                return peer.formula(PeerCall(torch, inputs, numbers, outputs))

            settings = {"mode": AUTOTUNED} if autotune else {}
            self._made[key] = torch.compile(run, fullgraph=True, dynamic=False if is_static else None, **settings)
        made: Callable[..., Any] = self._made[key]
        return made

    def contenders(self, arena: Arena, peer: Peer, options: PeerOptions) -> list[Contender]:
        """What is compiled of a peer."""
        if not peer.is_compiled:
            return []
        out = []
        eager = arena.peer(peer)
        if options.compiled != "off":
            made = self.of(peer, arena.call)
            out.append(replace(eager, name=f"{peer.name}, compiled", kind="compile", call=lambda: made(*arena.inputs)))
        if options.autotune:
            tuned = self.of(peer, arena.call, autotune=True)
            out.append(
                replace(eager, name=f"{peer.name}, autotuned", kind="autotune", call=lambda: tuned(*arena.inputs))
            )
        return out


class _Ring:
    """What stays from one set of sizes to the next. ``is_broken``: a fault has ended this process's use of the card."""

    is_broken = False

    def __init__(
        self, torch: Any, stream: Any, family: Family, info: GpuInfo, settings: Settings, options: PeerOptions
    ) -> None:
        self._torch, self._stream, self._family, self._info = torch, stream, family, info
        self._settings, self._options = settings, options
        self._executor = GpuExecutor(info)
        self._compiled = _Compiled(torch, options.compiled)
        allow_programs()
        self._operator = options.operator(family.name) if options.operator else None
        self._built: dict[Any, CompiledRung] = {}
        self._runs: dict[tuple[str, str], tuple[Counted, ...]] = {}
        self._tutorial, self._function = _tutorial(family, settings, options)
        dram_bytes, launch_us = card_rates(torch, stream, info.l2_bytes)
        self.rates: CardRates = rates_of(info.name, dram_bytes, launch_us)
        self._flush = torch.empty(flush_bytes(info.l2_bytes), dtype=torch.uint8, device="cuda")

    def points(self, dtype: str, name: str, sizes: Mapping[str, int]) -> list[PeerPoint]:
        """A point for each group of peers."""
        if self._options.is_static:
            self._compiled.forget()
        try:
            arena = Arena(self._torch, self._family, dtype, sizes)
            return [self._point(arena, name, group) for group in groups_of(self._family)]
        except Exception as error:  # too little memory, a fault of the card: other sizes may do
            try:
                self._torch.cuda.synchronize()
                self._torch.cuda.empty_cache()
            except Exception:
                self.is_broken = True
            return [_untimed(dtype, name, sizes, sentence(error))]
        finally:
            if not self.is_broken and self._torch.cuda.memory_reserved() > MOST_RESERVED * self._info.memory_bytes:
                self._torch.cuda.empty_cache()  # not after each: getting memory anew costs more than most points

    def _point(self, arena: Arena, name: str, group: str) -> PeerPoint:
        family, dtype, sizes = arena.family, arena.dtype, arena.sizes
        total_bytes, flops = (figure(text, family, sizes, dtype) for text in (family.bytes, family.flops))
        rung = best_of(family, group, sizes, dtype, self._info)
        is_cold = protocol_for(total_bytes, 1.0, self._info.l2_bytes).is_cold
        least = predict(family, sizes, dtype, self.rates, precision=precision_of(group), is_cold=is_cold)
        protocol = protocol_for(total_bytes, least.us, self._info.l2_bytes)
        point = PeerPoint(
            dtype, name, sizes, group, is_cold, protocol.calls, total_bytes, flops, rung.name if rung else ""
        )
        foretold = self._foretold(arena, group, rung, is_cold)
        contenders = self._contenders(arena, group, rung)
        clocks: list[GraphClock] = []

        def clock_for(ready: Mapping[str, Contender]) -> GraphClock:
            clocks.append(GraphClock(self._torch, self._stream, ready, protocol, self._flush))
            return clocks[0]

        plan = Plan(warmup_rounds=2, min_rounds=10, max_rounds=200, budget_s=self._options.seconds)
        try:
            done = contest(point, contenders, arena.check, clock_for, plan)
        finally:
            for clock in clocks:
                clock.close()
        if total_bytes <= HOST_BYTES:
            done = self._with_host_times(done, contenders)
        return replace(done, predicted_us=foretold.us, predicted_bound=foretold.bound) if rung else done

    def _contenders(self, arena: Arena, group: str, rung: Rung | None) -> list[Contender]:
        """Ours first, then the peers of the group."""
        out = [self._rung(arena, rung)] if rung is not None else []
        if not group and self._operator is not None:
            out.append(arena.op(self._operator))
        for peer in peers_of(arena.family.name):
            if peer.group == group:
                eager = arena.peer(peer)
                out += [eager, *self._compiled.contenders(arena, peer, self._options)]
        if not group and self._tutorial is not None:
            out.append(arena.tutorial(self._tutorial, self._function))
        return [*out, arena.copy()]

    def _foretold(self, arena: Arena, group: str, rung: Rung | None, is_cold: bool) -> Foretold:
        """By what the emulator counts of the rung, where it builds."""
        runs: tuple[Counted, ...] = ()
        threads = 0.0
        if rung is not None:
            with suppress(TilewrightError):  # it is told where it is timed
                key = (rung.name, arena.dtype)
                if key not in self._runs:
                    plain = arena.family.rung(rung.name)
                    self._runs[key] = counted(arena.family, plain, arena.dtype, self._settings)
                runs, threads = self._runs[key], threads_of(self._compile(arena, rung), arena.sizes)
        precision = precision_of(group)
        family, sizes, dtype = arena.family, arena.sizes, arena.dtype
        return predict(
            family, sizes, dtype, self.rates, precision=precision, is_cold=is_cold, runs=runs, threads=threads
        )

    def _compile(self, arena: Arena, rung: Rung) -> CompiledRung:
        key = (arena.dtype, rung.name, tuple(rung.defines.items()), tuple(rung.limits.items()))
        if key not in self._built:
            spec = rung_spec(arena.family, rung, arena.dtype)
            self._built[key] = compile_rung(spec, self._settings, arch_of(rung, self._info))
        return self._built[key]

    def _rung(self, arena: Arena, rung: Rung) -> Contender:
        try:
            return arena.rung(self._compile(arena, rung), self._executor)
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
