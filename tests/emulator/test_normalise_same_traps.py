"""Functions and macros with a trap come out as the same program; a slip in them is seen."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "unit"))  # its small kernels

from front_samples import ACCEPTED, Sample, brought
from front_traps import SAME
from same_code import compiled, results, same_ptx

# The compiler orders these differently, or turns a condition round.
OTHER_ORDER = {
    "a pointer that the helper advances is its own",
    "a narrow parameter",
    "an argument with the name of a local",
    "a value that is changed through a reference meanwhile",
}


@pytest.mark.parametrize("one", SAME, ids=lambda s: s.name)
def test_a_trap_is_the_same_program(one: Sample, tmp_path: Path) -> None:
    after = compiled(brought(one, tmp_path).kernel.source.text.decode(), "k", tmp_path)
    before = compiled(one.text, "k", tmp_path)
    if one.name not in OTHER_ORDER:
        assert same_ptx(before, after)
    else:
        assert np.array_equal(results(before, tmp_path), results(after, tmp_path))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("names that meet", "tx_1 = k0 + tx;", "tx_1 = k0 + ty;"),
        ("a signed parameter of an unsigned argument", "const int shift", "const unsigned shift"),
        ("a macro for each tile", "As[ty][tx] =", "As[tx][ty] ="),
        ("a value that is changed through a reference meanwhile", "= seen;", "= seen + 1;"),
    ],
)
def test_a_slip_is_seen(name: str, old: str, new: str, tmp_path: Path) -> None:
    one = next(s for s in (*ACCEPTED, *SAME) if s.name == name)
    text = brought(one, tmp_path).kernel.source.text.decode()
    head, sign, kernel = text.partition("__global__")
    assert old in kernel, text
    broken = compiled(head + sign + kernel.replace(old, new, 1), "k", tmp_path)
    before = compiled(one.text, "k", tmp_path)
    assert not same_ptx(before, broken)
    assert not np.array_equal(results(before, tmp_path), results(broken, tmp_path))
