"""Compiling: artifacts, failures, the cache, and what must not leak into them."""

from __future__ import annotations

import builtins
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.build import build as room
from tilewright.build import compile_worker, nvrtc
from tilewright.build.artifact import Artifact, BuildRequest, CompileFailure, Resources
from tilewright.build.build import build
from tilewright.build.nvrtc import include_folders, toolchain
from tilewright.errors import TilewrightError
from tilewright.settings import Settings
from tilewright.source.device_headers import PRELUDE

needs_nvrtc = pytest.mark.skipif(toolchain() is None, reason="NVRTC is not installed")

TEMPLATE = """\
#include "helper.h"
template <int N>
__global__ void reverse(float* x) {
  __shared__ float s[N];
  s[threadIdx.x] = helped(x[threadIdx.x]);
  __syncthreads();
  x[threadIdx.x] = s[N - 1 - threadIdx.x];
}
extern "C" __global__ void plain(uint* x) { x[threadIdx.x] += 1; }
namespace inner { __global__ void nested(int* x) { *x = 3; } }
__device__ void no_kernel(int* x) { *x = 3; }
"""
HEADERS = (
    ("helper.h", "#pragma once\n__device__ inline float helped(float v) { return v * v; }\n"),
    (PRELUDE, "typedef unsigned int uint;\n"),
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "cache")


def request(kernel: str = "reverse<64>", source: str = TEMPLATE, **changes: object) -> BuildRequest:
    base = BuildRequest(source, "folder/reverse.cu", "sm_86", kernel, HEADERS)
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def made(outcome: Artifact | CompileFailure) -> Artifact:
    assert isinstance(outcome, Artifact), outcome
    return outcome


@needs_nvrtc
@pytest.mark.parametrize(
    ("kernel", "lowered"),
    [("reverse<64>", "_Z7reverseILi64EEvPf"), ("plain", "plain"), ("inner::nested", "_ZN5inner6nestedEPi")],
)
def test_a_kernel_by_its_name_expression(settings: Settings, kernel: str, lowered: str) -> None:
    artifact = made(build(request(kernel), settings))
    assert artifact.kernel == lowered
    assert artifact.cubin[:4] == b"\x7fELF"
    assert f".entry {lowered}(" in artifact.ptx
    assert artifact.toolchain == toolchain()
    assert artifact.resources.registers > 0


@needs_nvrtc
def test_resources_are_the_wanted_kernels(settings: Settings) -> None:
    artifact = made(build(request("reverse<256>"), settings))
    assert artifact.resources == Resources(artifact.resources.registers, 1024, 0, 0)
    assert made(build(request("plain"), settings)).resources.smem_bytes == 0


