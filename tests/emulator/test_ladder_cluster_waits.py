"""Every wait for a barrier of the cluster in the ladder: without it, a block's memory is used when it may not be there.

Each is taken out of the PTX in turn. On a card that is a send to a block that has not begun or has ended, most of the
time without a trace. ``TILEWRIGHT_CLUSTER_WAITS=all`` looks at all rungs (half a minute), else at one of each kind.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import Family, Rung, load_families
from tilewright.ladder.running import operation, run_emulated
from tilewright.ladder.specs import rung_spec
from tilewright.settings import Settings

WAIT = re.compile(r"barrier\.cluster\.wait[^;]*;")
MEETS = re.compile(r'cluster_wait\(|#include "(ring|behind)\.cuh"')
TOLD = {"cluster_barrier_misuse", "remote_too_early", "remote_too_late", "mbarrier_misuse"}
# Where blocks share sums only, the warp that copies meets nobody: it waits so that its arrival has a wait, and ends.
# PTX ISA, "barrier.cluster": those who wait are waited for unless they have ended.
PAIRED_ONLY = {
    ("hgemm", "28_even"), ("hgemm", "35_parts_in_memory"), ("hgemm", "38_turned"), ("igemm", "24_split_k"),
    ("w8a8", "21_split_k"), ("matmul", "21_split_k"), ("matmul", "25_turned"),
}  # fmt: skip
DEFINES = {
    ("hgemm", "31_stream_k"): {"TW_BN": 128, "TW_STAGES": 2, "TW_BLOCKS": 4, "TW_GROUP": 8, "TW_CLUSTER": 2},
}
OF_EACH_KIND = [("rmsnorm", "04_cluster"), ("rmsnorm", "05_ring"), ("hgemm", "25_pingpong"), ("hgemm", "38_turned")]
# Blocks share tiles and sums.
SHARED = {
    "28_even": {"TW_BM": 64, "TW_BN": 64, "TW_TOGETHER": 0},
    "38_turned": {"TW_BM": 64, "TW_BN": 64},
}
BOTH = {"TW_STAGES": 2, "TW_PARTS": 2, "TW_SHARERS": 2, "TW_AHEAD": 1, "TW_ONCE": 1}
LONG = {"hgemm": {"K": 264, "ld_a": 264}, "matmul": {"K": 264}}  # so many tiles that stages are used again
FAMILIES = {family.name: family for family in load_families()}
EVERY = [
    (name, rung.name)
    for name, family in FAMILIES.items()
    for rung in family.rungs
    if MEETS.search(rung.file.read_text("utf-8"))
]
RUNGS = EVERY if os.environ.get("TILEWRIGHT_CLUSTER_WAITS") == "all" else OF_EACH_KIND


def built(family: Family, rung: Rung, defines: dict[str, int]) -> CompiledRung:
    spec = rung_spec(family, replace(rung, defines={**rung.defines, **defines}), family.dtypes[0])
    return compile_rung(spec, Settings.from_environment())


def without_one(compiled: CompiledRung) -> Iterator[CompiledRung]:
    """A rung of one kernel without each of its waits in turn."""
    (artifact,) = compiled.artifacts
    for found in WAIT.finditer(artifact.ptx):
        ptx = artifact.ptx[: found.start()] + artifact.ptx[found.end() :]
        yield replace(compiled, artifacts=(replace(artifact, ptx=ptx),))


def dropped(name: str, rung: str, defines: dict[str, int]) -> list[set[str]]:
    """By wait that is dropped, what is reported of it; the rung itself is right."""
    family = FAMILIES[name]
    compiled = built(family, family.rung(rung), defines)
    sizes = [{**family.sizes[size], **LONG.get(name, {})} for size in ("small", "ragged")]
    taken = [size for size in sizes if not family.rung(rung).misfit(size)]
    whats = [operation(family, family.dtypes[0], size) for size in taken]
    assert [run_emulated(compiled, what).message for what in whats] == [""] * len(whats)
    return [
        {hazard.kind for what in whats for hazard in run_emulated(twin, what).hazards} for twin in without_one(compiled)
    ]


@pytest.mark.parametrize(("name", "rung"), RUNGS)
def test_no_wait_for_the_cluster_can_be_left_out(name: str, rung: str) -> None:
    found = dropped(name, rung, DEFINES.get((name, rung), {}))
    assert found
    assert [kinds for kinds in found if not kinds & TOLD] == [set()] * ((name, rung) in PAIRED_ONLY)


@pytest.mark.parametrize("rung", SHARED if RUNGS is EVERY else ["38_turned"])
def test_nor_can_it_where_blocks_share_tiles_too(rung: str) -> None:
    found = dropped("hgemm", rung, SHARED[rung] | BOTH)
    assert len(found) == 3
    assert all(kinds & TOLD for kinds in found)
