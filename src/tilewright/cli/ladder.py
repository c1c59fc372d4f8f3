"""`tilewright ladder list | show | run | bench`."""

from __future__ import annotations

import sys
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from tilewright.cli.terminal import Progress, canvas, emit
from tilewright.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "ladder"
HELP = """Kernels that differ in one technique each: their sources, what each one changes, and what it shows."""
EXAMPLE = """Example: tilewright ladder list
         tilewright ladder show transpose --rung padded
         tilewright ladder show transpose --rung vector --dtype float16 --out out
         tilewright ladder run transpose --dtype float16 --size ragged
         tilewright ladder bench transpose --dtype all --sweep

Exit codes: 0 done; 1 a rung is wrong, or does not show what it claims; 2 bad input; 3 no GPU to time it on."""

FamilyName = Annotated[str, Parameter(name="FAMILY")]
Json = Annotated[bool, Parameter(show_default=False)]


def command() -> App:
    """The verb with its operations."""
    app = App(name=NAME, help=HELP, help_epilogue=EXAMPLE)
    for name, function, example in (
        ("list", list_, ""),
        ("show", show, " transpose --rung padded"),
        ("run", run, " transpose --dtype float16 --size all"),
        ("bench", bench, " transpose --dtype all"),
    ):
        app.command(function, name=name, help_epilogue=f"Example: tilewright ladder {name}{example}")
    return app


def list_(*, json: Json = False) -> int:
    """List the families: what each computes, its rungs and element types.

    Parameters
    ----------
    json
        Print the report as one JSON object.
    """
    from tilewright.ladder.report_text import render_list
    from tilewright.workflow.climbing import list_families

    return _finish(list_families(), render_list, json)


def show(
    family: FamilyName,
    /,
    *,
    rung: str | None = None,
    out: Path | None = None,
    dtype: str | None = None,
    json: Json = False,
) -> int:
    """Show the rungs' sources: the first one's whole, and what each later one changes.

    Parameters
    ----------
    family
        As `tilewright ladder list` names it.
    rung
        Only this one: its name, its number or its technique's word.
    out
        Write the rung to this folder, with sidecar and reference, for `verify`, `analyze`, `prove` and `pipeline`.
    dtype
        Element type of what is written; default: the rung's first.
    json
        Print the report as one JSON object, with every rung's whole source.
    """
    from tilewright.ladder.report_text import render_show
    from tilewright.workflow.climbing import show_family

    return _finish(show_family(family, rung, out=out, dtype=dtype), render_show, json)


def run(
    family: FamilyName,
    /,
    *,
    rung: str | None = None,
    dtype: str | None = None,
    size: str | None = None,
    arch: str | None = None,
    json: Json = False,
) -> int:
    """Run the rungs in the emulator: results against float64, hazards, counters, and what each one claims.

    Parameters
    ----------
    family
        As `tilewright ladder list` names it.
    rung
        Only this one.
    dtype
        Element type, or all; default: the family's first.
    size
        A set of sizes of the family's, or all; default: small.
    arch
        Build for this architecture; default: the least one that a rung needs, sm_86 or later.
    json
        Print the report as one JSON object.
    """
    settings = Settings.from_environment()
    from tilewright.ladder.report_text import render_run
    from tilewright.workflow.climbing import run_family

    with Progress(settings) as progress:
        outcome = run_family(family, rung=rung, dtype=dtype, size=size, arch=arch, settings=settings, progress=progress)
    return _finish(outcome.report, render_run, json, outcome.exit_code)


def bench(
    family: FamilyName,
    /,
    *,
    rung: str | None = None,
    dtype: str | None = None,
    size: str | None = None,
    sweep: Annotated[bool, Parameter(show_default=False)] = False,
    alone: Annotated[bool, Parameter(show_default=False)] = False,
    compile: Literal["auto", "static", "off"] = "auto",
    autotune: Annotated[bool, Parameter(show_default=False)] = False,
    triton_tutorials: Path | None = None,
    seconds: float = 0.5,
    at_most: float | None = None,
    records: Path | None = None,
    turns: Path | None = None,
    at_once: int = 1,
    build_only: Annotated[bool, Parameter(show_default=False)] = False,
    json: Json = False,
) -> int:
    """Time the rungs on this machine's GPU, interleaved, and the one that is picked against PyTorch and Triton.

    Each rung has to pass first. Peers need PyTorch; whose results are wrong is not timed. They and ours are captured
    in CUDA graphs: several calls where the data stays in the L2, one from a cold L2 where it does not.

    Parameters
    ----------
    family
        As `tilewright ladder list` names it.
    rung
        Only this one.
    dtype
        Element type, several with commas between, or all; default: the family's first.
    size
        A set of sizes of the family's, several, or all; default: default, the large one.
    sweep
        Peers at the family's sweep of at least 30 sizes, too.
    alone
        Time no peers: no PyTorch's operator, no torch.compile of it, no device copy, none of Triton's tutorials.
    compile
        torch.compile as it is called plainly, which makes sizes dynamic (auto); anew at each (static); or off.
    autotune
        torch.compile with max-autotune-no-cudagraphs, too, anew at each set of sizes.
    triton_tutorials
        The folder python/tutorials of your checkout of Triton; without it, there is no peer from there.
    seconds
        For each set of sizes, peers and ours together.
    at_most
        Seconds; sets of sizes for peers that were not begun by then are left out, and recorded as such. Where time is
        short, all sets get fewer rounds.
    records
        A folder: ladder-FAMILY-DTYPE.json is written there as soon as an element type is done.
    turns
        A folder; processes that name the same one time by turns, while none of the others uses the card.
    at_once
        How many such processes there are, at the most: they share the card's memory.
    build_only
        Build what this will need into the cache, several at a time if you start several, and time nothing.
    json
        Print the report as one JSON object.
    """
    settings = Settings.from_environment()
    from tilewright import ops
    from tilewright.gpu.driver import settle
    from tilewright.ladder.compiled_peers import PeerOptions
    from tilewright.ladder.report_text import render_bench
    from tilewright.measure.turns import FileTurns, Turns
    from tilewright.workflow.climbing import bench_family

    others = FileTurns(turns, at_once, settle) if turns is not None else Turns()
    options = None if alone else PeerOptions(triton_tutorials, compile, autotune, seconds, partial(getattr, ops))
    with Progress(settings) as progress:
        outcome = bench_family(
            family,
            rung=rung,
            dtype=dtype,
            size=size,
            peers=options,
            sweep=sweep,
            build_only=build_only,
            records=records,
            at_most_s=inf if at_most is None else at_most,
            turns=others,
            settings=settings,
            progress=progress,
        )
    if others.told():
        print(f"turns: {others.told()}", file=sys.stderr)
    return _finish(outcome.report, render_bench, json, outcome.exit_code)


def _finish(report: Any, render: Callable[..., str], json: bool, exit_code: int = 0) -> int:
    if json:
        from tilewright.receipt.record import to_json

        emit(to_json(report))
    else:
        page = canvas(Settings.from_environment())
        emit(render(report, width=page.width, color=page.color))
    return exit_code
