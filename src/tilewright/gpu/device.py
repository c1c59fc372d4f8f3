"""What GPU is there. Asking never raises: a missing driver or card is ``None``."""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from tilewright.gpu.driver import checked


@dataclass(frozen=True)
class GpuInfo:
    """A GPU, as its driver describes it.

    Attributes:
        index: the driver's ordinal.
        name: ``NVIDIA H200``.
        arch: ``sm_90``; code for ``sm_90a`` runs on it.
        driver: the kernel driver's version, ``580.159.03``; ``CUDA 13.0`` where only that is known.
        cuda: the newest CUDA that the driver knows, (13, 0).
        sms: streaming multiprocessors.
        l2_bytes: size of the L2 cache.
        memory_bytes: device memory.
        clock_mhz: the highest SM clock; None where the driver does not say.
        smem_per_block_bytes: the most with opt-in.
        smem_per_sm_bytes, reserved_smem_bytes: per SM, and what the system takes per block.
        registers_per_sm, threads_per_sm, blocks_per_sm: what an SM holds.
    """

    index: int
    name: str
    arch: str
    driver: str
    cuda: tuple[int, int]
    sms: int
    l2_bytes: int
    memory_bytes: int
    clock_mhz: int | None
    smem_per_block_bytes: int
    smem_per_sm_bytes: int
    reserved_smem_bytes: int
    registers_per_sm: int
    threads_per_sm: int
    blocks_per_sm: int


def find_gpu(index: int = 0) -> GpuInfo | None:
    """The GPU with this ordinal, or None: no driver, no card, no permission. Takes milliseconds where there is none."""
    if not _driver_is_there():
        return None
    try:
        return _describe(index)
    except Exception:
        # Whatever a broken installation raises (a driver without a card, a container without the device nodes), the
        # answer is that there is no GPU to use; `nvidia-smi` is the tool to find out why.
        return None


def _driver_is_there() -> bool:
    """Whether the driver's library loads: the question that costs nothing on a machine without it."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _describe(index: int) -> GpuInfo | None:
    from cuda.bindings import driver

    checked(driver.cuInit(0))
    if index >= checked(driver.cuDeviceGetCount()):
        return None
    device = checked(driver.cuDeviceGet(index))

    def ask(name: str) -> int:
        return int(checked(driver.cuDeviceGetAttribute(getattr(driver.CUdevice_attribute, _PREFIX + name), device)))

    cuda = divmod(int(checked(driver.cuDriverGetVersion())), 1000)
    version = (cuda[0], cuda[1] // 10)
    clock_khz = ask("CLOCK_RATE")
    return GpuInfo(
        index=index,
        name=checked(driver.cuDeviceGetName(256, device)).split(b"\0")[0].decode(errors="replace"),
        arch=f"sm_{ask('COMPUTE_CAPABILITY_MAJOR')}{ask('COMPUTE_CAPABILITY_MINOR')}",
        driver=_driver_version() or f"CUDA {version[0]}.{version[1]}",
        cuda=version,
        sms=ask("MULTIPROCESSOR_COUNT"),
        l2_bytes=ask("L2_CACHE_SIZE"),
        memory_bytes=int(checked(driver.cuDeviceTotalMem(device))),
        clock_mhz=clock_khz // 1000 if clock_khz else None,
        smem_per_block_bytes=ask("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        smem_per_sm_bytes=ask("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        reserved_smem_bytes=ask("RESERVED_SHARED_MEMORY_PER_BLOCK"),
        registers_per_sm=ask("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        threads_per_sm=ask("MAX_THREADS_PER_MULTIPROCESSOR"),
        blocks_per_sm=ask("MAX_BLOCKS_PER_MULTIPROCESSOR"),
    )


_PREFIX = "CU_DEVICE_ATTRIBUTE_"


def _driver_version() -> str | None:
    """The kernel driver's version: from /proc where it has it, else from NVML."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text("utf-8", errors="replace")
        found = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", text)
        if found:
            return found.group(1)
    except OSError:
        pass
    try:
        from cuda.core import system

        parts = system.get_kernel_mode_driver_version()
    except Exception:  # an old cuda-core, or no NVML: the CUDA version stands in
        return None
    major, *rest = (str(part) for part in parts)
    # NVML gives numbers: 580.159.03 comes as 580, 159, 3.
    return ".".join([major, *rest[:1], *(part.zfill(2) for part in rest[1:])])


def arch_mismatch(program_arch: str, device_arch: str) -> str:
    """Why code built for one architecture cannot run on another; "" where it can.

    A cubin runs on its own compute capability and on later minor ones of the same major one; with the suffix ``a`` on
    exactly its own; with ``f`` on its family (CUDA C++ Programming Guide, "Binary Compatibility", "Feature Set
    Compiler Targets").
    """
    built, there = _capability(program_arch), _capability(device_arch)
    if built is None or there is None:
        return f"'{program_arch}' and '{device_arch}' cannot be compared."
    (major, minor, suffix), (device_major, device_minor, _) = built, there
    runs = major == device_major and (minor == device_minor if suffix == "a" else minor <= device_minor)
    return "" if runs else f"it was built for {program_arch}, and this GPU is {device_arch}."


def _capability(arch: str) -> tuple[int, int, str] | None:
    found = re.fullmatch(r"sm_(\d+)(\d)([af]?)", arch)
    return (int(found.group(1)), int(found.group(2)), found.group(3)) if found else None
