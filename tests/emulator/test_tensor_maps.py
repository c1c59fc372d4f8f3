"""Tensor maps: what the driver would refuse, and the way through 128 opaque bytes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.emulator.tensor.maps import ELEMENT_BYTES, MAP_BYTES, TensorMap, decode
from tilewright.errors import TilewrightError

FINE: dict[str, Any] = {
    "element": "float16",
    "address": 3 << 40 | 256,
    "dims": (1000, 50),
    "strides_bytes": (2048,),
    "box": (64, 128),
    "swizzle": "128B",
}


def test_a_map_knows_its_sizes() -> None:
    tensor = TensorMap(**FINE)
    assert (tensor.rank, tensor.element_bytes, tensor.buffer_id, tensor.offset_bytes) == (2, 2, 3, 256)
    assert (tensor.inner_bytes, tensor.rows, tensor.box_bytes) == (128, 128, 16384)
    assert tensor.element_strides == (1, 1)


def test_a_step_copies_the_ceiling_and_does_not_act_along_dimension_0() -> None:
    tensor = TensorMap(**FINE | {"box": (64, 127), "element_strides": (4, 2)})
    assert tensor.counts == (64, 64)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("element", {"element": "float8_e4m3fn"}),
        ("interleave", {"interleave": "64B"}),
        ("swizzle", {"swizzle": "256B"}),
        ("oob_fill", {"oob_fill": "ones"}),
        ("oob_fill", {"element": "int32", "box": (32, 128), "oob_fill": "nan"}),
        ("rank", {"interleave": "16B"}),
        ("rank", {"dims": (), "strides_bytes": (), "box": ()}),
        ("rank", {"dims": (64,) * 6, "strides_bytes": (128,) * 5, "box": (8,) * 6}),
        ("strides_bytes", {"strides_bytes": (2, 2048)}),
        ("box", {"box": (64,)}),
        ("element_strides", {"element_strides": (1,)}),
        ("address", {"address": 8}),
        ("dims", {"dims": (0, 50)}),
        ("dims", {"dims": (1 << 32, (1 << 32) + 1)}),
        ("strides_bytes", {"strides_bytes": (2040,)}),
        ("strides_bytes", {"strides_bytes": (1 << 40,)}),
        ("box", {"box": (64, 257)}),
        ("box", {"box": (64, 0)}),
        ("element_strides", {"element_strides": (1, 9)}),
        ("element_strides", {"element_strides": (1, 0)}),
        ("box[0]", {"box": (60, 128)}),
        ("box[0]", {"box": (72, 128)}),
        ("box[0]", {"swizzle": "64B"}),
        ("box[0]", {"swizzle": "32B"}),
    ],
)
def test_what_the_driver_refuses_is_refused(field: str, change: dict[str, Any]) -> None:
    with pytest.raises(TilewrightError) as caught:
        TensorMap(**FINE | change)
    assert caught.value.code == "emulator/tensor_map"
    assert caught.value.facts["field"] == field
    assert "need" in caught.value.facts
    assert "have" in caught.value.facts


def test_interleave_32b_needs_more_alignment_and_its_swizzle() -> None:
    wide: dict[str, Any] = FINE | {
        "dims": (16, 9, 9),
        "strides_bytes": (64, 640),
        "box": (16, 4, 4),
        "interleave": "32B",
    }
    TensorMap(**wide | {"swizzle": "32B"})
    for change in (
        {"swizzle": "none"},
        {"swizzle": "32B", "address": 16},
        {"swizzle": "32B", "strides_bytes": (48, 640)},
    ):
        with pytest.raises(TilewrightError):
            TensorMap(**wide | change)


@st.composite
def maps(draw: st.DrawFn) -> TensorMap:
    rank = draw(st.integers(1, 5))
    element = draw(st.sampled_from(list(ELEMENT_BYTES)))
    return TensorMap(
        element=element,
        address=draw(st.integers(0, (1 << 60) - 1)) * 16,
        dims=tuple(draw(st.integers(1, 1 << 32)) for _ in range(rank)),
        strides_bytes=tuple(draw(st.integers(0, (1 << 36) - 1)) * 16 for _ in range(rank - 1)),
        box=(16, *(draw(st.integers(1, 256)) for _ in range(rank - 1))),
        element_strides=tuple(draw(st.integers(1, 8)) for _ in range(rank)),
        swizzle=draw(st.sampled_from(["none", "128B", "128B_ATOM_64B"])),
        oob_fill=draw(st.sampled_from(["zeros", "nan"])) if "float" in element else "zeros",
    )


@settings(max_examples=100, deadline=None)
@given(maps(), st.integers(0, MAP_BYTES - 1))
def test_a_map_survives_its_128_bytes_and_no_other_bytes_are_a_map(tensor: TensorMap, at: int) -> None:
    encoded = tensor.encode()
    assert len(encoded) == MAP_BYTES
    assert decode(encoded) == tensor
    changed = bytearray(encoded)
    changed[at] ^= 0x40
    # The padding at the end carries nothing.
    assert decode(bytes(changed)) in (None, tensor)
    if at < 90:
        assert decode(bytes(changed)) is None
    assert decode(encoded[:-1]) is None


def test_zeros_are_no_map() -> None:
    assert decode(bytes(MAP_BYTES)) is None


def test_maps_that_differ_have_other_bytes() -> None:
    tensor = TensorMap(**FINE)
    changes: tuple[dict[str, Any], ...] = (
        {"address": 0}, {"dims": (999, 50)}, {"strides_bytes": (2064,)}, {"box": (64, 127)},
        {"element_strides": (1, 2)}, {"oob_fill": "nan"}, {"element": "bfloat16"}, {"swizzle": "128B_ATOM_32B"},
    )  # fmt: skip
    encoded = {tensor.encode(), *(dataclasses.replace(tensor, **change).encode() for change in changes)}
    assert len(encoded) == len(changes) + 1
