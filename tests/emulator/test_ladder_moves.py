"""Rungs for rows that are not aligned, for little data, for known shapes: as a card gets them, and broken twins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from test_ladder_starts import built, shifted

from tilewright.ladder.family import load_family
from tilewright.ladder.running import operation, run_emulated

# Family, rung, element type, what a card may define, sizes: edges of tiles, odd and even pitches, one row, one column.
SIZED = [
    ("transpose", "07", "float16", {"THREADS": 256}, {"M": 130, "N": 129, "ld_x": 129}),
    ("transpose", "07", "bfloat16", {"THREADS": 512}, {"M": 129, "N": 128, "ld_x": 131}),
    ("transpose", "07", "float16", {"THREADS": 1024}, {"M": 64, "N": 127, "ld_x": 128}),
    ("transpose", "07", "float16", {}, {"M": 1, "N": 200, "ld_x": 201}),
    ("transpose", "07", "float16", {}, {"M": 200, "N": 1, "ld_x": 1}),
    ("transpose", "07", "float32", {"THREADS": 512}, {"M": 65, "N": 63, "ld_x": 65}),
    ("transpose", "08", "float16", {"ROWS": 32}, {"M": 65, "N": 40, "ld_x": 43}),
    ("rope_half", "04", "bfloat16", {}, {"tokens": 2, "H": 3, "D": 300, "ld_x": 905}),
    ("embedding", "04", "float16", {}, {"N": 37, "V": 5, "C": 72, "ld_w": 72}),
    ("embedding", "04", "float32", {}, {"N": 3, "V": 5, "C": 520, "ld_w": 524}),
    ("transpose", "07", "float32", {"ALONG": 1}, {"M": 129, "N": 70, "ld_x": 71}),
    ("rope_interleaved", "05", "float16", {}, {"tokens": 3, "H": 5, "D": 24, "ld_x": 128}),
    ("embedding", "05", "float16", {}, {"N": 37, "V": 5, "C": 257, "ld_w": 257}),
    ("embedding", "05", "bfloat16", {}, {"N": 9, "V": 1, "C": 300, "ld_w": 300}),  # one row, pieces of 8 bytes
    ("merge_attention", "04", "float32", {}, {"P": 2, "N": 33, "D": 40}),
    ("merge_attention", "04", "bfloat16", {}, {"P": 3, "N": 7, "D": 33}),
    ("merge_attention", "04", "float16", {}, {"P": 8, "N": 5, "D": 64}),
    ("merge_attention", "04", "bfloat16", {}, {"P": 0, "N": 5, "D": 7}),  # of no part: zeros, and -inf
    ("rope_half", "05", "bfloat16", {"HEADS": 4}, {"tokens": 2, "H": 7, "D": 80, "ld_x": 568}),
    ("rope_half", "06", "bfloat16", {}, {"tokens": 2, "H": 5, "D": 64, "ld_x": 384}),
    ("rope_half", "06", "float32", {"STREAMS": 0}, {"tokens": 2, "H": 3, "D": 16, "ld_x": 48}),
    ("transpose", "06", "float32", {"ROWS": 32, "ALONG": 0}, {"M": 72, "N": 136, "ld_x": 136}),
    ("transpose", "06", "float32", {"COLUMNS": 16}, {"M": 72, "N": 136, "ld_x": 140}),
    ("transpose", "06", "float32", {"COLUMNS": 16, "ALONG": 0}, {"M": 72, "N": 136, "ld_x": 136}),
    ("transpose", "06", "bfloat16", {}, {"M": 64, "N": 72, "ld_x": 72}),  # few rows: tiles of as many
    ("rope_half", "06", "float16", {}, {"tokens": 2, "H": 10, "D": 128, "ld_x": 1280}),  # blocks of 96
]  # fmt: skip


@pytest.mark.parametrize(("name", "which", "dtype", "defines", "sizes"), SIZED)
def test_a_rung_as_a_card_gets_it(
    name: str, which: str, dtype: str, defines: Mapping[str, int], sizes: Mapping[str, int]
) -> None:
    family = load_family(name)
    rung = family.rung(which).at(sizes, dtype)
    done = run_emulated(
        built(family, replace(rung, defines={**rung.defines, **defines}), dtype), operation(family, dtype, sizes)
    )
    assert done.passed, done.message


def test_the_rung_for_large_matrices() -> None:
    def best(dtype: str, rows: int, columns: int) -> str:
        return load_family("transpose").best({"M": rows, "N": columns, "ld_x": columns}, dtype, lambda arch: True).name

    large = ((8192, 8192), (1024, 131072), (4096, 4096), (1 << 20, 64), (64, 1 << 20))
    assert [best(dtype, *size) for dtype in ("float32", "float16") for size in large] == ["06_tma"] * 10
    assert best("float32", 8191, 8191) == best("float16", 8190, 8192) == "07_words"


def test_tiles_of_much_data_and_of_few_rows() -> None:
    def tile(dtype: str, rows: int, columns: int) -> tuple[int, ...]:
        rung = load_family("transpose").rung("06").at({"M": rows, "N": columns, "ld_x": columns}, dtype)
        assert not rung.misfit({"M": rows, "N": columns, "ld_x": columns})
        return tuple(int(rung.defines[name]) for name in ("COLUMNS", "ROWS", "ALONG"))

    assert tile("float32", 4096, 4096) == tile("float32", 64, 1 << 20) == (16, 16, 0)
    assert tile("float32", 64, 1 << 23) == (16, 16, 1)  # more tiles along a row than a grid has down its second side
    assert tile("float32", 2048, 4096) == tile("bfloat16", 8192, 8192) == (8, 16, 1)
    assert tile("float16", 64, 1 << 20) == (8, 8, 1)


ROPE = [
    # Family, element type, tokens, heads and their elements, the rung, heads and threads of a block, past L1 or not.
    ("rope_half", "bfloat16", 32768, 64, 64, "06_exchanged", (4, 128, 0)),
    ("rope_half", "float32", 32768, 32, 128, "06_exchanged", (2, 128, 0)),
    ("rope_half", "bfloat16", 1024, 32, 128, "06_exchanged", (4, 128, 1)),
    ("rope_half", "bfloat16", 2048, 40, 128, "06_exchanged", (4, 160, 0)),
    ("rope_half", "bfloat16", 64, 32, 128, "05_known", (2, 128, 1)),
    ("rope_half", "bfloat16", 131072, 8, 128, "03_heads", None),  # of a token, a block has too little to do
    ("rope_half", "bfloat16", 4096, 16, 256, "03_heads", None),
    ("rope_half", "bfloat16", 32, 32, 128, "04_little", None),
    ("rope_interleaved", "bfloat16", 32768, 64, 64, "05_known", (1, 128, 0)),
    ("rope_interleaved", "bfloat16", 20001, 31, 64, "05_known", (1, 128, 0)),
    ("rope_interleaved", "bfloat16", 1024, 32, 128, "05_known", (2, 128, 1)),
    ("rope_interleaved", "float32", 32768, 32, 128, "05_known", (2, 128, 0)),
    ("rope_interleaved", "bfloat16", 4096, 8, 64, "03_heads", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "tokens", "heads", "length", "chosen", "defines"), ROPE)
def test_the_rung_for_heads(
    name: str, dtype: str, tokens: int, heads: int, length: int, chosen: str, defines: tuple[int, ...] | None
) -> None:
    sizes = {"tokens": tokens, "H": heads, "D": length, "ld_x": heads * length}
    rung = load_family(name).best(sizes, dtype, lambda arch: True)
    assert rung.name == chosen
    assert defines is None or tuple(rung.defines[each] for each in ("HEADS", "THREADS", "STREAMS")) == defines


def test_the_rung_for_rows_of_a_table() -> None:
    def best(dtype: str, count: int, length: int) -> str:
        sizes = {"N": count, "V": 1 << 20, "C": length, "ld_w": length}
        return load_family("embedding").best(sizes, dtype, lambda arch: True).name

    short = (("bfloat16", 128, 1024), ("bfloat16", 32768, 128), ("float32", 1000, 1000), ("float32", 5000, 96))
    assert {best(*each) for each in short} == {"05_pieces"}
    assert best("bfloat16", 32, 768) == best("bfloat16", 256, 2048) == "04_row"
    assert best("bfloat16", 1 << 20, 32) == best("float32", 4096, 768) == "03_in_flight"
    assert best("bfloat16", 1 << 20, 33) == "05_pieces"  # in no packs


def test_any_few_parts_are_known() -> None:
    chosen = [
        load_family("merge_attention").best({"P": parts, "N": 99, "D": 64}, "bfloat16", lambda arch: True).name
        for parts in (1, 4, 5, 8, 9)
    ]
    assert chosen == ["04_known"] * 4 + ["03_in_flight"]


WIDE = {"M": 66, "N": 66, "ld_x": 69}


@pytest.mark.parametrize(
    ("offsets", "old", "new"),
    [
        ({"x": 1}, "half_of(x + first_column), odd", "first_column % 2, odd"),
        ({"y": 1}, "const int before = half_of(to)", "const int before = (first_column + warp) * M % 2"),
        ({"x": 1, "y": 1}, "- half_of(from)", "- half_of(from + 1)"),
    ],
)
def test_a_matrix_that_begins_in_the_middle_of_a_word(offsets: Mapping[str, int], old: str, new: str) -> None:
    family = load_family("transpose")
    rung = family.rung("07")
    text = rung.file.read_text("utf-8")
    less = {"M": 1, "N": 1}
    assert (done := shifted(family, rung, text, offsets, WIDE, less)).passed, done.message
    assert old in text
    assert not shifted(family, rung, text.replace(old, new), offsets, WIDE, less).passed


# Family, rung, what stands in its file, what a broken twin has in its place, the set at which it has to be seen.
BROKEN = [
    ("transpose", "07", "before ? odd : even", "before ? even : odd", "ragged"),
    ("transpose", "07", "column >= 0 && column + WORD <= N", "true", "ragged"),
    ("transpose", "07", "column + half >= 0 && column + half < N", "true", "tiny_1"),
    ("transpose", "07", "static_cast<unsigned>(row + k * WARPS) < M", "true", "ragged"),
    ("transpose", "07", "i + s * 32 * WORD >= 0 && i + s * 32 * WORD + WORD <= M", "true", "ragged"),
    ("transpose", "07", "i + beyond >= 0 && i + beyond < M", "true", "ragged"),
    ("transpose", "07", "min(COLUMNS, N - first_column)", "COLUMNS", "ragged"),
    ("transpose", "08", "column < N) read", "true) read", "tiny_31"),
    ("transpose", "08", "&& out_column < M", "", "tiny_31"),
    ("rope_half", "04", "if (head >= H) return;", "", "tiny_33"),
    ("rope_interleaved", "04", "a * cosine - b * sine", "a * cosine + b * sine", "small"),
    ("embedding", "04", "place >= N || ", "", "tiny_31"),
    ("rope_interleaved", "05", "at / STEPS * HEADS", "at / STEPS", "small"),
    ("rope_half", "05", "if (PACKS % THREADS != 0 && at >= PACKS) return;", "if (at > 0) return;", "small"),
    ("rope_half", "05", "at / STEPS * HEADS", "at / STEPS", "small"),
    ("rope_half", "06", "is_first ? -sine[j] : sine[j]", "sine[j]", "small"),
    ("rope_half", "06", "step % (STEPS / 2)", "step", "small"),
    ("rope_half", "06", "words.w, STEPS / 2", "words.w, STEPS / 4", "small"),
    ("embedding", "05", "if (place >= N) return;", "", "tiny_31"),
    ("embedding", "05", "if (i * LANES * ACROSS < left) store_bits", "store_bits", "ragged"),
    ("embedding", "05", "C % WIDTH == 0 && ", "", "ragged"),
    ("add_rmsnorm", "06", "return half - 1;", "return -1;", "tiny_31"),
    ("add_rmsnorm", "06", "% 2 ? C - 1 : -1", "% 2 ? -1 : -1", "wide"),
    ("add_layernorm", "06", "C - 2 * words : 0", "0 : 0", "tiny_31"),
    ("add_layernorm", "06", "loose >= 0 ? end[0] - own_mean : 0.0f", "end[0] - own_mean", "tiny_31"),
    ("softmax", "11", "if (loose >= 0) loose_bits = load_bits<1>(x + loose);", "", "tiny_31"),
    ("softmax", "11", "!is_aligned_for<2>(y) == half", "true", "ragged"),
    ("rmsnorm", "09", "lower | upper << 16", "upper | lower << 16", "tiny_31"),
    ("rmsnorm", "09", "squares += end[0] * end[0];", "", "tiny_31"),
    ("layernorm", "09", "is_aligned_for<2>(weight + half) && is_aligned_for<2>(bias + half)", "true", "tiny_31"),
    ("layernorm", "09", "C - 2 * words : 0", "0 : 0", "tiny_31"),
    ("merge_attention", "04", "sums[j] *= scale;", "", "small"),
    ("merge_attention", "04", "if (row >= N) return;", "", "odd"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "which", "old", "new", "size"), BROKEN)
def test_a_broken_twin_is_caught(name: str, which: str, old: str, new: str, size: str) -> None:
    family = load_family(name)
    rung = family.rung(which)
    text = rung.file.read_text("utf-8")
    assert old in text
    what = operation(family, "float16", family.sizes[size])
    compiled = built(family, rung, "float16", text.replace(old, new))
    assert not all(run_emulated(compiled, what, attempt=attempt).passed for attempt in (0, 1))