@needs_nvrtc
def test_no_folder_of_this_machine_is_in_an_artifact(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = (
        "#include <mma.h>\n"
        + TEMPLATE
        + (
            "__global__ void mma(const half* a, float* c) { using namespace nvcuda::wmma;\n"
            "  fragment<matrix_a, 16, 16, 16, half, row_major> x; fragment<matrix_b, 16, 16, 16, half, row_major> y;\n"
            "  fragment<accumulator, 16, 16, 16, float> z; fill_fragment(z, 0.f); load_matrix_sync(x, a, 16);\n"
            "  load_matrix_sync(y, a, 16); mma_sync(z, x, y, z); store_matrix_sync(c, z, 16, mem_row_major); }\n"
        )
    )
    artifacts = []
    for folder in ("one", "elsewhere"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        artifacts.append(made(build(request("mma", source), settings, use_cache=False)))
    assert artifacts[0] == artifacts[1], "the working folder decides nothing"
    for folder in (tmp_path, *include_folders()):
        assert str(folder) not in artifacts[0].ptx
        assert str(folder).encode() not in artifacts[0].cubin
        assert str(folder) not in artifacts[0].log
    assert "/cuda/crt/mma.hpp" in artifacts[0].ptx, "the check would find the header's folder"


@needs_nvrtc
def test_a_quoted_header_is_never_taken_from_the_working_folder(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "helper.h").write_text("__device__ float helped(float v) { return v; }")
    monkeypatch.chdir(tmp_path)
    outcome = build(request(headers=(HEADERS[1],)), settings)
    assert isinstance(outcome, CompileFailure)
    assert (outcome.line, outcome.file) == (1, "reverse.cu")


@needs_nvrtc
def test_errors_carry_the_users_line(settings: Settings) -> None:
    broken = build(request(source=TEMPLATE.replace("s[N - 1 - threadIdx.x]", "s[oops]")), settings)
    assert isinstance(broken, CompileFailure)
    assert (broken.message, broken.line, broken.file) == ('identifier "oops" is undefined', 7, "reverse.cu")
    bad_header = (("helper.h", "\n\n__device__ float helped(float v) { return w; }\n"), HEADERS[1])
    broken = build(request(headers=bad_header), settings)
    assert isinstance(broken, CompileFailure)
    assert (broken.line, broken.file) == (3, "helper.h")
    assert "tilewright/" not in broken.log


@needs_nvrtc
@pytest.mark.parametrize("kernel", ["absent", "absent<3>", "no_kernel", "reverse<oops>"])
def test_a_name_that_is_no_kernel(settings: Settings, kernel: str) -> None:
    outcome = build(request(kernel), settings)
    assert isinstance(outcome, CompileFailure)
    assert kernel in outcome.message
    assert outcome.line is None


@needs_nvrtc
def test_defines_and_flags_reach_the_compiler(settings: Settings) -> None:
    source = 'extern "C" __global__ void k(float* x) { x[0] = __expf(x[0]) / x[1] + VALUE; }'
    plain = made(build(request("k", source, defines=(("VALUE", "2.5f"),)), settings))
    fast = made(build(request("k", source, defines=(("VALUE", "2.5f"),), flags=("-O3", "-use_fast_math")), settings))
    assert "div.rn.f32" in plain.ptx
    assert "div.approx.ftz.f32" in fast.ptx
    assert isinstance(build(request("k", source), settings), CompileFailure)


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_42", "sm_9999", "compute_80", "rtx3070"])
def test_an_unknown_architecture(settings: Settings, arch: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        build(request(arch=arch), settings)
    assert caught.value.code == "build/unknown_arch"
    assert caught.value.exit_code == 2
    assert arch in caught.value.message


def test_binary_rubbish(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "toolchain", lambda: "nvrtc 13.5")
    outcome = build(request(source="one\ntwo\0three"), settings)
    assert isinstance(outcome, CompileFailure)
    assert outcome.line == 2


def test_the_key_holds_all_that_decides_and_no_folder() -> None:
    base = request()
    changes: list[dict[str, object]] = [
        {"source": TEMPLATE + " "},
        {"arch": "sm_90a"},
        {"kernel": "plain"},
        {"headers": HEADERS[:1]},
        {"headers": (("helper.h", ""), HEADERS[1])},
        {"defines": (("N", "1"),)},
        {"std": "c++20"},
        {"flags": ("--use_fast_math",)},
        {"file": "other.cu"},
    ]
    keys = {dataclasses.replace(base, **change).key for change in changes}  # type: ignore[arg-type]
    assert len(keys) == len(changes)
    assert base.key not in keys
    assert dataclasses.replace(base, file="/somewhere/else/reverse.cu").key == base.key
    assert dataclasses.replace(base, headers=HEADERS[::-1]).key == base.key


def test_the_text_says_which_compiler_wrote_it() -> None:
    text = "//\n// Cuda compilation tools, release 13.0, V13.0.88\n// Based on NVVM 20.0.0\n"
    assert room.made_by(text, "nvrtc 13.5") == "nvrtc 13.0"
    assert room.made_by(".version 9.0\n", "nvrtc 13.5") == "nvrtc 13.5"


def stored(settings: Settings, toolchain_name: str) -> Artifact:
    """An entry as another machine may have made it."""
    artifact = Artifact(request().key, "sm_86", "k", b"cubin", "ptx", Resources(1, 2, 3, 4), "", toolchain_name)
    room.Cache(settings.cache_dir, "artifact").put_value(request().key, room._Entry(toolchain_name, artifact, None))
    return artifact


def test_without_a_compiler_the_cache_answers(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "toolchain", lambda: None)
    with pytest.raises(TilewrightError) as caught:
        build(request(), settings)
    assert (caught.value.code, caught.value.exit_code) == ("build/no_compiler", 3)
    artifact = stored(settings, "nvrtc 12.9")
    assert build(request(), settings) == artifact
    with pytest.raises(TilewrightError):
        build(request(), settings, use_cache=False)
    with pytest.raises(TilewrightError):
        build(request(arch="sm_90a"), settings)


def test_an_entry_of_another_compiler_is_a_miss(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(settings, "nvrtc 12.9")
    monkeypatch.setattr(room, "toolchain", lambda: "nvrtc 13.5")
    ran = []
    stop = room.Compiled("k.cu(1): error: stop")
    monkeypatch.setattr(compile_worker, "compile_apart", lambda program: ran.append(program) or stop)
    assert isinstance(build(request(), settings), CompileFailure)
    assert len(ran) == 1
    stored(settings, "nvrtc 13.5")
    assert isinstance(build(request(), settings), Artifact)
    assert len(ran) == 1, "the same compiler's entry is a hit"


@needs_nvrtc
def test_a_second_build_imports_no_compiler(settings: Settings) -> None:
    artifact = made(build(request(), settings))
    failed = build(request("absent"), settings)
    script = (
        "import sys; from pathlib import Path\n"
        "from tilewright.settings import Settings; from tilewright.build.build import build\n"
        "from tests_request import REQUESTS\n"
        f"outcomes = [build(r, Settings(Path({str(settings.cache_dir)!r}))) for r in REQUESTS]\n"
        "print([type(o).__name__ for o in outcomes], sorted(m for m in sys.modules if m.split('.')[0] in "
        "('cuda', 'numpy', 'tree_sitter', 'rich')))\n"
    )
    module = settings.cache_dir.parent / "tests_request.py"
    module.write_text(f"from tilewright.build.artifact import *\nREQUESTS = [{request()!r}, {request('absent')!r}]\n")
    env = {**os.environ, "PYTHONPATH": str(module.parent)}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, check=True)
    assert result.stdout.strip() == "['Artifact', 'CompileFailure'] []"
    assert build(request(), settings) == artifact
    assert build(request("absent"), settings) == failed


def test_a_compiler_that_does_not_load(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *rest: object, **more: object) -> object:
        if name.startswith("cuda"):
            raise ImportError(f"no {name}")
        return original(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(room, "toolchain", lambda: "nvrtc 13.5")
    monkeypatch.setattr(compile_worker, "compile_apart", nvrtc.run)  # what a worker does
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(TilewrightError) as caught:
        build(request(), settings)
    assert (caught.value.code, caught.value.exit_code) == ("build/no_compiler", 3)


@needs_nvrtc
def test_the_same_request_gives_the_same_bytes(settings: Settings) -> None:
    assert build(request(), settings, use_cache=False) == build(request(), settings, use_cache=False)


@needs_nvrtc
def test_the_compilers_own_cache_is_off(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a driver, NVRTC keeps what it made of a PTX text: of the file's second kernel ptxas then says nothing."""
    asked: list[nvrtc.Program] = []

    def silent(program: nvrtc.Program) -> nvrtc.Compiled:
        asked.append(program)
        return nvrtc.Compiled("", b"cubin", ".visible .entry plain(\n", "plain")

    monkeypatch.setattr(compile_worker, "compile_apart", silent)
    with pytest.raises(TilewrightError, match="tells no figures of plain") as caught:
        build(request("plain"), settings)
    assert caught.value.code == "build/compiler"
    assert "--no-cache" in asked[0].options
