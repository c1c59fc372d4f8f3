"""Sums that say that they are there: what is left behind a launch, sums of any kind, and the accesses themselves.

In every schedule of the emulator the writers come first, so no run tells a reader that waits from one that does not:
that is read off the PTX.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from ladder_twins import twin_of

from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import load_family
from tilewright.ladder.running import operation, run_emulated
from tilewright.ladder.specs import rung_spec
from tilewright.settings import Settings

RUNGS = {"reduce": "09_marked", "dot": "05_marked"}
STORE, LOAD = "st.relaxed.gpu.global.u64", "ld.relaxed.gpu.global.u64"
CLEAR = f'asm volatile("{STORE} [%0], %1;" ::"l"(from), "l"(0ull) : "memory");'


def built(name: str, old: str = "", new: str = "") -> CompiledRung:
    """The rung, or its twin that has ``new`` in the place of ``old``, in its file or in the header."""
    family = load_family(name)
    rung = family.rung(RUNGS[name])
    text = twin_of(rung.file, old, new) if old else None
    return compile_rung(rung_spec(family, rung, "float32"), Settings.from_environment(), text=text)


def hands_over(compiled: CompiledRung) -> bool:
    """Whether words are written whole, read whole from L2, and read again while they are 0."""
    ptx = compiled.programs[0].ptx
    inside = r"(?:(?!\$\w+:).)*?"  # of the block that the label begins
    tested = r"setp\.eq\.[bsu]64\s+(%p\d+), \2, 0;"
    pattern = rf"(\$\w+):{inside}{LOAD} (%rd\d+), [^;]*;{inside}{tested}{inside}@\3\s+bra(?:\.uni)?\s+\1;"
    poll = re.search(pattern, ptx, re.S)
    return poll is not None and ptx.count(STORE) == 2 and ptx.count(LOAD) == 1


@pytest.mark.parametrize("name", RUNGS)
def test_marks_are_gone_behind_a_launch(name: str) -> None:
    family = load_family(name)
    assert family.rung(RUNGS[name]).kept == ("marked",)
    what = operation(family, "float32", family.sizes["small"])
    for attempt in (0, 1, 2):
        done = run_emulated(built(name), what, attempt=attempt)
        assert done.passed, done.message
        assert not done.outputs["marked"].any()
    twin = run_emulated(built(name, CLEAR, ""), what)
    assert twin.passed, "the first launch is right"
    assert twin.outputs["marked"].any()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0])
def test_a_mark_is_there_whatever_the_sum(value: float) -> None:
    """A word of zeros would be none: of -0 and +0 as well the upper half is not."""
    family = load_family("reduce")
    what = operation(family, "float32", family.sizes["small"])
    x = np.full_like(what.inputs["x"], value if value == 0 else 0.0)
    x[0] = value
    what = replace(what, inputs={**what.inputs, "x": x}, expected={"y": np.asarray(float(x.astype(np.float64).sum()))})
    done = run_emulated(built("reduce"), what)
    assert done.passed, done.message


@pytest.mark.parametrize("name", RUNGS)
def test_a_word_is_handed_over_whole_and_waited_for(name: str) -> None:
    assert hands_over(built(name))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("while (word == 0);", "while (false);"),
        (LOAD, "ld.global.u64"),
        (LOAD, "ld.relaxed.cta.global.u64"),
        (f'{STORE} [%0], %1;" ::"l"(to)', 'st.relaxed.cta.global.u64 [%0], %1;" ::"l"(to)'),
        (f'{STORE} [%0], %1;" ::"l"(to)', 'st.global.u64 [%0], %1;" ::"l"(to)'),
    ],
)
def test_a_twin_that_hands_over_carelessly_is_caught(old: str, new: str) -> None:
    assert not hands_over(built("reduce", old, new))
