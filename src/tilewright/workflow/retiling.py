"""`retile`: the kernel read again at half of BK or BM, built as it is and, where that makes room, with a ring."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tilewright.build.artifact import CompileFailure
from tilewright.errors import TilewrightError
from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.launch.bind import LaunchChange, bind
from tilewright.plan.budget import Budget, budget
from tilewright.receipt import record
from tilewright.rewrite import cp_async
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.rewrite.retile import SIDES, Retiling, Side, retiling
from tilewright.rewrite.retile_reach import shared_with
from tilewright.rewrite.retile_steps import once_a_tile
from tilewright.source.edits import unified_diff
from tilewright.source.reader import OpenKernel, reopen
from tilewright.workflow.bench import Bench
from tilewright.workflow.probing import confirm
from tilewright.workflow.records import refusal_record
from tilewright.workflow.study import StudiedVariant
from tilewright.workflow.threads import bound_of, with_threads
from tilewright.workflow.understanding import understand
from tilewright.workflow.variants import Attempt, make, proof_of, refused, studied, wanting

NAME = "retile"
MOST_RINGS = 2  # of half a tile: each is compiled and verified


@dataclass(frozen=True)
class Retiled:
    """The kernel at half a tile.

    Attributes:
        bench: what its builds are held against: half of the baseline's math per tile, where the tile is half as large.
        change: the constants that its launch follows.
    """

    made: Retiling
    kernel: TiledKernel
    bench: Bench
    change: LaunchChange
    attempt: Attempt

    def note(self) -> str:
        return f"{self.made.name} = {self.made.after} instead of {self.made.before} (line {self.made.line})"


def retiled(bench: Bench, kernel: TiledKernel, stages: tuple[int, ...], plan: Budget) -> list[StudiedVariant]:
    """Half a tile with one buffer; and with those of the rings asked for that the whole tile has no room for.

    Args:
        plan: the budget of the whole tile.
    """
    refusals: list[tuple[Side, record.Refusal]] = []
    for side in SIDES:
        found = _at_half(bench, kernel, side)
        if isinstance(found, Retiled):
            others = tuple(f"half of {s}: {r.message}" for s, r in refusals)
            plain = studied(NAME, 1, found.attempt, found.bench, others, notes=(found.note(),))
            return [replace(v, side=side) for v in (plain, *_rings(found, stages, plan))]
        refusals.append((side, found))
    first = refusals[0][1]
    message = "; ".join(f"half of {s}: {r.message}" for s, r in refusals)
    return [refused(NAME, 1, replace(first, message=message))]


def _at_half(bench: Bench, kernel: TiledKernel, side: Side) -> Retiled | record.Refusal:
    """The kernel at half of one side: read, confirmed, built, and its math counted."""
    made = retiling(bench.opened.kernel, kernel, side)
    if isinstance(made, Refusal):
        return refusal_record(made)
    again = reopen(bench.opened.kernel, made.text.encode())
    change = _change(bench, again)
    refused_launch = _launchable(bench, made, change)
    if refused_launch is not None:
        return refused_launch
    other = shared_with(bench.opened.kernel, frozenset(change.constants))
    if other is not None:
        return _no(f"`{made.name}` also decides how the kernel `{other}` works", made)
    often = once_a_tile(kernel, frozenset(change.constants)) if made.side == "BK" else None
    if often is not None:
        return refusal_record(often)
    outcome = bench.compiler.build(made.text)
    if isinstance(outcome, CompileFailure):
        return _no(f"it does not compile at {made.name} = {made.after}: {outcome.message}", made)
    read = _read(bench, kernel, made, again, change)
    if isinstance(read, record.Refusal):
        return read
    expected = _expected(bench, kernel, read)
    if isinstance(expected, str):
        return _no(expected, made)
    counted = replace(bench.baseline, mma_per_tile=expected, copies=())  # its copies are those of a whole tile
    held = replace(bench, baseline=counted, threads=read.tile.threads)
    file = bench.opened.source.file
    diff = unified_diff(bench.opened.source.text.decode(), made.text, file, f"{file} (retile)")
    source = RewrittenSource("retile", 1, made.text, diff, 2, change=change)
    attempt = Attempt(source, outcome, proof_of(outcome, bench.compiler))
    bad = wanting(attempt, held, ())
    return Retiled(made, read, held, change, attempt) if bad is None else bad


def _change(bench: Bench, again: OpenKernel) -> LaunchChange:
    """Every constant whose value is another one now: grid, block and shared bytes follow them."""
    now = again.constants.names()
    return LaunchChange(constants={n: v for n, v in now.items() if bench.constants.get(n) != v})


def _launchable(bench: Bench, made: Retiling, change: LaunchChange) -> record.Refusal | None:
    """Whether the sidecar says how the half tile is launched."""
    spec = bench.compiler.spec
    if spec is None:
        # Pipelining is proven from the source; that half a tile adds up in the same order is not.
        return _no("no sidecar: only running it shows that half a tile computes the same", made)
    try:
        launches = [(bind(spec, n, bench.constants), bind(spec, n, bench.constants, change)) for n in spec.sizes]
    except TilewrightError as error:
        return _no(f"it cannot be launched at {made.name} = {made.after}: {error.message}", made)
    if made.side == "BM" and all(a.grid == b.grid for a, b in launches):
        return _no(f"the sidecar's grid does not follow `{made.name}`", made)
    if made.side == "BK" and any(a.grid != b.grid for a, b in launches):
        return _no(f"the grid follows `{made.name}`, so it is more than the depth of a tile", made)
    return None


def _read(
    bench: Bench, kernel: TiledKernel, made: Retiling, again: OpenKernel, change: LaunchChange
) -> TiledKernel | record.Refusal:
    """The kernel at the new constant, still understood, its tile halved in one direction and covered by its copies."""
    spec, opened = bench.compiler.spec, bench.opened
    block, shared_bytes = opened.block, opened.shared_bytes
    if spec is not None:
        launch = bind(spec, "default", bench.constants, change)
        block = launch.block if block is not None else None
        shared_bytes = launch.shared_bytes if shared_bytes is not None else None
    read = understand(again, block, shared_bytes, opened.no_alias)
    if not isinstance(read, Refusal):
        read = confirm(read, bench.compiler) or with_threads(read, opened.function.launch_bounds)
    if isinstance(read, Refusal):
        return replace(refusal_record(read), message=f"at {made.name} = {made.after}: {read.message}")
    old, new = kernel.tile, read.tile
    # BM and BN are counted from what the threads copy: they would grow if the same threads copied twice the half tile.
    wanted = (old.bm, old.bn, made.after) if made.side == "BK" else (made.after, old.bn, old.bk)
    if (new.bm, new.bn, new.bk) != wanted:
        at, tile = f"at {made.name} = {made.after} the threads copy", f"{wanted[0]} x {wanted[1]} x {wanted[2]}"
        if None in (new.bm, new.bn, new.bk):
            return _no(f"{at} something else than a tile of {tile}", made)
        return _no(f"{at} a tile of {new.bm} x {new.bn} x {new.bk}, not {tile}", made)
    bound = bound_of(opened.function.launch_bounds, again.constants.names())
    if block is not None and bound is not None and prod(block) > bound:
        return _no(f"a block of {prod(block)} threads is more than the {bound} of its bounds", made)
    if len(read.staged) != len(kernel.staged):
        return _no("another number of arrays is staged", made)
    return read


def _expected(bench: Bench, kernel: TiledKernel, read: TiledKernel) -> int | str:
    """Math instructions per tile and warp that do the baseline's work: as many per element of the product."""
    if bench.baseline.verdict == "unknown":
        return "the baseline's math per tile is not known, so it cannot be held against half a tile's"
    old, new = kernel.tile, read.tile
    threads = (old.threads or bench.threads, new.threads or bench.threads)
    sides = (old.bm, old.bn, old.bk), (new.bm, new.bn, new.bk)
    if None in (*threads, *sides[0], *sides[1]):
        return "how many threads a block has is not known"
    before, after = (prod(s or 0 for s in side) for side in sides)
    whole = bench.baseline.mma_per_tile * after * (threads[0] or 0)
    if whole % (before * (threads[1] or 1)):
        return "the threads' share of half a tile is no whole number of math instructions"
    return whole // (before * (threads[1] or 1))


