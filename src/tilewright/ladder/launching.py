"""Rungs called from Python on arrays that lie on a card: ``Ladder().call("transpose", {"x": x, "y": y})``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilewright.errors import EXIT_MISSING, TilewrightError
from tilewright.gpu.device import GpuInfo, arch_mismatch, find_gpu
from tilewright.gpu.driver import DeviceError, allow_shared_bytes, checked, faults, fill, launch_kernel
from tilewright.gpu.executor import kernel_arguments
from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import Family, Rung, load_family
from tilewright.ladder.family_file import ELEMENT
from tilewright.ladder.specs import bound_launches, cleared_before, operation_spec, rung_spec
from tilewright.ladder.views import DeviceView, bound_operation, device_view_of, flattened
from tilewright.ladder.workspaces import Workspaces
from tilewright.launch.bind import BoundArray, BoundLaunch, BoundScalar
from tilewright.launch.tensor_maps import BoundTensorMap
from tilewright.ptx.dependent import waits_first
from tilewright.settings import Settings

if TYPE_CHECKING:
    import numpy as np

KEPT_PLANS = 256
_MOST_ALIGNED = 256  # no rung asks for more
_MAP_ALIGNMENT = 16  # CUDA Driver API, cuTensorMapEncodeTiled: globalAddress


@dataclass(frozen=True)
class _Step:
    """One kernel of a plan.

    Attributes:
        cleared: arrays that have to be zero before it. is_dependent: it may begin while the grid before it ends.
    """

    kernel: Any
    launch: BoundLaunch
    cleared: tuple[BoundArray, ...]
    is_dependent: bool


@dataclass(frozen=True)
class Plan:
    """A rung at sizes, loaded on a card.

    Attributes:
        scratch: bytes of each array that is the rung's own, for one call. kept: those that stay.
    """

    rung: Rung
    steps: tuple[_Step, ...]
    scratch: Mapping[str, int]
    kept: Workspaces | None = None


class Ladder:
    """Compiled rungs, loaded on cards as they are needed. Builds come from the cache that all processes share."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings.from_environment()
        self._families: dict[str, Family] = {}
        self._cards: dict[int, GpuInfo] = {}
        self._specs: dict[tuple[str, str], Any] = {}
        self._loaded: dict[Any, tuple[CompiledRung, list[Any]]] = {}
        self._plans: OrderedDict[Any, Plan] = OrderedDict()
        self._workspaces: dict[Any, Workspaces] = {}
        self._codes: list[Any] = []  # the loaded cubins, which must outlive their kernels

    def call(
        self,
        family: str,
        arrays: Mapping[str, Any],
        *,
        rung: str | None = None,
        sizes: Mapping[str, int] | None = None,
        scalars: Mapping[str, float] | None = None,
        stream: int = 0,
    ) -> Rung:
        """Launch a rung on a stream; it does not wait for it.

        Args:
            arrays: by argument, inputs and outputs: PyTorch tensors, or anything with DLPack or
                ``__cuda_array_interface__``, on one card.
            rung: its name; None for the last one that is meant for these sizes.
            sizes: those that no shape gives. scalars: values in place of those in ``ladder.toml`` (``epsilon``).
            stream: the handle of a CUDA stream; 0 is the default one.

        Returns:
            The rung that was launched.

        Raises:
            TilewrightError: ``gpu/none`` (exit 3); ``ladder/…`` for arrays and scalars that the family does not take,
                naming the limit; ``ladder/launch`` where the driver refuses the launch.
        """
        views = {name: device_view_of(name, array, stream) for name, array in arrays.items()}
        whole = self._family(family)
        check_scalars(whole, scalars or {})
        try:
            return self._launch(whole, flattened(whole, views), rung, sizes or {}, scalars or {}, stream)
        except DeviceError as fault:
            raise TilewrightError("ladder/launch", f"{family} could not be launched: {fault}.") from None

    def _family(self, name: str) -> Family:
        if name not in self._families:
            self._families[name] = load_family(name)
        return self._families[name]

    def _launch(
        self,
        family: Family,
        views: Mapping[str, DeviceView],
        rung: str | None,
        sizes: Mapping[str, int],
        scalars: Mapping[str, float],
        stream: int,
    ) -> Rung:
        dtype = element_type(family, views)
        first = next(iter(views.values()))
        shapes = tuple((n, v.shape, v.strides, v.dtype, v.device) for n, v in views.items())
        address = low_bits(views)
        key = (family.name, rung, dtype, shapes, address, tuple(sizes.items()), tuple(scalars.items()))
        with on_card(first.device):
            plan = self._plans.get(key)
            if plan is None:
                plan = self._plan(family, rung, dtype, views, sizes, scalars, first.device)
                self._plans[key] = plan
                if len(self._plans) > KEPT_PLANS:
                    self._plans.popitem(last=False)
            own = {name: _Scratch(count_bytes, stream) for name, count_bytes in plan.scratch.items()}
            stay = plan.kept.at(stream) if plan.kept is not None else {}

            def pointer(name: str) -> int:
                return own[name].pointer if name in own else stay[name] if name in stay else views[name].pointer

            for step in plan.steps:
                for array in step.cleared:
                    fill(pointer(array.name), 0, array.storage_elements * array.dtype.item_bytes, stream)
                one = _without_maps(step.launch, pointer)
                arguments: list[np.generic | np.ndarray] = kernel_arguments(one, pointer)
                shape = one.grid, one.block, one.shared_bytes
                launch_kernel(step.kernel.handle, *shape, stream, arguments, step.is_dependent)
            for scratch in own.values():
                scratch.release()
            return plan.rung

    def _plan(
        self,
        family: Family,
        name: str | None,
        dtype: str,
        views: Mapping[str, DeviceView],
        sizes: Mapping[str, int],
        scalars: Mapping[str, float],
        card: int,
    ) -> Plan:
        at = (family.name, dtype)
        if at not in self._specs:
            self._specs[at] = operation_spec(family, dtype)
        whole = bound_operation(family, self._specs[at], views, sizes)
        info = self._card(card)
        rung = (
            family.rung(name).at(whole.sizes, dtype)
            if name
            else family.best(whole.sizes, dtype, lambda arch: _runs(arch, info), low_bits(views))
        )
        check_alignment(rung, views)
        if not any(array.storage_elements for array in whole.arrays if array.role != "in"):
            return Plan(rung, (), {})  # nothing to compute
        compiled, kernels = self._load(family, rung, dtype, info)
        launches = [
            _with_scalars(one, scalars) for one in bound_launches(compiled.spec, whole.sizes, compiled.constants)
        ]
        inputs = [b.name for b in whole.buffers if b.is_read_first]
        cleared = cleared_before(launches, [*inputs, *rung.kept])
        for kernel, one in zip(kernels, launches, strict=True):
            if one.shared_bytes:
                allow_shared_bytes(kernel.handle, one.shared_bytes, card)
        dependent = [waits_first(program.ptx, program.kernel) for program in compiled.programs]
        steps = tuple(_Step(*each) for each in zip(kernels, launches, cleared, dependent, strict=True))
        scratch = {
            b.name: b.storage_elements * b.dtype.item_bytes
            for one in launches
            for b in one.buffers
            if b.name not in views
        }
        stay = {name: scratch.pop(name) for name in rung.kept}
        return Plan(rung, steps, scratch, self._kept_by(rung, (family.name, dtype, card), stay))

    def _kept_by(self, rung: Rung, whose: tuple[Any, ...], arrays: Mapping[str, int]) -> Workspaces | None:
        """What a rung keeps on a card: the same at all sizes that give the arrays the same lengths."""
        if not arrays:
            return None
        key = (*whose, rung.name, tuple(arrays.items()))
        return self._workspaces.setdefault(key, Workspaces(arrays))

    def _card(self, index: int) -> GpuInfo:
        if index not in self._cards:
            info = find_gpu(index)
            if info is None:
                raise TilewrightError("gpu/none", f"there is no GPU {index}.", exit_code=EXIT_MISSING)
            self._cards[index] = info
        return self._cards[index]

    def _load(self, family: Family, rung: Rung, dtype: str, info: GpuInfo) -> tuple[CompiledRung, list[Any]]:
        from cuda.core import ObjectCode

        key = (family.name, rung.name, dtype, info.index, tuple(sorted(rung.defines.items())))
        if key not in self._loaded:
            compiled = compile_rung(rung_spec(family, rung, dtype), self._settings, arch_of(rung, info))
            kernels = []
            for program in compiled.programs:
                with faults():
                    code = ObjectCode.from_cubin(program.cubin)
                    kernels.append(code.get_kernel(program.kernel))
                self._codes.append(code)
            self._loaded[key] = (compiled, kernels)
        return self._loaded[key]


