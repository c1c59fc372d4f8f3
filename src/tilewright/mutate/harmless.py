"""Mutants that are harmless by construction. Only what the text proves; all others are for the checks to find.

One thing is taken for granted: what a launch writes to is not what it reads from (the launch contract has it so).
"""

from __future__ import annotations

from tilewright.mutate.reach import Reach
from tilewright.mutate.statements import Statement, Statements

# Instructions that touch no memory, wait for nothing and let nobody go on.
_PLAIN = frozenset(
    {
        "abs", "add", "addc", "and", "bfe", "bfi", "bfind", "brev", "clz", "cnot", "copysign", "cos", "cvt", "cvta",
        "div", "dp2a", "dp4a", "ex2", "fma", "isspacep", "lg2", "lop3", "mad", "mad24", "madc", "mapa", "max", "min",
        "mma", "mov", "mul", "mul24", "neg", "not", "or", "popc", "prmt", "rcp", "rem", "rsqrt", "sad", "selp", "set",
        "setp", "shf", "shl", "shr", "sin", "slct", "sqrt", "sub", "subc", "tanh", "testp", "xor",
    }
)  # fmt: skip
_WRITERS = frozenset({"st", "stmatrix", "atom", "red", "wmma", "call", "multimem"})
_CONTROL = frozenset({"bra", "brx", "ret", "exit"})


def barrier_is_repeated(s: Statements, index: int) -> bool:
    """The next thing that a thread does apart from arithmetic, or the last it did, is the same barrier.

    Nothing lies between the two that one alone would not order. All threads meet there, and not here and elsewhere:
    the kernel has this barrier only where each thread passes once.
    """
    here = s.items[index]
    if len(here.operands) != 1 or not any(_same(here, s.items[i]) for i in _neighbours(s, index)):
        return False
    sites = [i for i, x in enumerate(s.items) if x.root in ("bar", "barrier") and x.operands[:1] == here.operands]
    return all(s.is_passed_once(i) and not s.items[i].guard for i in sites)


def wait_is_repeated(s: Statements, index: int) -> bool:
    """Right behind or before stands a wait of the same kind that leaves no more groups in flight."""
    here = s.items[index]
    return any(
        s.items[i].opcode == here.opcode and not s.items[i].guard and _groups(s.items[i]) <= _groups(here)
        for i in _neighbours(s, index)
    )


def fence_is_repeated(s: Statements, index: int) -> bool:
    """The same fence stands beside it, or it only publishes new mbarriers, as fence.mbarrier_init beside it does."""
    here = s.items[index]
    if any(_same(here, s.items[i]) for i in _neighbours(s, index)):
        return True
    earlier = [s.items[i] for i in s.block_before(index) if s.items[i].root not in _PLAIN]
    if not earlier or not earlier[0].opcode.startswith("fence.mbarrier_init"):
        return False
    # Data that a generic store wrote before would need the fence all the same.
    return all(x.opcode.startswith(("fence.mbarrier_init", "mbarrier.init")) for x in earlier) and not any(
        x.root in _WRITERS and "global" not in x.modifiers for x in (s.items[i] for i in s.leading_to(index))
    )


def nothing_is_read_after(s: Statements, index: int) -> bool:
    """Behind the barrier a thread only stores to global memory and ends: it orders nothing that anybody reads.

    In front of it no thread wrote global memory, and what was read there was read-only, or the source of a copy. It is
    every thread's last barrier, so without it all pass one fewer.
    """
    if len(s.items[index].operands) != 1 or not s.is_passed_once(index):
        return False
    later = [s.items[i] for i in s.reachable_from(index)]
    if s.items[index].guard or not all(_is_plain(x) or _stores_global(x) for x in later):
        return False
    return not any(_uses_global(s.items[i]) for i in s.leading_to(index))


def nothing_is_shared_across(s: Statements, index: int) -> bool:
    """What a thread touches behind the barrier, nobody has touched in front of it, but for reads on both sides.

    By parameters and variables: two parameters are two buffers. Each thread passes the barrier once, and no barrier of
    the block comes later.
    """
    if len(s.items[index].operands) != 1 or s.items[index].guard or not s.is_passed_once(index):
        return False
    reach = Reach(s)
    later = reach.touched(s.reachable_from(index), _PLAIN | _CONTROL)
    if later is None:
        return False
    earlier = reach.touched(s.leading_to(index), _PLAIN | _CONTROL | {"bar", "barrier"})
    return earlier is not None and not (earlier[1] & (later[0] | later[1]) or earlier[0] & later[1])


def _is_plain(x: Statement) -> bool:
    return x.root in _PLAIN | _CONTROL or x.opcode.startswith(("ld.param.", "ld.const."))


def _stores_global(x: Statement) -> bool:
    return x.opcode.startswith(("st.global", "wmma.store")) and "global" in x.modifiers


def _uses_global(x: Statement) -> bool:
    """It may write global memory, or read some that is not known to be read-only."""
    if x.root in _WRITERS or x.root in ("ld", "wmma"):
        spaces = {"shared", "local", "param", "const", "nc", "mma"}
        return x.root != "stmatrix" and not spaces & {m.partition("::")[0] for m in x.modifiers}
    return x.opcode.startswith(("cp.async.bulk", "cp.reduce")) and ".global.shared::cta" in x.opcode


def _neighbours(s: Statements, index: int) -> list[int]:
    """The nearest instructions of the block, on both sides, that are more than arithmetic."""
    found = []
    for side in (s.block_before(index), s.block_after(index)):
        found += [i for i in side if s.items[i].root not in _PLAIN][:1]
    return found


def _same(a: Statement, b: Statement) -> bool:
    return not b.guard and (a.opcode, a.operands) == (b.opcode, b.operands)


def _groups(wait: Statement) -> int:
    return int(wait.operands[0].rstrip("U"), 0) if wait.operands and wait.operands[0].rstrip("U").isdigit() else 0
