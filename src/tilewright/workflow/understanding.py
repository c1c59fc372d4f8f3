"""From an opened kernel to a tiled one: as it is where that is understood, else by way of the passes of `normalise`."""

from __future__ import annotations

from dataclasses import replace

from tilewright.kloop.analysis import analyse
from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.normalise.loop_barriers import second_loads
from tilewright.normalise.result import Normalised
from tilewright.normalise.run import normalise
from tilewright.source.reader import OpenKernel


def understand(
    kernel: OpenKernel,
    block: tuple[int, int, int] | None = None,
    shared_bytes: int | None = None,
    no_alias: bool = False,
) -> TiledKernel | Refusal:
    """The tiled kernel, or why it cannot be pipelined; lines are those of the file as handed in.

    Args:
        block: threads of a block per dimension, where a sidecar says so.
        shared_bytes: dynamic shared memory of the launch, where it is the same at every size.
        no_alias: the sidecar says that no buffer that is written overlaps one that is read.
    """
    plain = analyse(kernel, block, no_alias)
    if isinstance(plain, TiledKernel):
        return _with_second_loads(plain, kernel, block, shared_bytes, no_alias)
    normal = normalise(kernel, block, shared_bytes)
    if not normal.maps:
        return normal.refusal or plain
    found = analyse(normal.kernel, block, no_alias)
    if isinstance(found, Refusal):
        return normal.refusal or _led_back(found, normal)
    return _as_handed_in(found, kernel, normal)


def _with_second_loads(
    plain: TiledKernel,
    kernel: OpenKernel,
    block: tuple[int, int, int] | None,
    shared_bytes: int | None,
    no_alias: bool,
) -> TiledKernel:
    """A second load phase is read as scratch of the compute phase; as one with the first, its loads run ahead too."""
    normal = normalise(kernel, block, shared_bytes, (second_loads,))
    found = analyse(normal.kernel, block, no_alias) if normal.maps else plain
    return _as_handed_in(found, kernel, normal) if normal.maps and isinstance(found, TiledKernel) else plain


def _as_handed_in(found: TiledKernel, kernel: OpenKernel, normal: Normalised) -> TiledKernel:
    """A kernel that passes have brought into another form, with the lines of the file as handed in."""
    return replace(
        found,
        before=kernel.source.text,
        steps=normal.steps,
        maps=normal.maps,
        launch_shared_bytes=normal.shared_bytes,
        line=normal.line(found.line),
        lines={k: (normal.line(a), normal.line(b)) for k, (a, b) in found.lines.items()},
        elsewhere=_line(found.elsewhere, normal),
        divergent_return=_line(found.divergent_return, normal),
        outside=replace(
            found.outside,
            line=_line(found.outside.line, normal),
            refusal=None if found.outside.refusal is None else _led_back(found.outside.refusal, normal),
        ),
        unordered=None if found.unordered is None else _led_back(found.unordered, normal),
        assumptions=(*normal.assumptions, *found.assumptions),
        made_for=tuple(dict.fromkeys([*found.made_for, *normal.made_for])),
    )


def _line(line: int | None, normal: Normalised) -> int | None:
    return None if line is None else normal.line(line)


def _led_back(refusal: Refusal, normal: Normalised) -> Refusal:
    """A refusal with its line in the file as handed in."""
    return replace(refusal, line=_line(refusal.line, normal))
