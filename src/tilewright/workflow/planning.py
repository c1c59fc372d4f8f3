"""What the plan has to know, gathered from the source and the baseline's machine code."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.kloop.kernel import Copy, CopyLoop, LaneStore, LoadItem, Refusal, SharedArray, TiledKernel, Widening
from tilewright.kloop.load_stream import LoadStream, Source
from tilewright.kloop.row_map import Box
from tilewright.kloop.widen import VECTOR_BYTES
from tilewright.plan.budget import Budget
from tilewright.plan.facts import CopyFacts, MathKind, PlanFacts
from tilewright.receipt import record
from tilewright.sass.proof import OverlapProof
from tilewright.workflow.opening import Opened
from tilewright.workflow.study import StudiedVariant


def math_name(kernel: TiledKernel, proof: OverlapProof) -> MathKind:
    """``wmma``, ``mma`` or ``fma``: how the compute phase multiplies."""
    compute = kernel.text[kernel.compute_span.start : kernel.compute_span.end]
    if b"mma_sync" in compute:
        return "wmma"
    return "mma" if proof.math_kind.endswith("MMA") else "fma"


def plan_facts(
    kernel: TiledKernel,
    opened: Opened,
    proof: OverlapProof,
    num_tiles: int | None,
    blocks: int | None,
    variants: Sequence[StudiedVariant],
) -> PlanFacts:
    registers = {
        record.variant_label(v.name, v.stages): v.resources.registers for v in variants if v.resources.registers
    }
    known = proof.verdict != "unknown"
    first = kernel.staged[0]
    stalls = sum(s.mean * s.count for s in proof.stalls)
    return PlanFacts(
        copies=tuple(_copy_facts(kernel, a) for a in kernel.staged),
        element_bytes=first.element_bytes,
        math_kind=math_name(kernel, proof),
        BM=kernel.tile.bm,
        BN=kernel.tile.bn,
        BK=kernel.tile.bk,
        num_tiles=num_tiles,
        ops_per_load=proof.ops_per_load if known else None,
        math_per_tile=proof.mma_per_tile if known else None,
        stall_cycles=stalls or None,
        pitch_a_bytes=_pitch(kernel, 0),
        pitch_b_bytes=_pitch(kernel, 1),
        blocks=blocks,
        variant_registers=registers,
        retiled=next((v.side for v in variants if v.side), ""),
    )


def _pitch(kernel: TiledKernel, index: int) -> int | None:
    """Bytes from one row of an operand in shared memory to the next."""
    if index >= len(kernel.staged):
        return None
    array = kernel.staged[index]
    if len(array.dims) > 1:
        return array.dims[-1] * array.element_bytes
    width = kernel.tile.bk if index == 0 else kernel.tile.bn
    return width * array.element_bytes if width else None


def _copy_facts(kernel: TiledKernel, array: SharedArray) -> CopyFacts:
    if kernel.stream is not None:
        return _streamed(kernel, kernel.stream, array)
    entries = [(loop, e) for loop, e in _entries(kernel.loads) if e.array == array.symbol]
    loop, entry = entries[0]
    widened = VECTOR_BYTES if loop is not None and isinstance(loop.widening, Widening) else None
    scattered = isinstance(entry, LaneStore)
    load = VECTOR_BYTES if scattered else entry.width_bytes
    carried = widened or (entry.width_bytes if entry.width_bytes in (4, 8, 16) else None)
    if isinstance(entry, Copy) and entry.converts:
        carried = None
    guarded = isinstance(entry, Copy) and entry.guard is not None
    rows = kernel.rows.get(array.symbol, ())
    known = () if isinstance(rows, Refusal) else rows
    boxed = bool(known) and all(isinstance(m.box, Box) for m in known)
    count = sum(m.count for m in known) or None
    return CopyFacts(_tile_bytes(kernel, array), load, widened, carried, guarded, scattered, count, boxed)


def _streamed(kernel: TiledKernel, stream: LoadStream, array: SharedArray) -> CopyFacts:
    """The same for a load phase that is taken as a whole: of the store that is loaded."""
    stores = [s for s in stream.stores if s.array == array.symbol]
    if stream.widened(stores[0].stmt):
        return CopyFacts(_tile_bytes(kernel, array), stores[0].width_bytes, None, VECTOR_BYTES, True, False)
    store = next((s for s in stores if isinstance(s.source, Source)), stores[0])
    source = store.source if isinstance(store.source, Source) else None
    scattered = source is not None and source.lane is not None
    carried = store.width_bytes if source is not None and store.width_bytes in (4, 8, 16) else None
    guarded = source is not None and (source.guard is not None or source.fills_zero)
    load = VECTOR_BYTES if scattered else store.width_bytes
    return CopyFacts(_tile_bytes(kernel, array), load, None, carried, guarded, scattered)


def _tile_bytes(kernel: TiledKernel, array: SharedArray) -> int:
    rows = kernel.tile.bm if array is kernel.staged[0] else kernel.tile.bn
    return rows * kernel.tile.bk * array.element_bytes if rows and kernel.tile.bk else array.total_bytes


def _entries(items: Sequence[LoadItem], loop: CopyLoop | None = None) -> list[tuple[CopyLoop | None, Copy | LaneStore]]:
    out: list[tuple[CopyLoop | None, Copy | LaneStore]] = []
    for item in items:
        if isinstance(item, CopyLoop):
            out += _entries(item.body, item)
        elif isinstance(item, Copy | LaneStore):
            out.append((loop, item))
    return out


def preconditions_of(kernel: TiledKernel, plan: Budget, num_tiles: int | None) -> tuple[record.Precondition, ...]:
    """SPEC step 1: what pipelining needs, each judged on its own."""
    doubled = plan.row(2)
    staged = sum(a.total_bytes for a in kernel.staged)
    return (
        record.Precondition(
            "K-loop of load | sync | compute | sync", True, {"lines": "-".join(map(str, kernel.lines["loop"]))}
        ),
        record.Precondition(
            "at least 2 tiles at the default sizes",
            None if num_tiles is None else num_tiles >= 2,
            {"num_tiles": num_tiles},
        ),
        record.Precondition(
            "at least 4 tiles, so that prologue and epilogue amortise",
            None if num_tiles is None else num_tiles >= 4,
            {"num_tiles": num_tiles},
        ),
        record.Precondition(
            "two stages stay under the cliff",
            None if doubled is None else not doubled.crosses_cliff,
            {"staged_bytes": staged, "smem_bytes": doubled.smem_bytes if doubled else None},
        ),
        record.Precondition(
            "two stages leave 2 blocks per SM",
            plan.doubling_keeps_two,
            {"blocks_per_sm": doubled.blocks_per_sm if doubled else None},
        ),
    )
