"""Which thread holds which element: thread-value layouts of matrix instructions, as CuTe writes them.

A thread-value layout maps (thread, value) to an element of a tile, counted down the columns: element (i, j) of a tile
of R rows is i + R·j. A has the tile (M, K), B is (N, K) as in CuTe, C (and D) is (M, N).

All fragments of ``mma.sync`` follow one rule of the PTX ISA: of a block of 8 by 4p, lane 4g + t holds row g and the p
neighbours along k from p·t on, and the registers run through the blocks, rows first; p elements fill 32 bits.
Accumulators are blocks of 8 by 8 with p = 2.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.layout.algebra import compose
from tilewright.layout.layout import AnyLayout, ComposedLayout, Layout, Swizzle, bundle, from_flat
from tilewright.layout.recast import recast
from tilewright.layout.tuples import modes

REGISTER_BITS = 32


@dataclass(frozen=True)
class Operand:
    """One operand of an instruction.

    Attributes:
        layout: (thread, value) to element of the tile, counted down the columns.
        rows, cols: of the tile: (M, K) of a, (N, K) of b, (M, N) of c.
        row_name, col_name: what they are called.
        bits: of an element.
    """

    layout: Layout
    rows: int
    cols: int
    row_name: str
    col_name: str
    bits: int


@dataclass(frozen=True)
class Atom:
    """An instruction.

    Attributes:
        name: ``mma.m16n8k16.f16``.
        threads: that work together: 32, or 128 of a warpgroup.
        operands: by name: a, b, c; ldmatrix has the one, d.
        source: section of the PTX ISA.
        notes: what the layout does not say.
    """

    name: str
    threads: int
    operands: Mapping[str, Operand]
    source: str
    notes: tuple[str, ...] = field(default=())


@cache
def table() -> Mapping[str, Any]:
    """``data/atoms.toml``."""
    parsed: Mapping[str, Any] = tomllib.loads(
        files("tilewright.layout").joinpath("data/atoms.toml").read_text(encoding="utf-8")
    )
    return parsed


def element_bits(element: str) -> int:
    """Bits of an element by its PTX name. Raises TilewrightError: ``layout/unknown_element``."""
    bits = table()["bits"].get(element)
    if bits is None:
        known = ", ".join(table()["bits"])
        raise TilewrightError("layout/unknown_element", f"{element!r} is no element that is known: {known}.")
    return int(bits)


def atom_names() -> tuple[str, ...]:
    """Every atom; wgmma stands with n = 64 for each of its n."""
    data = table()
    mma = [
        f"mma.{mn}k{k}.{element}"
        for mn, elements in data["mma"]["shapes"].items()
        for element, ks in elements.items()
        for k in ks
    ]
    moves = [
        f"{verb}.x{count}{trans}"
        for verb in ("ldmatrix", "stmatrix")
        for count in data["matrix"]["counts"]
        for trans in ("", ".trans")
    ]
    wgmma = [f"wgmma.m64n64k{_wgmma_k(element)}.{element}" for element in data["wgmma"]["elements"]]
    return (*mma, *moves, *wgmma)


def atom(name: str) -> Atom:
    """An atom by name: ``mma.m16n8k16.f16``, ``ldmatrix.x4.trans``, ``wgmma.m64n128k16.bf16``.

    Raises:
        TilewrightError: ``layout/unknown_atom``; ``layout/opaque_atom`` for WMMA, whose fragments the CUDA documents
            leave open, and for the one fragment of Volta that nothing here could check.
    """
    if name.startswith("wmma"):
        raise TilewrightError(
            "layout/opaque_atom",
            "WMMA fragments have no documented layout: which element a thread holds may differ between architectures.",
            {"atom": name},
            "Use the mma.sync atom of the same shape, such as mma.m16n8k16.f16, with ldmatrix.",
        )
    found = re.fullmatch(r"(mma|wgmma)\.m(\d+)n(\d+)k(\d+)\.(\w+)", name)
    if found is not None:
        m, n, k = (int(found[i]) for i in (2, 3, 4))
        made = _mma(name, m, n, k, found[5]) if found[1] == "mma" else _wgmma(name, m, n, k, found[5])
    else:
        moved = re.fullmatch(r"(ldmatrix|stmatrix)\.x(\d+)(\.trans)?", name)
        made = _matrix_move(name, int(moved[2]), moved[3] is not None) if moved is not None else None
    if made is None:
        raise TilewrightError(
            "layout/unknown_atom",
            f"{name!r} is no atom that is known.",
            {"atom": name},
            "`tilewright layout atoms` lists them; wgmma has n = 8, 16, … 256.",
        )
    return made


def multiplicand(outer: int, k: int, bits: int, rows_named: str) -> Operand:
    """A (or, as (N, K), B) of ``mma.sync``: outer by k elements of ``bits``."""
    neighbours = max(1, REGISTER_BITS // bits)
    values = [(neighbours, outer), (outer // 8, 8), (k // (4 * neighbours), 4 * neighbours * outer)]
    return Operand(_tv(outer, neighbours, values), outer, k, rows_named, "k", bits)


def accumulator(m: int, n: int, bits: int) -> Operand:
    """C and D: m by n."""
    return Operand(_tv(m, 2, [(2, m), (m // 8, 8), (n // 8, 8 * m)]), m, n, "m", "n", bits)


def _tv(rows: int, neighbours: int, values: list[tuple[int, int]]) -> Layout:
    return bundle(Layout((4, 8), (neighbours * rows, 1)), from_flat([pair for pair in values if pair[0] > 1]))


def _mma(name: str, m: int, n: int, k: int, element: str) -> Atom | None:
    data = table()["mma"]
    if (m, n, k, element) == (8, 8, 4, "f16"):
        raise TilewrightError(
            "layout/opaque_atom",
            "mma.m8n8k4.f16 is Volta's: four products by quad-pairs, another layout for each of row and col.",
            {"atom": name},
            "It is not emulated either, so its layout could not be checked here; use mma.m16n8k8.f16.",
        )
    if k not in data["shapes"].get(f"m{m}n{n}", {}).get(element, ()):
        return None
    bits = element_bits(element)
    result = {"f64": "f64", "s8": "s32", "u8": "s32", "s4": "s32", "u4": "s32"}.get(element, "f32")
    notes = ("c is the same for f16 accumulators: two neighbours then share a register.",) if result == "f32" else ()
    operands = {
        "a": multiplicand(m, k, bits, "m"),
        "b": multiplicand(n, k, bits, "n"),
        "c": accumulator(m, n, element_bits(result)),
    }
    return Atom(name, 32, operands, data["source"], notes)


def _wgmma_k(element: str) -> int:
    return int(table()["wgmma"]["k_bytes"]) * 8 // element_bits(element)


def _wgmma(name: str, m: int, n: int, k: int, element: str) -> Atom | None:
    data = table()["wgmma"]
    if element not in data["elements"] or m != data["m"] or n % data["n_step"] or not 0 < n <= data["n_max"]:
        return None
    if k != _wgmma_k(element):
        return None
    bits = element_bits(element)
    operands = {
        "a": _of_warpgroup(multiplicand(16, k, bits, "m"), m),
        "c": _of_warpgroup(accumulator(16, n, element_bits("s32" if element in ("s8", "u8") else "f32")), m),
    }
    note = "b, and a unless it is in registers, lie in shared memory: see `wgmma.smem` layouts."
    return Atom(name, 128, operands, data["source"], (note,))


def _of_warpgroup(warp: Operand, rows: int) -> Operand:
    """Sixteen rows of each of four warps, one below the other."""
    own = compose(Layout((warp.rows, warp.cols), (1, rows)), warp.layout)
    lanes, values = own[0], own[1]
    threads = Layout((*modes(lanes.shape), rows // warp.rows), (*modes(lanes.stride), warp.rows))
    return Operand(bundle(threads, values), rows, warp.cols, warp.row_name, warp.col_name, warp.bits)


def _matrix_move(name: str, count: int, transposed: bool) -> Atom | None:
    data = table()["matrix"]
    if count not in data["counts"]:
        return None
    rows = int(data["rows"]) * count
    cols = int(data["row_bytes"]) * 8 // element_bits("f16")
    block = int(data["rows"])
    threads, pair = ((2, rows), 1) if transposed else ((2 * rows, 1), rows)
    values = [(2, pair), (count, block)] if count > 1 else [(2, pair)]
    layout = bundle(Layout((4, 8), threads), from_flat(values))
    notes = (
        f"Matrices of 8 x 8 one below the other. The 16 bytes of row i belong to the address of thread i; "
        f"{rows} of the 32 threads give one.",
    )
    return Atom(name, 32, {"d": Operand(layout, rows, cols, "row", "col", 16)}, data["source"], notes)


def wgmma_smem(mode: str, element: str, major: str = "k") -> AnyLayout:
    """The canonical shared-memory layout of a wgmma operand: the atom that is repeated, in elements.

    Args:
        mode: none, 32B, 64B or 128B.
        major: ``k``: (8 rows, one row of the pattern along k); ``mn``: (one row of the pattern along m or n, 8 of k).

    Raises:
        TilewrightError: ``layout/unknown_atom``, for another mode, or an element that has no mn-major operand.
    """
    data = table()["wgmma_smem"]
    if mode not in data["modes"] or major not in ("k", "mn"):
        modes = ", ".join(data["modes"])
        raise TilewrightError("layout/unknown_atom", f"wgmma's shared memory has the modes {modes}; major is k or mn.")
    bits = element_bits(element)
    if major == "mn" and bits != 16:
        raise TilewrightError(
            "layout/unknown_atom", f"Only 16-bit operands of wgmma may be mn-major; {element} has {bits}."
        )
    width = int(data["modes"][mode]["width_bytes"])
    rows = int(data["rows"])
    whole = Layout((rows, width), (width, 1)) if major == "k" else Layout((width, rows), (1, width))
    swizzle_bits = int(data["modes"][mode]["bits"])
    if not swizzle_bits:
        return recast(whole, 8, bits)
    return recast(ComposedLayout(Swizzle(swizzle_bits, int(data["base"]), int(data["shift"])), 0, whole), 8, bits)
