"""fence. The emulator runs memory operations in order: only the fence between proxies leaves a trace."""

from __future__ import annotations

from tilewright.emulator.lower.writer import BlockWriter
from tilewright.ptx.module import Instruction

_NOTHING = frozenset({"sc", "acq_rel", "acquire", "release", "mbarrier_init"})
_PROXIES_WITHOUT_TRACE = frozenset({"alias", "tensormap::generic"})


def fence(w: BlockWriter, i: Instruction) -> None:
    """``fence.proxy.async`` of shared memory (or all); PTX ISA, "membar, fence"."""
    if i.modifiers[0] != "proxy":
        if i.modifiers[0] not in _NOTHING:
            raise w.not_modelled(i.full_name)
        return
    proxy = i.modifiers[1]
    if proxy in _PROXIES_WITHOUT_TRACE or i.modifiers[2:] == ("global",):
        return
    if proxy not in ("async", "async::generic"):
        raise w.not_modelled(i.full_name)
    with w.guarded(i.guard):
        w.line(f"M.watch.proxy_fence({w.threads})")


LOWERINGS = {"fence": fence}
