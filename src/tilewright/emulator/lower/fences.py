"""fence and membar. The emulator runs memory operations in order: fences leave a trace in the hazard checks only."""

from __future__ import annotations

from tilewright.emulator.lower.writer import BlockWriter
from tilewright.ptx.module import Instruction

_ORDERS = frozenset({"sc", "acq_rel", "acquire", "release"})
_PROXIES_WITHOUT_TRACE = frozenset({"alias", "tensormap::generic"})


def fence(w: BlockWriter, i: Instruction) -> None:
    """``fence.proxy.async`` of shared memory (or all), fences between threads. PTX ISA, "membar, fence"."""
    if i.modifiers[0] == "mbarrier_init":
        return
    if i.modifiers[0] in _ORDERS:
        membar(w, i)
        return
    if i.modifiers[0] != "proxy":
        raise w.not_modelled(i.full_name)
    proxy = i.modifiers[1]
    if proxy in _PROXIES_WITHOUT_TRACE or i.modifiers[2:] == ("global",):
        return
    if proxy not in ("async", "async::generic"):
        raise w.not_modelled(i.full_name)
    with w.guarded(i.guard):
        w.line(f"M.watch.proxy_fence({w.threads})")


def membar(w: BlockWriter, i: Instruction) -> None:
    with w.guarded(i.guard):
        w.line(f"M.watch.fence({w.threads})")


def are_in(instructions: tuple[Instruction, ...]) -> bool:
    """Whether any of these is a fence between threads."""
    return any(i.opcode == "membar" or (i.opcode == "fence" and i.modifiers[0] in _ORDERS) for i in instructions)


LOWERINGS = {"fence": fence, "membar": membar}
