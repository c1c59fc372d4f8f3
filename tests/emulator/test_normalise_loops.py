"""Loops in another form: the same values as before at 0, 1 and 3 tiles, by themselves and as variants; no hazards."""

from __future__ import annotations

from pathlib import Path

import pytest
from trap_bench import bench


from loop_kernels import READ, Form  # isort: skip  beside the bench's own samples


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
