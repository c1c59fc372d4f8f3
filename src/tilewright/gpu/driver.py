"""The driver calls that cuda-core has no word for (copies, fills, attributes), each of them checked.

An error is a ``DeviceError`` with the driver's own name for it. Faults of a kernel that ran are *sticky*: the context
is lost, and every later call in this process fails too.
"""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from tilewright.launch.tensor_maps import MAP_BYTES, BoundTensorMap

if TYPE_CHECKING:
    import numpy as np

TIMED_OUT = "TIMED_OUT"  # ours: a kernel that did not end in time
DEADLINE_S = 60.0

# CUDA Driver API, CUresult: the errors of which it says "This leaves the process in an inconsistent state and any
# further CUDA work will return the same error. To continue using CUDA, the process must be terminated and relaunched."
STICKY = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "ILLEGAL_ADDRESS",
        "LAUNCH_FAILED",
        "LAUNCH_TIMEOUT",
        "ILLEGAL_INSTRUCTION",
        "MISALIGNED_ADDRESS",
        "INVALID_ADDRESS_SPACE",
        "INVALID_PC",
        "HARDWARE_STACK_ERROR",
        "ASSERT",
        "ECC_UNCORRECTABLE",
        "CONTAINED",
        "TENSOR_MEMORY_LEAK",
        "EXTERNAL_DEVICE",
    )
)


class DeviceError(Exception):
    """A driver call failed. Executors turn it into ``RunResult.error``, ``measure`` into a verdict.

    Attributes:
        name: ``CUDA_ERROR_ILLEGAL_ADDRESS``.
        text: what the driver says about it.
    """

    def __init__(self, name: str, text: str = "") -> None:
        super().__init__(name, text)
        self.name, self.text = name, text

    def __str__(self) -> str:
        return f"{self.name}: {self.text}" if self.text else self.name

    @property
    def is_sticky(self) -> bool:
        return self.name in STICKY or self.is_hung

    @property
    def is_hung(self) -> bool:
        """The kernel still runs: freeing anything would wait for it, for ever."""
        return self.name == TIMED_OUT


def checked(result: tuple[Any, ...]) -> Any:
    """The value of a call of cuda.bindings, which returns ``(code, value…)``; raises where the code is not success."""
    code, *values = result
    if int(code) != 0:
        raise DeviceError(str(getattr(code, "name", code)), describe(code))
    return values[0] if len(values) == 1 else tuple(values) or None


def describe(code: Any) -> str:
    """The driver's sentence about an error; "" where it has none."""
    from cuda.bindings import driver

    status, text = driver.cuGetErrorString(code)
    return text.decode(errors="replace") if int(status) == 0 and text else ""


@contextmanager
def faults() -> Iterator[None]:
    """Turn the exceptions of cuda-core into ``DeviceError``: they carry the driver's name in their text."""
    try:
        yield
    except (DeviceError, TypeError, AttributeError, LookupError):
        raise  # reported already; or a mistake of ours, not the device's
    except Exception as error:
        raise fault_of(error) from error


def fault_of(error: Exception) -> DeviceError:
    """The fault that an exception of cuda-core stands for."""
    text = " ".join(str(error).split())
    found = re.search(r"CUDA_ERROR_\w+", text)
    name = found.group(0) if found else type(error).__name__
    return DeviceError(name, text.replace(f"{name}:", "").strip())


def to_device(pointer: int, array: Any, stream: Any) -> None:
    """Copy a contiguous NumPy array to ``pointer``, in the order of the stream."""
    from cuda.bindings import driver

    if array.nbytes:
        checked(driver.cuMemcpyHtoDAsync(pointer, array.ctypes.data, array.nbytes, stream))


def to_host(array: Any, pointer: int, stream: Any) -> None:
    """Copy ``array.nbytes`` bytes from ``pointer`` into a contiguous NumPy array, in the order of the stream."""
    from cuda.bindings import driver

    if array.nbytes:
        checked(driver.cuMemcpyDtoHAsync(array.ctypes.data, pointer, array.nbytes, stream))


def fill(pointer: int, value: int, count_bytes: int, stream: Any) -> None:
    """Set bytes on the device, in the order of the stream."""
    from cuda.bindings import driver

    if count_bytes:
        checked(driver.cuMemsetD8Async(pointer, value, count_bytes, stream))


def copy_on_device(target: int, source: int, count_bytes: int, stream: Any) -> None:
    """Copy bytes from one place on the device to another, in the order of the stream. The two must not overlap."""
    from cuda.bindings import driver

    if count_bytes:
        checked(driver.cuMemcpyDtoDAsync(target, source, count_bytes, stream))


