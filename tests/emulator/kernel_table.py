"""The emulator's test kernels: how each is launched, what it gets, and what it must leave behind.

Every expected value is exact: inputs are small whole numbers, so no order of a sum changes a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

import kernel_references as reference
import numpy as np

from tilewright.build.artifact import BuildRequest
from tilewright.launch.dtypes import DTYPES

KERNELS = Path(__file__).parent / "kernels"
Arrays = Mapping[str, np.ndarray]
Reference = Callable[[Arrays, Mapping[str, int]], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Array:
    """A buffer: whole numbers in [low, high) where it is ``in``, else zeros."""

    dtype: str
    shape: tuple[int, ...]
    role: Literal["in", "out", "inout"] = "in"
    low: int = -4
    high: int = 5


@dataclass(frozen=True)
class MapData:
    """What a tensor map says (tiled mode, element strides 1, no interleave, zero fill). Innermost dimension first.

    Attributes:
        array: the buffer. dims, box: elements. strides_bytes: of the dimensions after the innermost.
        swizzle_bytes: 0, 32, 64 or 128.
    """

    array: str
    dtype: str
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int = 128


@dataclass(frozen=True)
class TestKernel:
    """One launch of one kernel.

    Attributes:
        name: of the case; ``file`` and ``kernel`` can serve several.
        args: the parameters in order, each a name of ``arrays``, ``scalars`` (int32) or ``tensor_maps`` (by value).
        shared_bytes: dynamic.
        reference: (inputs, scalars) → every array that is not ``in``, as it must be after the launch.
        k_steps: trips of the main loop, 0 where there is none.
    """

    # pytest must not take it for a class of tests.
    __test__: ClassVar[bool] = False
    name: str
    file: str
    arch: str
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[str, ...]
    arrays: Mapping[str, Array]
    reference: Reference
    scalars: Mapping[str, int] = field(default_factory=dict)
    tensor_maps: Mapping[str, MapData] = field(default_factory=dict)
    shared_bytes: int = 0
    defines: tuple[tuple[str, str], ...] = ()
    k_steps: int = 0

    @property
    def request(self) -> BuildRequest:
        headers = tuple((p.name, p.read_text()) for p in sorted(KERNELS.glob("*.cuh")))
        text = (KERNELS / self.file).read_text()
        return BuildRequest(text, self.file, self.arch, self.kernel, headers, self.defines)

    def inputs(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Every array as it is before the launch."""
        random = np.random.default_rng(seed)
        made = {}
        for name, array in self.arrays.items():
            numbers = random.integers(array.low, array.high, array.shape)
            dtype = DTYPES[array.dtype].numpy()
            made[name] = numbers.astype(dtype) if array.role == "in" else np.zeros(array.shape, dtype)
        return made

    def expected(self, inputs: Arrays) -> dict[str, np.ndarray]:
        return self.reference(inputs, self.scalars)


def bf16_map(array: str, rows: int, columns: int, box_rows: int, swizzle_bytes: int = 128) -> MapData:
    """Row-major bf16, boxes of 64 columns: 128 bytes."""
    return MapData(array, "bfloat16", (columns, rows), (columns * 2,), (64, box_rows), swizzle_bytes)


