"""Dynamic shared memory: carve-ups that become arrays, with the launch's new bytes; and those that stay, and why."""

from __future__ import annotations

import pytest
from dynamic_kernels import HALF_KEPT, HALF_KEPT_BY_NAME, KEPT, READ, REFUSED, Carve
from source_samples import opened

from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.rewrite import cp_async, ldg
from tilewright.rewrite.result import RewrittenSource
from tilewright.workflow.understanding import understand

BLOCK = (16, 16, 1)
LIMIT = 48 * 1024


def read(carve: Carve) -> TiledKernel | Refusal:
    known = carve.bytes if isinstance(carve.bytes, int) else None
    return understand(opened(carve.text), BLOCK, known)


@pytest.mark.parametrize("carve", READ, ids=lambda c: c.name)
def test_a_carve_up_becomes_arrays(carve: Carve) -> None:
    found = read(carve)
    assert isinstance(found, TiledKernel), found
    assert carve.expected in found.text.decode()
    assert any(carve.assumes in a for a in found.assumptions) if carve.assumes else not found.assumptions
    ring = cp_async.rewrite(found, 3, LIMIT)
    assert isinstance(ring, RewrittenSource), ring
    assert ring.launch.shared_bytes == (carve.launch if carve.launch != carve.bytes else None)
    assert f"Launch with {carve.launch} bytes of dynamic shared memory; the original had {carve.bytes}." in ring.text
    single = ldg.rewrite(found, True, LIMIT)
    assert isinstance(single, RewrittenSource), single
    assert single.launch.shared_bytes is None  # as it was


@pytest.mark.parametrize("carve", REFUSED, ids=lambda c: c.name)
def test_another_is_left_alone(carve: Carve) -> None:
    found = read(carve)
    assert isinstance(found, Refusal), found.text.decode()
    assert carve.expected in found.message
    assert found.line is not None


@pytest.mark.parametrize("carve", [KEPT, HALF_KEPT, HALF_KEPT_BY_NAME], ids=lambda c: c.name)
def test_what_other_stages_would_lack_keeps_the_arrays_where_they_are(carve: Carve) -> None:
    found = read(carve)
    assert isinstance(found, TiledKernel), found
    ring = cp_async.rewrite(found, 3, LIMIT)
    assert isinstance(ring, Refusal), ring.text
    assert carve.expected in ring.message


def test_a_device_function_that_names_the_buffer_too_is_not_overlooked() -> None:
    helper = "__device__ float peek() { extern __shared__ float other[]; return other[0]; }\n"
    found = understand(opened(helper + READ[0].text), BLOCK, 2048)
    assert isinstance(found, Refusal)
    assert "__device__ function" in found.message


def test_a_stricter_alignment_stays() -> None:
    text = READ[1].text.replace("__align__(16)", "__align__(1024)")
    found = understand(opened(text), BLOCK, 2048)
    assert isinstance(found, TiledKernel), found
    assert "extern __shared__ __align__(1024) unsigned char raw_bytes[];" in found.text.decode()
