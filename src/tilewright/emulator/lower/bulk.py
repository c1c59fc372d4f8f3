"""``cp.async.bulk``, ``cp.async.bulk.tensor`` and ``cp.reduce.async.bulk``. PTX ISA, "Data Movement and Conversion
Instructions: Bulk copy" and "Tensor copy". L2 hints and prefetches change nothing."""

from __future__ import annotations

from tilewright.emulator.lower.writer import BlockWriter
from tilewright.emulator.tensor.reductions import OPERATIONS
from tilewright.ptx.module import Address, Immediate, Instruction, Operand

# Elements of reductions, as tensor.reductions calls them.
_ELEMENTS = {
    "b32": "uint32", "u32": "uint32", "s32": "int32", "b64": "uint64", "u64": "uint64", "s64": "int64",
    "f16": "float16", "bf16": "bfloat16", "f32": "float32_ftz", "f64": "float64",
}  # fmt: skip
_SHARED = ("shared::cluster", "shared::cta")
_OTHER_MODES = ("im2col", "im2col_no_offs", "im2col::w", "im2col::w::128", "tile::gather4", "tile::scatter4", "cp_mask")


def cp_bulk(w: BlockWriter, i: Instruction) -> None:
    modifiers = i.modifiers
    if "prefetch" in modifiers:
        return
    if any(m in _OTHER_MODES or m.startswith("cta_group") for m in modifiers):
        raise w.not_modelled(i.full_name)
    with w.guarded(i.guard):
        if "commit_group" in modifiers:
            w.line(f"M.stores.commit({w.threads})")
        elif "wait_group" in modifiers:
            newest = i.operands[0]
            if not isinstance(newest, Immediate):
                raise w.not_modelled("cp.async.bulk.wait_group with a register")
            w.line(f"M.stores.wait({w.threads}, {newest.value}, {'read' in modifiers})")
        elif "tensor" in modifiers:
            _tensor(w, i)
        else:
            _linear(w, i)


def _linear(w: BlockWriter, i: Instruction) -> None:
    target, source, size, *rest = _operands(i)
    spaces = [m for m in i.modifiers if m in (*_SHARED, "global")]
    if len(spaces) != 2:
        raise w.not_modelled(i.full_name)
    number = w.read(size, "u32")
    w.note_shared(16)
    if spaces[0] == "global":
        where, whence = w.address(target, "global"), w.address(source, "shared")
        w.line(f"M.stores.store({w.threads}, {where}, {whence}, {number}, {_reduction(w, i)}, {w.site})")
        return
    w.note_shared(8)
    where, barrier = w.address(target, "shared"), w.address(rest[0], "shared")
    if spaces[1] == "global":
        whence = w.address(source, "global")
        last = f"{_blocks(w, i, rest)}, {w.site}"
        w.line(f"M.bulk.load({w.threads}, {where}, {whence}, {number}, {barrier}, {last})")
    else:
        whence = w.address(source, "shared")
        last = f"{_reduction(w, i)}, {w.site}"
        w.line(f"M.bulk.copy_shared({w.threads}, {where}, {whence}, {number}, {barrier}, {last})")


def _tensor(w: BlockWriter, i: Instruction) -> None:
    operands = _operands(i)
    is_store = operands and isinstance(operands[0], Address) and bool(operands[0].coordinates)
    named = operands[0] if is_store else operands[1]
    if not isinstance(named, Address):
        raise w.not_modelled(i.full_name)
    tensor_map = w.address(Address(named.base, named.offset), "generic")
    corner = "(" + "".join(f"{w.read(item, 's32')}, " for item in named.coordinates) + ")"
    w.note_shared(16)
    if is_store:
        operation = next((m for m in i.modifiers if m in OPERATIONS), "") if "reduce" in i.modifiers else ""
        source = w.address(operands[1], "shared")
        w.line(f"M.stores.tensor_store({w.threads}, {tensor_map}, {corner}, {source}, {operation!r}, {w.site})")
        return
    w.note_shared(8)
    target, barrier = w.address(operands[0], "shared"), w.address(operands[2], "shared")
    last = f"{_blocks(w, i, operands[2:])}, {w.site}"
    w.line(f"M.bulk.tensor_load({w.threads}, {target}, {tensor_map}, {corner}, {barrier}, {last})")


def _operands(i: Instruction) -> list[Operand]:
    operands = list(i.operands)
    if "L2::cache_hint" in i.modifiers:
        operands.pop()
    return operands


def _blocks(w: BlockWriter, i: Instruction, after_source: list[Operand]) -> str:
    """The mask of a multicast; it follows the mbarrier."""
    if "multicast::cluster" not in i.modifiers:
        return "None"
    return w.read(after_source[1], "u16")


def _reduction(w: BlockWriter, i: Instruction) -> str:
    if "reduce" not in i.modifiers:
        return "None"
    operation = next(m for m in i.modifiers if m in OPERATIONS)
    if i.modifiers[-1] not in _ELEMENTS:
        raise w.not_modelled(i.full_name)
    return repr((operation, _ELEMENTS[i.modifiers[-1]]))