def _rings(found: Retiled, stages: tuple[int, ...], plan: Budget) -> list[StudiedVariant]:
    """Half tiles in rings of cp.async, for the first stages at which whole ones cost blocks per SM or do not fit."""
    bench, attempt = found.bench, found.attempt
    if not bench.arch.has_cp_async or bench.threads is None:
        return []
    single = attempt.artifact.resources.smem_bytes + bench.dynamic_bytes(attempt.source.launch)
    half = budget(
        bench.arch,
        threads=bench.threads,
        registers=plan.registers,
        smem_single_bytes=single,
        staged_bytes=sum(a.total_bytes for a in found.kernel.staged),
    )
    out: list[StudiedVariant] = []
    for count in stages:
        whole, row = plan.row(count), half.row(count)
        if whole is None or row is None or not (whole.crosses_cliff or not whole.fits):
            continue
        if row.blocks_per_sm <= whole.blocks_per_sm or len(out) == MOST_RINGS:
            continue
        made = make(NAME, count, lambda r, n=count: _ring(found, n, r), bench, row.fits)  # type: ignore[misc]
        gained = f"{row.blocks_per_sm} blocks per SM in the budget, {whole.blocks_per_sm} with the whole tile"
        out.append(replace(made, notes=(f"{found.note()}, {count} stages of cp.async: {gained}", *made.notes)))
    return out


def _ring(found: Retiled, stages: int, remedy: Remedy) -> RewrittenSource | Refusal:
    limit = found.bench.arch.smem_static_max_bytes
    written = cp_async.rewrite(found.kernel, stages, limit, remedy)
    if isinstance(written, Refusal):
        return written
    source = found.bench.opened.source
    name = f"{source.file} (retile, cp_async, {stages} stages)"
    diff = unified_diff(source.text.decode(), written.text, source.file, name)
    return replace(written, diff=diff, change=found.change)


def _no(what: str, made: Retiling) -> record.Refusal:
    return record.Refusal("not_understood", what, made.line)