def gemm(
    name: str, arch: str, sizes: tuple[int, int, int], tile: tuple[int, int, int], threads: int, args: str,
    dtype: str = "bfloat16", b_is_k_by_n: bool = False, out: str = "float32", **more: object,
) -> TestKernel:  # fmt: skip
    """C[M][N] = A[M][K] times B, [N][K] or [K][N]; a block for each tile of C."""
    (m, n, k), (bm, bn, bk) = sizes, tile
    arrays = {
        "a": Array(dtype, (m, k)),
        "b": Array(dtype, (k, n) if b_is_k_by_n else (n, k)),
        "c": Array(out, (m, n), "out"),
    }
    names = tuple(args.split())
    scalars = {x: y for x, y in (("m", m), ("n", n), ("k", k)) if x in names}
    case = TestKernel(
        name, f"{name}.cu", arch, name, (-(-n // bn), -(-m // bm), 1), (threads, 1, 1), names, arrays,
        reference.matmul_kn if b_is_k_by_n else reference.matmul_nk, scalars, k_steps=-(-k // bk),
    )  # fmt: skip
    return replace(case, **more)  # type: ignore[arg-type]


def ring_tma(name: str, sizes: tuple[int, int, int], swizzle_bytes: int) -> TestKernel:
    m, n, k = sizes
    maps = {
        "a_map": bf16_map("a", m, k, 32, swizzle_bytes),
        "b_map": bf16_map("b", n, k, 16, swizzle_bytes),
    }
    defines = (("SWIZZLE", str(int(swizzle_bytes > 0))),)
    case = gemm(
        "ring_tma", "sm_90a", sizes, (32, 16, 64), 128, "a_map b_map c m n k", tensor_maps=maps, defines=defines
    )
    return replace(case, name=name)


def gemm_wgmma(name: str, element: int, dtype: str, out: str, k: int) -> TestKernel:
    m, n = 128, 64
    bytes_each = 2 if element == 0 else 1
    bk = 128 // bytes_each
    maps = {
        f"{array}_map": MapData(array, dtype, (k, rows), (k * bytes_each,), (bk, 64))
        for array, rows in (("a", m), ("b", n))
    }
    case = gemm(
        "gemm_wgmma", "sm_90a", (m, n, k), (64, 64, bk), 128, "a_map b_map c n k", dtype, out=out, tensor_maps=maps,
        defines=(("ELEMENT", str(element)),), shared_bytes=3 * 16384 + 1024,
    )  # fmt: skip
    return replace(case, name=name)


def specialised(m: int) -> TestKernel:
    n, k = 128, 256
    maps = {
        "a_map": bf16_map("a", m, k, 128),
        "b_map": bf16_map("b", n, k, 64),
        "c_map": bf16_map("c", m, n, 64),
    }
    return gemm(
        "gemm_wgmma_specialised", "sm_90a", (m, n, k), (128, 64, 64), 384, "a_map b_map c_map k", out="bfloat16",
        tensor_maps=maps, shared_bytes=2 * (16384 + 8192) + 16384 + 1024,
    )  # fmt: skip


def small(
    name: str, arch: str, blocks: int, threads: int, args: str, arrays: Mapping[str, Array], check: Reference,
    scalars: Mapping[str, int] | None = None, **more: object,
) -> TestKernel:  # fmt: skip
    case = TestKernel(
        name,
        f"{name}.cu",
        arch,
        name,
        (blocks, 1, 1),
        (threads, 1, 1),
        tuple(args.split()),
        arrays,
        check,
        scalars or {},
    )
    return replace(case, **more)  # type: ignore[arg-type]


def warp_operations(arch: str, elect: bool) -> TestKernel:
    rows = 28 if elect else 26
    arrays = {"in": Array("int32", (64,), low=-50, high=50), "out": Array("int32", (rows, 64), "out")}
    defines = (("ELECT", str(int(elect))),)
    case = small("warp_operations", arch, 1, 64, "in out", arrays, reference.warp_operations, defines=defines)
    return replace(case, name=f"warp_operations_{arch}")


def handed_over(name: str, rows: int) -> TestKernel:
    arrays = {"in": Array("int32", (rows, 32)), "out": Array("int32", (32,), "out")}
    return small(name, "sm_75", 1, 64, "in out rows", arrays, reference.weighted_rows, {"rows": rows}, k_steps=rows)


GEMMS = (
    gemm(
        "ring_cp_async_mbarrier", "sm_80", (32, 32, 80), (16, 16, 16), 64, "a b c n k", "float32", b_is_k_by_n=True
    ),
    gemm("ring_cp_async_groups", "sm_80", (50, 32, 136), (32, 16, 32), 128, "a b c m n k"),
    gemm("ring_bulk", "sm_90a", (64, 32, 96), (32, 16, 16), 128, "a b c n k"),
    ring_tma("ring_tma", (64, 32, 256), 128),
    ring_tma("ring_tma_unswizzled", (64, 32, 256), 0),
    ring_tma("ring_tma_ragged", (50, 24, 200), 128),
    gemm_wgmma("gemm_wgmma", 0, "bfloat16", "float32", 320),
    gemm_wgmma("gemm_wgmma_fp8", 1, "float8_e4m3fn", "float32", 512),
    gemm_wgmma("gemm_wgmma_s8", 2, "int8", "int32", 640),
    gemm(
        "gemm_wgmma_register_a", "sm_90a", (128, 128, 256), (64, 64, 64), 128, "a b_map c n k", b_is_k_by_n=True,
        tensor_maps={"b_map": bf16_map("b", 256, 128, 64)},
    ),
    specialised(m=200),
    gemm(
        "cluster_multicast", "sm_90a", (64, 32, 256), (32, 16, 64), 128, "a_map b_map c n k",
        tensor_maps={"a_map": bf16_map("a", 64, 256, 32), "b_map": bf16_map("b", 32, 256, 8)},
    ),
)  # fmt: skip

OTHERS = (
    small(
        "mma_nvfp4", "sm_120a", 1, 32, "a b scale_a scale_b d",
        {
            "a": Array("uint8", (16, 32), low=0, high=256),
            "b": Array("uint8", (8, 32), low=0, high=256),
            "scale_a": Array("float8_e4m3fn", (16, 4), low=1, high=5),
            "scale_b": Array("float8_e4m3fn", (8, 4), low=1, high=5),
            "d": Array("float32", (16, 8), "out"),
        },
        reference.nvfp4,
    ),
    small(
        "mma_fp8", "sm_89", 1, 32, "a b c k",
        {
            "a": Array("float8_e4m3fn", (16, 96)),
            "b": Array("float8_e5m2", (8, 96)),
            "c": Array("float32", (16, 8), "out"),
        },
        reference.matmul_nk, {"k": 96}, k_steps=3,
    ),
    handed_over("named_barriers", 5),
    handed_over("spin_wait", 4),
    warp_operations("sm_80", elect=False),
    warp_operations("sm_90", elect=True),
    small(
        "atomics", "sm_75", 3, 128, "in histogram weight largest smallest tokens bits n",
        {
            "in": Array("int32", (300,), low=0, high=64),
            "histogram": Array("uint32", (8,), "inout"),
            "weight": Array("float32", (8,), "inout"),
            "largest": Array("int32", (1,), "inout"),
            "smallest": Array("float32", (1,), "inout"),
            "tokens": Array("uint32", (3,), "inout"),
            "bits": Array("uint32", (2,), "inout"),
        },
        reference.atomics, {"n": 300},
    ),
    small(
        "matrix_moves", "sm_90", 1, 32, "in words stored transposed",
        {
            "in": Array("uint16", (16, 16), low=0, high=65536),
            "words": Array("uint32", (11, 32), "out"),
            "stored": Array("uint16", (16, 16), "out"),
            "transposed": Array("uint16", (16, 16), "out"),
        },
        reference.matrix_moves,
    ),
    small(
        "last_block", "sm_80", 6, 64, "in parts out counter n",
        {
            "in": Array("float32", (1000,)),
            "parts": Array("float32", (6,), "out"),
            "out": Array("float32", (1,), "out"),
            "counter": Array("uint32", (1,), "inout"),
        },
        reference.last_block, {"n": 1000},
    ),
    small(
        "local_arrays", "sm_80", 2, 64, "in out",
        {"in": Array("int32", (128, 16), low=-100, high=100), "out": Array("int32", (128, 16), "out")},
        reference.sorted_rows,
    ),
    small(
        "tables", "sm_80", 2, 64, "in out count",
        {
            "in": Array("int32", (128,), low=0, high=60),
            "out": Array("float32", (128,), "out"),
            "count": Array("uint32", (1,), "inout"),
        },
        reference.tables,
    ),
    small(
        "generic_pointers", "sm_80", 2, 64, "in out",
        {"in": Array("int32", (128, 4)), "out": Array("int32", (128,), "out")},
        reference.generic_pointers,
    ),
    small(
        "print_and_assert", "sm_80", 1, 32, "in out",
        {"in": Array("int32", (32,)), "out": Array("int32", (32,), "out")},
        reference.doubled,
    ),
)  # fmt: skip

TABLE: tuple[TestKernel, ...] = GEMMS + OTHERS
BY_NAME: Mapping[str, TestKernel] = {k.name: k for k in TABLE}
