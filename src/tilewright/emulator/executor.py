"""The emulator as an executor: same protocol as the GPU."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from tilewright.arch.arch import load_arch
from tilewright.emulator.compiled import CompiledKernel
from tilewright.emulator.faults import Fault
from tilewright.emulator.lower.compile import Parsed, compile_kernel, parse
from tilewright.emulator.machine.addresses import OFFSET_BITS
from tilewright.emulator.machine.chunk import Geometry
from tilewright.emulator.machine.global_memory import Buffer
from tilewright.emulator.options import EmulatorOptions, Schedule, chosen_blocks
from tilewright.emulator.run import Emulation, emulate, text_of
from tilewright.emulator.tensor.maps import TensorMap
from tilewright.errors import TilewrightError
from tilewright.launch.bind import BoundArgument, BoundArray, BoundLaunch, BoundScalar
from tilewright.launch.executor import Part, Program, RunResult
from tilewright.launch.structs import BoundStruct

KEPT_KERNELS = 64
PART_MAX_SECONDS = 120.0
ATTEMPTS: tuple[Schedule, ...] = ("lockstep", "warp_serial", "random")


class EmulatorExecutor:
    """Runs launches on the CPU, from the program's PTX.

    Args:
        arch: the architecture that is emulated, ``sm_86``.
        main_file: name of the source whose lines hazards name.
    """

    name: Literal["emulator"] = "emulator"
    is_dead = False
    is_hung = False

    def __init__(self, arch: str, options: EmulatorOptions | None = None, main_file: str | None = None) -> None:
        self._arch = arch
        self.options = options or EmulatorOptions()
        self.main_file = main_file
        self._parsed: OrderedDict[str, Parsed] = OrderedDict()
        self._compiled: OrderedDict[tuple[str, int], CompiledKernel] = OrderedDict()

    @property
    def arch(self) -> str:
        return self._arch

    def part_of(self, size_set: str) -> Part:
        """The default set is the one that is timed on a GPU, and large: a few blocks of it run here."""
        return "corners" if size_set == "default" else "all"

    def run(
        self,
        program: Program,
        launch: BoundLaunch,
        arrays: Mapping[str, np.ndarray],
        *,
        attempt: int = 0,
        part: Part = "all",
    ) -> RunResult:
        """Run a program once; see ``launch.executor.Executor``.

        Every other attempt is a repeat (``EmulatorOptions.is_repeat``). Without a schedule in the options, the first
        attempt runs all threads in lock-step, the second one warp after the other, and later ones at random; where only
        some blocks run, all attempts are in lock-step: the order of warps has its say at the other sizes.
        """
        return self.run_counted(program, launch, arrays, attempt=attempt, part=part)[0]

    def run_counted(
        self,
        program: Program,
        launch: BoundLaunch,
        arrays: Mapping[str, np.ndarray],
        *,
        attempt: int = 0,
        part: Part = "all",
    ) -> tuple[RunResult, Emulation | None]:
        """As ``run``, with what the counters saw; None where nothing ran."""
        options = replace(
            self.options,
            schedule=self.options.schedule or ("lockstep" if part != "all" else ATTEMPTS[min(attempt, 2)]),
            seed=self.options.seed + attempt,
            is_repeat=attempt % 2 == 1,
            blocks=part if part != "all" else self.options.blocks,
            max_seconds=self._bound(part),
        )
        try:
            key, parsed = self._parse(program)
        except TilewrightError as error:
            return RunResult({}, error=error.message, is_unsupported=True), None
        misfit = misfit_of(parsed, launch, program.arch)
        if misfit:
            return RunResult({}, error=misfit), None
        try:
            kernel = self._compile(key, parsed, launch.shared_bytes)
        except Fault as fault:
            told = text_of(fault, parsed.graph, self.main_file)
            return RunResult({}, error=told, is_unsupported=fault.kind == "not_modelled"), None
        buffers, numbers = _buffers(launch, arrays, options.blocks != "all")
        cluster = parsed.function.cluster or (1, 1, 1)
        geometry = Geometry(launch.grid, launch.block, cluster, kernel.layout.smem_bytes, launch.shared_bytes)
        params = params_of(parsed, launch, numbers)
        done = emulate(kernel, geometry, buffers, params, options, self.main_file)
        if done.error:
            return RunResult({}, done.hazards, done.error, is_unsupported=done.is_unsupported), done
        after = {b.name: b.data.view(arrays[b.name].dtype) for b in buffers}
        if options.blocks == "all":
            return RunResult(after, done.hazards), done
        touched = {
            b.name: _any_byte(b.touched, arrays[b.name].dtype.itemsize) for b in buffers if b.touched is not None
        }
        count = len(chosen_blocks(launch.grid, options.blocks))
        ran = f"{count:,} of {geometry.blocks:,} blocks ran: corners and middle"
        return RunResult(after, done.hazards, None, touched, ran), done

    def _bound(self, part: Part) -> float | None:
        """Seconds. A few blocks of a launch may wait for one that does not run: that need not take the whole time."""
        limit = self.options.max_seconds
        return limit if part == "all" or limit is None else min(limit, PART_MAX_SECONDS)

    def _parse(self, program: Program) -> tuple[str, Parsed]:
        key = hashlib.sha256(f"{program.kernel}\0{program.ptx}".encode()).hexdigest()
        if key not in self._parsed:
            self._parsed[key] = parse(program.ptx, program.kernel)
            if len(self._parsed) > KEPT_KERNELS:
                self._parsed.popitem(last=False)
        return key, self._parsed[key]

    def _compile(self, key: str, parsed: Parsed, dynamic_bytes: int) -> CompiledKernel:
        at = (key, dynamic_bytes)
        if at not in self._compiled:
            self._compiled[at] = compile_kernel(parsed, dynamic_bytes)
            if len(self._compiled) > KEPT_KERNELS:
                self._compiled.popitem(last=False)
        return self._compiled[at]


def _any_byte(marks: np.ndarray, item_bytes: int) -> Any:
    """One bool per element of so many bytes."""
    whole = marks.view(np.uint8)
    if item_bytes in (2, 4, 8):
        return whole.view(f"u{item_bytes}") != 0
    return whole.reshape(-1, item_bytes).any(axis=1)


def misfit_of(parsed: Parsed, launch: BoundLaunch, arch: str) -> str:
    """Why a launch cannot be made; "" where it can."""
    function = parsed.function
    have = [arg.param_bytes for arg in launch.arguments]
    need = [param.size_bytes for param in function.params]
    if need != have:
        return f"the kernel takes parameters of {need} bytes, the sidecar gives {have}"
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    most = function.max_threads
    if most is not None and threads > most[0] * most[1] * most[2]:
        return f"{threads} threads a block; the kernel is bounded to {most[0] * most[1] * most[2]}"
    cluster = function.cluster or (1, 1, 1)
    if any(extent % size for extent, size in zip(launch.grid, cluster, strict=True)):
        return f"a grid of {launch.grid} blocks is no multiple of the cluster of {cluster}"
    try:
        limit = load_arch(arch).smem_optin_max_bytes
    except TilewrightError:
        return ""  # no table of this architecture: nothing to compare with
    static = sum(v.size_bytes for v in function.shared)
    if static + launch.shared_bytes > limit:
        return f"{static + launch.shared_bytes:,} bytes of shared memory; a block of {arch} may have {limit:,} in all"
    return ""


def _buffers(
    launch: BoundLaunch, arrays: Mapping[str, np.ndarray], is_partial: bool
) -> tuple[list[Buffer], dict[str, int]]:
    """Copies of the storages, and the number of each; with a note of what is written where only some blocks run."""
    buffers: list[Buffer] = []
    numbers: dict[str, int] = {}
    for array in launch.buffers:
        numbers[array.name] = len(buffers) + 1
        data = arrays[array.name].copy().view(np.uint8)
        written = None if array.is_read_first else np.zeros(data.size, bool)
        touched = np.zeros(data.size, bool) if is_partial and array.is_written else None
        buffers.append(Buffer(array.name, data, array.is_written, written, touched, array.dtype.item_bytes))
    return buffers, numbers


def params_of(parsed: Parsed, launch: BoundLaunch, numbers: Mapping[str, int]) -> bytes:
    out = bytearray(parsed.param_bytes)
    for param, argument in zip(parsed.function.params, launch.arguments, strict=True):
        at = parsed.param_offsets[param.name]
        raw = _raw(argument, numbers)
        out[at : at + len(raw)] = raw
    return bytes(out)


def _raw(argument: BoundArgument, numbers: Mapping[str, int]) -> bytes:
    if isinstance(argument, BoundScalar):
        return argument.raw()
    if isinstance(argument, BoundStruct):
        return argument.packed(lambda member: _raw(member, numbers))
    start = numbers[argument.owner] << OFFSET_BITS
    if isinstance(argument, BoundArray):
        address: Any = start + argument.offset * argument.dtype.item_bytes
        return np.int64(address).tobytes()
    if argument.obstacle:
        return bytes(argument.param_bytes)
    address = start + argument.offset_bytes
    swizzle = f"{argument.swizzle_bytes}B" if argument.swizzle_bytes else "none"
    shape = (argument.dims, argument.pitches, argument.box)
    return TensorMap(argument.element, address, *shape, swizzle=swizzle).encode()
