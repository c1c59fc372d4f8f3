"""Boxes of tensor copies against loops over coordinates, and where their chunks lie in shared memory."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewright.emulator.tensor import boxes, reductions
from tilewright.emulator.tensor.maps import TensorMap
from tilewright.errors import TilewrightError

Array = np.ndarray[Any, np.dtype[Any]]
_PAD_BYTES = 32


@st.composite
def tensors(draw: st.DrawFn, elements: tuple[str, ...] = ("uint8", "float16", "int32", "float64")) -> TensorMap:
    """A small tensor, rows padded, with a box that may be larger than it."""
    rank = draw(st.integers(1, 5))
    element = draw(st.sampled_from(elements))
    size = TensorMap(element, 0, (1,), (), (16,)).element_bytes
    dims = tuple(draw(st.integers(1, 20 if axis == 0 else 5)) for axis in range(rank))
    strides, step = [], 0
    for axis in range(rank - 1):
        step = max(step * dims[axis], -(-dims[0] * size // 16) * 16) + 16 * draw(st.integers(0, 1))
        strides.append(step)
    return TensorMap(
        element=element,
        address=draw(st.integers(0, 2)) * 16,
        dims=dims,
        strides_bytes=tuple(strides),
        box=(16 // size * draw(st.integers(1, 2)), *(draw(st.integers(1, 4)) for _ in range(rank - 1))),
        element_strides=tuple(draw(st.integers(1, 3)) for _ in range(rank)),
        oob_fill=draw(st.sampled_from(["zeros", "nan"])) if "float" in element else "zeros",
    )


@st.composite
def copies(draw: st.DrawFn) -> tuple[TensorMap, Array, Array]:
    """A tensor map, its buffer, and the coordinates of one to three copies."""
    tensor = draw(tensors())
    coordinates = [[draw(st.integers(-9, size + 6)) for size in tensor.dims] for _ in range(draw(st.integers(1, 3)))]
    last = sum((size - 1) * stride for size, stride in zip(tensor.dims[1:], tensor.strides_bytes, strict=True))
    length = tensor.offset_bytes + last + tensor.dims[0] * tensor.element_bytes
    buffer = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 256, length + _PAD_BYTES, np.uint8)
    return tensor, buffer, np.array(coordinates)


def places(tensor: TensorMap, start: Array) -> list[int | None]:
    """The byte offset of each element of a box, innermost first; None outside the tensor. Loops, on purpose."""
    found: list[int | None] = []
    for outer_first in itertools.product(*(range(count) for count in reversed(tensor.counts))):
        at = [int(start[axis]) + k * tensor.steps[axis] for axis, k in enumerate(reversed(outer_first))]
        if all(0 <= c < size for c, size in zip(at, tensor.dims, strict=True)):
            strides = (tensor.element_bytes, *tensor.strides_bytes)
            found.append(tensor.offset_bytes + sum(c * stride for c, stride in zip(at, strides, strict=True)))
        else:
            found.append(None)
    return found


def by_loops(tensor: TensorMap, buffer: Array, coordinates: Array) -> Array:
    size = tensor.element_bytes
    fill = b"\xf7\x7f" * (size // 2) if tensor.oob_fill == "nan" else bytes(size)
    rows = [
        b"".join(fill if place is None else buffer[place : place + size].tobytes() for place in places(tensor, start))
        for start in coordinates
    ]
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(coordinates), -1)


@settings(max_examples=250, deadline=None)
@given(copies())
def test_loads_are_what_loops_over_coordinates_find(case: tuple[TensorMap, Array, Array]) -> None:
    tensor, buffer, coordinates = case
    before = buffer.copy()
    loaded = boxes.gather(tensor, buffer, coordinates)
    np.testing.assert_array_equal(loaded, by_loops(tensor, buffer, coordinates))
    assert loaded.shape == (len(coordinates), tensor.box_bytes)
    np.testing.assert_array_equal(buffer, before)


@settings(max_examples=150, deadline=None)
@given(copies(), st.integers(0, 99))
def test_stores_are_what_loops_over_coordinates_write(case: tuple[TensorMap, Array, Array], seed: int) -> None:
    tensor, buffer, coordinates = case
    size = tensor.element_bytes
    data = np.random.default_rng(seed).integers(0, 256, (len(coordinates), tensor.box_bytes), np.uint8)
    expected = buffer.copy()
    for start, box in zip(coordinates, data, strict=True):
        for k, place in enumerate(places(tensor, start)):
            if place is not None:
                expected[place : place + size] = box[k * size : (k + 1) * size]
    assume(len({p for s in coordinates for p in places(tensor, s) if p is not None}) ==
           sum(p is not None for s in coordinates for p in places(tensor, s)))  # fmt: skip
    boxes.scatter(tensor, buffer, coordinates, data)
    np.testing.assert_array_equal(buffer, expected)


@settings(max_examples=60, deadline=None)
@given(copies())
def test_rows_name_exactly_the_bytes_that_are_read(case: tuple[TensorMap, Array, Array]) -> None:
    tensor, _, coordinates = case
    rows = boxes.rows_of(tensor, coordinates)
    for k, start in enumerate(coordinates):
        named = {
            byte
            for offset, span in zip(rows.offset_bytes[k], rows.span_bytes[k], strict=True)
            for byte in range(offset, offset + span)
        }
        inside = [place for place in places(tensor, start) if place is not None]
        assert named == {place + b for place in inside for b in range(tensor.element_bytes)}


def test_a_box_past_the_end_is_not_the_box_without_the_bounds() -> None:
    """The broken twin: with a tensor as large as the padded buffer, the bytes behind a row would be loaded."""
    buffer = np.arange(256, dtype=np.uint8)
    tensor = TensorMap("uint8", 0, (24, 8), (32,), (16, 2))
    loose = TensorMap("uint8", 0, (32, 8), (32,), (16, 2))
    corner = np.array([[16, 0]])
    assert boxes.gather(tensor, buffer, corner)[0, 8:16].tolist() == [0] * 8
    assert not np.array_equal(boxes.gather(tensor, buffer, corner), boxes.gather(loose, buffer, corner))


def test_a_tensor_beyond_its_buffer_is_named() -> None:
    tensor = TensorMap("uint8", 0, (32, 9), (32,), (16, 2))
    buffer = np.zeros(256, np.uint8)
    boxes.gather(tensor, buffer, np.array([[0, 6]]))
    with pytest.raises(TilewrightError, match="288") as caught:
        boxes.gather(tensor, buffer, np.array([[16, 7]]))
    assert caught.value.code == "emulator/tensor_beyond_buffer"


def test_tfloat32_rounds_to_nearest_even_and_leaves_infinities() -> None:
    values = [0x3F801000, 0x3F803000, 0x3F800FFF, 0x3FFFFFFF, 0x7F800000, 0x7FC00001, 0xBF801001, 0]
    rounded = [0x3F800000, 0x3F804000, 0x3F800000, 0x40000000, 0x7F800000, 0x7FC00001, 0xBF802000, 0]
    buffer = np.array(values, np.uint32).view(np.uint8)
    tensor = TensorMap("tfloat32", 0, (8,), (), (8,), oob_fill="nan")
    assert boxes.gather(tensor, buffer, np.array([[0]])).view(np.uint32).tolist() == [rounded]
    plain = TensorMap("float32", 0, (8,), (), (8,))
    assert boxes.gather(plain, buffer, np.array([[0]])).view(np.uint32).tolist() == [values]
    outside = boxes.gather(tensor, buffer, np.array([[8]])).view(np.uint32)
    assert set(outside.reshape(-1).tolist()) == {0x7FF77FF7}


_ADD = {
    "int32": np.int32,
    "uint64": np.uint64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}


@pytest.mark.parametrize("element", list(_ADD))
def test_sums_of_overlapping_copies_add_up(element: str) -> None:
    dtype = np.dtype(_ADD[element])
    tensor = TensorMap(element, 0, (20, 6), (64 * dtype.itemsize,), (16, 4))
    memory = np.zeros((6, 64), dtype)
    data = np.arange(3 * 64).reshape(3, 64).astype(dtype)
    corners = np.array([[0, 0], [0, 0], [8, 4]])
    boxes.reduce(tensor, memory.reshape(-1).view(np.uint8), corners, data.view(np.uint8), "add")
    expected = np.zeros((6, 64), dtype)
    for corner, box in zip(corners, data.reshape(3, 4, 16), strict=True):
        for row, column in itertools.product(range(4), range(16)):
            if corner[1] + row < 6 and corner[0] + column < 20:
                at = corner[1] + row, corner[0] + column
                expected[at] = expected[at] + box[row, column]
    np.testing.assert_array_equal(memory.view(np.uint8), expected.view(np.uint8))
    # The twin that stores does not add up.
    boxes.scatter(tensor, memory.reshape(-1).view(np.uint8), corners, data.view(np.uint8))
    assert not np.array_equal(memory.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize(
    ("operation", "element", "old", "new", "result"),
    [
        ("min", "int32", -3, 2, -3), ("min", "uint32", 0xFFFFFFFD, 2, 2), ("max", "int64", -3, -9, -3),
        ("and", "uint32", 12, 10, 8), ("or", "uint64", 12, 10, 14), ("xor", "int32", 12, 10, 6),
        ("inc", "uint32", 4, 5, 5), ("inc", "uint32", 5, 5, 0), ("dec", "uint32", 0, 5, 5), ("dec", "uint32", 9, 5, 5),
        ("dec", "uint32", 3, 5, 2), ("max", "float16", float("nan"), 1, 1), ("min", "float16", 2, -1, -1),
        ("add", "float16", 2048, 1, 2048), ("add", "float32", 1e-40, 0, 1e-40), ("add", "float32_ftz", 1e-40, 0, 0),
    ],
)  # fmt: skip
def test_reductions_by_element_type(operation: str, element: str, old: Any, new: Any, result: Any) -> None:
    dtype = np.dtype(element.removesuffix("_ftz"))
    sides = [np.full((1, 16 // dtype.itemsize), value, dtype).view(np.uint8) for value in (old, new, result)]
    np.testing.assert_array_equal(reductions.combine(sides[0], sides[1], operation, element), sides[2])


@pytest.mark.parametrize(
    ("operation", "element"),
    [("add", "int64"), ("min", "float32"), ("inc", "int32"), ("xor", "float16"), ("mul", "int32")],
)
def test_reductions_that_the_instruction_lacks_are_refused(operation: str, element: str) -> None:
    with pytest.raises(TilewrightError, match="emulator/reduction"):
        reductions.check(operation, element, reductions.TENSOR)


# PTX ISA, "Swizzling Modes": the number of the chunk that lies at each place of each 128-byte line.
_PATTERNS = {
    "none": [[0, 1, 2, 3, 4, 5, 6, 7]],
    "32B": [[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6]],
    "64B": [[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6], [2, 3, 0, 1, 6, 7, 4, 5], [3, 2, 1, 0, 7, 6, 5, 4]],
    "128B": [
        [0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6], [2, 3, 0, 1, 6, 7, 4, 5], [3, 2, 1, 0, 7, 6, 5, 4],
        [4, 5, 6, 7, 0, 1, 2, 3], [5, 4, 7, 6, 1, 0, 3, 2], [6, 7, 4, 5, 2, 3, 0, 1], [7, 6, 5, 4, 3, 2, 1, 0],
    ],
    "128B_ATOM_32B": [
        [0, 1, 2, 3, 4, 5, 6, 7], [2, 3, 0, 1, 6, 7, 4, 5], [4, 5, 6, 7, 0, 1, 2, 3], [6, 7, 4, 5, 2, 3, 0, 1],
    ],
    "128B_ATOM_64B": [[0, 1, 2, 3, 4, 5, 6, 7], [4, 5, 6, 7, 0, 1, 2, 3]],
}  # fmt: skip
_INNER_BYTES = {"none": 128, "32B": 32, "64B": 64}


@pytest.mark.parametrize("swizzle", list(_PATTERNS))
@pytest.mark.parametrize("base", [0, 128, 384, 0x1480])
def test_chunks_lie_where_the_isa_tables_put_them(swizzle: str, base: int) -> None:
    inner = _INNER_BYTES.get(swizzle, 128)
    tensor = TensorMap("uint8", 0, (inner, 256), (inner,), (inner, 16 * 128 // inner), swizzle=swizzle)
    at = boxes.shared_addresses(tensor, np.array([base]))[0]
    lines = np.empty(16 * 8, np.int64)
    lines[(at - base) // 16] = np.arange(16 * 8)
    pattern = _PATTERNS[swizzle]
    # "The swizzle base offset": (dstMem / 128) % the pattern's lines.
    expected = [[line * 8 + chunk for chunk in pattern[(line + base // 128) % len(pattern)]] for line in range(16)]
    assert lines.reshape(16, 8).tolist() == expected


def test_a_narrow_row_takes_the_full_width_of_the_swizzle() -> None:
    tensor = TensorMap("uint8", 0, (64, 8), (64,), (64, 4), swizzle="128B")
    assert boxes.row_pitch_bytes(tensor) == 128
    assert boxes.footprint_bytes(tensor) == 512
    assert tensor.box_bytes == 256
    at = boxes.shared_addresses(tensor, np.array([1024]))
    assert at.shape == (1, 16)
    assert (at - 1024).reshape(4, 4).tolist() == [[0, 16, 32, 48], [144, 128, 176, 160], [288, 304, 256, 272],
                                                   [432, 416, 400, 384]]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["none", "32B", "64B", "128B", "128B_ATOM_32B"]),
    st.integers(0, 200),
    st.integers(1, 40),
    st.integers(1, 8),
)
def test_no_two_chunks_share_a_place_and_none_leaves_the_footprint(
    swizzle: str, line: int, rows: int, chunks: int
) -> None:
    inner = min(16 * chunks, _INNER_BYTES.get(swizzle, 128))
    tensor = TensorMap("uint8", 0, (inner, rows), (inner,), (inner, rows), swizzle=swizzle)
    base = 1024 * line
    at = boxes.shared_addresses(tensor, np.array([base]))[0]
    assert len(set(at.tolist())) == tensor.box_bytes // 16
    assert at.min() >= base
    assert at.max() + 16 <= base + -(-boxes.footprint_bytes(tensor) // 128) * 128


def test_what_is_not_modelled_is_refused_by_name() -> None:
    boxes.check_mode("tile")
    flip = TensorMap("uint8", 0, (128, 8), (128,), (128, 8), swizzle="128B_ATOM_32B_FLIP_8B")
    sliced = TensorMap("uint8", 0, (16, 8, 8), (128, 1024), (16, 8, 8), interleave="16B")
    broadcast = TensorMap("int32", 0, (16, 8), (0,), (16, 8))
    memory, corner = np.zeros(4096, np.uint8), np.array([[0, 0]])
    for refused in (
        lambda: boxes.check_mode("im2col"),
        lambda: boxes.check_mode("tile::gather4"),
        lambda: boxes.shared_addresses(flip, np.array([0])),
        lambda: boxes.gather(sliced, memory, np.array([[0, 0, 0]])),
        lambda: boxes.reduce(broadcast, memory, corner, np.zeros((1, 512), np.uint8), "add"),
    ):
        with pytest.raises(TilewrightError, match="emulator/not_modelled"):
            refused()


def test_alignment_and_negative_corners_are_reported() -> None:
    assert boxes.misaligned(np.array([0, 64, 128, 1040])).tolist() == [False, True, False, True]
    tensor = TensorMap("int32", 0, (32, 32), (128,), (8, 4))
    assert boxes.misplaced(tensor, np.array([[4, 1], [3, 0], [-8, 3], [-2, 0]])).tolist() == [False, True, False, True]
    assert boxes.negative_corners(np.array([[0, 0], [3, -1]])).tolist() == [False, True]
    with pytest.raises(TilewrightError, match="coordinates"):
        boxes.gather(TensorMap("uint8", 0, (16,), (), (16,)), np.zeros(16, np.uint8), np.array([[0, 0]]))
