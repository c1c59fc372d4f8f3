"""Sums and dot products: arrays that begin anywhere, what stays zero from launch to launch, and broken twins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import Family, Rung, load_family
from tilewright.ladder.running import Operation, operation, run_emulated
from tilewright.ladder.specs import bound_launches, rung_spec
from tilewright.launch.dtypes import DTYPES
from tilewright.sass.listing import disassemble
from tilewright.settings import Settings

TOP = {"reduce": "09_marked", "dot": "05_marked"}
LAST = {"reduce": "07_last_block", "dot": "03_last_block"}  # what they are one technique from
CLUSTER = {"reduce": "08_cluster", "dot": "04_cluster"}  # for lengths between


def built(family: Family, rung: Rung, dtype: str = "float32", text: str | None = None) -> CompiledRung:
    return compile_rung(rung_spec(family, rung, dtype), Settings.from_environment(), text=text)


def line(family: Family, count: int) -> dict[str, int]:
    return {name: count if name == "N" else 1 for name in family.sizes["default"]}


# Family, rung, what stands in its file, what a broken twin has in its place, the set at which it has to be seen.
BROKEN = [
    ("reduce", "02", "threadIdx.x % 32 == 0", "threadIdx.x % 64 == 0", "small"),
    ("reduce", "03", "if (threadIdx.x == 0) atomicAdd", "atomicAdd", "small"),
    ("reduce", "04", "i += threads", "i += THREADS", "small"),
    ("reduce", "05", "sums[i] += sum_of(read[i]);", "sums[i] = sum_of(read[i]);", "small"),
    ("reduce", "05", "only_if(first + i * THREADS < line.packs, read[i])", "read[i]", "ragged"),
    ("reduce", "05", "thread < line.loose", "thread < line.loose - 1", "ragged"),
    ("reduce", "06", "partial[blockIdx.x] = sum", "partial[0] = sum", "small"),
    ("reduce", "07", "__ldcg(partial + i)", "__ldcg(partial)", "small"),
    ("reduce", "07", "draws_last(ticket, gridDim.x)", "blockIdx.x == gridDim.x - 1", "small"),
    ("reduce", "07", "*y = *x;", "*y = *x + *x;", "tiny_1"),
    ("reduce", "09", "if (threadIdx.x > 0) sum = 0.0f;", "", "small"),
    ("reduce", "09", "take_marked(marked + i)", "take_marked(marked)", "small"),  # nobody writes that once more
    ("dot", "05", "write_marked(marked + blockIdx.x, sum)", "write_marked(marked + blockIdx.x, sums[0])", "small"),
    ("dot", "05", "i < before; i += THREADS", "i + 1 < before; i += THREADS", "small"),
    ("dot", "05", "const unsigned before = gridDim.x - 1;", "const unsigned before = gridDim.x;", "small"),
    ("dot", "03", "to_float(*a) * to_float(*b)", "to_float(*a)", "tiny_1"),
    ("dot", "01", "b[i * stride_b]", "b[i * stride_a]", "strided"),
    ("dot", "02", "packs_b + pack * TW_PACK", "packs_b + (line.packs - 1) * TW_PACK", "ragged"),
    ("dot", "02", "stride_b == 1 && ", "", "tiny_33"),
    ("reduce", "08", "lane < CLUSTER ?", "lane < CLUSTER - 1 ?", "small"),
    ("reduce", "08", "    cluster_arrive();\n    cluster_wait();\n    if", "    if", "small"),
    ("dot", "04", "    cluster_arrive();\n    cluster_wait();\n    if", "    if", "small"),
    ("reduce_rows", "02", "lane == 0", "lane == 1 && row + 1 < R", "small"),
    ("reduce_rows", "03", "min(row, R - 1LL)", "row", "ragged"),
    ("reduce_rows", "03", "only_if(first + i * WORKERS < count, read[i])", "read[i]", "wide"),
    ("reduce_rows", "05", "row < R ? C : 0", "C", "tiny_33"),
    ("reduce_rows", "05", "group_sum<LANES>(sum)", "sum", "tiny_33"),
    ("reduce_rows", "04", "tickets + row", "tickets", "wide"),
    ("reduce_rows", "04", "part == 0 && ", "", "wide"),
    ("dot", "03", "const bool is_there = first + i * THREADS < line.packs", "const bool is_there = true", "ragged"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "which", "old", "new", "size"), BROKEN)
def test_a_broken_twin_is_caught(name: str, which: str, old: str, new: str, size: str) -> None:
    family = load_family(name)
    rung = family.rung(which)
    text = rung.file.read_text("utf-8")
    assert old in text
    compiled = built(family, rung, text=text.replace(old, new))
    what = operation(family, "float32", family.sizes[size])
    assert not all(run_emulated(compiled, what, attempt=attempt).passed for attempt in (0, 1))


@pytest.mark.parametrize(("name", "size"), [("reduce", "small"), ("dot", "small"), ("reduce_rows", "wide")])
def test_the_last_block_alone_writes_the_result(name: str, size: str) -> None:
    """Whoever writes it too soon is put right by the last, which the emulator runs to its end behind the others."""
    family = load_family(name)
    rung = family.rung("last_block" if name != "reduce_rows" else "split")
    what = operation(family, "float32", family.sizes[size])
    text = rung.file.read_text("utf-8")
    careless = text.replace("if (!is_last) return;", "")
    assert careless != text
    stores = []
    for source in (text, careless):
        compiled = built(family, rung, text=source)
        stores.append(run_emulated(compiled, what, counters=True).counters["mix_store_global"])
        blocks = np.prod(bound_launches(compiled.spec, what.sizes, compiled.constants)[0].grid)
    results = what.expected["y"].size
    assert stores == [blocks + results, 2 * blocks]


# Family, element type, sizes: a block that is not full, one that is, several, and a walk of several rounds.
SIZED = [
    ("reduce", "float16", 1000),
    ("reduce", "float32", 4096),
    ("reduce", "bfloat16", 30001),
    ("reduce", "float32", 70000),
    ("dot", "bfloat16", 1000),
    ("dot", "float32", 5001),
    ("dot", "float16", 40000),
]


@pytest.mark.parametrize(("name", "dtype", "count"), SIZED)
def test_a_rung_as_a_card_gets_it(name: str, dtype: str, count: int) -> None:
    family = load_family(name)
    sizes = line(family, count)
    compiled = built(family, family.rung(TOP[name]).at(sizes, dtype), dtype)
    done = run_emulated(compiled, operation(family, dtype, sizes))
    assert done.passed, done.message
    assert compiled.spill_bytes == 0
    grid = bound_launches(compiled.spec, sizes, compiled.constants)[0].grid
    assert (grid[0] == 1) == (count * DTYPES[dtype].item_bytes <= 65536)


def shifted(name: str, shifts: Mapping[str, int], dtype: str) -> tuple[CompiledRung, Operation]:
    """A top rung that gets arrays which begin so many elements later, and what is right for them."""
    family = load_family(name)
    rung = family.rung(TOP[name])
    text = rung.file.read_text("utf-8")
    most = max(shifts.values())
    moved = "".join(f" {array} += {shift};" for array, shift in shifts.items())
    opening = text.index("{", text.index('extern "C"')) + 1
    compiled = built(family, rung, dtype, f"{text[:opening]}{moved} N -= {most};{text[opening:]}")
    what = operation(family, dtype, line(family, 2100))
    parts = [what.inputs[n][s : 2100 - most + s].astype(np.float64) for n, s in shifts.items()]
    return compiled, replace(what, expected={"y": np.asarray(np.prod(parts, axis=0).sum())})


@pytest.mark.parametrize(
    ("name", "shifts", "dtype"),
    [
        ("reduce", {"x": 1}, "float32"),
        ("reduce", {"x": 3}, "bfloat16"),
        ("reduce", {"x": 7}, "float16"),
        ("dot", {"a": 5, "b": 5}, "float16"),
        ("dot", {"a": 2, "b": 6}, "float32"),
        ("dot", {"a": 1, "b": 2}, "bfloat16"),
    ],
)
def test_arrays_that_begin_anywhere(name: str, shifts: Mapping[str, int], dtype: str) -> None:
    compiled, what = shifted(name, shifts, dtype)
    done = run_emulated(compiled, what)
    assert done.passed, done.message


def test_vectors_that_begin_differently_are_not_read_in_packs() -> None:
    compiled, what = shifted("dot", {"a": 1, "b": 2}, "float32")
    assert run_emulated(compiled, what).passed
    text = compiled.spec.rung.file.read_text("utf-8")
    opening = text.index("{", text.index('extern "C"')) + 1
    careless = f"{text[:opening]} a += 1; b += 2; N -= 2;{text[opening:]}".replace("begin_alike(a, b)", "true")
    twin = built(compiled.spec.family, compiled.spec.rung, text=careless)
    assert not run_emulated(twin, what).passed


def test_middling_lengths_were_a_clusters_and_are_no_longer() -> None:
    for name, dtype, count in (("reduce", "float32", 16385), ("reduce", "bfloat16", 100_001), ("dot", "float16", 9001)):
        family = load_family(name)
        sizes = line(family, count)
        compiled = built(family, family.rung(CLUSTER[name]).at(sizes, dtype), dtype)
        done = run_emulated(compiled, operation(family, dtype, sizes))
        assert done.passed, done.message
        assert compiled.spill_bytes == 0
        for length in (1, 1000, count, 1 << 28):
            assert family.best(line(family, length), dtype, lambda arch: True).name == TOP[name]


# Rows of some lanes of a warp, of a warp, of a block, of several; each begins at another place within 16 bytes.
ROWS = [
    ("03", "bfloat16", 40, 9),
    ("03", "float32", 9, 21),
    ("03", "float16", 7, 201),
    ("03", "float32", 3, 2001),
    ("03", "bfloat16", 2, 9001),
    ("05", "bfloat16", 7, 781),
    ("04", "bfloat16", 3, 30001),
]


@pytest.mark.parametrize(("which", "dtype", "rows", "columns"), ROWS)
def test_rows_as_a_card_gets_them(which: str, dtype: str, rows: int, columns: int) -> None:
    family = load_family("reduce_rows")
    sizes = {"R": rows, "C": columns, "ld_x": columns}
    compiled = built(family, family.rung(which).at(sizes, dtype), dtype)
    done = run_emulated(compiled, operation(family, dtype, sizes))
    assert done.passed, done.message
    assert compiled.spill_bytes == 0


@pytest.mark.parametrize(("dtype", "columns"), [("bfloat16", 517), ("float16", 9), ("float32", 33)])
def test_loose_elements_that_are_asked_for_first(dtype: str, columns: int) -> None:
    family = load_family("reduce_rows")
    sizes = {"R": 3, "C": columns, "ld_x": columns}
    rung = family.rung("03").at(sizes, dtype)
    rung = replace(rung, defines={**rung.defines, "AHEAD": 1})
    what = operation(family, dtype, sizes)
    done = run_emulated(built(family, rung, dtype), what)
    assert done.passed, done.message
    text = rung.file.read_text("utf-8")
    old = "worker + i * WORKERS < line.loose"
    assert old in text
    assert not run_emulated(built(family, rung, dtype, text.replace(old, f"{old} - 1")), what).passed


def test_two_threads_of_a_row_share_nine_loose_elements() -> None:
    family = load_family("reduce_rows")
    sizes = {"R": 40, "C": 9, "ld_x": 9}
    rung = family.rung("03").at(sizes, "bfloat16")
    rung = replace(rung, defines={**rung.defines, "AHEAD": 0})
    text = rung.file.read_text("utf-8")
    careless = text.replace(
        "for (int i = worker; i < line.loose; i += WORKERS)", "if (const int i = worker; i < line.loose)"
    )
    assert careless != text
    assert not run_emulated(built(family, rung, "bfloat16", careless), operation(family, "bfloat16", sizes)).passed


def test_the_rung_for_rows() -> None:
    family = load_family("reduce_rows")

    def best(rows: int, columns: int) -> str:
        return family.best({"R": rows, "C": columns, "ld_x": columns}, "bfloat16", lambda arch: True).name

    assert [best(r, c) for r, c in ((1, 8192), (1, 8193), (396, 1 << 20), (397, 1 << 20))] == [
        "03_vector", "04_split", "04_split", "03_vector",
    ]  # fmt: skip
    assert [best(9, c) for c in (1, 31, 1023, 1024, 1025, 2047)] == ["05_lanes"] * 3 + ["03_vector"] * 3
    lengths = (4, 64, 1024, 4096, 5000, 5003, 1 << 20)
    defines = [family.rung("03").at({"R": 9, "C": c, "ld_x": c}, "float32").defines for c in lengths]
    assert [tuple(d[name] for name in ("WORKERS", "ROWS", "LOADS", "AHEAD", "ROOM")) for d in defines] == [
        (1, 256, 1, 0, 1536), (8, 32, 2, 0, 1536), (32, 4, 8, 0, 1024), (256, 1, 4, 0, 1024), (512, 1, 3, 0, 1536),
        (256, 1, 3, 1, 1536), (512, 1, 8, 0, 1024),
    ]  # fmt: skip
    assert [best(r, 33) for r in (5, 1_000_000)] == ["05_lanes", "03_vector"]


def test_many_rows_that_leave_threads_idle_take_fewer_of_them() -> None:
    rung = load_family("reduce_rows").rung("03")

    def chosen(dtype: str, rows: int, columns: int) -> tuple[int, ...]:
        defines = rung.at({"R": rows, "C": columns, "ld_x": columns}, dtype).defines
        return tuple(int(defines[name]) for name in ("WORKERS", "LOADS", "AHEAD"))

    assert chosen("float32", 27000, 5000) == (256, 3, 1)  # 1,250 packs: 512 threads have 1,536 loads
    assert chosen("float32", 132, 5000) == (512, 3, 0)  # there, who waits less is ahead
    assert chosen("float32", 27000, 8192) == (512, 4, 0)
    assert chosen("float32", 30000, 3000) == (256, 3, 0)
    assert chosen("bfloat16", 20000, 5120) == chosen("bfloat16", 16384, 8193) == (128, 3, 1)


def test_loose_elements_that_are_not_there_are_not_asked_for() -> None:
    family = load_family("reduce_rows")
    sizes = {"R": 2, "C": 5000, "ld_x": 5000}
    rung = replace(family.rung("03"), defines={"WORKERS": 256, "ROWS": 1, "LOADS": 3, "AHEAD": 1, "ROOM": 1536})
    what = operation(family, "float32", sizes)
    assert (done := run_emulated(built(family, rung, "float32"), what)).passed, done.message
    text = rung.file.read_text("utf-8")
    careless = text.replace("if (worker + i * WORKERS < line.loose) loose", "loose")
    assert careless != text
    assert not run_emulated(built(family, rung, "float32", careless), what).passed


def test_blocks_of_a_split_row_are_one_wave() -> None:
    """One block more than run at once, and all of them take twice as long."""
    family = load_family("reduce_rows")
    for rows in (1, 7, 100, 300, 396):
        sizes = {"R": rows, "C": 1 << 20, "ld_x": 1 << 20}
        rung = family.rung("04").at(sizes, "float32")
        launch = bound_launches(
            rung_spec(family, rung, "float32"), sizes, {**rung.defines, "MOST_ROWS": 1024, "TW_T_BYTES": 4}
        )
        assert 396 < launch[0].grid[0] * launch[0].grid[1] <= 792


@pytest.mark.parametrize("name", list(LAST))
def test_what_is_kept_is_zero_again(name: str) -> None:
    family = load_family(name)
    rung = family.rung(LAST[name])
    assert rung.kept == ("partial", "ticket")
    what = operation(family, "float32", family.sizes["small"])
    done = run_emulated(built(family, rung), what)
    assert done.passed, done.message
    assert not done.outputs["ticket"].any()
    text = rung.file.read_text("utf-8")
    counting = text.replace("draws_last(ticket, gridDim.x)", "atomicAdd(ticket, 1u) == gridDim.x - 1")
    assert counting != text
    twin = run_emulated(built(family, rung, text=counting), what)
    assert twin.passed, "the first launch is right"
    assert twin.outputs["ticket"].any(), "and the next one would have been wrong"


@pytest.mark.parametrize(
    ("name", "which"),
    [
        ("reduce", "06"),
        ("reduce", "07"),
        ("reduce", "08"),
        ("reduce", "09"),
        ("dot", "02"),
        ("dot", "03"),
        ("dot", "05"),
    ],
)
def test_the_bits_are_the_same_in_any_order_of_blocks(name: str, which: str) -> None:
    family = load_family(name)
    compiled = built(family, family.rung(which))
    what = operation(family, "float32", family.sizes["small"])
    runs = [run_emulated(compiled, what, attempt=attempt) for attempt in (0, 1, 2)]
    assert all(run.passed for run in runs)
    assert len({run.outputs["y"].tobytes() for run in runs}) == 1


def summed(values: np.ndarray, dtype: str, **changes: object) -> float:
    """What the top rung makes of values."""
    family = load_family("reduce")
    rung = replace(family.rung(TOP["reduce"]), **changes)
    what = operation(family, dtype, line(family, values.size))
    inputs = {"x": values.astype(what.inputs["x"].dtype)}
    done = run_emulated(built(family, rung, dtype), replace(what, inputs=inputs))
    return float(done.outputs["y"][0])


def test_special_values_as_pytorch_has_them() -> None:
    many = np.ones(3000)
    assert summed(np.append(many, np.inf), "float32") == np.inf
    assert summed(np.append(many, -np.inf), "bfloat16") == -np.inf
    assert np.isnan(summed(np.append(many, np.nan), "float16"))
    assert np.isnan(summed(np.array([np.inf, 1.0, -np.inf]), "float32"))
    assert summed(np.array([60000.0, 60000.0, -60000.0]), "float16") == 60000.0  # beyond its range on the way only
    assert summed(np.array([60000.0, 60000.0]), "float16") == np.inf
    least = float(np.finfo(np.float32).smallest_subnormal)
    assert summed(np.full(31, least), "float32") == 31 * least
    assert summed(np.full(31, least), "float32", flags=("--ftz=true",)) == 0.0


def runs_of_loads(compiled: CompiledRung) -> list[int]:
    """Of each run of loads of 16 bytes that comes before any of them is used, and before a branch: how many."""
    artifact = compiled.artifacts[0]
    function = disassemble(artifact.cubin, Settings.from_environment()).function(artifact.kernel)
    assert function is not None
    runs, run = [], 0
    for each in function.instructions:
        if each.opcode == "LDG" and "128" in each.modifiers:
            run += 1
        elif each.opcode in ("FADD", "FMUL", "FFMA", "HADD2", "BRA") and run:
            runs.append(run)
            run = 0
    return runs


@pytest.mark.parametrize(("name", "dtype"), [("reduce", "float32"), ("reduce", "bfloat16"), ("dot", "float16")])
def test_all_loads_of_a_round_are_under_way_together(name: str, dtype: str) -> None:
    family = load_family(name)
    rung = family.rung(TOP[name]).at(line(family, 1 << 28), dtype)
    loads = rung.defines["LOADS"] * (2 if name == "dot" else 1)
    assert runs_of_loads(built(family, rung, dtype)) == [loads, loads]


def test_loads_behind_a_condition_wait_for_each_other() -> None:
    """Why the last round reads where nothing is left."""
    family = load_family("reduce")
    rung = family.rung(TOP["reduce"]).at(line(family, 1 << 28), "bfloat16")
    text = rung.file.read_text("utf-8")
    old = "sums[i] += sum_of(only_if(first + i * THREADS < line.packs, read[i]));"
    assert old in text
    branching = text.replace(old, "if (first + i * THREADS < line.packs) sums[i] += sum_of(read[i]);")
    assert max(runs_of_loads(built(family, rung, "bfloat16", branching))[1:]) < 8


def test_inputs_tell_a_wrong_sum_from_a_right_one() -> None:
    """A sum that came out near zero by chance would have no tolerance to speak of."""
    for name in TOP:
        family = load_family(name)
        for size in ("small", "ragged", "strided"):
            what = operation(family, "float32", family.sizes[size])
            assert abs(float(what.expected["y"])) > 0.05 * np.sqrt(what.sizes["N"])
