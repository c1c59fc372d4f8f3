"""Draft a sidecar: plan the launch, run it once in the emulator on generous arrays, and read extents and roles off it.

A draft never decides anything by itself. It is read back as any sidecar is; every size set of it is run with exact
bounds before it is offered; and what it rests on is printed. Where it does not fit, there is none, and the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.emulator.footprint import Footprint, footprint
from tilewright.emulator.lower.compile import Parsed, parse
from tilewright.errors import TilewrightError
from tilewright.launch.bind import BoundLaunch, bind
from tilewright.launch.sidecar import check_against, parse_sidecar
from tilewright.launch.spec import LaunchSpec, Role
from tilewright.source.kernel import Refusal, TiledKernel
from tilewright.verification.baseline import NO_LIMITS
from tilewright.workflow.draft.extents import Shape, shape_of, strides_of
from tilewright.workflow.draft.guess import guessed_plans
from tilewright.workflow.draft.plan import UNKNOWN_BYTES, Parameter, Plan, Unclear, parameters_of, planned
from tilewright.workflow.draft.sizes import default_sizes, first_sizes, guarded_names, ragged_sizes, unit_of
from tilewright.workflow.draft.text import Array, sidecar_text
from tilewright.workflow.opening import Opened
from tilewright.workflow.threads import bound_of, with_threads
from tilewright.workflow.understanding import understand

RUN_MAX_SECONDS = 40.0
ALL_MAX_SECONDS = 90.0
GENEROUS_ELEMENTS = 1 << 24
SHARED_TRIES = (16 << 10, 32 << 10, 48 << 10, 64 << 10, 96 << 10)
RAGGED_BY = (5, 4, 8, 16)


@dataclass(frozen=True)
class Draft:
    """A sidecar that fits, or why there is none.

    Attributes:
        text: of the sidecar; "" where there is none.
        guesses: what it rests on. problem: why there is none.
    """

    text: str = ""
    guesses: tuple[str, ...] = ()
    problem: str = ""


def draft(opened: Opened, path: Path, say: Callable[[str], None]) -> Draft:
    """Draft the sidecar of an opened kernel (its baseline is compiled already)."""
    parameters = parameters_of(opened.kernel)
    if isinstance(parameters, Unclear):
        return Draft(problem=parameters.reason)
    if all(p.is_const or not p.is_pointer for p in parameters):
        return Draft(problem="no parameter is a pointer that the kernel may write through")
    try:
        parsed = parse(opened.baseline.ptx, opened.baseline.kernel)
    except TilewrightError as error:
        return Draft(problem=error.message)
    found = planned(opened.kernel, parameters)
    understood = understand(opened.kernel, None, None)
    tiled = None if isinstance(understood, Refusal) else with_threads(understood, opened.function.launch_bounds)
    if found is None:
        found_all = guessed_plans(opened.kernel, parameters, tiled.tile.threads if tiled is not None else None)
        if isinstance(found_all, Unclear):
            return Draft(problem=found_all.reason)
        plans = found_all
    elif isinstance(found, Unclear):
        return Draft(problem=found.reason)
    else:
        plans = [found]
    return _Drafting(opened, path, parameters, parsed, tiled, say).first_that_fits(plans)


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

    def first_that_fits(self, plans: list[Plan]) -> Draft:
        problem = ""
        spent = 0
        for plan in plans:
            self.say(f"drafting a sidecar, launch {spent + 1} of {len(plans)}")
            spent += 1
            made = self._try(plan)
            if not made.problem:
                return made
            problem = problem or made.problem
        tried = f" ({len(plans)} launches were tried)" if len(plans) > 1 else ""
        return Draft(problem=f"{problem}{tried}")

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
        return self._written(plan, seen, sizes, unit)

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
        steps = [v for v in self.tile]
        for text in plan.grid:
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
        self, plan: Plan, arrays: Mapping[str, Array], sets: Mapping[str, Mapping[str, int]], guesses: tuple[str, ...] = ()
    ) -> tuple[str, LaunchSpec]:
        template = list(self.opened.template)
        function = self.opened.function
        text = sidecar_text(function.name, template, plan, self.parameters, arrays, sets, guesses)
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
        hazards = [h for h in seen.hazards if plan.launch_line is None or not h.kind.startswith(NO_LIMITS)]
        if hazards:
            return f"{hazards[0].kind}: {hazards[0].message}"
        if not any(t.write_end for t in seen.arrays.values()):
            return "the kernel writes nothing when launched so"
        return ""

    def _written(self, plan: Plan, seen: Footprint, sizes: Mapping[str, int], unit: int) -> Draft:
        """Shapes and roles from the run, then sets of sizes that have been run with exact bounds."""
        arrays: dict[str, Array] = {}
        notes: list[str] = []
        is_scalable = True
        for name in self.arrays:
            touched = seen.arrays[name]
            shape = shape_of(touched.end, sizes, self._factors(), strides_of(name, self.body, plan.sizes))
            if shape is None:
                shape, is_scalable = Shape((str(touched.end),), "what a run at these sizes used"), False
            role: Role = "in"
            if touched.write_end:
                role = "inout" if touched.is_read_first else "out"
            arrays[name] = Array(shape, role)
            kind = f", {role}" if role != "in" else ""
            notes.append(f"{name} has the shape [{', '.join(shape.extents)}]{kind}: seen in a run")
        if plan.launch_line is None and not self._is_whole(seen, arrays, is_scalable):
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
        return Draft(text, guesses)

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
                if not self._unfit(plan, one) and isinstance(one, Footprint) and self._covers(arrays, one, seen, ragged):
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


def _told(plan: Plan, sets: Mapping[str, Mapping[str, int]]) -> list[str]:
    out = []
    for name, values in sets.items():
        if values:
            out.append(f"sizes.{name}: {', '.join(f'{n} = {v}' for n, v in values.items())}")
    if plan.launch_line is not None:
        out.append(f"grid, block and shared bytes are those of the launch at line {plan.launch_line}")
    return out
