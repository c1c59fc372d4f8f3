"""``mma.sp`` against the dense product of the expanded A, and block scales against decode-and-multiply in float64."""

import ml_dtypes
import numpy as np
import pytest
from matrix_samples import isa_tables, pack, sample, tables, unpack

from tilewright.emulator.matrix.fragments import element_bits, parse_shape
from tilewright.emulator.matrix.mma import MmaOptions
from tilewright.emulator.matrix.scaled import ScaleOperand, mma_block_scaled
from tilewright.emulator.matrix.sparse import mma_sp
from tilewright.errors import TilewrightError

WARPS = 2
SPARSE = [
    *(("m16n8k16", e, s) for e in ("f16", "bf16") for s in range(4)),
    *(("m16n8k32", e, s) for e in ("f16", "bf16", "s8", "u8") for s in range(2)),
    *(("m16n8k8", "tf32", s) for s in range(4)), *(("m16n8k16", "tf32", s) for s in range(2)),
    ("m16n8k64", "s8", 0), ("m16n8k64", "e4m3", 0), ("m16n8k64", "e2m1_in_byte", 0),
    ("m16n8k64", "s4", 0), ("m16n8k64", "s4", 1), ("m16n8k128", "u4", 0),
]  # fmt: skip


def b_tables(shape, element):
    """PTX ISA: register j of a lane holds rows ``t * p + i + 4 * p * j`` of B."""
    p, k = 32 // element_bits(element), parse_shape(shape)[2]
    return tables(k // 4, lambda ln, i: (ln % 4) * p + i % p + 4 * p * (i // p), lambda ln, i: ln >> 2)


def a_place(element, lane, i):
    """(row, first dense column of the chunk, which kept element of the chunk) of element i of A; ISA's firstcol."""
    p = 32 // element_bits(element)
    register, within = divmod(i, p)
    row = (lane >> 2) + 8 * (register % 2)
    first = (lane % 4) * 2 * p + 8 * p * (register // 2)
    kept = {32: 1, 4: 4}.get(element_bits(element), 2)
    return row, first + within // kept * 2 * kept, within % kept


def metadata_words(element, nibbles, selector):
    """int32[32]: nibbles[row][chunk] as the figures of the ISA place them; other lanes hold rubbish."""
    words = np.random.default_rng(9).integers(0, 2**32, 32).astype(np.uint64)
    chunks, bits = nibbles.shape[1], element_bits(element)
    per_word = 4 if bits >= 16 else 8
    lanes = 16 * chunks // 8
    for group in range(8):
        for lane in range(lanes // 8):
            if bits >= 16:  # bits 0-15: row g, bits 16-31: row g + 8; the next lane: the next four chunks
                parts = [(group, lane * 4 + c, 4 * c) for c in range(4)]
                parts += [(group + 8, lane * 4 + c, 16 + 4 * c) for c in range(4)]
            else:  # even lanes row g, odd lanes row g + 8
                parts = [(group + 8 * (lane % 2), lane // 2 * per_word + c, 4 * c) for c in range(per_word)]
            word = sum(int(nibbles[row, chunk]) << shift for row, chunk, shift in parts)
            words[4 * group + selector * (lanes // 8) + lane] = word
    return words.astype(np.uint32).view(np.int32)


def sparse_case(shape, element, selector, swap_rows=False):
    generator = np.random.default_rng(4)
    m, n, k = parse_shape(shape)
    bits = element_bits(element)
    a_codes, a_kept = sample(generator, element, (WARPS, 32, k * m // 64))
    b_codes, b = sample(generator, element, (WARPS, k, n))
    pairs = [lo | hi << 2 for lo in range(4) for hi in range(lo + 1, 4)]
    choices = [0b0100, 0b1110] if bits == 32 else pairs
    nibbles = generator.choice(choices, (WARPS, m, k // {32: 2, 4: 8}.get(bits, 4)))
    width = {32: 2, 4: 8}.get(bits, 4)
    a = np.zeros((WARPS, m, k), a_kept.dtype)
    for warp in range(WARPS):
        for lane in range(32):
            for i in range(a_kept.shape[2]):
                row, chunk, which = a_place(element, lane, i)
                nibble = int(nibbles[warp, row, chunk // width])
                if bits == 32:
                    column = chunk + (nibble == 0b1110)
                elif bits == 4:
                    column = chunk + 2 * (nibble >> 2 * (which // 2) & 3) + which % 2
                else:
                    column = chunk + (nibble >> 2 * which & 3)
                a[warp, row, column] = a_kept[warp, lane, i]
    if swap_rows:
        nibbles = np.roll(nibbles, 8, axis=1)
    metadata = np.concatenate([metadata_words(element, nibbles[w], selector) for w in range(WARPS)])
    places = (
        np.broadcast_to(np.arange(32)[:, None], a_codes.shape[1:]),
        np.broadcast_to(np.arange(a_codes.shape[2]), a_codes.shape[1:]),
    )
    return a, b, pack(a_codes, *places, bits), pack(b_codes, *b_tables(shape, element), bits), metadata


def sparse_product(shape, element, selector, swap_rows=False):
    a, b, a_regs, b_regs, metadata = sparse_case(shape, element, selector, swap_rows)
    kind = "s32" if element[0] in "su" else "f32"
    c_regs = tuple(np.full(32 * WARPS, 3, {"s32": np.int32, "f32": np.float32}[kind]) for _ in range(4))
    name = element.removesuffix("_in_byte")
    options = MmaOptions(kind="f8f6f4" if name != element else "")
    d = mma_sp(shape, (kind, name, name, kind), a_regs, b_regs, c_regs, metadata, selector, options)
    return unpack(d, *isa_tables("m16n8k16", kind, "d"), (16, 8)), a @ b + 3


@pytest.mark.parametrize(("shape", "element", "selector"), SPARSE)
def test_sparse_products_are_those_of_the_expanded_matrix(shape, element, selector):
    found, wanted = sparse_product(shape, element, selector)
    np.testing.assert_allclose(found, wanted, rtol=2**-23, atol=1e-12)


@pytest.mark.parametrize(("shape", "element"), [("m16n8k16", "f16"), ("m16n8k32", "s8")])
def test_metadata_of_swapped_row_halves_gives_another_product(shape, element):
    found, wanted = sparse_product(shape, element, 0, swap_rows=True)
    assert not np.allclose(found, wanted)


@pytest.mark.parametrize(
    ("shape", "element", "selector"), [("m16n8k16", "f16", 4), ("m16n8k32", "s8", 2), ("m16n8k64", "s8", 1)]
)
def test_selectors_out_of_range_are_refused(shape, element, selector):
    _, _, a_regs, b_regs, metadata = sparse_case(shape, element, 0)
    with pytest.raises(TilewrightError, match="selector"):
        mma_sp(shape, ("s32", element, element, "s32"), a_regs, b_regs, (), metadata, selector)


SCALED = [
    ("mxf8f6f4", "m16n8k32", "e4m3", "e5m2", "ue8m0", 1), ("mxf8f6f4", "m16n8k32", "e2m1", "e3m2", "ue8m0", 1),
    ("mxf8f6f4", "m16n8k32", "e2m3", "e2m1", "ue8m0", 0),
    ("mxf4", "m16n8k64", "e2m1", "e2m1", "ue8m0", 2), ("mxf4nvf4", "m16n8k64", "e2m1", "e2m1", "ue8m0", 2),
    ("mxf4nvf4", "m16n8k64", "e2m1", "e2m1", "ue8m0", 4), ("mxf4nvf4", "m16n8k64", "e2m1", "e2m1", "ue4m3", 4),
]  # fmt: skip


def scale_register(generator, which, codes, byte, thread):
    """int32[32 * W] with codes[W, rows or columns, count] where PTX ISA, "Block Scaling", has them; else rubbish."""
    register = generator.integers(0, 256, (WARPS, 32, 4)).astype(np.uint8)
    for index in range(codes.shape[1]):
        lane = 4 * (index % 8) + 2 * thread + index // 8 if which == "a" else 4 * index + thread
        register[:, lane, byte : byte + codes.shape[2]] = codes[:, index]
    return register.reshape(-1, 4).view(np.int32).reshape(-1)


@pytest.mark.parametrize(("kind", "shape", "a_element", "b_element", "scale", "vec"), SCALED)
@pytest.mark.parametrize("last", [False, True])
def test_block_scales_multiply_their_blocks(kind, shape, a_element, b_element, scale, vec, last):
    generator = np.random.default_rng(6)
    m, n, k = parse_shape(shape)
    count = vec or 1
    stored = [e + "_in_byte" if e == "e2m1" and kind == "mxf8f6f4" else e for e in (a_element, b_element)]
    a_codes, a = sample(generator, stored[0], (WARPS, m, k))
    b_codes, b = sample(generator, stored[1], (WARPS, k, n))
    low, high, dtype = (120, 134, ml_dtypes.float8_e8m0fnu) if scale == "ue8m0" else (1, 0x7F, ml_dtypes.float8_e4m3fn)
    a_scale, b_scale = (generator.integers(low, high, (WARPS, x, count)).astype(np.uint8) for x in (m, n))
    byte, threads = (4 - count if last else 0), ((1, 3) if last else (0, 0))
    scales = (
        ScaleOperand(scale_register(generator, "a", a_scale, byte, threads[0]), byte, threads[0]),
        ScaleOperand(scale_register(generator, "b", b_scale, byte, threads[1]), byte, threads[1]),
    )
    registers = [
        pack(codes, *isa_tables(shape, e, which), element_bits(e))
        for codes, e, which in ((a_codes, stored[0], "a"), (b_codes, stored[1], "b"))
    ]
    c_regs = tuple(generator.standard_normal(32 * WARPS).astype(np.float32) for _ in range(4))
    d_regs = mma_block_scaled(shape, ("f32", a_element, b_element, "f32"), *registers, c_regs, scales, kind, scale, vec)
    places = isa_tables(shape, "f32", "d")
    wide_a = np.repeat(a_scale.view(dtype).astype(np.float64), k // count, axis=2)
    wide_b = np.repeat(b_scale.view(dtype).astype(np.float64), k // count, axis=2).transpose(0, 2, 1)
    wanted = (a * wide_a) @ (b * wide_b) + unpack(c_regs, *places, (m, n))
    np.testing.assert_array_equal(unpack(d_regs, *places, (m, n)), wanted.astype(np.float32))


@pytest.mark.parametrize(
    ("kind", "scale", "vec", "byte", "thread"),
    [("mxf4", "ue4m3", 2, 0, 0), ("mxf4nvf4", "ue4m3", 2, 0, 0), ("mxf4", "ue8m0", 2, 1, 0), ("mxf4", "ue8m0", 2, 0, 2),
     ("f8f6f4", "ue8m0", 1, 0, 0)],
)  # fmt: skip
def test_impossible_scales_are_refused(kind, scale, vec, byte, thread):
    zeros = tuple(np.zeros(32, np.int32) for _ in range(4))
    operand = ScaleOperand(zeros[0], byte, thread)
    with pytest.raises(TilewrightError):
        mma_block_scaled(
            "m16n8k64", ("f32", "e2m1", "e2m1", "f32"), zeros, zeros[:2], zeros, (operand, operand), kind, scale, vec
        )
