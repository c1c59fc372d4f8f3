"""Size sets whose blocks differ: nothing rests on the block of one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from product_sidecars import product_sidecar
from trap_kernels import MATH, gemm

from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.launch.sidecar import parse_sidecar
from tilewright.rewrite import ldg
from tilewright.rewrite.result import RewrittenSource
from tilewright.settings import Settings
from tilewright.workflow.opening import Opened, open_file
from tilewright.workflow.trip_sets import trip_sets
from tilewright.workflow.understanding import understand

_LAUNCH = 'grid = [2, 2, 1]\nblock = [16, "{height}", 1]'


def _opened(tmp_path: Path, *heights: int, height: str | int = "H", more: str = "", text: str = "") -> Opened:
    named = zip(("default", "low"), heights, strict=False)
    sizes = "\n".join(f"{n} = {{ M = 32, N = 32, K = 64, H = {h} }}" for n, h in named)
    path = tmp_path / "k.cu"
    path.write_text(text or gemm())
    spec = parse_sidecar(
        product_sidecar("gemm", _LAUNCH.format(height=height) + more, sizes, fill=""), tmp_path / "k.toml"
    )
    return open_file(path.read_bytes(), path, None, spec, "sm_86", Settings(cache_dir=tmp_path / "cache"), False)


def test_a_block_that_a_size_decides_about_is_not_relied_on(tmp_path: Path) -> None:
    """Not where it differs from set to set, and not where it happens to be the same: another size is another block."""
    assert _opened(tmp_path, 16, 8).block is None
    assert _opened(tmp_path, 16, 16).block is None
    assert _opened(tmp_path, 16).block is None
    assert _opened(tmp_path, 16, height=16).block == (16, 16, 1)
    assert _opened(tmp_path, 16, height="T").block == (16, 16, 1)


BY_ROWS = (
    "for (int r = ty; r < T; r += blockDim.y) for (int q = tx; q < T; q += blockDim.x) "
    "As[r][q] = A[(blockIdx.y * T + r) * K + k0 + q];\n"
    "        for (int r = ty; r < T; r += blockDim.y) Bs[r][tx] = B[(k0 + r) * N + col];"
)
ROWS = gemm(load=BY_ROWS, compute="for (int r = ty; r < T; r += blockDim.y) " + MATH.replace("[ty]", "[r]"))


@pytest.mark.parametrize("height", ["H", 8])
def test_registers_are_not_counted_by_a_block_of_some_sizes(height: str | int, tmp_path: Path) -> None:
    """Two rows a thread wait in two registers: with a block of four rows it would be four."""
    opened = _opened(tmp_path, 8, height=height, text=ROWS)
    kernel = understand(opened.kernel, opened.block)
    assert isinstance(kernel, TiledKernel), kernel
    written = ldg.rewrite(kernel, False, 48 * 1024)
    if height == "H":
        assert isinstance(written, Refusal)
        assert "trip count of a copy loop is not constant" in written.message
    else:
        assert isinstance(written, RewrittenSource)
        assert "float Bs_next[2];" in written.text


def test_bytes_that_a_size_decides_about_are_no_number(tmp_path: Path) -> None:
    """They are the same at these sizes: at others, a variant that is launched with a number has too few."""
    assert _opened(tmp_path, 16, 16, more="\nshared_bytes = 2048").shared_bytes == 2048
    assert _opened(tmp_path, 16, 16, more='\nshared_bytes = "2 * T * T * 4"').shared_bytes == 2048
    assert _opened(tmp_path, 16, 16, more='\nshared_bytes = "1024 + 4 * N"').shared_bytes is None
    assert _opened(tmp_path, 16, more='\nshared_bytes = "1024 + 4 * N"').shared_bytes is None


def test_a_size_of_the_block_is_not_grown_beyond_what_can_be_launched(tmp_path: Path) -> None:
    """Looking for the size that the K-loop runs over tries large values: one that no launch takes is no error."""
    opened = _opened(tmp_path, 16)
    kernel = understand(opened.kernel, (16, 16, 1))
    assert isinstance(kernel, TiledKernel)
    name, sets = trip_sets(kernel, opened.compiler.spec, {}, (3,))
    assert name == "K"
    assert {s["H"] for s in sets.values()} == {16}
