"""Matrix products from skeletons: compiled, run at ragged sizes, each output written once; broken twins are caught."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from skeleton_runs import Done, compiled, edited, run

from tilewright.arch.arch import load_arch
from tilewright.skeleton.conv import ConvShape, conv_cuda, conv_vectors
from tilewright.skeleton.gemm import GemmTile, Vectors, gemm_cuda
from tilewright.skeleton.skeleton import Skeleton

ARCH = "sm_86"
NUMPY = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "fp32": np.float32,
    "int8": np.int8,
}
SMALL = GemmTile(32, 64, 32, 2, 2, 3, 1, 2)
Dims = tuple[int, int, int, int]


def operands(dtype: str, dims: Dims) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Small integers, whose products and sums every type holds exactly; and the product."""
    batch, m, n, k = dims
    rng = np.random.default_rng(m * n * k)
    most = 90 if dtype == "int8" else 3
    a, b = rng.integers(-most, most + 1, (batch, m, k)), rng.integers(-most, most + 1, (batch, k, n))
    c = (a @ b).astype(np.int32 if dtype == "int8" else NUMPY[dtype])
    return {"A": a.astype(NUMPY[dtype]), "B": b.astype(NUMPY[dtype])}, c


def product(skeleton: Skeleton, dtype: str, dims: Dims, attempt: int = 0) -> tuple[Done, bool]:
    """What came out, and whether it is right, bit for bit."""
    inputs, expected = operands(dtype, dims)
    batch, m, n, k = dims
    done = run(skeleton, ARCH, {"M": m, "N": n, "K": k, "BATCH": batch}, inputs, ["C"], attempt)
    right = "C" in done.arrays and bool((done.arrays["C"].reshape(expected.shape) == expected).all())
    return done, right


CASES = [
    ("fp16", SMALL, (2, 65, 72, 104), {}),
    ("fp16", GemmTile(32, 32, 32, 1, 2, 2, 1, 1), (1, 40, 33, 35), {}),  # no row is aligned: element by element
    ("fp16", GemmTile(32, 32, 64, 1, 2, 4, 3, 8), (2, 33, 40, 200), {}),  # the last of three parts of K is short
    ("fp16", GemmTile(32, 32, 32, 1, 2, 2, 4, 8), (1, 20, 40, 40), {}),  # two of four parts are empty
    ("fp16", SMALL, (1, 100, 130, 66), {"mode": "persistent", "persistent_blocks": 5}),
    ("bf16", GemmTile(64, 64, 32, 2, 2, 3, 1, 8), (1, 40, 68, 44), {}),
    ("int8", GemmTile(32, 128, 64, 1, 4, 2, 1, 8), (1, 33, 132, 80), {}),
    ("tf32", GemmTile(32, 32, 16, 1, 2, 3, 1, 8), (1, 40, 36, 44), {}),
    ("fp32", GemmTile(16, 32, 16, 2, 1, 3, 2, 8), (1, 20, 34, 52), {}),
]


@pytest.mark.parametrize(("dtype", "tile", "dims", "more"), CASES)
def test_products(dtype: str, tile: GemmTile, dims: Dims, more: dict[str, object]) -> None:
    skeleton = gemm_cuda(tile, dtype, load_arch(ARCH), vectors=Vectors.of(dims[2], dims[3], dtype), **more)
    assert "warning" not in compiled(skeleton, skeleton.kernel, ARCH).log
    done, right = product(skeleton, dtype, dims, 1)  # one warp after the other, blocks backwards
    assert done.problems == ()
    assert right


def test_no_bank_conflicts_and_no_spills() -> None:
    tile = GemmTile(64, 64, 32, 2, 2, 3, 1, 8)
    skeleton = gemm_cuda(tile, "fp16", load_arch(ARCH))
    done, right = product(skeleton, "fp16", (1, 64, 64, 96))
    assert right
    assert done.conflicts == 0
    assert compiled(skeleton, skeleton.kernel, ARCH).resources.spill_bytes == 0
    flat = edited(skeleton, ("return chunk ^ (row / ROWS_PER_LINE % CHUNKS);", "return chunk;"))
    done, right = product(flat, "fp16", (1, 64, 64, 96))
    assert right, "an order that is the same everywhere changes no value"
    assert done.conflicts > 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_121a"])
def test_other_architectures_compile(arch: str) -> None:
    skeleton = gemm_cuda(GemmTile(32, 32, 32, 1, 1, 2), "fp16", load_arch(arch))
    assert compiled(skeleton, skeleton.kernel, arch).resources.spill_bytes == 0


