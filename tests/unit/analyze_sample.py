"""A small kernel with its sidecar, for the tests of the bottleneck analysis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from tilewright.sass.nvdisasm import run_nvdisasm


@contextmanager
def disassembled_once() -> Iterator[None]:
    """Each cubin goes through the disassembler once: it takes longer than all that is done with its listing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tilewright.sass.listing.run_nvdisasm", cache(run_nvdisasm))
        yield


@dataclass(frozen=True)
class Sample:
    """A kernel's source and what its sidecar says.

    Attributes:
        arrays: (name, dtype, shape, role); scalars: names of int arguments, passed as the size of that name.
    """

    source: str
    grid: tuple[str, ...]
    block: tuple[str, ...]
    sizes: dict[str, int]
    arrays: tuple[tuple[str, str, tuple[str, ...], str], ...]
    scalars: tuple[str, ...] = ()
    shared_bytes: str = "0"
    flags: tuple[str, ...] = ()

    def write(self, folder: Path, name: str = "kernel") -> Path:
        """``NAME.cu`` and ``NAME.toml``."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.cu"
        path.write_text(self.source, "utf-8")
        path.with_suffix(".toml").write_text(self._sidecar(), "utf-8")
        return path

    def at(self, **sizes: int) -> Sample:
        return replace(self, sizes={**self.sizes, **sizes})

    def changed(self, *edits: tuple[str, str]) -> Sample:
        """With pieces of the source replaced; each must be there."""
        text = self.source
        for old, new in edits:
            assert old in text, old
            text = text.replace(old, new)
        return replace(self, source=text)

    def _sidecar(self) -> str:
        def listed(items: tuple[str, ...]) -> str:
            return "[" + ", ".join(f'"{item}"' for item in items) + "]"

        text = f'kernel = "f"\n[build]\nflags = {listed(self.flags)}\n[launch]\ngrid = {listed(self.grid)}\n'
        text += f'block = {listed(self.block)}\nshared_bytes = "{self.shared_bytes}"\n[sizes]\ndefault = {{ '
        text += ", ".join(f"{k} = {v}" for k, v in self.sizes.items()) + " }\n"
        for name, dtype, shape, role in self.arrays:
            text += f'[[args]]\nname = "{name}"\ndtype = "{dtype}"\nshape = {listed(shape)}\nrole = "{role}"\n'
            text += "" if role == "out" else 'fill = "zeros()"\n'  # counters do not depend on values
        for name in self.scalars:
            text += f'[[args]]\nname = "{name}"\ndtype = "int32"\nvalue = "{name}"\n'
        return text + "[assume]\nno_alias = true\n"
