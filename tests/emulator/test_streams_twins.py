"""Broken twins of load phases that are taken as a whole: slips of the writer, and of what is its own about streams."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trap_bench import VARIANTS as VARIANTS_OF
from trap_bench import bench
from whole_kernels import ALL, SINGLE

from tilewright.mutate.source_mutants import source_mutants
from tilewright.rewrite.result import RewrittenSource

SIZES = {"M": 16, "N": 16, "K": 80}
RAGGED = {"M": 19, "N": 11, "K": 77}
BOTH = "a pointer and an index that the compute phase reads too"
VARIANTS = ("ldg", "ldg_single", "cp_async3")


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_twin_of_the_writer_is_caught(variant: str, tmp_path: Path) -> None:
    one = bench(tmp_path, ALL["both sides of an if"])
    written = one.written(variant)
    mutants = source_mutants(written.text)
    assert len(mutants) >= 8
    for mutant in mutants:
        assert one.differs(mutant.text, SIZES, written.launch), mutant.name


# (kernel, variant, text, what stands there in the twin)
SLIPS = {
    "the compute phase takes the index that is ahead": (BOTH, "cp_async3", "auto &kb = kb_compute;", ""),
    "the compute phase's copy stands still": (BOTH, "ldg", "        kb += T;\n        for", "        for"),
    "a local of the load phase, of the wrong tile": (
        "a local of the load phase, of a bumped index",
        "ldg",
        "auto &at = at_compute;",
        "",
    ),
    "the loads advance the compute phase's own index": (
        "an index that the compute phase advances and reads",
        "ldg",
        "auto &tile = tile_fetch;",
        "",
    ),
    "the loads' copy stands still": (
        "an index that the compute phase advances and reads",
        "cp_async3",
        "tile += 1;\n    };",
        "};",
    ),
    "zeros are not filled in": ("a local set on both sides", "cp_async3", "v_from ? 0 : 4", "0"),
    "the wrong lane": ("a vector scattered, by some threads", "cp_async3", "&keep_from->y", "&keep_from->z"),
    "registers of another pass": (
        "passes that differ from thread to thread",
        "ldg",
        "As[r][c] = As_next[pass];",
        "As[r][c] = As_next[pass ^ 1];",
    ),
    "one pass too few": (
        "passes that differ from thread to thread",
        "cp_async3",
        "i < T * T; i += 96",
        "i < 192; i += 96",
    ),
}


@pytest.mark.parametrize("variant", ["ldg", "cp_async3"])
def test_a_ring_would_keep_other_data_where_a_tile_leaves_some_out(variant: str, tmp_path: Path) -> None:
    one = bench(tmp_path, SINGLE["an if without else"])
    stream = one.kernel.stream
    assert stream is not None
    assert one.refused(variant).code == "loop_carried_shared"
    unlocked = replace(one.kernel, stream=replace(stream, unring=None))
    written = VARIANTS_OF[variant](unlocked)
    assert isinstance(written, RewrittenSource)
    assert one.differs(written.text, RAGGED, written.launch)


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_caught(name: str, tmp_path: Path) -> None:
    kernel, variant, old, new = SLIPS[name]
    one = bench(tmp_path, {**ALL, **SINGLE}[kernel])
    written = one.written(variant)
    assert written.text.count(old) == 1, written.text
    sizes = SIZES if "vector" in kernel else RAGGED
    assert one.differs(written.text.replace(old, new), sizes, written.launch)
