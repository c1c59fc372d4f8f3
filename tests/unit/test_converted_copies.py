"""Copies that convert element by element: widened by `widen` alone, and never by what moves bytes as they are."""

from __future__ import annotations

import pytest
from converting_kernels import KEPT, WIDENED, converting
from source_samples import REWRITERS, read
from trap_kernels import BLOCK

from tilewright.kloop.kernel import CopyLoop, Refusal, TiledKernel, Widening
from tilewright.rewrite import widen
from tilewright.rewrite.result import Remedy, RewrittenSource


def loops(text: str) -> tuple[TiledKernel, list[CopyLoop]]:
    kernel = read(text, BLOCK)
    assert isinstance(kernel, TiledKernel), kernel
    found = [i for i in kernel.loads if isinstance(i, CopyLoop)]
    assert len(found) == 2
    return kernel, found


@pytest.mark.parametrize("name", WIDENED)
def test_it_is_widened(name: str) -> None:
    _, lanes, text = WIDENED[name]
    kernel, found = loops(text)
    for loop in found:
        assert isinstance(loop.widening, Refusal)  # what moves bytes must not take it
        assert loop.widening.code == "converts_type"
        assert isinstance(loop.converting, CopyLoop), loop.converting
        assert isinstance(loop.converting.widening, Widening)
        assert loop.converting.widening.elements == lanes
    out = widen.rewrite(kernel)
    assert isinstance(out, RewrittenSource), out
    assert out.text.count("*reinterpret_cast<const uint4 *>(&A[(blockIdx.y * T + r) * K + k0 + c]);") == 1
    assert sum(p.tag == "type of a conversion" for p in kernel.probes) == 4
    refused = REWRITERS["cp_async"](kernel, Remedy())
    assert isinstance(refused, Refusal)
    assert refused.code == "converts_type"


def test_what_is_written() -> None:
    out = widen.rewrite(loops(WIDENED["float to half"][2])[0])
    assert isinstance(out, RewrittenSource)
    for line in (
        "__align__(16) float As_loaded[4];",
        "__align__(8) __half As_converted[4];",
        "As_converted[lane] = __float2half(As_loaded[lane]);",
        "*reinterpret_cast<uint2 *>(&As[i]) = *reinterpret_cast<const uint2 *>(As_converted);",
    ):
        assert out.text.count(line) == 1, line
    wide = widen.rewrite(loops(WIDENED["half to float, the fill too"][2])[0])
    assert isinstance(wide, RewrittenSource)
    assert "Bs_converted[lane] = __half2float(Bs_loaded[lane]);" in wide.text
    assert "reinterpret_cast<uint4 *>(&Bs[r][c])[1] = reinterpret_cast<const uint4 *>(Bs_converted)[1];" in wide.text


@pytest.mark.parametrize("name", KEPT)
def test_its_sibling_is_not(name: str) -> None:
    text, why = KEPT[name]
    _, found = loops(text)
    reasons = [i.converting for i in found if isinstance(i.converting, Refusal)]
    assert reasons, found
    assert why in reasons[0].message
    assert reasons[0].line is not None


def test_a_pragma_is_not_written_twice() -> None:
    text = converting("float", "__half", "__float2half(GUARD ? LOAD : 0.0f)")
    text = text.replace("        for (int i = tid", "        #pragma unroll\n        for (int i = tid")
    out = widen.rewrite(loops(text)[0])
    assert isinstance(out, RewrittenSource)
    assert "#pragma unroll\n        #pragma unroll" not in out.text