class _Scratch:
    """Memory of one call, in the order of its stream."""

    def __init__(self, count_bytes: int, stream: int) -> None:
        from cuda.bindings import driver

        self._stream = stream
        self.pointer = int(checked(driver.cuMemAllocAsync(max(count_bytes, 1), stream)))

    def release(self) -> None:
        from cuda.bindings import driver

        driver.cuMemFreeAsync(self.pointer, self._stream)


def low_bits(views: Mapping[str, DeviceView]) -> int:
    """The last bits of the arrays' addresses, or-ed: zero where all begin at multiples of `_MOST_ALIGNED`."""
    out = 0
    for view in views.values():
        out |= view.pointer % _MOST_ALIGNED
    return out


def check_scalars(family: Family, scalars: Mapping[str, float]) -> None:
    """Raises TilewrightError: ``ladder/no_scalar`` for a name that is none of the family's numbers: a size is none."""
    known = [arg["name"] for arg in family.args if isinstance(arg.get("value"), int | float)]
    for name in scalars:
        if name not in known:
            hint = f"It has: {', '.join(known)}." if known else "It has none."
            raise TilewrightError("ladder/no_scalar", f"{family.name} has no number '{name}'.", {}, hint)


@contextmanager
def on_card(index: int) -> Iterator[None]:
    """That card is the current one, and behind it the caller's is again."""
    from cuda.bindings import driver
    from cuda.core import Device

    card = Device(index)
    before = checked(driver.cuCtxGetCurrent())
    card.set_current()
    try:
        yield
    finally:
        if int(before) and int(checked(driver.cuCtxGetCurrent())) != int(before):
            checked(driver.cuCtxSetCurrent(before))


