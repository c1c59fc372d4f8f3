"""Thread-value layouts of atoms: as the ISA writes them, and as the emulator's own instructions move elements."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from async_harness import run
from matrix_samples import isa_tables

from tilewright.emulator.tensor.descriptors import chunk_addresses, decode, encode
from tilewright.errors import TilewrightError
from tilewright.layout.atoms import Operand, atom, atom_names, element_bits, wgmma_smem
from tilewright.layout.layout import Layout
from tilewright.layout.notation import parse_layout
from tilewright.layout.tiled import tiled_atom, tiled_mma

MMA = [name for name in atom_names() if name.startswith("mma.")]
RUN = [name for name in MMA if name.split(".")[2] not in ("s4", "u4")]
DTYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f64": np.float64, "s8": np.int8, "u8": np.uint8,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip
TYPES = {"f64": "f64.f64.f64.f64", "s8": "s32.s8.s8.s32", "u8": "s32.u8.u8.s32"}


def places(operand: Operand) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) of [thread, value]."""
    offsets = np.array(operand.layout.offsets()).reshape(-1, operand.layout[0].size).T
    return offsets % operand.rows, offsets // operand.rows


@pytest.mark.parametrize("name", MMA)
def test_fragments_are_as_the_isa_writes_them(name: str) -> None:
    _, shape, element = name.split(".")
    found = atom(name).operands
    for which, other in (("a", "a"), ("b", "b"), ("c", "c")):
        rows, cols = isa_tables(shape, element, other)
        here = places(found[which])
        want = (cols, rows) if which == "b" else (rows, cols)  # B is (n, k) here, k by n in the ISA
        np.testing.assert_array_equal(here[0], want[0])
        np.testing.assert_array_equal(here[1], want[1])


def registers(matrix: np.ndarray, operand: Operand) -> np.ndarray:
    """int32[32, registers] that hold a matrix as the layout says."""
    rows, cols = places(operand)
    return np.ascontiguousarray(matrix[rows, cols]).view(np.int32)


def mma_text(name: str, counts: tuple[int, int, int]) -> str:
    """Loads of all registers, the instruction, stores of its result."""
    _, shape, element = name.split(".")
    wide = element == "f64"
    size, move = (8, "b64") if wide else (4, "b32")
    total = sum(counts[:2])
    kind = "%e" if wide else "%r"
    result = "%e" if wide else "%r" if element in ("s8", "u8") else "%f"
    lines = [".reg .f64 %e<48>;", f"mad.lo.u32 %r58, %r60, {size * total}, 0;", "cvt.u64.u32 %d1, %r58;"]
    lines.append("add.u64 %d1, %d60, %d1;")
    lines += [f"ld.global.{move} {kind}{i}, [%d1+{size * i}];" for i in range(total)]
    out = [f"{result}{40 + i}" for i in range(counts[2])]
    zero = {"%e": "0d0000000000000000", "%f": "0f00000000", "%r": "0"}[result]
    lines += [f"mov.{'f64' if wide else 'b32'} {register}, {zero};" for register in out]
    joined = [", ".join(f"{kind}{i}" for i in span) for span in (range(counts[0]), range(counts[0], total))]
    types = TYPES.get(element, f"f32.{element}.{element}.f32")
    lines.append(
        f"mma.sync.aligned.{shape}.row.col.{types} {{{', '.join(out)}}}, {{{joined[0]}}}, {{{joined[1]}}}, "
        f"{{{', '.join(out)}}};"
    )
    lines += [f"mad.lo.u32 %r58, %r60, {size * counts[2]}, 0;", "cvt.u64.u32 %d1, %r58;", "add.u64 %d1, %d61, %d1;"]
    lines += [f"st.global.{move} [%d1+{size * i}], {register};" for i, register in enumerate(out)]
    return "\n".join(lines)


