"""The device view: what stays, what is blanked, which headers stand in, and that NVRTC takes the result."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tilewright.build.artifact import Artifact, BuildRequest, CompileFailure
from tilewright.build.build import build
from tilewright.build.nvrtc import toolchain
from tilewright.settings import Settings
from tilewright.source.device_view import PRELUDE, DeviceView, device_view

needs_nvrtc = pytest.mark.skipif(toolchain() is None, reason="NVRTC is not installed")

REAL_FILE = """\
#include <cstdio>
#include <vector>
#include <cublas_v2.h>
#include <torch/extension.h>
#include <cuda_runtime.h>

#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define CHECK(call) do { if ((call) != cudaSuccess) { fprintf(stderr, "bad"); exit(1); } } while (0)
using namespace std;

static cublasHandle_t handle;
std::vector<float> history;
const int TILE = 16;
constexpr int padded(int n) { return n + 1; }

struct Timer {
  std::vector<double> samples;
  void start() { samples.push_back(0.0); }
};

struct Params {
  int rows, cols;
  Params(int r, int c) : rows(r), cols(c) { printf("host"); }
  __device__ int size() const { return rows * cols; }
};

__device__ __forceinline__ float clampf(float x) { return std::min(std::max(x, 0.f), 1.f); }

template <int BLOCK>
__global__ void __launch_bounds__(256) scale(float* out, const float* in, Params p) {
  __shared__ float tile[TILE][padded(TILE)];
  uint32_t i = blockIdx.x * BLOCK + threadIdx.x;
  assert(p.cols > 0);
  tile[threadIdx.x / TILE][threadIdx.x % TILE] = i < p.size() ? in[i] : 0.0f;
  __syncthreads();
  if (i < CEIL_DIV(p.size(), 1)) out[i] = clampf(tile[threadIdx.x / TILE][threadIdx.x % TILE]);
}

void launch(float* out, const float* in, int n) {
  Params p(1, n);
  scale<256><<<CEIL_DIV(n, 256), 256>>>(out, in, p);
  CHECK(cudaDeviceSynchronize());
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch); }

