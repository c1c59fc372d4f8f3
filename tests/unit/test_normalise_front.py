"""Functions and macros of the load phase are written out, or refused with the reason; all else stays as it is."""

from __future__ import annotations

import difflib
import re
import time
from pathlib import Path

import pytest
from front_samples import ACCEPTED, CALLS, LOAD_ROW, Sample, brought, flat, opened
from front_traps import REFUSED, SAME, Trap

from tilewright.kloop.analysis import analyse
from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.normalise.front import front
from tilewright.normalise.run import normalise
from tilewright.source.reader import open_kernel, read_source
from tilewright.workflow.understanding import understand


@pytest.mark.parametrize("one", ACCEPTED, ids=lambda s: s.name)
def test_the_load_phase_is_written_out(one: Sample, tmp_path: Path) -> None:
    out = brought(one, tmp_path)
    kernel = out.kernel
    text = kernel.source.text[kernel.function.span.start : kernel.function.span.end].decode()
    assert out.refusal is None, out.refusal
    assert out.steps
    assert kernel.errors == ()
    for word in one.left:
        assert word not in text, text
    found = analyse(kernel, (16, 16, 1))
    assert isinstance(found, TiledKernel), (found, text)
    assert {a.name for a in found.staged} == {"As", "Bs"}


@pytest.mark.parametrize("trap", REFUSED, ids=lambda t: t.one.name)
def test_what_cannot_be_written_out_is_refused_with_the_reason(trap: Trap, tmp_path: Path) -> None:
    out = brought(trap.one, tmp_path)
    assert out.refusal is not None, out.kernel.source.text.decode()
    assert trap.why in out.refusal.message, out.refusal
    line = trap.one.text.split("\n")[(out.refusal.line or 0) - 1]
    assert "load" in line
    assert isinstance(understand(opened(trap.one, tmp_path), (16, 16, 1)), Refusal)


@pytest.mark.parametrize("one", SAME, ids=lambda s: s.name)
def test_traps_are_written_out(one: Sample, tmp_path: Path) -> None:
    out = brought(one, tmp_path)
    assert out.refusal is None, out.refusal
    assert out.steps


def test_the_compute_phase_stays_byte_for_byte(tmp_path: Path) -> None:
    head = (
        LOAD_ROW
        + "__device__ float one(const float *p, int i) { return p[i]; }\n#define PAIR(a, b) one(As, a) * one(Bs, b)\n"
    )
    kernel = flat("compute", head, CALLS, product="PAIR(ty * TILE + q, q * TILE + tx)")
    text = brought(kernel, tmp_path).kernel.source.text.decode()
    assert "load_row(As" not in text
    assert "sum += PAIR(ty * TILE + q, q * TILE + tx);" in text


def test_comments_lines_and_line_ends_stay(tmp_path: Path) -> None:
    kernel = flat("ends", LOAD_ROW, CALLS.replace(";\n", ";  // of A\n"))
    crlf = kernel.text.replace("\n", "\r\n")
    source = read_source(crlf.encode(), "k.cu")
    out = normalise(open_kernel(source, source.kernel("k"), {}), (16, 16, 1), None, (front,))
    text = out.kernel.source.text.decode()
    assert text.count("\n") == text.count("\r\n")
    assert "// one element a thread\r\n        const int at = " in text  # the helper's comment comes along
    assert "  // of A\r\n" in text
    changed = "".join(difflib.ndiff(crlf.splitlines(True), text.splitlines(True)))
    assert [x[2:].strip() for x in changed.splitlines() if x.startswith("- ")] == [
        line.strip() for line in kernel.load.split("\n")
    ]


def test_lines_lead_back_to_the_file_as_handed_in(tmp_path: Path) -> None:
    kernel = flat("lines", LOAD_ROW, CALLS)
    out = brought(kernel, tmp_path)
    text = out.kernel.source.text.decode().split("\n")
    new = next(i for i, line in enumerate(text, 1) if "if (row < M && col < N) C[" in line)
    old = next(i for i, line in enumerate(kernel.text.split("\n"), 1) if "if (row < M && col < N) C[" in line)
    assert out.line(new) == old
    inside = next(i for i, line in enumerate(text, 1) if "As[at] =" in line)
    assert "load_row(As" in kernel.text.split("\n")[out.line(inside) - 1]


def test_a_file_of_two_thousand_lines_is_understood_in_a_second() -> None:
    one = next(s for s in ACCEPTED if s.name == "a macro that calls a helper").text
    head, sign, rest = one.partition("__device__")
    many = [re.sub(r"\b(k|load_row|FETCH)\b", rf"\g<1>_{i}", sign + rest) for i in range(76)]
    text = (head + "".join(many)).encode()
    assert text.count(b"\n") > 2000
    taken = []
    for _ in range(2):
        start = time.process_time()
        source = read_source(text, "k.cu")
        found = understand(open_kernel(source, source.kernel("k_36"), {}), (16, 16, 1))
        taken.append(time.process_time() - start)
        assert isinstance(found, TiledKernel)
        assert found.steps
    assert min(taken) < 1.0
