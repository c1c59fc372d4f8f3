"""A rung in the emulator: every kernel of it in order, hazards, the result against float64, and what it counted."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tilewright.errors import TilewrightError
from tilewright.ladder.compiling import CompiledRung
from tilewright.ladder.family import Family
from tilewright.ladder.specs import bound_launches, figure, operation_spec
from tilewright.launch.bind import BoundLaunch, bind
from tilewright.launch.dtypes import DTYPES, DType
from tilewright.launch.executor import Hazard, Program
from tilewright.launch.inputs import make_inputs, poisoned_outputs
from tilewright.verification.compare import place_of, root_mean_square, within
from tilewright.verification.reference import Reference
from tilewright.verification.runs import POISONS
from tilewright.verification.tolerance import Tolerance, derive, read_arithmetic

if TYPE_CHECKING:
    import numpy as np

    from tilewright.emulator.executor import EmulatorExecutor
    from tilewright.emulator.run import Emulation

Arrays = Mapping[str, "np.ndarray"]
MAX_SECONDS = 120.0
# name of a counter's first part → classes of instructions that it sums
_GLOBAL = {
    "load": ("load_global", "copy"),
    "store": ("store_global", "copy_out"),
    "atomic": ("atomic_global",),
    "matrix": ("matrix_move",),
}
_SHARED = {
    "load": ("load_shared",),
    "store": ("store_shared", "copy"),
    "atomic": ("atomic_shared",),
    "matrix": ("matrix_move",),
}


@dataclass(frozen=True)
class Operation:
    """What a family computes, at sizes and for one element type: shapes, inputs, and the float64 results.

    Attributes:
        launch: the family's arguments, bound; it launches nothing.
        inputs: storages by name. expected: float64 by output, in its shape.
    """

    family: Family
    dtype: str
    sizes: Mapping[str, int]
    launch: BoundLaunch
    inputs: Arrays
    expected: Arrays


@dataclass(frozen=True)
class RungRun:
    """What came of one run.

    Attributes:
        passed: every kernel ran to its end, without a hazard, and every output keeps its tolerance.
        message: what is wrong first; "" where it passed.
        is_unsupported: the emulator does not model something: nothing is known of the rung.
        max_abs: the largest distance from the reference. tolerance: of the first output, in words.
        counters: by name, see `counters_of`; empty unless asked for.
        outputs: storages.
    """

    passed: bool
    message: str
    hazards: tuple[Hazard, ...] = ()
    is_unsupported: bool = False
    max_abs: float = 0.0
    tolerance: str = ""
    counters: Mapping[str, float] = field(default_factory=dict)
    outputs: Arrays = field(default_factory=dict, repr=False)


def reference_of(family: Family) -> Reference:
    """The family's float64 reference.

    Raises:
        TilewrightError: ``ladder/no_reference``.
    """
    module = f"tilewright.ladder.references.{family.name}"
    try:
        function = getattr(importlib.import_module(module), family.reference)
    except (ModuleNotFoundError, AttributeError):
        message = f"{module} has no function '{family.reference}'."
        raise TilewrightError("ladder/no_reference", message, {"file": str(family.file)}) from None
    return Reference(family.file, function, None)


def operation(
    family: Family, dtype: str, sizes: Mapping[str, int], *, seed: int = 0, specials: tuple[str, ...] = ()
) -> Operation:
    """Inputs, and what has to come of them.

    Args:
        specials: values (``nan``, ``inf``, ``-inf``, ``denormal``) that each floating-point input gets one of, in
            places of their own.
    """
    launch = operation_launch(family, dtype, sizes)
    inputs = make_inputs(launch, seed)
    for name, storage in inputs.items():
        _sprinkle(storage, next(a.dtype for a in launch.buffers if a.name == name), specials)
    return Operation(family, dtype, sizes, launch, inputs, reference_of(family).compute(launch, inputs))


def operation_launch(family: Family, dtype: str, sizes: Mapping[str, int]) -> BoundLaunch:
    """The family's own arguments at sizes: no rung's scratch, and nothing that is launched."""
    return bind(operation_spec(family, dtype), sizes, {})


def _sprinkle(storage: np.ndarray, dtype: DType, specials: tuple[str, ...]) -> None:
    """One of each, spread over the array."""
    import numpy as np

    if dtype.kind != "float" or not storage.size:
        return
    tiny = float(np.nextafter(dtype.numpy().type(0), dtype.numpy().type(1))) * 3
    values = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "denormal": tiny}
    for index, name in enumerate(specials):
        storage[(2 * index + 1) * storage.size // (2 * len(specials))] = values[name]


def emulator_for(compiled: CompiledRung, *, counters: bool = False, checks: bool = True) -> EmulatorExecutor:
    """An emulator for a rung; it reads and translates each kernel once, however often it runs."""
    from tilewright.emulator.executor import EmulatorExecutor
    from tilewright.emulator.options import EmulatorOptions

    options = EmulatorOptions(checks=checks, counters=counters, max_seconds=MAX_SECONDS)
    return EmulatorExecutor(compiled.arch, options, compiled.spec.rung.file.name)


def run_emulated(
    compiled: CompiledRung,
    what: Operation,
    *,
    counters: bool = False,
    checks: bool = True,
    attempt: int = 0,
    programs: tuple[Program, ...] | None = None,
    executor: EmulatorExecutor | None = None,
) -> RungRun:
    """Run a rung in the emulator and judge it.

    Args:
        counters: count instructions and memory traffic. checks: look for hazards.
        attempt: 0 runs all threads in lock-step, 1 warp after warp with other bytes in what nobody wrote, 2 at random.
        programs: twins to run in place of the rung's kernels.
        executor: of earlier runs of the rung (`emulator_for`), which says itself what it counts and looks for.

    Raises:
        TilewrightError: ``ladder/limit`` where the rung does not take the sizes.
    """
    executor = executor or emulator_for(compiled, counters=counters, checks=checks)
    arrays: dict[str, Any] = dict(what.inputs)
    hazards: list[Hazard] = []
    done: list[Emulation] = []
    launches = bound_launches(compiled.spec, what.sizes, compiled.constants)
    for program, launch in zip(programs or compiled.programs, launches, strict=True):
        fresh = {**make_inputs(launch, 0), **poisoned_outputs(launch, POISONS[attempt % 2])}
        given = {b.name: arrays.get(b.name, fresh[b.name]) for b in launch.buffers}
        result, emulation = executor.run_counted(program, launch, given, attempt=attempt)
        hazards += result.hazards
        if result.error:
            return RungRun(False, result.error, tuple(hazards), result.is_unsupported)
        arrays |= result.arrays
        done += [emulation] if emulation is not None else []
    counted = counters_of(done) if counters else {}
    return judge(compiled, what, arrays, tuple(hazards), counted)


def judge(
    compiled: CompiledRung,
    what: Operation,
    arrays: Arrays,
    hazards: tuple[Hazard, ...] = (),
    counters: Mapping[str, float] | None = None,
) -> RungRun:
    """Compare what a run left behind with the reference.

    Args:
        arrays: storages by name, outputs among them.
    """
    message = hazards[0].message if hazards else ""
    worst, told = 0.0, ""
    for name, expected in what.expected.items():
        array = next(a for a in what.launch.arrays if a.name == name)
        need = _as_held(expected, array.dtype)
        tolerance = tolerance_of(compiled, what, array.dtype, need)
        got = what.launch.view(name, arrays)
        difference = within(got, need, tolerance)
        worst, told = max(worst, difference.max_abs), told or tolerance.derivation
        if difference.count and not message:
            at = place_of(difference.first, array.shape)
            flat = difference.first
            message = (
                f"{difference.count:,} of {difference.total:,} elements of {name} are wrong, the first at {at}: "
                f"{float(got.reshape(-1)[flat]):.6g} instead of {float(need.reshape(-1)[flat]):.6g} ({told})"
            )
    return RungRun(not message, message, hazards, False, worst, told, counters or {}, arrays)


def tolerance_of(compiled: CompiledRung, what: Operation, output: DType, expected: np.ndarray) -> Tolerance:
    """How far an output may be from the reference: nothing for an exact family, else by formats and length."""
    if what.family.exact:
        return Tolerance(0.0, 0.0, "equal, bit for bit")
    inputs = [a.dtype for a in what.launch.buffers if a.is_read_first] or [DTYPES[what.dtype]]
    arithmetic = read_arithmetic("\n".join(a.ptx for a in compiled.artifacts), inputs)
    length = int(figure(what.family.length, what.family, what.sizes, what.dtype))
    bound = derive(output, inputs, arithmetic, length, root_mean_square(expected))
    return replace(bound, absolute=bound.absolute + _least(output))  # nothing is nearer to 0 than that, and not 0


def _least(dtype: DType) -> float:
    """The smallest positive value of a floating type."""
    if dtype.kind != "float":
        return 0.0
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype.numpy()).smallest_subnormal)


def _as_held(expected: np.ndarray, dtype: DType) -> np.ndarray:
    """Float64 values as the output's type can hold them: what is beyond its range is an infinity."""
    import numpy as np

    if dtype.kind != "float" or dtype.item_bytes >= 8:
        return expected
    with np.errstate(all="ignore"):
        rounded = expected.astype(dtype.numpy()).astype(np.float64)
    return np.where(np.isfinite(rounded), expected, rounded)


