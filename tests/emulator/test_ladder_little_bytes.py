"""IGEMM and W8A8 of little products, rows that begin anywhere or lie across k: one launch; broken twins are caught."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from ladder_twins import twin_of

from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import load_family
from tilewright.ladder.running import RungRun, operation, run_emulated
from tilewright.ladder.specs import rung_spec
from tilewright.settings import Settings

RUNGS = {"igemm": "26_little", "w8a8": "23_little"}
FAMILIES = {name: load_family(name) for name in RUNGS}
# Of what is built for it alone, one in so many is looked at.
EVERY = int(os.environ.get("TILEWRIGHT_IGEMM_MUTANTS", "8"))


def sizes(m: int, n: int, k: int, ld_a: int = 0, ld_b: int = 0, step_a: int = 1, step_b: int = 1) -> dict[str, int]:
    return {"M": m, "N": n, "K": k, "ld_a": ld_a or k, "step_a": step_a, "ld_b": ld_b or k, "step_b": step_b}


ODD = sizes(35, 21, 333, 335, 333)  # warps that have k again, and one that has not
TURNED = sizes(18, 37, 77, 1, 1, 19, 37)
EDGES = [
    sizes(1, 1, 1),
    sizes(2, 3, 15, 15, 1, 1, 3),
    sizes(17, 16, 64, 80, 64),
    sizes(3, 5, 65, 131, 201, 2, 3),  # neither are neighbours in memory
    sizes(7, 5, 40, 40, 1, 0, 0),  # expanded
]


@cache
def built(family: str, old: str = "", new: str = "", shape: tuple[int, int, int] = (16, 16, 4)) -> CompiledRung:
    """The rung, or its twin that has ``new`` in the place of ``old``, in its file or in the header."""
    rung = FAMILIES[family].rung(RUNGS[family])
    defines = {**rung.defines, **dict(zip(("TW_BM", "TW_BN", "TW_WARPS"), shape, strict=True))}
    spec = rung_spec(FAMILIES[family], replace(rung, defines=defines), rung.dtypes[0])
    return compile_rung(spec, Settings.from_environment(), text=twin_of(rung.file, old, new) if old else None)


def run(compiled: CompiledRung, of: Mapping[str, int]) -> RungRun:
    family = compiled.spec.family
    return run_emulated(compiled, operation(family, family.dtypes[0], of), attempt=1, counters=True)


@pytest.mark.parametrize(
    ("family", "of", "shape"),
    [
        *(("igemm", of, (16, 16, 4)) for of in (ODD, TURNED, *EDGES)),
        ("w8a8", ODD, (16, 16, 4)),
        ("igemm", ODD, (16, 32, 8)),
    ],
)
def test_operands_may_lie_anyhow(family: str, of: dict[str, int], shape: tuple[int, int, int]) -> None:
    compiled = built(family, shape=shape)
    done = run(compiled, of)
    assert (done.message, done.counters["launches"], compiled.spill_bytes) == ("", 1, 0)
    assert done.counters["shared_conflicts"] == 0


def test_matrices_may_begin_anywhere() -> None:
    """A twin that is given them from their second row on, or column: at an odd address."""
    twin = built("igemm", "{a, M, K, ld_a, step_a}, {b, N,", "{a + ld_a, M - 1, K, ld_a, step_a}, {b + ld_b, N - 1,")
    for of in (ODD, TURNED):
        what = operation(FAMILIES["igemm"], "int8", of)
        got = run_emulated(twin, what, attempt=1)
        assert np.array_equal(what.launch.view("c", got.outputs)[:-1, :-1], what.expected["c"][1:, 1:])


# The fastest that an H200 timed of such rows, or within 1 % of it: rows and columns of a tile, and warps; where another
# rung was, its name.
FASTEST = [
    ("igemm", sizes(1, 1, 1), (16, 16, 4)),
    ("igemm", sizes(100, 100, 101), (16, 16, 4)),
    ("igemm", sizes(256, 256, 255), (16, 32, 8)),
    ("igemm", sizes(33, 257, 1001), (16, 16, 16)),
    ("igemm", sizes(64, 128, 128, 128, 1, 1, 128), (16, 16, 8)),
    ("igemm", sizes(256, 256, 256, 256, 1, 1, 256), (16, 16, 8)),
    ("igemm", sizes(257, 1000, 776), "25_packed"),
    ("igemm", sizes(64, 64, 64), "24_split_k"),
    ("igemm", sizes(256, 256, 256), "24_split_k"),
    ("w8a8", sizes(33, 257, 1001), (16, 16, 16)),
    ("w8a8", sizes(256, 256, 255), (16, 16, 4)),
    ("w8a8", sizes(257, 1000, 776), "22_packed"),
]


@pytest.mark.parametrize(("family", "of", "expected"), FASTEST)
def test_what_was_fastest_is_chosen(family: str, of: dict[str, int], expected: tuple[int, ...] | str) -> None:
    dtype = FAMILIES[family].dtypes[0]
    rung = FAMILIES[family].best(of, dtype, lambda arch: True)
    defines = rung.at(of, dtype).defines
    tile = tuple(defines[name] for name in ("TW_BM", "TW_BN", "TW_WARPS")) if rung.name == RUNGS[family] else rung.name
    assert tile == expected


TWINS = [
    ("rows.cut(a.K - k);", ""),
    ("(1u << 8 * bytes) - 1", "(1u << 8 * bytes) + 1"),
    ("from.at(min(row + i * 8, from.rows - 1), k)", "from.at(row + i * 8, k)"),
    ("w * 4 < lasts[i] &&", "true &&"),
    ("if (w * 4 == lasts[i]) words[i][w] = last;", ""),
    ("if (has_first[i]) words[i][0] = first;", ""),
    ("shifts[i]);", "0);"),
    ("columns.load(b, first_column + lane / 4, k)", "columns.load(b, first_column + lane / 4, k ^ 16)"),
    ("k + w * 4 + j < from.K", "true"),
    ("of_row += from.step;", "of_row += 1;"),
    ("__syncthreads();", ""),
]


@pytest.mark.parametrize(("old", "new"), TWINS[::EVERY])
def test_a_broken_twin_is_caught(old: str, new: str) -> None:
    twin = built("igemm", old, new)
    assert not all(run(twin, of).passed for of in (ODD, TURNED))