int main(int argc, char** argv) {
  launch(nullptr, nullptr, argc);
  return 0;
}
"""


def compiled(view: DeviceView, kernel: str, folder: Path) -> Artifact | CompileFailure:
    request = BuildRequest(view.text, "real.cu", "sm_86", kernel, view.headers)
    return build(request, Settings(folder / "cache"), use_cache=False)


def same_shape(text: str, view: DeviceView) -> bool:
    """Every byte is where it was, or is a space now."""
    old, new = text.encode(), view.text.encode()
    return len(old) == len(new) and all(a == b or (b == 0x20 and a != 0x0A) for a, b in zip(old, new, strict=True))


def kept(text: str, *needles: str, **more: object) -> list[bool]:
    view = device_view(text, **more)  # type: ignore[arg-type]
    assert same_shape(text, view)
    return [needle in view.text for needle in needles]


def test_a_real_file_keeps_its_shape_and_loses_its_host_code() -> None:
    view = device_view(REAL_FILE)
    assert same_shape(REAL_FILE, view)
    for word in ("scale", "clampf", "padded", "TILE = 16", "#define CHECK", "int size() const", "int rows, cols;"):
        assert word in view.text, word
    for word in ("launch(", "main", "PYBIND11_MODULE", "cublasHandle_t", "history", "Timer", 'printf("host")'):
        assert word not in view.text, word
    reasons = {why for _, _, why in view.blanked}
    assert {"host function main", "host function launch", "host variable handle", "host type Timer"} <= reasons
    first = REAL_FILE[: REAL_FILE.index("int main")].count("\n") + 1
    assert (first, first + 3, "host function main") in view.blanked


@needs_nvrtc
def test_nvrtc_takes_the_view_and_not_the_file(tmp_path: Path) -> None:
    view = device_view(REAL_FILE)
    assert isinstance(compiled(view, "scale<256>", tmp_path), Artifact)
    raw = DeviceView(REAL_FILE, view.headers, (), ())
    assert isinstance(compiled(raw, "scale<256>", tmp_path), CompileFailure), "host code would not compile"
    bare = DeviceView(view.text, (), (), ())
    assert isinstance(compiled(bare, "scale<256>", tmp_path), CompileFailure), "nor would missing headers"


@needs_nvrtc
def test_an_error_has_the_line_of_the_users_file(tmp_path: Path) -> None:
    text = REAL_FILE.replace("__syncthreads();", "__syncthreads(); oops();")
    outcome = compiled(device_view(text), "scale<256>", tmp_path)
    assert isinstance(outcome, CompileFailure)
    assert outcome.line == text[: text.index("oops")].count("\n") + 1
    assert outcome.file == "real.cu"


@pytest.mark.parametrize(
    "device",
    [
        "__global__ void k(int* a) { *a = 1; }",
        "static __device__ inline int k(int a) { return a; }",
        'extern "C" __global__ void __launch_bounds__(128) k(int* a) { *a = 1; }',
        "template <typename T, int N = (3 > 2)> __global__ void k(T* a) { *a = N; }",
        "#define KERNEL __global__ void\nKERNEL k(int* a) { *a = 1; }",
        "#define DEV __device__\n#define INLINE DEV inline\nINLINE int k(int a) { return a; }",
        "#define MAKE(T) __global__ void k(T* a) { *a = 1; }\nMAKE(int)",
        "#define BOUNDS(n) __launch_bounds__(n)\nBOUNDS(64)\n__global__ void k(int* a) { *a = 1; }",
        "__host__ __device__ int k(int a) { return a; }",
        "__device__ int k[4];",
        "__constant__ float k;",
        "extern __shared__ __align__(16) char k[];",
        "__global__ void k(int* a) {\n#pragma unroll\n  for (;;)\n#pragma unroll\n    for (;;) a[i] = 1; }",
        "struct k { __device__ int f() { return 1; } };",
        "template __global__ void k<3>(int*);",
    ],
)
@pytest.mark.parametrize(
    "around",
    ["{}", "namespace a {{ namespace {{\n{}\n}} }}", 'extern "C" {{\n{}\n}}', "void h() {{}}\n{}\nint main() {{}}"],
)
def test_device_code_is_never_dropped(device: str, around: str) -> None:
    text = around.format(device)
    assert kept(text, device) == [True]


@pytest.mark.parametrize(
    "host",
    [
        "void h(int a) { k<<<1, 1>>>(a); }",
        "template <typename T> static inline void h(T a) { }",
        "int h();",
        "__host__ int h() { return 1; }",
        'std::string h = "x";',
        'int h = atoi("3");',
        'TORCH_LIBRARY(h, m) { m.def("h"); }',
        "REGISTER_OP(h);",
        "struct h { std::vector<int> v; };",
        "using h = nlohmann::json;",
        "class h { pid_t pid; };",
        "using namespace h::inner;",
        "std::ostream& operator<<(std::ostream& h, int a) { return h; }",
        "template void h<float>(float*);",
    ],
)
def test_host_code_goes(host: str) -> None:
    text = f"{host}\n__global__ void k(int* a) {{ *a = 1; }}"
    assert kept(text, host, "__global__ void k(int* a) { *a = 1; }") == [False, True]


@pytest.mark.parametrize(
    "shared",
    [
        "#define N 4",
        "constexpr int N = 4;",
        "static const int N = 4;",
        "enum { N = 4 };",
        "typedef int N;",
        "using N = int;",
        "struct N { int x; };",
        "constexpr int N(int a) { return a; }",
        "template <class T> struct N { static constexpr int value = 4; };",
        "#define CONST static constexpr\nCONST int N = 4;",
        "namespace inner { constexpr int N = 4; }",
    ],
)
def test_what_kernels_share_with_the_host_stays(shared: str) -> None:
    """Also where only a launch's template argument names it."""
    assert kept(f"{shared}\n__global__ void k(int* a) {{ *a = 1; }}", shared) == [True]


def test_mentions_are_followed_through_types_and_macros() -> None:
    text = (
        "typedef foreign::real Real;\nstruct Pair { Real x; };\n#define FIRST(p) ((Pair*)p)->x\n"
        "typedef foreign::other Unused;\n__global__ void k(void* a) { FIRST(a) = 1; }"
    )
    assert kept(text, "typedef foreign::real Real;", "struct Pair { Real x; };", "Unused") == [True, True, False]
    assert kept(text, "Unused", keep=("k<Unused>",)) == [True]


