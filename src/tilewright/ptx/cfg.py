"""Control flow: basic blocks, what follows them, and which registers live across them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

from tilewright.ptx.lexer import not_ptx
from tilewright.ptx.module import (
    Address,
    BranchTargets,
    Function,
    Group,
    Instruction,
    Label,
    Operand,
    Pair,
    Register,
    Symbol,
    Vector,
)

# Opcodes whose operands are all read.
_NO_RESULT = frozenset(
    {"st", "red", "bra", "brx", "ret", "exit", "trap", "brkpt", "cp", "fence", "membar", "prefetch", "prefetchu",
     "nanosleep", "setmaxnreg", "discard", "applypriority", "griddepcontrol", "stmatrix", "pmevent", "tensormap"}
)  # fmt: skip
# Of these, some forms have a result and some do not: the modifiers of those that have none.
_NO_RESULT_FORMS: Mapping[str, frozenset[str]] = {
    "wmma": frozenset({"store"}),
    "wgmma": frozenset({"fence", "commit_group", "wait_group"}),
    "mbarrier": frozenset({"init", "inval", "expect_tx", "complete_tx"}),
    "multimem": frozenset({"st", "red", "cp"}),
    "clusterlaunchcontrol": frozenset({"try_cancel"}),
}
_LEAVES = frozenset({"ret", "exit", "trap"})
_JUMPS = frozenset({"bra", "brx"})
_WAITS = frozenset({"try_wait", "test_wait"})
_BITS = bytes.maketrans(b"01", b"\0\1")
_CLOSERS = _LEAVES | _JUMPS | {"nanosleep"}


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions that run one after the other; control returns to the scheduler only behind the last.

    Attributes:
        first_site: index of its first instruction in ``Graph.instructions``.
        successors: block indices. After ``bra``: the target, then (guarded) the next block. After ``brx``: the table's
            targets in order, repeated ones too, then (guarded) the next block. None after ``ret``, ``exit``, ``trap``.
        live_in, live_out: registers whose value is wanted at the start, after the end. defs: registers written.
    """

    index: int
    instructions: tuple[Instruction, ...]
    first_site: int
    successors: tuple[int, ...]
    live_in: frozenset[str]
    live_out: frozenset[str]
    defs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Graph:
    """A function as blocks.

    Attributes:
        instructions: all of them in order; the index is the site. The last may be an implied ``ret``.
        labels: label → block index.
    """

    function: Function
    blocks: tuple[Block, ...]
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]


def build_graph(function: Function) -> Graph:
    """Split a function into blocks and find the live registers.

    Raises:
        TilewrightError: ``ptx/not_ptx`` where a branch names a label or table that the function does not have.
    """
    lists, labels, tables = _split(function)
    successors = [_successors(index, lists, labels, tables) for index in range(len(lists))]
    flows = [_flow(instructions) for instructions in lists]
    live_in, live_out = _liveness(flows, successors)
    blocks: list[Block] = []
    site = 0
    for index, instructions in enumerate(lists):
        defs = frozenset(flows[index][1])
        blocks.append(Block(index, tuple(instructions), site, successors[index], live_in[index], live_out[index], defs))
        site += len(instructions)
    return Graph(function, tuple(blocks), tuple(i for block in blocks for i in block.instructions), labels)


def defs_uses(instruction: Instruction) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Registers that an instruction writes, and those that it reads.

    A guard is read, and so is what a guarded instruction writes: where the guard is false, the old value stays.
    """
    defs: list[str] = []
    uses: list[str] = []
    operands = instruction.operands
    if instruction.opcode == "call":
        # (results), function, (arguments), prototype: without results, the function comes first.
        if operands and isinstance(operands[0], Group):
            _collect(operands[0], defs, uses)
            operands = operands[1:]
    elif operands and _has_result(instruction):
        _collect(operands[0], defs, uses)
        if instruction.opcode == "wgmma":
            # The accumulators are added to.
            uses.extend(defs)
        operands = operands[1:]
    for operand in operands:
        _collect(operand, uses, uses)
    if instruction.guard is not None:
        uses.append(instruction.guard.name)
        uses.extend(defs)
    return tuple(defs), tuple(uses)


def ends_block(instruction: Instruction) -> bool:
    """Whether control returns to the scheduler after it: jumps, exits, barriers and waits."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode in _CLOSERS:
        return True
    if opcode in ("bar", "barrier"):
        return modifiers[:1] != ("warp",)
    return opcode == "mbarrier" and modifiers[:1] != () and modifiers[0] in _WAITS


def _has_result(instruction: Instruction) -> bool:
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode in _NO_RESULT:
        return False
    if opcode in ("bar", "barrier"):
        return "red" in modifiers
    forms = _NO_RESULT_FORMS.get(opcode)
    if forms is not None and modifiers and modifiers[0] in forms:
        return False
    # mbarrier.arrive without a state begins with the address.
    return not isinstance(instruction.operands[0], Address)


def _collect(operand: Operand, registers: list[str], addresses: list[str]) -> None:
    """Registers of an operand; those inside an address are always read."""
    if isinstance(operand, Register):
        registers.append(operand.name)
    elif isinstance(operand, Address):
        if isinstance(operand.base, Register):
            addresses.append(operand.base.name)
        for item in operand.coordinates:
            _collect(item, addresses, addresses)
    elif isinstance(operand, Vector | Group):
        for item in operand.items:
            _collect(item, registers, addresses)
    elif isinstance(operand, Pair):
        _collect(operand.first, registers, addresses)
        _collect(operand.second, registers, addresses)


