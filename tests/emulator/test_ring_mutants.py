"""Every broken twin of the rings of mbarriers, bulk copies, TMA, wgmma, clusters and named barriers is found.

The kernels are those of the table, with K as long as it takes for every instruction that synchronises to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest
from kernel_table import BY_NAME, TestKernel, handed_over
from run_kernels import Ran, check_values, ptx_of, run_case

from tilewright.emulator.lower.compile import compile_kernel, parse
from tilewright.emulator.options import EmulatorOptions, Schedule
from tilewright.launch.dtypes import DTYPES
from tilewright.mutate.ptx_mutants import Mutant, synchronisation_mutants

# Length of the sums; 0: as in the table.
LENGTHS = {
    "ring_cp_async_mbarrier": 0,
    "ring_cp_async_groups": 0,
    "ring_bulk": 0,
    "ring_tma": 320,
    "ring_tma_ragged": 288,
    "gemm_wgmma": 0,
    "gemm_wgmma_register_a": 0,
    "gemm_wgmma_specialised": 576,
    "cluster_multicast": 0,
}
CASES: Mapping[str, TestKernel] = {
    **{name: BY_NAME[name] for name in LENGTHS},
    "named_barriers": handed_over("named_barriers", 7),
    "spin_wait": BY_NAME["spin_wait"],
}
# What must find a mutant: all of one of these sets. By kind; and by case where that differs, by kind or name.
Finds = tuple[frozenset[str], ...]


def all_of(*kinds: str) -> Finds:
    return (frozenset(kinds),)


EXPECTED: Mapping[str, Finds] = {
    "wait_removed": all_of("read_in_flight", "values"),
    "wait_one_group_short": all_of("read_in_flight", "values"),
    "commit_and_wait_swapped": all_of("read_in_flight", "values"),
    "barrier_removed": all_of("race_read_after_write"),
    "barrier_before_wait": all_of("race_read_after_write"),
    "cluster_barrier_removed": all_of("race_read_after_write"),
    "empty_wait_dropped": all_of("race_write_after_read", "read_in_flight", "values"),
    "full_wait_dropped": all_of("read_in_flight", "values"),
    # Of a full barrier, and of an empty one.
    "wrong_phase": all_of("read_in_flight", "values") + all_of("deadlock", "error"),
    "arrive_dropped": all_of("deadlock", "error"),
    "wgmma_wait_dropped": all_of("async_read_in_flight"),
    "wgmma_wait_one_short": all_of("async_read_in_flight"),
    "proxy_fence_dropped": all_of("missing_proxy_fence"),
    "expect_tx_wrong_bytes": all_of("deadlock", "error"),
}
# The bulk store of the result is all that has groups there, and nobody writes its source again.
_STORE = dict.fromkeys(("wait_removed", "wait_one_group_short", "commit_and_wait_swapped"), all_of("copy_never_waited"))
EXCEPTIONS: Mapping[str, Mapping[str, Finds]] = {
    # A producer of its own runs ahead of everybody: it arrives twice in one phase.
    "gemm_wgmma_specialised": {**_STORE, "empty_wait_dropped": all_of("mbarrier_misuse", "write_in_flight")},
    # The last one keeps a block while the other arrives at its mbarriers.
    "cluster_multicast": {"cluster_barrier_removed.1": all_of("mbarrier_misuse")},
    "named_barriers": {"barrier_removed": all_of("deadlock", "error")},
}
_INIT = "nothing but fresh mbarriers lies before it, and fence.mbarrier_init beside it publishes those"
_ONE_GROUP = (
    "a wgmma group is the whole warpgroup's, which is the whole block: the thread that copies has waited for the "
    "group that read the stage, so nobody reads it any more"
)
# Mutants that are no faults: by case, and why.
EQUIVALENT: Mapping[str, Mapping[str, str]] = {
    "ring_bulk": {"proxy_fence_dropped.0": _INIT},
    "ring_tma": {"proxy_fence_dropped.0": _INIT, "arrive_dropped.6": "no tile comes after the last: nobody waits"},
    "ring_tma_ragged": {"proxy_fence_dropped.0": _INIT, "arrive_dropped.6": "no tile comes after the last"},
    "gemm_wgmma": {"proxy_fence_dropped.0": _INIT, "empty_wait_dropped.0": _ONE_GROUP},
    "gemm_wgmma_register_a": {"proxy_fence_dropped.0": _INIT, "barrier_removed.1": _ONE_GROUP},
    "gemm_wgmma_specialised": {
        "proxy_fence_dropped.0": _INIT,
        "arrive_dropped.7": "the consumer's loop is unrolled by two, this is behind the last of an odd number of tiles",
    },
}
# The compiler unrolls by two; what is left over is the last tile, behind which none is copied: the copy is dead code.
_LAST = {"empty_wait_dropped.2", "wrong_phase.4", "arrive_dropped.5", "expect_tx_wrong_bytes.6",
         "expect_tx_wrong_bytes.7"}  # fmt: skip
DEAD: Mapping[str, set[str]] = {"ring_tma": _LAST, "ring_tma_ragged": _LAST}
each = pytest.mark.parametrize("name", CASES)


@each
@pytest.mark.parametrize("schedule", ["lockstep", "warp_serial", "random"])
def test_the_unbroken_kernel_is_silent(name: str, schedule: Schedule) -> None:
    assert found(case_of(name), ptx(name), (schedule,)) == set()


@each
def test_every_mutant_is_caught(name: str) -> None:
    case, text = case_of(name), ptx(name)
    mutants = synchronisation_mutants(text, case.kernel, None)
    dead = dead_lines(case, text)
    assert {m.name for m in mutants if m.ptx_line in dead} == DEAD.get(name, set())
    equivalent = EQUIVALENT.get(name, {})
    assert {m.name for m in mutants if m.may_be_equivalent} <= set(equivalent)
    missed = {}
    for mutant in mutants:
        if mutant.ptx_line in dead:
            continue
        by = found(case, mutant.ptx, ("lockstep", "warp_serial"))
        if mutant.name in equivalent:
            assert not by, mutant.name
        elif not any(kinds <= by for kinds in finds(name, mutant)):
            missed[mutant.name] = by
    assert not missed


def finds(name: str, mutant: Mutant) -> Finds:
    own = EXCEPTIONS.get(name, {})
    return own.get(mutant.name) or own.get(mutant.kind) or EXPECTED[mutant.kind]


def found(case: TestKernel, text: str, schedules: tuple[Schedule, ...]) -> set[str]:
    """Kinds of hazards; ``error`` and ``values``."""
    by: set[str] = set()
    for schedule in schedules:
        ran = run_case(case, EmulatorOptions(schedule=schedule, max_seconds=60), text)
        by |= ran.kinds
        if ran.emulation.error:
            by.add("error")
        elif not is_right(case, ran):
            by.add("values")
    return by


def is_right(case: TestKernel, ran: Ran) -> bool:
    try:
        check_values(case, ran)
    except AssertionError:
        return False
    return True


def dead_lines(case: TestKernel, text: str) -> set[int]:
    """Lines of the PTX whose basic block no thread of the unbroken kernel runs."""
    blocks = compile_kernel(parse(text, case.kernel), case.shared_bytes).graph.blocks
    counts = run_case(case, EmulatorOptions(), text).emulation.counts
    return {i.ptx_line for block in blocks if not counts[block.index] for i in block.instructions}


@cache
def ptx(name: str) -> str:
    return ptx_of(CASES[name])


def case_of(name: str) -> TestKernel:
    """The case with its sums as long as LENGTHS says."""
    case, length = CASES[name], LENGTHS.get(name, 0)
    if not length:
        return case
    before = case.arrays["a"].shape[1]
    arrays = dict(case.arrays)
    for operand in ("a", "b"):
        shape = tuple(length if extent == before else extent for extent in arrays[operand].shape)
        arrays[operand] = replace(arrays[operand], shape=shape)
    maps = {}
    for key, data in case.tensor_maps.items():
        array = arrays[data.array]
        row_bytes = array.shape[1] * DTYPES[array.dtype].item_bytes
        maps[key] = replace(data, dims=array.shape[::-1], strides_bytes=(row_bytes,))
    scalars = {key: length if key == "k" else value for key, value in case.scalars.items()}
    return replace(case, arrays=arrays, tensor_maps=maps, scalars=scalars)
