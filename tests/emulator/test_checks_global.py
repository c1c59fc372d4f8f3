"""Reads of unwritten global memory and blocks that write the same bytes; and the words for everything else."""

from __future__ import annotations

import typing
from dataclasses import replace

import numpy as np
import pytest

from tilewright.emulator.checks.global_shadow import GlobalShadow
from tilewright.emulator.checks.reports import Detail, Finding, Kind, Reporter
from tilewright.emulator.checks.wording import describe, describe_all

FOUR = np.arange(4, dtype=np.int64)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 12, 16])
@pytest.mark.parametrize("start", [0, 1])
def test_reads_before_writes(size: int, start: int) -> None:
    reporter = Reporter()
    shadow = GlobalShadow("y", 4 * size + 2, reporter)
    offsets = start + FOUR * size
    shadow.write(offsets, size, 1, FOUR * 0, FOUR)
    shadow.read(offsets, size, 2, FOUR * 0, FOUR)
    assert not reporter
    shadow.read(start + np.array([0, 2 * size + 1]), size, 3, FOUR[:2], FOUR[:2])
    assert not reporter  # still inside of what was written
    shadow.read(offsets + (1 if start == 0 else -1), size, 4, FOUR, FOUR)
    (finding,) = reporter.findings
    assert (finding.kind, finding.count, finding.site) == ("uninitialised_read", 1, 4)
    assert finding.detail.thread == (3 if start == 0 else 0)
    shadow.fill()
    shadow.read(FOUR, 1, 5, FOUR, FOUR)
    assert len(reporter.findings) == 1


def test_blocks_that_write_the_same_bytes() -> None:
    reporter = Reporter()
    shadow = GlobalShadow("y", 64, reporter, owner_granule_bytes=4)
    shadow.write(FOUR * 4, 4, 1, FOUR * 0, FOUR)
    shadow.write(FOUR * 4, 4, 2, FOUR * 0, FOUR)  # one block, twice
    shadow.write(16 + FOUR * 4, 4, 3, FOUR // 2, FOUR)
    shadow.atomic(FOUR * 0, 4)
    assert not reporter
    shadow.write(FOUR * 4, 4, 4, FOUR // 3, FOUR)
    shadow.write(32 + FOUR // 2 * 4, 4, 5, FOUR, FOUR)  # within one call
    assert [(f.kind, f.site, f.count, f.detail.thread) for f in reporter.findings] == [
        ("overlapping_blocks", 4, 1, 3),
        ("overlapping_blocks", 5, 2, 0),
    ]


@pytest.mark.parametrize("kind", typing.get_args(Kind))
def test_every_kind_has_words(kind: Kind) -> None:
    finding = Finding(kind, 71, 64, 3, Detail("tile_a", 128, 16, 2, 37, 5, "phase 1"))
    hazard = describe(finding, {71: 710, 64: 640}.get, lambda site: "cp.async.ca.shared.global")
    assert hazard.kind == kind
    assert hazard.line == 710
    assert "line 710" in hazard.message
    assert "(phase 1) [3 times]" in hazard.message
    bare = describe(Finding(kind, 71, -1, 1, Detail("", 0, 0, 0, -1)), lambda site: None, lambda site: "st.shared")
    assert bare.line is None
    assert "the st.shared" in bare.message
    assert "-1" not in bare.message


def test_reports_are_counted_and_keep_the_first_detail() -> None:
    reporter = Reporter()
    for thread in (3, 4):
        reporter.report("misaligned", 7, detail=lambda thread=thread: Detail("x", 1, 4, 0, thread), count=2)
    reporter.report("misaligned", 8)
    first, second = reporter.findings
    assert (first.count, first.detail.thread) == (4, 3)
    assert (second.site, second.count) == (8, 1)


def test_unrolled_copies_of_a_line_are_one_hazard() -> None:
    detail = Detail("_ZZ4gemmPKfS0_E6tile_a", 0, 16, 0, 40, 5)
    findings = [Finding("race_read_after_write", site, other, 10, detail) for site in (1, 2) for other in (3, 4, 5)]
    lines = {1: 71, 2: 71, 3: 60, 4: 60, 5: 62}
    first, second = describe_all(findings, lines.get, lambda site: "ld.shared")
    assert first.message.startswith("tile_a[0..15] is written at line 60 by thread 5 (warp 0)")
    assert first.message.endswith("[40 times]")
    assert second.message.endswith("[20 times]")
    assert len(describe_all(findings, lambda site: None, lambda site: "ld.shared")) == 6
    inside = replace(findings[0], detail=replace(detail, other_thread=33))
    (hazard,) = describe_all((inside, findings[1]), lines.get, lambda site: "ld.shared")
    assert "add __syncthreads()" in hazard.message
    assert hazard.message.endswith("[20 times]")


@pytest.mark.parametrize(
    ("mangled", "plain"),
    [
        ("_ZZ10igemm_wmmaE6smem_a", "smem_a"),
        ("_ZZ4gemmPKfS0_PfiiiE2As_0", "As"),
        ("_ZZ3runILi8EEvPfE5stage", "stage"),
        ("tile_a", "tile_a"),
        ("_Z6bufferv", "_Z6bufferv"),
        ("_ZZodd", "_ZZodd"),
    ],
)
def test_names_of_local_variables(mangled: str, plain: str) -> None:
    finding = Finding("uninitialised_read", 1, -1, 1, Detail(mangled, 0, 1, 0, 0))
    assert describe(finding, lambda site: 5, lambda site: "").message.startswith(f"{plain}[0] is read at line 5")
