"""Reading ops and dims; candidates, choice, partition, ranges and plan of every op."""

from __future__ import annotations

import json
import math
import os
import random
import re
from itertools import pairwise
from pathlib import Path

import pytest

from tilewright.arch.arch import load_arch
from tilewright.arch.devices import find_device
from tilewright.build.artifact import Artifact, BuildRequest
from tilewright.build.build import build
from tilewright.errors import EXIT_REFUSED, TilewrightError
from tilewright.launch.bind import bind
from tilewright.launch.sidecar import parse_sidecar
from tilewright.receipt.record import to_json
from tilewright.settings import Settings
from tilewright.tile.attention import _tiles_of_a_block, attention_candidates, smem_bytes
from tilewright.tile.autotune import tuning_plan
from tilewright.tile.candidate import Candidate, useful_share, vector_bytes
from tilewright.tile.choice import choose, heads
from tilewright.tile.gemm import ALIKE, timed_space
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Attention, Convolution, Elementwise, Gemm, Op, Range, RowReduction, request
from tilewright.tile.parameters import load_parameters
from tilewright.tile.ranges import KEPT, choices_by_range, grid
from tilewright.tile.selection import Selection, candidates, select
from tilewright.tile.space import legal_space
from tilewright.workflow.tile_skeletons import skeleton_of

COST = load_parameters()
# Compiled of each op; more: TILEWRIGHT_CANDIDATES=20 pytest tests/unit/test_tile_ops.py
SAMPLES = int(os.environ.get("TILEWRIGHT_CANDIDATES", "1"))


def machine(card: str = "h200") -> Machine:
    device = find_device(card)
    assert device is not None
    return Machine(load_arch(device.arch), device)


def selection(op: Op, target: str = "cuda") -> Selection:
    return select(op, machine(), COST, "triton" if target == "triton" else "cuda")


@pytest.mark.parametrize(
    ("name", "dims", "expected"),
    [
        ("gemm", ("M=1", "n=2", "K=3"), Gemm(1, 2, 3)),
        ("batched_gemm", ("M=1", "N=2", "K=3", "BATCH=4"), Gemm(1, 2, 3, 4, name="batched_gemm")),
        ("attention", ("B=1", "H=2", "N=3", "D=64", "CAUSAL=1"), Attention(1, 2, 3, 64, True)),
        ("row_reduction", ("R=4", "C=5", "WRITES_ROWS=1"), RowReduction(4, 5, True)),
        ("elementwise", ("N=7", "INPUTS=2"), Elementwise(7, 2)),
        ("conv", ("N=1", "H=8", "W=9", "C=16", "K=32", "R=3", "S=3"), Convolution(1, 8, 9, 16, 32, 3, 3)),
    ],
)
def test_dims_are_read_by_name(name: str, dims: tuple[str, ...], expected: Op) -> None:
    assert request(name, dims, None).op == expected


