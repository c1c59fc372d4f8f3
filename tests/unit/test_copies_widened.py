"""Copies through a local, of several arrays, or in a block of their own: copied by 16 bytes where that is the same."""

from __future__ import annotations

import pytest
from source_samples import REWRITERS, read
from trap_kernels import BLOCK
from wide_kernels import MIXED, NARROW, OPEN, WIDENED

from tilewright.kloop.kernel import CopyLoop, Refusal, TiledKernel, Widening
from tilewright.rewrite.result import Remedy, RewrittenSource


@pytest.mark.parametrize("name", WIDENED)
def test_it_is_widened(name: str) -> None:
    kernel = read(WIDENED[name], BLOCK)
    assert isinstance(kernel, TiledKernel), kernel
    assert kernel.stream is None
    loops = [i for i in kernel.loads if isinstance(i, CopyLoop)]
    assert loops
    assert all(isinstance(i.widening, Widening) and i.widening.elements == 8 for i in loops), loops
    for rewrite in REWRITERS.values():
        out = rewrite(kernel, Remedy())
        assert isinstance(out, RewrittenSource), out
        assert "% 16 == 0" in out.text


@pytest.mark.parametrize("name", NARROW)
def test_its_sibling_is_not(name: str) -> None:
    kernel = read(NARROW[name], BLOCK)
    assert isinstance(kernel, TiledKernel), kernel
    refused = REWRITERS["cp_async"](kernel, Remedy())
    assert isinstance(refused, Refusal)
    assert refused.code in ("unsupported_width", "not_contiguous", "converts_type")
    assert isinstance(REWRITERS["ldg"](kernel, Remedy()), RewrittenSource)


def test_both_arrays_ask_for_both_alignments() -> None:
    kernel = read(WIDENED["two arrays in one loop"], BLOCK)
    assert isinstance(kernel, TiledKernel)
    out = REWRITERS["cp_async"](kernel, Remedy())
    assert isinstance(out, RewrittenSource)
    assert out.text.count("% 16 == 0") == 2
    assert out.text.count(", 16);") == 2


def test_a_loop_of_a_stream_is_widened_by_itself() -> None:
    text = MIXED["beside vectors of some threads"]
    kernel = read(text, BLOCK)
    assert isinstance(kernel, TiledKernel)
    assert kernel.stream is not None
    assert len(kernel.stream.wide) == 1
    out = REWRITERS["cp_async"](kernel, Remedy())
    assert isinstance(out, RewrittenSource), out
    assert out.text.count(", 16);") == 2
    # Where something else fills its array too, the order of the two would be open.
    other = read(
        text.replace(
            "        if (tid < 32) {", f"        {OPEN}As[r][c + 0] = A[0];\n        }}\n        if (tid < 32) {{"
        ),
        BLOCK,
    )
    assert isinstance(other, TiledKernel)
    assert other.stream is not None
    assert not other.stream.wide
    assert isinstance(REWRITERS["cp_async"](other, Remedy()), Refusal)
