"""The tma variant in the emulator: the bits of its baseline, with tensor maps and where no map can be made."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from mbarrier_harness import EXAMPLES, check, check_variant, opened, refused, rewritten, tiled
from mbarrier_kernels import SIBLINGS, UNBOXED

from tilewright.launch.bind import BoundScalar, bind
from tilewright.rewrite import tma
from tilewright.rewrite.result import RewrittenSource

Sizes = Mapping[str, int]


def trips(m: int, n: int, step: int, rest: int, counts: tuple[int, ...]) -> dict[str, Sizes]:
    """Size sets with so many whole tiles, and ``rest`` of another one."""
    return {f"{t} tiles": {"M": m, "N": n, "K": t * step + rest} for t in counts}


def flag(name: str, sizes: Sizes) -> int | float:
    """What the launch passes for ``use_maps``."""
    found = opened(name)
    assert found.compiler.spec is not None
    launch = bind(found.compiler.spec, sizes, found.kernel.constants.names(), rewritten(name, "tma", 2).launch)
    return next(a.value for a in launch.arguments if isinstance(a, BoundScalar) and a.name == "use_maps")


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_the_ring_fills_goes_round_and_drains(stages: int) -> None:
    counts = (0, 1, stages - 1, stages, stages + 1)
    found = check_variant("square", "tma", stages, trips(16, 16, 16, 0, counts))
    assert found.is_clean, found


SHAPES: Mapping[str, Sizes] = {
    "whole": {"M": 32, "N": 32, "K": 64},
    "edges": {"M": 20, "N": 24, "K": 40},
    "no map": {"M": 17, "N": 21, "K": 37},
}


def test_what_lies_outside_is_zero_with_maps_and_without() -> None:
    assert [flag("square", sizes) for sizes in SHAPES.values()] == [1, 1, 0]
    assert flag("square", {"M": 16, "N": 16, "K": 0}) == 0
    found = check_variant("square", "tma", 3, SHAPES)
    assert found.is_clean, found


def test_padded_rows_are_copied_with_their_padding() -> None:
    written = rewritten("halves", "tma", 2)
    assert [m.box for m in written.launch.tensor_maps] == [(24, 32), (40, 16)]
    found = check_variant("halves", "tma", 2, {"edges": {"M": 20, "N": 40, "K": 40}})
    assert found.is_clean, found


def test_a_block_that_goes_around_more_than_once() -> None:
    found = check_variant("persistent", "tma", 3, trips(40, 48, 16, 8, (1, 3)))
    assert found.is_clean, found


def test_a_dynamic_ring() -> None:
    written = tma.rewrite(tiled("square"), 3, 4096)
    assert isinstance(written, RewrittenSource)
    assert written.launch.shared_bytes == 3 * 2 * 16 * 16 * 4
    found = check("square", written.text, written.launch, trips(16, 24, 16, 4, (1, 4)))
    assert found.is_clean, found


@pytest.mark.parametrize("name", ["hgemm_mma", "igemm_wmma", "hgemm_wmma"])
def test_examples(name: str) -> None:
    assert (EXAMPLES / f"{name}.cu").exists()
    found = check_variant(name, "tma", 3, {"one": {"M": 80, "N": 48, "K": 112}})
    assert found.is_clean, found


@pytest.mark.parametrize("name", [*SIBLINGS, *UNBOXED, "moving", "sgemm_float4"])
def test_siblings_are_refused(name: str) -> None:
    codes = {
        "leaving": "divergent_barrier",
        "scaled": "converts_type",
        "padded_by_one": "misaligned",
        "narrow": "misaligned",
    }
    assert refused(name, "tma").code == codes.get(name, "not_contiguous")


# A mutation of the text of square's ring of three: what is there once, what is there instead; one of what must find it
# (nothing: wrong values).
MUTANTS: Mapping[str, tuple[str, str, set[str]]] = {
    "no wait": ("tile_barrier_wait(&tile_full[read_stage], parity);", "", {"read_in_flight"}),
    "parity stands still": ("parity ^= read_stage == 0;", "", {"read_in_flight", "deadlock"}),
    "too few bytes": ("16 * 16 * 4 + 16 * 16 * 4", "16 * 16 * 4", {"read_in_flight"}),
    "too many bytes": ("16 * 16 * 4 + 16 * 16 * 4", "16 * 16 * 4 + 17 * 16 * 4", {"deadlock"}),
    "another stage": ("copy_tile(t_ahead, write_stage)", "copy_tile(t_ahead, read_stage)", {"deadlock"}),
    "no barrier in front of the refill": (
        "__syncthreads();  // what threads copied, too", "//", {"race_write_after_read"}
    ),
    "the last tile is skipped": ("if (t_ahead < ", "if (t_ahead + 1 < ", {"deadlock"}),
    "another column": ("&As_map, 16 * t,", "&As_map, 16 * t + 4,", set()),
    "the other matrix": ("&Bs_map,", "&As_map,", set()),
    "every thread copies": ("            if (copy_thread == 0) {\n", "            if (true) {\n", set()),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found(name: str) -> None:
    old, new, kinds = MUTANTS[name]
    written = rewritten("square", "tma", 3)
    assert old in written.text
    text = written.text.replace(old, new)
    found = check("square", text, written.launch, {"ragged": {"M": 16, "N": 16, "K": 16 * 5 + 4}})
    assert not found.is_clean
    assert not kinds or kinds & found.kinds, found


def test_a_flag_that_lies() -> None:
    """The original's way must be taken where no map is passed."""
    written = rewritten("square", "tma", 3)
    text = written.text.replace("use_maps != 0", "true")
    assert text != written.text
    assert not check("square", text, written.launch, {"no map": {"M": 16, "N": 16, "K": 37}}).is_clean
