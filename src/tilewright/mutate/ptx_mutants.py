"""Broken twins of a kernel's PTX: one synchronisation instruction removed, moved or weakened at a time.

Every mutant differs from the given text in one site; the rest stays byte for byte, line for line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tilewright.mutate.barrier_roles import BarrierRoles
from tilewright.mutate.harmless import (
    barrier_is_repeated,
    fence_is_repeated,
    nothing_is_read_after,
    nothing_is_shared_across,
    wait_is_repeated,
)
from tilewright.mutate.statements import Statement, Statements, statements_of

_INTEGER = re.compile(r"-?\s*(?:0[xX][0-9a-fA-F]+|\d+)U?")
_NOT_NEWLINE = re.compile(r"[^\n]")
# What a wrong byte count is wrong by: the smallest copy.
_BYTES_OFF = 16


@dataclass(frozen=True)
class Mutant:
    """One broken twin.

    Attributes:
        kind: what was broken, ``wait_removed``; one of ``KINDS``.
        name: unique among the mutants of a kernel: the kind and the number of the site, ``wait_removed.2``.
        description: one sentence, with the instruction.
        line: of the source that the instruction comes from; None where the PTX does not say.
        ptx_line: of the text, from 1; the same in both texts.
        ptx: the whole text.
        may_be_equivalent: it is harmless by construction, as ``harmless`` says; no check need find it.
            False does not promise that it is harmful.
    """

    kind: str
    name: str
    description: str
    line: int | None
    ptx_line: int
    ptx: str
    may_be_equivalent: bool = False


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class _Change:
    """A mutant before its text is made: the statement it is about, and what happens to the text."""

    at: Statement
    what: str
    edits: tuple[_Edit, ...]
    harmless: bool = False


_Maker = Callable[[Statements, BarrierRoles], Iterator[_Change]]


def synchronisation_mutants(ptx: str, kernel: str, per_kind: int | None = 8) -> tuple[Mutant, ...]:
    """Every broken twin of one kernel, in the order of ``KINDS`` and of the text.

    Args:
        ptx: as NVRTC, nvcc, Triton or a hand wrote it.
        kernel: name of its ``.entry``; functions of the module that it may call are broken too.
        per_kind: at most so many of a kind, spread over the text; None for all.

    Raises:
        TilewrightError: ``mutate/no_kernel``; ``ptx/not_ptx`` for text that is none.
    """
    statements = statements_of(ptx, kernel)
    roles = BarrierRoles(statements)
    out: list[Mutant] = []
    for kind, maker in _MAKERS.items():
        changes = list(maker(statements, roles))
        for number in _spread(len(changes), per_kind):
            c = changes[number]
            line = ptx.count("\n", 0, c.at.start) + 1
            text = _edited(ptx, c.edits)
            out.append(Mutant(kind, f"{kind}.{number}", c.what, statements.source_line(c.at), line, text, c.harmless))
    return tuple(out)


def _spread(count: int, limit: int | None) -> list[int]:
    """At most ``limit`` of ``count`` sites, the first and the last among them."""
    if limit is None or count <= limit:
        return list(range(count))
    if limit <= 1:
        return [0][:limit]
    return sorted({round(i * (count - 1) / (limit - 1)) for i in range(limit)})


def _edited(ptx: str, edits: tuple[_Edit, ...]) -> str:
    for edit in sorted(edits, key=lambda e: -e.start):
        ptx = ptx[: edit.start] + edit.text + ptx[edit.end :]
    return ptx


# -- edits -------------------------------------------------------------------------------------------------------------
def _without(s: Statements, x: Statement) -> _Edit:
    """A statement removed; its line breaks stay, so that all other lines keep their numbers."""
    return _Edit(x.start, x.end, _NOT_NEWLINE.sub("", s.ptx[x.start : x.end]))


def _moved(s: Statements, x: Statement, at: int) -> tuple[_Edit, _Edit]:
    """A statement taken from its place and put at an offset of the text."""
    text = " ".join(s.ptx[x.start : x.end].split())
    return _without(s, x), _Edit(at, at, f" {text} ")


def _rewritten(x: Statement, operands: tuple[str, ...], opcode: str = "") -> _Edit:
    guard = f"@{x.guard} " if x.guard else ""
    return _Edit(x.start, x.end, f"{guard}{opcode or x.opcode} {', '.join(operands)};".replace(" ;", ";"))


def _computed(x: Statement, index: int, instruction: str) -> _Edit:
    """A statement with one operand replaced by a register of a new scope, which ``instruction`` sets from ``{}``."""
    operands = tuple("%mutated" if i == index else o for i, o in enumerate(x.operands))
    setting = instruction.format(x.operands[index])
    return _Edit(x.start, x.end, f"{{ .reg .b32 %mutated; {setting}; {_rewritten(x, operands).text} }}")


# -- copies and their groups -------------------------------------------------------------------------------------------
_COPY_WAITS = ("cp.async.wait_group", "cp.async.wait_all", "cp.async.bulk.wait_group")


def _some(s: Statements, *prefixes: str) -> Iterator[tuple[int, Statement]]:
    """The instructions whose opcode is a prefix, or goes on behind it with a modifier."""
    for i, x in enumerate(s.items):
        if x.kind == "instruction" and any(f"{x.opcode}.".startswith(f"{p}.") for p in prefixes):
            yield i, x


def _said(s: Statements, x: Statement) -> str:
    return " ".join(s.ptx[x.start : x.end].split())


def _removed(
    s: Statements, prefixes: tuple[str, ...], repeated: Callable[[Statements, int], bool]
) -> Iterator[_Change]:
    for i, x in _some(s, *prefixes):
        yield _Change(x, f"`{_said(s, x)}` is removed.", (_without(s, x),), repeated(s, i))


def _one_short(s: Statements, prefixes: tuple[str, ...]) -> Iterator[_Change]:
    for _, x in _some(s, *prefixes):
        if "wait_all" in x.modifiers:
            edit, short = _rewritten(x, ("1",), "cp.async.wait_group"), 1
        elif _INTEGER.fullmatch(x.operands[0]):
            short = _value(x.operands[0]) + 1
            edit = _rewritten(x, (str(short),))
        else:
            continue
        yield _Change(x, f"`{_said(s, x)}` leaves {short} groups in flight.", (edit,))


def _wait_removed(s: Statements, _: BarrierRoles) -> Iterator[_Change]:
    return _removed(s, _COPY_WAITS, wait_is_repeated)


def _wait_one_group_short(s: Statements, _: BarrierRoles) -> Iterator[_Change]:
    return _one_short(s, _COPY_WAITS)


def _commit_and_wait_swapped(s: Statements, _: BarrierRoles) -> Iterator[_Change]:
    for i, x in _some(s, "cp.async.commit_group", "cp.async.bulk.commit_group"):
        waits = _COPY_WAITS[2:] if "bulk" in x.modifiers else _COPY_WAITS[:2]
        for j in s.block_after(i):
            later = s.items[j]
            if later.opcode == x.opcode:
                break
            if any(f"{later.opcode}.".startswith(f"{w}.") for w in waits):
                yield _Change(x, f"`{_said(s, x)}` stands behind `{_said(s, later)}`.", _moved(s, x, later.end))
                break


# -- barriers of a block, and of a cluster -----------------------------------------------------------------------------
_BARRIERS = ("bar.sync", "bar.cta.sync", "barrier.sync", "barrier.cta.sync", "bar.red", "barrier.red")
_PLAIN_BARRIERS = _BARRIERS[:4]


def _barrier_removed(s: Statements, _: BarrierRoles) -> Iterator[_Change]:
    def harmless(s: Statements, i: int) -> bool:
        return barrier_is_repeated(s, i) or nothing_is_read_after(s, i) or nothing_is_shared_across(s, i)

    return _removed(s, _PLAIN_BARRIERS, harmless)


def _barrier_before_wait(s: Statements, _: BarrierRoles) -> Iterator[_Change]:
    for i, x in _some(s, *_PLAIN_BARRIERS):
        for j in s.block_before(i):
            earlier = s.items[j]
            if any(f"{earlier.opcode}.".startswith(f"{b}.") for b in _BARRIERS):
                break
            if any(f"{earlier.opcode}.".startswith(f"{w}.") for w in _COPY_WAITS[:2]):
                yield _Change(x, f"`{_said(s, x)}` stands before `{_said(s, earlier)}`.", _moved(s, x, earlier.start))
                break


def _cluster_barrier_removed(s: Statements, _: BarrierRoles) -> Iterator[_Change]:
    for i, x in _some(s, "barrier.cluster.arrive"):
        wait = next(
            (s.items[j] for j in s.block_after(i) if s.items[j].opcode.startswith("barrier.cluster.wait")), None
        )
        if wait is not None:
            yield _Change(x, "A barrier of the cluster is removed.", (_without(s, x), _without(s, wait)))


# -- mbarriers ---------------------------------------------------------------------------------------------------------
def _waits(s: Statements) -> Iterator[Statement]:
    yield from (x for _, x in _some(s, "mbarrier.try_wait", "mbarrier.test_wait"))


def _dropped_waits(s: Statements, roles: BarrierRoles, full: bool) -> Iterator[_Change]:
    for x in _waits(s):
        if roles.is_full(x) == full:
            # The loop around it, whatever its form, ends at its first test.
            edit = _rewritten(x, (x.operands[0], "0", "0"), "setp.eq.u32")
            yield _Change(x, f"`{_said(s, x)}` is always true.", (edit,))


def _empty_wait_dropped(s: Statements, roles: BarrierRoles) -> Iterator[_Change]:
    return _dropped_waits(s, roles, full=False)


def _full_wait_dropped(s: Statements, roles: BarrierRoles) -> Iterator[_Change]:
    return _dropped_waits(s, roles, full=True)


def _wrong_phase(s: Statements, _: BarrierRoles) -> Iterator[_Change]:
    for x in _waits(s):
        if "parity" in x.modifiers:
            edit = _computed(x, 2, "xor.b32 %mutated, {}, 1")
            yield _Change(x, f"`{_said(s, x)}` waits for the other parity.", (edit,))


def _arrive_dropped(s: Statements, _: BarrierRoles) -> Iterator[_Change]:
    arrivals = ("mbarrier.arrive", "mbarrier.arrive_drop", "cp.async.mbarrier.arrive", "bar.arrive", "barrier.arrive",
                "bar.cta.arrive", "barrier.cta.arrive")  # fmt: skip
    for i, x in _some(s, *arrivals):
        if not _state_is_used(s, i):
            yield _Change(x, f"`{_said(s, x)}` is removed.", (_without(s, x),))


def _state_is_used(s: Statements, index: int) -> bool:
    """Whether another instruction reads what an arrival returned: a text without it would not be PTX."""
    x = s.items[index]
    first = x.operands[0] if x.operands else ""
    if x.root != "mbarrier" or first.startswith(("[", "_")):
        return False
    scope = len(x.scopes)
    others = (y for i, y in enumerate(s.items) if i != index and y.scopes[:scope] == x.scopes)
    return any(re.search(rf"{re.escape(first)}(?![\w$])", o) for y in others for o in (*y.operands, y.guard))


def _expect_tx_wrong_bytes(s: Statements, _: BarrierRoles) -> Iterator[_Change]:
    for x in (x for _, x in _some(s, "mbarrier") if "expect_tx" in x.modifiers):
        last = len(x.operands) - 1
        for off in (-_BYTES_OFF, _BYTES_OFF):
            if _INTEGER.fullmatch(x.operands[last]):
                edit = _rewritten(x, (*x.operands[:last], str(_value(x.operands[last]) + off)))
            else:
                edit = _computed(x, last, f"add.s32 %mutated, {{}}, {off}")
            yield _Change(x, f"`{_said(s, x)}` expects {abs(off)} bytes too {'few' if off < 0 else 'many'}.", (edit,))


# -- wgmma and proxies -------------------------------------------------------------------------------------------------
def _wgmma_wait_dropped(s: Statements, _: BarrierRoles) -> Iterator[_Change]:
    return _removed(s, ("wgmma.wait_group",), wait_is_repeated)


def _wgmma_wait_one_short(s: Statements, _: BarrierRoles) -> Iterator[_Change]:
    return _one_short(s, ("wgmma.wait_group",))


def _proxy_fence_dropped(s: Statements, _: BarrierRoles) -> Iterator[_Change]:
    return _removed(s, ("fence.proxy",), fence_is_repeated)


_MAKERS: Mapping[str, _Maker] = {
    "wait_removed": _wait_removed,
    "wait_one_group_short": _wait_one_group_short,
    "commit_and_wait_swapped": _commit_and_wait_swapped,
    "barrier_removed": _barrier_removed,
    "barrier_before_wait": _barrier_before_wait,
    "cluster_barrier_removed": _cluster_barrier_removed,
    "empty_wait_dropped": _empty_wait_dropped,
    "full_wait_dropped": _full_wait_dropped,
    "wrong_phase": _wrong_phase,
    "arrive_dropped": _arrive_dropped,
    "wgmma_wait_dropped": _wgmma_wait_dropped,
    "wgmma_wait_one_short": _wgmma_wait_one_short,
    "proxy_fence_dropped": _proxy_fence_dropped,
    "expect_tx_wrong_bytes": _expect_tx_wrong_bytes,
}
KINDS: tuple[str, ...] = tuple(_MAKERS)


def _value(text: str) -> int:
    return int(text.replace(" ", "").rstrip("U"), 0)
