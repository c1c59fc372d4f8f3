"""Bound launches and the arrays made for them."""

from __future__ import annotations

import numpy as np
import pytest
from launch_samples import CONSTANTS, gemm_spec

from tilewright.errors import TilewrightError
from tilewright.launch.bind import BoundArray, BoundScalar, LaunchChange, bind
from tilewright.launch.inputs import make_inputs, poisoned_outputs


def test_bind_values() -> None:
    launch = bind(gemm_spec(), "ragged", CONSTANTS)
    assert (launch.grid, launch.block, launch.shared_bytes) == ((2, 3, 1), (64, 1, 1), 0)
    assert launch.scalars == {"M": 17, "N": 9, "K": 5, "alpha": 0.5}
    assert launch.shapes == {"a": (17, 5), "b": (5, 9), "c": (17, 9)}
    assert launch.buffers[0].strides == (5, 1)
    assert bind(gemm_spec(), {"M": 9, "N": 8, "K": 1}, CONSTANTS).grid == (1, 2, 1)


def test_a_size_wins_over_a_constant() -> None:
    assert bind(gemm_spec(), "ragged", {**CONSTANTS, "M": 999}).scalars["M"] == 17


def test_change_of_a_variant() -> None:
    change = LaunchChange(shared_bytes=65536, constants={"BM": 4})
    launch = bind(gemm_spec(), "ragged", CONSTANTS, change)
    assert (launch.grid, launch.shared_bytes) == ((2, 5, 1), 65536)


def test_scalars_as_raw_bytes() -> None:
    launch = bind(gemm_spec(), "ragged", CONSTANTS)
    raw = {arg.name: arg.raw() for arg in launch.arguments if isinstance(arg, BoundScalar)}
    assert raw["M"] == (17).to_bytes(4, "little")
    assert raw["alpha"] == np.float32(0.5).tobytes()
    half = gemm_spec(('dtype = "float32"\nvalue', 'dtype = "bfloat16"\nvalue'))
    assert bind(half, "ragged", CONSTANTS).arguments[-1].raw() == b"\x00\x3f"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"THREADS", 1, 1', "1025, 1, 1", "block.x = 1025 is 1025; a launch takes 1 to 1,024"),
        ('"THREADS", 1, 1', "64, 32, 1", "64 x 32 x 1 has 2048 threads"),
        ('"THREADS", 1, 1', "1, 1, 65", "block.z"),
        ('"THREADS", 1, 1', '"K - 16", 1, 1', "block.x = K - 16 is 0"),
        ('"ceil_div(M, BM)"', "65536", "grid.y"),
        ('"ceil_div(M, BM)"', '"M / 5"', "a whole number is needed"),
        ('value = "M"', 'value = "M * 2**30"', "which int32 cannot hold"),
        ('value = "M"', 'value = "alpha"', "'alpha' in 'alpha' is not known"),
        ('shape = ["K", "N"]', 'shape = ["K - 17", "N"]', r"shape\[0\] of 'b' = K - 17 is -1"),
        ('shape = ["K", "N"]', 'shape = ["K", "2**60"]', "more than any card holds"),
        ("[sizes]", "shared_bytes = -1\n[sizes]", "shared_bytes is -1"),
        ('fill = "uniform(-1, 1)"', 'fill = "randint(3, 3)"', "is empty"),
        ('fill = "uniform(-1, 1)"', 'fill = "randint(0, 1.5)"', "whole numbers"),
        ('fill = "uniform(-1, 1)"', 'fill = "randint(2**2000, 3)"', "beyond the range of"),
        ('fill = "uniform(-1, 1)"', 'fill = "uniform(0, 1e39)"', "beyond the range of"),
        ('fill = "uniform(-1, 1)"', 'fill = "uniform(0, 2**2000)"', "beyond the range of"),
        ('fill = "uniform(-1, 1)"', 'fill = "uniform(ceil_div(1e308, 1e-308), 3)"', "out of range"),
        ("value = 0.5", 'value = "2**2000"', "more than float32 can hold"),
        ("value = 0.5", "value = 1e39", "more than float32 can hold"),
    ],
)
def test_out_of_range(old: str, new: str, words: str) -> None:
    with pytest.raises(TilewrightError, match=words) as caught:
        bind(gemm_spec((old, new)), "default", CONSTANTS)
    assert caught.value.facts["file"] == "gemm.toml"
    assert caught.value.facts["line"]


