"""The copy that others are held against copies all bytes, and none beside them."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.build.artifact import Artifact
from tilewright.emulator.lower.compile import compile_kernel, parse
from tilewright.emulator.machine.addresses import OFFSET_BITS
from tilewright.emulator.machine.chunk import Geometry
from tilewright.emulator.machine.global_memory import Buffer
from tilewright.emulator.options import EmulatorOptions
from tilewright.emulator.run import emulate
from tilewright.ladder.yardstick import THREADS, blocks_for, build_copy
from tilewright.settings import Settings


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return build_copy("sm_90", Settings.from_environment())


def copied(artifact: Artifact, count: int, blocks: int) -> np.ndarray:
    """What lies at the target, of zeros before, in storages of 48 bytes more."""
    parsed = parse(artifact.ptx, artifact.kernel)
    kernel = compile_kernel(parsed, 0)
    source = np.random.default_rng(count).integers(1, 256, count + 48, np.uint8)
    buffers = [Buffer("source", source.copy(), False), Buffer("target", np.zeros(count + 48, np.uint8), True)]
    geometry = Geometry((blocks, 1, 1), (THREADS, 1, 1), (1, 1, 1), kernel.layout.smem_bytes, 0)
    words = np.array([1 << OFFSET_BITS, 2 << OFFSET_BITS, count], np.uint64)
    done = emulate(kernel, geometry, buffers, words.tobytes(), EmulatorOptions(), "yardstick.cu")
    assert not done.hazards
    assert (buffers[1].data[count:] == 0).all()
    return np.asarray(buffers[1].data[:count] == source[:count])


@pytest.mark.parametrize("count", [1, 15, 16, 17, 2048, 2049, 5000])
def test_all_is_copied(artifact: Artifact, count: int) -> None:
    assert copied(artifact, count, blocks_for(count)).all()


def test_with_a_block_less_it_would_not_be(artifact: Artifact) -> None:
    assert not copied(artifact, 5000, blocks_for(5000) - 1).all()
