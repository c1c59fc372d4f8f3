"""Counters of small kernels, against figures worked out by hand; and a twin of each whose figure is another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from kernel_table import BY_NAME
from run_kernels import run_case

from tilewright.build.artifact import Artifact, BuildRequest
from tilewright.build.build import build
from tilewright.emulator.counters.groups import access_sizes
from tilewright.emulator.counters.mix import LineTraffic
from tilewright.emulator.lower.compile import compile_kernel, parse
from tilewright.emulator.machine.addresses import OFFSET_BITS
from tilewright.emulator.machine.chunk import Geometry
from tilewright.emulator.machine.global_memory import Buffer
from tilewright.emulator.options import EmulatorOptions
from tilewright.emulator.run import Emulation, emulate
from tilewright.settings import Settings


@dataclass(frozen=True)
class Counts:
    """Counters by mark: the text of a comment at the end of a source line."""

    emulation: Emulation
    marks: dict[str, int]

    def __getitem__(self, mark: str) -> LineTraffic:
        assert self.emulation.counters is not None
        return self.emulation.counters.lines.get(self.marks[mark], LineTraffic())


@cache
def built(source: str, arch: str = "sm_80") -> Artifact:
    artifact = build(BuildRequest(source, "k.cu", arch, "k"), Settings.from_environment())
    assert isinstance(artifact, Artifact), artifact
    return artifact


def run(source: str, sizes: tuple[int, ...], scalars: tuple[int, ...] = (), grid=(1, 1, 1), block=(32, 1, 1)) -> Counts:
    """``k(pointers…, ints…)``; ``sizes``: bytes of each pointer's buffer."""
    parsed = parse(built(source).ptx, built(source).kernel)
    kernel = compile_kernel(parsed, 0)
    geometry = Geometry(grid, block, (1, 1, 1), kernel.layout.smem_bytes, 0)
    buffers = [Buffer(f"p{i}", np.zeros(size, np.uint8)) for i, size in enumerate(sizes)]
    params = b"".join(np.int64((i + 1) << OFFSET_BITS).tobytes() for i in range(len(sizes)))
    params += b"".join(np.int32(value).tobytes() for value in scalars)
    done = emulate(kernel, geometry, buffers, params.ljust(parsed.param_bytes, b"\0"), EmulatorOptions(counters=True))
    assert done.error is None, done
    assert not done.hazards, done
    marks = {line.split("// ")[1]: n for n, line in enumerate(source.splitlines(), 1) if "// " in line}
    return Counts(done, marks)


# -- global memory -----------------------------------------------------------------------------------------

COPY = """
extern "C" __global__ void k(const TYPE *in, TYPE *out, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    LEAVE
    TYPE x = in[i * stride];  // read
    asm volatile("" ::: "memory");
    out[i] = x;  // write
}
"""
WARPS = 8


def copy_source(type_: str, leave: str = "") -> str:
    return COPY.replace("TYPE", type_).replace("LEAVE", leave)


@pytest.mark.parametrize(
    ("type_", "stride", "sectors", "ideal"),
    [
        ("float", 1, 4, 4),
        ("float", 2, 8, 4),
        ("float", 64, 32, 4),  # a column of a row-major matrix
        ("float4", 1, 16, 16),
        ("float4", 2, 32, 16),
        ("double", 1, 8, 8),
        ("char", 1, 1, 1),
        ("float", 0, 1, 1),  # one value for all
    ],
)
def test_sectors_per_request(type_: str, stride: int, sectors: int, ideal: int) -> None:
    item = {"float": 4, "float4": 16, "double": 8, "char": 1}[type_]
    sizes = (256 * item * max(stride, 1), 256 * item)
    counts = run(copy_source(type_), sizes, (stride,), (2, 1, 1), (128, 1, 1))
    read, write = counts["read"], counts["write"]
    assert (read.requests, read.sectors, read.ideal_sectors) == (WARPS, WARPS * sectors, WARPS * ideal)
    assert (write.requests, write.sectors) == (WARPS, write.ideal_sectors)
    total = counts.emulation.counters
    assert total is not None
    assert (total.global_bytes_read, total.global_bytes_written, total.shared_bytes) == (256 * item, 256 * item, 0)
    assert counts.emulation.blocks == 2


