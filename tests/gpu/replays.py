"""Launches to be made again on a GPU, with what each must leave behind: a format, and the runner of one launch.

A file of replays is a zip archive: ``cases.json``, and blobs (cubins, arrays) named by their SHA-256. It is made where
a compiler is (``pack_replays.py``) and read where the GPU is; this module needs NumPy and cuda-bindings alone.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import time
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Triple = tuple[int, int, int]
CASES = "cases.json"
ZONE_BYTES = 4096  # before and after each array, and never to be written
ZONE = 0xC3
POINTER, BYTES, TENSOR_MAP = "pointer", "bytes", "tensor_map"


@dataclass(frozen=True)
class Buffer:
    """One array.

    Attributes:
        type: of its elements, for distances: ``f32``, ``b16``, ``e4m3x2``; a suffix ``x2`` makes pairs of one.
        before, after: names of blobs; ``after`` is "" where it must stay as it is.
        is_compared: whether what is found matters.
    """

    name: str
    type: str
    before: str
    after: str = ""
    is_compared: bool = True


@dataclass(frozen=True)
class Param:
    """One parameter of the kernel.

    Attributes:
        kind: ``pointer`` (to buffer ``number``), ``bytes`` (``text``: hexadecimal), ``tensor_map`` (of
            buffer ``number``).
        element, dims, strides_bytes, box, swizzle, oob_fill, element_strides: as ``cuTensorMapEncodeTiled`` takes
            them; names without their prefix: ``BFLOAT16``, ``128B``, ``NONE``; no strides are ones.
    """

    kind: str
    number: int = 0
    text: str = ""
    element: str = ""
    dims: tuple[int, ...] = ()
    strides_bytes: tuple[int, ...] = ()
    box: tuple[int, ...] = ()
    swizzle: str = "NONE"
    oob_fill: str = "NONE"
    element_strides: tuple[int, ...] = ()


@dataclass(frozen=True)
class Replay:
    """One launch.

    Attributes:
        group: ``kernels``, ``layouts`` and ``ops``: bits must be the same. ``probes``: distances are of interest.
        code: blob of the cubin.
        note: what the case is there to find out.
    """

    name: str
    group: str
    code: str
    kernel: str
    grid: Triple
    block: Triple
    shared_bytes: int
    params: tuple[Param, ...]
    buffers: tuple[Buffer, ...]
    note: str = ""


@dataclass
class Blobs:
    """Bytes by their hash."""

    held: dict[str, bytes] = field(default_factory=dict)

    def add(self, data: bytes | Array) -> str:
        raw = data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
        name = hashlib.sha256(raw).hexdigest()[:24]
        self.held[name] = raw
        return name


def save(path: Path, replays: Iterable[Replay], blobs: Blobs) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr(CASES, json.dumps([asdict(replay) for replay in replays]))
        for name, raw in blobs.held.items():
            archive.writestr(name, raw)


class Archive:
    """A file of replays, open."""

    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path)
        self.replays = [_replay(row) for row in json.loads(self._archive.read(CASES))]

    def blob(self, name: str) -> bytes:
        return self._archive.read(name)

    def array(self, name: str) -> Array:
        return np.frombuffer(self.blob(name), np.uint8)


def _replay(row: dict[str, Any]) -> Replay:
    params = tuple(
        Param(**{k: tuple(v) if isinstance(v, list) else v for k, v in param.items()}) for param in row.pop("params")
    )
    buffers = tuple(Buffer(**buffer) for buffer in row.pop("buffers"))
    grid, block = tuple(row.pop("grid")), tuple(row.pop("block"))
    return Replay(**row, grid=grid, block=block, params=params, buffers=buffers)


# -- the GPU ---------------------------------------------------------------------------------------------


class GpuError(Exception):
    """A driver call failed; the text begins with the driver's name for it."""


