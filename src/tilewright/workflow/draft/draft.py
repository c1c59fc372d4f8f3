"""Draft a sidecar: plan the launch, run it once in the emulator on generous arrays, and read extents and roles off it.

A draft never decides anything by itself. It is read back as any sidecar is; every size set of it is run with exact
bounds before it is offered; and what it rests on is printed. Where it does not fit, there is none, and the reason.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.emulator.footprint import Footprint, footprint
from tilewright.emulator.lower.compile import Parsed, parse
from tilewright.errors import TilewrightError
from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.launch.bind import BoundLaunch, bind
from tilewright.launch.sidecar import check_against, parse_sidecar
from tilewright.launch.spec import LaunchSpec, Role
from tilewright.verification.baseline import NO_LIMITS
from tilewright.workflow.draft.extents import Shape, shape_of, strides_of
from tilewright.workflow.draft.guess import guessed_plans, with_block_sizes
from tilewright.workflow.draft.plan import UNKNOWN_BYTES, Parameter, Plan, Unclear, parameters_of, planned
from tilewright.workflow.draft.result import Draft
from tilewright.workflow.draft.sizes import (
    default_sizes,
    first_sizes,
    guarded_names,
    other_sizes,
    ragged_sizes,
    unit_of,
)
from tilewright.workflow.draft.text import Array, Head, sidecar_text, skeleton_text
from tilewright.workflow.opening import Opened
from tilewright.workflow.threads import bound_of, with_threads
from tilewright.workflow.understanding import understand

Sets = Mapping[str, Mapping[str, int]]

RUN_MAX_SECONDS = 40.0
GENEROUS_ELEMENTS = 1 << 24
SHARED_TRIES = (16 << 10, 32 << 10, 48 << 10, 64 << 10, 96 << 10)
RAGGED_BY = (5, 4, 8, 16)


@dataclass(frozen=True)
class Seen:
    """One run: at which sizes, and what it used."""

    sizes: Mapping[str, int]
    footprint: Footprint


def draft(opened: Opened, path: Path, say: Callable[[str], None], only_tiled: bool = False) -> Draft:
    """Draft the sidecar of an opened kernel (its baseline is compiled already).

    Args:
        only_tiled: do nothing for a kernel without a K-loop.
    """
    made = _drafted(opened, path, say, only_tiled)
    if made.fits:
        return made
    head = Head(opened.function.name, opened.template, _include(opened, path))
    return replace(made, text=skeleton_text(head, opened.function.params, made.problem))


def _drafted(opened: Opened, path: Path, say: Callable[[str], None], only_tiled: bool) -> Draft:
    understood = understand(opened.kernel, None, None)
    if only_tiled and isinstance(understood, Refusal) and understood.code == "no_k_loop":
        return Draft(problem=understood.message)
    parameters = parameters_of(opened.kernel)
    if isinstance(parameters, Unclear):
        return Draft(problem=parameters.reason)
    if all(p.is_const or not p.is_pointer for p in parameters):
        return Draft(problem="no parameter is a pointer that the kernel may write through")
    try:
        parsed = parse(opened.baseline.ptx, opened.baseline.kernel)
    except TilewrightError as error:
        return Draft(problem=error.message)
    tiled = None if isinstance(understood, Refusal) else with_threads(understood, opened.function.launch_bounds)
    plans = _plans(opened, parameters, tiled)
    if isinstance(plans, Unclear):
        return Draft(problem=plans.reason)
    return _Drafting(opened, path, parameters, parsed, tiled, say).first_that_fits(plans)


def _plans(opened: Opened, parameters: tuple[Parameter, ...], tiled: TiledKernel | None) -> list[Plan] | Unclear:
    found = planned(opened.kernel, parameters)
    if found is None:
        return guessed_plans(opened.kernel, parameters, tiled.tile.threads if tiled is not None else None)
    return found if isinstance(found, Unclear) else with_block_sizes(found, opened.template)


def _include(opened: Opened, path: Path) -> tuple[str, ...]:
    folder = path.resolve().parent
    return tuple(os.path.relpath(f, folder) for f in opened.compiler.include)


class _Drafting:
    def __init__(
        self,
        opened: Opened,
        path: Path,
        parameters: tuple[Parameter, ...],
        parsed: Parsed,
        tiled: TiledKernel | None,
        say: Callable[[str], None],
    ) -> None:
        self.opened, self.path, self.parameters, self.parsed, self.say = opened, path, parameters, parsed, say
        self.constants = opened.kernel.constants.names()
        span = opened.function.span
        self.body = opened.source.text[span.start : span.end].decode(errors="replace")
        self.tile = [v for v in (tiled.tile.bm, tiled.tile.bn, tiled.tile.bk) if v] if tiled is not None else []
        self.arch = opened.baseline.arch
        self.arrays = {p.name: p for p in parameters if p.is_pointer}
        self.include = _include(opened, path)

    def first_that_fits(self, plans: list[Plan]) -> Draft:
        problem = ""
        for number, plan in enumerate(plans):
            self.say(f"drafting a sidecar, launch {number + 1} of {len(plans)}")
            made = self._try(plan)
            if not made.problem:
                return made
            problem = problem or made.problem
        tried = f" ({len(plans)} launches were tried)" if len(plans) > 1 else ""
        return Draft(problem=f"{problem or 'no launch was found that could be tried'}{tried}")

    def _try(self, plan: Plan) -> Draft:
        unit = self._unit(plan)
        sizes = first_sizes(plan.sizes, unit)
        if plan.shared == UNKNOWN_BYTES:
            return self._with_bytes(plan, sizes, unit)
        seen = self._run(plan, self._generous(), sizes)
        why = self._unfit(plan, seen)
        if why:
            return Draft(problem=why)
        assert isinstance(seen, Footprint)
        return self._written(plan, (Seen(sizes, seen), self._again(plan, Seen(sizes, seen), unit)), unit)

    def _again(self, plan: Plan, first: Seen, unit: int) -> Seen:
        """A run at other sizes; the first one where the kernel does not handle those."""
        for step in (unit, 2 * unit):
            others = other_sizes(first.sizes, step)
            seen = self._run(plan, self._generous(), others) if others != first.sizes else ""
            if isinstance(seen, Footprint) and not self._unfit(plan, seen):
                return Seen(others, seen)
        return first

    def _with_bytes(self, plan: Plan, sizes: Mapping[str, int], unit: int) -> Draft:
        """The fewest bytes of shared memory with which the kernel stays in bounds."""
        made = Draft(problem="the bytes of dynamic shared memory are not known")
        for size_bytes in SHARED_TRIES:
            told = (*plan.guesses, f"shared_bytes = {size_bytes}: the fewest, of a few tried, that the kernel stays in")
            made = self._try(replace(plan, shared=str(size_bytes), guesses=told))
            if not made.problem:
                return made
        return made

    def _unit(self, plan: Plan) -> int:
        """What extents are multiples of: what the launch divides by, and the tile."""
        names = {**self.constants, **dict.fromkeys(plan.sizes, 1 << 20)}
        steps = list(self.tile)
        for text in (*plan.grid, *(t for t in plan.scalars.values() if "ceil_div" in t or "//" in t)):
            for word in text.replace("(", " ").replace(")", " ").replace(",", " ").split():
                value = int(word) if word.isdecimal() else self.constants.get(word, 0) if word in names else 0
                steps.append(value)
        return unit_of(steps)

    def _generous(self) -> dict[str, Array]:
        """Every array far larger than needed; what is not const may be written."""
        return {
            name: Array(Shape((str(GENEROUS_ELEMENTS),)), "in" if p.is_const else "out")
            for name, p in self.arrays.items()
        }

    def _spec(
        self,
        plan: Plan,
        arrays: Mapping[str, Array],
        sets: Sets,
        guesses: tuple[str, ...] = (),
    ) -> tuple[str, LaunchSpec]:
        function = self.opened.function
        head = Head(function.name, self.opened.template, self.include)
        text = sidecar_text(head, plan, self.parameters, arrays, sets, guesses)
        spec = parse_sidecar(text, self.path)
        check_against(spec, function.params, self.constants, bound_of(function.launch_bounds, self.constants))
        return text, spec

    def _run(self, plan: Plan, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> Footprint | str:
        try:
            _, spec = self._spec(plan, arrays, {"default": sizes})
            launch = bind(spec, "default", self.constants)
        except TilewrightError as error:
            return error.message
        return footprint(self.parsed, launch, self.arch, RUN_MAX_SECONDS, self.path.name)

    def _unfit(self, plan: Plan, seen: Footprint | str) -> str:
        if isinstance(seen, str):
            return seen
        if seen.error:
            return seen.error
        # Where the file says how the kernel is launched, a race is the kernel's; where it was guessed, it may be ours.
        hazards = [h for h in seen.hazards if not plan.is_told or not h.kind.startswith(NO_LIMITS)]
        if hazards:
            unless = "" if plan.is_told else "launched as guessed, "
            return f"{unless}{hazards[0].kind}: {hazards[0].message}"
        if not any(t.write_end for t in seen.arrays.values()):
            return "the kernel writes nothing when launched so"
        return ""

    def _written(self, plan: Plan, both: tuple[Seen, Seen], unit: int) -> Draft:
        """Shapes and roles from the runs, then sets of sizes that have been run with exact bounds."""
        seen, sizes = both[0].footprint, both[0].sizes
        arrays: dict[str, Array] = {}
        notes: list[str] = []
        is_scalable = True
        for name in self.arrays:
            touched = seen.arrays[name]
            ends = tuple((run.footprint.arrays[name].end, run.sizes) for run in both)
            shape = shape_of(ends, self._factors(), strides_of(name, self.body, plan.sizes))
            if shape is None:
                shape, is_scalable = Shape((str(touched.end),), "what a run at these sizes used"), False
            role: Role = "in"
            if touched.write_end:
                role = "inout" if touched.is_read_first else "out"
            arrays[name] = Array(shape, role)
            kind = f", {role}" if role != "in" else ""
            notes.append(f"{name} has the shape [{', '.join(shape.extents)}]{kind}: seen in a run")
        if not plan.is_told and not self._is_whole(seen, arrays, is_scalable):
            return Draft(problem="the outputs are not written whole when launched so")
        sets: dict[str, Mapping[str, int]] = {"default": sizes}
        if is_scalable and plan.sizes:
            sets = self._sets(plan, arrays, seen, sizes, unit)
        exact = self._run(plan, arrays, sizes)
        why = self._unfit(plan, exact)
        if why:
            return Draft(problem=why)
        guesses = (*plan.guesses, *notes, *_told(plan, sets))
        try:
            text, _ = self._spec(plan, arrays, sets, guesses)
        except TilewrightError as error:
            return Draft(problem=error.message)
        return Draft(text, guesses, "", plan.is_told)

    def _factors(self) -> dict[str, int]:
        """Constants that may be a dimension of an array: only those that the sidecar's expressions know."""
        return {n: v for n, v in self.constants.items() if n in self.body or n.isupper()}

    def _is_whole(self, seen: Footprint, arrays: Mapping[str, Array], is_scalable: bool) -> bool:
        outputs = [name for name, array in arrays.items() if array.role != "in"]
        plain = all(not arrays[name].shape.note for name in arrays)
        return is_scalable and plain and all(seen.arrays[n].written == seen.arrays[n].write_end for n in outputs)

    def _sets(
        self, plan: Plan, arrays: Mapping[str, Array], seen: Footprint, sizes: Mapping[str, int], unit: int
    ) -> dict[str, Mapping[str, int]]:
        sets: dict[str, Mapping[str, int]] = {"default": default_sizes(sizes, unit), "small": sizes}
        guarded = guarded_names(plan.sizes, self.body)
        if guarded:
            for off in RAGGED_BY:
                ragged = ragged_sizes(sizes, guarded, off)
                self.say("drafting a sidecar, ragged sizes")
                one = self._run(plan, arrays, ragged)
                if (
                    not self._unfit(plan, one)
                    and isinstance(one, Footprint)
                    and self._covers(arrays, one, seen, ragged)
                ):
                    sets["ragged"] = ragged
                    break
        return {name: values for name, values in sets.items() if self._binds(plan, arrays, values)}

    def _binds(self, plan: Plan, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> bool:
        try:
            self._launch(plan, arrays, sizes)
        except TilewrightError:
            return False
        return True

    def _launch(self, plan: Plan, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> BoundLaunch:
        return bind(self._spec(plan, arrays, {"default": sizes})[1], "default", self.constants)

    def _covers(
        self, arrays: Mapping[str, Array], ragged: Footprint, whole: Footprint, sizes: Mapping[str, int]
    ) -> bool:
        """Outputs that the first run wrote whole are written whole at ragged sizes too."""
        names = {**self.constants, **sizes}
        for name, array in arrays.items():
            first = whole.arrays[name]
            if array.role == "in" or first.written != first.write_end:
                continue
            extents = [int(e) if e.isdecimal() else names[e] for e in array.shape.extents]
            if ragged.arrays[name].written != math.prod(extents):
                return False
        return True


def _told(plan: Plan, sets: Sets) -> list[str]:
    out = []
    for name, values in sets.items():
        if values:
            out.append(f"sizes.{name}: {', '.join(f'{n} = {v}' for n, v in values.items())}")
    if plan.launch_line is not None:
        out.append(f"grid, block and shared bytes are those of the launch at line {plan.launch_line}")
    return out
