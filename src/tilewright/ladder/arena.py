"""The arrays of one set of sizes on a card, as PyTorch's tensors, and those that compute on them.

Rungs, operators and peers get the same inputs, and run on whatever stream PyTorch has as its current one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilewright.gpu.driver import launch_kernel
from tilewright.gpu.executor import kernel_arguments
from tilewright.ladder.comparing import Contender, mismatch
from tilewright.ladder.compiling import CompiledRung
from tilewright.ladder.family import Family
from tilewright.ladder.peers import Peer, PeerCall, Result, Tutorial, exact_outputs
from tilewright.ladder.running import operation_launch
from tilewright.ladder.specs import bound_launches, cleared_before, figure, operation_spec
from tilewright.ladder.yardstick import Copy, copies
from tilewright.launch.bind import BoundArray, BoundLaunch, BoundScalar
from tilewright.launch.dtypes import DTYPES
from tilewright.launch.expressions import Name
from tilewright.ptx.dependent import waits_first
from tilewright.verification.tolerance import Arithmetic, Tolerance, derive, read_arithmetic

if TYPE_CHECKING:
    from tilewright.gpu.executor import GpuExecutor

_POISON = 0xFF  # NaN, or -1
_TF32 = Arithmetic(DTYPES["float32"].epsilon, 2.0**-10)  # PTX ISA, "Alternate floating point data formats"


class Arena:
    """A family's arrays at sizes.

    Args:
        torch: the module. device: where the tensors lie. seed: of the inputs, which are filled there.
        guard_bytes: behind each array, at the least, for `strayed`: who reads there gets NaN, or -1.
    """

    def __init__(
        self,
        torch: Any,
        family: Family,
        dtype: str,
        sizes: Mapping[str, int],
        device: str = "cuda",
        seed: int = 0,
        guard_bytes: int = 0,
    ) -> None:
        self.torch, self.family, self.dtype, self.sizes = torch, family, dtype, dict(sizes)
        self.launch = operation_launch(family, dtype, sizes)
        self._device, self._guard_bytes = device, guard_bytes
        self._random = torch.Generator(device=device).manual_seed(seed)
        self._storages = {b.name: self._filled(b) for b in self.launch.buffers}
        arrays = [a for a in self.launch.arrays if a.role != "out"]
        self.inputs = tuple(self._view(a) for a in arrays)
        self.outputs = tuple(a for a in self.launch.arrays if a.role != "in")
        self.numbers = {
            a.name: float(a.value)
            for a in self.launch.arguments
            if isinstance(a, BoundScalar) and a.dtype.kind == "float"
        }
        self.results = tuple(Result(a.shape, getattr(torch, a.dtype.name)) for a in self.outputs)
        self._need: list[Any] | None = None
        self._as_held: dict[tuple[int, Any], tuple[Any, float]] = {}

    @property
    def call(self) -> PeerCall:
        return PeerCall(self.torch, self.inputs, self.numbers, self.results, self.sizes)

    def _filled(self, array: BoundArray) -> Any:
        """The storage of an array, drawn on the device: the host would take seconds for it."""
        torch = self.torch
        dtype = getattr(torch, array.dtype.name)
        count = max(array.storage_elements, 1)
        whole = torch.empty(count + self._guard_bytes, dtype=dtype, device=self._device)
        storage = whole[:count]
        if self._guard_bytes:
            whole[count:].view(torch.uint8).fill_(_POISON)
        if not array.is_read_first:
            storage.view(torch.uint8).fill_(_POISON)
            return storage
        a, b = array.fill.values or (0, 0)
        match array.fill.function:
            case "zeros":
                storage.zero_()
            case "arange":
                torch.arange(storage.numel(), out=storage)
            case "randint":
                storage.random_(int(a), int(b), generator=self._random)
            case "uniform":
                storage.uniform_(a, b, generator=self._random)
            case _:
                storage.normal_(a, b, generator=self._random)
        return storage

    def _view(self, array: BoundArray) -> Any:
        owner = self._storages[array.owner]
        return self.torch.as_strided(owner, array.shape, array.strides, array.offset)

    def storage(self, name: str) -> Any:
        """A buffer as it lies in memory, one-dimensional."""
        return self._storages[name]

    # Those that take part.

    def rung(self, compiled: CompiledRung, executor: GpuExecutor) -> Contender:
        """A rung's kernels, its own arrays allocated once; its outputs are the arena's."""
        steps = self._steps(compiled, executor)
        stream_of = self.torch.cuda.current_stream

        def call() -> None:
            stream = stream_of().cuda_stream
            for step in steps:
                step(stream)

        inputs = [b.dtype for b in self.launch.buffers if b.is_read_first]
        arithmetic = read_arithmetic("\n".join(a.ptx for a in compiled.artifacts), inputs)
        name = compiled.spec.rung.name
        return Contender(name, "rung", call, lambda _: self.made(), self.poison, arithmetic=arithmetic)

    def _steps(self, compiled: CompiledRung, executor: GpuExecutor) -> list[Callable[[int], None]]:
        torch, rung = self.torch, compiled.spec.rung
        launches = bound_launches(compiled.spec, self.sizes, compiled.constants)
        own: dict[str, Any] = {}
        for buffer in (b for launch in launches for b in launch.buffers if b.name not in self._storages):
            if buffer.name not in own:
                own[buffer.name] = torch.zeros(max(_bytes_of(buffer), 1), dtype=torch.uint8, device=self._device)

        def pointer(name: str) -> int:
            return int((own[name] if name in own else self._storages[name]).data_ptr())

        inputs = [*(b.name for b in self.launch.buffers if b.is_read_first), *rung.kept]
        steps: list[Callable[[int], None]] = []
        for program, launch, cleared in zip(compiled.programs, launches, cleared_before(launches, inputs), strict=True):
            for buffer in cleared:  # a part of what the rung costs
                steps.append(_zeroing(own[buffer.name] if buffer.name in own else self._storages[buffer.name]))
            kernel = executor.kernel(program, launch)
            arguments, is_dependent = kernel_arguments(launch, pointer), waits_first(program.ptx, program.kernel)
            steps.append(_Launching(kernel, launch, arguments, tuple(own.values()), is_dependent))
        return steps

    def made(self) -> tuple[Any, ...]:
        """The arena's own outputs."""
        return tuple(self._view(a) for a in self.outputs)

    def poison(self) -> None:
        """So that what is read afterwards was written since."""
        for array in self.outputs:
            if array.role == "out":
                self._storages[array.owner].view(self.torch.uint8).fill_(_POISON)

    def op(self, operator: Callable[..., Any]) -> Contender:
        """``tilewright.ops``: new outputs in every call. Sizes that no input says follow the inputs."""
        spec = operation_spec(self.family, self.dtype)
        shown = [
            e for a in spec.args if a.is_pointer and a.role != "out" for e in (*(a.shape or ()), *(a.strides or ()))
        ]
        said = {e.root.name for e in shown if isinstance(e.root, Name)}
        asked = [value for name, value in self.sizes.items() if name not in said]
        call = getattr(operator, "of_family", operator)  # one that is called in another way says how
        return Contender(f"tilewright.ops.{self.family.name}", "op", lambda: call(*self.inputs, *asked), _listed)

    def peer(self, peer: Peer) -> Contender:
        """PyTorch, as it is called."""
        arithmetic = _TF32 if peer.group else None
        return Contender(
            peer.name,
            "eager",
            lambda: peer.formula(self.call),
            _listed,
            is_captured=peer.is_captured,
            arithmetic=arithmetic,
        )

    def tutorial(self, tutorial: Tutorial, function: Any) -> Contender:
        why = tutorial.misfit(self.call)
        return Contender(tutorial.name, "triton", lambda: tutorial.call(function, self.call), _listed, why=why)

    def copies(self, is_cold: bool, kernel: Copy | None = None) -> list[Contender]:
        """As many bytes as the family moves, half of them read and half of them written; see `yardstick.copies`."""
        moved = int(figure(self.family.bytes, self.family, self.sizes, self.dtype))
        return copies(self.torch, moved // 2, is_cold, kernel, self._device)

    # What is right.

    def check(self, contender: Contender) -> str:
        """What is wrong with a contender's results, against the formula in float64; "" for nothing."""
        if contender.outputs is None:
            contender.call()
            return ""
        contender.prepare()
        got = contender.outputs(contender.call())
        need = self.exact()
        if len(got) != len(need):
            return f"it gives {len(got)} arrays instead of {len(need)}"
        for index, (array, found) in enumerate(zip(self.outputs, got, strict=True)):
            held, rms = self._held(index, found)
            tolerance = self._tolerance(contender, found, rms)
            shaped = found.reshape(array.shape)
            why = mismatch(array.name, shaped, held, tolerance, lambda part: part.double())
            if why:
                return f"{why} ({tolerance.derivation})"
        return ""

    def strayed(self) -> str:
        """Which output was written behind its end (with ``guard_bytes``); "" for none."""
        for array in self.outputs:
            storage = self._storages[array.owner]
            behind = self.torch.as_strided(storage, (self._guard_bytes,), (1,), storage.numel())
            if bool((behind.view(self.torch.uint8) != _POISON).any()):
                return f"it writes behind {array.name}"
        return ""

    def exact(self) -> list[Any]:
        """The outputs in float64. Raises LookupError: there is no formula for the family."""
        if self._need is None:
            made = exact_outputs(self.family.name, self.call)
            if made is None:
                raise LookupError(f"there is no formula for {self.family.name}: nothing says what is right")
            self._need = [x.double().reshape(a.shape) for x, a in zip(made, self.outputs, strict=True)]
        return self._need

    def _held(self, index: int, found: Any) -> tuple[Any, float]:
        """An output in float64 as the type of what was found can hold it, infinities included; and its size."""
        key = (index, found.dtype)
        if key not in self._as_held:
            need = self.exact()[index]
            if found.dtype.is_floating_point:
                rounded = need.to(found.dtype).double()
                need = self.torch.where(rounded.isfinite(), need, rounded)
            finite = self.torch.where(need.isfinite(), need, 0.0)
            rms = float(finite.square().mean().sqrt()) if need.numel() else 0.0
            if need.numel() == 1:  # one sum, which may be small by chance; its partial ones were not
                length = figure(self.family.length, self.family, self.sizes, self.dtype)
                rms = max(rms, math.sqrt(length) * math.prod(_rms(x) for x in self.inputs if x.is_floating_point()))
            self._as_held[key] = (need, rms)
        return self._as_held[key]

    def _tolerance(self, contender: Contender, found: Any, rms: float) -> Tolerance:
        output = DTYPES[str(found.dtype).removeprefix("torch.")]
        if self.family.exact or output.kind != "float":
            return Tolerance(0.0, 0.0, "equal")
        inputs = [b.dtype for b in self.launch.buffers if b.is_read_first]
        arithmetic = contender.arithmetic or read_arithmetic("", inputs)
        length = int(figure(self.family.length, self.family, self.sizes, self.dtype))
        bound = derive(output, inputs, arithmetic, length, rms)
        if contender.kind in ("rung", "op"):
            return bound
        # Compositions round in between, once more for each operator; and PyTorch lets cuBLAS add parts of a product's k
        # in the result's type (allow_bf16_reduced_precision_reduction), so that zeros are as far off as anything.
        twice = bound.twice()
        return replace(twice, absolute=twice.absolute + 2 * output.epsilon * rms)


def _rms(tensor: Any) -> float:
    return float(tensor.float().square().mean().sqrt()) if tensor.numel() else 0.0


def _listed(made: Any) -> Sequence[Any]:
    return made if isinstance(made, tuple | list) else (made,)


def _zeroing(storage: Any) -> Callable[[int], None]:
    def step(_: int) -> None:
        storage.zero_()

    return step


@dataclass(frozen=True)
class _Launching:
    """``held``: what the arguments point into: PyTorch gives memory that no tensor names to the next one that asks."""

    kernel: Any
    launch: BoundLaunch
    arguments: list[Any]
    held: tuple[Any, ...]
    is_dependent: bool

    def __call__(self, stream: int) -> None:
        one = self.launch
        shape = one.grid, one.block, one.shared_bytes
        launch_kernel(self.kernel.handle, *shape, stream, self.arguments, self.is_dependent)


def _bytes_of(buffer: BoundArray) -> int:
    return buffer.storage_elements * buffer.dtype.item_bytes
