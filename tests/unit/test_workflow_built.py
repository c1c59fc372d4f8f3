"""What a build is predicted from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewright.receipt.evidence import Proof
from tilewright.sass.proof import CopyRow, OverlapProof
from tilewright.settings import Settings
from tilewright.workflow import pipeline
from tilewright.workflow.bench import Bench
from tilewright.workflow.built import math_per_tile, warps_math
from tilewright.workflow.study import StudiedVariant
from tilewright.workflow.variants import Attempt, wanting


@pytest.mark.parametrize(
    ("side", "threads", "math"),
    [
        ("", 256, 64.0),  # the same tile and block
        ("BK", 256, 64.0),  # half as deep, twice as many tiles
        ("BM", 256, 32.0),  # half of the rows by as many threads
        ("BM", 128, 64.0),  # the block follows the rows: each warp has as much as before
    ],
)
def test_a_warps_math_follows_tile_and_block(side: str, threads: int, math: float) -> None:
    assert warps_math(64.0, side, 256, threads) == math


# 16 math in each of two tiles of 64 bytes a thread: what a trip loads before its first compute and before its second.
TWO_PHASES = OverlapProof("no_overlap", mma_per_tile=16, copies=(CopyRow("LDG", 16, 8),), tiles_per_trip=2)


def counted(math: int, opcode: str, size: int, count: int, tiles: int) -> OverlapProof:
    return OverlapProof("overlap", 1, mma_per_tile=math, copies=(CopyRow(opcode, size, count),), tiles_per_trip=tiles)


def bench(baseline: OverlapProof) -> Bench:
    return Bench(None, None, baseline, 128, {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("proof", "expected"),
    [
        (counted(32, "LDGSTS", 16, 8, 1), 32),  # both phases' loads run ahead together
        (counted(16, "LDG", 16, 8, 2), 16),  # one after the other, as before
        (counted(32, "UTMALDG", 8192, 1, 1), 32),  # a thread's share is not told: the whole trip
        (counted(24, "LDGSTS", 16, 8, 1), 32),  # math is lost
        (counted(32, "LDGSTS", 16, 4, 1), 16),  # math is done twice
        (counted(24, "UTMALDG", 8192, 1, 1), 16),
        (counted(16, "LDG", 16, 3, 2), 16),  # bytes that are no whole share say nothing
        (counted(16, "LDGSTS", 4, 1, 1), 16),
    ],
)
def test_a_second_load_phase_is_a_tile_or_part_of_one(proof: OverlapProof, expected: int) -> None:
    assert bench(TWO_PHASES).math_for(proof) == expected
    attempt = Attempt(None, SimpleNamespace(resources=SimpleNamespace(spill_bytes=0)), proof)  # type: ignore[arg-type]
    refusal = wanting(attempt, bench(TWO_PHASES), ())
    assert (refusal is None) == (proof.mma_per_tile == expected)
    if refusal is not None:
        assert f"{expected} became {proof.mma_per_tile}" in refusal.message


def test_nothing_is_expected_of_a_baseline_that_cannot_be_read() -> None:
    assert bench(replace(TWO_PHASES, verdict="unknown")).math_for(counted(32, "LDGSTS", 16, 8, 1)) is None


def test_the_work_of_a_tile_is_that_of_a_trip() -> None:
    ring = StudiedVariant("cp_async", 2, proof=Proof(mma_per_tile=32, baseline_mma_per_tile=32))
    half = StudiedVariant("retile", 2, proof=Proof(mma_per_tile=64, baseline_mma_per_tile=64), side="BK")
    assert math_per_tile(TWO_PHASES, [StudiedVariant("ldg", 2), ring, half]) == 32
    assert math_per_tile(TWO_PHASES, [half]) == 16


STAGE = """        for (int i = threadIdx.x; i < 64; i += 32)
            *(int4*)&{to}[i / 2][i % 2 * 8] = *(const int4*)&{source}[(i / 2) * K + {k} + i % 2 * 8];
"""
MULTIPLY = """        for (int i = 0; i < 2; ++i) {{
            wmma::load_matrix_sync(a, &{a}[i * 16][0], 16);
            wmma::load_matrix_sync(b, &{b}[i * 16][0], 16);
            wmma::mma_sync(acc[i], a, b, acc[i]);
        }}
"""
SYNC = "        __syncthreads();\n"
KERNEL = """#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
__global__ void twice(const half *__restrict__ A, const half *__restrict__ B, float *__restrict__ C, int K)
{{
    __shared__ half A0[32][16], B0[32][16], A1[32][16], B1[32][16];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[2];
    for (int i = 0; i < 2; ++i) wmma::fill_fragment(acc[i], 0.0f);
    for (int k0 = 0; k0 < K; k0 += 32) {{
{body}    }}
    for (int i = 0; i < 2; ++i) wmma::store_matrix_sync(&C[i * 256], acc[i], 16, wmma::mem_row_major);
}}
"""


def phase(at: int, k: str) -> str:
    a, b = f"A{at}", f"B{at}"
    loads = STAGE.format(to=a, source="A", k=k) + STAGE.format(to=b, source="B", k=k)
    return loads + SYNC + MULTIPLY.format(a=a, b=b) + SYNC


@pytest.mark.parametrize("k", ["k0 + 16", "k1"])  # the second loads move beside the first; what they need is in between
def test_two_tiles_a_trip_lose_no_math(k: str, tmp_path: Path) -> None:
    named = "        const int k1 = k0 + 16;\n" if k == "k1" else ""
    path = tmp_path / "twice.cu"
    path.write_text(KERNEL.format(body=phase(0, "k0") + named + phase(1, k)))
    made = pipeline(path, arch="sm_86", stages=(2,), variants=("cp_async",), settings=Settings(cache_dir=tmp_path))
    (ring,) = made.receipt.variants
    assert ring.refusal is None, ring.refusal
    assert (ring.proof.mma_per_tile, ring.proof.baseline_mma_per_tile) == (8, 8)
    assert (made.receipt.baseline.proof.mma_per_tile, made.receipt.baseline.proof.tiles_per_trip) == (4, 2)
