"""Inputs as they come: namespaces, byte order marks, headers that change, cubins with several kernels."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.settings import Settings
from tilewright.workflow import inspect, pipeline, prove

EXAMPLES = Path(__file__).parents[2] / "examples"
SIDECAR = """kernel = "scale"
[build]
include = ["inc"]
[launch]
grid = [1]
block = [32]
[sizes]
default = { N = 64 }
[[args]]
name = "a"
dtype = "float32"
shape = ["N"]
role = "inout"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("include", ["<factor.h>", '"factor.h"'])
def test_a_header_that_changed_is_another_study(tmp_path: Path, settings: Settings, include: str) -> None:
    (tmp_path / "inc").mkdir()
    header = tmp_path / "inc" / "factor.h"
    kernel = tmp_path / "scale.cu"
    kernel.write_text(f"#include {include}\n__global__ void scale(float* a) {{ a[threadIdx.x] *= FACTOR; }}\n")
    kernel.with_suffix(".toml").write_text(SIDECAR)
    header.write_text("#define FACTOR 2\n")
    assert pipeline(kernel, arch="sm_86", settings=settings, run=False).receipt.refusal is not None
    header.write_text("this is not C++\n")
    with pytest.raises(TilewrightError, match="compile_error"):
        pipeline(kernel, arch="sm_86", settings=settings)


def test_a_kernel_in_namespaces(tmp_path: Path, settings: Settings) -> None:
    text = (EXAMPLES / "sgemm_float4.cu").read_text()
    head, body = text.split("#define BM", 1)
    kernel = tmp_path / "inner.cu"
    kernel.write_text(f"{head}namespace a {{ namespace b {{\n#define BM{body}\n}} }}\n")
    for name in (None, "sgemm_float4", "a::b::sgemm_float4"):
        receipt = pipeline(kernel, kernel=name, arch="sm_86", settings=settings, variants=("ldg",), run=False).receipt
        assert [v.status for v in receipt.variants] == ["built"]
    with pytest.raises(TilewrightError, match="unknown_kernel"):
        pipeline(kernel, kernel="b::sgemm_float4", arch="sm_86", settings=settings)


def test_a_byte_order_mark_is_no_code(tmp_path: Path, settings: Settings) -> None:
    kernel = tmp_path / "sgemm_float4.cu"
    kernel.write_bytes(b"\xef\xbb\xbf" + (EXAMPLES / "sgemm_float4.cu").read_bytes())
    assert inspect(kernel, settings=settings).exit_code == 0
    assert pipeline(kernel, arch="sm_86", settings=settings, variants=("ldg",), run=False).exit_code == 0


def test_prove_takes_the_kernel_of_that_name(tmp_path: Path, settings: Settings) -> None:
    from tilewright.build.artifact import Artifact, BuildRequest
    from tilewright.build.build import build

    text = "\n".join(
        f'extern "C" __global__ void {name}(float* a) {{ a[0] = 1; }}' for name in ("gemm", "gemm2")
    )  # two kernels, one name the start of the other
    artifact = build(BuildRequest(text, "two.cu", "sm_86", "gemm"), settings)
    assert isinstance(artifact, Artifact)
    cubin = tmp_path / "two.cubin"
    cubin.write_bytes(artifact.cubin)
    assert {k.name for k in prove(cubin, settings=settings).report.kernels} == {"gemm", "gemm2"}
    assert [k.name for k in prove(cubin, kernel="gemm", settings=settings).report.kernels] == ["gemm"]
    with pytest.raises(TilewrightError, match="unknown_kernel"):
        prove(cubin, kernel="gem", settings=settings)


def test_a_broken_reference_is_found_without_a_gpu(tmp_path: Path, settings: Settings) -> None:
    for path in EXAMPLES.glob("sgemm_float4*"):
        shutil.copy(path, tmp_path)
    (tmp_path / "sgemm_float4_reference.py").write_text("def reference(:\n")
    with pytest.raises(TilewrightError, match="reference"):
        pipeline(tmp_path / "sgemm_float4.cu", arch="sm_86", settings=settings)
