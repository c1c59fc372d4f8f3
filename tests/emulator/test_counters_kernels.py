"""Counters of small kernels, against figures worked out by hand; and a twin of each whose figure is another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

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
from tilewright.sass.nvdisasm import find_nvdisasm, run_nvdisasm
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


WORDS = """
extern "C" __global__ void k(const int *in, float *out) {
    __shared__ ALIGN float tile[32 * 16 + 16];
    for (int j = threadIdx.x; j < 528; j += 32) tile[j] = in[threadIdx.x];
    __syncthreads();
    unsigned at = (unsigned)__cvta_generic_to_shared(tile) + threadIdx.x * STEP;
    float x[16];
    LOADS
    float sum = 0;
    for (int j = 0; j < 16; ++j) sum = sum * 3.0f + x[j];
    out[threadIdx.x] = sum;
}
"""


def words_source(
    type_: str = "f32", size: int = 4, align: str = "__align__(16)", first: int = 0, step: int = 64
) -> str:
    """Sixteen scalar loads, one after the other."""
    kind = {"f32": "f", "u16": "h", "s8": "r"}[type_]
    target = {"f32": "x[{}]", "u16": "h{}", "s8": "b{}"}[type_]
    loads = []
    for j in range(16):
        name = target.format(j)
        declared = "" if type_ == "f32" else f"{'short' if type_ == 'u16' else 'int'} {name}; "
        copied = "" if type_ == "f32" else f" x[{j}] = {name};"
        load = f'asm("ld.shared.{type_} %0, [%1+{first + size * j}];" : "={kind}"({name}) : "r"(at));'
        loads.append(declared + load + copied)
    return WORDS.replace("ALIGN", align).replace("STEP", str(step)).replace("LOADS", " ".join(loads) + "  // loads")


# (source, loads as counted, wavefronts, loads in machine code)
MERGED = [
    # Lanes are 64 bytes apart: they meet in two places of 16 bytes, a load of any width takes 16 wavefronts.
    (words_source(), 4, 4 * 16, 4),
    (words_source(align=""), 4, 4 * 16, 4),  # the only array begins at 0, whatever it asks for
    # 12 bytes in front are 4 and 8; ptxas reads 16 of which it wants 12.
    (words_source(first=4), 6, 6 * 16, 5),
    (words_source(step=60), 16, 16, 16),  # not aligned; 15 words apart, no conflicts
    (words_source("u16", 2), 4, 4 * 16, 4),
    (words_source("s8", 1), 16, 16 * 16, 16),
]


@pytest.mark.parametrize(("source", "loads", "wavefronts", "machine"), MERGED)
def test_neighbours_that_the_assembler_merges(source: str, loads: int, wavefronts: int, machine: int) -> None:
    counts = run(source, (128, 128))
    assert counts["loads"].wavefronts == wavefronts


@pytest.mark.parametrize(("source", "loads", "wavefronts", "machine"), MERGED)
def test_machine_code_has_as_many_shared_loads(source: str, loads: int, wavefronts: int, machine: int) -> None:
    artifact = built(source)
    parsed = parse(artifact.ptx, artifact.kernel)
    sizes = access_sizes(parsed.module, parsed.graph)
    sites = {s for s, i in enumerate(parsed.graph.instructions) if i.opcode == "ld" and "shared" in i.modifiers}
    assert sum(1 for site in sites if sizes[site]) == loads
    settings = Settings.from_environment()
    if find_nvdisasm(settings) is None:
        pytest.skip("no disassembler")
    assert sum(" LDS" in line for line in run_nvdisasm(artifact.cubin, settings).splitlines()) == machine


DEVICE = """
__device__ __align__(16) int table[128];
extern "C" __global__ void k(int *out) {
    const int *at = (const int *)__cvta_generic_to_global(&table[threadIdx.x * 4]);
    int a, b;
    asm("ld.global.s32 %0, [%2]; ld.global.s32 %1, [%2+4];" : "=r"(a), "=r"(b) : "l"(at));  // loads
    out[threadIdx.x] = a + 3 * b;
}
"""


def test_accesses_to_global_memory_stay_apart() -> None:
    counts = run(DEVICE, (128,))
    assert (counts["loads"].requests, counts["loads"].sectors, counts["loads"].bytes) == (2, 2 * 16, 256)
    settings = Settings.from_environment()
    if find_nvdisasm(settings) is None:
        pytest.skip("no disassembler")
    assert sum(" LDG" in line for line in run_nvdisasm(built(DEVICE).cubin, settings).splitlines()) == 2


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
