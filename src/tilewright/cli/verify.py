"""`tilewright verify FILE.cu`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from tilewright.cli.terminal import Progress, canvas, emit
from tilewright.settings import Settings

NAME = "verify"
EXAMPLE = """Example: tilewright verify mine.cu --against igemm.cu

Runs every size set of the sidecar. Without --against, FILE is compared with itself in another order of threads and with
the sidecar's reference. Exit codes: 0 passed; 1 a check failed or a hazard was found; 2 bad input; 3 something is
missing; 4 nothing here can run it."""


def run(
    file: Annotated[Path, Parameter(name="FILE")],
    /,
    *,
    against: Path | None = None,
    kernel: str | None = None,
    arch: str | None = None,
    spec: Path | None = None,
    executor: Annotated[Literal["emulator", "gpu"], Parameter(show_default=True)] = "emulator",
    schedule: Literal["lockstep", "warp_serial", "random"] | None = None,
    close: Annotated[bool, Parameter(show_default=False)] = False,
    mutate: Annotated[bool, Parameter(show_default=False)] = False,
    shared_bytes: int | None = None,
    seed: int | None = None,
    max_seconds: Annotated[float, Parameter(show_default=True)] = 600.0,
    json: Annotated[bool, Parameter(show_default=False)] = False,
    no_cache: Annotated[bool, Parameter(show_default=False)] = False,
) -> int:
    """Run a kernel and look for wrong values, races, missing waits and stray accesses.

    Parameters
    ----------
    file
        A CUDA source with a sidecar, pipelined or not; or a Python file with a Triton kernel.
    against
        The baseline. FILE is then a candidate for its place and must give the same bits; the sidecar is the
        baseline's where FILE has none.
    kernel
        Which kernel of FILE, where it has several.
    arch
        Target, such as sm_86 or sm_90a. Default: the sidecar's, else sm_86.
    spec
        The sidecar that says how the kernel is launched. Default: FILE.toml beside the source.
    executor
        The emulator needs no GPU and sees races; a GPU sees values only.
    schedule
        One order of threads for all runs of the emulator. Default: lock-step, then warp after warp.
    close
        Results within a tolerance of the baseline's will do; the bound comes from the formats and the sizes.
    mutate
        Also break the synchronisation place by place, and say which breaks are found.
    shared_bytes
        Dynamic shared memory of FILE's launch, where it is not the sidecar's.
    seed
        Of the inputs. Default: a fresh one.
    max_seconds
        A run of the emulator that takes longer is stopped, and has failed.
    json
        Print the report as one JSON object.
    no_cache
        Compile anew.
    """
    settings = Settings.from_environment()

    from tilewright import workflow

    with Progress(settings) as progress:
        outcome = workflow.verify(
            file,
            against=against,
            kernel=kernel,
            arch=arch,
            spec=spec,
            executor=executor,
            schedule=schedule,
            is_loose=close,
            mutate=mutate,
            shared_bytes=shared_bytes,
            max_seconds=max_seconds,
            seed=seed,
            settings=settings,
            use_cache=not no_cache,
            progress=progress,
        )
    if json:
        from tilewright.receipt.record import to_json

        emit(to_json(outcome.report))
    else:
        from tilewright.receipt.verify_text import render_verify

        page = canvas(settings)
        emit(render_verify(outcome.report, width=page.width, color=page.color))
    return outcome.exit_code
