"""Parameters that lie ready are those that a launch of its own would have been given, call after call."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from tilewright.gpu.driver import DeviceError, encode_tensor_map
from tilewright.gpu.executor import kernel_arguments
from tilewright.ladder.family import load_family
from tilewright.ladder.packed import PackedLaunch
from tilewright.ladder.specs import bound_launches, rung_spec
from tilewright.launch.bind import BoundLaunch
from tilewright.launch.tensor_maps import BoundTensorMap

CONSTANTS = {"TW_T_BYTES": 2, "COLUMNS": 8, "ROWS": 8, "ALONG": 1, "PACK": 8, "THREADS": 256}


def encoded(tensor: Any, address: int) -> np.ndarray:
    return np.frombuffer(address.to_bytes(8, "little") * 16, np.uint8)


class Driver:
    """In the driver's place: what each launch was given."""

    def __init__(self, widths: list[int]) -> None:
        self.widths = widths
        self.got: list[tuple[list[bytes], int, int]] = []

    def launch(self, configuration: Any, function: Any, parameters: int, extra: int) -> tuple[Any]:
        pointers = (ctypes.c_void_p * len(self.widths)).from_address(parameters)
        raw = [ctypes.string_at(at, width) for at, width in zip(pointers, self.widths, strict=True)]
        self.got.append((raw, int(configuration.hStream), configuration.numAttrs))
        return (driver.CUresult.CUDA_SUCCESS,)


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> BoundLaunch:
    monkeypatch.setattr("tilewright.ladder.packed.encode_tensor_map", encoded)
    monkeypatch.setattr("tilewright.gpu.executor.encode_tensor_map", encoded)
    family = load_family("transpose")  # arrays, integers, a tensor map and its flag
    rung = family.rung("06_tma")
    sizes = {"M": 40, "N": 72, "ld_x": 80}
    (one,) = bound_launches(rung_spec(family, rung, "bfloat16"), sizes, CONSTANTS)
    return one


def raw_of(launch: BoundLaunch, pointers: dict[str, int]) -> list[bytes]:
    return [np.asarray(each).tobytes() for each in kernel_arguments(launch, pointers.__getitem__)]


def test_every_call_has_its_own_addresses(launch: BoundLaunch, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = Driver([arg.param_bytes for arg in launch.arguments])
    monkeypatch.setattr(driver, "cuLaunchKernelEx", stand_in.launch)
    packed = PackedLaunch(0, launch, is_dependent=True)
    calls = [{"x": 0x7000, "y": 0x9000}, {"x": 0x7000, "y": 0x9010}, {"x": 0x1_0000_0000_0010, "y": 0x9010}]
    for stream, pointers in enumerate(calls):
        packed(pointers.__getitem__, stream)
    for stream, pointers in enumerate(calls):
        assert stand_in.got[stream] == (raw_of(launch, pointers), stream, 1)
    assert {len(raw) for raw in stand_in.got[0][0]} == {4, 8, 128}


def test_maps_begin_where_the_driver_wants_them(launch: BoundLaunch) -> None:
    packed = PackedLaunch(0, launch, is_dependent=False)
    maps = [i for i, arg in enumerate(launch.arguments) if arg.param_bytes == 128]
    assert maps
    assert all(packed._addresses[i] % 64 == 0 for i in maps)
    assert packed._configuration.numAttrs == 0


def test_a_map_is_encoded_once_for_an_address(launch: BoundLaunch, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = Driver([arg.param_bytes for arg in launch.arguments])
    monkeypatch.setattr(driver, "cuLaunchKernelEx", stand_in.launch)
    asked: list[int] = []
    monkeypatch.setattr(
        "tilewright.ladder.packed.encode_tensor_map", lambda map_, at: (asked.append(at), encoded(map_, at))[1]
    )
    monkeypatch.setattr("tilewright.ladder.packed.KEPT_MAPS", 2)
    packed = PackedLaunch(0, launch, is_dependent=False)
    for x in (0x7000, 0x8000, 0x7000, 0x8000, 0xA000, 0x7000):
        pointers = {"x": x, "y": 0x9000}
        packed(pointers.__getitem__, 0)
        assert stand_in.got[-1][0] == raw_of(launch, pointers)
    assert asked == [0x7000, 0x8000, 0xA000, 0x7000]


def test_a_refused_launch_is_an_error(launch: BoundLaunch, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = (driver.CUresult.CUDA_ERROR_INVALID_VALUE,)
    monkeypatch.setattr(driver, "cuLaunchKernelEx", lambda *_: refused)
    monkeypatch.setattr("tilewright.gpu.driver.describe", lambda code: "no")
    with pytest.raises(DeviceError, match="INVALID_VALUE"):
        PackedLaunch(0, launch, is_dependent=False)({"x": 0x7000, "y": 0x9000}.__getitem__, 0)


def test_a_map_is_what_the_driver_wrote(launch: BoundLaunch, monkeypatch: pytest.MonkeyPatch) -> None:
    made = driver.CUtensorMap()
    made.opaque = [driver.cuuint64_t(3 * word + 1) for word in range(16)]
    monkeypatch.setattr(driver, "cuTensorMapEncodeTiled", lambda *_: (driver.CUresult.CUDA_SUCCESS, made))
    (tensor,) = (arg for arg in launch.arguments if isinstance(arg, BoundTensorMap))
    raw = encode_tensor_map(tensor, 0x7000)
    assert raw.view(np.uint64).tolist() == [3 * word + 1 for word in range(16)]
