"""Which of several sets of defines a rung gets on a card: the one of the least cost."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.ladder.family import Family, load_families, load_family

FILE = """
[family]
title = "Doubled"
op = "y = 2 x"
reference = "gelu"
dtypes = ["float32"]
bytes = "8 * N"
flops = "N"

[family.sizes]
default = { N = 4096 }

[[family.args]]
name = "x"
dtype = "T"
shape = ["N"]

[[rung]]
file = "01.cu"
kernel = "doubled"
technique = "t"
changes = "c"
grid = [1]
block = [32]
choices = [{ TILE = 64, PARTS = 1 }, { TILE = 128, PARTS = 1 }]
cost = { tiles = "ceil_div(N, TILE)", us = "ceil_div(tiles, 10) * (TILE + 8)" }
sized = { THREADS = "TILE // 2" }
"""


def folder(at: Path, text: str = FILE) -> Path:
    home = at / "doubled"
    home.mkdir()
    (home / "ladder.toml").write_text(text, "utf-8")
    (home / "01.cu").write_text("", "utf-8")
    return at


def test_the_cheapest_is_taken_and_the_first_of_equals(tmp_path: Path) -> None:
    (rung,) = load_family("doubled", folder(tmp_path)).rungs
    assert rung.defines == {}
    for count, tile in ((0, 64), (64, 64), (640, 64), (641, 128), (1280, 128), (1281, 64)):
        assert rung.at({"N": count}, "float32").defines == {"TILE": tile, "PARTS": 1, "THREADS": tile // 2}, count
    costs = [rung.cost_of(choice, {"N": 1280}, "float32") for choice in rung.choices]
    assert costs == [2 * 72, 136]


def test_a_cost_may_know_the_element(tmp_path: Path) -> None:
    text = FILE.replace('us = "', 'us = "(item_bytes == 4) * (TILE == 64) * 1000 + ')
    (rung,) = load_family("doubled", folder(tmp_path, text)).rungs
    assert rung.at({"N": 640}, "float32").defines["TILE"] == 128
    assert rung.at({"N": 640}, "float16").defines["TILE"] == 64


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{ TILE = 128, PARTS = 1 }", "{ TILE = 128 }", "tables of integers, all with the same names"),
        ("TILE = 128,", 'TILE = "N",', "tables of integers"),
        ("TILE = 128,", "TILE = true,", "tables of integers"),
        ('cost = { tiles = "ceil_div(N, TILE)", us = "ceil_div(tiles, 10) * (TILE + 8)" }\n', "", "stand together"),
        ("ceil_div(N, TILE)", "ceil_div(N", "is missing"),
    ],
)
def test_a_wrong_file_says_so(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in FILE
    with pytest.raises(TilewrightError, match=re.escape(message)):
        load_family("doubled", folder(tmp_path, FILE.replace(old, new)))


def test_a_cost_in_unknown_names_says_so(tmp_path: Path) -> None:
    (rung,) = load_family("doubled", folder(tmp_path)).rungs
    with pytest.raises(TilewrightError, match="SIDE"):
        replace(rung, cost={"us": "SIDE"}).at({"N": 1}, "float32")


def test_a_rung_may_be_meant_for_arrays_that_begin_anywhere(tmp_path: Path) -> None:
    family = load_family("doubled", folder(tmp_path))
    (rung,) = family.rungs
    other = replace(rung, name="02", best_when="address % 16")
    both = replace(family, rungs=(rung, other))
    chosen = [both.best({"N": 1}, "float32", lambda arch: True, address).name for address in (0, 64, 4, 72)]
    assert chosen == ["01", "01", "02", "02"]


@pytest.mark.parametrize("family", load_families(), ids=lambda family: family.name)
def test_what_is_chosen_is_a_macro_of_the_file(family: Family) -> None:
    for rung in family.rungs:
        text = rung.file.read_text("utf-8")
        for name in filter(str.isupper, rung.choices[0] if rung.choices else ()):  # others are for formulas only
            assert re.search(rf"^ *# *define {name}\b", text, re.M), (rung.name, name)
