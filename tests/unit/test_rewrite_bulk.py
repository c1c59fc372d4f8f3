"""Rows and boxes of tiles: what is proven of them, and the texts that bulk and tma make of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from source_samples import STATIC_LIMIT, understood

from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.kloop.row_map import Box, RowMap
from tilewright.kloop.row_text import ROW, sequence
from tilewright.rewrite import bulk, tma
from tilewright.rewrite.result import RewrittenSource

EXAMPLES = Path(__file__).parents[2] / "examples"


def kernel(load: str, *, before: str = "", a_tile: str = "float As[32][16]", threads: int = 64) -> str:
    """A kernel that reads one tile of a per iteration, by the statements given."""
    return f"""
#define FLOAT4(x) (reinterpret_cast<float4 *>(&(x))[0])
#define OFFSET(row, col, ld) ((row) * (ld) + (col))
typedef unsigned char u8;
__global__ void __launch_bounds__({threads}) k(float *__restrict__ a, float *__restrict__ c, int M, int K) {{
    __shared__ __align__(16) {a_tile};
    const int tid = threadIdx.x;
    const int row0 = blockIdx.y * 32;
    float sum = 0.0f;
{before}
    for (int k0 = 0; k0 < K; k0 += 16) {{
{load}
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += As[tid % 32][i];
        __syncthreads();
    }}
    c[tid] = sum;
}}
"""


LOOP = """        for (int i = tid; i < 512; i += 64) {
            int r = i / 16, q = i % 16;
            As[r][q] = (row0 + r < M && k0 + q < K) ? a[(row0 + r) * K + k0 + q] : 0.0f;
        }"""


def read(text: str, block: tuple[int, int, int] | None = (64, 1, 1)) -> TiledKernel:
    return understood(text, block)


def rows(k: TiledKernel) -> tuple[RowMap, ...] | Refusal:
    (found,) = k.rows.values()
    return found


def only(text: str) -> RowMap:
    found = rows(read(text))
    assert isinstance(found, tuple), found
    (m,) = found
    return m


def why_not(text: str) -> Refusal:
    found = rows(read(text))
    assert isinstance(found, Refusal), found
    return found


def written(module: object, k: TiledKernel, limit: int = STATIC_LIMIT) -> RewrittenSource:
    found = module.rewrite(k, 3, limit)  # type: ignore[attr-defined]
    assert isinstance(found, RewrittenSource), found
    return found


# -- the proof ----------------------------------------------------------------------------------------


def test_a_copy_loop_over_elements() -> None:
    m = only(kernel(LOOP))
    assert (m.count, m.row_bytes, m.first_bytes, m.pitch_bytes) == (32, 64, 0, 64)
    assert m.source == f"&a[(row0 + {ROW}) * K + k0 + 0]"
    assert m.target == f"&As[{ROW}][0]"
    assert m.inside == ("row0 + 31 < M && k0 + 15 < K",)
    assert isinstance(m.box, Box)
    assert (m.box.width, m.box.height, m.box.columns, m.box.rows, m.box.pitch) == (16, 32, "K", "M", "K")
    assert (m.box.x, m.box.y, m.box.checks, m.box.needs) == ("k0", "row0", (), ())


@pytest.mark.parametrize(
    ("load", "source"),
    [
        pytest.param(
            "        FLOAT4(As[tid / 2][tid % 2 * 8]) = FLOAT4(a[OFFSET(tid / 2, k0 + tid % 2 * 8, K)]);\n"
            "        FLOAT4(As[tid / 2][tid % 2 * 8 + 4]) = FLOAT4(a[OFFSET(tid / 2, k0 + tid % 2 * 8 + 4, K)]);",
            "",
            id="two copies that interleave",
        ),
        pytest.param(
            "        for (int i = 0; i < 2; ++i) {\n"
            "            int v = tid + i * 64, r = v >> 2, q = (v & 3) << 2;\n"
            "            FLOAT4(As[r][q]) = FLOAT4(a[OFFSET(r, k0 + q, K)]);\n        }",
            f"&FLOAT4(a[OFFSET({ROW}, k0 + 0, K)])",
            id="macros",
        ),
        pytest.param(
            "        for (int i = 0; i < 32; i += 4)\n"
            "            As[tid / 16 + i][tid % 16] = a[(row0 + tid / 16 + i) * K + k0 + tid % 16];",
            f"&a[(row0 + ({ROW} % 4) + ({ROW} / 4 * 4)) * K + k0 + 0]",
            id="rows of a thread",
        ),
        pytest.param(
            "        for (unsigned i = threadIdx.x; i < 512; i += 64) {\n"
            "            const unsigned r = i / 16;\n"
            "            As[r][i % 16] = a[(row0 + r) * K + k0 + i % 16];\n        }",
            f"&a[(row0 + static_cast<unsigned>({ROW})) * K + k0 + 0u]",
            id="unsigned stays unsigned",
        ),
        pytest.param(
            "        for (int i = 0; i < 2; ++i) {\n"
            "            float4 v = FLOAT4(a[(row0 + i * 16 + tid / 4) * K + k0 + tid % 4 * 4]);\n"
            "            As[i * 16 + tid / 4][tid % 4 * 4] = v.x;\n"
            "            As[i * 16 + tid / 4][tid % 4 * 4 + 1] = v.y;\n"
            "            As[i * 16 + tid / 4][tid % 4 * 4 + 2] = v.z;\n"
            "            As[i * 16 + tid / 4][tid % 4 * 4 + 3] = v.w;\n        }",
            "reinterpret_cast<const float4 *>(&a[(row0 + ROWS * K + k0 + 0])",
            id="lanes of a register",
        ),
        pytest.param(
            "        for (int r = tid / 16; r < 32; r += 4)\n"
            "            for (int q = tid % 16; q < 16; q += 16) As[r][q] = a[(row0 + r) * K + k0 + q];",
            f"&a[(row0 + {ROW}) * K + k0 + 0]",
            id="loops in loops",
        ),
        pytest.param(
            "        for (int i = tid; i < 512; i += 64) {\n"
            "            float v = 0.0f;\n"
            "            if (row0 + i / 16 < M && k0 + i % 16 < K) v = a[(row0 + i / 16) * K + k0 + i % 16];\n"
            "            As[i / 16][i % 16] = v;\n        }",
            f"&a[(row0 + {ROW}) * K + k0 + 0]",
            id="cleared, then loaded",
        ),
        pytest.param(
            "        if (tid < 32)\n            for (int q = 0; q < 16; q += 4)\n"
            "                FLOAT4(As[tid][q]) = FLOAT4(a[OFFSET(row0 + tid, k0 + q, K)]);",
            f"&FLOAT4(a[OFFSET(row0 + {ROW}, k0 + 0, K)])",
            id="threads that do not load",
        ),
    ],
)  # fmt: skip
def test_forms_of_the_load_phase(load: str, source: str) -> None:
    text = kernel(load)
    if not source:
        assert "interleave" in why_not(text).message or why_not(text).code == "not_contiguous"
        return
    m = only(text)
    assert (m.count, m.row_bytes) == (32, 64)
    if "ROWS" not in source:
        assert m.source == source


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("As[r][q] =", "As[r][q ^ 1] =", "bytes lie together"),
        ("As[r][q] =", "As[r][15 - q] =", "bytes lie together"),
        ("+ k0 + q]", "+ k0 + q * 2]", "bytes lie together"),
        ("+ k0 + q]", "+ k0 + q + (q > 7 ? 4 : 0)]", "equal distances"),
        ("(row0 + r) * K", "(row0 + r * r) * K", "equal distances"),
        ("As[r][q] =", "As[r / 2][q] =", "more than once"),
        ("k0 + q < K", "(k0 + q) % 3 != 0", "conjunction"),
        ("k0 + q < K", "(row0 + r) * K + k0 + q < M * K", "from element to element"),
        ("k0 + q < K", "k0 + r - q < K && k0 + q < K", "the last one for all bounds"),
        ("a[(row0", "2.0f * a[(row0", "bytes as they are"),
        ("int q = i % 16", "u8 q = i % 16", ""),
    ],
)
def test_what_is_no_row(old: str, new: str, words: str) -> None:
    text = LOOP.replace("int r = i / 16, q = i % 16;", "int r = i / 16; int q = i % 16;")
    assert text.count(old) == 1
    assert words in why_not(kernel(text.replace(old, new))).message


def test_rows_must_be_aligned_in_shared_memory() -> None:
    assert "16 bytes" in why_not(kernel(LOOP, a_tile="float As[32][17]")).message
    assert only(kernel(LOOP, a_tile="float As[32][20]")).pitch_bytes == 80


def test_a_guard_in_unsigned_arithmetic_is_asked_at_both_ends() -> None:
    m = only(kernel(LOOP.replace("row0 + r < M", "row0 + r < (unsigned)M")))
    assert m.inside == (
        "row0 + 0 < (unsigned)M && k0 + 0 < K",
        "row0 + 31 < (unsigned)M && k0 + 15 < K",
    )


def test_two_expressions_inside_one_macro_are_two() -> None:
    """Both stand where the macro is used; taken for one they would cancel out, and elements be neighbours."""
    at = "a[(row0 + r) * K + AT(q) + k0]"
    text = kernel(LOOP.replace("a[(row0 + r) * K + k0 + q]", at))
    assert only("#define AT(q) (q)" + text).row_bytes == 64
    assert "no plain index" in why_not("#define AT(q) ((q) * (1 + K / 7 - K / 8))" + text).message


def test_the_guard_may_say_what_lies_outside() -> None:
    guard = "(row0 + r >= M || k0 + q >= K) ? 0.0f : a["
    m = only(kernel(LOOP.replace("(row0 + r < M && k0 + q < K) ? a[", guard).replace(" : 0.0f;", ";")))
    assert m.inside == ("!(row0 + 31 >= M || k0 + 15 >= K)",)
    assert isinstance(m.box, Box)


def test_threads_must_be_known() -> None:
    text = kernel(LOOP).replace("__launch_bounds__(64) ", "")
    found = rows(read(text, None))
    assert isinstance(found, Refusal)
    assert "threads of a block" in found.message


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([3, 3, 3], "3"),
        ([0, 1, 2, 3], ROW),
        ([4, 6, 8], f"({ROW} * 2 + 4)"),
        ([0, 0, 8, 8], f"({ROW} / 2 * 8)"),
        ([0, 1, 0, 1], f"({ROW} % 2)"),
        ([0, 1, 3], None),
        ([-1, -1], "(-1)"),
    ],
)
def test_numbers_of_rows_as_expressions(values: list[int], text: str | None) -> None:
    assert sequence(values) == text


# -- boxes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("row0 + r < M && ", "", "exactly"),
        ("k0 + q < K", "k0 + q < M", ""),
        ("k0 + q < K", "k0 + q + 1 < K", "exactly"),
        ("row0 + r < M", "row0 + r < M && k0 < M", "exactly"),
        (": 0.0f", ": 1.0f", "zeros"),
        ("(row0 + r) * K", "(row0 + r) * 64", "parameter"),
        ("(row0 + r) * K + k0 + q", "(k0 + q) * 1 + (row0 + r) * (K + 16)", "parameter"),
    ],
)
def test_what_is_no_box(old: str, new: str, words: str) -> None:
    assert old in LOOP
    box = only(kernel(LOOP.replace(old, new))).box
    if words:
        assert isinstance(box, Refusal)
        assert words in box.message
    else:  # another bound than the pitch is asked of the host
        assert isinstance(box, Box)
        assert box.needs == ("M <= K",)


def test_a_column_that_may_be_below_zero_is_asked_in_the_kernel() -> None:
    halo = LOOP.replace("k0 + q", "k0 - 4 + q")
    box = only(kernel(halo)).box
    assert isinstance(box, Box)
    assert box.checks == ("k0 - 4 >= 0",)
    assert "use_maps != 0 && k0 - 4 >= 0" in written(tma, read(kernel(halo))).text


@pytest.mark.parametrize(
    ("old", "new", "checks", "refused"),
    [
        ("for (int k0 = 0;", "for (int k0 = 4;", (), ""),
        ("for (int k0 = 0;", "for (int k0 = 2;", (), "8 bytes behind a multiple of 16"),
        ("k0 + q", "k0 + 1 + q", (), "4 bytes behind a multiple of 16"),
        ("for (int k0 = 0;", "for (int k0 = M;", ("k0 >= 0", "(k0) % 4 == 0"), ""),
    ],
)
def test_a_box_begins_at_a_multiple_of_16_bytes(old: str, new: str, checks: tuple[str, ...], refused: str) -> None:
    """Measured on an H200: a box that begins elsewhere along its rows is an illegal instruction."""
    assert old in kernel(LOOP)
    box = only(kernel(LOOP).replace(old, new)).box
    if refused:
        assert isinstance(box, Refusal)
        assert refused in box.message
    else:
        assert isinstance(box, Box)
        assert box.checks == checks


def test_coordinates_are_ints() -> None:
    text = kernel(LOOP).replace("int M, int K", "size_t M, int K")
    box = only(text).box
    assert isinstance(box, Box)
    assert box.needs == ("K <= 2147483647", "M <= 2147483647")


def test_a_pointer_that_moves_is_no_matrix() -> None:
    text = kernel(LOOP.replace("+ k0 + q]", "+ q]") + "\n        a += 16;")
    box = only(text).box
    assert isinstance(box, Refusal)
    assert "stays where it is" in box.message


def test_a_second_declaration_of_the_kernel_is_refused() -> None:
    text = "__global__ void k(float *a, float *c, int M, int K);\n" + kernel(LOOP)
    found = tma.rewrite(read(text), 2, STATIC_LIMIT)
    assert isinstance(found, Refusal)
    assert "more than once" in found.message


INSTANCE = "template {}void k<64>(float *, float *, int, int);\n"


@pytest.mark.parametrize("kind", ["", "__global__ ", "__global__ __launch_bounds__(64) "])
def test_instantiations_take_the_maps_too(kind: str) -> None:
    text = kernel(LOOP).replace("__global__", "template <int B>\n__global__") + INSTANCE.format(kind)
    more = ", const __grid_constant__ TileMap, int);\n"
    assert written(tma, read(text)).text.endswith(INSTANCE.format(kind or "__global__ ").replace(");\n", more))
    found = tma.rewrite(read(f"{text}#define MORE {INSTANCE.format(kind)}"), 2, STATIC_LIMIT)
    assert isinstance(found, Refusal)
    assert (found.line, "a macro instantiates `k`" in found.message) == (text.count("\n") + 1, True)


def test_alignment_of_the_source_is_raised() -> None:
    assert "__shared__ __align__(128) float As_ring[STAGES][32][16];" in written(tma, read(kernel(LOOP))).text


def test_maps_and_flag_of_the_launch() -> None:
    change = written(tma, read(kernel(LOOP.replace("k0 + q < K", "k0 + q < M")))).launch
    (one,) = change.tensor_maps
    assert (one.name, one.array, one.dtype, one.dims, one.pitches, one.box) == (
        "As_map", "a", "uint32", ("M", "M"), ("K * 4",), (16, 32)
    )  # fmt: skip
    assert [(f.name, f.condition) for f in change.flags] == [("use_maps", "encodable(As_map) * (M <= K)")]


# -- the written file ------------------------------------------------------------------------------------


def test_what_is_expected_is_what_is_issued() -> None:
    text = written(bulk, read(kernel(LOOP))).text
    assert "tile_barrier_expect(&tile_full[stage], 32 * 64);" in text
    assert "tile_copy(&As[copy_thread][0], As_source(copy_thread), 64, &tile_full[stage]);" in text


def test_what_was_stored_before_is_shown_to_the_copies() -> None:
    line = 'asm volatile("fence.proxy.async;" ::: "memory");'
    assert line not in written(bulk, read(kernel(LOOP))).text
    assert line in written(bulk, read(kernel(LOOP, before="    c[tid] = 1.0f;\n    __syncthreads();"))).text


def test_names_of_the_file_are_left_alone() -> None:
    text = written(
        bulk, read(kernel(LOOP, before="    int tile_copy = 1, whole = 2, tile_row = tile_copy + whole;"))
    ).text
    assert "tile_copy_2(" in text
    assert "const bool whole_2 =" in text


def test_barriers_are_left_room_in_static_memory() -> None:
    k = read(kernel(LOOP))
    assert written(bulk, k, 3 * 2048 + 64).launch.shared_bytes is None
    assert written(bulk, k, 3 * 2048 + 63).launch.shared_bytes == 3 * 2048


def test_a_block_without_a_whole_warp_is_refused() -> None:
    text = kernel(LOOP.replace("+= 64", "+= 16"), threads=16)
    found = bulk.rewrite(read(text, (16, 1, 1)), 2, STATIC_LIMIT)
    assert isinstance(found, Refusal)
    assert "16 threads" in found.message


def test_threads_that_leave_early() -> None:
    found = bulk.rewrite(read(kernel(LOOP, before="    if (row0 + tid >= M) return;")), 2, STATIC_LIMIT)
    assert isinstance(found, Refusal)
    assert found.code == "divergent_barrier"


@pytest.mark.parametrize(
    ("name", "threads", "boxed"), [("igemm_wmma", 128, True), ("hgemm_mma", 256, True), ("hgemm_wmma", 128, True)]
)
def test_examples_have_rows_and_boxes(name: str, threads: int, boxed: bool) -> None:
    k = read((EXAMPLES / f"{name}.cu").read_text(), (threads, 1, 1))
    assert len(written(bulk, k).text) > len(k.text)
    assert len(written(tma, k).launch.tensor_maps) == 2


def test_a_transposed_operand_has_no_rows() -> None:
    k = read((EXAMPLES / "sgemm_float4.cu").read_text(), (256, 1, 1))
    found = bulk.rewrite(k, 2, STATIC_LIMIT)
    assert isinstance(found, Refusal)
    assert (found.code, found.line) == ("not_contiguous", 50)