@pytest.mark.parametrize(
    ("name", "dims", "dtype", "code"),
    [
        ("gem", (), None, "tile/unknown_op"),
        ("gemm", ("M=1", "N=2"), None, "tile/bad_dims"),
        ("gemm", ("M=1", "N=2", "K=3", "D=4"), None, "tile/bad_dims"),
        ("gemm", ("M=1", "M=2", "N=2", "K=3"), None, "tile/bad_dims"),
        ("gemm", ("M=0", "N=2", "K=3"), None, "tile/bad_dims"),
        ("gemm", ("M=-1", "N=2", "K=3"), None, "tile/bad_dims"),
        ("gemm", ("M=9..3", "N=2", "K=3"), None, "tile/bad_dims"),
        ("gemm", ("M=1..2", "N=1..2", "K=3"), None, "tile/bad_dims"),
        ("gemm", ("M=1e3", "N=2", "K=3"), None, "tile/bad_dims"),
        ("gemm", ("M=99999999999", "N=2", "K=3"), None, "tile/bad_dims"),
        ("batched_gemm", ("M=1", "N=2", "K=3"), None, "tile/bad_dims"),
        ("gemm", ("M=1", "N=2", "K=3"), "float12", "tile/unknown_dtype"),
        ("conv", ("N=1", "H=2", "W=2", "C=16", "K=32", "R=3", "S=3"), None, "tile/bad_dims"),
    ],
)
def test_what_cannot_be_read_is_said(name: str, dims: tuple[str, ...], dtype: str | None, code: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        request(name, dims, dtype)
    assert caught.value.code == code


def test_a_matrix_product_of_doubles_is_refused() -> None:
    with pytest.raises(TilewrightError) as caught:
        selection(Gemm(512, 512, 512, dtype="float64"))
    assert caught.value.exit_code == EXIT_REFUSED


def test_the_last_tile_and_the_vectors() -> None:
    assert useful_share(4096, 128) == 1.0
    assert useful_share(4100, 128) == pytest.approx(4 / 128)
    assert [vector_bytes(n, 2) for n in (4096, 4, 6, 7)] == [16, 8, 4, 2]


def test_warnings_follow_the_rules() -> None:
    def warnings(op: Gemm) -> str:
        return " ".join(selection(op).choice.candidate.warnings)

    assert "last tile of M is used to" in " ".join(
        w for c in selection(Gemm(4097, 4096, 4096)).candidates for w in c.warnings
    )
    assert "Rows of A allow 2-byte" in warnings(Gemm(1024, 1024, 1023))
    assert "Rows of" not in warnings(Gemm(1024, 1024, 1024))
    assert "SMs idle" in warnings(Gemm(64, 64, 64))
    assert "cudaFuncSetAttribute" in warnings(Gemm(4096, 4096, 4096))


def test_the_choice_is_the_fastest_and_its_rivals_lose_by_named_terms() -> None:
    found = selection(Gemm(4096, 4096, 4096))
    assert found.choice.candidate.time_us <= min(c.time_us for c in found.candidates) * (1 + ALIKE)
    assert all(rival.slower >= 1 - ALIKE for rival in found.choice.rivals)
    shapes = {rival.label.split()[0] for rival in found.choice.rivals}
    assert len(shapes) >= 3
    slow = [rival for rival in found.choice.rivals if rival.slower > 1.1]
    assert slow
    assert all(rival.loses or "in every term" in rival.reason for rival in slow)
    worst = choose(tuple(reversed(found.candidates)))
    assert worst.candidate == found.candidates[-1]
    assert worst.rivals[-1].slower < 1


def test_a_table_has_one_row_for_each_block_shape() -> None:
    rows = heads(selection(Gemm(4096, 4096, 4096)).candidates, 100)
    shapes = [(c.parameters["bm"], c.parameters["bn"], c.parameters["split_k"]) for c in rows]
    assert len(shapes) == len(set(shapes))
    assert all(after.time_us >= before.time_us * (1 - ALIKE) for before, after in pairwise(rows))


def test_where_times_are_alike_the_walk_in_groups_comes_first() -> None:
    timed = timed_space(Gemm(4096, 4096, 512), machine(), COST)
    first, second = (timed.tiles[index] for index in timed.order[:2])
    assert first.group_m > 1
    assert timed.time.seconds[timed.order[0]] <= timed.time.seconds.min() * (1 + ALIKE)
    assert second != first


def test_partitions() -> None:
    assert selection(Gemm(4096, 4096, 4096)).partition.kind == "2D"
    batched = selection(Gemm(512, 512, 512, 16)).partition
    assert (batched.kind, batched.grid[2]) == ("3D", "16")
    deep = selection(Gemm(128, 128, 65536))
    assert deep.partition.kind == "split_k"
    assert "fixed order" in deep.partition.reduction
    assert selection(Attention(1, 8, 4096, 64)).partition.kind == "3D"
    assert selection(RowReduction(8192, 4096)).partition.kind == "1D"
    assert selection(RowReduction(4, 1 << 26)).partition.kind == "streaming"
    joined = selection(RowReduction(4, 1 << 26, writes_rows=True)).partition
    assert joined.kind == "streaming"
    assert "broadcast" in joined.reduction
    assert "cooperative" in joined.persistent
    assert selection(Elementwise(1 << 24)).partition.kind == "1D"


def test_a_convolution_is_its_implicit_gemm_and_reads_its_image() -> None:
    conv = Convolution(8, 56, 56, 64, 128, 3, 3, pad=1)
    assert conv.as_gemm() == Gemm(8 * 56 * 56, 128, 576, name="conv")
    whole = [c.label for c in candidates(conv.as_gemm(), machine(), COST) if c.parameters["split_k"] == 1]
    assert [c.label for c in candidates(conv, machine(), COST)] == whole


def test_advice_says_when_not_to() -> None:
    assert any("Tiny" in line for line in selection(Gemm(64, 64, 64)).advice)
    assert not any("Tiny" in line for line in selection(Gemm(4096, 4096, 4096)).advice)
    assert any("library" in line for line in selection(Gemm(4096, 4096, 4096)).advice)
    assert any("tiling brings nothing" in line for line in selection(Elementwise(1 << 26)).advice)
    assert selection(RowReduction(8192, 8192)).advice == ()


def test_attention_fits_and_too_large_a_head_is_refused() -> None:
    op = Attention(1, 8, 4096, 128)
    for candidate in attention_candidates(op, machine(), COST):
        tile = candidate.parameters
        assert candidate.smem_bytes == smem_bytes(op, tile["bm"], tile["bn"], tile["stages"])
        assert candidate.smem_bytes <= machine().arch.smem_optin_max_bytes
    with pytest.raises(TilewrightError) as caught:
        selection(Attention(1, 8, 4096, 4096))
    assert (caught.value.code, caught.value.exit_code) == ("tile/nothing_fits", EXIT_REFUSED)


def test_triton_takes_warps_as_a_number() -> None:
    found = selection(Gemm(4096, 4096, 4096), "triton")
    tiles = [tuple(sorted(c.parameters.items())) for c in found.candidates]
    assert len(tiles) == len(set(tiles))
    assert {c.parameters["num_warps"] for c in found.candidates} == {4, 8}
    assert any("num_stages" in rule for rule in found.rules)


def test_the_plan_is_the_legal_space_in_the_models_order() -> None:
    op = Gemm(4096, 4096, 4096)
    plan = tuning_plan(op, selection(op).candidates, machine(), "cuda")
    times = [trial.predicted_us for trial in plan.trials]
    assert all(after >= before * (1 - ALIKE) for before, after in pairwise(times))
    tiles = {tuple(trial.parameters.values()) for trial in plan.trials}
    assert tiles == {tuple(vars(tile).values()) for tile in legal_space(op, machine().arch, machine().device)}
    read = json.loads(to_json(plan))
    assert read["dims"] == {"m": 4096, "n": 4096, "k": 4096, "batch": 1}
    assert len(read["trials"]) == len(tiles)


def test_ranges_have_no_gaps_and_stay_close_to_the_best() -> None:
    rows = choices_by_range(Gemm(2048, 2048, 2048), Range("m", 16, 2048), machine(), COST)
    assert rows[0].low == 16
    assert rows[-1].high == 2048
    assert len(rows) > 2
    for before, after in pairwise(rows):
        assert after.low == before.high + 1
        assert after.label != before.label
    assert all(1 <= row.worst <= KEPT for row in rows)


def test_a_range_of_one_value_is_one_choice() -> None:
    op = Gemm(512, 512, 512)
    rows = choices_by_range(op, Range("m", 512, 512), machine(), COST)
    assert [row.label for row in rows] == [selection(op).choice.candidate.label]


def test_the_grid_rises_and_holds_both_ends() -> None:
    assert grid(1, 1) == (1,)
    values = grid(3, 4096)
    assert (values[0], values[-1]) == (3, 4096)
    assert list(values) == sorted(set(values))
    assert {16, 128, 2048} <= set(values)


def test_rows_are_shared_out_where_there_are_fewer_than_sms() -> None:
    def split(op: RowReduction) -> Candidate:
        return selection(op).choice.candidate

    assert split(RowReduction(4, 1 << 26)).parameters["split"] > 1
    assert split(RowReduction(65536, 1024)).parameters["split"] == 1


@pytest.mark.parametrize(
    "op",
    [
        Gemm(4096, 4096, 4096),
        Gemm(512, 512, 512, 16),
        Gemm(128, 128, 65536),
        Attention(2, 3, 500, 64),
        RowReduction(1000, 4096),
        RowReduction(4, 1 << 26),
        RowReduction(4, 1 << 26, writes_rows=True),
        Convolution(8, 56, 56, 64, 128, 3, 3, pad=1),
    ],
    ids=str,
)
def test_the_partition_is_the_launch_of_the_kernel_that_is_written(op: Op) -> None:
    found = selection(op)
    made = skeleton_of(op, found.choice.candidate, machine(), "cuda")
    launch = bind(
        parse_sidecar(made.sidecar.split("\n[reference]")[0], Path("made.toml")), "default", constants_of(made.source)
    )
    told = tuple(math.prod(_ceil_div(factor) for factor in axis.split(" * ")) for axis in found.partition.grid)
    assert told == launch.grid
    assert math.prod(told) == found.choice.candidate.blocks


def _ceil_div(text: str) -> int:
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    return -(-numbers[0] // numbers[1]) if len(numbers) == 2 else numbers[0]


def constants_of(source: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"constexpr int (\w+) = (\d+);", source)}


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        (("attention", "B=1", "H=1", "N=64", "D=16..128"), "D is compiled into a kernel"),
        (("attention", "B=1", "H=1", "N=64", "D=64", "CAUSAL=0..1"), "CAUSAL is compiled into a kernel"),
        (("attention", "B=1", "H=1", "N=64", "D=64", "CAUSAL=2"), "CAUSAL is 0 to 1"),
        (("conv", "N=1", "H=1..56", "W=56", "C=64", "K=64", "R=3", "S=3"), "larger than the padded image"),
        (("conv", "N=1", "H=56", "W=56", "C=64", "K=64", "R=1..3", "S=3"), "R is compiled into a kernel"),
        (("gemm", "M=2147483647", "N=64", "K=64"), "M is 1 to 2147482623"),
    ],
)
def test_dims_that_no_kernel_takes(dims: tuple[str, ...], message: str) -> None:
    with pytest.raises(TilewrightError, match=message) as caught:
        request(dims[0], dims[1:], None)
    assert caught.value.code == "tile/bad_dims"


