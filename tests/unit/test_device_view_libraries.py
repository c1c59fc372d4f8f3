"""Files that include torch, ATen, c10 or cuBLAS, which are not here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.build.artifact import Artifact
from tilewright.build.nvrtc import toolchain
from tilewright.settings import Settings
from tilewright.workflow.opening import open_file

pytestmark = pytest.mark.skipif(toolchain() is None, reason="no NVRTC")

KERNEL = """\
template <typename scalar_t>
__global__ void scale(const scalar_t* a, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = 2.0f * __half2float(a[i]) + __bfloat162float(__float2bfloat16(1.0f));
}
"""
TORCH = """\
#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_DTYPE(T, type) \\
  if (((T).options().dtype() != (type))) { throw std::runtime_error("values must be " #type); }
torch::Tensor scale_cuda(torch::Tensor a, c10::optional<at::Tensor> bias) {
    CHECK_CUDA(a);
    CHECK_DTYPE(a, torch::kHalf)
    const at::cuda::OptionalCUDAGuard guard(device_of(a));
    auto b = torch::empty({a.size(0)}, a.options().dtype(torch::kFloat));
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(a.scalar_type(), "scale", ([&] { (void)0; }));
    scale<half><<<1, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<half*>(a.data_ptr<at::Half>()), b.data_ptr<float>(), a.size(0));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return b;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &scale_cuda, "scale"); }
TORCH_LIBRARY(my_ops, m) { m.def("scale(Tensor a) -> Tensor"); }
"""
CUBLAS = """\
void check(cublasHandle_t handle, const half* a, float* b, int n) {
    cublasSetStream(handle, 0);
    scale<half><<<1, 256>>>(a, b, n);
}
"""


@pytest.mark.parametrize(
    ("headers", "host"),
    [
        (("cublas_v2.h",), CUBLAS),
        (("torch/extension.h", "torch/types.h", "ATen/cuda/CUDAContext.h", "c10/cuda/CUDAGuard.h", "vector"), TORCH),
    ],
)
def test_they_read_and_compile(tmp_path: Path, headers: tuple[str, ...], host: str) -> None:
    path = tmp_path / "k.cu"
    path.write_text("".join(f"#include <{name}>\n" for name in headers) + KERNEL + host)
    opened = open_file(path.read_bytes(), path, None, None, "sm_86", Settings(tmp_path / "c"), False)
    assert isinstance(opened.baseline, Artifact)
    assert opened.template == ("half",)


def test_headers_near_the_file_are_found(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "include").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "include/own.cuh").write_text("__device__ float twice(float x) { return 2 * x; }\n")
    path = tmp_path / "src/k.cu"
    path.write_text(
        '#include "own.cuh"\n// #include "other.cuh"\n__global__ void k(float* a) { a[0] = twice(a[1]); }\n'
    )
    opened = open_file(path.read_bytes(), path, None, None, "sm_86", Settings(tmp_path / "c"), False)
    assert opened.compiler.include == (tmp_path / "include",)
