"""What the GPU tests share: the card (or a skip that names what is missing), and kernels compiled for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_kernels import Compile

from tilewright.gpu.device import GpuInfo, find_gpu
from tilewright.gpu.executor import GpuExecutor
from tilewright.launch.executor import Program


@pytest.fixture(scope="session")
def card() -> GpuInfo:
    info = find_gpu()
    if info is None:
        pytest.skip("no NVIDIA GPU")
    return info


@pytest.fixture(scope="session")
def executor(card: GpuInfo) -> GpuExecutor:
    return GpuExecutor(card)


@pytest.fixture(scope="session")
def compile_kernel(card: GpuInfo, tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Source text and the name of an ``extern "C"`` kernel → a program for this card."""
    try:
        from tilewright.build.artifact import Artifact, BuildRequest
        from tilewright.build.build import build, toolchain
        from tilewright.settings import Settings
    except ImportError as error:
        pytest.skip(f"the build room lacks a package: {error}")
    if toolchain() is None:
        pytest.skip("NVRTC is not installed")
    settings = Settings(cache_dir=Path(tmp_path_factory.mktemp("cache")))

    def compile_one(source: str, kernel: str) -> Program:
        artifact = build(BuildRequest(source, "test.cu", card.arch, kernel), settings)
        assert isinstance(artifact, Artifact), artifact
        return Program(artifact.cubin, artifact.ptx, artifact.kernel, artifact.arch)

    return compile_one
