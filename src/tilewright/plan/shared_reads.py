"""How many passes of the shared-memory pipe the compute phase takes per warp: bank conflicts from layouts, no GPU.

Shared memory has 32 banks of 4 bytes. A warp's request is served in as many passes (wavefronts) as the busiest bank has
*different* words to give. The lanes' addresses follow from the fragment layouts of ``mma.sync`` (PTX ISA, matrix
fragments for m16n8k16) and of ``ldmatrix``, and from the row pitch. For FMA kernels the usual thread tile is assumed:
half a warp shares a word of one operand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

BANKS = 32
BANK_BYTES = 4
MATRIX_ROWS = 8
MATRIX_ROW_BYTES = 16


def wavefronts(byte_addresses: Iterable[int], width_bytes: int) -> int:
    """Passes for one request: each lane reads ``width_bytes`` from its address; equal words are served once."""
    words_of_bank: dict[int, set[int]] = defaultdict(set)
    for address in byte_addresses:
        for word in range(address // BANK_BYTES, (address + width_bytes - 1) // BANK_BYTES + 1):
            words_of_bank[word % BANKS].add(word)
    return max((len(words) for words in words_of_bank.values()), default=0)


def ldmatrix_wavefronts(matrices: int, pitch_bytes: int) -> int:
    """Passes of one ``ldmatrix`` of 1, 2 or 4 matrices: eight rows of 16 bytes each, a pitch apart."""
    rows = (row * pitch_bytes for row in range(MATRIX_ROWS))
    return matrices * wavefronts(rows, MATRIX_ROW_BYTES)


def row_fragment_wavefronts(pitch_bytes: int) -> int:
    """Passes for a 32-bit load of a fragment that lies along its rows: row ``lane / 4``, word ``lane % 4``."""
    return wavefronts((lane // 4 * pitch_bytes + lane % 4 * BANK_BYTES for lane in range(32)), BANK_BYTES)


def gathered_fragment_wavefronts(element_bytes: int, pitch_bytes: int) -> int:
    """Passes for one element of a fragment that lies across the rows: a row-major B, one byte or half at a time.

    A lane's register holds ``n = 4 / element_bytes`` consecutive k of column ``lane / 4``, from k = ``n * (lane % 4)``.
    """
    k_per_register = BANK_BYTES // element_bytes
    addresses = (lane % 4 * k_per_register * pitch_bytes + lane // 4 * element_bytes for lane in range(32))
    return wavefronts(addresses, element_bytes)


def shared_read_wavefronts(
    shared_loads: Mapping[str, float],
    element_bytes: int,
    pitch_a_bytes: int,
    pitch_b_bytes: int,
    matrix: bool,
) -> float:
    """Passes per warp and tile of all shared loads in the compute phase.

    Args:
        shared_loads: instructions per warp and tile by SASS opcode, modifiers included.
        element_bytes: of the operands.
        pitch_a_bytes, pitch_b_bytes: row pitch of both operands in shared memory.
        matrix: the loads feed matrix instructions; else FMA.
    """
    return sum(
        count * _passes(opcode, element_bytes, pitch_a_bytes, pitch_b_bytes, matrix)
        for opcode, count in shared_loads.items()
    )


def _passes(opcode: str, element_bytes: int, pitch_a_bytes: int, pitch_b_bytes: int, matrix: bool) -> int:
    parts = opcode.split(".")
    if parts[0] == "LDSM":
        matrices = int(parts[-1]) if parts[-1].isdigit() else 1
        # Transposed matrices are B's, kept row-major; the others are A's, or a B kept by columns.
        return ldmatrix_wavefronts(matrices, pitch_b_bytes if "MT88" in parts else pitch_a_bytes)
    if matrix and element_bytes < BANK_BYTES and any(part in ("U8", "S8", "U16", "S16") for part in parts):
        return gathered_fragment_wavefronts(element_bytes, pitch_b_bytes)
    if matrix and len(parts) == 1:
        return row_fragment_wavefronts(pitch_a_bytes)
    # Of a warp's 128-bit loads half the lanes ask for the same words: 256 bytes, two passes.
    return 2 if "128" in parts else 1
