"""PTX text → CompiledKernel: every block written as Python, compiled once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.emulator.compiled import CompiledBlock, CompiledKernel
from tilewright.emulator.layout import lay_out
from tilewright.emulator.lower.accumulators import suspects
from tilewright.emulator.lower.bundles import run_length, write_run
from tilewright.emulator.lower.fences import are_in
from tilewright.emulator.lower.quiet import is_quiet, looks
from tilewright.emulator.lower.runtime import NAMES
from tilewright.emulator.lower.table import MODULES, lowering_of
from tilewright.emulator.lower.writer import BlockWriter, Scope
from tilewright.emulator.machine.addresses import OFFSET_BITS
from tilewright.emulator.types import scalar, storage
from tilewright.ptx.cfg import Block, Graph, build_graph
from tilewright.ptx.inline import inline_calls
from tilewright.ptx.module import Function, Module
from tilewright.ptx.parse import parse_ptx

FIRST_VARIABLE = 0x100000  # buffer ids of module variables, above every argument's


@dataclass(frozen=True)
class Parsed:
    """A kernel, parsed and inlined; what does not depend on a launch."""

    module: Module
    function: Function
    graph: Graph
    param_offsets: Mapping[str, int]
    param_bytes: int
    compute: int


def parse(ptx: str, kernel: str) -> Parsed:
    """Raises TilewrightError: ``ptx/not_ptx``, ``ptx/unsupported_call``, ``emulator/no_kernel``."""
    module = parse_ptx(ptx)
    function = inline_calls(module, kernel)
    offsets: dict[str, int] = {}
    at = 0
    for param in function.params:
        at = -(-at // param.align) * param.align
        offsets[param.name] = at
        at += param.size_bytes
    digits = "".join(c for c in module.target if c.isdigit())
    return Parsed(module, function, build_graph(function), offsets, at, int(digits or 0))


def variable_address(index: int) -> int:
    """Where the n-th global or const variable of a module lies."""
    return (FIRST_VARIABLE + index) << OFFSET_BITS


def compile_kernel(parsed: Parsed, dynamic_bytes: int) -> CompiledKernel:
    """Write and compile all blocks. Raises Fault ``not_modelled`` at an opcode that the emulator does not know."""
    layout = lay_out(parsed.module, parsed.function, dynamic_bytes, parsed.compute)
    variables = [v for v in parsed.module.variables if v.space in ("global", "const")]
    scope = Scope(
        function=parsed.function,
        layout=layout,
        param_offsets=parsed.param_offsets,
        variable_addresses={v.name: variable_address(k) for k, v in enumerate(variables)},
        namespace={**NAMES, **MODULES},
        registers={},
        compute=parsed.compute,
        has_fences=are_in(parsed.graph.instructions),
    )
    early = suspects(parsed.graph)
    written = [_write(scope, block, early) for block in parsed.graph.blocks]
    source = "\n\n".join(text for _, text in written)
    exec(compile(source, "<ptx blocks>", "exec"), scope.namespace)
    blocks = tuple(
        _finish(scope, block, writer) for block, (writer, _) in zip(parsed.graph.blocks, written, strict=True)
    )
    names = sorted(scope.registers, key=lambda name: scope.registers[name])
    initial = tuple(scalar(0, storage(parsed.function.type_of(name))) for name in names)
    return CompiledKernel(
        parsed.module,
        parsed.function,
        parsed.graph,
        layout,
        blocks,
        initial,
        scope.registers,
        scope.smallest_shared[0],
        source,
    )


def _write(scope: Scope, block: Block, early: Mapping[int, tuple[int, ...]]) -> tuple[BlockWriter, str]:
    writer = BlockWriter(scope, block)
    behind = 0  # of the last bundle
    for k, instruction in enumerate(block.instructions):
        writer.site = block.first_site + k
        if k < behind:
            continue
        length = 1 if early else run_length(block.instructions, k)
        if length > 1:
            behind = k + length
            write_run(writer, block.instructions[k:behind])
            continue
        lowering = lowering_of(instruction)
        if lowering is None:
            raise writer.not_modelled(instruction.full_name)
        if writer.site in early:
            with writer.guarded(instruction.guard):
                writer.line(f"M.warpgroups.check_use({writer.threads}, {early[writer.site]!r}, {writer.site})")
        lowering(writer, instruction)
    inputs = [writer.register(name) for name in sorted(block.live_in)]
    outputs = [writer.register(name) for name in sorted(block.defs & block.live_out)]
    head = f"def block_{block.index}({', '.join(['M', 'A', *inputs])}):"
    results = "".join(f"{name}, " for name in outputs)
    body = "\n".join(f"    {line}" for line in [*writer.lines, f"return ({results}), {writer.extra}"])
    return writer, f"{head}\n{body}"


def _finish(scope: Scope, block: Block, writer: BlockWriter) -> CompiledBlock:
    numbers = scope.registers
    quiet = [is_quiet(instruction) for instruction in block.instructions]
    return CompiledBlock(
        function=scope.namespace[f"block_{block.index}"],
        live_in=tuple(numbers[name] for name in sorted(block.live_in)),
        live_out=tuple(numbers[name] for name in sorted(block.defs & block.live_out)),
        end=writer.end,
        instructions=len(block.instructions),
        has_collective=writer.has_collective,
        first_site=block.first_site,
        has_warpgroup=writer.has_warpgroup,
        is_quiet=all(quiet),
        can_retry=all(quiet[: writer.last_collective - block.first_site + 1]),
        look=next((block.first_site + k for k, i in enumerate(block.instructions) if looks(i)), -1),
    )


def initial_bytes(module: Module, addresses: Mapping[str, int]) -> dict[str, np.ndarray[Any, np.dtype[np.uint8]]]:
    """The bytes of every global and const variable, pointers in initialisers filled in."""
    out = {}
    for variable in module.variables:
        if variable.space not in ("global", "const"):
            continue
        data = np.zeros(variable.size_bytes, np.uint8)
        if variable.initial is not None:
            data[: len(variable.initial)] = np.frombuffer(variable.initial, np.uint8)
        for offset, symbol in variable.initial_symbols:
            if symbol.name in addresses:
                value = np.array([addresses[symbol.name] + symbol.offset], np.int64)
                data[offset : offset + 8] = value.view(np.uint8)
        out[variable.name] = data
    return out