def test_what_leans_on_host_types_goes_with_them() -> None:
    text = (
        "struct Log { std::string s; };\nusing Alias = Log;\nconstexpr int n = sizeof(Alias);\n__global__ void k() {}"
    )
    assert kept(text, "struct Log", "using Alias", "constexpr int n") == [False, False, False]


def test_members_of_the_host_go_and_the_layout_stays() -> None:
    text = (
        'struct A { int x; A(int y) : x(y) { puts(""); } std::string name() const; __device__ int f() { return x; } };'
    )
    view = device_view(text)
    assert "puts" not in view.text
    assert "std::string" not in view.text
    assert "int x;" in view.text
    virtual = "struct A { virtual void g() { } int x; };\n__global__ void k(A a) {}"
    assert device_view(virtual).text == virtual, "a virtual function is part of the layout"


def test_directives_inside_host_code_stay() -> None:
    text = (
        "void h() {\n#ifdef DEBUG\n  log();\n#define LIMIT 4\n#endif\n#pragma omp parallel\n}\n__global__ void k() {}"
    )
    view = device_view(text)
    assert same_shape(text, view)
    for directive in ("#ifdef DEBUG", "#define LIMIT 4", "#endif"):
        assert directive in view.text
    assert "omp" not in view.text
    assert "log" not in view.text


def test_offsets_are_bytes_and_line_ends_stay() -> None:
    text = "// größer – 表\r\nvoid h() { /* é */ }\r\n__global__ void k() {} // ü\r\n"
    view = device_view(text)
    assert same_shape(text, view)
    assert "größer – 表" in view.text
    assert view.text.count("\n") == 3


def test_broken_text_is_left_for_the_compiler() -> None:
    text = "__global__ void k( { if (\nvoid h() {"
    assert device_view(text).text == text
    assert device_view("").text == ""


# --- headers ---


def names(view: DeviceView) -> dict[str, str]:
    return dict(view.headers)


def test_headers_of_the_toolkit_are_left_to_the_compiler() -> None:
    text = "".join(
        f"#include <{name}>\n"
        for name in (
            "mma.h",
            "cuda_fp16.h",
            "cuda_pipeline.h",
            "cooperative_groups.h",
            "cuda/barrier",
            "cuda_runtime.h",
        )
    )
    assert list(names(device_view(text))) == [PRELUDE]


def test_missing_headers_become_stubs() -> None:
    view = device_view('#include <torch/types.h>\n#include "nowhere.h"\n#include <cstdint>\n#include <thrust/sort.h>\n')
    assert set(view.stubbed) == {"torch/types.h", "nowhere.h", "cstdint", "thrust/sort.h"}
    assert names(view)["nowhere.h"] == ""


def test_thrust_stays_where_device_code_uses_it() -> None:
    text = "#include <thrust/swap.h>\n__device__ void f(int& a, int& b) { thrust::swap(a, b); }"
    assert device_view(text).stubbed == ()


def test_the_users_headers_come_along(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "include" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "near.h").write_text("#pragma once\n#include <deep/far.h>\nvoid host() { }\n#define NEAR 1\n")
    (tmp_path / "include" / "deep" / "far.h").write_text(
        '#include "near.h"\n#include <iostream>\n__device__ int far() { return 1; }\n'
    )
    text = '#include "near.h"\n__global__ void k(int* a) { *a = far() + NEAR; }\n'
    view = device_view(text, tmp_path / "src" / "k.cu", include=(tmp_path / "include",))
    headers = names(view)
    assert list(headers) == [PRELUDE, "near.h", "deep/far.h", "iostream"]
    assert "void host" not in headers["near.h"]
    assert headers["near.h"].count("\n") == 4
    assert "__device__ int far()" in headers["deep/far.h"]
    assert view.stubbed == ("iostream",)
    assert str(tmp_path) not in "".join(name + content for name, content in view.headers)


@needs_nvrtc
def test_one_header_under_two_names_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "t.h").write_text("#pragma once\nstruct T { int x; };\n")
    (tmp_path / "common" / "u.h").write_text('#pragma once\n#include "t.h"\n')
    text = '#include "common/t.h"\n#include "common/u.h"\n__global__ void k(T* t) { t->x = 1; }\n'
    view = device_view(text, tmp_path / "k.cu")
    assert {"common/t.h", "common/u.h", "t.h"} <= set(names(view))
    assert isinstance(compiled(view, "k", tmp_path), Artifact)