def counters_of(done: list[Emulation]) -> dict[str, float]:
    """What a rung's launches counted, together.

    Names: ``launches``, ``blocks``, ``instructions`` (of threads), ``flops``, ``global_bytes_read``,
    ``global_bytes_written``; for ``load``, ``store``, ``atomic`` and ``matrix`` (transfers of fragments) each
    ``global_<kind>_requests``, ``_sectors``, ``_sectors_per_request``, ``_efficiency`` (the fewest sectors possible, as
    a share of those that were touched), and ``shared_<kind>_wavefronts`` and ``_conflicts``; ``global_requests``,
    ``global_sectors``, ``shared_wavefronts``, ``shared_conflicts`` of all kinds; and ``mix_<class>``,
    thread-instructions of each class.
    """
    out: dict[str, float] = {"launches": len(done), "blocks": sum(e.blocks for e in done)}
    totals = [e.counters for e in done if e.counters is not None]
    for name in ("thread_instructions", "flops", "global_bytes_read", "global_bytes_written"):
        out[name.removeprefix("thread_")] = sum(float(getattr(t, name)) for t in totals)
    for name in sorted({name for t in totals for name in t.mix}):
        out[f"mix_{name}"] = sum(t.mix.get(name, 0) for t in totals)
    for kind, classes in _GLOBAL.items():
        requests, sectors, ideal = (_sum(done, classes, x) for x in ("requests", "sectors", "ideal_sectors"))
        out |= {f"global_{kind}_requests": requests, f"global_{kind}_sectors": sectors}
        if requests:
            out |= {f"global_{kind}_sectors_per_request": sectors / requests}
            out |= {f"global_{kind}_efficiency": ideal / sectors}
    for kind, classes in _SHARED.items():
        waves, ideal = (_sum(done, classes, x) for x in ("wavefronts", "ideal_wavefronts"))
        out |= {f"shared_{kind}_wavefronts": waves, f"shared_{kind}_conflicts": waves - ideal}
    for space, names in (("global", ("requests", "sectors")), ("shared", ("wavefronts", "conflicts"))):
        kinds = _GLOBAL if space == "global" else _SHARED
        out |= {f"{space}_{name}": sum(out[f"{space}_{kind}_{name}"] for kind in kinds) for name in names}
    return out


def _sum(done: list[Emulation], classes: tuple[str, ...], name: str) -> float:
    return float(sum(getattr(e.traffic[c], name) for e in done for c in classes if c in e.traffic))
