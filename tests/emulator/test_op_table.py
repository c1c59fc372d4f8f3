"""Which opcodes have a lowering, and how what has none is named."""

from __future__ import annotations

import pytest
from test_op_memory import kernel

from tilewright.emulator.faults import Fault
from tilewright.emulator.lower.compile import compile_kernel, parse
from tilewright.emulator.lower.table import lowering_of
from tilewright.emulator.run import text_of
from tilewright.ptx.module import Instruction

# Root opcodes of the PTX of 371 public kernels.
ROOTS = [
    "ret",
    "ld",
    "add",
    "mov",
    "cvta",
    "setp",
    "bra",
    "mul",
    "shl",
    "st",
    "mad",
    "cvt",
    "and",
    "shr",
    "bar",
    "sub",
    "or",
    "fma",
    "selp",
    "shfl",
    "cp",
    "max",
    "xor",
    "ex2",
    "not",
    "wmma",
    "rcp",
    "div",
    "neg",
    "mma",
    "ldmatrix",
    "atom",
    "abs",
    "barrier",
    "bfi",
    "mbarrier",
    "min",
    "wgmma",
    "rsqrt",
    "fence",
    "setmaxnreg",
    "set",
    "rem",
    "call",
    "lg2",
    "mapa",
    "stmatrix",
    "elect",
    "redux",
    "vote",
    "prefetch",
    "brkpt",
    "prmt",
    "nanosleep",
    "popc",
    "shf",
    "red",
    "copysign",
    "activemask",
    "match",
    "brev",
    "bfind",
    "movmatrix",
]
FORMS = {
    "cp": ("async", "cg", "shared", "global"), "fma": ("rn", "f32"), "copysign": ("f32",), "ex2": ("approx", "f32"),
    "lg2": ("approx", "f32"), "rcp": ("rn", "f32"), "rsqrt": ("approx", "f32"), "set": ("eq", "f16", "f16"),
    "cvt": ("u32", "u64"), "elect": ("sync",), "bra": (), "fence": ("proxy", "async"), "mbarrier": ("init", "b64"),
    "barrier": ("sync",), "bar": ("sync",), "mapa": ("shared::cluster", "u32"),
    "wgmma": ("mma_async", "sync", "aligned", "m64n64k16", "f32", "f16", "f16"),
}  # fmt: skip


def test_every_root_opcode_has_a_lowering() -> None:
    assert len(ROOTS) == 63
    missing = [r for r in ROOTS if lowering_of(Instruction(r, FORMS.get(r, ("b32",)), ())) is None]
    assert not missing


NOT_MODELLED = {
    "vadd.s32.s32.s32 %r1, %r2, %r3;": "vadd.s32.s32.s32",
    "mul.rn.f32.f16 %f1, %h1, %f2;": "mul.rn.f32.f16",
    "fma.rn.oob.f16 %h1, %h2, %h3, %h4;": "fma.rn.oob.f16",
    "cvt.rs.f16x2.f32 %r1, %f1, %f2, %r2;": "cvt.rs.f16x2.f32",
    "ld.global.b128 %r1, [%d1];": "ld.global.b128",
    "mov.u32 %r1, %pm0;": "%pm0",
    "addc.u32 %r1, %r2, %r3;": "addc.u32 with a carry of another basic block",
    "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r1], %r2, [%r3];": "red.async",
    "isspacep.const %p1, %d1;": "isspacep.const",
}


@pytest.mark.parametrize("text", list(NOT_MODELLED))
def test_what_is_not_modelled_is_named(text: str) -> None:
    """Before anything runs: the opcode, and the instruction that the line is looked up by."""
    ptx = kernel(f".loc 1 77 0\n{text}").replace("\n.visible", '\n.file 1 "k.cu"\n.visible', 1)
    parsed = parse(ptx, "k")
    with pytest.raises(Fault) as caught:
        compile_kernel(parsed, 0)
    assert caught.value.kind == "not_modelled"
    assert NOT_MODELLED[text] in caught.value.message
    name = text.split()[0].rstrip(";")
    line = ptx.splitlines().index(text) + 1
    told = text_of(caught.value, parsed.graph, "k.cu")
    assert told == f"line 77: {caught.value.message} ({name}, PTX line {line})"
