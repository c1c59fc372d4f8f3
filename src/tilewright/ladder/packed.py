"""Launches whose parameters lie ready: a call writes addresses into them, and hands them to the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tilewright.gpu.driver import checked, encode_tensor_map, launch_configuration
from tilewright.launch.bind import BoundArray, BoundLaunch, BoundScalar
from tilewright.launch.tensor_maps import BoundTensorMap

KEPT_MAPS = 512  # of a launch: a layer's weights lie elsewhere than the next one's
_SLOT_BYTES = 8
_MAP_BYTES = 128  # CUDA Driver API, CUtensorMap; at a multiple of 64


class PackedLaunch:
    """One launch of a plan, called again and again: from any thread, one at a time.

    Args:
        kernel: the handle. launch: without structures.
        is_dependent: the grid may begin before the one before it has ended; see ``ptx.dependent``.
    """

    def __init__(self, kernel: Any, launch: BoundLaunch, is_dependent: bool) -> None:
        import numpy as np
        from cuda.bindings import driver

        slots: list[tuple[int, str, int]] = []  # word, owner, bytes behind the owner's address
        maps: list[tuple[int, BoundTensorMap]] = []
        offsets: list[int] = []
        scalars: list[tuple[int, bytes]] = []
        end = 0
        for arg in launch.arguments:
            if isinstance(arg, BoundTensorMap):
                end = -(-end // 64) * 64
                if not arg.obstacle:
                    maps.append((end, arg))
            elif isinstance(arg, BoundArray):
                slots.append((end // _SLOT_BYTES, arg.owner, arg.offset * arg.dtype.item_bytes))
            else:
                assert isinstance(arg, BoundScalar)
                scalars.append((end, arg.raw()))
            offsets.append(end)
            end += _MAP_BYTES if isinstance(arg, BoundTensorMap) else _SLOT_BYTES
        memory = np.zeros(end + 64, np.uint8)
        begin = -memory.ctypes.data % 64
        self._bytes = memory[begin : begin + end]
        for at, raw in scalars:
            self._bytes[at : at + len(raw)] = np.frombuffer(raw, np.uint8)
        self._words = self._bytes.data.cast("B").cast("Q")
        self._addresses = np.array([self._bytes.ctypes.data + at for at in offsets], np.uint64)
        self._slots, self._maps = tuple(slots), tuple(maps)
        self._view = self._bytes.data.cast("B")
        self._encoded: dict[tuple[int, int], bytes] = {}  # by place and address
        self._driver = driver
        self._function = driver.CUfunction(int(kernel))
        self._configuration = launch_configuration(launch.grid, launch.block, launch.shared_bytes, is_dependent)
        self._parameters = int(self._addresses.ctypes.data)
        self._lock = threading.Lock()  # of the parameters: the driver copies them before it returns

    def __call__(self, pointer: Callable[[str], int], stream: int) -> None:
        """Put it on a stream of the current card.

        Args:
            pointer: name of a buffer → its address.

        Raises:
            DeviceError: the driver refuses a tensor map, or the launch.
        """
        with self._lock:
            words = self._words
            for word, owner, behind in self._slots:
                words[word] = pointer(owner) + behind
            for at, tensor in self._maps:
                address = pointer(tensor.owner)
                self._view[at : at + _MAP_BYTES] = self._encoded.get((at, address)) or self._encode(at, tensor, address)
            self._configuration.hStream = stream
            (code,) = self._driver.cuLaunchKernelEx(self._configuration, self._function, self._parameters, 0)
        if code:
            checked((code,))

    def _encode(self, at: int, tensor: BoundTensorMap, address: int) -> bytes:
        raw = encode_tensor_map(tensor, address).tobytes()
        if len(self._encoded) >= KEPT_MAPS:
            self._encoded.clear()
        self._encoded[at, address] = raw
        return raw
