"""The host function of a variant with tensor maps: its text, and what it does with a runtime that only takes notes."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from receipt_samples import with_gpu

from tilewright.errors import TilewrightError
from tilewright.launch.bind import LaunchChange
from tilewright.launch.tensor_maps import FlagArg, TensorMapArg
from tilewright.receipt.record import Launch, from_json
from tilewright.receipt.write import host_name, write_out
from tilewright.rewrite.host_shim import Signature, host_shim
from tilewright.source.parse import make_parser

SIGNATURE = Signature(
    "gemm",
    "lib::gemm<64, 32>",
    (("a", "const float *__restrict__"), ("b", "const float*"), ("c", "float []"), ("M", "int"), ("N", "int"),
     ("K", "const int"), ("alpha", "float")),
    {"BK": 32, "scale": 0.5},
)  # fmt: skip
A_MAP = TensorMapArg("a_map", "a", "float32", ("K", "M"), ("K * 4",), (32, 64))
B_MAP = TensorMapArg("b_map", "b", "uint32", ("N", "ceil_div(K, BK)"), ("N * 4",), (64, 32), "N * 2")
LAUNCH = LaunchChange(65536, tensor_maps=(A_MAP, B_MAP), flags=(FlagArg("use_maps", "encodable(a_map, b_map)"),))

# A kernel by that name, the calls of the runtime as notes on the output, and some launches.
PROGRAM = r"""
#include <cstdio>
#include <cstring>
#include "gemm.launch.cuh"

static CUresult encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                       const cuuint64_t *dims, const cuuint64_t *pitches, const cuuint32_t *box,
                       const cuuint32_t *steps,
                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                       CUtensorMapFloatOOBfill fill) {
    std::printf("encode %d %u at %zu dims %zu %zu pitch %zu box %u %u steps %u %u modes %d %d %d %d\n", (int)type, rank,
                (size_t)address, (size_t)dims[0], (size_t)dims[1], (size_t)pitches[0], box[0], box[1],
                steps[0], steps[1], (int)interleave, (int)swizzle, (int)promotion, (int)fill);
    std::memset(map, 7, sizeof *map);
    return dims[1] == 13 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char *, void **entry, unsigned, unsigned long long,
                                                        cudaDriverEntryPointQueryResult *result) {
    *entry = reinterpret_cast<void *>(&encode);
    *result = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
extern "C" cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute attribute, int value) {
    std::printf("attribute %d %d\n", (int)attribute, value);
    return value > 100000 ? cudaErrorInvalidValue : cudaSuccess;
}
extern "C" cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t bytes,
                                        cudaStream_t stream) {
    std::printf("launch %d grid %u %u block %u bytes %zu stream %zu a %zu K %d map %d %d use %d\n",
                kernel == reinterpret_cast<const void *>(&KERNEL), grid.x, grid.y, block.x, bytes, (size_t)stream,
                *(size_t *)arguments[0], *(int *)arguments[5], ((char *)arguments[7])[0], ((char *)arguments[8])[127],
                *(int *)arguments[9]);
    return cudaSuccess;
}
int main() {
    const float *a = (const float *)4096, *b = (const float *)8192;
    auto call = [&](const float *at, int M, int N, int K) {
        std::printf("= %d\n", (int)gemm_launch(dim3(2, 3), dim3(64), (cudaStream_t)5, at, b, nullptr, M, N, K, 1.0f));
    };
    call(a, 100, 128, 64);
    call(a, 100, 128, 63);
    call(a + 1, 100, 128, 64);
    call(a, 100, 128, 0);
    call(a, 13, 128, 64);
    call(a, 1 << 20, 1 << 20, 1 << 20);
}
"""


def headers() -> Path | None:
    spec = importlib.util.find_spec("nvidia")
    roots = spec.submodule_search_locations if spec is not None else None
    return next((p for root in roots or () for p in Path(root).glob("cu1?/include")), None)


def ran(tmp_path: Path, shim: str) -> list[str]:
    compiler, include = shutil.which("g++") or shutil.which("clang++"), headers()
    if compiler is None or include is None:
        pytest.skip("no g++ or clang++" if compiler is None else "no CUDA headers from the package index")
    parameters = "const float *, const float *, float *, int, int, int, float"
    kernel = f"namespace lib {{ template <int A, int B> void gemm({parameters}) {{}} }}\n"
    program = PROGRAM.replace("KERNEL", "lib::gemm<64, 32>").replace(
        "#include <cstdio>", f"#include <cstdio>\n{kernel}"
    )
    (tmp_path / "gemm.launch.cuh").write_text(shim)
    (tmp_path / "main.cpp").write_text(program)
    flags = ["-std=c++14", "-Wall", "-Wextra", "-Werror", f"-isystem{include}", "main.cpp", "-o", "main"]
    done = subprocess.run([compiler, *flags], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return subprocess.run([tmp_path / "main"], check=True, capture_output=True, text=True).stdout.splitlines()


def test_what_is_encoded_and_launched(tmp_path: Path) -> None:
    lines = ran(tmp_path, host_shim(SIGNATURE, LAUNCH, "tma3"))
    at = [i for i, line in enumerate(lines) if line.startswith("=")]
    whole, odd, shifted, empty, refused, large = (
        "\n".join(lines[i:j]) for i, j in zip([-1, *at[:-1]], at, strict=True) for i in [i + 1]
    )
    assert whole.splitlines() == [
        "encode 7 2 at 4096 dims 64 100 pitch 256 box 32 64 steps 1 1 modes 0 0 2 0",
        "encode 2 2 at 9216 dims 128 2 pitch 512 box 64 32 steps 1 1 modes 0 0 2 0",
        "attribute 8 65536",
        "launch 1 grid 2 3 block 64 bytes 65536 stream 5 a 4096 K 64 map 7 7 use 1",
    ]
    # A pitch, an address, no rows, and the driver's own refusal: the kernel takes its other way.
    for text in (odd, shifted, empty, refused):
        assert text.endswith("use 0"), text
    assert "encode 7" not in odd + shifted + empty
    assert " map 0 " in odd
    assert "pitch 4194304 " in large
    assert all(lines[i] == "= 0" for i in at)


def test_without_a_flag_there_is_no_launch(tmp_path: Path) -> None:
    """The program's own arguments are one fewer then: it is told by the maps."""
    launch = replace(LAUNCH, flags=(FlagArg("use_maps", "encodable(b_map)"),))
    text = host_shim(SIGNATURE, launch, "tma3")
    assert "if (!a_map_is_made) return cudaErrorInvalidValue;" in text
    lines = ran(tmp_path, text)
    assert lines[lines.index("= 0") + 1 :][:2][-1] == "= 1", lines