def test_randint_stays_in_its_dtype() -> None:
    changes = [('dtype = "float16"', 'dtype = "int8"'), ('fill = "uniform(-1, 1)"', 'fill = "randint(-128, 128)"')]
    array = make_inputs(bind(gemm_spec(*changes), {"M": 64, "N": 8, "K": 64}, CONSTANTS), 1)["a"]
    assert (array.dtype, array.min(), array.max()) == (np.int8, -128, 127)
    changes[1] = (changes[1][0], 'fill = "randint(-128, 129)"')
    with pytest.raises(TilewrightError, match="leaves the range of int8"):
        bind(gemm_spec(*changes), "default", CONSTANTS)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "int64", "float16", "bfloat16", "float32", "float64", "float8_e4m3fn"]
)
@pytest.mark.parametrize("fill", [None, "randint(0, 2)", "uniform(-2, 3)", "normal(0, 1)", "zeros()", "arange()"])
def test_every_dtype_and_fill(dtype: str, fill: str | None) -> None:
    if fill in ("uniform(-2, 3)", "normal(0, 1)") and "float" not in dtype:
        return
    changes = [('dtype = "float16"', f'dtype = "{dtype}"')]
    changes.append(('fill = "uniform(-1, 1)"', f'fill = "{fill}"' if fill else ""))
    launch = bind(gemm_spec(*changes), {"M": 40, "N": 8, "K": 50}, CONSTANTS)
    array = make_inputs(launch, 1)["a"]
    assert array.shape == (2000,)
    assert array.dtype.name == dtype
    values = array.astype(np.float64)
    match fill:
        case "zeros()":
            assert not values.any()
        case "arange()":
            assert (values[:2] == [0, 1]).all()
        case "randint(0, 2)":
            assert set(values) == {0, 1}
        case "uniform(-2, 3)":
            assert -2 <= values.min() < -1.8
            assert 2.7 < values.max() <= 3
        case "normal(0, 1)":
            assert abs(values.mean()) < 0.15
            assert 0.9 < values.std() < 1.1
        case _:
            assert len(set(values)) > 1


def test_streams_depend_on_seed_and_name_only() -> None:
    launch = bind(gemm_spec(), "default", CONSTANTS)
    first, again, other = make_inputs(launch, 1), make_inputs(launch, 1), make_inputs(launch, 2)
    assert (first["a"] == again["a"]).all()
    assert (first["a"] != other["a"]).any()
    renamed = gemm_spec(('name = "b"', 'name = "d"'))
    assert (make_inputs(bind(renamed, "default", CONSTANTS), 1)["a"] == first["a"]).all()


def test_outputs_are_poisoned_and_inout_is_filled() -> None:
    launch = bind(gemm_spec(), "default", CONSTANTS)
    assert set(make_inputs(launch, 1)) == {"a", "b"}
    outputs = poisoned_outputs(launch, 0xA5)
    assert set(outputs) == {"c"}
    assert set(outputs["c"].tobytes()) == {0xA5}
    assert outputs["c"].dtype == np.float32
    inout = bind(gemm_spec(('role = "out"', 'role = "inout"\nfill = "arange()"')), "default", CONSTANTS)
    assert poisoned_outputs(inout, 0) == {}
    assert make_inputs(inout, 1)["c"][3] == 3


def test_zero_sized_arrays() -> None:
    launch = bind(gemm_spec(), "empty", CONSTANTS)
    storages = {**make_inputs(launch, 1), **poisoned_outputs(launch, 1)}
    assert storages["a"].size == 0
    assert launch.view("a", storages).shape == (8, 0)
    assert launch.view("b", storages).shape == (0, 8)


def test_strides_and_aliases() -> None:
    strided = bind(gemm_spec(('shape = ["M", "K"]', 'shape = ["M", "K"]\nstrides = ["K + 3", 1]')), "ragged", CONSTANTS)
    a = strided.arrays[0]
    assert a.storage_elements == 16 * 8 + 5
    storages = make_inputs(strided, 1)
    view = strided.view("a", storages)
    assert view.shape == (17, 5)
    assert (view[2] == storages["a"][16:21]).all()
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1

    transposed = bind(gemm_spec(('shape = ["M", "K"]', 'shape = ["M", "K"]\nstrides = [1, "M"]')), "ragged", CONSTANTS)
    storages = make_inputs(transposed, 1)
    assert (transposed.view("a", storages)[:, 1] == storages["a"][17:34]).all()

    alias = ('role = "out"', 'role = "out"\nalias_of = "a"\noffset = 4'), ('dtype = "float32"', 'dtype = "float16"')
    with pytest.raises(TilewrightError, match="needs elements 4 to 157 of 'a', which has 85"):
        bind(gemm_spec(*alias), "ragged", CONSTANTS)
    launch = bind(gemm_spec(*alias, ('shape = ["M", "N"]', 'shape = ["N"]')), "ragged", CONSTANTS)
    owner, aliased = launch.arrays[0], launch.arrays[2]
    assert isinstance(aliased, BoundArray)
    assert owner.is_written
    assert owner.is_read_first
    assert [array.name for array in launch.buffers] == ["a", "b"]
    storages = make_inputs(launch, 1)
    assert (launch.view("c", storages) == storages["a"][4:13]).all()
