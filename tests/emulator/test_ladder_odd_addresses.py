"""Rungs that take arrays from any address: c and results that begin at an odd element are read and written singly."""

from __future__ import annotations

import pytest

from tilewright.ladder.compiling import compile_rung
from tilewright.ladder.family import load_family
from tilewright.ladder.running import operation, run_emulated
from tilewright.ladder.specs import rung_spec
from tilewright.settings import Settings

CASES = [
    ("hgemm", "34", "store_inside(c,", "store_inside(c + 1,"),
    ("hgemm", "32", "store_inside(c,", "store_inside(c + 1,"),
    ("igemm", "26", "store_inside(c,", "store_inside(c + 1,"),
    ("w8a8", "23", "store_inside(y,", "store_inside(y + 1,"),
    ("matmul", "23", "Added added = {c +", "Added added = {c + 1 +"),
]
SIZES = {"M": 16, "N": 16, "K": 24, "ld_a": 25, "ld_b": 25, "batch_c": 256, "ld_c": 16, "with_bias": 0, "with_c": 1}


@pytest.mark.parametrize(("name", "which", "there", "shifted"), CASES)
def test_an_odd_element_may_be_the_first(name: str, which: str, there: str, shifted: str) -> None:
    """The twin begins one element on: all that is wrong with it is that the last one lies behind the array."""
    family = load_family(name)
    dtype = family.dtypes[0]
    sizes = {size: SIZES.get(size, 1) for size in family.sizes["default"]} | {"activation": 0}
    sizes = {size: sizes[size] for size in family.sizes["default"]}
    rung = family.rung(which).at(sizes, dtype)
    text = rung.file.read_text("utf-8")
    assert there in text
    said = []
    for source in (
        text.replace(there, shifted),
        text.replace(there, shifted).replace("TW_ANYWHERE 1", "TW_ANYWHERE 0"),
    ):
        compiled = compile_rung(rung_spec(family, rung, dtype), Settings.from_environment(), text=source)
        said.append(run_emulated(compiled, operation(family, dtype, sizes)).message)
    assert "out of bounds" in said[0]
    assert "not a multiple of" not in said[0]
    assert "not a multiple of" in said[1]
