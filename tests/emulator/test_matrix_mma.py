"""``mma.sync`` against NumPy products of the matrices that the ISA's tables put into the registers."""

import numpy as np
import pytest
from matrix_samples import ISA, isa_tables, pack, sample, unpack

from tilewright.emulator.matrix.elements import byte_table, decode
from tilewright.emulator.matrix.fragments import element_bits, parse_shape
from tilewright.emulator.matrix.mma import MmaOptions, mma
from tilewright.emulator.matrix.tiles import OperandMemo
from tilewright.errors import TilewrightError

WARPS = 3
PAIRS = sorted({(shape, element) for shape, elements, _ in ISA for element in elements.split()})


def operands(shape, a_element, b_element, seed=0):
    generator = np.random.default_rng(seed)
    m, n, k = parse_shape(shape)
    a_codes, a = sample(generator, a_element, (WARPS, m, k))
    b_codes, b = sample(generator, b_element, (WARPS, k, n))
    a_regs = pack(a_codes, *isa_tables(shape, a_element, "a"), element_bits(a_element))
    b_regs = pack(b_codes, *isa_tables(shape, b_element, "b"), element_bits(b_element))
    return a, b, a_regs, b_regs


def accumulators(shape, element, seed=1):
    m, n, _ = parse_shape(shape)
    generator = np.random.default_rng(seed)
    tables = isa_tables(shape, element, "c")
    if element == "s32":
        c = generator.integers(-(2**31), 2**31, (WARPS, m, n)).astype(np.int32)
        return c, tuple(r.view(np.int32) for r in pack(c.view(np.uint32), *tables, 32))
    c = generator.standard_normal((WARPS, m, n)).astype(
        {"f16": np.float16, "f32": np.float32, "f64": np.float64}[element]
    )
    if element == "f16":
        return c, pack(c.view(np.uint16), *tables, 16)
    if element == "f32":
        return c, tuple(r.view(np.float32) for r in pack(c.view(np.uint32), *tables, 32))
    return c, pack(c, *tables, 64)


def accumulator_of(element):
    return "s32" if element in ("s8", "u8", "s4", "u4", "b1") else "f64" if element == "f64" else "f32"


def written(element):
    return element.removesuffix("_in_byte"), MmaOptions(kind="f8f6f4") if element.endswith("_in_byte") else MmaOptions()


@pytest.mark.parametrize(("shape", "element"), [p for p in PAIRS if p[1] != "b1"])
def test_products_are_those_of_numpy(shape, element):
    a, b, a_regs, b_regs = operands(shape, element, element)
    kind = accumulator_of(element)
    c, c_regs = accumulators(shape, kind)
    name, options = written(element)
    d_regs = mma(shape, (kind, name, name, kind), a_regs, b_regs, c_regs, options)
    d = unpack(d_regs, *isa_tables(shape, kind, "d"), c.shape[1:])
    assert all(r.flags.c_contiguous and r.dtype == c.dtype for r in d_regs)
    if kind == "s32":
        np.testing.assert_array_equal(d, (a @ b + c).astype(np.int32))  # wraps
    elif kind == "f64":
        np.testing.assert_allclose(d, a @ b + c, rtol=1e-13, atol=1e-13)
    else:
        exact = a.astype(np.float64) @ b + c
        np.testing.assert_allclose(d, exact, rtol=2**-24 * 1.01, atol=1e-14)


@pytest.mark.parametrize("shape", ["m16n8k8", "m16n8k16"])
@pytest.mark.parametrize(("d_type", "c_type"), [("f16", "f16"), ("f16", "f32"), ("f32", "f16")])
def test_half_accumulators_are_rounded_once(shape, d_type, c_type):
    a, b, a_regs, b_regs = operands(shape, "f16", "f16")
    c, c_regs = accumulators(shape, c_type)
    d = unpack(
        mma(shape, (d_type, "f16", "f16", c_type), a_regs, b_regs, c_regs), *isa_tables(shape, d_type, "d"), c.shape[1:]
    )
    exact = a @ b + c
    assert d.dtype == {"f16": np.float16, "f32": np.float32}[d_type]
    np.testing.assert_array_equal(d, exact.astype(d.dtype))


def test_operands_of_two_widths_mix():
    a, b, a_regs, b_regs = operands("m16n8k32", "s8", "u8")
    c, c_regs = accumulators("m16n8k32", "s32")
    d = unpack(
        mma("m16n8k32", ("s32", "s8", "u8", "s32"), a_regs, b_regs, c_regs),
        *isa_tables("m16n8k32", "s32", "d"),
        (16, 8),
    )
    np.testing.assert_array_equal(d, (a @ b + c).astype(np.int32))


def test_satfinite_clamps():
    _, _, a_regs, b_regs = operands("m16n8k16", "s8", "s8")
    top = tuple(np.full(32 * WARPS, 2**31 - 1, np.int32) for _ in range(4))
    types = ("s32", "s8", "s8", "s32")
    clamped = np.stack(mma("m16n8k16", types, a_regs, b_regs, top, MmaOptions(satfinite=True)))
    wrapped = np.stack(mma("m16n8k16", types, a_regs, b_regs, top))
    assert clamped.max() == 2**31 - 1
    assert clamped.min() > 0 > wrapped.min()
    np.testing.assert_array_equal(clamped[wrapped > 0], wrapped[wrapped > 0])


