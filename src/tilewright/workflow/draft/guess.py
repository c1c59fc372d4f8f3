"""Launches to try where the file has none: from the constants that block indices are multiplied with, and names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

from tilewright.source.reader import OpenKernel
from tilewright.workflow.draft.plan import ONE, UNKNOWN_BYTES, Parameter, Plan, Unclear, leading_extent, scalar_guess
from tilewright.workflow.threads import bound_of

MOST_PLANS = 24
_THREADS = re.compile(
    r"(?i)(num_?|n_?|max_?)?(threads?(_per_block|s?_per_cta)?|block_?size|nthreads|threads_num)(_num)?"
)
_BATCHES = re.compile(r"(?i)(b|bs|batch\w*|h|nh|num_?heads?|n_?heads?|heads?|groups?)")


def guessed_plans(kernel: OpenKernel, parameters: tuple[Parameter, ...], threads: int | None) -> list[Plan] | Unclear:
    """Plans in the order in which they are to be tried.

    Args:
        threads: of a block, where the analysis knows it.
    """
    sizes, scalars, guesses = _scalars(parameters)
    body = kernel.source.text[kernel.function.span.start : kernel.function.span.end].decode(errors="replace")
    blocks = _blocks(kernel, body, threads)
    if not blocks:
        return Unclear("nothing says how many threads a block has: no launch in the file, no __launch_bounds__")
    axes = [axis for axis in "xyz" if f"blockIdx.{axis}" in body]
    extents = [n for n in sizes if not _BATCHES.fullmatch(n)] or list(sizes)
    choices: list[list[str]] = []
    extra: list[str] = []
    for axis in "xyz":
        if axis not in axes:
            choices.append([ONE])
            continue
        steps = _steps(kernel, body, axis)
        if steps:
            ranked = sorted(extents, key=lambda size: _likeness(size, steps[0], axis))
            choices.append([f"ceil_div({size}, {step})" for step in steps for size in ranked])
        else:
            known = next((n for n in sizes if _BATCHES.fullmatch(n) and [n] not in choices), None)
            if known is None:
                known = "batch" if "batch" not in (*sizes, *extra) else f"blocks_{axis}"
                extra.append(known)
            choices.append([known])
    shared = UNKNOWN_BYTES if re.search(r"\bextern\s+__shared__", body) else "0"
    plans: list[Plan] = []
    for block, grid in itertools.islice(_pairs(blocks, choices), MOST_PLANS):
        told = (*guesses, f"grid = [{', '.join(grid)}], block = [{', '.join(block)}]: the file has no launch")
        plans.append(Plan(grid, block, shared, scalars, tuple(dict.fromkeys([*sizes, *extra])), {}, told, None))
    return plans


def with_block_sizes(plan: Plan, template: tuple[str, ...]) -> list[Plan]:
    """A plan whose block follows from what its host function is called with: with numbers for it, to be tried."""
    free = next((n for n in plan.sizes if any(re.search(rf"\b{n}\b", text) for text in plan.block)), None)
    if free is None or free in plan.scalars.values():
        return [plan]
    numbers = [t for t in template if t.isdecimal() and 1 < int(t) <= 1024]
    out: list[Plan] = []
    for number in dict.fromkeys([*numbers, "32", "16", "256", "128"]):
        grid, block = _put(plan.grid, free, number), _put(plan.block, free, number)
        sizes = tuple(n for n in plan.sizes if n != free)
        told = (*plan.guesses, f"{free} = {number} in the launch at line {plan.launch_line}")
        out.append(replace(plan, sizes=sizes, guesses=told, is_told=False, grid=grid, block=block))
    return out


def _put(texts: tuple[str, str, str], name: str, number: str) -> tuple[str, str, str]:
    x, y, z = (re.sub(rf"\b{name}\b", number, text) for text in texts)
    return x, y, z


def _pairs(
    blocks: list[tuple[str, str, str]], choices: list[list[str]]
) -> Iterator[tuple[tuple[str, str, str], tuple[str, str, str]]]:
    for x, y, z in itertools.product(*choices):
        sized = [e for e in (x, y, z) if "ceil_div" in e]
        if len({e.split("(")[1].split(",")[0] for e in sized}) < len(sized):
            continue  # one size along two axes
        for block in blocks:
            yield block, (x, y, z)


def _scalars(parameters: tuple[Parameter, ...]) -> tuple[list[str], dict[str, str], list[str]]:
    sizes: list[str] = []
    scalars: dict[str, str] = {}
    guesses: list[str] = []
    for p in parameters:
        if p.is_pointer:
            continue
        value = leading_extent(p.name, parameters) or scalar_guess(p)
        if value is None:
            sizes.append(p.name)
            scalars[p.name] = p.name
            continue
        scalars[p.name] = value
        guesses.append(f"{p.name} = {value}")
    return sizes, scalars, guesses


def _likeness(size: str, step: str, axis: str) -> tuple[int, int]:
    """How little a size looks like the one that this axis runs along: ``BM`` and ``M``; x runs along columns."""
    letter = re.sub(r"(?i)_|tile|block|size|dim", "", step).upper()
    same = size.upper()[:1] in letter[-1:] or (size.upper() in ("N", "W", "COLS") and letter.endswith(("N", "COLS")))
    column = size.lower() in ("n", "w", "cols", "width", "wb")
    return (0 if same else 1, 0 if column == (axis == "x") else 1)


def _steps(kernel: OpenKernel, body: str, axis: str) -> list[str]:
    """Constants that the block index along an axis is multiplied with, through one local that holds it."""
    names = [rf"blockIdx\s*\.\s*{axis}"]
    held = re.findall(rf"\b(\w+)\s*=\s*(?:\(\w+\)\s*)?blockIdx\s*\.\s*{axis}\s*[;,]", body)
    names += [rf"\b{name}\b" for name in held]
    known = kernel.constants.names()
    found: list[str] = []
    for name in names:
        for pattern in (rf"{name}\s*\*\s*(\w+(?:\.\w+)?)", rf"(\w+(?:\.\w+)?)\s*\*\s*{name}"):
            for step in re.findall(pattern, body):
                value = _value(kernel, body, step, known)
                if value is not None:
                    found.append(value)
    return list(dict.fromkeys(found))


def _value(kernel: OpenKernel, body: str, step: str, known: dict[str, int]) -> str | None:
    """A constant in names that the sidecar knows."""
    if step.isdecimal():
        return step if int(step) > 1 else None
    if step in known:
        return step if known[step] > 1 else None
    symbol = next((s for s in kernel.symbols.values() if s.name == step and s.init is not None), None)
    value = kernel.constants.evaluate(symbol.init) if symbol is not None and symbol.init is not None else None
    return str(value) if isinstance(value, int) and value > 1 else None


def _blocks(kernel: OpenKernel, body: str, threads: int | None) -> list[tuple[str, str, str]]:
    known = kernel.constants.names()
    counts: list[str] = []
    bound = bound_of(kernel.function.launch_bounds, known)
    if bound is not None:
        counts.append(str(bound))
    if threads is not None:
        counts.append(str(threads))
    counts += [name for name in known if _THREADS.fullmatch(name) and 32 <= known[name] <= 1024]
    for symbol in kernel.symbols.values():
        if symbol.init is not None and re.search(r"(?i)thread", symbol.name):
            value = kernel.constants.evaluate(symbol.init)
            if isinstance(value, int) and 32 <= value <= 1024:
                counts.append(str(value))
    flat = "threadIdx.y" not in body
    counts += ["256", "128"] if flat else []
    blocks = [(count, ONE, ONE) for count in counts] if flat else []
    if not flat:
        blocks = _square(kernel, body, known, counts)
    return list(dict.fromkeys(blocks))


def _square(kernel: OpenKernel, body: str, known: dict[str, int], counts: list[str]) -> list[tuple[str, str, str]]:
    """Two-dimensional blocks: the constants that thread indices are added to or compared with; else 16 or 32 wide."""
    sides: list[str] = []
    for axis in "xy":
        for step in _steps(kernel, body, axis):
            if (int(step) if step.isdecimal() else known.get(step, 0)) <= 64:
                sides.append(step)
    out = [(side, side, ONE) for side in dict.fromkeys(sides)]
    out += [(str(w), str(int(c) // w), ONE) for c in counts if c.isdecimal() for w in (16, 32) if int(c) % w == 0]
    return [*out, ("16", "16", ONE), ("32", "32", ONE)]
