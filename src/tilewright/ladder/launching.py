"""Rungs called from Python on arrays that lie on a card: ``Ladder().call("transpose", {"x": x, "y": y})``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tilewright.errors import EXIT_MISSING, TilewrightError
from tilewright.gpu.device import GpuInfo, arch_mismatch, find_gpu
from tilewright.gpu.driver import DeviceError, allow_shared_bytes, checked, faults
from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import Family, Rung, load_family
from tilewright.ladder.family_file import ELEMENT
from tilewright.ladder.packed import PackedLaunch
from tilewright.ladder.plans import Plan, Step, put
from tilewright.ladder.repeats import told_apart
from tilewright.ladder.specs import bound_launches, cleared_before, operation_spec, rung_spec
from tilewright.ladder.views import DeviceView, bound_operation, device_view_of, flattened
from tilewright.ladder.workspaces import Workspaces
from tilewright.launch.bind import BoundLaunch, BoundScalar
from tilewright.launch.tensor_maps import BoundTensorMap
from tilewright.ptx.dependent import waits_first
from tilewright.settings import Settings

KEPT_PLANS = 256
_MOST_ALIGNED = 256  # no rung asks for more
_MAP_ALIGNMENT = 16  # CUDA Driver API, cuTensorMapEncodeTiled: globalAddress


@dataclass(frozen=True)
class Launched:
    """A launch that was made.

    Attributes:
        again: makes it again, given the address of each array and a stream's handle: for arrays that are alike in all
            but their addresses, and those aligned alike. None for arrays that are no tensors of PyTorch.
    """

    rung: Rung
    again: Callable[[Mapping[str, int], int], Rung] | None


class Ladder:
    """Compiled rungs, loaded on cards as they are needed. Builds come from the cache that all processes share."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings.from_environment()
        self._families: dict[str, Family] = {}
        self._cards: dict[int, GpuInfo] = {}
        self._specs: dict[tuple[str, str], Any] = {}
        self._loaded: dict[Any, tuple[CompiledRung, list[Any]]] = {}
        self._plans: OrderedDict[Any, Plan] = OrderedDict()
        self._repeats: OrderedDict[Any, Plan] = OrderedDict()  # by PyTorch's tensors as they are
        self._contexts: dict[int, int] = {}
        self._driver: Any = None  # once it is needed
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
        return self.launched(family, arrays, rung=rung, sizes=sizes, scalars=scalars, stream=stream).rung

    def launched(
        self,
        family: str,
        arrays: Mapping[str, Any],
        *,
        rung: str | None = None,
        sizes: Mapping[str, int] | None = None,
        scalars: Mapping[str, float] | None = None,
        stream: int = 0,
    ) -> Launched:
        """`call`, and what launches the same again without looking at arrays. Raises what it does."""
        tensors = _tensors_key(arrays)
        key = (family, rung, tensors, tuple((sizes or {}).items()), _numbers_key(scalars or {})) if tensors else None
        try:
            plan = self._repeats.get(key) if key else None
            if plan is not None:
                places = {name: array.data_ptr() for name, array in arrays.items()}
                return Launched(self._run(plan, places, stream), self._again(family, plan))
            views = {name: device_view_of(name, array, stream) for name, array in arrays.items()}
            whole = self._family(family)
            check_scalars(whole, scalars or {})
            flat = flattened(whole, views)
            plan = self._planned(whole, flat, rung, sizes or {}, scalars or {})
            is_kept = key is not None and all(flat[name].pointer == view.pointer for name, view in views.items())
            if is_kept:
                _keep(self._repeats, key, plan)
            ran = self._run(plan, {name: view.pointer for name, view in flat.items()}, stream)
            return Launched(ran, self._again(family, plan) if is_kept else None)
        except DeviceError as fault:
            raise _not_launched(family, fault) from None

    def _again(self, family: str, plan: Plan) -> Callable[[Mapping[str, int], int], Rung]:
        def again(places: Mapping[str, int], stream: int) -> Rung:
            try:
                return self._run(plan, places, stream)
            except DeviceError as fault:
                raise _not_launched(family, fault) from None

        return again

    def _family(self, name: str) -> Family:
        if name not in self._families:
            self._families[name] = load_family(name)
        return self._families[name]

    def _planned(
        self,
        family: Family,
        views: Mapping[str, DeviceView],
        rung: str | None,
        sizes: Mapping[str, int],
        scalars: Mapping[str, float],
    ) -> Plan:
        dtype = element_type(family, views)
        first = next(iter(views.values()))
        shapes = tuple((n, v.shape, v.strides, v.dtype, v.device, v.pointer % _MOST_ALIGNED) for n, v in views.items())
        key = (family.name, rung, dtype, shapes, tuple(sizes.items()), _numbers_key(scalars))
        plan = self._plans.get(key)
        if plan is None:
            with on_card(first.device):
                plan = self._plan(family, rung, dtype, views, sizes, scalars, first.device)
            _keep(self._plans, key, plan)
        return plan

    def _run(self, plan: Plan, pointers: Mapping[str, int], stream: int) -> Rung:
        if self._is_current(plan.card):
            put(plan, pointers, stream)
        else:
            with self._entered(plan.card):
                put(plan, pointers, stream)
        return plan.rung

    def _is_current(self, card: int) -> bool:
        """Whether that card is the current one, as `on_card` has it."""
        if self._driver is None:
            from cuda.bindings import driver

            self._driver = driver
        code, context = self._driver.cuCtxGetCurrent()
        if code:
            checked((code,))
        current = int(context)
        return current != 0 and self._contexts.get(card) == current

    @contextmanager
    def _entered(self, card: int) -> Iterator[None]:
        from cuda.bindings import driver

        with on_card(card):
            self._contexts[card] = int(checked(driver.cuCtxGetCurrent()))
            yield

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
            return Plan(rung, card, (), {})  # nothing to compute
        compiled, kernels = self._load(family, rung, dtype, info)
        launches = [
            _with_scalars(one, scalars) for one in bound_launches(compiled.spec, whole.sizes, compiled.constants)
        ]
        inputs = [b.name for b in whole.buffers if b.is_read_first]
        cleared = cleared_before(launches, [*inputs, *rung.kept])
        for kernel, one in zip(kernels, launches, strict=True):
            if one.shared_bytes:
                allow_shared_bytes(kernel.handle, one.shared_bytes, card)
        packed = [
            PackedLaunch(kernel.handle, _without_maps(one, views), waits_first(program.ptx, program.kernel))
            for kernel, one, program in zip(kernels, launches, compiled.programs, strict=True)
        ]
        steps = tuple(Step(*each) for each in zip(packed, cleared, strict=True))
        scratch = {
            b.name: b.storage_elements * b.dtype.item_bytes
            for one in launches
            for b in one.buffers
            if b.name not in views
        }
        stay = {name: scratch.pop(name) for name in rung.kept}
        is_bare = not (scratch or stay or any(cleared))
        return Plan(rung, card, steps, scratch, self._kept_by(rung, (family.name, dtype, card), stay), is_bare)

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

    def runs_on(self, card: int) -> Callable[[str], bool]:
        """Whether a card runs code of an architecture. Raises TilewrightError: ``gpu/none``."""
        info = self._card(card)
        return lambda arch: _runs(arch, info)

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


