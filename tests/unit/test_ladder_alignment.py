"""Arrays that begin anywhere: a rung that reads 16 bytes at a time is not taken for them, or says what it needs."""

from __future__ import annotations

import pytest

from tilewright.errors import TilewrightError
from tilewright.ladder.family import load_family
from tilewright.ladder.launching import check_alignment, low_bits
from tilewright.ladder.views import DeviceView

FAMILY = load_family("sgemm")
SIZES = FAMILY.sizes["default"]


def views(*pointers: int) -> dict[str, DeviceView]:
    return {
        name: DeviceView(pointer, (64, 64), (64, 1), "float32", 0, None)
        for name, pointer in zip("abc", pointers, strict=False)
    }


def best(*pointers: int) -> str:
    return FAMILY.best(SIZES, "float32", lambda arch: True, low_bits(views(*pointers))).name


def test_the_rung_follows_the_addresses() -> None:
    assert best(512, 1024, 2048) == best(512, 1040, 2064) == "19_stream_k"
    for odd in ((516, 1024, 2048), (512, 1032, 2048), (512, 1024, 2052)):
        assert best(*odd) == "22_packed"


def test_a_named_rung_says_what_it_needs() -> None:
    rung = FAMILY.rung("04_vector")
    check_alignment(rung, views(512, 1040, 2064))
    with pytest.raises(TilewrightError, match="'b' must begin at a multiple of 16 bytes for 04_vector"):
        check_alignment(rung, views(512, 1028, 2048))
    check_alignment(FAMILY.rung("03_thread_tile"), views(516, 1028, 2052))


def test_rungs_with_vector_accesses_ask_for_whole_pieces() -> None:
    for rung in FAMILY.rungs:
        text = rung.file.read_text("utf-8")
        stores_pieces = "float4*>(&c[" in text or "float4*>(c)[" in text
        assert rung.align_bytes == (16 if stores_pieces else 1), rung.name
        for name, limit in ((n, rung.limits[f"ld_{n}"]) for n in "ab" if f"ld_{n}" in rung.limits):
            pieces = (f"float4*>(&{name}[", f"&{name}[k * ld_{name} + column], 16", f"{name}_next, 16", f"&{name}_map")
            copies_pieces = any(piece in text for piece in pieces)
            assert limit.multiple_of == (4 if copies_pieces else 1), (rung.name, name)