MUTANTS = [
    ("rows of C", [("    if (row >= M) {\n        return;\n    }\n", "")]),
    ("columns of C", [("if (col + i < N) {", "if (true) {")]),
    ("rows of B", [("row < k_left ? b_cols_left : 0", "b_cols_left")]),
    ("depth of A", [("i < a_rows_left ? k_left - a_chunk * CHUNK : 0", "i < a_rows_left ? CHUNK : 0")]),
    (
        "swizzle of A",
        [("swizzled<A_ROW_BYTES>(row, chunk) * 16);\n    }\n    #pragma", "chunk * 16);\n    }\n    #pragma")],
    ),
    (
        "wait",
        [
            (
                "wait_copies<STAGES - 2>();\n                __syncthreads();",
                "wait_copies<STAGES - 1>();\n                __syncthreads();",
            )
        ],
    ),
    (
        "barrier",
        [("wait_copies<STAGES - 2>();\n                __syncthreads();", "wait_copies<STAGES - 2>();")],
    ),
    (
        "row blocks",
        [
            ("rows = (M + BM - 1) / BM", "rows = M / BM + 1"),
            ("height = min(rows - first, GROUP_M)", "height = GROUP_M"),
        ],
    ),
    ("batch", [("C += (size_t)blockIdx.z * M * N;", "")]),
    ("tiles in K", [("k_tiles = (K + BK - 1) / BK;", "k_tiles = K / BK;")]),
]


@pytest.mark.parametrize(("name", "edits"), MUTANTS, ids=[name for name, _ in MUTANTS])
def test_a_broken_product_is_caught(name: str, edits: list[tuple[str, str]]) -> None:
    dims = (2, 65, 72, 104)
    skeleton = edited(gemm_cuda(SMALL, "fp16", load_arch(ARCH)), *edits)
    done, right = product(skeleton, "fp16", dims, 1)
    assert done.problems or not right


def test_a_grid_that_is_too_small_is_caught() -> None:
    made = gemm_cuda(SMALL, "fp16", load_arch(ARCH))
    short = made.sidecar.replace("ceil_div(M, BM)", "(M // BM)")
    assert short != made.sidecar
    done, right = product(Skeleton(**{**vars(made), "sidecar": short}), "fp16", (1, 65, 72, 40))
    assert "were not written" in " ".join(done.problems)
    assert not right


@pytest.mark.parametrize(
    "edit",
    [
        ("for (int chunk = 1; chunk < SPLIT_K; ++chunk)", "for (int chunk = 1; chunk < SPLIT_K - 1; ++chunk)"),
        ("share = (k_tiles + SPLIT_K - 1) / SPLIT_K", "share = k_tiles / SPLIT_K"),
    ],
)
def test_a_part_of_k_that_is_left_out_is_caught(edit: tuple[str, str]) -> None:
    dims = (1, 33, 40, 140)
    made = gemm_cuda(GemmTile(32, 32, 32, 1, 2, 2, 3, 8), "fp16", load_arch(ARCH), vectors=Vectors.of(40, 140, "fp16"))
    assert product(made, "fp16", dims)[1]
    done, right = product(edited(made, edit), "fp16", dims)
    assert done.problems or not right


def convolved(x: np.ndarray, f: np.ndarray, shape: ConvShape) -> np.ndarray:
    images, h, w, _ = x.shape
    p = (h + 2 * shape.pad - shape.r) // shape.stride + 1
    q = (w + 2 * shape.pad - shape.s) // shape.stride + 1
    padded = np.pad(x, ((0, 0), (shape.pad, shape.pad), (shape.pad, shape.pad), (0, 0)))
    y = np.zeros((images, p, q, f.shape[0]))
    for i in range(shape.r):
        for j in range(shape.s):
            taps = padded[:, i :: shape.stride, j :: shape.stride][:, :p, :q]
            y += taps @ f[:, i, j].T
    return y


def convolution(shape: ConvShape, dims: tuple[int, int, int, int, int], *edits: tuple[str, str]) -> tuple[Done, bool]:
    images, h, w, c, filters = dims
    rng = np.random.default_rng(c)
    x, f = rng.integers(-2, 3, (images, h, w, c)), rng.integers(-2, 3, (filters, shape.r, shape.s, c))
    tile = GemmTile(32, 32, 32, 1, 2, 3, 1, 4)
    skeleton = conv_cuda(tile, shape, "fp16", load_arch(ARCH), vectors=conv_vectors(c, filters))
    expected = convolved(x, f, shape).astype(np.float16)
    sizes = {"NB": images, "H": h, "W": w, "C": c, "KF": filters}
    inputs = {"X": x.astype(np.float16), "F": f.astype(np.float16)}
    done = run(edited(skeleton, *edits), ARCH, sizes, inputs, ["Y"])
    return done, "Y" in done.arrays and bool((done.arrays["Y"].reshape(expected.shape) == expected).all())


@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        (ConvShape(3, 3, 1, 1), (2, 4, 5, 24, 34)),
        (ConvShape(3, 2, 2, 1), (1, 6, 7, 3, 10)),  # channels of no width
    ],
)
def test_convolutions(shape: ConvShape, dims: tuple[int, int, int, int, int]) -> None:
    done, right = convolution(shape, dims)
    assert done.problems == ()
    assert right


@pytest.mark.parametrize(
    "edit",
    [
        ("(unsigned)w < (unsigned)shape.W && ", ""),  # a tap left or right of the image reads its neighbour row
        ("pixel < M ? row : 0x7fff - R", "row"),
        ("const int s = tap % S;", "const int s = tap % R;"),
    ],
)
def test_a_broken_convolution_is_caught(edit: tuple[str, str]) -> None:
    done, right = convolution(ConvShape(3, 2, 1, 1), (2, 4, 5, 24, 34), edit)
    assert done.problems or not right