def _not_launched(family: str, fault: DeviceError) -> TilewrightError:
    return TilewrightError("ladder/launch", f"{family} could not be launched: {fault}.")


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
    return runs_code(least, info.arch)


def runs_code(least: str, arch: str) -> bool:
    """Whether a card of an architecture (``sm_90``) has what a rung's least one (``sm_90a``, ``sm_80``) names."""
    if least.endswith("a"):
        return not arch_mismatch(least, arch)
    return int("".join(c for c in arch if c.isdigit())) >= int("".join(c for c in least if c.isdigit()))


def _without_maps(launch: BoundLaunch, views: Mapping[str, DeviceView]) -> BoundLaunch:
    """The launch as the kernel takes it where a map's array begins at no multiple of 16 bytes: without maps."""
    maps = [arg for arg in launch.arguments if isinstance(arg, BoundTensorMap)]
    starts = {
        name: view.pointer for name, view in views.items()
    }  # what is not there is a rung's own, and begins at one
    if all((starts.get(arg.owner, 0) + arg.offset_bytes) % _MAP_ALIGNMENT == 0 for arg in maps):
        return launch
    *before, flag = launch.arguments
    if not isinstance(flag, BoundScalar):
        raise TilewrightError("ladder/alignment", f"'{maps[0].owner}' must begin at a multiple of 16 bytes.")
    told = [replace(arg, obstacle="misaligned") if isinstance(arg, BoundTensorMap) else arg for arg in before]
    return replace(launch, arguments=(*told, replace(flag, value=0)))


def _tensors_key(arrays: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """What PyTorch's tensors have to have in common for a plan to serve them; None where there are other arrays."""
    out = []
    for name, array in arrays.items():
        if not (hasattr(array, "data_ptr") and hasattr(array, "is_cuda")) or not array.is_cuda or array.is_neg():
            return None
        lowest = array.data_ptr() % _MOST_ALIGNED
        out.append((name, tuple(array.shape), array.stride(), array.dtype, array.device, lowest))
    return tuple(out)


def _numbers_key(scalars: Mapping[str, float]) -> tuple[Any, ...]:
    return tuple((name, told_apart(value)) for name, value in scalars.items())


def _keep(plans: OrderedDict[Any, Plan], key: Any, plan: Plan) -> None:
    plans[key] = plan
    if len(plans) > KEPT_PLANS:
        plans.popitem(last=False)


def _with_scalars(launch: BoundLaunch, scalars: Mapping[str, float]) -> BoundLaunch:
    arguments = tuple(
        replace(arg, value=scalars[arg.name]) if isinstance(arg, BoundScalar) and arg.name in scalars else arg
        for arg in launch.arguments
    )
    return replace(launch, arguments=arguments)
