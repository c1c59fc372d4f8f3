"""wmma round trips, and ldmatrix feeding mma."""

import numpy as np
import pytest
from matrix_samples import isa_tables, pack, sample, unpack
from op_harness import Program

from tilewright.emulator.matrix.fragments import element_bits, parse_shape
from tilewright.emulator.matrix.ldmatrix import ldmatrix, movmatrix, stmatrix
from tilewright.emulator.matrix.mma import mma
from tilewright.emulator.matrix.wmma import (
    from_registers,
    load_offsets,
    load_rows,
    span,
    store_rows,
    to_registers,
    wmma_fragment,
    wmma_mma,
)
from tilewright.errors import TilewrightError

WARPS = 3
CASES = [
    *((s, e, "s32") for s in ("m16n16k16", "m32n8k16", "m8n32k16") for e in ("s8", "u8")),
    *((s, "f16", d) for s in ("m16n16k16", "m32n8k16", "m8n32k16") for d in ("f32", "f16")),
    *((s, "bf16", "f32") for s in ("m16n16k16", "m32n8k16", "m8n32k16")),
    ("m16n16k8", "tf32", "f32"), ("m8n8k4", "f64", "f64"),
]  # fmt: skip
STORED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.float64}


def memory(codes, element, row_major):
    """uint8[W, count, row_bytes] of a matrix in memory."""
    stored = codes if row_major else codes.transpose(0, 2, 1)
    return np.ascontiguousarray(stored.astype(STORED[element_bits(element) // 8])).view(np.uint8)


def c_matrix(element, shape):
    generator = np.random.default_rng(5)
    if element == "s32":
        return generator.integers(-(2**31), 2**31, shape).astype(np.int32)
    return generator.standard_normal(shape).astype({"f16": np.float16, "f32": np.float32, "f64": np.float64}[element])


@pytest.mark.parametrize("a_row", [True, False])
@pytest.mark.parametrize("b_row", [True, False])
@pytest.mark.parametrize(("shape", "element", "d_type"), CASES)
def test_load_multiply_store(shape, element, d_type, a_row, b_row):
    generator = np.random.default_rng(0)
    m, n, k = parse_shape(shape)
    a_codes, a = sample(generator, element, (WARPS, m, k))
    b_codes, b = sample(generator, element, (WARPS, k, n))
    c = c_matrix(d_type, (WARPS, m, n))
    a_bytes, b_bytes = memory(a_codes, element, a_row), memory(b_codes, element, b_row)
    found = span(shape, element, "a", a_row)
    assert a_bytes.shape[1:] == (found.count, found.row_bytes)
    a_regs = load_rows(a_bytes, shape, element, "a", a_row)
    b_regs = load_rows(b_bytes, shape, element, "b", b_row)
    c_rows = np.ascontiguousarray(c if b_row else c.transpose(0, 2, 1)).view(np.uint8)
    c_regs = load_rows(c_rows, shape, d_type, "c", b_row)
    d_regs = wmma_mma(shape, (d_type, element, element, d_type), a_regs, b_regs, c_regs)
    assert [r.dtype for r in d_regs] == [r.dtype for r in c_regs]
    stored = store_rows(d_regs, shape, d_type, a_row).view(c.dtype)
    d = stored if a_row else stored.transpose(0, 2, 1)
    if d_type == "s32":
        np.testing.assert_array_equal(d, (a @ b + c).astype(np.int32))
    else:
        exact = a @ b + c
        np.testing.assert_allclose(
            d, exact, rtol={"f16": 2**-11, "f32": 2**-24, "f64": 1e-13}[d_type] * 1.01, atol=1e-13
        )


@pytest.mark.parametrize("row_major", [True, False])
@pytest.mark.parametrize(("shape", "element", "d_type"), CASES)
def test_loads_agree_with_the_tables(shape, element, d_type, row_major):
    m, n, k = parse_shape(shape)
    for which, name, size in (("a", element, (m, k)), ("b", element, (k, n)), ("c", d_type, (m, n))):
        bits = element_bits(name)
        codes = np.arange(WARPS * size[0] * size[1]).reshape(WARPS, *size) % (1 << min(bits, 30))
        codes = codes.astype(np.float64) if bits == 64 else codes
        rows = memory(codes, name, row_major)
        slow, fast = load_offsets(shape, name, which, row_major)
        elements = rows.view(STORED[bits // 8])[:, slow, fast]
        registers = load_rows(rows, shape, name, which, row_major)
        table = wmma_fragment(shape, name, which)
        for one, other, third in zip(
            registers, to_registers(elements), pack(codes, table.rows, table.cols, bits), strict=True
        ):
            np.testing.assert_array_equal(one.view(np.int32), other.view(np.int32))
            np.testing.assert_array_equal(one.view(np.int32), third.view(np.int32))
        back = from_registers(to_registers(elements), np.dtype(STORED[bits // 8]).name)
        np.testing.assert_array_equal(back, elements)


def test_registers_of_b_lie_as_on_an_h200():
    """Lane 0's registers, as half words: of B, columns 0 and 8 come one after the other, each with all of k."""
    rows = np.arange(256, dtype=np.uint16).reshape(1, 16, 16).view(np.uint8)
    for element in ("f16", "bf16"):
        across = load_rows(rows, "m16n16k16", element, "b", True)
        assert [int(r[0]) for r in across[:4]] == [0x100000, 0x900080, 0x180008, 0x980088]
        along = load_rows(rows, "m16n16k16", element, "b", False)
        assert [int(r[0]) for r in along[:4]] == [0x10000, 0x90008, 0x810080, 0x890088]
        of_a = load_rows(rows, "m16n16k16", element, "a", True)
        assert [int(r[0]) for r in of_a[:4]] == [0x10000, 0x810080, 0x90008, 0x890088]
    words = np.arange(128, dtype=np.uint32)
    of_rows = load_rows(words.reshape(1, 8, 16).view(np.uint8), "m16n16k8", "tf32", "b", True)
    assert [int(r[0]) for r in of_rows] == [0, 0x40, 8, 0x48]
    of_columns = load_rows(words.reshape(1, 16, 8).view(np.uint8), "m16n16k8", "tf32", "b", False)
    assert [int(r[0]) for r in of_columns] == [0, 4, 0x40, 0x44]


@pytest.mark.parametrize(("which", "layout", "shape"), [("b", "row", "m32n8k16"), ("a", "col", "m8n32k16")])
def test_rows_of_eight_bytes(which, layout, shape):
    """Their leading dimension is 16 at least."""
    body = f"ld.param.u64 %d0, [in0]; wmma.load.{which}.sync.aligned.{layout}.{shape}.global.s8 {{%o0}}, [%d0], 16;"
    data = np.random.default_rng(0).integers(0, 1 << 32, 64, dtype=np.uint32)
    (found,) = Program(["b32"], ["b32"], body).run([data], 64, 32)
    rows = data.view(np.uint8)[:256].reshape(1, 16, 16)[:, :, :8]
    (register,) = load_rows(np.ascontiguousarray(rows), shape, "s8", which, layout == "row")
    assert (found.reshape(2, 32) == register.view(np.uint32)).all()


def test_unknown_wmma_shapes_are_refused():
    with pytest.raises(TilewrightError):
        wmma_fragment("m16n16k32", "s8", "a")


def half_rows(matrix, corners):
    """uint8[W, 8 * num, 16]: the 8 × 8 matrices at (row, col) ``corners``, as the lanes' addresses give them."""
    parts = [matrix[:, r : r + 8, c : c + 8] for r, c in corners]
    return np.ascontiguousarray(np.concatenate(parts, axis=1)).view(np.uint8)


A_CORNERS = ((0, 0), (8, 0), (0, 8), (8, 8))


def product_through_ldmatrix(a_corners=A_CORNERS, b_transposed=True):
    generator = np.random.default_rng(3)
    a, b = (generator.standard_normal((WARPS, *s)).astype(np.float16) for s in ((16, 16), (16, 8)))
    a_regs = ldmatrix(half_rows(a, a_corners), 4, False)
    b_regs = ldmatrix(half_rows(b, ((0, 0), (8, 0))), 2, b_transposed)
    zero = tuple(np.zeros(32 * WARPS, np.float32) for _ in range(4))
    d_regs = mma("m16n8k16", ("f32", "f16", "f16", "f32"), a_regs, b_regs, zero)
    d = unpack(d_regs, *isa_tables("m16n8k16", "f32", "d"), (16, 8))
    return np.allclose(d, a.astype(np.float64) @ b, rtol=1e-6, atol=1e-6)


def test_ldmatrix_feeds_mma():
    assert product_through_ldmatrix()


def test_ldmatrix_of_swapped_tiles_or_without_trans_does_not():
    assert not product_through_ldmatrix(a_corners=((0, 0), (0, 8), (8, 0), (8, 8)))
    assert not product_through_ldmatrix(b_transposed=False)


@pytest.mark.parametrize("num", [1, 2, 4])
@pytest.mark.parametrize("transposed", [True, False])
def test_stmatrix_is_the_inverse_of_ldmatrix(num, transposed):
    rows = np.random.default_rng(1).integers(0, 256, (WARPS, 8 * num, 16)).astype(np.uint8)
    np.testing.assert_array_equal(stmatrix(ldmatrix(rows, num, transposed), num, transposed), rows)


def test_movmatrix_transposes():
    rows = np.random.default_rng(1).integers(0, 256, (WARPS, 8, 16)).astype(np.uint8)
    (plain,), (turned,) = ldmatrix(rows, 1, False), ldmatrix(rows, 1, True)
    np.testing.assert_array_equal(movmatrix(plain), turned)
    assert not np.array_equal(plain, turned)


def test_ldmatrix_holds_what_the_isa_says():
    halves = np.arange(64, dtype=np.uint16).reshape(1, 8, 8)
    (register,) = ldmatrix(halves.view(np.uint8), 1, False)
    for lane in range(32):
        low = halves[0, lane >> 2, 2 * (lane % 4)]
        assert register[lane] == int(low) | (int(low) + 1) << 16


@pytest.mark.parametrize(("element", "bits"), [("b6x16_p32", 6), ("b4x16_p64", 4)])
def test_packed_rows_come_out_as_bytes(element, bits):
    generator = np.random.default_rng(1)
    codes = generator.integers(0, 1 << bits, (WARPS, 16, 16))
    rows = generator.integers(0, 256, (WARPS, 16, 16)).astype(np.uint8)  # the padding is rubbish
    for warp, row in np.ndindex(WARPS, 16):
        whole = sum(int(code) << (bits * i) for i, code in enumerate(codes[warp, row]))
        rows[warp, row, : 2 * bits] = np.frombuffer(whole.to_bytes(2 * bits, "little"), np.uint8)
    for one, other in zip(ldmatrix(rows, 2, False, element), ldmatrix(codes.astype(np.uint8), 2, False), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(TilewrightError):
        ldmatrix(rows, 2, True, element)


def test_other_ldmatrix_elements_are_refused():
    with pytest.raises(TilewrightError, match="b8"):
        ldmatrix(np.zeros((1, 16, 16), np.uint8), 1, True, "b8")
