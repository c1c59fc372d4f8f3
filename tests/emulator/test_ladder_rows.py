"""The ladder's families of rows, heads and attention states: as a card gets them, and twins broken on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import Family, Limit, Rung, load_family
from tilewright.ladder.running import Operation, operation, reference_of, run_emulated
from tilewright.ladder.specs import rung_spec
from tilewright.settings import Settings

# Family, rung, element type, sizes: rows of one warp, of one block, of a cluster; the longest that the rung takes.
SIZED = [
    ("softmax", "04", "bfloat16", {"R": 5, "C": 1024}),
    ("softmax", "04", "float32", {"R": 1, "C": 16384}),
    ("softmax", "05", "float16", {"R": 2, "C": 5000}),
    ("softmax", "06", "float32", {"R": 1, "C": 131072}),
    ("softmax", "06", "bfloat16", {"R": 2, "C": 20001}),
    ("rmsnorm", "03", "float32", {"R": 5, "C": 1000}),
    ("rmsnorm", "04", "float16", {"R": 1, "C": 66000}),
    ("layernorm", "03", "float16", {"R": 3, "C": 4104}),
    ("layernorm", "04", "bfloat16", {"R": 1, "C": 70000}),
    ("add_rmsnorm", "02", "bfloat16", {"R": 5, "C": 1024}),
    ("add_layernorm", "02", "float32", {"R": 1, "C": 9000}),
    ("add_layernorm", "01", "bfloat16", {"R": 2, "C": 9001}),
    ("add_rmsnorm", "03", "float32", {"R": 1, "C": 40000}),
    ("add_layernorm", "03", "float16", {"R": 1, "C": 17003}),
    ("softmax", "07", "float16", {"R": 3, "C": 33000}),
    ("softmax", "07", "bfloat16", {"R": 3, "C": 65544}),  # eleven warps a block
    ("softmax", "04", "bfloat16", {"R": 5, "C": 504}),  # four rows a block, and a block with one
    ("rmsnorm", "03", "float32", {"R": 5, "C": 252}),
    ("layernorm", "03", "float16", {"R": 5, "C": 504}),
    ("add_rmsnorm", "02", "bfloat16", {"R": 5, "C": 504}),
    ("add_layernorm", "02", "float32", {"R": 5, "C": 252}),
    ("layernorm", "05", "bfloat16", {"R": 5, "C": 1000}),
    ("softmax", "08", "bfloat16", {"R": 3, "C": 781}),  # in no packs
    ("softmax", "08", "float32", {"R": 33, "C": 1}),  # a lane a row
    ("softmax", "08", "float16", {"R": 70, "C": 64}),  # four rows a warp, blocks with some that are none's
    ("softmax", "09", "bfloat16", {"R": 2, "C": 1000}),
    ("softmax", "09", "float32", {"R": 1, "C": 1531}),
    ("rmsnorm", "06", "float16", {"R": 7, "C": 34}),  # two elements an access
    ("rmsnorm", "07", "bfloat16", {"R": 2, "C": 4100}),
    ("layernorm", "06", "float32", {"R": 5, "C": 257}),
    ("layernorm", "07", "bfloat16", {"R": 2, "C": 4096}),
    ("layernorm", "07", "float32", {"R": 1, "C": 33}),  # warps that have no element
    ("add_rmsnorm", "04", "bfloat16", {"R": 7, "C": 66}),
    ("add_rmsnorm", "05", "bfloat16", {"R": 1, "C": 515}),
    ("add_layernorm", "04", "float16", {"R": 3, "C": 31}),
    ("add_layernorm", "05", "float16", {"R": 2, "C": 1000}),
    ("add_rmsnorm", "06", "bfloat16", {"R": 2, "C": 4097}),  # its second row begins in the middle of a word
    ("add_layernorm", "06", "float16", {"R": 2, "C": 1531}),
    ("softmax", "10", "bfloat16", {"R": 2, "C": 65544}),  # chunks that have no column
    ("softmax", "12", "bfloat16", {"R": 2, "C": 33000}),
    ("rmsnorm", "08", "float32", {"R": 1, "C": 33000}),
    ("layernorm", "08", "bfloat16", {"R": 2, "C": 17000}),
    ("softmax", "11", "bfloat16", {"R": 2, "C": 1531}),
    ("rmsnorm", "09", "float16", {"R": 2, "C": 1531}),
    ("layernorm", "09", "bfloat16", {"R": 2, "C": 4097}),
]


def built(family: Family, rung: Rung, dtype: str, text: str | None = None) -> CompiledRung:
    return compile_rung(rung_spec(family, rung, dtype), Settings.from_environment(), text=text)


@pytest.mark.parametrize(("name", "which", "dtype", "sizes"), SIZED)
def test_a_rung_as_a_card_gets_it(name: str, which: str, dtype: str, sizes: Mapping[str, int]) -> None:
    family = load_family(name)
    sizes = {**sizes, "ld_x": sizes["C"]}
    rung = family.rung(which).at(sizes, dtype)
    compiled = built(family, rung, dtype)
    done = run_emulated(compiled, operation(family, dtype, sizes))
    assert done.passed, done.message
    assert compiled.spill_bytes == 0


@pytest.mark.parametrize("name", ["rmsnorm", "layernorm", "add_rmsnorm", "add_layernorm"])
def test_rows_that_no_wide_access_fits_where_no_register_is_kept_for_them(name: str) -> None:
    family = load_family(name)
    rung = next(r for r in family.rungs if "ahead" in r.name or "barrier" in r.name)
    rung = replace(rung, defines={"WORKERS": 128, "PIECES": 4, "WIDTH": 4, "HELD": 0})
    what = operation(family, "float32", {"R": 2, "C": 515, "ld_x": 517})
    done = run_emulated(built(family, rung, "float32"), what)
    assert done.passed, done.message
    text = rung.file.read_text("utf-8")
    careless = text.replace("/ C + epsilon", "+ epsilon")
    assert careless != text
    assert not run_emulated(built(family, rung, "float32", careless), what).passed


def test_defines_by_size() -> None:
    family = load_family("softmax")
    registers, cluster = family.rung("registers"), family.rung("cluster")
    assert registers.at({"C": 250}, "float32").defines == {
        "WORKERS": 32,
        "ROWS": 4,
        "PACKS": 2,
        "STREAMS": 0,
    }
    assert registers.at({"C": 8192}, "bfloat16").defines["PACKS"] == 8
    assert registers.at({"C": 8192}, "bfloat16").limits["C"] == Limit(at_most=65536)
    assert registers.limits["C"].at_most == 2048  # what the file's own defines take stays
    assert cluster.at({"C": 131072}, "float32").defines == {"CLUSTER": 8, "WORKERS": 512, "PACKS": 8}
    assert family.rung("online").at({"C": 5}, "float32") is family.rung("online")
    with pytest.raises(TilewrightError):
        replace(registers, sized={"WORKERS": "C / 3"}).at({"C": 1024}, "float32")


def test_the_rung_for_a_length() -> None:
    family = load_family("softmax")

    def best(columns: int, dtype: str, has_clusters: bool = True, rows: int = 4) -> str:
        return family.best({"R": rows, "C": columns, "ld_x": columns}, dtype, lambda arch: has_clusters).name

    assert [best(c, "float32") for c in (1, 512, 513, 8192, 8193, 16384, 16385, 32768, 32769, 131072, 131073)] == [
        "08_lanes", "08_lanes", "09_one_barrier", "09_one_barrier", "04_registers", "04_registers", "06_cluster",
        "06_cluster", "07_ring", "07_ring", "05_split",
    ]  # fmt: skip
    # Enough rows for all SMs: short rows that packs do not fit are a warp's; one barrier, until registers run out.
    assert [best(c, "float16", rows=265) for c in (512, 520, 781, 1024, 1025, 16384, 16392)] == [
        "08_lanes", "09_one_barrier", "08_lanes", "09_one_barrier", "11_words", "09_one_barrier", "04_registers",
    ]  # fmt: skip
    # Odd rows of halves, to words; those of floats have no packs either.
    assert [best(c, "float16", rows=265) for c in (8191, 8193)] == ["11_words", "04_registers"]
    assert best(8191, "float32", rows=265) == "09_one_barrier"
    assert [best(32768, d, rows=264) for d in ("float32", "float16")] == ["04_registers", "04_registers"]
    # Floats of 128 KiB and more a row, in packs: figures a row ahead, where there are rows for all.
    assert [best(65536, "float32", rows=r) for r in (263, 264)] == ["07_ring", "10_told_ahead"]
    assert best(65537, "float32", rows=264) == "07_ring"
    # Halves: the next row's powers ahead.
    assert [best(65536, "bfloat16", rows=r) for r in (263, 264)] == ["07_ring", "12_powers_ahead"]
    assert [best(c, "bfloat16", rows=264) for c in (262144, 262152)] == ["12_powers_ahead", "05_split"]
    assert best(4096, "float32", rows=265) == "09_one_barrier"
    assert best(131073, "bfloat16") == "07_ring"
    assert best(131072, "float32", has_clusters=False) == "05_split"
    assert [best(c, "float16") for c in (67107840, 67107841)] == ["05_split", "03_online"]  # 65,535 blocks a row
    assert best(32768, "float32", has_clusters=False) == "04_registers"


def test_the_rung_for_many_rows() -> None:
    """Long rows of floats, and rows that packs do not fit: asked for at once, weights and all."""

    def best(name: str, rows: int, columns: int, dtype: str) -> tuple[str, object]:
        rung = load_family(name).best({"R": rows, "C": columns, "ld_x": columns}, dtype, lambda arch: True)
        return rung.name, rung.defines["WORKERS"]

    assert [best("rmsnorm", r, 4096, "float32") for r in (264, 265)] == [
        ("07_weights_ahead", 256), ("07_weights_ahead", 512),
    ]  # fmt: skip
    # Two packs a thread; four where means, weights and biases take the registers of more threads.
    assert [best("rmsnorm", 265, c, "bfloat16") for c in (1024, 4096, 8192, 16384, 16392)] == [
        ("07_weights_ahead", 64), ("07_weights_ahead", 256), ("07_weights_ahead", 512), ("07_weights_ahead", 512),
        ("08_told_ahead", 416),
    ]  # fmt: skip
    assert [best("layernorm", 265, c, "bfloat16") for c in (1024, 2048, 4096, 8192)] == [
        ("07_one_barrier", 64), ("07_one_barrier", 64), ("07_one_barrier", 128), ("07_one_barrier", 256),
    ]  # fmt: skip
    assert [best("layernorm", 265, c, "float32") for c in (1024, 4096, 8192)] == [
        ("07_one_barrier", 128), ("07_one_barrier", 512), ("07_one_barrier", 512),
    ]  # fmt: skip
    assert [best("rmsnorm", r, 4097, "float32")[1] for r in (264, 265)] == [512, 512]
    # Longer ones: weights and biases asked for late leave room for as many threads.
    for dtype in ("float32", "bfloat16"):
        assert best("layernorm", 264, 16384, dtype)[0] == "03_registers"
        assert best("layernorm", 265, 16384, dtype) == ("07_one_barrier", 512)
        assert best("layernorm", 265, 16386, dtype)[0] != "07_one_barrier"
    assert [best("layernorm", 264, c, "bfloat16")[0] for c in (16392, 16393, 65536, 262144)] == [
        "08_told_ahead", "05_ring", "08_told_ahead", "08_told_ahead",
    ]  # fmt: skip
    assert [best("rmsnorm", 264, c, "bfloat16")[0] for c in (16384, 16392, 262144)] == [
        "03_registers", "08_told_ahead", "08_told_ahead",
    ]  # fmt: skip
    assert [best("layernorm", 265, c, "float32")[0] for c in (32768, 32776)] == ["08_told_ahead", "05_ring"]
    assert best("rmsnorm", 265, 131072, "float32")[0] == "08_told_ahead"
    assert best("rmsnorm", 265, 131073, "bfloat16")[0] == "05_ring"
    assert best("add_rmsnorm", 20000, 5003, "bfloat16") == ("06_words", 256)
    assert best("add_layernorm", 4096, 4097, "float16") == ("06_words", 288)
    assert best("add_layernorm", 4096, 4097, "float32") == ("05_one_barrier", 544)
    for name, rung in (("add_rmsnorm", "05_weights_ahead"), ("add_layernorm", "05_one_barrier")):
        assert [best(name, 265, c, "bfloat16") for c in (1024, 4096, 8192)] == [(rung, 64), (rung, 256), (rung, 1024)]
        assert [best(name, r, 4096, "float32") for r in (264, 265)] == [(rung, 256), (rung, 1024)]
        # 640 packs: not 1,024 threads of which 384 idle.
        assert best(name, 265, 5120, "bfloat16") == (rung, 320)
        assert best(name, 265, 16392, "bfloat16")[0] == "02_fused"
        assert [best(name, r, 32768, "bfloat16")[0] for r in (263, 264)] == ["03_cluster", "02_fused"]
        assert best(name, 264, 32767, "bfloat16")[0] == best(name, 264, 32768, "float32")[0] == "03_cluster"


def test_long_rows_lie_in_all_threads() -> None:
    """Packs, then no more warps than hold the row; a row that fills them is told to."""
    rung = load_family("layernorm").rung("08")

    def made(columns: int, rows: int = 4096) -> tuple[int, ...]:
        at = rung.at({"R": rows, "C": columns, "ld_x": columns}, "bfloat16").defines
        assert 512 * at["CLUSTER"] * at["PACKS"] * (at["WORKERS"] // 32 - 1) < columns * 2
        return tuple(at[name] for name in ("CLUSTER", "WORKERS", "PACKS", "STAGES", "CLUSTERS", "WHOLE"))

    assert made(32768) == (1, 512, 8, 3, 128, 32768)
    assert made(65536, 2048) == (2, 512, 8, 3, 64, 65536)
    assert made(131072, 1024) == (8, 512, 4, 4, 15, 131072)
    assert made(24576) == (1, 512, 6, 4, 128, 24576)
    assert made(49152, 66 * 5) == (2, 512, 6, 4, 66, 49152)
    assert made(100000) == (8, 416, 4, 4, 15, 0)
    assert made(24584) == (1, 448, 7, 3, 128, 0)


# Family, rung, what stands in its file, what a broken twin has in its place, the set at which it has to be seen.
BROKEN = [
    ("softmax", "01", "expf(to_float(x[column]) - largest)", "expf(to_float(x[column]))", "tiny_31"),
    ("softmax", "03", "sum = sum * expf(seen - base) +", "sum = sum +", "small"),
    ("softmax", "03", "block_sum(sum * expf(seen - finite_base(largest)), sums)", "block_sum(sum, sums)", "small"),
    ("softmax", "04", "(packs, x, C, worker, MINUS_INFINITY)", "(packs, x, C, worker, 0.0f)", "few"),
    ("softmax", "05", "sum += states[2 * i + 1] * exponential(states[2 * i] - finite_base(largest))",
     "sum += states[2 * i + 1]", "small"),
    ("softmax", "06", "part_sum * exponential(part_largest - finite_base(row_largest))", "part_sum", "small"),
    ("softmax", "06", "    cluster_arrive();\n    cluster_wait();\n    // Every", "    // Every", "small"),
    ("softmax", "07", "group + (long long)STAGES * groups", "group + (long long)groups", "rows"),
    ("softmax", "07", "phase ^= 1;", "", "rows"),
    ("softmax", "07", "Exp::between(own[g], rows[g].largest)", "1.0f", "small"),
    ("rmsnorm", "05", "wait_for(&arrivals[stage], phase);", "", "rows"),
    ("rmsnorm", "05", "part < CLUSTER * WARPS", "part < WARPS", "small"),
    ("layernorm", "05", " + apart * apart * elements", "", "small"),
    ("rmsnorm", "03", "block_sum(squares, sums) / C + epsilon", "block_sum(squares, sums) + epsilon", "small"),
    ("rmsnorm", "04", "lane < CLUSTER ? load_of_block(&shared, lane) : 0.0f", "lane < 1 ? shared : 0.0f", "small"),
    ("layernorm", "02", "apart * apart * a.count * share", "0.0f", "small"),
    ("layernorm", "03", "column_of<WORKERS>(i, worker) < C", "true", "few"),
    ("layernorm", "04", "lane_square + apart * apart * count", "lane_square", "small"),
    ("add_rmsnorm", "02", "packs[i] = rounded(added);", "", "small"),
    ("add_layernorm", "03", "store_in_row<WORKERS>(total, packs[i], i, columns, worker);",
     "store_in_row<WORKERS>(total, others[i], i, columns, worker);", "small"),
    ("add_layernorm", "01", "sums[j] = to_float(packs[i].at[j]) + to_float(others[i].at[j])",
     "sums[j] = to_float(packs[i].at[j])", "small"),
    ("softmax", "08", "row < R ? C : 0", "C", "tiny_33"),
    ("softmax", "08", "group_sum<LANES>(sum)", "sum", "short"),
    ("softmax", "09", "exponential(largest - row_base) * reciprocal", "reciprocal", "small"),
    ("softmax", "09", "met(states, make_float2(largest, sum), make_float2(MINUS_INFINITY, 0.0f))",
     "make_float2(largest, sum)", "small"),
    ("rmsnorm", "06", "to = found_once(y + first)", "to = found_once(y)", "short"),
    ("rmsnorm", "07", "met(sums, warp_sum(squares))", "warp_sum(squares)", "small"),
    ("layernorm", "06", "is_there ? values[i][j] - mean : 0.0f", "values[i][j] - mean", "tiny_33"),
    ("layernorm", "07", "apart * apart * state.x", "0.0f", "small"),
    ("layernorm", "07", "min(max(C - (i * WORKERS + warp * 32) * ACROSS, 0), 32 * ACROSS)", "32 * ACROSS", "ragged"),
    ("add_rmsnorm", "04", "<LANES>(values, share, others,", "<LANES>(values, share, share,", "short"),
    ("add_layernorm", "05", "add_shares<WORKERS>(values, share, others, sums_to",
     "add_shares<WORKERS>(values, share, others, to", "small"),
    ("softmax", "10", "row + STAGES * clusters", "row + clusters", "rows"),
    ("rmsnorm", "08", "wait_for(&rows.arrivals[ahead], phase);", "", "rows"),
    ("layernorm", "08", "phase ^= 1;", "", "rows"),
    ("layernorm", "08", "squares += board[part][1] + apart * apart * elements", "squares += board[part][1]", "small"),
    ("rope_half", "03", "const int heads = min(HEADS, H - head);", "const int heads = HEADS;", "strided"),
    ("rope_interleaved", "02", "a * cosine - b * sine", "a * cosine + b * sine", "small"),
    ("merge_attention", "03", "sums[j] *= kept;", "sums[j] *= 1.0f;", "parts"),
    ("merge_attention", "02", "base + logf(total)", "logf(total)", "small"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "which", "old", "new", "size"), BROKEN)
def test_a_broken_twin_is_caught(name: str, which: str, old: str, new: str, size: str) -> None:
    family = load_family(name)
    rung = family.rung(which)
    text = rung.file.read_text("utf-8")
    assert old in text
    sizes = {"R": 3, "C": 1000, "ld_x": 1000} if size == "few" else family.sizes[size]
    compiled = built(family, rung, "float32", text.replace(old, new))
    what = operation(family, "float32", sizes)
    if size == "few":  # no set of the family's, at which the rung itself is tried elsewhere
        assert run_emulated(built(family, rung, "float32"), what).passed
    assert not all(run_emulated(compiled, what, attempt=attempt).passed for attempt in (0, 1))


@pytest.mark.parametrize("which", ["01", "02", "03", "04"])
def test_parts_that_saw_no_key_are_not_looked_at(which: str) -> None:
    family = load_family("merge_attention")
    parts = family.sizes["parts" if which != "04" else "small"]
    what = with_parts(operation(family, "bfloat16", parts))
    done = run_emulated(built(family, family.rung(which), "bfloat16"), what)
    assert done.passed, done.message
    assert np.isfinite(what.expected["merged"]).all()
    assert (what.expected["merged"][0] == 0).all()
    assert what.expected["merged_logs"][0] == -np.inf
    text = family.rung(which).file.read_text("utf-8")
    careless = text.replace("== MINUS_INFINITY) continue;", "> 1e30f) continue;").replace("word &= seen;", ";")
    assert careless != text
    assert not run_emulated(built(family, family.rung(which), "bfloat16", careless), what).passed


def with_parts(what: Operation) -> Operation:
    """Query 0 saw no key in any part, query 1 none in its first part; what is there is NaN."""
    inputs = {name: array.copy() for name, array in what.inputs.items()}
    logs, values = (inputs[name].reshape(what.sizes["P"], what.sizes["N"], -1) for name in ("logs", "values"))
    logs[:, 0] = logs[0, 1] = -np.inf
    values[:, 0] = values[0, 1] = np.nan
    return replace(what, inputs=inputs, expected=reference_of(what.family).compute(what.launch, inputs))


def test_rows_of_minus_infinity_and_masked_beginnings() -> None:
    """As PyTorch: a row of -inf is NaN, -inf before the first number is 0; in parts of a row, too."""
    family = load_family("softmax")
    for size in ("small", "short"):  # those that hold a row in a warp take short ones
        what = operation(family, "float32", family.sizes[size])
        columns, pitch = what.sizes["C"], what.sizes["ld_x"]
        x = what.inputs["x"].copy()
        x[:columns] = x[pitch : pitch + columns * 3 // 4] = -np.inf
        inputs = {"x": x}
        what = replace(what, inputs=inputs, expected=reference_of(family).compute(what.launch, inputs))
        assert np.isnan(what.expected["y"][0]).all()
        assert (what.expected["y"][1, : columns * 3 // 4] == 0).all()
        # The first has one state for a row, and takes long.
        for rung in (r for r in family.rungs[1:] if size == "small" or "lanes" in r.name):
            if "float32" in rung.dtypes and not rung.misfit(what.sizes):
                done = run_emulated(built(family, rung, "float32"), what)
                assert done.passed, f"{rung.name}: {done.message}"
