"""An executor on the GPU, through cuda-core."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from tilewright.errors import EXIT_MISSING, TilewrightError
from tilewright.gpu.buffers import DeviceArrays
from tilewright.gpu.device import GpuInfo, arch_mismatch, find_gpu
from tilewright.gpu.driver import (
    TIMED_OUT,
    DeviceError,
    allow_shared_bytes,
    encode_tensor_map,
    faults,
    launch_kernel,
    synchronize,
)
from tilewright.launch.bind import BoundArray, BoundLaunch, BoundScalar
from tilewright.launch.executor import Part, Program, RunResult
from tilewright.launch.structs import BoundStruct
from tilewright.ptx.dependent import waits_first

if TYPE_CHECKING:
    import numpy as np


class GpuExecutor:
    """Runs launches on one GPU, each with fresh buffers between red zones.

    A fault of a kernel (an illegal address) takes the context with it. It is reported as that run's error; every later
    run then says that the context is gone, and why.

    Raises:
        TilewrightError: ``gpu/none`` (exit 3) where there is no GPU.
    """

    name: Literal["gpu"] = "gpu"

    def __init__(self, info: GpuInfo | None = None) -> None:
        info = info or find_gpu()
        if info is None:
            raise TilewrightError("gpu/none", "no GPU was found.", hint="nvidia-smi shows why.", exit_code=EXIT_MISSING)
        from cuda.core import Device

        self.info = info
        self._kernels: dict[str, Any] = {}
        self._codes: list[Any] = []  # the loaded cubins, which must outlive their kernels
        self._dependent: set[int] = set()  # handles of kernels that may begin while the grid before them ends
        self._dead: str | None = None
        try:
            with faults():
                self.device = Device(info.index)
                self.device.set_current()
                self.stream = self.device.create_stream()
        except DeviceError as fault:
            raise TilewrightError(
                "gpu/unusable", f"{info.name} cannot be used: {fault}.", exit_code=EXIT_MISSING
            ) from None

    @property
    def arch(self) -> str:
        return self.info.arch

    @property
    def is_dead(self) -> bool:
        """An earlier fault took the context with it."""
        return self._dead is not None

    @property
    def is_hung(self) -> bool:
        """A kernel never ended. An orderly exit of the process would wait for it: leave through ``os._exit``."""
        return self._dead == TIMED_OUT

    @property
    def stream_handle(self) -> Any:
        return self.stream.handle

    def part_of(self, size_set: str) -> Part:
        """A GPU runs every block."""
        return "all"

    def run(
        self,
        program: Program,
        launch: BoundLaunch,
        arrays: Mapping[str, np.ndarray],
        *,
        attempt: int = 0,
        part: Part = "all",
    ) -> RunResult:
        """Run a program once; see ``launch.executor.Executor``. The order of threads is the hardware's."""
        error = self.unusable(program)
        if error:
            return RunResult({}, error=error)
        try:
            with DeviceArrays(self.stream_handle) as device_arrays:
                device_arrays.upload(launch, arrays)
                kernel = self.kernel(program, launch)
                self.launch(kernel, launch, device_arrays)
                synchronize(self.stream_handle)
                hazards = device_arrays.stray_writes()
                return RunResult(device_arrays.download(arrays), hazards)
        except DeviceError as fault:
            return RunResult({}, error=self.bury(fault))

    def unusable(self, program: Program) -> str:
        """Why ``program`` cannot be run here; "" where it can."""
        if self._dead:
            return f"the GPU's context is gone after an earlier fault ({self._dead}); start a new process"
        return arch_mismatch(program.arch, self.arch)

    def bury(self, fault: DeviceError) -> str:
        """The text of a fault; a sticky one is remembered."""
        if fault.is_sticky:
            self._dead = fault.name
        return str(fault)

    def kernel(self, program: Program, launch: BoundLaunch) -> Any:
        """The loaded kernel, allowed the launch's dynamic shared memory. Each cubin is loaded once."""
        from cuda.core import ObjectCode

        key = f"{hashlib.sha256(program.cubin).hexdigest()}/{program.kernel}"
        if key not in self._kernels:
            with faults():
                code = ObjectCode.from_cubin(program.cubin)
                self._kernels[key] = code.get_kernel(program.kernel)
            self._codes.append(code)
            if waits_first(program.ptx, program.kernel):
                self._dependent.add(int(self._kernels[key].handle))
        kernel = self._kernels[key]
        _check_parameters(kernel, launch)
        if launch.shared_bytes:
            try:
                allow_shared_bytes(kernel.handle, launch.shared_bytes, self.info.index)
            except DeviceError as fault:
                most = self.info.smem_per_block_bytes
                text = f"{launch.shared_bytes:,} dynamic bytes of shared memory; a block may have {most:,} in all"
                raise DeviceError(fault.name, text) from None
        return kernel

    def launch(
        self,
        kernel: Any,
        launch: BoundLaunch,
        arrays: DeviceArrays,
        arguments: list[np.generic | np.ndarray] | None = None,
    ) -> None:
        """Put one launch on the stream; `arguments` as `kernel_arguments` makes them, now where they are not given."""
        from cuda.core import LaunchConfig
        from cuda.core import launch as cuda_launch

        arguments = kernel_arguments(launch, arrays.pointer) if arguments is None else arguments
        is_dependent = int(kernel.handle) in self._dependent
        if is_dependent or any(not isinstance(arg, BoundScalar | BoundArray) for arg in launch.arguments):
            # cuda-core passes structures by value only as descriptors that it has made itself, from arrays of its own,
            # and knows no dependent launches.
            shape = launch.grid, launch.block, launch.shared_bytes
            launch_kernel(kernel.handle, *shape, self.stream_handle, arguments, is_dependent)
            return
        with faults():
            config = LaunchConfig(grid=launch.grid, block=launch.block, shmem_size=launch.shared_bytes)
            cuda_launch(self.stream, config, kernel, *arguments)