def test_a_header_in_the_middle_of_a_function_is_left_alone(tmp_path: Path) -> None:
    body = "for (int i = 0; i < 4; ++i) { a[i] = i; }\nlog(a) { }\n"
    (tmp_path / "body.inc").write_text(body)
    view = device_view('__global__ void k(int* a) {\n#include "body.inc"\n}\n', tmp_path / "k.cu")
    assert names(view)["body.inc"] == body


def test_headers_that_include_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text('#pragma once\n#include "b.h"\n')
    (tmp_path / "b.h").write_text('#pragma once\n#include "a.h"\n')
    assert set(names(device_view('#include "a.h"\n', tmp_path / "k.cu"))) == {PRELUDE, "a.h", "b.h"}


# --- the prelude ---

LIBRARY = """\
#include <algorithm>
#include <cfloat>
#include <climits>
#include <cmath>
#include <limits>
#include <type_traits>
#include <cassert>
#include <cstdio>
template <typename T>
__global__ void uses(T* a, int* n, uint64_t* w, ushort* s) {
  static_assert(std::is_same<T, float>::value && std::is_integral_v<const int> && !std::is_integral_v<T>);
  static_assert(sizeof(int8_t) == 1 && sizeof(uint16_t) == 2 && sizeof(int64_t) == 8 && sizeof(uintptr_t) == 8);
  static_assert(std::numeric_limits<int>::max() == INT_MAX && std::numeric_limits<T>::max() == FLT_MAX);
  static_assert(std::numeric_limits<unsigned char>::max() == 255 && std::numeric_limits<T>::lowest() == -FLT_MAX);
  std::conditional_t<true, uint, float> u = 3u;
  std::swap(n[0], n[1]);
  n[2] = std::min(n[0], INT_MAX) + std::max(n[1], 3) + (int)u;
  a[0] = a[1] == INFINITY || isnan(a[2]) ? -FLT_MAX : std::exp(a[0]) + std::fabs(a[1]) + (float)M_PI;
  a[3] = std::numeric_limits<float>::infinity();
  s[0] = USHRT_MAX;
  w[0] = UINT64_MAX;
  assert(n[0] > 0);
  if (n[0] < 0) printf("%d", n[0]);
}
"""


@needs_nvrtc
def test_the_library_that_device_code_expects(tmp_path: Path) -> None:
    artifact = compiled(device_view(LIBRARY), "uses<float>", tmp_path)
    assert isinstance(artifact, Artifact), artifact
    assert "f64" not in re.sub(r"%\w+", "", artifact.ptx), "float arguments stay float"
    wrong = LIBRARY.replace("max() == 255", "max() == 254")
    assert isinstance(compiled(device_view(wrong), "uses<float>", tmp_path), CompileFailure)


@needs_nvrtc
@pytest.mark.parametrize("header", ["cuda/std/cstdint", "cooperative_groups.h", "cuda.h"])
def test_the_prelude_agrees_with_cudas_headers(header: str, tmp_path: Path) -> None:
    """Same types under both; only macros may be defined twice."""
    text = f"#include <{header}>\n#include <cstdint>\n__global__ void k(int64_t* a, uint64_t* b) {{ *a = *b; }}"
    artifact = compiled(device_view(text), "k", tmp_path)
    assert isinstance(artifact, Artifact), artifact
    assert "warning" not in artifact.log


@needs_nvrtc
def test_the_prelude_leaves_nothing_in_a_kernel(tmp_path: Path) -> None:
    text = "__global__ void k(int* a) { *a = 1; }"
    with_prelude = compiled(device_view(text), "k", tmp_path)
    without = compiled(DeviceView(text, (), (), ()), "k", tmp_path)
    assert isinstance(with_prelude, Artifact)
    assert isinstance(without, Artifact)
    assert with_prelude.ptx == without.ptx


def test_it_is_fast() -> None:
    text = REAL_FILE * 6  # about 360 lines
    device_view(text)
    best = min(_timed(text) for _ in range(3))
    assert best < 0.03 * 3, "30 ms for 300 lines, with room for a busy machine"


def _timed(text: str) -> float:
    start = time.perf_counter()
    device_view(text)
    return time.perf_counter() - start
