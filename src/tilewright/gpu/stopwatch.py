"""Times of single launches, from a cold L2: what ``measure`` reads, and nothing that decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.gpu.buffers import DeviceArrays
from tilewright.gpu.driver import DeviceError, allocate, fill, release, synchronize
from tilewright.gpu.executor import GpuExecutor, kernel_arguments
from tilewright.launch.bind import BoundLaunch
from tilewright.launch.executor import Program

if TYPE_CHECKING:
    import numpy as np

# The flush also hides the host: it keeps the GPU busy while the events and the launch behind it are put on the stream,
# so that no gap between them is timed. 256 MiB take 60 us or more on any card, and such a triple 20 us from Python.
LEAST_FLUSH_BYTES = 256 << 20


class Stopwatch:
    """Times launches of several programs on one set of arrays, which stays on the device. A context manager.

    Args:
        contenders: name → program and its launch; all launches take the same buffers.
        arrays: their storages.

    Raises:
        DeviceError: on entering, where something cannot be allocated or loaded.
    """

    def __init__(
        self,
        executor: GpuExecutor,
        contenders: Mapping[str, tuple[Program, BoundLaunch]],
        arrays: Mapping[str, np.ndarray],
    ) -> None:
        self._executor = executor
        self._contenders = dict(contenders)
        self._arrays = arrays
        self._device_arrays = DeviceArrays(executor.stream_handle)
        self._flush_bytes = max(2 * executor.info.l2_bytes, LEAST_FLUSH_BYTES)
        self._scratch = 0
        self._kernels: dict[str, Any] = {}
        self._arguments: dict[str, list[np.generic | np.ndarray]] = {}
        self._count = 0

    def __enter__(self) -> Stopwatch:
        for program, _ in self._contenders.values():
            why = self._executor.unusable(program)
            if why:
                raise DeviceError("unusable", why)
        launch = next(iter(self._contenders.values()))[1]
        try:
            self._device_arrays.upload(launch, self._arrays)
            self._scratch = allocate(self._flush_bytes)
            for name, (program, bound) in self._contenders.items():
                self._kernels[name] = self._executor.kernel(program, bound)
                # Tensor maps take the host longer to make than the flush lasts, so that would be timed.
                self._arguments[name] = kernel_arguments(bound, self._device_arrays.pointer)
            self._start, self._end = self._event(), self._event()
        except BaseException as error:
            self.__exit__(type(error), error)
            raise
        return self

    def __exit__(self, kind: object = None, error: object = None, trace: object = None) -> None:
        self._device_arrays.__exit__(kind, error, trace)
        is_hung = isinstance(error, DeviceError) and error.is_hung
        if self._scratch and not is_hung:
            release(self._scratch)
            self._scratch = 0

    def time_us(self, name: str) -> float:
        """Microseconds of one launch of a contender, between two events, after everything was driven out of the L2."""
        executor = self._executor
        stream = executor.stream
        self._count += 1
        fill(self._scratch, self._count % 256, self._flush_bytes, executor.stream_handle)
        stream.record(self._start)
        executor.launch(self._kernels[name], self._contenders[name][1], self._device_arrays, self._arguments[name])
        stream.record(self._end)
        synchronize(executor.stream_handle)
        return float(self._end - self._start) * 1000.0

    def clock_mhz(self) -> int | None:
        """The SM clock now; None where NVML does not say."""
        try:
            return int(self._executor.device.to_system_device().get_clock("sm").get_current_mhz())
        except Exception:  # a figure beside the result, never worth losing it
            return None

    def _event(self) -> Any:
        from cuda.core import EventOptions

        try:
            options = EventOptions(timing_enabled=True)
        except TypeError:
            options = EventOptions(enable_timing=True)  # cuda-core 1.0
        return self._executor.device.create_event(options)
