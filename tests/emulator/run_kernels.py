"""Runs a kernel of the table in the emulator."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from kernel_table import TestKernel

from tilewright.build.artifact import Artifact
from tilewright.build.build import build
from tilewright.emulator.lower.compile import Parsed, compile_kernel, parse
from tilewright.emulator.machine.addresses import OFFSET_BITS
from tilewright.emulator.machine.chunk import Geometry
from tilewright.emulator.machine.global_memory import Buffer
from tilewright.emulator.options import EmulatorOptions
from tilewright.emulator.run import Emulation, emulate
from tilewright.emulator.tensor.maps import TensorMap
from tilewright.settings import Settings

# How a tensor map calls an element, where not as the table does.
MAP_ELEMENTS = {"float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "int8": "uint8"}


@dataclass(frozen=True)
class Ran:
    """What a launch left behind: the arrays that are not ``in``, and what was found."""

    arrays: dict[str, np.ndarray]
    emulation: Emulation

    @property
    def kinds(self) -> set[str]:
        return {hazard.kind for hazard in self.emulation.hazards}


def ptx_of(case: TestKernel, *edits: tuple[str, str]) -> str:
    """What it compiles to; ``edits``: of the source, each (what stands there once, what is to stand there)."""
    request = case.request
    for old, new in edits:
        assert request.source.count(old) == 1, old
        request = replace(request, source=request.source.replace(old, new))
    artifact = build(request, Settings.from_environment())
    assert isinstance(artifact, Artifact), artifact
    return artifact.ptx


def run_case(case: TestKernel, options: EmulatorOptions, ptx: str | None = None) -> Ran:
    """Run it on the inputs of the table; ``ptx``: instead of what its source compiles to."""
    parsed = parse(ptx if ptx is not None else ptx_of(case), case.kernel)
    kernel = compile_kernel(parsed, case.shared_bytes)
    inputs = case.inputs()
    buffers = [
        Buffer(name, inputs[name].copy().reshape(-1).view(np.uint8), case.arrays[name].role != "in")
        for name in case.arrays
    ]
    cluster = parsed.function.cluster or (1, 1, 1)
    geometry = Geometry(case.grid, case.block, cluster, kernel.layout.smem_bytes, case.shared_bytes)
    done = emulate(kernel, geometry, buffers, params_of(case, parsed), options, case.file)
    after = {b.name: b.data.view(inputs[b.name].dtype).reshape(inputs[b.name].shape) for b in buffers if b.is_writable}
    return Ran(after, done)


def params_of(case: TestKernel, parsed: Parsed) -> bytes:
    out = bytearray(parsed.param_bytes)
    for param, name in zip(parsed.function.params, case.args, strict=True):
        at = parsed.param_offsets[param.name]
        raw = _argument(case, name)
        assert len(raw) == param.size_bytes
        out[at : at + len(raw)] = raw
    return bytes(out)


def _argument(case: TestKernel, name: str) -> bytes:
    if name in case.scalars:
        return np.int32(case.scalars[name]).tobytes()
    if name in case.arrays:
        return np.int64(_address(case, name)).tobytes()
    data = case.tensor_maps[name]
    element = MAP_ELEMENTS.get(data.dtype, data.dtype)
    swizzle = f"{data.swizzle_bytes}B" if data.swizzle_bytes else "none"
    address = _address(case, data.array)
    return TensorMap(element, address, data.dims, data.strides_bytes, data.box, swizzle=swizzle).encode()


def _address(case: TestKernel, array: str) -> int:
    return (list(case.arrays).index(array) + 1) << OFFSET_BITS


def check_values(case: TestKernel, ran: Ran) -> None:
    for name, want in case.expected(case.inputs()).items():
        have = ran.arrays[name]
        bits = f"u{want.dtype.itemsize}"
        assert np.array_equal(have.view(bits), want.view(bits)) or np.array_equal(have, want), name


def line_of(case: TestKernel, text: str) -> int:
    """The one line of its source that holds a text."""
    lines = [k for k, line in enumerate(case.request.source.splitlines(), 1) if text in line]
    assert len(lines) == 1, (text, lines)
    return lines[0]


@dataclass(frozen=True)
class Twin:
    """A kernel of the table, broken.

    Attributes:
        edit: of the source: what is there, what is there instead.
        found: (kind, a text of the line) that must be reported.
        words: one of the messages must hold them.
    """

    case: TestKernel
    edit: tuple[str, str]
    found: tuple[tuple[str, str], ...]
    words: str = ""

    def run(self, options: EmulatorOptions) -> Ran:
        return run_case(self.case, options, ptx_of(self.case, self.edit))

    def check(self, ran: Ran) -> None:
        hazards = ran.emulation.hazards
        have = {(hazard.kind, hazard.line) for hazard in hazards}
        want = {(kind, line_of(self.case, text)) for kind, text in self.found}
        assert want <= have, (want - have, have)
        assert any(self.words in hazard.message for hazard in hazards), [hazard.message for hazard in hazards]