@pytest.mark.parametrize(
    ("op", "card", "message"),
    [
        (Attention(1, 8, 512, 80), "h200", "a head of 80 does not fit the swizzle"),
        (Attention(1, 8, 512, 1024), "h200", "registers"),
        (Attention(1, 8, 512, 64), "t4", "sm_75 has no asynchronous copies"),
        (Gemm(512, 512, 512), "t4", "sm_75 has no asynchronous copies"),
        (Attention(1, 8, 512, 64, dtype="int8"), "h200", "no attention of int8"),
        (Convolution(1, 8, 8, 8, 8, 3, 3, dtype="float32"), "h200", "no conv of float32"),
        (Elementwise(1 << 20, 200), "h200", "registers a thread"),
    ],
    ids=str,
)
def test_what_stands_in_the_way_is_said(op: Op, card: str, message: str) -> None:
    with pytest.raises(TilewrightError, match=message) as caught:
        select(op, machine(card), COST)
    assert caught.value.exit_code == 4


def test_a_range_of_a_convolution_offers_no_split_of_k() -> None:
    conv = Convolution(32, 7, 7, 512, 64, 3, 3, pad=1)
    rows = choices_by_range(conv, Range("n", 1, 32), machine(), COST)
    assert rows
    assert {row.parameters["split_k"] for row in rows} == {1}
    gemm = choices_by_range(conv.as_gemm(), Range("m", 49, 32 * 49), machine(), COST)
    assert any(row.parameters["split_k"] > 1 for row in gemm)


