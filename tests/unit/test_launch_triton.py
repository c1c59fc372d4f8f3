"""The sidecar's [triton] table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.launch.sidecar import parse_sidecar

TEXT = """kernel = "add"
[triton]
constants = { BLOCK = 256, FAST = true, KIND = "tl.float16", SCALE = 0.5 }
num_warps = 8
num_stages = 3
options = { maxnreg = 64 }
[launch]
grid = ["ceil_div(n, BLOCK)"]
[sizes]
default = { n = 256 }
"""


def test_reads_the_table() -> None:
    spec = parse_sidecar(TEXT, Path("add.toml"))
    assert spec.triton is not None
    assert spec.triton.constants == {"BLOCK": 256, "FAST": True, "KIND": "tl.float16", "SCALE": 0.5}
    assert (spec.triton.num_warps, spec.triton.num_stages, spec.triton.options) == (8, 3, {"maxnreg": 64})
    assert [e.evaluate_int({}) for e in spec.block] == [256, 1, 1]


def test_defaults() -> None:
    text = "[launch]\ngrid = [1]\n[triton]\n"
    spec = parse_sidecar('kernel = "add"\n' + text, Path("add.toml"))
    assert spec.triton is not None
    assert (spec.triton.num_warps, spec.triton.num_stages, spec.triton.constants) == (4, None, {})
    assert spec.block[0].evaluate_int({}) == 128


def test_without_it_a_block_is_needed() -> None:
    with pytest.raises(TilewrightError, match="block is missing"):
        parse_sidecar('kernel = "add"\n[launch]\ngrid = [1]\n', Path("add.toml"))


@pytest.mark.parametrize(
    ("old", "new", "line", "code", "words"),
    [
        ("num_warps = 8", "num_warps = 3", 4, "bad_value", "a power of two"),
        ("num_warps = 8", "num_warps = 64", 4, "bad_value", "32 at most"),
        ("num_warps = 8", "num_warps = true", 4, "wrong_type", "must be an integer"),
        ("num_stages = 3", "num_stages = 0", 5, "bad_value", "1 or more"),
        ("num_stages", "num_stage", 5, "unknown_key", "num_stage is not a key"),
        ("FAST = true", "FAST = [1]", 3, "wrong_type", "a number, a boolean or a text"),
        ("[launch]", "[build]\nstd = 'c++17'\n[launch]", 7, "bad_value", "build is for CUDA kernels"),
        ("[launch]", "[launch]\nshared_bytes = 16", 8, "bad_value", "shared_bytes is Triton's to decide"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(old: str, new: str, line: int, code: str, words: str) -> None:
    with pytest.raises(TilewrightError, match=words) as caught:
        parse_sidecar(TEXT.replace(old, new), Path("add.toml"))
    assert (caught.value.code, caught.value.facts["line"]) == (f"launch/{code}", line)
