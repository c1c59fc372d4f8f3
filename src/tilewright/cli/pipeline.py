"""`tilewright pipeline KERNEL.cu`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tilewright.cli.lists import read_stages, read_variants
from tilewright.cli.terminal import Progress, canvas, emit, leave_now
from tilewright.settings import Settings

if TYPE_CHECKING:
    from tilewright.workflow.tree import Options

NAME = "pipeline"
EXAMPLE = """Example: tilewright pipeline igemm.cu --arch sm_86 --stages 2,3 --out out

The launch is read from igemm.toml beside igemm.cu, or drafted from the source.
Exit codes: 0 a variant was made, or a reasoned no; 1 a check failed; 2 bad input; 3 something is missing; 4 refused."""

DEFAULT_OUT = Path("out")


def run(
    kernel_file: Annotated[Path, Parameter(name="KERNEL.cu")],
    /,
    *,
    kernel: str | None = None,
    arch: str | None = None,
    spec: Path | None = None,
    stages: str = "2,3,4",
    variants: str | None = None,
    out: Annotated[Path | None, Parameter(show_default=False)] = None,
    json: Annotated[bool, Parameter(show_default=False)] = False,
    no_cache: Annotated[bool, Parameter(show_default=False)] = False,
    no_run: Annotated[bool, Parameter(show_default=False)] = False,
    save: Annotated[bool, Parameter(show_default=False)] = False,
    jobs: int = 1,
    verbose: Annotated[bool, Parameter(show_default=False)] = False,
) -> int:
    """Decide, rewrite, verify, time and prove: the whole job, one receipt.

    Parameters
    ----------
    kernel_file
        The CUDA source, or a folder: then every kernel below it, in one table.
    kernel
        Which __global__ function, where the file has several.
    arch
        Target, such as sm_86 or sm_90a. Default: the GPU's, else the sidecar's, else sm_86.
    spec
        The sidecar that says how the kernel is launched. Default: KERNEL.toml beside the source.
    stages
        How many buffers a ring of cp_async, bulk or tma gets, separated by commas.
    variants
        Only these, separated by commas, such as ldg,cp_async. Default: all that the kernel and the target allow.
    out
        Folder for the sources, the diffs and receipt.json. Default: out; with --json nothing is written unless given.
    json
        Print the receipt as one JSON object.
    no_cache
        Neither read nor write the cache of compiled kernels.
    no_run
        Run nothing: neither a GPU nor the emulator. Sources are then unverified.
    save
        Keep a drafted sidecar beside the kernel. One that is there stays.
    jobs
        For a folder: how many kernels are worked on at once.
    verbose
        Also every SASS excerpt, every precondition, and the reason of each item of the checklist.
    """
    wanted_stages, wanted_variants = read_stages(stages), read_variants(variants)
    settings = Settings.from_environment()
    if kernel_file.is_dir() and kernel is None and spec is None:
        from tilewright.workflow.tree import Options

        written = out if out is not None or json else DEFAULT_OUT
        shared = Options(settings, arch, wanted_stages, wanted_variants, written, not no_cache, not no_run, save)
        return _folder(kernel_file, shared, jobs, json)

    from tilewright import workflow

    with Progress(settings) as progress:
        outcome = workflow.pipeline(
            kernel_file,
            kernel=kernel,
            arch=arch,
            spec=spec,
            stages=wanted_stages,
            variants=wanted_variants,
            out=out if out is not None or json else DEFAULT_OUT,
            settings=settings,
            use_cache=not no_cache,
            run=not no_run,
            progress=progress,
            save_draft=save,
        )
    try:
        if json:
            from tilewright.receipt.record import to_json

            emit(to_json(outcome.receipt))
        else:
            from tilewright.receipt.text import render

            page = canvas(settings)
            emit(render(outcome.receipt, width=page.width, color=page.color, verbose=verbose))
    finally:
        if outcome.hung:
            leave_now(outcome.exit_code)
    return outcome.exit_code


def _folder(root: Path, options: Options, jobs: int, json: bool) -> int:
    """Every kernel below a folder: one table."""
    from tilewright.receipt.tree import render_tree
    from tilewright.workflow.tree import pipeline_tree

    with Progress(options.settings) as progress:
        report = pipeline_tree(root, options, jobs=jobs, progress=progress)
    if json:
        from tilewright.receipt.record import to_json

        emit(to_json(report))
    else:
        emit(render_tree(report, canvas(options.settings).width))
    return report.exit_code
