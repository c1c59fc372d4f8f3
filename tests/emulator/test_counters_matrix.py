"""Counters of matrix instructions and of bulk copies, against figures worked out by hand."""

from __future__ import annotations

import pytest
from kernel_table import BY_NAME
from run_kernels import run_case
from test_counters_kernels import built, run

from tilewright.emulator.options import EmulatorOptions
from tilewright.sass.nvdisasm import find_nvdisasm, run_nvdisasm
from tilewright.settings import Settings

MATRIX = """
extern "C" __global__ void k(const float4 *in, int *out) {
    __shared__ __align__(16) unsigned char tile[32 * PITCH];
    for (int j = 0; j < PITCH / 16; ++j)
        *(float4 *)&tile[(j * 32 + threadIdx.x) * 16] = in[threadIdx.x];
    __syncthreads();
    int r[4];
    unsigned at = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x * PITCH]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" // load
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
    out[threadIdx.x] = r[0] + r[1] + r[2] + r[3];
}
"""


@pytest.mark.parametrize(("pitch", "wavefronts"), [(16, 4), (32, 8), (64, 16), (128, 32), (144, 4)])
def test_ldmatrix_reads_eight_rows_a_phase(pitch: int, wavefronts: int) -> None:
    counts = run(MATRIX.replace("PITCH", str(pitch)), (512, 128))
    assert (counts["load"].wavefronts, counts["load"].ideal_wavefronts) == (wavefronts, 4)


WMMA = """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const float4 *in, float *out) {
    __shared__ __align__(32) half tile[16 * (PITCH + 8)];
    for (int j = 0; j < (PITCH + 8) / 16; ++j) ((float4 *)tile)[j * 32 + threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    fragment<matrix_a, 16, 16, 16, half, row_major> a;
    fragment<matrix_b, 16, 16, 16, half, row_major> b;
    fragment<accumulator, 16, 16, 16, float> c;
    fill_fragment(c, 0.0f);
    load_matrix_sync(a, tile, PITCH);  // a
    load_matrix_sync(b, tile, PITCH);  // b
    mma_sync(c, a, b, c);  // mma
    store_matrix_sync(out, c, 16, mem_MAJOR_major);  // store
}
"""


@pytest.mark.parametrize(
    ("pitch", "major", "wavefronts", "requests", "sectors"),
    # Rows 32 bytes apart: eight of them meet in half of the banks. A row-major store has 8 bytes a lane, eight rows of
    # 32 bytes; a column-major one 4 bytes a lane, four columns of 32 bytes.
    [(16, "row", 8, 4, 32), (24, "row", 4, 4, 32), (16, "col", 8, 8, 32), (64, "row", 32, 4, 32)],
)
def test_wmma_moves_what_machine_code_moves(
    pitch: int, major: str, wavefronts: int, requests: int, sectors: int
) -> None:
    pitched = WMMA.replace("PITCH", str(pitch)).replace("MAJOR", major)
    counts = run(pitched, (512, 1024))
    for mark in "ab":
        assert (counts[mark].wavefronts, counts[mark].ideal_wavefronts, counts[mark].bytes) == (wavefronts, 4, 512)
    assert (counts["store"].requests, counts["store"].sectors, counts["store"].bytes) == (requests, sectors, 1024)
    total = counts.emulation.counters
    assert total is not None
    assert total.operations == {"tensor_f16": 2 * 16**3}


GLOBAL = """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const half *in, float *out) {
    fragment<matrix_a, M, N, 16, half, row_major> a;
    fragment<matrix_b, M, N, 16, half, row_major> b;
    fragment<accumulator, M, N, 16, float> c;
    fill_fragment(c, 0.0f);
    load_matrix_sync(a, in, 16);  // a
    load_matrix_sync(b, in + M * 16, N);  // b
    mma_sync(c, a, b, c);  // mma
    store_matrix_sync(out, c, M, mem_col_major);  // store
}
"""


@pytest.mark.parametrize(("m", "n", "store"), [(16, 16, 8), (8, 32, 4), (32, 8, 8)])
def test_wmma_in_global_memory(m: int, n: int, store: int) -> None:
    """Pairs of halves, eight rows of four lanes each; as many as there are blocks of 8 x 8."""
    source = GLOBAL.replace("half, ", "half, ").replace("M, N", f"{m}, {n}").replace("M *", f"{m} *")
    source = source.replace(" N)", f" {n})").replace(" M,", f" {m},")
    counts = run(source, ((m + n) * 32, m * n * 4))
    a, b = m * 16 // 64, n * 16 // 64
    assert (counts["a"].requests, counts["a"].sectors) == (a, a * 8)
    assert (counts["b"].requests, counts["b"].sectors) == (b, b * (8 if n * 2 >= 32 else 4))
    assert counts["store"].requests == store
    settings = Settings.from_environment()
    if find_nvdisasm(settings) is None:
        pytest.skip("no disassembler")
    lines = run_nvdisasm(built(source).cubin, settings).splitlines()
    assert sum(" LDG" in line for line in lines) == a + b
    assert sum(" STG" in line for line in lines) == store


# -- bulk and tensor copies --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rows", "row_bytes", "copies"),
    # Four blocks; each of the rows of A and B is read by two of them, in as many boxes as there are tiles.
    [("ring_tma", 64 + 32, 512, 32), ("ring_tma_ragged", 50 + 24, 400, 32)],
)
def test_tensor_copies(name: str, rows: int, row_bytes: int, copies: int) -> None:
    counters = run_case(BY_NAME[name], EmulatorOptions(counters=True, checks=False)).emulation.counters
    assert counters is not None
    *ring, _store = [traffic for _, traffic in sorted(counters.lines.items()) if traffic.requests]
    boxes = [
        (start, min(start + 128, row * row_bytes + row_bytes))
        for row in range(rows)
        for start in range(row * row_bytes, row * row_bytes + row_bytes, 128)
    ]
    first = 50 if name == "ring_tma_ragged" else 64  # rows of A; those of B begin in a buffer of their own
    assert first * row_bytes % 32 == 0
    assert sum(x.requests for x in ring) == copies
    assert sum(x.sectors for x in ring) == 2 * sum((end - 1) // 32 - start // 32 + 1 for start, end in boxes)
    assert counters.global_bytes_read == sum(x.bytes for x in ring) == 2 * rows * row_bytes


def test_bulk_copies() -> None:
    counters = run_case(BY_NAME["ring_bulk"], EmulatorOptions(counters=True, checks=False)).emulation.counters
    assert counters is not None
    # 2 x 2 blocks of 32 x 16, K = 96 in tiles of 16: a copy for each row of a tile, 32 bytes.
    *ring, _store = [traffic for _, traffic in sorted(counters.lines.items()) if traffic.requests]
    assert sum(x.bytes for x in ring) == counters.global_bytes_read == 4 * (32 + 16) * 96 * 2
    assert sum(x.sectors for x in ring) == sum(x.ideal_sectors for x in ring) == 4 * (32 + 16) * 6
    assert sum(x.requests for x in ring) == 4 * (32 + 16) * 6


def test_a_twin_without_its_swizzle_has_conflicts() -> None:
    conflicts = {}
    for name in ("ring_tma", "ring_tma_unswizzled"):
        counters = run_case(BY_NAME[name], EmulatorOptions(counters=True, checks=False)).emulation.counters
        assert counters is not None
        lines = [x for x in counters.lines.values() if x.wavefronts]
        conflicts[name] = sum(x.wavefronts for x in lines) / sum(x.ideal_wavefronts for x in lines)
    assert conflicts == {"ring_tma": 1, "ring_tma_unswizzled": 8}