@pytest.mark.parametrize("n", [1, 31, 64, 65, 127, 128, 129, 500, 1024])
@pytest.mark.parametrize(("bm", "bn"), [(64, 32), (64, 64), (64, 128), (128, 32), (128, 64), (128, 128)])
def test_tiles_of_keys_under_the_mask_are_those_that_the_kernel_walks(n: int, bm: int, bn: int) -> None:
    walked = [-(-min(n, row + bm) // bn) for row in range(0, n, bm)]  # attention.cu: keys = min(N, row0 + BM)
    assert _tiles_of_a_block(Attention(1, 1, n, 64, True), bm, bn) == pytest.approx(sum(walked) / len(walked))
    assert _tiles_of_a_block(Attention(1, 1, n, 64), bm, bn) == -(-n // bn)


def test_operations_and_bytes_are_those_of_the_definition() -> None:
    seen = sum(1 for query in range(37) for key in range(37) if key <= query)
    assert Attention(2, 3, 37, 64, True).flops == 2 * 3 * seen * 64 * 4
    assert Attention(2, 3, 1, 64, True).flops == Attention(2, 3, 1, 64).flops == 2 * 3 * 64 * 4
    assert RowReduction(7, 33, dtype="float16").unique_bytes == 7 * 33 * 2 + 7 * 4  # sums come out in FP32
    assert RowReduction(7, 33, True, dtype="float16").unique_bytes == 2 * 7 * 33 * 2


def test_rows_that_are_split_and_written_are_read_twice() -> None:
    op = RowReduction(4, 1 << 26, writes_rows=True)
    chosen = selection(op).choice.candidate
    assert chosen.parameters["split"] > 1
    states = 2 * op.r * chosen.parameters["split"] * 8  # largest and sum, written and read
    assert chosen.dram_bytes == 3 * op.r * op.c * 4 + states


def test_shared_bytes_of_a_row_are_those_that_the_kernel_takes() -> None:
    for op in (RowReduction(2000, 20000), RowReduction(2000, 20000, writes_rows=True)):
        block = next(c for c in candidates(op, machine(), COST) if c.parameters["rows"] == 1)
        made = skeleton_of(op, block, machine(), "cuda")
        artifact = build(BuildRequest(made.source, "rows.cu", "sm_90a", made.kernel), Settings.from_environment())
        assert isinstance(artifact, Artifact)
        assert artifact.resources.smem_bytes == block.smem_bytes


@pytest.mark.parametrize("card", ["h200", "a10"])
@pytest.mark.parametrize(
    "op",
    [
        Elementwise(1 << 24, 8),
        Elementwise(1 << 24, 4, dtype="float16"),
        RowReduction(4096, 65536, writes_rows=True),
        Attention(1, 8, 2048, 64),
        Attention(1, 8, 2048, 128, True),
    ],
    ids=str,
)
def test_every_candidate_can_be_launched_and_those_that_are_built_do_not_spill(op: Op, card: str) -> None:
    here = machine(card)
    found = candidates(op, here, COST)
    assert found
    assert all(c.blocks_per_sm >= 1 and c.registers <= here.arch.max_registers_per_thread for c in found)
    for c in random.Random(len(found)).sample(found, min(SAMPLES, len(found))):
        made = skeleton_of(op, c, here, "cuda")
        request = BuildRequest(made.source, "made.cu", here.arch.name, made.kernel)
        artifact = build(request, Settings.from_environment())
        assert isinstance(artifact, Artifact)
        assert artifact.resources.spill_bytes == 0, c.label
