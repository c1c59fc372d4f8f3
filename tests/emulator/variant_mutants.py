"""The examples' variants for the mutation suite: how each is made and launched, and what must find each mutant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tilewright.build.artifact import Artifact
from tilewright.emulator.executor import EmulatorExecutor
from tilewright.emulator.options import EmulatorOptions
from tilewright.kloop.analysis import analyse
from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.launch.bind import LaunchChange
from tilewright.launch.executor import Program
from tilewright.rewrite import cp_async, ldg
from tilewright.rewrite.result import RewrittenSource
from tilewright.settings import Settings
from tilewright.verification.baseline import BaselineRecord, baseline_runs
from tilewright.verification.reference import load_reference
from tilewright.workflow.opening import Opened, open_file
from tilewright.workflow.reading import sidecar_for

EXAMPLES = Path(__file__).parents[2] / "examples"
ARCH = "sm_86"
SMEM_STATIC_BYTES = 48 * 1024
MAX_SECONDS = 120.0


@dataclass(frozen=True)
class Sizes:
    """One or two blocks, ragged where the kernel allows it. K: so many whole tiles of ``step`` and ``rest`` more."""

    m: int
    n: int
    step: int
    rest: int

    def at(self, tiles: int) -> dict[str, int]:
        return {"M": self.m, "N": self.n, "K": self.step * tiles + self.rest}


SIZES: Mapping[str, Sizes] = {
    "igemm_wmma": Sizes(80, 48, 32, 11),
    "hgemm_mma": Sizes(136, 72, 32, 8),
    "sgemm_float4": Sizes(128, 256, 8, 8),
    "hgemm_wmma": Sizes(75, 61, 32, 11),
}
Written = RewrittenSource | Refusal
VARIANTS: Mapping[str, tuple[int, Callable[[TiledKernel], Written]]] = {
    "ldg": (2, lambda k: ldg.rewrite(k, False, SMEM_STATIC_BYTES)),
    "ldg_single": (1, lambda k: ldg.rewrite(k, True, SMEM_STATIC_BYTES)),
    "cp_async2": (2, lambda k: cp_async.rewrite(k, 2, SMEM_STATIC_BYTES)),
    "cp_async3": (3, lambda k: cp_async.rewrite(k, 3, SMEM_STATIC_BYTES)),
    "cp_async4": (4, lambda k: cp_async.rewrite(k, 4, SMEM_STATIC_BYTES)),
}

# What must find a mutant of a source, all of it; a mutant may be found by more. The faults that move no thread and no
# copy out of order (another stage, another tile, another number of trips) leave nothing but wrong values.
UNORDERED = frozenset({"race_read_after_write", "race_write_after_read", "values"})
_WRONG_TILES = {"wrong_tile": {"values"}, "epilogue_skipped": {"values"}, "one_tile_too_many": {"values"}}
_RING = {
    "wait_removed": {"read_in_flight", "write_in_flight", "copy_never_waited"},
    "wait_one_group_short": {"read_in_flight", "copy_never_waited"},
    "commit_and_wait_swapped": {"read_in_flight", "race_read_after_write"},
    "commit_before_copy": {"read_in_flight", "copy_never_waited"},
    "barrier_removed": UNORDERED,
    "barrier_before_wait": {"race_read_after_write"},
    "wrong_next_buffer": {"read_in_flight", "uninitialised_read", "values"},
    "wrong_last_buffer": {"values"},
    "prologue_commit_dropped": {"read_in_flight", "race_read_after_write"},
    "wrong_tile": {"values"},
    "epilogue_skipped": {"copy_never_waited", "values"},
    "one_tile_too_many": {"values"},
}
_REGISTERS = {"barrier_removed": UNORDERED, "prologue_store_dropped": {"uninitialised_read", "values"}, **_WRONG_TILES}
_TWO_BUFFERS = {
    **_REGISTERS,
    "prologue_barrier_removed": UNORDERED,
    "barrier_before_store": UNORDERED,
    "wrong_next_buffer": {"uninitialised_read", *UNORDERED},
    "wrong_last_buffer": {"values"},
    "stage_not_toggled": {"values"},
    "store_dropped": {"uninitialised_read", "values"},
}
_ONE_BUFFER = {
    **_REGISTERS,
    "free_barrier_removed": UNORDERED,
    "store_before_barrier": UNORDERED,
    "store_dropped": {"values"},
}
SOURCE_MUTANTS: Mapping[str, Mapping[str, frozenset[str] | set[str]]] = {
    "ldg": _TWO_BUFFERS,
    "ldg_single": _ONE_BUFFER,
    "cp_async2": _RING,
    "cp_async3": _RING,
    "cp_async4": _RING,
}
# The same for mutants of the PTX; all of a variant's instructions that synchronise are in its loop and around it.
_PTX_RING = {
    "wait_removed.0": _RING["wait_removed"],
    "wait_one_group_short.0": _RING["wait_one_group_short"],
    "barrier_removed.0": UNORDERED,
    "barrier_before_wait.0": _RING["barrier_before_wait"],
}
PTX_MUTANTS: Mapping[str, Mapping[str, frozenset[str] | set[str]]] = {
    "ldg": {"barrier_removed.0": UNORDERED, "barrier_removed.1": UNORDERED},
    "ldg_single": {"barrier_removed.0": UNORDERED, "barrier_removed.1": UNORDERED},
    "cp_async2": _PTX_RING,
    "cp_async3": _PTX_RING,
    "cp_async4": _PTX_RING,
}
# Mutants that are no faults: nothing can find them. By variant, and why.
EQUIVALENT: Mapping[str, Mapping[str, str]] = {
    variant: {
        # The rewriter puts a barrier behind the ring's loop, as one stood behind every tile of the original: code that
        # follows may use the shared memory again. In the examples none does: igemm_wmma, hgemm_mma and sgemm_float4
        # touch no shared memory behind the loop; hgemm_wmma stages its result in an array of its own, each warp in
        # its own part of it with __syncwarp around. Nor do threads hand each other global memory: every element of C
        # is read and written by one thread (or warp). So the barrier orders nothing that anybody looks at.
        "barrier_removed.1": "behind the loop the threads share nothing",
    }
    for variant in ("cp_async2", "cp_async3", "cp_async4")
}


@dataclass(frozen=True)
class Variant:
    """One variant, built, and the record of its baseline at the size that its mutants run at."""

    opened: Opened
    text: str
    program: Program
    change: LaunchChange
    record: BaselineRecord


def executor(example: str) -> EmulatorExecutor:
    return EmulatorExecutor(ARCH, EmulatorOptions(max_seconds=MAX_SECONDS), f"{example}.cu")


@cache
def opened(example: str) -> Opened:
    path = EXAMPLES / f"{example}.cu"
    spec = sidecar_for(path, None, None)
    return open_file(path.read_bytes(), path, None, spec, ARCH, Settings.from_environment(), True)


@cache
def kernel(example: str) -> TiledKernel:
    found = opened(example)
    understood = analyse(found.kernel, found.block)
    assert isinstance(understood, TiledKernel), understood
    return understood


@cache
def variant(example: str, name: str) -> Variant:
    """K is S + 2 tiles, the last one ragged: the ring fills, goes round once and drains."""
    stages, rewrite = VARIANTS[name]
    found = opened(example)
    written = rewrite(kernel(example))
    assert isinstance(written, RewrittenSource), written
    change = written.launch
    record = record_at(example, stages + 1)
    return Variant(found, written.text, program(found.compiler.build(written.text)), change, record)


@cache
def record_at(example: str, tiles: int) -> BaselineRecord:
    found = opened(example)
    spec = found.compiler.spec
    assert spec is not None
    assert spec.reference is not None
    one = replace(spec, sizes={"mutants": SIZES[example].at(tiles)})
    names = found.kernel.constants.names()
    return baseline_runs(program(found.baseline), one, names, executor(example), 1, load_reference(spec.reference))


def program(artifact: object) -> Program:
    assert isinstance(artifact, Artifact), artifact
    return Program(artifact.cubin, artifact.ptx, artifact.kernel, artifact.arch)
