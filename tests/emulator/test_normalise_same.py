"""What the front end writes out is the same program: the same PTX, or the same bits where only its order differs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "unit"))  # its small kernels

from front_samples import ACCEPTED, Sample, brought
from same_code import compiled, results, same_ptx

# The compiler orders these differently.
OTHER_ORDER = {"a helper that calls another", "a branch that a template argument decides", "names of its namespaces"}


@pytest.mark.parametrize("one", ACCEPTED, ids=lambda s: s.name)
def test_what_is_written_out_is_the_same_program(one: Sample, tmp_path: Path) -> None:
    after = compiled(brought(one, tmp_path).kernel.source.text.decode(), "k", tmp_path)
    before = compiled(one.text, "k", tmp_path)
    if one.name not in OTHER_ORDER:
        assert same_ptx(before, after)
    else:
        assert np.array_equal(results(before, tmp_path), results(after, tmp_path))