def product_by(name: str, operands: dict[str, Operand]) -> tuple[np.ndarray, np.ndarray]:
    """(D as the emulator's mma and the layouts give it, A times B), of random whole numbers."""
    element = name.split(".")[2]
    rng = np.random.default_rng(7)
    low = 0 if element == "u8" else -3
    a, b = (
        rng.integers(low, 4, (operands[which].rows, operands[which].cols)).astype(DTYPES[element]) for which in "ab"
    )
    held = [registers(matrix, operands[which]) for matrix, which in ((a, "a"), (b, "b"))]
    words = 2 if element == "f64" else 1
    rows, cols = places(operands["c"])
    counts = (held[0].shape[1] // words, held[1].shape[1] // words, rows.shape[1])
    done = run(mma_text(name, counts), np.hstack(held).reshape(-1), 32 * rows.shape[1] * words)
    assert done.emulation.hazards == ()
    kind = {"f64": np.float64, "s8": np.int32, "u8": np.int32}.get(element, np.float32)
    d = np.zeros((operands["c"].rows, operands["c"].cols))
    d[rows, cols] = done.out.view(kind).reshape(32, -1)
    return d, a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize("name", RUN)
def test_the_emulated_mma_multiplies_what_the_layouts_hold(name: str) -> None:
    found, want = product_by(name, dict(atom(name).operands))
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    ("which", "broken"),
    [
        ("a", "((4,8),(2,2,2)):((32,1),(16,128,8))"),  # registers across before down
        ("b", "((4,8),(2,2)):((16,1),(64,8))"),
        ("c", "((8,4),(2,2)):((1,32),(16,8))"),  # threads down before across
    ],
)
def test_a_wrong_layout_is_noticed(which: str, broken: str) -> None:
    operands = dict(atom("mma.m16n8k16.f16").operands)
    layout = parse_layout(broken)
    assert isinstance(layout, Layout)
    assert sorted(layout.offsets()) == sorted(operands[which].layout.offsets())  # it still holds each element once
    operands[which] = Operand(
        layout, *(getattr(operands[which], f) for f in ("rows", "cols", "row_name", "col_name")), 16
    )
    found, want = product_by("mma.m16n8k16.f16", operands)
    assert not np.array_equal(found, want)


MOVES = [name for name in atom_names() if "matrix.x" in name]


