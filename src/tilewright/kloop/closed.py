"""What a load phase may hold if it is to run twice, or at another time: nothing that shows outside but its tiles."""

from __future__ import annotations

from tilewright.kloop.kernel import Refusal
from tilewright.kloop.kloop import KLoopFinder, Phases
from tilewright.source import intrinsics, ir
from tilewright.source.c_types import is_volatile
from tilewright.source.effects import short_name

_SPEAKS = frozenset({"printf", "assert", "clock", "clock64", "__nanosleep"})
_NOT_PLAIN_ASM = ("volatile", "acquire", "relaxed", "atom", "shared", "%clock", "%globaltimer")


class Closed:
    """Judges the statements of one load phase."""

    def __init__(self, finder: KLoopFinder, phases: Phases) -> None:
        self._finder = finder
        self._kernel = finder.kernel
        self._symbols = finder.kernel.symbols
        self._phases = phases

    def _no(self, what: str, node: ir.Stmt | ir.Expr, hint: str = "") -> Refusal:
        return Refusal("not_understood", what, self._kernel.source.line(node.span.start), hint)

    def _name(self, symbol: int) -> str:
        return self._symbols[symbol].name

    def refusal(self) -> Refusal | None:
        """Running the text twice, or at another time, must change nothing but its own locals and the tiles."""
        for node in (n for s in self._phases.load for n in ir.walk(s)):
            match node:
                case ir.OpaqueStmt(what=w) | ir.Opaque(what=w):
                    return self._no(f"the load phase holds {w}, which is not understood", node)
                case ir.Call(callee=c) if self._speaks(short_name(c), frozenset()):
                    return self._no(f"the load phase calls {c}, which must not be done twice", node)
                case ir.Asm(code=code):
                    pieces = intrinsics.asm_instructions(code)
                    plain = all(intrinsics.asm_kind(p) in ("loads", "values") for p in pieces)
                    if not plain or any(w in code for w in _NOT_PLAIN_ASM):
                        return self._no("the load phase holds inline PTX that does more than load or compute", node)
                case ir.Cast(type_text=t) if is_volatile(t, self._kernel.source.aliases):
                    return self._no("a volatile access must not move", node)
                case ir.Name(symbol=int(s)) if self._is_volatile(s, 0):
                    return self._no(f"`{self._name(s)}` is volatile: its accesses must not move", node)
                case ir.Declare(symbols=symbols):
                    for one in symbols:
                        words = one.type_text.split()
                        if "static" in words or self._is_volatile(one.id, 8) or one.kind == "shared":
                            return self._no(f"`{one.name}` is volatile, static or shared", node)
                case ir.Jump(kind="goto" | "return"):
                    return self._no(f"the load phase leaves by `{node.kind}`", node)
        return self._waits()

    def _waits(self) -> Refusal | None:
        load = self._finder.effects(self._phases.load)
        spans = [*load.barriers, *(span for _, span in load.other_barriers)]
        return self._no("the load phase waits for other threads on the way", ir.Stmt(spans[0])) if spans else None

    def _speaks(self, name: str, seen: frozenset[str]) -> bool:
        """Whether a call, or one that its function makes, does something that must happen once, and then."""
        function = self._kernel.functions.get(name)
        if name in _SPEAKS or function is None or name in seen:
            return name in _SPEAKS
        return any(self._speaks(c, seen | {name}) for c in function.effects.calls)

    def _is_volatile(self, symbol: int, depth: int) -> bool:
        one = self._symbols[symbol]
        if is_volatile(one.type_text, self._kernel.source.aliases):
            return True
        if one.init is None or depth > 8 or not (one.pointers or one.reference):
            return False
        for n in ir.walk(one.init):
            if isinstance(n, ir.Cast) and is_volatile(n.type_text, self._kernel.source.aliases):
                return True
            if isinstance(n, ir.Name) and n.symbol is not None and self._is_volatile(n.symbol, depth + 1):
                return True
        return False
