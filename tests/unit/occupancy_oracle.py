"""NVIDIA's own occupancy calculator (cuda_occupancy.h) as an oracle: compiled as device code, run by the emulator.

The header takes the limits of a device as input. They stand here, typed from the CUDA Programming Guide (Compute
Capabilities, Tables 30 and 31), and are not read from Tilewright's tables: so the oracle shares nothing with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tilewright.arch.arch import Arch
from tilewright.arch.occupancy import occupancy, preferred_carveout
from tilewright.build import nvrtc
from tilewright.emulator.executor import EmulatorExecutor
from tilewright.emulator.options import EmulatorOptions
from tilewright.launch.bind import BoundArray, BoundFill, BoundLaunch, BoundScalar
from tilewright.launch.dtypes import DTYPES
from tilewright.launch.executor import Program
from tilewright.launch.spec import Role

KIB = 1024
# capability, threads per SM, shared KiB per SM, shared KiB per block with opt-in, KiB reserved per block. Everywhere:
# 1024 threads per block, 65,536 registers per block and SM, warps of 32, 48 KiB without opt-in.
DEVICES = {
    "sm_75": (7, 5, 1024, 64, 64, 0),
    "sm_80": (8, 0, 2048, 164, 163, 1),
    "sm_86": (8, 6, 1536, 100, 99, 1),
    "sm_87": (8, 7, 1536, 164, 163, 1),
    "sm_89": (8, 9, 1536, 100, 99, 1),
    "sm_90a": (9, 0, 2048, 228, 227, 1),
    "sm_100a": (10, 0, 2048, 228, 227, 1),
    "sm_103a": (10, 3, 2048, 228, 227, 1),
    "sm_110a": (11, 0, 1536, 228, 227, 1),
    "sm_120a": (12, 0, 1536, 100, 99, 1),
    "sm_121a": (12, 1, 1536, 100, 99, 1),
}
# The header includes these three of the host's.
STUBS = {
    "stddef.h": "",  # size_t is built into device code
    "limits.h": "#define INT_MAX 2147483647\n",
    "string.h": "",  # memcpy is built into device code
}
SOURCE = """
#include "cuda_occupancy.h"
extern "C" __global__ void ask(const int *device, const int *in, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    cudaOccDeviceProp p;
    p.computeMajor = device[0];
    p.computeMinor = device[1];
    p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiprocessor = device[2];
    p.regsPerBlock = 65536;
    p.regsPerMultiprocessor = 65536;
    p.warpSize = 32;
    p.sharedMemPerBlock = 49152;
    p.sharedMemPerMultiprocessor = device[3];
    p.numSms = 100;
    p.sharedMemPerBlockOptin = device[4];
    p.reservedSharedMemPerBlock = device[5];
    cudaOccFuncAttributes f;
    f.maxThreadsPerBlock = 1024;
    f.numRegs = in[n + i];
    f.sharedSizeBytes = in[2 * n + i];
    f.partitionedGCConfig = (cudaOccPartitionedGCConfig)in[7 * n + i];
    f.shmemLimitConfig = in[6 * n + i] ? FUNC_SHMEM_LIMIT_OPTIN : FUNC_SHMEM_LIMIT_DEFAULT;
    f.maxDynamicSharedSizeBytes = in[6 * n + i] ? in[3 * n + i] : 0;
    f.numBlockBarriers = in[5 * n + i];
    cudaOccDeviceState s;
    s.carveoutConfig = in[4 * n + i];
    cudaOccResult r;
    r.activeBlocksPerMultiprocessor = -1;
    int status = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &f, &s, in[i], in[3 * n + i]);
    out[i] = status;
    if (status) return;
    out[n + i] = r.activeBlocksPerMultiprocessor;
    out[2 * n + i] = r.limitingFactors;
    out[3 * n + i] = r.blockLimitSharedMem;
    out[4 * n + i] = r.blockLimitRegs;
    out[5 * n + i] = r.blockLimitWarps;
    out[6 * n + i] = r.blockLimitBlocks;
    out[7 * n + i] = r.blockLimitBarriers;
    out[8 * n + i] = r.allocatedRegistersPerBlock;
    out[9 * n + i] = (int)r.allocatedSharedMemPerBlock;
}
"""
INPUTS = ("threads", "registers", "static_bytes", "dynamic_bytes", "carveout", "barriers", "opted_in", "partitioned")
OUTPUTS = (
    *("status", "blocks", "factors", "shared", "registers", "warps", "most_blocks", "barriers"),
    *("registers_per_block", "smem_per_block_bytes"),
)
ROLES: tuple[Role, ...] = ("in", "in", "out")
FACTORS = {"warps": 1, "registers": 2, "shared": 4, "blocks": 8, "barriers": 16}
DEFAULT_CARVEOUT = -1


@dataclass(frozen=True)
class Configurations:
    """Columns of ``INPUTS``, int32, of one length. ``carveout``: percent, or -1 for no wish."""

    columns: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.columns["threads"])


def draw(name: str, count: int, rng: np.random.Generator) -> Configurations:
    """Random launches of one architecture: everywhere in the ranges, at their ends, and a byte beside each edge."""
    optin = DEVICES[name][4] * KIB
    most, reserved = DEVICES[name][3] * KIB, DEVICES[name][5] * KIB
    few = rng.random(count) < 0.5  # launches of which many fit
    threads = np.where(few, rng.integers(1, 257, count), rng.integers(1, 1025, count))
    threads = np.where(rng.random(count) < 0.3, -(-threads // 32) * 32, threads)
    threads = np.where(rng.random(count) < 0.01, rng.integers(1025, 1200, count), threads)
    registers = np.where(few, rng.integers(0, 73, count), rng.integers(0, 256, count))
    # 256 is the header's own exception: test_occupancy_oracle tells of it.
    registers = np.where(rng.random(count) < 0.01, rng.integers(257, 300, count), registers)
    total = np.where(few, rng.integers(0, 12 * KIB, count), rng.integers(0, optin + 4 * KIB, count))
    edges = most // rng.integers(1, 33, count) - reserved + rng.integers(-130, 131, count)
    total = np.where(rng.random(count) < 0.3, np.maximum(edges, 0), total)
    total = np.where(rng.random(count) < 0.05, rng.choice([0, 1, 49152, 49153, optin, optin + 1], count), total)
    static = np.minimum((total * rng.choice([0.0, 0.0, 0.3, 1.0], count)).astype(np.int64), total)
    carveout = rng.integers(0, 101, count)
    carveout = np.where(rng.random(count) < 0.4, rng.choice([DEFAULT_CARVEOUT, 0, 50, 100], count), carveout)
    barriers = np.where(rng.random(count) < 0.6, rng.integers(0, 2, count), rng.integers(0, 17, count))
    columns = {
        "threads": threads,
        "registers": registers,
        "static_bytes": static,
        "dynamic_bytes": total - static,
        "carveout": carveout,
        "barriers": barriers,
        "opted_in": rng.random(count) < 0.8,
        "partitioned": rng.integers(0, 3, count),  # on, off, forced: no architecture since Volta knows it
    }
    return Configurations({key: np.ascontiguousarray(column, dtype=np.int32) for key, column in columns.items()})


def ask(name: str, asked: Configurations) -> dict[str, np.ndarray]:
    """What the header says: a column of int32 for each of ``OUTPUTS``."""
    n = len(asked)
    i32 = DTYPES["int32"]
    device = DEVICES[name]
    arrays = {
        "device": np.array([*device[:3], *(kib * KIB for kib in device[3:])], np.int32),
        "in": np.concatenate([asked.columns[key] for key in INPUTS]),
        "out": np.full(len(OUTPUTS) * n, -1, np.int32),
    }
    arguments = [
        BoundArray(
            key,
            i32,
            array.shape,
            (1,),
            array.size,
            "out" if key == "out" else "in",
            BoundFill(""),
            is_written=key == "out",
        )
        for key, array in arrays.items()
    ]
    launch = BoundLaunch((-(-n // 128), 1, 1), (128, 1, 1), 0, (*arguments, BoundScalar("n", i32, n)), {})
    executor = EmulatorExecutor("sm_80", EmulatorOptions(checks=False, chunk_threads=65536))
    result = executor.run(_program(), launch, arrays)
    assert result.error is None, result.error
    return dict(zip(OUTPUTS, np.asarray(result.arrays["out"]).reshape(len(OUTPUTS), n), strict=True))


@lru_cache
def _program() -> Program:
    header = nvrtc.include_folders()[0] / "cuda_occupancy.h"
    headers = (("cuda_occupancy.h", header.read_text()), *STUBS.items())
    options = ("--gpu-architecture=sm_80", "--std=c++17")
    compiled = nvrtc.run(nvrtc.Program(SOURCE, "ask.cu", headers, options, "ask"))
    assert compiled.cubin is not None, compiled.log
    return Program(compiled.cubin, compiled.ptx, "ask", "sm_80")


def differences(arch: Arch, asked: Configurations, said: dict[str, np.ndarray]) -> Iterator[str]:
    """The launches in which Tilewright's answer, in any of its parts, is not the header's."""
    rows = zip(*(asked.columns[key].tolist() for key in INPUTS), strict=True)
    answers = zip(*(said[key].tolist() for key in OUTPUTS), strict=True)
    for row, answer in zip(rows, answers, strict=True):
        launch, told = dict(zip(INPUTS, row, strict=True)), dict(zip(OUTPUTS, answer, strict=True))
        wrong = _difference(arch, launch, told)
        if wrong:
            yield f"{arch.name} {launch}: {wrong}"


def _difference(arch: Arch, launch: dict[str, int], told: dict[str, int]) -> str:
    if told["status"]:
        return f"the header refuses it: status {told['status']}"
    percent = launch["carveout"]
    own = occupancy(
        arch,
        launch["threads"],
        launch["registers"],
        launch["static_bytes"] + launch["dynamic_bytes"],
        carveout_bytes=None if percent == DEFAULT_CARVEOUT else preferred_carveout(arch, percent),
        barriers=launch["barriers"],
        opted_in=bool(launch["opted_in"]),
    )
    unlimited = 2**31 - 1
    limits = {key: told[key] for key in ("shared", "registers", "warps", "barriers")} | {"blocks": told["most_blocks"]}
    # The header looks for factors before it counts barriers, and leaves them standing where barriers allow fewer.
    before = min(blocks for key, blocks in own.limits.items() if key != "barriers")
    factors = {key for key, blocks in own.limits.items() if key != "barriers" and blocks == before}
    mine = {
        "blocks": own.blocks_per_sm,
        "limits": own.limits,
        "factors": factors | ({"barriers"} if own.limits.get("barriers") == own.blocks_per_sm else set()),
        "registers_per_block": own.registers_per_block,
        "smem_per_block_bytes": own.smem_per_block_bytes,
    }
    theirs = {
        "blocks": told["blocks"],
        "limits": {key: blocks for key, blocks in limits.items() if blocks != unlimited},
        "factors": {key for key, bit in FACTORS.items() if told["factors"] & bit},
        "registers_per_block": told["registers_per_block"],
        "smem_per_block_bytes": told["smem_per_block_bytes"],
    }
    wrong = [f"{key} {mine[key]}, the header: {theirs[key]}" for key in mine if mine[key] != theirs[key]]
    return "; ".join(wrong)