def test_threads_that_leave_count_nothing() -> None:
    counts = run(copy_source("float", "if (i >= 40) return;"), (1024, 1024), (1,), block=(128, 1, 1))
    assert (counts["read"].requests, counts["read"].sectors, counts["read"].bytes) == (2, 4 + 1, 160)


def test_constants_and_parameters_do_not_count() -> None:
    source = """
    __constant__ float table[64] = {1.0f};
    extern "C" __global__ void k(float *out, int n) {
        out[threadIdx.x] = table[(threadIdx.x + n) & 63];  // line
    }
    """
    counts = run(source, (128,), (3,))
    total = counts.emulation.counters
    assert total is not None
    assert (total.global_bytes_read, total.global_bytes_written) == (0, 128)
    assert counts["line"].requests == 1


# -- shared memory -----------------------------------------------------------------------------------------

TRANSPOSE = """
extern "C" __global__ void k(const float *in, float *out) {
    __shared__ float tile[32][PITCH];
    tile[threadIdx.y][SWIZZLE] = in[threadIdx.y * 32 + threadIdx.x];  // fill
    __syncthreads();
    float x = tile[threadIdx.x][BACK];  // column
    out[threadIdx.y * 32 + threadIdx.x] = x;  // write
}
"""


def transposed(pitch: int, swizzled: bool) -> Counts:
    source = TRANSPOSE.replace("PITCH", str(pitch))
    there, back = ("threadIdx.x ^ threadIdx.y",) * 2 if swizzled else ("threadIdx.x", "threadIdx.y")
    return run(source.replace("SWIZZLE", there).replace("BACK", back), (4096, 4096), block=(32, 32, 1))


@pytest.mark.parametrize(
    ("pitch", "swizzled", "wavefronts"), [(32, False, 32 * 32), (33, False, 32), (34, False, 64), (32, True, 32)]
)
def test_bank_conflicts_of_transposes(pitch: int, swizzled: bool, wavefronts: int) -> None:
    counts = transposed(pitch, swizzled)
    assert (counts["fill"].wavefronts, counts["fill"].ideal_wavefronts) == (32, 32)
    assert (counts["column"].wavefronts, counts["column"].ideal_wavefronts) == (wavefronts, 32)
    assert counts["column"].bytes == 4096


BYTES = """
extern "C" __global__ void k(const int *in, int *out, int n) {
    __shared__ ALIGN signed char tile[32 * 16 + 16];
    for (int j = 0; j < 16; ++j) tile[j * 32 + threadIdx.x] = (signed char)(in[threadIdx.x] + j);
    tile[512 + threadIdx.x % 16] = 0;
    __syncthreads();
    int sum = n;
    #pragma unroll
    for (int j = 0; j < 16; ++j) sum = sum * 3 + tile[threadIdx.x * 16 + j + FIRST];  // bytes
    out[threadIdx.x] = sum;
}
"""


def bytes_source(align: str, first: int) -> str:
    return BYTES.replace("ALIGN", align).replace("FIRST", str(first))


@pytest.mark.parametrize(
    ("align", "first", "wavefronts"),
    # Lanes are 16 bytes apart, so that words meet in every fourth bank: four wavefronts each, whether of 16 bytes, of 4
    # and 8 and 4 (where the first byte is the fifth), or of 1.
    [("__align__(16)", 0, 4), ("__align__(16)", 4, 3 * 4), ("", 0, 16 * 4)],
)
def test_neighbours_that_the_assembler_merges(align: str, first: int, wavefronts: int) -> None:
    counts = run(bytes_source(align, first), (128, 128), (1,))
    assert counts["bytes"].bytes == 32 * 16
    assert counts["bytes"].wavefronts == wavefronts