def check(result: Sequence[Any]) -> Any:
    """The value of a call of cuda.bindings."""
    from cuda.bindings import driver

    code, *values = result
    if int(code):
        text = driver.cuGetErrorString(code)[1]
        raise GpuError(f"{getattr(code, 'name', code)}: {text.decode() if text else ''}")
    return values[0] if values else None


class Gpu:
    """The first GPU's primary context."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.driver = driver
        check(driver.cuInit(0))
        device = check(driver.cuDeviceGet(0))
        check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))

    def run(self, archive: Archive, replay: Replay) -> tuple[list[Array], float]:
        """What every buffer holds after the launch, as bytes, and the seconds that the launch took (host's clock).

        Raises:
            GpuError: a refused launch, a fault (then this process can use the GPU no more), a write beside an array.
        """
        driver = self.driver
        code = archive.blob(replay.code)
        image = ctypes.create_string_buffer(code, len(code))
        module = check(driver.cuModuleLoadData(ctypes.addressof(image)))
        function = check(driver.cuModuleGetFunction(module, replay.kernel.encode()))
        if replay.shared_bytes:
            limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(driver.cuFuncSetAttribute(function, limit, replay.shared_bytes))
        bases, sizes = [], []
        for buffer in replay.buffers:
            data = archive.array(buffer.before)
            zone = np.full(ZONE_BYTES, ZONE, np.uint8)
            whole = np.concatenate([zone, data, zone])
            base = int(check(driver.cuMemAlloc(whole.size)))
            check(driver.cuMemcpyHtoD(base, whole.ctypes.data, whole.size))
            bases.append(base)
            sizes.append(data.size)
        pointers = [base + ZONE_BYTES for base in bases]
        raw = [self._bytes(param, pointers) for param in replay.params]
        held = [ctypes.create_string_buffer(one, len(one)) for one in raw]
        addresses = (ctypes.c_void_p * max(len(held), 1))(*(ctypes.addressof(one) for one in held))
        begin = time.perf_counter()
        where = ctypes.addressof(addresses) if held else 0
        check(driver.cuLaunchKernel(function, *replay.grid, *replay.block, replay.shared_bytes, 0, where, 0))
        check(driver.cuCtxSynchronize())
        seconds = time.perf_counter() - begin
        after = []
        for buffer, base, size in zip(replay.buffers, bases, sizes, strict=True):
            whole = np.empty(size + 2 * ZONE_BYTES, np.uint8)
            check(driver.cuMemcpyDtoH(whole.ctypes.data, base, whole.size))
            if (whole[:ZONE_BYTES] != ZONE).any() or (whole[ZONE_BYTES + size :] != ZONE).any():
                raise GpuError(f"STRAY_WRITE: beside '{buffer.name}'")
            after.append(whole[ZONE_BYTES : ZONE_BYTES + size])
            check(driver.cuMemFree(base))
        check(driver.cuModuleUnload(module))
        return after, seconds

    def _bytes(self, param: Param, pointers: Sequence[int]) -> bytes:
        if param.kind == BYTES:
            return bytes.fromhex(param.text)
        if param.kind == POINTER:
            return int(pointers[param.number]).to_bytes(8, "little")
        return self._tensor_map(param, pointers[param.number])

    def _tensor_map(self, param: Param, pointer: int) -> bytes:
        driver = self.driver
        rank = len(param.dims)
        found = check(
            driver.cuTensorMapEncodeTiled(
                getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{param.element}"),
                rank,
                pointer,
                [driver.cuuint64_t(x) for x in param.dims],
                [driver.cuuint64_t(x) for x in param.strides_bytes],
                [driver.cuuint32_t(x) for x in param.box],
                [driver.cuuint32_t(x) for x in param.element_strides or (1,) * rank],
                driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
                getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{param.swizzle}"),
                driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
                getattr(driver.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{param.oob_fill}"),
            )
        )
        return ctypes.string_at(int(found.getPtr()), 128)
