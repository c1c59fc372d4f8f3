"""Loops in another form: the same values as before at 0, 1 and 3 tiles, by themselves and as variants; no hazards."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from trap_bench import bench

sys.path.append(str(Path(__file__).parents[1] / "unit"))  # its small kernels

from loop_kernels import READ, Form


@pytest.mark.parametrize("form", READ, ids=lambda f: f.name)
def test_a_form_keeps_its_meaning(form: Form, tmp_path: Path) -> None:
    made = bench(tmp_path, form.text, form.sidecar)
    for k in form.sizes:
        sizes = {"M": 16, "N": 16, "K": k}
        before = made.run(None, sizes)
        assert not before.hazards
        assert made.run(made.kernel.text.decode(), sizes) == before, (form.name, k)
    for variant in ("ldg", "cp_async3"):
        made.same(variant, {"M": 16, "N": 16, "K": form.sizes[-1]})


def test_a_bound_that_is_one_short_is_seen(tmp_path: Path) -> None:
    form = next(f for f in READ if f.name == "at_most")
    made = bench(tmp_path, form.text, form.sidecar)
    wrong = made.kernel.text.decode().replace("k < last + 1;", "k < last - 15;")
    assert made.differs(wrong, {"M": 16, "N": 16, "K": 32}) == {"values"}