def kernel_arguments(launch: BoundLaunch, pointer: Any) -> list[np.generic | np.ndarray]:
    """The parameters as unsigned integers of their widths, or as uint8[128]: a launch copies bytes and knows no types.

    Args:
        pointer: name of a buffer → its address.

    Raises:
        DeviceError: the driver refuses a tensor map.
    """
    import numpy as np

    arguments: list[np.generic | np.ndarray] = []
    for arg in launch.arguments:
        if isinstance(arg, BoundScalar):
            raw = arg.raw()
            arguments.append(np.frombuffer(raw, f"u{len(raw)}")[0])
        elif isinstance(arg, BoundArray):
            arguments.append(np.uint64(pointer(arg.owner) + arg.offset * arg.dtype.item_bytes))
        elif isinstance(arg, BoundStruct):
            arguments.append(np.frombuffer(arg.packed(lambda member: _member(member, pointer)), np.uint8))
        elif arg.obstacle:
            arguments.append(np.zeros(arg.param_bytes, np.uint8))
        else:
            arguments.append(encode_tensor_map(arg, pointer(arg.owner)))
    return arguments


def _member(member: BoundScalar | BoundArray, pointer: Any) -> bytes:
    if isinstance(member, BoundScalar):
        return member.raw()
    address: int = pointer(member.owner) + member.offset * member.dtype.item_bytes
    return address.to_bytes(8, "little")


def _check_parameters(kernel: Any, launch: BoundLaunch) -> None:
    """Compare count and widths with what the cubin says: a wrong one would read past the arguments."""
    try:
        with faults():
            need = [int(info[1]) for info in kernel.arguments_info]
    except DeviceError:
        return  # drivers before CUDA 12.4 do not tell
    have = [arg.param_bytes for arg in launch.arguments]
    if need != have:
        text = f"the kernel takes parameters of {need} bytes, the sidecar gives {have}"
        raise DeviceError("parameters do not fit", text)