def test_bytes_that_the_launch_chooses(tmp_path: Path) -> None:
    text = host_shim(SIGNATURE, replace(LAUNCH, shared_bytes=None), "tma3")
    assert "dim3 launch_grid, dim3 launch_block, size_t launch_shared_bytes," in text
    assert text.count("launch_shared_bytes") == 3


@pytest.mark.parametrize("launch", [LAUNCH, replace(LAUNCH, shared_bytes=None), replace(LAUNCH, flags=())])
def test_the_text_is_cuda(launch: LaunchChange) -> None:
    text = host_shim(SIGNATURE, launch, "tma3")
    assert not make_parser().parse(text.encode()).root_node.has_error
    assert max(map(len, text.splitlines())) <= 120
    assert "gemm, variant tma3" in text


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        (("K", "BATCH"), "'BATCH', which is no parameter"),
        (("K", "scale"), "'scale', which is no parameter"),
        (("K", "M ** 2"), "a power"),
        (("K", "sqrt(M)"), "a power"),
    ],
)
def test_what_the_host_function_cannot_know(dims: tuple[str, str], words: str) -> None:
    launch = replace(LAUNCH, tensor_maps=(replace(A_MAP, dims=dims), B_MAP))
    with pytest.raises(TilewrightError, match=words) as caught:
        host_shim(SIGNATURE, launch, "tma3")
    assert caught.value.code == "rewrite/host_shim"


def test_declarations_for_the_receipt() -> None:
    assert A_MAP.declaration == "const CUtensorMap a_map /* a as float32: dims K, M; pitches K * 4 bytes; box 32, 64 */"
    assert "b from element N * 2 as uint32" in B_MAP.declaration
    assert LAUNCH.flags[0].declaration == "int use_maps /* encodable(a_map, b_map) */"


def test_it_is_written_beside_the_source(tmp_path: Path) -> None:
    receipt = with_gpu()
    first, *rest = receipt.variants
    text = host_shim(SIGNATURE, LAUNCH, "tma3")
    launch = Launch(extra_args=(A_MAP.declaration,), host_code=text)
    written = write_out(replace(receipt, variants=(replace(first, launch=launch), *rest)), tmp_path)
    name = host_name(receipt.kernel.file, first)
    assert (tmp_path / name).read_text() == text
    stored = from_json((tmp_path / "receipt.json").read_bytes())
    assert stored == written
    assert stored.variants[0].launch is not None
    assert stored.variants[0].launch.host_path == str(tmp_path / name)
    assert sum(path.name.endswith(".launch.cuh") for path in tmp_path.iterdir()) == 1
