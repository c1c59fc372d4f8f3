"""Tensor maps and flags of a launch: their values, what stands in the way of a map, and who says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from launch_samples import CONSTANTS, gemm_spec

from tilewright.errors import TilewrightError
from tilewright.gpu import executor as gpu_executor
from tilewright.launch.bind import BoundLaunch, LaunchChange, bind
from tilewright.launch.tensor_maps import BoundTensorMap, FlagArg, TensorMapArg

MAP = TensorMapArg("a_map", "a", "float16", ("K", "M"), ("K * 2",), (8, 8))
FLAG = FlagArg("has_maps", "encodable(a_map)")


def bound(
    *maps: TensorMapArg, flags: tuple[FlagArg, ...] = (), size: str = "default", edits: tuple[tuple[str, str], ...] = ()
) -> BoundLaunch:
    return bind(gemm_spec(*edits), size, CONSTANTS, LaunchChange(tensor_maps=maps, flags=flags))


def test_values() -> None:
    launch = bound(MAP, flags=(FLAG, FlagArg("wide", "BM == 8"), FlagArg("tall", "M > 24")))
    tensor, *flags = launch.arguments[-4:]
    assert isinstance(tensor, BoundTensorMap)
    assert (tensor.owner, tensor.dims, tensor.pitches, tensor.box) == ("a", (16, 24), (32,), (8, 8))
    assert (tensor.offset_bytes, tensor.obstacle, tensor.element, tensor.param_bytes) == (0, "", "float16", 128)
    assert [(flag.name, flag.value, flag.param_bytes) for flag in flags] == [  # type: ignore[union-attr]
        ("has_maps", 1, 4), ("wide", 1, 4), ("tall", 0, 4),
    ]  # fmt: skip
    assert launch.scalars["has_maps"] == 1
    (swizzled,) = bound(replace(MAP, swizzle_bytes=128)).arguments[-1:]
    assert isinstance(swizzled, BoundTensorMap)
    assert swizzled.swizzle_bytes == 128


def test_a_scalar_argument_wins_over_a_size_of_its_name() -> None:
    launch = bound(replace(MAP, dims=("K", "M")), edits=(('value = "M"', 'value = "M - 8"'),))
    assert launch.arguments[-1].dims == (16, 16)  # type: ignore[union-attr]


def test_offsets_and_aliases_count_from_the_buffer() -> None:
    edits = (('role = "out"', 'role = "out"\nalias_of = "b"\noffset = 8'), ('dtype = "float32"', 'dtype = "float16"'))
    tensor = TensorMapArg("c_map", "c", "int16", ("N - 8",), (), (16,), "8")
    (bound_map,) = bound(tensor, edits=(*edits, ('shape = ["M", "N"]', 'shape = ["N"]'))).arguments[-1:]
    assert isinstance(bound_map, BoundTensorMap)
    assert (bound_map.owner, bound_map.offset_bytes, bound_map.element) == ("b", 32, "uint16")


OBSTACLES = [
    (replace(MAP, offset="4"), "must begin at a multiple of 16 bytes; it begins at byte 8"),
    (replace(MAP, dims=("K - 16", "M")), r"dims\[0\] must be 1 to 2\*\*32; it is 0"),
    (replace(MAP, pitches=("K * 2 + 8",)), r"pitches\[0\] must be a multiple of 16 bytes, .* it is 40"),
    (replace(MAP, pitches=("0",)), r"pitches\[0\]"),
    (replace(MAP, pitches=("2 ** 40",)), r"pitches\[0\]"),
    (replace(MAP, box=(8, 257)), r"box\[1\] must be 1 to 256 elements; it is 257"),
    (replace(MAP, box=(8, 0)), r"box\[1\]"),
    (replace(MAP, box=(4, 8)), "a row of the box must be a multiple of 16 bytes; it has 8"),
    (replace(MAP, box=(8,)), "one pitch fewer and a box of as many"),
    (replace(MAP, swizzle_bytes=256), "its swizzle must be of 0, 32, 64 or 128 bytes; it is of 256"),
    (replace(MAP, box=(24, 8), swizzle_bytes=32), "must fit into the swizzle's 32 bytes; it has 48"),
    (replace(MAP, dims=("1",) * 6, pitches=("16",) * 5, box=(8,) * 6), "1 to 5 dims"),
]


@pytest.mark.parametrize(("tensor", "words"), OBSTACLES)
def test_obstacles(tensor: TensorMapArg, words: str) -> None:
    with pytest.raises(TilewrightError, match=f"'a_map' cannot be made: .*{words}") as caught:
        bound(tensor)
    assert caught.value.code == "launch/tensor_map"
    assert "another variant" in caught.value.hint
    launch = bound(tensor, flags=(FLAG,))
    assert launch.scalars["has_maps"] == 0
    assert launch.arguments[-2].obstacle  # type: ignore[union-attr]


def test_a_flag_excuses_only_the_maps_that_it_asks_about() -> None:
    bad = replace(MAP, name="b_map", box=(4, 8))
    with pytest.raises(TilewrightError, match="'b_map' cannot be made"):
        bound(MAP, bad, flags=(FLAG,))
    with pytest.raises(TilewrightError, match="'b_map' cannot be made"):
        bound(MAP, bad, flags=(FlagArg("either", "encodable(a_map) + encodable(b_map)"),))  # it says: go on
    both = bound(MAP, bad, flags=(FlagArg("both", "encodable(a_map, b_map)"),))
    assert both.scalars["both"] == 0


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (replace(MAP, dims=("K", "M + 1")), "reaches byte 800 of 'a', which has 768"),
        (replace(MAP, dims=("K", "M"), offset="0 - 8"), "reaches byte"),
        (replace(MAP, array="x"), "is of 'x'; arrays are a, b, c"),
        (replace(MAP, dims=("encodable(a_map)", "M")), "'encodable' is not a function"),
        (replace(MAP, dims=("K / 3", "M")), "a whole number is needed"),
    ],
)
def test_mistakes_are_errors_whatever_a_flag_says(tensor: TensorMapArg, words: str) -> None:
    with pytest.raises(TilewrightError, match=words):
        bound(tensor, flags=(FLAG,))


def test_parameters_of_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = np.arange(128, dtype=np.uint8)
    asked: list[int] = []

    def encode(tensor: BoundTensorMap, address: int) -> np.ndarray:
        asked.append(address)
        return encoded

    monkeypatch.setattr(gpu_executor, "encode_tensor_map", encode)
    addresses = {"a": 4096, "b": 8192, "c": 12288}
    values = gpu_executor.kernel_arguments(bound(MAP, flags=(FLAG,)), addresses.__getitem__)
    assert asked == [4096]
    assert values[-2] is encoded
    assert (values[-1].dtype.name, int(values[-1])) == ("uint32", 1)
    none = gpu_executor.kernel_arguments(bound(replace(MAP, box=(4, 8)), flags=(FLAG,)), addresses.__getitem__)
    assert (none[-2].nbytes, int(none[-2].max()), int(none[-1])) == (128, 0, 0)
    assert asked == [4096]
