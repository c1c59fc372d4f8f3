"""``wgmma`` against NumPy products; layouts as PTX ISA, "Register Fragments for wgmma.mma_async.m64n…", writes them."""

import numpy as np
import pytest
from matrix_samples import sample

from tilewright.emulator.matrix import tiles
from tilewright.emulator.matrix.elements import decode, element_bits
from tilewright.emulator.matrix.wgmma import wgmma, wgmma_fragment, wgmma_k
from tilewright.errors import TilewrightError

GROUPS = 2
STORED = {8: np.uint8, 16: np.uint16, 32: np.uint32}


def d_place(thread, i):
    """Of one thread of 128: row and column of element i of D."""
    row = thread % 32 // 4 + 16 * (thread // 32) + (8 if i % 4 >= 2 else 0)
    return row, 8 * (i // 4) + (thread % 4) * 2 + i % 2


def a_place(thread, i, per):
    """Of element i of A in registers: rows g and g + 8 alternate by register; registers 2 and 3 are the second half."""
    register = i // per
    row = thread % 32 // 4 + 16 * (thread // 32) + 8 * (register % 2)
    return row, (thread % 4) * per + i % per + 4 * per * (register // 2)


def d_registers(matrix):
    """Registers of [G, 64, n]."""
    count = matrix.shape[2] // 2
    held = np.array([[matrix[:, *d_place(t, i)] for i in range(count)] for t in range(128)]).transpose(2, 0, 1)
    held = np.ascontiguousarray(held.reshape(-1, count))
    if matrix.dtype == np.float16:
        return tuple(np.ascontiguousarray(r) for r in held.view(np.int32).T)
    return tuple(np.ascontiguousarray(r) for r in held.T)


def a_registers(codes, element):
    bits = element_bits(element)
    per = 32 // bits
    held = np.array([[codes[:, *a_place(t, i, per)] for i in range(4 * per)] for t in range(128)]).transpose(2, 0, 1)
    words = np.ascontiguousarray(held.reshape(-1, 4 * per).astype(STORED[bits])).view(np.int32)
    return tuple(np.ascontiguousarray(r) for r in words.T)


def case(n, element, d_type):
    generator = np.random.default_rng(2)
    k = wgmma_k(element)
    a_codes, a = sample(generator, element, (GROUPS, 64, k))
    b_codes, b = sample(generator, element, (GROUPS, n, k))
    if d_type == "s32":
        d = generator.integers(-(2**31), 2**31, (GROUPS, 64, n)).astype(np.int32)
    else:
        d = generator.standard_normal((GROUPS, 64, n)).astype({"f32": np.float32, "f16": np.float16}[d_type])
    numbers = [decode(codes.astype(STORED[element_bits(element)]), element) for codes in (a_codes, b_codes)]
    np.testing.assert_array_equal(numbers[0], a)
    return a, b.transpose(0, 2, 1), d, a_codes, numbers


@pytest.mark.parametrize("from_registers", [False, True])
@pytest.mark.parametrize("n", [8, 24, 64])
@pytest.mark.parametrize(
    ("element", "d_type"),
    [("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("tf32", "f32"), ("s8", "s32"), ("u8", "s32"), ("e4m3", "f32"),
     ("e5m2", "f16")],
)  # fmt: skip
def test_products_are_those_of_numpy(n, element, d_type, from_registers):
    a, b, d, a_codes, numbers = case(n, element, d_type)
    first = a_registers(a_codes, element) if from_registers else numbers[0]
    found = wgmma(n, (d_type, element, element), d_registers(d), first, numbers[1])
    wanted = d_registers((a @ b + d).astype(np.int32 if d_type == "s32" else d.dtype))
    assert len(found) == n // (4 if d_type == "f16" else 2)
    for one, other in zip(found, wanted, strict=True):
        if d_type == "s32":
            np.testing.assert_array_equal(one, other)
        elif d_type == "f16":
            np.testing.assert_allclose(one.view(np.float16), other.view(np.float16), rtol=2**-10)
        else:
            np.testing.assert_allclose(one, other, rtol=2**-23, atol=1e-12)


@pytest.mark.parametrize(("negate_a", "negate_b"), [(True, False), (False, True), (True, True)])
def test_negation(negate_a, negate_b):
    a, b, d, _, numbers = case(16, "f16", "f32")
    sign = -1 if negate_a != negate_b else 1
    found = wgmma(16, ("f32", "f16", "f16"), d_registers(d), *numbers, True, negate_a, negate_b)
    for one, other in zip(found, d_registers((sign * (a @ b) + d).astype(np.float32)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2**-22, atol=1e-6)


@pytest.mark.parametrize("d_type", ["f32", "f16"])
def test_without_scale_d_old_values_do_not_count(d_type):
    a, b, d, _, numbers = case(8, "f16", d_type)
    d[:] = np.nan
    first_only = np.arange(128 * GROUPS) >= 128
    zero = d_registers((a @ b).astype(d.dtype))
    mixed = wgmma(8, (d_type, "f16", "f16"), d_registers(d), *numbers, first_only)
    for one, other in zip(wgmma(8, (d_type, "f16", "f16"), d_registers(d), *numbers, False), zero, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(mixed, zero, strict=True):
        np.testing.assert_array_equal(one[:128], other[:128])
        assert np.isnan(one[128:].view(np.float16 if d_type == "f16" else np.float32)).all()


def test_pieces_of_large_accumulators_make_the_whole(monkeypatch):
    _, _, d, _, numbers = case(24, "f16", "f32")
    whole = wgmma(24, ("f32", "f16", "f16"), d_registers(d), *numbers)
    monkeypatch.setattr(tiles, "_PIECE_BYTES", 1)
    for one, other in zip(wgmma(24, ("f32", "f16", "f16"), d_registers(d), *numbers), whole, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("n", [8, 32, 256])
def test_tables(n):
    table = wgmma_fragment(n, "f32", "d")
    for lane in range(32):
        places = [d_place(lane, i) for i in range(n // 2)]
        assert [*zip(table.rows[lane], table.cols[lane], strict=True)] == places
    held = np.zeros((16, n), int)
    np.add.at(held, (table.rows, table.cols), 1)
    assert (held == 1).all()


@pytest.mark.parametrize("n", [0, 12, 264])
def test_other_sizes_are_refused(n):
    with pytest.raises(TilewrightError):
        wgmma_fragment(n, "f32", "d")
