"""The published implementation of CuTe's layout algebra, loaded from the package ``nvidia-cutlass``; random layouts.

It lies in that package as ``pycute``; a package that is called so is something else. Only its own files are loaded, so
that nothing else of the package, nor what that needs, is imported.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from functools import cache
from importlib import metadata
from types import ModuleType
from typing import Any

import pytest

from tilewright.layout.layout import Layout
from tilewright.layout.tuples import IntTuple, column_major, flatten

DISTRIBUTION, VERSION = "nvidia-cutlass", "4.2.0.0"
COMMAND = f"pip install --no-deps {DISTRIBUTION}=={VERSION}"


@cache
def published() -> ModuleType:
    """The module. Fails, rather than skips, where it is not installed: the agreement is a condition of acceptance."""
    try:
        found = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        pytest.fail(f"{DISTRIBUTION} is not installed; run `{COMMAND}` (README.md, the tests).")
    assert found.version == VERSION, f"have {DISTRIBUTION} {found.version}; run `{COMMAND}`"
    folder = found.locate_file("pycute")
    spec = importlib.util.spec_from_file_location(
        "cutlass_layouts", str(folder / "__init__.py"), submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cutlass_layouts"] = module
    spec.loader.exec_module(module)
    return module


def theirs(layout: Layout) -> Any:
    return published().Layout(layout.shape, layout.stride)


def ours(layout: Any) -> Layout:
    """Theirs as ours; raises where it is no layout at all (a mode of size 0)."""
    return Layout(layout.shape, layout.stride)


def settled(layout: Layout) -> tuple[IntTuple, IntTuple]:
    """Shape and stride, the stride of each mode of size 1, which means nothing, being 0."""

    def walk(shape: IntTuple, stride: IntTuple) -> IntTuple:
        if isinstance(shape, tuple):
            assert isinstance(stride, tuple)
            return tuple(walk(s, d) for s, d in zip(shape, stride, strict=True))
        return 0 if shape == 1 else stride

    return layout.shape, walk(layout.shape, layout.stride)


class Random:
    """Layouts of all kinds: compact, permuted, gapped, broadcast, nested, and strides from anywhere."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def nested(self, numbers: list[int], depth: int = 0) -> IntTuple:
        """The numbers, grouped at random."""
        if len(numbers) == 1 and (depth == 0 or self.random.random() < 0.8):
            return numbers[0]
        if len(numbers) == 1 or depth >= 3:
            return tuple(numbers)
        parts = []
        while numbers:
            count = self.random.randint(1, len(numbers) if parts or depth else max(1, len(numbers) - 1))
            parts.append(self.nested(numbers[:count], depth + 1))
            numbers = numbers[count:]
        return tuple(parts)

    def shape(self, most: int = 4) -> IntTuple:
        sizes = [self.random.choice((1, 2, 2, 2, 3, 4, 4, 4, 5, 6, 8)) for _ in range(self.random.randint(1, most))]
        return self.nested(sizes)

    def layout(self, most: int = 4) -> Layout:
        shape = self.shape(most)
        kind = self.random.randrange(5)
        sizes = flatten(shape)
        if kind == 0:
            return Layout(shape, column_major(shape))
        if kind == 4:
            steps = [self.random.choice((0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 5)) for _ in sizes]
        else:
            steps = self._permuted(sizes, gaps=kind >= 2)
            if kind == 3:
                steps = [0 if self.random.random() < 0.2 else step for step in steps]
        return Layout(shape, _like(shape, iter(steps)))

    def _permuted(self, sizes: tuple[int, ...], gaps: bool) -> list[int]:
        steps, reached = [0] * len(sizes), 1
        for i in self.random.sample(range(len(sizes)), len(sizes)):
            if gaps:
                reached *= self.random.choice((1, 1, 1, 2, 3))
            steps[i] = reached
            reached *= sizes[i]
        return steps

    def inside(self, size: int) -> Layout:
        """A layout that often divides an index space of ``size``: what tilers look like."""
        shape, steps, step = [], [], self.random.choice((1, 1, 2, 3, 4, 8))
        for _ in range(self.random.randint(1, 3)):
            length = self.random.choice((1, 2, 2, 3, 4, 4, 6, 8))
            if step * length > max(size, 2):
                break
            shape.append(length)
            steps.append(step)
            step *= length * self.random.choice((1, 1, 2, 3))
        if not shape:
            return Layout(self.random.choice((1, 2)), 1)
        order = self.random.sample(range(len(shape)), len(shape))
        shape, steps = [shape[i] for i in order], [steps[i] for i in order]
        nest = self.nested(shape)
        return Layout(nest, _like(nest, iter(steps)))


def _like(shape: IntTuple, numbers: Any) -> IntTuple:
    return tuple(_like(part, numbers) for part in shape) if isinstance(shape, tuple) else next(numbers)
