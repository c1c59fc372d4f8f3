"""Skeletons without a compiler: what is refused and why, what stands in the text, and that the sidecars fit."""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.arch.arch import known_archs, load_arch
from tilewright.errors import EXIT_REFUSED, TilewrightError
from tilewright.launch.bind import bind
from tilewright.launch.sidecar import parse_sidecar
from tilewright.skeleton.attention import AttentionTile, attention_cuda, attention_smem_bytes, why_no_attention
from tilewright.skeleton.conv import ConvShape, conv_cuda, conv_vectors, why_no_conv
from tilewright.skeleton.elementwise import ElementwiseTile, elementwise_cuda, why_no_elementwise
from tilewright.skeleton.gemm import GemmTile, Vectors, gemm_cuda, gemm_smem_bytes, why_no_gemm
from tilewright.skeleton.rows import RowOp, RowTile, rows_cuda, why_no_rows
from tilewright.skeleton.skeleton import Skeleton, finished
from tilewright.skeleton.triton_kernels import (
    TritonSkeleton,
    attention_triton,
    elementwise_triton,
    gemm_triton,
    rows_triton,
)

ARCH = load_arch("sm_90a")
TILE = GemmTile(128, 128, 32, 2, 2, 3, 1, 8)
CUDA = {
    **{f"gemm {dtype}": gemm_cuda(replace(TILE, bk=64), dtype, ARCH) for dtype in ("fp16", "bf16", "int8", "tf32")},
    "gemm fp32": gemm_cuda(TILE, "fp32", ARCH),
    "gemm split": gemm_cuda(replace(TILE, split_k=4), "fp16", ARCH),
    "gemm persistent": gemm_cuda(TILE, "fp16", ARCH, mode="persistent", persistent_blocks=132),
    "conv": conv_cuda(TILE, ConvShape(3, 3, 1, 1), "fp16", ARCH),
    "attention": attention_cuda(AttentionTile(), "bf16", ARCH, causal=True),
    "sum": rows_cuda("sum", RowTile(256), "fp32", ARCH),
    "softmax split": rows_cuda("softmax", RowTile(256, split=4), "fp16", ARCH),
    "layernorm": rows_cuda("layernorm", RowTile(128, 4), "bf16", ARCH),
    "elementwise": elementwise_cuda(ElementwiseTile(blocks_max=1000), "fp16", ARCH, inputs=3),
}
TRITON = {
    "gemm": gemm_triton("fp16"),
    "gemm int8": gemm_triton("int8"),
    "attention": attention_triton("bf16"),
    "softmax": rows_triton("softmax", "fp16"),
    "layernorm": rows_triton("layernorm", "fp32"),
    "sum": rows_triton("sum", "fp32"),
    "elementwise": elementwise_triton("fp16", inputs=3),
}


@pytest.mark.parametrize("made", CUDA.values(), ids=CUDA.keys())
def test_every_parameter_stands_at_the_top(made: Skeleton) -> None:
    assert "$" not in made.text
    for name, value in made.constants.items():
        assert len(re.findall(rf"^constexpr int {name} = {value};", made.text, re.MULTILINE)) == 1, name
    assert max(map(len, made.text.splitlines())) <= 120


@pytest.mark.parametrize("made", CUDA.values(), ids=CUDA.keys())
def test_sidecars_bind_at_every_size(made: Skeleton) -> None:
    passes = [(made.kernel, made.sidecar, made.block_threads)]
    if made.second is not None:
        passes.append((made.second.kernel, made.second.sidecar, made.second.block_threads))
    for kernel, text, threads in passes:
        spec = parse_sidecar(text, Path("skeleton.toml"))
        assert spec.kernel == kernel
        head = re.search(rf"^{kernel}\(([^)]*)\)", made.text, re.MULTILINE)
        assert head is not None
        assert [arg.name for arg in spec.args] == re.findall(r"(\w+)(?:,|$)", head[1])
        for name in spec.sizes:
            launch = bind(spec, name, made.constants)
            assert launch.block == (threads, 1, 1)
            assert launch.shared_bytes == (made.smem_bytes if kernel == made.kernel else 0)


@pytest.mark.parametrize("made", TRITON.values(), ids=TRITON.keys())
def test_triton_texts_are_python_and_their_sidecars_bind(made: TritonSkeleton) -> None:
    defined = {node.name: node for node in ast.parse(made.text).body if isinstance(node, ast.FunctionDef)}
    parameters = [arg.arg for arg in defined[made.kernel].args.args]
    spec = parse_sidecar(made.sidecar, Path("skeleton.toml"))
    assert [arg.name for arg in spec.args] + list(made.constants) == parameters
    for name in spec.sizes:
        bind(spec, name, made.constants)
    assert f"num_warps={made.num_warps}" in made.text


@pytest.mark.parametrize("text", [m.reference for m in (*CUDA.values(), *TRITON.values()) if m.reference])
def test_references_are_python(text: str) -> None:
    assert [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)] == ["reference"]


def test_grid_of_a_product() -> None:
    spec = parse_sidecar(CUDA["gemm split"].sidecar, Path("skeleton.toml"))
    launch = bind(spec, {"M": 129, "N": 256, "K": 8, "BATCH": 3}, CUDA["gemm split"].constants)
    assert launch.grid == (4, 1, 12)