@pytest.mark.parametrize("shape", ["m8n8k128", "m16n8k128", "m16n8k256"])
@pytest.mark.parametrize("bit_op", ["xor", "and"])
def test_single_bits_are_counted(shape, bit_op):
    a, b, a_regs, b_regs = operands(shape, "b1", "b1")
    c, c_regs = accumulators(shape, "s32")
    d_regs = mma(shape, ("s32", "b1", "b1", "s32"), a_regs, b_regs, c_regs, MmaOptions(bit_op=bit_op))
    both = a[:, :, :, None] ^ b[:, None] if bit_op == "xor" else a[:, :, :, None] & b[:, None]
    d = unpack(d_regs, *isa_tables(shape, "s32", "d"), c.shape[1:])
    np.testing.assert_array_equal(d, (both.sum(axis=2) + c).astype(np.int32))


def test_infinities_and_nans_of_halves_survive():
    _, _, a_regs, b_regs = operands("m16n8k16", "f16", "f16")
    _, c_regs = accumulators("m16n8k16", "f32")
    a_regs[0].view(np.uint16)[0] = 0x7C00  # lane 0 of warp 0: row 0
    a_regs[1].view(np.uint16)[0] = 0x7E00  # row 8
    with np.errstate(all="ignore"):
        d = mma("m16n8k16", ("f32", "f16", "f16", "f32"), a_regs, b_regs, c_regs)
    assert np.isinf(d[0][:4]).all()
    assert np.isnan(d[2][:4]).all()
    assert np.isfinite(d[0][4:]).all()


@pytest.mark.parametrize("element", ["e4m3", "e5m2"])
def test_every_byte_decodes_exactly(element):
    codes = np.arange(256, dtype=np.uint8)
    numbers = byte_table(element)
    finite = codes[np.isfinite(numbers)]
    np.testing.assert_array_equal(decode(finite, element), numbers[finite])
    np.testing.assert_array_equal(decode(codes, element), numbers)


def test_every_half_decodes_exactly():
    codes = np.arange(65536, dtype=np.uint16)
    for finite in (codes[(codes & 0x7C00) != 0x7C00], codes):
        np.testing.assert_array_equal(decode(finite.copy(), "f16"), finite.view(np.float16).astype(np.float64))


@pytest.mark.parametrize("element", ["f16", "bf16", "tf32"])
def test_results_do_not_depend_on_the_number_of_warps(element):
    shape = "m16n8k8"
    _, _, a_regs, b_regs = operands(shape, element, element)
    _, c_regs = accumulators(shape, "f32")
    types = ("f32", element, element, "f32")
    together = mma(shape, types, a_regs, b_regs, c_regs)
    alone = mma(shape, types, *(tuple(r[32:64] for r in regs) for regs in (a_regs, b_regs, c_regs)))
    for one, all_of_them in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.view(np.int32), all_of_them[32:64].view(np.int32))


def test_arguments_are_not_changed():
    _, _, a_regs, b_regs = operands("m16n8k16", "s8", "s8")
    _, c_regs = accumulators("m16n8k16", "s32")
    before = [r.copy() for r in (*a_regs, *b_regs, *c_regs)]
    mma("m16n8k16", ("s32", "s8", "s8", "s32"), a_regs, b_regs, c_regs)
    for old, new in zip(before, (*a_regs, *b_regs, *c_regs), strict=True):
        np.testing.assert_array_equal(old, new)


def test_swapped_row_halves_give_another_product():
    a, b, a_regs, b_regs = operands("m16n8k16", "f16", "f16")
    c, c_regs = accumulators("m16n8k16", "f32")
    broken = (a_regs[1], a_regs[0], a_regs[3], a_regs[2])
    d = unpack(
        mma("m16n8k16", ("f32", "f16", "f16", "f32"), broken, b_regs, c_regs),
        *isa_tables("m16n8k16", "f32", "d"),
        (16, 8),
    )
    assert not np.allclose(d, a @ b + c)


def test_wrong_operand_counts_are_refused():
    _, _, a_regs, b_regs = operands("m16n8k16", "f16", "f16")
    _, c_regs = accumulators("m16n8k16", "f32")
    with pytest.raises(TilewrightError, match="4 and 2"):
        mma("m16n8k16", ("f32", "f16", "f16", "f32"), a_regs[:2], b_regs, c_regs)


def test_a_memo_changes_nothing_and_tells_registers_apart():
    memo, types = OperandMemo(entries=2), ("s32", "s8", "s8", "s32")
    _, c_regs = accumulators("m16n8k16", "s32")
    for seed in (0, 1, 2, 0):
        _, _, a_regs, b_regs = operands("m16n8k16", "s8", "s8", seed)
        for _ in range(2):
            remembered = mma("m16n8k16", types, a_regs, b_regs, c_regs, memo=memo)
            for one, other in zip(remembered, mma("m16n8k16", types, a_regs, b_regs, c_regs), strict=True):
                np.testing.assert_array_equal(one, other)
