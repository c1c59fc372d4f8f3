"""``mma.sp``: A keeps two of four neighbours, and metadata says which.

PTX ISA, "Matrix multiply-accumulate operation using mma.sp instruction with sparse matrix A". Four bits describe a
chunk of a row: the places of its two kept elements, the first in the low bits. A chunk is four elements; of tf32 it is
two, with one kept; of 4-bit types it is four pairs, with two pairs kept. The selector names the lanes of each group of
four that hold the metadata:

- 16- and 32-bit elements: one lane (the first k), or a pair; bits 0–15 of a lane are row g, bits 16–31 row g + 8;
- 8- and 4-bit elements: a pair, or all four; even lanes are row g, odd lanes row g + 8, 32 bits each.
"""

from __future__ import annotations

import numpy as np

from tilewright.emulator.matrix.elements import element_bits
from tilewright.emulator.matrix.fragments import mma_accumulator, parse_shape, sparse_multiplicand
from tilewright.emulator.matrix.mma import PLAIN, MmaOptions, Types, add_products, check_counts, stored_element
from tilewright.emulator.matrix.tiles import Array, Registers, matrix_a, matrix_b
from tilewright.errors import TilewrightError


def mma_sp(
    shape: str,
    types: Types,
    a_regs: Registers,
    b_regs: Registers,
    c_regs: Registers,
    metadata: Array,
    selector: int,
    options: MmaOptions = PLAIN,
) -> tuple[Array, ...]:
    """D of ``mma.sp::ordered_metadata.sync.aligned`` (and of ``mma.sp``).

    Args:
        shape, types, b_regs, c_regs, options: as ``mma``; k counts the elements of B.
        a_regs: the kept half of A.
        metadata: int32[32 * W].
        selector: which lanes of each group of four hold the metadata.

    Raises:
        TilewrightError: no such instruction, or the selector names lanes that there are not.
    """
    d_type, a_type, b_type, c_type = types
    a_layout = sparse_multiplicand(shape, stored_element(a_type, options.kind), "a")
    b_layout = sparse_multiplicand(shape, stored_element(b_type, options.kind), "b")
    check_counts(shape, (len(a_regs), len(b_regs)), (a_layout.registers, b_layout.registers))
    a = expand(matrix_a(a_regs, a_layout), chunk_codes(shape, a_layout.element, metadata, selector), a_layout.element)
    return add_products(a, matrix_b(b_regs, b_layout), mma_accumulator(shape, d_type), c_regs, c_type, options)


def chunk_codes(shape: str, element: str, metadata: Array, selector: int) -> Array:
    """The four bits of each chunk of each row: uint8[W, 16, chunks]."""
    k, bits = parse_shape(shape)[2], element_bits(element)
    chunks = k // {32: 2, 4: 8}.get(bits, 4)
    lanes = 16 * chunks * 4 // (8 * 32)
    if not 0 <= selector < 4 // lanes:
        raise TilewrightError(
            "emulator/sparsity_selector",
            f"The sparsity selector of {shape} {element} is below {4 // lanes}, not {selector}.",
        )
    groups: Array = np.ascontiguousarray(metadata).view(np.uint32).reshape(-1, 8, 4)
    words = np.ascontiguousarray(groups[:, :, selector * lanes : (selector + 1) * lanes])
    if bits >= 16:  # to [W, row half, g, lane]
        parts = words.view(np.uint16).reshape(-1, 8, lanes, 2).transpose(0, 3, 1, 2)
    else:  # to [W, row half, g, k half]
        parts = words.reshape(-1, 8, lanes // 2, 2).transpose(0, 3, 1, 2)
    raw = np.ascontiguousarray(parts).view(np.uint8).reshape(len(words), 16, -1)
    return np.stack([raw & 15, raw >> 4], axis=-1).reshape(len(words), 16, chunks)


def expand(kept: Array, codes: Array, element: str) -> Array:
    """A with its zeros: [W, 16, k] of the kept [W, 16, k / 2] and the codes of ``chunk_codes``."""
    first, second = (codes & 3).astype(np.int64), (codes >> 2).astype(np.int64)
    chunks = np.arange(codes.shape[2])
    if element == "tf32":
        places = 2 * chunks + (first >> 1)
    else:
        places = np.stack([4 * chunks + first, 4 * chunks + second], axis=-1).reshape(*codes.shape[:2], -1)
    if element_bits(element) == 4:
        places = np.stack([2 * places, 2 * places + 1], axis=-1).reshape(*codes.shape[:2], -1)
    whole = np.zeros((*kept.shape[:2], 2 * kept.shape[2]), kept.dtype)
    starts = whole.shape[2] * np.arange(whole.shape[0] * whole.shape[1]).reshape(*whole.shape[:2], 1)
    whole.reshape(-1)[places + starts] = kept
    return whole
