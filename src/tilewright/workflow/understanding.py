"""From an opened kernel to a tiled one: as it is where that is understood, else by way of the passes of `normalise`."""

from __future__ import annotations

from dataclasses import replace

from tilewright.normalise.run import normalise
from tilewright.source.analysis import analyse
from tilewright.source.kernel import Refusal, TiledKernel
from tilewright.source.line_map import original_line
from tilewright.source.reader import OpenKernel


def understand(
    kernel: OpenKernel, block: tuple[int, int, int] | None = None, shared_bytes: int | None = None
) -> TiledKernel | Refusal:
    """The tiled kernel, or why it cannot be pipelined; lines are those of the file as handed in.

    Args:
        block: threads of a block per dimension, where a sidecar says so.
        shared_bytes: dynamic shared memory of the launch, where it is the same at every size.
    """
    plain = analyse(kernel, block)
    if isinstance(plain, TiledKernel):
        return plain
    normal = normalise(kernel, block, shared_bytes)
    if not normal.maps:
        return normal.refusal or plain
    found = analyse(normal.kernel, block)
    if isinstance(found, Refusal):
        line = None if found.line is None else normal.line(found.line)
        return normal.refusal or replace(found, line=line)
    return replace(
        found,
        before=kernel.source.text,
        steps=normal.steps,
        maps=normal.maps,
        launch_shared_bytes=normal.shared_bytes,
        line=normal.line(found.line),
        lines={k: (normal.line(a), normal.line(b)) for k, (a, b) in found.lines.items()},
        elsewhere=None if found.elsewhere is None else original_line(normal.maps, found.elsewhere),
        assumptions=(*normal.assumptions, *found.assumptions),
    )
