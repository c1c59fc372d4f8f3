"""Compiles the test kernels, all of a file into one cubin, and reads them."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

from tilewright.sass.listing import Listing, disassemble
from tilewright.settings import Settings

HERE = Path(__file__).parent
SETTINGS = Settings(cache_dir=HERE / "unused")


@functools.cache
def cubin_of(file: str, arch: str, *defines: str) -> bytes:
    from cuda.bindings import nvrtc

    spec = importlib.util.find_spec("nvidia")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    include = next(p for root in spec.submodule_search_locations for p in Path(root).glob("cu1?/include"))
    folders = [f"-I{folder}" for folder in (include, include / "cccl", HERE)]
    options = [f"--gpu-architecture={arch}", "--std=c++20", "-lineinfo", *folders, *(f"-D{name}" for name in defines)]
    source = (HERE / file).read_bytes()
    _, program = nvrtc.nvrtcCreateProgram(source, file.encode(), 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
    if int(status):
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise AssertionError(log.decode())
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    cubin = b" " * size
    nvrtc.nvrtcGetCUBIN(program, cubin)
    nvrtc.nvrtcDestroyProgram(program)
    return cubin


@functools.cache
def listing_of(file: str, arch: str, *defines: str) -> Listing:
    return disassemble(cubin_of(file, arch, *defines), SETTINGS)
