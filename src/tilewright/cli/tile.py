"""`tilewright tile OP DIMS`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from tilewright.cli.terminal import Progress, canvas, emit
from tilewright.settings import Settings

NAME = "tile"
EXAMPLE = """Example: tilewright tile gemm M=4096 N=4096 K=4096 --dtype fp16 --device h200 --out out
         tilewright tile gemm M=1..4096 N=4096 K=4096 --device "a100 sxm4 80"

Ops and dims: gemm M N K [BATCH]; batched_gemm M N K BATCH; attention B H N D [CAUSAL=1]; row_reduction R C
[WRITES_ROWS=1]; elementwise N [INPUTS]; conv N H W C K R S [STRIDE] [PAD]. One dim may be a range.

Exit codes: 0 chosen; 2 bad input; 4 nothing legal, or no such kernel here."""


def run(
    op: Annotated[str, Parameter(name="OP")],
    /,
    *dims: Annotated[str, Parameter(name="DIMS")],
    dtype: str | None = None,
    device: str | None = None,
    arch: str | None = None,
    target: Literal["cuda", "triton"] = "cuda",
    top: int = 12,
    compile: Annotated[bool, Parameter(show_default=False)] = False,
    out: Path | None = None,
    json: Annotated[bool, Parameter(show_default=False)] = False,
    markdown: Annotated[bool, Parameter(show_default=False)] = False,
) -> int:
    """Choose tile sizes and how the work is shared out, with reasons; write the kernel and the tuning plan.

    Parameters
    ----------
    op
        What is computed: gemm, batched_gemm, attention, row_reduction, elementwise, conv.
    dims
        Its sizes, such as M=4096; one may be a range: M=1..4096.
    dtype
        Element type: fp16, bf16, int8, fp32 (matrix products as TF32), or a NumPy name.
    device
        The card, such as h200; default: this machine's GPU.
    arch
        Instead of a card: the first one of this architecture.
    target
        cuda or triton.
    top
        Candidates in the table.
    compile
        Compile those, and take registers and spills from ptxas.
    out
        Write skeleton, sidecar, plan.json and tile.json to this folder.
    json
        Print the report as one JSON object.
    markdown
        Print the report as Markdown.
    """
    settings = Settings.from_environment()

    from tilewright import workflow

    with Progress(settings) as progress:
        outcome = workflow.tile(
            op,
            dims,
            dtype=dtype,
            device=device,
            arch=arch,
            target=target,
            top=top,
            compiles=compile,
            out=out,
            settings=settings,
            progress=progress,
        )
    if json:
        from tilewright.receipt.record import to_json

        emit(to_json(outcome.report))
    elif markdown:
        from tilewright.receipt.tile_text import render_tile_markdown

        emit(render_tile_markdown(outcome.report))
    else:
        from tilewright.receipt.tile_text import render_tile

        page = canvas(settings)
        emit(render_tile(outcome.report, width=page.width, color=page.color))
    return outcome.exit_code