def _split(
    function: Function,
) -> tuple[list[list[Instruction]], dict[str, int], dict[str, tuple[str, ...]]]:
    lists: list[list[Instruction]] = []
    labels: dict[str, int] = {}
    tables: dict[str, tuple[str, ...]] = {}
    current: list[Instruction] = []
    for item in function.body:
        if isinstance(item, Label):
            if current:
                lists.append(current)
                current = []
            labels[item.name] = len(lists)
        elif isinstance(item, BranchTargets):
            tables[item.name] = item.labels
        else:
            # A wait is tried again from its own start.
            if current and item.opcode == "mbarrier" and ends_block(item):
                lists.append(current)
                current = []
            current.append(item)
            if ends_block(item):
                lists.append(current)
                current = []
    if current:
        lists.append(current)
    is_open = not lists or not _never_falls_through(lists[-1][-1])
    if is_open or any(index == len(lists) for index in labels.values()):
        at = lists[-1][-1] if lists else None
        implied = Instruction("ret", (), (), None, at.place if at else None, at.ptx_line if at else 0)
        if lists and not ends_block(lists[-1][-1]) and all(index < len(lists) for index in labels.values()):
            lists[-1].append(implied)
        else:
            lists.append([implied])
    return lists, labels, tables


def _never_falls_through(instruction: Instruction) -> bool:
    return instruction.guard is None and instruction.opcode in _LEAVES | _JUMPS


def _successors(
    index: int,
    lists: Sequence[Sequence[Instruction]],
    labels: Mapping[str, int],
    tables: Mapping[str, tuple[str, ...]],
) -> tuple[int, ...]:
    last = lists[index][-1]
    follows = () if _never_falls_through(last) or index + 1 == len(lists) else (index + 1,)
    if last.opcode not in _JUMPS:
        return follows
    name = last.operands[-1] if last.operands else None
    targets: tuple[str, ...] | None = None
    if isinstance(name, Symbol):
        targets = (name.name,) if last.opcode == "bra" else tables.get(name.name)
    if targets is None or any(target not in labels for target in targets):
        raise not_ptx(last.ptx_line, "a label of this function to branch to", last.full_name)
    return tuple(labels[target] for target in targets) + follows


def _flow(instructions: Sequence[Instruction]) -> tuple[set[str], set[str]]:
    """Registers that a block reads before it writes them, and those that it writes."""
    reads: set[str] = set()
    writes: set[str] = set()
    for instruction in instructions:
        defs, uses = defs_uses(instruction)
        reads.update([name for name in uses if name not in writes])
        writes.update(defs)
    return reads, writes


def _liveness(
    flows: Sequence[tuple[set[str], set[str]]], successors: Sequence[tuple[int, ...]]
) -> tuple[list[frozenset[str]], list[frozenset[str]]]:
    # Only a register that some block reads before writing can live across blocks: the others get no bit.
    names = sorted(set().union(*(reads for reads, _ in flows)))
    bits = {name: 1 << index for index, name in enumerate(names)}
    gen = [_mask(reads, bits) for reads, _ in flows]
    kill = [~_mask(writes, bits) for _, writes in flows]
    predecessors: list[list[int]] = [[] for _ in flows]
    for index, targets in enumerate(successors):
        for target in set(targets):
            predecessors[target].append(index)
    live_in, live_out = [0] * len(flows), [0] * len(flows)
    waiting = deque(_postorder(successors))
    is_waiting = [True] * len(flows)
    while waiting:
        index = waiting.popleft()
        is_waiting[index] = False
        out = 0
        for target in successors[index]:
            out |= live_in[target]
        live_out[index] = out
        into = gen[index] | (out & kill[index])
        if into != live_in[index]:
            live_in[index] = into
            for source in predecessors[index]:
                if not is_waiting[source]:
                    is_waiting[source] = True
                    waiting.append(source)
    sets = {value: _names_of(value, names) for value in {*live_in, *live_out}}
    return [sets[value] for value in live_in], [sets[value] for value in live_out]


def _mask(names: set[str], bits: Mapping[str, int]) -> int:
    mask = 0
    for name in names:
        mask |= bits.get(name, 0)
    return mask


def _names_of(mask: int, names: Sequence[str]) -> frozenset[str]:
    # Bits from the lowest on, as bytes 0 and 1.
    return frozenset(compress(names, bin(mask)[:1:-1].encode().translate(_BITS)))


def _postorder(successors: Sequence[tuple[int, ...]]) -> list[int]:
    """Every block, each after its successors where loops allow; unreachable blocks too."""
    order: list[int] = []
    seen = [False] * len(successors)
    for root in range(len(successors)):
        if seen[root]:
            continue
        seen[root] = True
        stack = [(root, 0)]
        while stack:
            index, at = stack.pop()
            targets = successors[index]
            while at < len(targets) and seen[targets[at]]:
                at += 1
            if at == len(targets):
                order.append(index)
                continue
            stack.append((index, at + 1))
            seen[targets[at]] = True
            stack.append((targets[at], 0))
    return order