@pytest.mark.parametrize(
    ("change", "dtype", "part"),
    [
        ({"bm": 40}, "fp16", "16 x 16"),
        ({"bn": 48, "warps_n": 1}, "fp16", "96 bytes"),
        ({"bk": 16}, "fp16", "no multiple of 32"),
        ({"bk": 32}, "int8", "no multiple of 64"),
        ({"stages": 1}, "fp16", "stages 2 or more"),
        ({"stages": 40}, "fp16", "bytes of shared memory"),
        ({"bm": 256, "bn": 256}, "fp16", "512 sums"),
        ({"bm": 512, "warps_m": 16, "warps_n": 4}, "fp16", "2048 threads"),
        ({"bn": 256, "warps_m": 1, "warps_n": 1}, "fp32", "whole rows of 1024 bytes"),
    ],
)
def test_products_that_are_refused(change: dict[str, int], dtype: str, part: str) -> None:
    tile = replace(TILE, **change)
    assert part in why_no_gemm(tile, dtype, ARCH)
    with pytest.raises(TilewrightError, match=re.escape(part)) as refused:
        gemm_cuda(tile, dtype, ARCH)
    assert refused.value.code == "skeleton/no_gemm"
    assert refused.value.exit_code == EXIT_REFUSED


def test_other_refusals() -> None:
    turing = load_arch("sm_75")
    assert "sm_80" in why_no_gemm(TILE, "fp16", turing)
    assert "sm_80" in why_no_attention(AttentionTile(), 128, turing)
    assert "pad it" in why_no_attention(AttentionTile(), 80, ARCH)
    assert "bytes of shared memory" in why_no_attention(AttentionTile(128, 128, 8, 3), 256, ARCH)
    assert "sums and scores" in why_no_attention(AttentionTile(128, 128, 4, 1), 128, ARCH)
    assert "K is not split" in why_no_conv(replace(TILE, split_k=2), ConvShape(3, 3), "fp16", ARCH)
    assert "taps" in why_no_conv(TILE, ConvShape(0, 3), "fp16", ARCH)
    assert "one block's or one warp's" in why_no_rows(RowTile(128, 3), ARCH)
    assert "whole warps" in why_no_rows(RowTile(100), ARCH)
    assert "inputs" in why_no_elementwise(ElementwiseTile(), 9, ARCH)
    with pytest.raises(TilewrightError, match="powers of two"):
        gemm_triton("fp16", bn=96)
    with pytest.raises(TilewrightError, match="num_warps"):
        rows_triton("softmax", "fp32", warps=3)
    with pytest.raises(TilewrightError, match="number of blocks"):
        gemm_cuda(TILE, "fp16", ARCH, mode="persistent")


@pytest.mark.parametrize("name", [name for name in known_archs() if name != "sm_75"])
def test_small_tiles_fit_every_other_architecture(name: str) -> None:
    arch = load_arch(name)
    assert why_no_gemm(TILE, "fp16", arch) == ""
    assert why_no_attention(AttentionTile(64, 64, 4, 1), 128, arch) == ""


def test_shared_bytes() -> None:
    assert gemm_smem_bytes(TILE, "fp16") == 3 * (128 + 128) * 32 * 2
    # A short ring is smaller than what the result leaves through: 8 warps' strips of 16 rows.
    assert gemm_smem_bytes(GemmTile(128, 32, 32, 8, 1, 2), "fp16") == 20480
    assert gemm_smem_bytes(GemmTile(256, 128, 32, 16, 1, 2), "fp16") == 16 * 16 * 128 * 2
    assert gemm_smem_bytes(GemmTile(256, 128, 32, 16, 1, 2, split_k=2), "fp16") == 49152
    assert attention_smem_bytes(AttentionTile(128, 64, 8, 2), 128) == (128 + 4 * 64) * 128 * 2


def test_vectors_follow_the_rows() -> None:
    assert Vectors.of(136, 72, "fp16") == Vectors(8, 8, 8)
    assert Vectors.of(68, 70, "fp16") == Vectors(2, 4, 4)
    assert Vectors.of(33, 35, "fp16") == Vectors(1, 1, 1)
    assert Vectors.of(132, 130, "int8") == Vectors(1, 4, 4)  # two bytes are less than the narrowest copy
    assert conv_vectors(3, 10) == Vectors(1, 1, 2)


def test_remarks_of_neighbours_stand_below_one_another() -> None:
    text = "constexpr int A = 1; // a\nconstexpr int BCD = 22;       // b\n\n\n\nint x;  // c\n"
    assert finished(text) == "constexpr int A = 1;     // a\nconstexpr int BCD = 22;  // b\n\nint x;  // c\n"


@pytest.mark.parametrize("op", ["sum", "softmax", "layernorm"])
def test_the_second_pass_over_rows_gets_states_that_can_be(op: RowOp) -> None:
    made = rows_cuda(op, RowTile(128, 1, 2, 4), "fp32", load_arch("sm_86"))
    assert made.second is not None
    states = next(arg for arg in tomllib.loads(made.second.sidecar)["args"] if arg["name"] == "W")
    assert states["fill"] == "uniform(1, 2)"  # zeros would be divided by
    first = next(arg for arg in tomllib.loads(made.sidecar)["args"] if arg["name"] == "W")
    assert first["role"] == "out"
    assert "fill" not in first
