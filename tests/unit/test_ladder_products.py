"""Which rung takes a product, and what is said of it."""

from __future__ import annotations

import pytest

from tilewright.errors import TilewrightError
from tilewright.ladder.launching import runs_code
from tilewright.ladder.products import Operand, Product, explanation_of, operand_of, pick


def hopper(least: str) -> bool:
    return runs_code(least, "sm_90")


def product(m: int = 4096, n: int = 4096, k: int = 4096, layout: str = "NN", **more: object) -> Product:
    a = operand_of(m, k, 0, *((k, 1) if layout[0] == "N" else (1, m)))
    b = operand_of(k, n, 0, *((n, 1) if layout[1] == "N" else (1, k)))
    values = {"dtype": "bfloat16", "address": 0, "batches": 1, "rows": m, "columns": n, "depth": k, "a": a, "b": b}
    return Product(**{**values, **more})  # type: ignore[arg-type]


def test_a_plain_product_is_left_to_the_family_that_was_measured() -> None:
    found = pick(product(), hopper)
    assert found.name == "hgemm/36_back_and_forth"
    refused = dict(found.refused)
    assert refused["hgemm/27_shared_a"] == "it is not meant for these sizes: best_when, 0, is 0"
    assert refused["hgemm/11_wide_stores"] == "hgemm/36_back_and_forth is further up"
    slower = "hgemm/36_back_and_forth is said to be as fast or faster: 201.2 us, this one 2"
    assert refused["hgemm/25_pingpong"].startswith(slower)
    assert refused["matmul/01_strided"] == "hgemm/36_back_and_forth takes it"
    assert "the fastest rung, by a cost of 201.2 us, of hgemm" in found.why
    assert "h200-hgemm-*.json" in found.why


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (product(layout="NT"), "the layout NT"),
        (product(layout="TN", has_bias=True), "the layout TN, a bias"),
        (product(batches=3), "a batch of 3"),
        (product(is_plain=False), "an alpha"),
        (product(activation="silu"), "the activation silu"),
        (product(c=Operand(0, 4096, 1)), "c"),
    ],
)
def test_what_it_does_not_compute_is_said(one: Product, why: str) -> None:
    found = pick(one, hopper)
    assert found.family.name == "matmul"
    assert found.refused[0] == ("hgemm", f"it takes plain products of matrices in rows; this one has {why}")


def test_strides_that_no_rung_of_tensor_maps_takes_go_to_one_that_does_and_it_is_said() -> None:
    odd = product(b=Operand(0, 1, 4097), activation="relu")
    found = pick(odd, hopper)
    assert found.name == "matmul/24_packed"
    assert pick(product(b=Operand(0, 0, 1), activation="relu"), hopper).name == "matmul/01_strided"  # expanded
    assert dict(found.refused)["matmul/20_persistent"].startswith("20_persistent needs b whose rows, or columns")
    assert odd.layout == "NT"
    assert product(a=Operand(0, 8192, 2)).layout == "SN"
    with pytest.raises(TilewrightError, match="matmul/20_persistent does not take it: 20_persistent needs b whose"):
        pick(odd, hopper, "20_persistent")
    moved = product(layout="NT", address=2)
    assert dict(pick(moved, hopper).refused)["matmul/20_persistent"] == (
        "its arrays have to begin at multiples of 16 bytes"
    )


def test_a_rung_may_be_asked_for() -> None:
    assert pick(product(layout="NT"), hopper, "20_persistent").name == "matmul/20_persistent"
    assert pick(product(), hopper, "hgemm/25").name == "hgemm/25_pingpong"
    with pytest.raises(TilewrightError, match="hgemm/24_persistent does not take it: it takes plain products"):
        pick(product(layout="NT"), hopper, "hgemm/24")
    with pytest.raises(TilewrightError, match="does not take it: it needs sm_90a"):
        pick(product(), lambda least: runs_code(least, "sm_86"), "20_persistent")
    with pytest.raises(TilewrightError, match="sgemm multiplies no halves"):
        pick(product(), hopper, "sgemm/01")


