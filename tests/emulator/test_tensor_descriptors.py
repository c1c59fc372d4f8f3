"""Matrix descriptors: the canonical layouts of the ISA, and the way from a tensor copy to an operand of wgmma."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.emulator.tensor import boxes
from tilewright.emulator.tensor import descriptors as wgmma
from tilewright.emulator.tensor.maps import TensorMap
from tilewright.errors import TilewrightError

Array = np.ndarray[Any, np.dtype[Any]]
WIDTH = {"none": 16, "32B": 32, "64B": 64, "128B": 128}
BITS = {"none": 0, "32B": 1, "64B": 2, "128B": 3}


def read(memory: Array, descriptors: Array, rows: int, k_bytes: int, element_bytes: int, k_major: bool) -> Array:
    fields = wgmma.decode(descriptors)
    at = wgmma.chunk_addresses(fields, rows, k_bytes, element_bytes, k_major)
    return wgmma.assemble(memory.reshape(-1, 16)[at // 16], element_bytes, k_major)


def cute(shape: tuple[Any, ...], stride: tuple[Any, ...], index: int) -> int:
    """CuTe's layout function for one nested mode: ``((8,m),(T,2k))``, first entry fastest."""
    total = 0
    for size, step in zip(shape, stride, strict=True):
        index, rest = divmod(index, size)
        total += rest * step
    return total


@pytest.mark.parametrize("swizzle", list(WIDTH))
@pytest.mark.parametrize("element_bytes", [1, 2, 4])
@pytest.mark.parametrize("k_major", [True, False])
def test_addresses_are_the_canonical_layouts_of_the_isa(swizzle: str, element_bytes: int, k_major: bool) -> None:
    """PTX ISA, "Canonical Layouts", element by element, in units of elements as the table has it."""
    if not k_major and element_bytes != 2:
        return
    rows, k_bytes, t, w = 64, 32, 16 // element_bytes, WIDTH[swizzle] // 16
    lbo_bytes, sbo_bytes, start = 4096 + 1024, 2048 + 1024, 1024 * 3
    lbo, sbo, ks = lbo_bytes // element_bytes, sbo_bytes // element_bytes, k_bytes // element_bytes
    big, layout = 99, cast("Any", ())
    if k_major and swizzle == "none":
        layout = ((8, big), (1 * t, sbo)), ((t, big), (1, lbo))
    elif k_major:
        layout = ((8, big), (w * t, sbo)), ((t, big), (1, t))
    elif swizzle == "none":
        layout = ((t, 1, big), (1, t, sbo)), ((8, big), (1 * t, lbo))
    else:
        layout = ((t, w, big), (1, t, lbo)), ((8, big), (w * t, sbo))
    fields = wgmma.decode(np.array([wgmma.encode(start, lbo_bytes, sbo_bytes, swizzle)], np.uint64))
    at = wgmma.chunk_addresses(fields, rows, k_bytes, element_bytes, k_major)
    # Where each byte lies, as a matrix of addresses in place of data.
    address = (at[..., None] + np.arange(16)).astype(np.int64)
    found = address.reshape(1, *at.shape[1:2], -1, element_bytes)[..., 0][0]
    found = found if k_major else found.T
    for row in range(rows):
        for k in range(ks):
            plain = start + element_bytes * (
                cute(layout[0][0], layout[0][1], row) + cute(layout[1][0], layout[1][1], k)
            )
            assert found[row, k] == plain ^ ((plain >> 7 & ((1 << BITS[swizzle]) - 1)) << 4)


def test_the_examples_of_the_isa_tables() -> None:
    """K-Major, no-swizzling and tf32: ((8,2),(4,4)):((4,32),(1,64)); then MN-Major, 32B swizzling and bf16."""
    fields = wgmma.decode(np.array([16 << 16 | 8 << 32], np.uint64))
    assert (fields.leading_bytes[0], fields.stride_bytes[0]) == (64 * 4, 32 * 4)
    at = wgmma.chunk_addresses(fields, 16, 64, 4, True)[0]
    assert [at[r, c] // 4 for r, c in ((0, 0), (1, 0), (8, 0), (0, 1), (9, 3))] == [0, 4, 32, 64, 4 + 32 + 3 * 64]
    fields = wgmma.decode(np.array([16 << 16 | 32 << 32 | 3 << 62], np.uint64))
    at = wgmma.chunk_addresses(fields, 32, 32, 2, False)[0]
    # [k, chunk of 8 rows]; ((8,2,2),(8,2)):((1,8,128),(16,256)) before the swizzle, which acts from byte 128 on.
    assert [at[k, c] // 2 for k, c in ((0, 0), (0, 1), (0, 2), (1, 0), (4, 0), (8, 0))] == [0, 8, 128, 16, 64 + 8, 256]


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, (1 << 14) - 1),
    st.integers(0, (1 << 14) - 1),
    st.integers(0, (1 << 14) - 1),
    st.integers(0, 7),
    st.sampled_from(list(WIDTH)),
)
def test_fields_survive_the_64_bits(start: int, leading: int, stride: int, base: int, swizzle: str) -> None:
    bits = wgmma.encode(start * 16, leading * 16, stride * 16, swizzle, base)
    for given_as in (
        np.array([bits], np.uint64),
        np.array([bits], np.uint64).view(np.int64),
        np.uint64(bits),
        np.uint64(bits).view(np.int64),
    ):
        fields = wgmma.decode(given_as)
        assert (fields.start_bytes[0], fields.leading_bytes[0], fields.stride_bytes[0]) == (
            start * 16,
            leading * 16,
            stride * 16,
        )
        assert (fields.base_offset[0], wgmma.SWIZZLE_MODES[fields.mode[0]]) == (base, swizzle)


