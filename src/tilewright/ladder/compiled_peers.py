"""What ``torch.compile`` makes of the peers' formulas; and compilers do not work with the card in their hands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tilewright.ladder.arena import Arena
from tilewright.ladder.comparing import Contender
from tilewright.ladder.peers import Peer, PeerCall
from tilewright.measure.turns import Turns

CompileMode = Literal["auto", "static", "off"]
AUTOTUNED = "max-autotune-no-cudagraphs"
MOST_PROGRAMS = 4096


@dataclass(frozen=True)
class PeerOptions:
    """Whom to time.

    Attributes:
        tutorials: ``python/tutorials`` of a checkout of Triton; None leaves them out.
        compiled: ``torch.compile`` as it is called plainly, which makes shapes dynamic once they change (``auto``);
            anew for each set of sizes (``static``); or not at all.
        autotune: ``torch.compile`` with ``max-autotune-no-cudagraphs``, for each set of sizes.
        seconds: for each set, once everything is compiled; less where time is short.
        operator: a family's name → its operator of ``tilewright.ops``, which is timed as a user calls it.
    """

    tutorials: Path | None = None
    compiled: CompileMode = "auto"
    autotune: bool = False
    seconds: float = 0.5
    operator: Callable[[str], Any] | None = None

    @property
    def is_compiled(self) -> bool:
        """PyTorch's compiler is asked for anything."""
        return self.autotune or self.compiled != "off"

    @property
    def is_static(self) -> bool:
        """Something is compiled anew for each set of sizes."""
        return self.autotune or self.compiled == "static"


def load_compiler() -> None:
    """Load PyTorch's compiler, seconds of the host, and let one function have as many programs as there are types and
    sizes: beyond a few, nothing would be compiled."""
    import torch._dynamo as dynamo

    with suppress(ImportError):
        import torch._inductor.compile_fx  # noqa: F401  # later, it would load with the card in our hands
    for name in ("recompile_limit", "cache_size_limit", "accumulated_recompile_limit", "accumulated_cache_size_limit"):
        if hasattr(dynamo.config, name):  # their names, before and after PyTorch 2.7
            setattr(dynamo.config, name, MOST_PROGRAMS)


@contextmanager
def compiling_aside(turns: Turns, options: PeerOptions) -> Iterator[None]:
    """Compilers of PyTorch and Triton step aside while they work, and have the card alone when they have done.

    What is compiled may be timed in variants at its first call, which others must not disturb: a peer that picked a
    slow one would lose to us unfairly. Where their hooks are missing, they compile with the card in their hands.
    """
    with _hooked_dynamo(turns) if options.is_compiled else nullcontext(), _hooked_triton(turns):
        yield


@contextmanager
def _hooked_dynamo(turns: Turns) -> Iterator[None]:
    def start(*_: Any) -> None:  # nothing is given up to PyTorch 2.7
        turns.step_aside()

    def end(*_: Any) -> None:
        turns.step_back()

    handler: Any = None
    with suppress(ImportError, AttributeError):
        from torch._dynamo import callback

        handler = callback.callback_handler
        handler.register_start_callback(start)
        handler.register_end_callback(end)
    try:
        yield
    finally:
        if handler is not None:
            handler.remove_start_callback(start)
            handler.remove_end_callback(end)


@contextmanager
def _hooked_triton(turns: Turns) -> Iterator[None]:
    runtime: Any = None
    with suppress(ImportError, AttributeError):
        from triton import knobs

        runtime = knobs.runtime
        before = runtime.jit_cache_hook, runtime.jit_post_compile_hook

        def start(*args: Any, **kwargs: Any) -> Any:
            turns.step_aside()
            return before[0](*args, **kwargs) if before[0] else None

        def end(*args: Any, **kwargs: Any) -> Any:
            turns.step_back()
            return before[1](*args, **kwargs) if before[1] else None

        runtime.jit_cache_hook, runtime.jit_post_compile_hook = start, end
    try:
        yield
    finally:
        if runtime is not None:
            runtime.jit_cache_hook, runtime.jit_post_compile_hook = before


@dataclass
class CompiledPeers:
    """What ``torch.compile`` made of the formulas: one function for all sizes, or one for each."""

    torch: Any
    options: PeerOptions
    _made: dict[Any, Any] = field(default_factory=dict)

    def forget(self) -> None:
        """Before other sizes, where each has programs of its own: those of the last one are in nobody's way then."""
        self.torch._dynamo.reset()
        self._made.clear()

    def of(self, peer: Peer, call: PeerCall, autotune: bool = False) -> Callable[..., Any]:
        is_static = autotune or self.options.compiled == "static"
        results = tuple(r.dtype for r in call.results) if not (is_static or peer.is_shaped) else call.results
        shapes = tuple((tuple(x.shape), x.stride()) for x in call.inputs) if is_static else ()
        read = tuple(call.sizes[name] for name in peer.reads)
        key = (peer.name, tuple(x.dtype for x in call.inputs), *call.numbers.items(), results, shapes, autotune, read)
        if key not in self._made:
            torch, numbers, outputs, sizes = self.torch, dict(call.numbers), call.results, dict(call.sizes)

            def run(*inputs: Any) -> Any:
                return peer.formula(PeerCall(torch, inputs, numbers, outputs, sizes))

            settings = {"mode": AUTOTUNED} if autotune else {}
            self._made[key] = torch.compile(run, fullgraph=True, dynamic=False if is_static else None, **settings)
        made: Callable[..., Any] = self._made[key]
        return made

    def contenders(self, arena: Arena, peer: Peer) -> list[Contender]:
        """What is compiled of a peer."""
        if not peer.is_compiled:
            return []
        out = []
        eager = arena.peer(peer)
        if self.options.compiled != "off":
            made = self.of(peer, arena.call)
            name, is_tuned = f"{peer.name}, compiled", peer.is_tuned
            out.append(replace(eager, name=name, kind="compile", call=lambda: made(*arena.inputs), is_tuned=is_tuned))
        if self.options.autotune:
            tuned = self.of(peer, arena.call, autotune=True)
            name = f"{peer.name}, autotuned"
            out.append(replace(eager, name=name, kind="autotune", call=lambda: tuned(*arena.inputs), is_tuned=True))
        return out
