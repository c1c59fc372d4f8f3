"""The rung that is chosen can be launched: nothing is divided by a size of zero, no grid or tile is too large."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tilewright.arch.arch import load_arch
from tilewright.errors import TilewrightError
from tilewright.ladder.compiling import constants_of
from tilewright.ladder.family import Rung, load_family
from tilewright.ladder.launching import runs_code
from tilewright.ladder.specs import bound_launches, rung_spec
from tilewright.launch.bind import BoundLaunch

MOST_SHARED_BYTES = load_arch("sm_90").smem_optin_max_bytes


def chosen(name: str, dtype: str, sizes: Mapping[str, int]) -> Rung:
    return load_family(name).best(sizes, dtype, lambda least: runs_code(least, "sm_90"))


def launched(name: str, dtype: str, sizes: Mapping[str, int]) -> list[BoundLaunch]:
    spec = rung_spec(load_family(name), chosen(name, dtype, sizes), dtype)
    return bound_launches(spec, sizes, constants_of(spec))


@pytest.mark.parametrize("empty", ["M", "N"])
@pytest.mark.parametrize("name", ["hgemm", "igemm", "sgemm", "sgemv", "w8a8"])
def test_a_product_without_elements_is_none_that_divides_by_zero(name: str, empty: str) -> None:
    family = load_family(name)
    sizes = {size: 1 if size.startswith("step") else 24 for size in family.sizes["default"]} | {empty: 0}
    assert not chosen(name, family.dtypes[0], sizes).unfit


def test_what_cannot_be_had_at_sizes_says_so() -> None:
    rung = load_family("sgemv").rung("06").at({"M": 5, "N": 0, "ld_a": 1}, "float32")
    assert "06_short_rows cannot be had at these sizes" in rung.misfit({"M": 5, "N": 0, "ld_a": 1})
    assert "division by zero" in rung.unfit


def test_sums_of_no_terms_are_zeros_all_the_same() -> None:
    (one,) = launched("sgemv", "float32", {"M": 631, "N": 0, "ld_a": 1})
    assert one.grid[0] * one.block[0] >= 631


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("columns", [131072, 196608, 196609, 262144])
@pytest.mark.parametrize("name", ["softmax", "rmsnorm", "layernorm"])
def test_long_rows_find_room_in_shared_memory(name: str, columns: int, dtype: str) -> None:
    launches = launched(name, dtype, {"R": 4096, "C": columns, "ld_x": columns})
    assert max(one.shared_bytes for one in launches) <= MOST_SHARED_BYTES


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rows", [4194240, 4194244, 8000000, 1 << 30])
def test_transposes_of_many_short_rows_fit_a_grid(rows: int, dtype: str) -> None:
    (one,) = launched("transpose", dtype, {"M": rows, "N": 8, "ld_x": 8})
    assert one.grid[0] * one.grid[1] >= rows // 128


@pytest.mark.parametrize("name", ["hgemm", "igemm", "sgemm", "w8a8"])
def test_products_of_no_terms_need_no_tensor_map(name: str) -> None:
    family = load_family(name)
    sizes = {size: 1 if size.startswith("step") else 64 for size in family.sizes["default"]} | {"K": 0}
    assert launched(name, family.dtypes[0], sizes)


@pytest.mark.parametrize("name", ["hgemm", "igemm", "w8a8"])
def test_one_row_for_all_needs_no_tensor_map(name: str) -> None:
    family = load_family(name)
    sizes = {size: 1 if size.startswith("step") else 64 for size in family.sizes["default"]} | {"ld_b": 0}
    assert launched(name, family.dtypes[0], sizes)


@pytest.mark.parametrize("name", ["rope_half", "rope_interleaved"])
def test_a_token_whose_elements_no_int_counts_is_refused(name: str) -> None:
    """Its heads are found in 32 bits."""
    sizes = {"tokens": 1, "H": 32768, "D": 65536, "ld_x": 32768 * 65536}
    with pytest.raises(TilewrightError, match=r"03_heads needs tokens of less than 2\*\*31 elements"):
        chosen(name, "float16", sizes)
    assert chosen(name, "float16", sizes | {"D": 65534})


@pytest.mark.parametrize(("columns", "rung"), [(16, "11_cp_async4"), (4096, "17_left_over_first")])
def test_tiles_of_a_product_of_many_rows_fit_a_grid(columns: int, rung: str) -> None:
    """Small tiles are the cheapest for few columns: a grid has room for 65,535 of them."""
    sizes = {"M": 5_000_000, "N": columns, "K": 8, "ld_a": 8, "ld_b": columns}
    assert chosen("sgemm", "float32", sizes).name == rung
    assert launched("sgemm", "float32", sizes)


MOST = 2147482624  # a size to which a kernel may add its tiles and stages, in 32 bits
FEWER = {("sgemm", "M"): 65535 * 128}  # rows of tiles are a grid's second extent


@pytest.mark.parametrize("name", ["hgemm", "igemm", "matmul", "sgemm", "w8a8"])
def test_no_product_adds_a_tile_to_a_size_that_is_next_to_2_to_the_31(name: str) -> None:
    family = load_family(name)
    small = {each: 1 if each.startswith("step") else 16 for each in family.sizes["default"]} | {"B": 1}
    small |= {each: 0 for each in small if each.startswith(("with", "activation", "batch"))}
    for size in ("M", "N", "K"):
        most = small | {size: FEWER.get((name, size), MOST // 16 * 16)}
        assert not family.best(most, family.dtypes[0], lambda least: runs_code(least, "sm_90")).misfit(most)
        for value in (MOST + 16, (1 << 31) - 1):
            sizes = small | {size: value}
            for rung in family.rungs:
                assert f"{size} = {value}; {rung.name} takes" in rung.at(sizes, family.dtypes[0]).misfit(sizes)
            with pytest.raises(TilewrightError, match=f"{size} = {value}"):
                family.best(sizes, family.dtypes[0], lambda least: runs_code(least, "sm_90"))


# M, N, K, and ld of a and b, None for whole rows: few rows make whole tiles, and an ld of 0 makes many rows of one.
THIN = [
    (1, 3, 10_000_000, None, None),
    (2, 2, 16_777_215, None, None),
    (3, 3, 1_000_001, None, None),
    (1, 3, 100_001, None, None),
    (65, 129, 1_000_001, None, None),
    (7, 131_073, 5121, None, 0),
    (131_073, 7, 5121, 0, None),
    (4099, 4101, 999, 1, 1),
    (191, 66, 302_025, 0, None),
    (1023, 1025, 1027, None, None),
]


@pytest.mark.parametrize(("name", "rung"), [("sgemm", "22_packed"), ("hgemm", "32_packed")])
def test_packed_operands_take_no_more_memory_than_a_few_times_the_callers(name: str, rung: str) -> None:
    family, dtype = load_family(name), load_family(name).dtypes[0]
    known = {arg["name"] for arg in family.args} | set(family.rung(rung).kept)
    of = 4 if dtype == "float32" else 2
    takes = []
    for m, n, k, ld_a, ld_b in THIN:
        sizes = {"M": m, "N": n, "K": k, "ld_a": k if ld_a is None else ld_a, "ld_b": n if ld_b is None else ld_b}
        one = family.rung(rung).at(sizes, dtype)
        spec = rung_spec(family, one, dtype)
        packed = {b.name: b for launch in bound_launches(spec, sizes, constants_of(spec)) for b in launch.buffers}
        packed_bytes = sum(b.storage_elements * of for b in packed.values() if b.name not in known)
        has_bytes = of * sum(
            max(columns, rows * min(columns, ld))  # an array that overlaps itself has fewer elements than it shows
            for rows, columns, ld in ((m, k, sizes["ld_a"]), (k, n, sizes["ld_b"]))
        )
        takes.append(one.is_meant_for(sizes, dtype))
        assert takes[-1] == (packed_bytes <= 4 * has_bytes + 64_000_000), (sizes, packed_bytes, has_bytes)
        if not takes[-1]:
            assert chosen(name, dtype, sizes).name != rung
    assert set(takes) == {True, False}


def test_heads_of_no_element_are_refused_by_name() -> None:
    with pytest.raises(TilewrightError, match="01_scalar needs heads of an element or more"):
        chosen("merge_attention", "float32", {"P": 9, "N": 5, "D": 0})
    assert chosen("merge_attention", "float32", {"P": 9, "N": 0, "D": 0})
