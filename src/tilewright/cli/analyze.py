"""`tilewright analyze FILE`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.lists import read_extents, read_sizes
from tilewright.cli.terminal import Progress, canvas, emit
from tilewright.settings import Settings

NAME = "analyze"
EXAMPLE = """Example: tilewright analyze igemm.cu --device h200
         tilewright analyze gemm.cubin --grid 64,64 --block 128 --flops 1.37e11 --bytes 1e8

Exit codes: 0 it was analysed; 2 bad input; 3 something is missing."""


def run(
    file: Annotated[Path, Parameter(name="FILE")],
    /,
    *,
    kernel: str | None = None,
    arch: str | None = None,
    spec: Path | None = None,
    device: str | None = None,
    grid: str | None = None,
    block: str | None = None,
    shared_bytes: int | None = None,
    size: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    time_us: float | None = None,
    ncu: Path | None = None,
    flops: float | None = None,
    bytes: float | None = None,
    json: Annotated[bool, Parameter(show_default=False)] = False,
    markdown: Annotated[bool, Parameter(show_default=False)] = False,
    no_cache: Annotated[bool, Parameter(show_default=False)] = False,
) -> int:
    """Say what holds a kernel back, and rank what to do about it, with the numbers behind each.

    Parameters
    ----------
    file
        A CUDA source, a cubin, an entry of Triton's cache (its folder), or a Triton kernel's Python file.
    kernel
        Which kernel, where the file has several.
    arch
        Target to compile a source for, such as sm_86. A cubin has its own.
    spec
        The sidecar; by default the one beside the file. A source without one gets a draft.
    device
        The card, by a part of its name: h200.
    grid
        Blocks of the launch: 64 or 64,64 or 64,64,2. In place of the sidecar's.
    block
        Threads of a block, likewise.
    shared_bytes
        Dynamic shared memory of a block.
    size
        M=4096: in place of the sidecar's default. May be given several times.
    time_us
        Measured time of the launch, in microseconds.
    ncu
        An export of ncu: --csv --page raw (or details).
    flops
        Operations of the launch, where they cannot be counted.
    bytes
        Unique DRAM bytes of the launch, outputs included, where there is no sidecar with shapes.
    json
        Print the report as one JSON object.
    markdown
        Print the report as Markdown.
    no_cache
        Do everything anew.
    """
    settings = Settings.from_environment()

    from tilewright.workflow.analyzing import AnalyzeOptions, analyze

    options = AnalyzeOptions(
        read_extents("--grid", grid),
        read_extents("--block", block),
        shared_bytes,
        read_sizes("--size", size),
        time_us,
        ncu,
        flops,
        bytes,
    )
    with Progress(settings) as progress:
        outcome = analyze(
            file,
            kernel=kernel,
            arch=arch,
            spec=spec,
            device=device,
            options=options,
            settings=settings,
            use_cache=not no_cache,
            progress=progress,
        )
    if json:
        from tilewright.receipt.record import to_json

        emit(to_json(outcome.report))
    elif markdown:
        from tilewright.analyze.markdown import render_markdown

        emit(render_markdown(outcome.report))
    else:
        from tilewright.analyze.text import render_text

        page = canvas(settings)
        emit(render_text(outcome.report, width=page.width, color=page.color))
    return outcome.exit_code