def allocate(count_bytes: int) -> int:
    """The address of new device memory (aligned to 256 bytes, as cudaMalloc's)."""
    from cuda.bindings import driver

    return int(checked(driver.cuMemAlloc(count_bytes)))


def release(pointer: int) -> None:
    """Give device memory back. Errors are not reported: after a sticky fault there is nothing left to free."""
    from cuda.bindings import driver

    driver.cuMemFree(pointer)


def settle() -> None:
    """Wait until all that this process put on the card has ended. Errors are told by who asks for results."""
    from cuda.bindings import driver

    driver.cuCtxSynchronize()


def synchronize(stream: Any, deadline_s: float = DEADLINE_S) -> None:
    """Wait for a stream, and report what went wrong on it.

    It asks instead of blocking, so that Ctrl-C works, and a kernel that waits for ever is given up.
    """
    from cuda.bindings import driver

    begin = time.monotonic()
    while True:
        (code,) = driver.cuStreamQuery(stream)
        if code != driver.CUresult.CUDA_ERROR_NOT_READY:
            checked((code,))
            return
        waited_s = time.monotonic() - begin
        if waited_s > deadline_s:
            raise DeviceError(TIMED_OUT, f"the kernel did not end within {deadline_s:g} s: a deadlock?")
        if waited_s > 0.002:
            time.sleep(0.0001)  # short kernels are waited for without giving the core away


def allow_shared_bytes(kernel: Any, count_bytes: int, device: int) -> None:
    """Raise a kernel's limit of dynamic shared memory; beyond 48 KiB (static ones counted) launches fail without."""
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    handle = checked(driver.cuDeviceGet(device))
    checked(driver.cuKernelSetAttribute(attribute, count_bytes, kernel, handle))


def encode_tensor_map(tensor: BoundTensorMap, address: int) -> np.ndarray:
    """The map as uint8[128], for a buffer at ``address``: no interleave, zeros outside of the tensor.

    Raises:
        DeviceError: the driver refuses it; the text says what was asked for.
    """
    import numpy as np
    from cuda.bindings import driver

    wide, narrow = driver.cuuint64_t, driver.cuuint32_t
    swizzle = f"{tensor.swizzle_bytes}B" if tensor.swizzle_bytes else "NONE"
    try:
        encoded = checked(
            driver.cuTensorMapEncodeTiled(
                getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{tensor.element.upper()}"),
                len(tensor.dims),
                address + tensor.offset_bytes,
                [wide(extent) for extent in tensor.dims],
                [wide(pitch) for pitch in tensor.pitches],
                [narrow(extent) for extent in tensor.box],
                [narrow(1) for _ in tensor.box],
                driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
                getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
                driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        )
    except DeviceError as fault:
        asked = f"{tensor.element} {tensor.dims}, pitches {tensor.pitches} bytes, box {tensor.box}, swizzle {swizzle}"
        raise DeviceError(fault.name, f"the tensor map '{tensor.name}' was refused: {asked}") from None
    return np.frombuffer(ctypes.string_at(encoded.getPtr(), MAP_BYTES), np.uint8)  # its words, one by one, take 4 us


def launch_kernel(
    kernel: Any,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared_bytes: int,
    stream: Any,
    arguments: list[np.generic | np.ndarray],
    is_dependent: bool = False,
) -> None:
    """Put a launch on a stream. Each argument is copied byte by byte, so that structures can be passed by value.

    Args:
        is_dependent: the grid may begin before the one before it has ended: for a kernel that ``waits_first``.
    """
    import numpy as np
    from cuda.bindings import driver

    held = [np.ascontiguousarray(argument).reshape(-1) for argument in arguments]
    addresses = np.array([each.ctypes.data for each in held], np.uint64)  # as void* kernelParams[]
    function = driver.CUfunction(int(kernel))  # a CUkernel may be passed as a CUfunction: cuLaunchKernel
    if not is_dependent:
        checked(driver.cuLaunchKernel(function, *grid, *block, shared_bytes, stream, addresses.ctypes.data, 0))
        return
    config = launch_configuration(grid, block, shared_bytes, is_dependent)
    config.hStream = stream
    checked(driver.cuLaunchKernelEx(config, function, addresses.ctypes.data, 0))


def launch_configuration(
    grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int, is_dependent: bool
) -> Any:
    """A ``CUlaunchConfig``, on the default stream."""
    from cuda.bindings import driver

    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes = shared_bytes
    config.attrs = [_serialised_by_the_kernel()] if is_dependent else []
    config.numAttrs = len(config.attrs)
    return config


@cache
def _serialised_by_the_kernel() -> Any:
    """The attribute of a dependent launch. CUDA Driver API, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION."""
    from cuda.bindings import driver

    value = driver.CUlaunchAttributeValue()
    value.programmaticStreamSerializationAllowed = 1
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value = value
    return attribute