def check_alignment(rung: Rung, views: Mapping[str, DeviceView]) -> None:
    """Raises TilewrightError: ``ladder/alignment`` where an array begins at an address that the rung cannot take."""
    for name, view in views.items():
        if view.pointer % rung.align_bytes:
            message = f"'{name}' must begin at a multiple of {rung.align_bytes} bytes for {rung.name}."
            raise TilewrightError("ladder/alignment", message, {}, "Give a copy of it, or name no rung.")


def element_type(family: Family, views: Mapping[str, DeviceView]) -> str:
    """The dtype of the first array whose table says ``T``; the family's first where none does.

    Raises:
        TilewrightError: ``ladder/missing_array``; ``ladder/no_dtype`` for one that the family does not take.
    """
    name = next((arg["name"] for arg in family.args if arg["dtype"] == ELEMENT), None)
    if name is None:
        return family.dtypes[0]
    if name not in views:
        raise TilewrightError("ladder/missing_array", f"{family.name} needs '{name}': {family.op}.")
    dtype = views[name].dtype
    if dtype not in family.dtypes:
        known = ", ".join(family.dtypes)
        message = f"'{name}' of {family.name} is {dtype}, which it does not take."
        raise TilewrightError("ladder/no_dtype", message, {}, f"It takes: {known}.")
    return dtype


def arch_of(rung: Rung, info: GpuInfo) -> str:
    """A card runs its own code; with an ``a`` where the rung asks for what only that architecture has."""
    least = rung.min_arch or ""
    return f"{info.arch}a" if least.endswith("a") and least.removesuffix("a") == info.arch else info.arch


def _runs(least: str, info: GpuInfo) -> bool:
    """Whether a card has what a rung's least architecture names."""
    if least.endswith("a"):
        return not arch_mismatch(least, info.arch)
    return int("".join(c for c in info.arch if c.isdigit())) >= int("".join(c for c in least if c.isdigit()))


def _without_maps(launch: BoundLaunch, pointer: Callable[[str], int]) -> BoundLaunch:
    """The launch as the kernel takes it where a map's array begins at no multiple of 16 bytes: without maps."""
    maps = [arg for arg in launch.arguments if isinstance(arg, BoundTensorMap)]
    if all((pointer(arg.owner) + arg.offset_bytes) % _MAP_ALIGNMENT == 0 for arg in maps):
        return launch
    *before, flag = launch.arguments
    if not isinstance(flag, BoundScalar):
        raise TilewrightError("ladder/alignment", f"'{maps[0].owner}' must begin at a multiple of 16 bytes.")
    told = [replace(arg, obstacle="misaligned") if isinstance(arg, BoundTensorMap) else arg for arg in before]
    return replace(launch, arguments=(*told, replace(flag, value=0)))


def _with_scalars(launch: BoundLaunch, scalars: Mapping[str, float]) -> BoundLaunch:
    arguments = tuple(
        replace(arg, value=scalars[arg.name]) if isinstance(arg, BoundScalar) and arg.name in scalars else arg
        for arg in launch.arguments
    )
    return replace(launch, arguments=arguments)