def tensor_of(matrix: Array, box: tuple[int, int], swizzle: str) -> TensorMap:
    element = {1: "uint8", 2: "float16", 4: "float32"}[matrix.itemsize]
    return TensorMap(element, 0, (matrix.shape[1], matrix.shape[0]), (matrix.strides[0],), box, swizzle=swizzle)


def load(memory: Array, tensor: TensorMap, matrix: Array, corner: tuple[int, int], at: int) -> None:
    """One tensor copy: gather the box, put its chunks where the swizzle has them."""
    box = boxes.gather(tensor, matrix.reshape(-1).view(np.uint8), np.array([corner]))
    memory.reshape(-1, 16)[boxes.shared_addresses(tensor, np.array([at]))[0] // 16] = box.reshape(-1, 16)


def numbers(shape: tuple[int, int], element_bytes: int) -> Array:
    dtype = {1: np.uint8, 2: np.uint16, 4: np.uint32}[element_bytes]
    return np.random.default_rng(3).integers(0, 1 << min(8 * element_bytes, 24), shape).astype(dtype)


@pytest.mark.parametrize("swizzle", ["32B", "64B", "128B"])
@pytest.mark.parametrize("element_bytes", [1, 2, 4])
@pytest.mark.parametrize("rows", [64, 8, 256])
def test_k_major_round_trip_with_k_advanced_inside_the_pattern(swizzle: str, element_bytes: int, rows: int) -> None:
    width = WIDTH[swizzle]
    matrix = numbers((rows, width // element_bytes), element_bytes)
    memory = np.zeros(1 << 17, np.uint8)
    base = 5 * 1024
    load(memory, tensor_of(matrix, (width // element_bytes, rows), swizzle), matrix, (0, 0), base)
    for k_byte in range(0, width, 32):
        bits = np.array([wgmma.encode(base + k_byte, 16, 8 * width, swizzle)], np.uint64)
        got = read(memory, bits, rows, 32, element_bytes, True)[0]
        np.testing.assert_array_equal(got, matrix.view(np.uint8)[:, k_byte : k_byte + 32])
        for wrong in set(WIDTH) - {swizzle}:
            bits = np.array([wgmma.encode(base + k_byte, 16, 8 * width, wrong)], np.uint64)
            assert not np.array_equal(read(memory, bits, rows, 32, element_bytes, True)[0], got)


@pytest.mark.parametrize("element_bytes", [1, 2, 4])
def test_k_major_round_trip_without_a_swizzle(element_bytes: int) -> None:
    """Without a swizzle every 16 bytes of K are a copy of their own: LBO leads from one to the next."""
    rows, chunks = 128, 4
    matrix = numbers((rows, chunks * 16 // element_bytes), element_bytes)
    memory = np.zeros(1 << 15, np.uint8)
    tensor = tensor_of(matrix, (16 // element_bytes, rows), "none")
    for chunk in range(chunks):
        load(memory, tensor, matrix, (chunk * 16 // element_bytes, 0), 128 + chunk * rows * 16)
    for k in range(chunks // 2):
        start = 128 + 2 * k * rows * 16
        bits = np.array([wgmma.encode(start, rows * 16, 128, "none")], np.uint64)
        got = read(memory, bits, rows, 32, element_bytes, True)[0]
        np.testing.assert_array_equal(got, matrix.view(np.uint8)[:, 32 * k : 32 * k + 32])
        swapped = np.array([wgmma.encode(start, 128, rows * 16, "none")], np.uint64)
        assert not np.array_equal(read(memory, swapped, 16, 32, element_bytes, True)[0], got[:16])


@pytest.mark.parametrize("swizzle", ["32B", "64B", "128B"])
@pytest.mark.parametrize("rows", [64, 128, 256])
def test_mn_major_round_trip(swizzle: str, rows: int) -> None:
    """B as [K, N] in global memory, N contiguous: copies of ``width`` bytes of N by all of K, side by side."""
    depth, width = 64, WIDTH[swizzle]
    matrix = numbers((depth, rows), 2)
    memory = np.zeros(1 << 18, np.uint8)
    base, lbo, sbo = 1024, depth * width, 8 * width
    tensor = tensor_of(matrix, (width // 2, depth), swizzle)
    for part in range(rows * 2 // width):
        load(memory, tensor, matrix, (part * width // 2, 0), base + part * lbo)
    for k in range(0, depth, 16):
        start = base + k * width
        bits = np.array([wgmma.encode(start, lbo, sbo, swizzle)], np.uint64)
        got = read(memory, bits, rows, 32, 2, False)[0].view(np.uint16)
        np.testing.assert_array_equal(got, matrix[k : k + 16].T)
        for wrong in set(WIDTH) - {swizzle}:
            bits = np.array([wgmma.encode(start, lbo, sbo, wrong)], np.uint64)
            assert not np.array_equal(read(memory, bits, rows, 32, 2, False)[0].view(np.uint16), got)


def test_mn_major_round_trip_without_a_swizzle() -> None:
    depth, rows = 32, 64
    matrix = numbers((depth, rows), 2)
    memory = np.zeros(1 << 14, np.uint8)
    tensor = tensor_of(matrix, (8, depth), "none")
    for part in range(rows // 8):
        load(memory, tensor, matrix, (8 * part, 0), part * depth * 16)
    for k in range(0, depth, 16):
        bits = np.array([wgmma.encode(k * 16, 128, depth * 16, "none")], np.uint64)
        np.testing.assert_array_equal(read(memory, bits, rows, 32, 2, False)[0].view(np.uint16), matrix[k : k + 16].T)
        swapped = np.array([wgmma.encode(k * 16, depth * 16, 128, "none")], np.uint64)
        assert not np.array_equal(read(memory, swapped, rows, 32, 2, False)[0].view(np.uint16), matrix[k : k + 16].T)


def test_descriptors_that_differ_are_read_each_by_its_own_fields() -> None:
    matrix = numbers((64, 64), 2)
    memory = np.zeros(1 << 15, np.uint8)
    load(memory, tensor_of(matrix, (64, 64), "128B"), matrix, (0, 0), 0)
    load(memory, tensor_of(matrix, (32, 64), "64B"), matrix, (0, 0), 1 << 14)
    bits = [
        wgmma.encode(32, 16, 1024, "128B"),
        wgmma.encode((1 << 14) + 32, 16, 512, "64B"),
        wgmma.encode(0, 16, 1024, "128B"),
    ]
    got = read(memory, np.array(bits, np.uint64), 64, 32, 2, True).view(np.uint16)
    assert got.shape == (3, 64, 16)
    for k, first in enumerate((16, 16, 0)):
        np.testing.assert_array_equal(got[k], matrix[:, first : first + 16])


def test_a_pattern_off_its_boundary_needs_the_base_offset() -> None:
    """A pattern written from 128 on, as if 128 were its boundary: line r is XORed with r, not with r + 1."""
    matrix = numbers((64, 64), 2)
    memory, base = np.zeros(1 << 15, np.uint8), 128
    tensor = tensor_of(matrix, (64, 64), "128B")
    at = boxes.shared_addresses(tensor, np.array([0]))[0] + base
    memory.reshape(-1, 16)[at // 16] = matrix.view(np.uint8).reshape(-1, 16)
    told = np.array([wgmma.encode(base, 16, 1024, "128B", base_offset=1)], np.uint64)
    silent = np.array([wgmma.encode(base, 16, 1024, "128B")], np.uint64)
    np.testing.assert_array_equal(read(memory, told, 64, 32, 2, True)[0].view(np.uint16), matrix[:, :16])
    assert not np.array_equal(read(memory, silent, 64, 32, 2, True)[0].view(np.uint16), matrix[:, :16])


def test_a_copy_off_the_boundary_is_read_back_without_a_base_offset() -> None:
    """A tensor copy XORs absolute bits wherever it starts, and so does a descriptor with base offset 0."""
    matrix = numbers((64, 64), 2)
    memory, base = np.zeros(1 << 15, np.uint8), 128
    load(memory, tensor_of(matrix, (64, 64), "128B"), matrix, (0, 0), base)
    bits = np.array([wgmma.encode(base, 16, 1024, "128B")], np.uint64)
    np.testing.assert_array_equal(read(memory, bits, 64, 32, 2, True)[0].view(np.uint16), matrix[:, :16])


@pytest.mark.parametrize(
    ("rows", "k_bytes", "size", "k_major"),
    [(64, 32, 1, False), (64, 32, 4, False), (60, 32, 2, True), (264, 32, 2, True), (64, 16, 2, True)],
)
def test_operands_that_wgmma_lacks_are_refused(rows: int, k_bytes: int, size: int, k_major: bool) -> None:
    with pytest.raises(TilewrightError, match="emulator/descriptor"):
        wgmma.chunk_addresses(wgmma.decode(0), rows, k_bytes, size, k_major)