@pytest.mark.parametrize("align", ["__align__(16)", ""])
def test_machine_code_has_as_many_shared_loads(align: str) -> None:
    from tilewright.sass.nvdisasm import find_nvdisasm, run_nvdisasm

    settings = Settings.from_environment()
    if find_nvdisasm(settings) is None:
        pytest.skip("no disassembler")
    artifact = built(bytes_source(align, 0))
    loads = [line for line in run_nvdisasm(artifact.cubin, settings).splitlines() if " LDS" in line]
    parsed = parse(artifact.ptx, artifact.kernel)
    sizes = access_sizes(parsed.module, parsed.graph)
    sites = {s for s, i in enumerate(parsed.graph.instructions) if i.opcode == "ld" and "shared" in i.modifiers}
    assert sum(1 for site in sites if sizes[site]) == len(loads)


VECTOR = """
extern "C" __global__ void k(const float4 *in, float *out) {
    __shared__ float4 tile[32 * STEP];
    tile[threadIdx.x * STEP] = in[threadIdx.x];  // fill
    __syncthreads();
    out[threadIdx.x] = tile[(31 - threadIdx.x) * STEP].x;
}
"""


@pytest.mark.parametrize(("step", "wavefronts"), [(1, 4), (2, 8), (8, 32), (9, 4)])
def test_vectors_go_by_quarter_warps(step: int, wavefronts: int) -> None:
    counts = run(VECTOR.replace("STEP", str(step)), (512, 128))
    assert (counts["fill"].wavefronts, counts["fill"].ideal_wavefronts) == (wavefronts, 4)


COPIES = """
#include <cuda_pipeline.h>
extern "C" __global__ void k(const float4 *in, float *out) {
    __shared__ float4 tile[32];
    __pipeline_memcpy_async(&tile[threadIdx.x], &in[threadIdx.x STRIDE], 16, ZEROS);  // copy
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[threadIdx.x] = tile[31 - threadIdx.x].x;
}
"""


@pytest.mark.parametrize(
    ("stride", "zeros", "read", "sectors"),
    [("", "0", 512, 16), ("* 2", "0", 512, 32), ("", "8", 256, 16), ("", "16", 0, 0)],
)
def test_asynchronous_copies(stride: str, zeros: str, read: int, sectors: int) -> None:
    counts = run(COPIES.replace("STRIDE", stride).replace("ZEROS", zeros), (1024, 128))
    copy, total = counts["copy"], counts.emulation.counters
    assert total is not None
    assert (copy.sectors, copy.wavefronts, copy.ideal_wavefronts) == (sectors, 4, 4)
    assert copy.requests == (1 if read else 0)
    assert total.global_bytes_read == read


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


ATOMIC = """
extern "C" __global__ void k(int *out) {
    __shared__ int bins[32 * STEP];
    for (int j = 0; j < STEP; ++j) bins[j * 32 + threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[threadIdx.x * STEP], 1);  // shared
    __syncthreads();
    atomicAdd(&out[threadIdx.x], bins[threadIdx.x * STEP]);  // both
}
"""


@pytest.mark.parametrize(("step", "wavefronts"), [(1, 1), (2, 2)])
def test_atomics_count_as_stores(step: int, wavefronts: int) -> None:
    counts = run(ATOMIC.replace("STEP", str(step)), (128,))
    assert counts["shared"].wavefronts == wavefronts
    assert (counts["both"].requests, counts["both"].sectors) == (1, 4)


# -- arithmetic --------------------------------------------------------------------------------------------

ARITHMETIC = """
extern "C" __global__ void k(const float *in, float *out, int n) {
    float x = in[threadIdx.x];
    for (int j = 0; j < n; ++j) x = fmaf(x, x, 1.0f);
    if (threadIdx.x < 8) x = x * 3.0f + in[0] * 0.0f;
    out[threadIdx.x] = x;
}
"""


def test_flops_of_loops_and_branches() -> None:
    each = {}
    for trips in (10, 13):
        counters = run(ARITHMETIC, (128, 128), (trips,)).emulation.counters
        assert counters is not None
        each[trips] = counters.operations["fp32"]
    assert each[13] - each[10] == 3 * 2 * 32
    assert each[10] >= 10 * 2 * 32 + 8


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