@pytest.mark.parametrize("name", MOVES)
def test_matrix_moves_hold_what_the_layout_says(name: str) -> None:
    """Each element is its own number, so that the place of every one is seen."""
    verb, count, *transposed = name.split(".")
    operand = atom(name).operands["d"]
    matrix = np.arange(operand.rows * operand.cols, dtype=np.int16).reshape(operand.rows, operand.cols)
    number = int(count[1:])
    named = ", ".join(f"%r{i}" for i in range(1, number + 1))
    trans = ".trans" if transposed else ""
    lanes = f"and.b32 %r20, %r60, {operand.rows - 1};\nmad.lo.u32 %r21, %r20, 16, %r61;\n"
    if verb == "ldmatrix":
        words = matrix.view(np.int32).reshape(-1)
        fill = f"setp.lt.u32 %p1, %r60, {operand.rows};\nmul.lo.u32 %r22, %r60, 16;\ncvt.u64.u32 %d1, %r22;\n"
        fill += "add.u64 %d1, %d60, %d1;\n@%p1 ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%d1];\n"
        fill += "add.u32 %r23, %r61, %r22;\n@%p1 st.shared.v4.b32 [%r23], {%r10, %r11, %r12, %r13};\nbar.sync 0;\n"
        load = f"ldmatrix.sync.aligned.m8n8.{count}{trans}.shared.b16 {{{named}}}, [%r21];\n"
        done = run(fill + lanes + load + stored(number), words, 32 * number)
        held = done.out.reshape(32, number).view(np.int16)
        rows, cols = places(operand)
        np.testing.assert_array_equal(held, matrix[rows, cols])
    else:
        held = registers(matrix, operand)
        load = f"mul.lo.u32 %r22, %r60, {4 * number};\ncvt.u64.u32 %d1, %r22;\nadd.u64 %d1, %d60, %d1;\n"
        load += "".join(f"ld.global.b32 %r{i + 1}, [%d1+{4 * i}];\n" for i in range(number))
        store = f"stmatrix.sync.aligned.m8n8.{count}{trans}.shared.b16 [%r21], {{{named}}};\nbar.sync 0;\n"
        words = operand.rows * 4
        copy = "".join(
            f"add.u32 %r22, %r59, {128 * i};\nadd.u32 %r23, %r61, %r22;\nld.shared.b32 %r1, [%r23];\n"
            f"cvt.u64.u32 %d1, %r22;\nadd.u64 %d1, %d61, %d1;\nst.global.b32 [%d1], %r1;\n"
            for i in range(words // 32)
        )
        done = run(load + lanes + store + copy, held.reshape(-1), words)
        np.testing.assert_array_equal(done.out.view(np.int16).reshape(operand.rows, operand.cols), matrix)
    assert done.emulation.hazards == ()


def stored(number: int) -> str:
    text = f"mul.lo.u32 %r22, %r60, {4 * number};\ncvt.u64.u32 %d1, %r22;\nadd.u64 %d1, %d61, %d1;\n"
    return text + "".join(f"st.global.b32 [%d1+{4 * i}], %r{i + 1};\n" for i in range(number))


@pytest.mark.parametrize("element", ["f16", "bf16", "tf32", "e4m3", "s8"])
def test_wgmma_registers_are_four_mma_fragments_one_below_the_other(element: str) -> None:
    k = 256 // element_bits(element)
    whole = atom(f"wgmma.m64n24k{k}.{element}").operands
    for which, rows in (("a", 16), ("c", 16)):
        operand = whole[which]
        row, col = places(operand)
        assert sorted(operand.layout.offsets()) == list(range(64 * operand.cols))
        for warp in range(4):
            part = slice(32 * warp, 32 * warp + 32)
            if which == "a":
                single = places(atom(f"mma.m16n8k{k}.{element}").operands["a"])
                np.testing.assert_array_equal(row[part] - rows * warp, single[0])
                np.testing.assert_array_equal(col[part], single[1])
            else:  # n of 24: three accumulators of m16n8 side by side
                single = places(atom("mma.m16n8k16.f16").operands["c"])
                for i in range(3):
                    np.testing.assert_array_equal(row[part, 4 * i : 4 * i + 4] - rows * warp, single[0])
                    np.testing.assert_array_equal(col[part, 4 * i : 4 * i + 4] - 8 * i, single[1])


@pytest.mark.parametrize("element", ["f16", "tf32", "s8"])
@pytest.mark.parametrize("mode", ["none", "32B", "64B", "128B"])
def test_shared_memory_of_wgmma_is_where_the_emulator_reads_it(mode: str, element: str) -> None:
    """K-major: eight rows of one pattern, which the emulator reads through a descriptor, 32 bytes of k at a time."""
    layout, size = wgmma_smem(mode, element), element_bits(element) // 8
    width = layout.size * size // 8  # bytes of a row
    for start in range(0, max(32, width), 32):
        # Without a swizzle the second chunk of k is an atom of its own, 128 bytes on.
        fields = decode(encode(start, 128, 8 * width, mode))
        chunks = chunk_addresses(fields, 8, 32, size, True)[0]
        for row in range(8):
            for chunk in range(2):
                byte = start + 16 * chunk
                atom_number, inside = divmod(byte, width)
                here = layout((row, inside // size)) * size + 128 * atom_number
                assert chunks[row, chunk] == here


@pytest.mark.parametrize("mode", ["none", "32B", "64B", "128B"])
def test_shared_memory_of_a_transposed_operand(mode: str) -> None:
    layout = wgmma_smem(mode, "f16", "mn")
    width = layout.size * 2 // 8
    rows = max(8, width // 2)
    fields = decode(encode(0, 8 * width, 8 * width, mode))
    chunks = chunk_addresses(fields, rows, 32, 2, False)[0]
    for k in range(8):
        for chunk in range(rows // 8):
            assert chunks[k, chunk] == 2 * layout((8 * chunk, k))


def test_a_tiled_mma_covers_its_tile() -> None:
    """Each element of C once; of A and B once for each warp that needs it; and C's owner holds the rows it needs."""
    whole = tiled_mma(atom("mma.m16n8k16.f16"), Layout((2, 4, 1), (1, 2, 0)), (64, 64, 32))
    assert whole.threads == 256
    for which, copies in (("a", 4), ("b", 2), ("c", 1)):
        operand = whole.operands[which]
        counts = np.bincount(np.array(operand.layout.offsets()), minlength=operand.rows * operand.cols)
        assert (counts == copies).all()
    (a_rows, _), (b_rows, _), (c_rows, c_cols) = (places(whole.operands[which]) for which in "abc")
    for thread in range(256):
        warp = slice(thread // 32 * 32, thread // 32 * 32 + 32)
        assert set(c_rows[thread]) <= set(a_rows[warp].ravel())
        assert set(c_cols[thread]) <= set(b_rows[warp].ravel())


def test_a_tiled_matrix_load_covers_its_tile() -> None:
    whole = tiled_atom(atom("ldmatrix.x2"), Layout((2, 2), (2, 1)), (32, 32))
    rows, cols = places(whole)
    assert rows.shape == (128, 8)
    assert sorted(whole.layout.offsets()) == list(range(32 * 32))
    single = places(atom("ldmatrix.x2").operands["d"])
    for warp in range(4):  # warp 2r + c: 16 rows from 16 r, 8 columns from 8 c; and once more 16 columns on
        part = slice(32 * warp, 32 * warp + 32)
        np.testing.assert_array_equal(rows[part, :4], single[0] + 16 * (warp // 2))
        np.testing.assert_array_equal(cols[part, :4], single[1] + 8 * (warp % 2))
        np.testing.assert_array_equal(cols[part, 4:], single[1] + 8 * (warp % 2) + 16)


@pytest.mark.parametrize("name", ["wmma.m16n16k16.f16", "mma.m8n8k4.f16"])
def test_what_has_no_known_layout_says_so(name: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        atom(name)
    assert caught.value.code == "layout/opaque_atom"


@pytest.mark.parametrize(
    "name", ["mma.m16n8k12.f16", "wgmma.m64n12k16.f16", "wgmma.m64n8k8.f16", "ldmatrix.x3", "hmma"]
)
def test_unknown_atoms_are_refused(name: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        atom(name)
    assert caught.value.code == "layout/unknown_atom"