def test_what_no_rung_takes_names_every_limit() -> None:
    with pytest.raises(
        TilewrightError, match=r"no rung takes this product: hgemm: .* a batch of 70000.*B = 70000; 01_st"
    ):
        pick(product(batches=70000), lambda least: runs_code(least, "sm_86"))
    with pytest.raises(TilewrightError, match="matmul does not take float32"):
        pick(product(dtype="float32"), hopper)


def test_of_a_single_row_or_column_the_free_stride_is_one_that_tensor_maps_take() -> None:
    assert operand_of(1, 31, 0, 31, 1) == Operand(0, 32, 1)
    assert operand_of(31, 1, 0, 1, 1) == Operand(0, 1, 32)
    assert operand_of(31, 1, 0, 40, 7) == Operand(0, 40, 1)
    assert operand_of(1, 31, 5, 7, 40) == Operand(5, 1, 40)
    assert operand_of(31, 5, 0, 40, 7) == Operand(0, 40, 7)


def test_an_explanation_has_what_was_chosen_and_what_the_launch_is() -> None:
    one = product(8192, 4096, 4096, "NT", has_bias=True, activation="gelu")
    told = explanation_of(pick(one, hopper, "20_persistent"))
    assert (told.tile, told.stages, told.cluster, told.grid, told.block) == (
        (128, 256, 64),
        4,
        2,
        (132, 1, 1),
        (384, 1, 1),
    )
    assert told.flops == 2 * 8192 * 4096 * 4096
    text = str(told)
    for part in (
        "NT: a packed along k, by tensor map",
        "gelu(a @ b + bias)",
        "because",
        "8 at a time",
        "230,400 bytes",
    ):
        assert part in text
    assert "not       hgemm/25_pingpong:" in str(explanation_of(pick(product(), hopper)))


def test_operands_that_are_copied_first_are_said_to_be_and_the_launch_is_the_one_that_multiplies() -> None:
    """4097 rows of 4160 elements, twice; 33 x 22 tiles of 128 x 192, three warpgroups, five stages of 40 KiB."""
    told = explanation_of(pick(product(4097, 4097, 4097), hopper))
    assert told.rung == "hgemm/32_packed"
    assert (told.launches, told.copied_bytes) == (2, 2 * 4097 * 4160 * 2)
    assert (told.tile, told.stages) == ((128, 192, 64), 5)
    assert (told.grid, told.block, told.shared_bytes) == ((33 * 22, 1, 1), (384, 1, 1), 5 * 40 * 1024 + 1024)
    assert told.path == (
        "a packed along k, copied first, then by tensor map; b packed along n, copied first, then by tensor map; "
        "the copies take 68,174,080 bytes of scratch"
    )
    assert "bytes of shared memory, behind 1 more" in str(told)


@pytest.mark.parametrize(
    ("one", "rung", "way"),
    [
        (product(), "hgemm/25_pingpong", "by tensor map"),
        (product(), "hgemm/31_stream_k", "by tensor map"),  # sums of parts are no copy of an operand
        (product(), "hgemm/11_wide_stores", "16 bytes at a time"),
        (product(7, 131073, 5121, b=Operand(0, 0, 1)), "hgemm/01_wmma", "by element"),
    ],
)
def test_operands_that_are_read_as_they_lie_are_not_said_to_be_copied(one: Product, rung: str, way: str) -> None:
    told = explanation_of(pick(one, hopper, rung))
    assert (told.launches, told.copied_bytes) == (1, 0)
    assert told.path == f"a packed along k, {way}; b packed along n, {way}; no copy is made"
    assert "behind" not in str(told).partition("launch")[2].partition("\n")[0]


def test_an_expanded_operand_is_not_written_out() -> None:
    """One row that stands for 5,121: 1.3 GB of scratch, for 0.3 MB that there are."""
    expanded = product(7, 131073, 5121, b=Operand(0, 0, 1))
    found = pick(expanded, hopper)
    assert found.name == "hgemm/01_wmma"
    assert dict(found.refused)["hgemm/32_packed"].startswith("it is not meant for these sizes: best_when, ")
    assert pick(product(7, 131073, 5121), hopper).name == "hgemm/32_packed"
