"""Load phases that must not be run twice, or at another time: refused with the reason and the line."""

# ruff: noqa: E501  (a line of a kernel stays on one line)

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from source_samples import REWRITERS, read
from trap_kernels import BLOCK, LOAD_A, LOAD_B, MATH, PARAMS, gemm, line_of
from whole_kernels import ALL, REGISTERS, SINGLE

from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.rewrite.result import Remedy, RewrittenSource


@dataclass(frozen=True)
class Bad:
    """``at``: what the line holds that the refusal names."""

    text: str
    code: str
    at: str


VALUE = "(row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f"
# Read as a stream, but for the last lines of each.
LOCAL = f"float v = {VALUE};\n        v += 1.0f;\n        As[ty][tx] = v;\n        {LOAD_B}"
REFUSED = {
    "speaks": Bad(gemm(load=f'{LOCAL}\n        if (k0 < 0) printf("no");'), "not_understood", "printf"),
    "looks at the clock": Bad(gemm(load=f"{LOCAL}\n        sum += 0 * clock();"), "not_understood", "clock()"),
    "counts": Bad(gemm(load=f"{LOCAL}\n        atomicAdd(C, 1.0f);"), "not_understood", "atomicAdd"),
    "stores to global memory": Bad(
        gemm(load=f"{LOCAL}\n        C[row * N + col] = v;"), "may_alias", "C[row * N + col] = v"
    ),
    "stores by inline PTX": Bad(
        gemm(load=LOCAL + '\n        asm volatile("st.global.f32 [%0], %1;" ::"l"(C), "f"(v));'),
        "may_alias",
        "st.global",
    ),
    "an acquiring load": Bad(
        gemm(
            load=f'float v;\n        asm volatile("ld.acquire.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(A));\n        As[ty][tx] = v;\n        {LOAD_B}'
        ),
        "not_understood",
        "ld.acquire",
    ),
    "volatile": Bad(
        gemm(
            load=f"const volatile float *p = A;\n        float v = p[row * K];\n        v += 1;\n        As[ty][tx] = v;\n        {LOAD_B}"
        ),
        "not_understood",
        "const volatile float *p",
    ),
    "static": Bad(gemm(load=f"static __device__ int n;\n        {LOCAL}"), "not_understood", "static __device__"),
    "a lambda": Bad(
        gemm(load=f"auto get = [&](int i) {{ return A[i]; }};\n        As[ty][tx] = get(row * K);\n        {LOAD_B}"),
        "not_understood",
        "auto get",
    ),
    "adds to a tile": Bad(gemm(load=f"{LOCAL}\n        As[ty][tx] += 2.0f;"), "loop_carried_shared", "+= 2.0f"),
    "reads its tile": Bad(gemm(load=f"{LOCAL}\n        float peek = As[ty][tx];"), "loop_carried_shared", "float peek"),
    "reads its tile through a pointer": Bad(
        gemm(
            before="const float *mine = &Bs[0][0];",
            load=f"float v = mine[tx];\n        v += {VALUE};\n        As[ty][tx] = v;\n        {LOAD_B}",
        ),
        "loop_carried_shared",
        "float v = mine[tx]",
    ),
    "a table that every tile writes": Bad(
        gemm(
            shared="__shared__ int table[T];",
            load=f"float v = A[min(row * K + k0 + table[tx], M * K - 1)];\n        v += 1.0f;\n        As[ty][tx] = v;\n        {LOAD_B}",
            compute=f"{MATH}\n        if (ty == 0) table[tx] = k0;",
        ),
        "loop_carried_shared",
        "table[tx], M",
    ),
    "what the compute phase changes": Bad(
        gemm(load=f"{LOCAL}\n        sum = sum * 0.5f;"), "not_understood", "float v ="
    ),
    "an index that the compute phase advances by another name of what it sets": Bad(
        gemm(
            before="int step = 0, at = 0;\n    const int &by = step;",
            load=LOCAL.replace("k0 + tx]", "k0 + tx + at]"),
            compute=f"{MATH}\n        step = sum > 0.0f ? 0 : 0;\n        at += by;",
        ),
        "not_understood",
        "float v =",
    ),
    "an index that the compute phase advances by what it stores": Bad(
        gemm(
            params=PARAMS.replace("*A", "*__restrict__ A")
            .replace("*B", "*__restrict__ B")
            .replace("*C", "*__restrict__ C"),
            before="float &mine = C[min(row, M - 1) * N + min(col, N - 1)];\n    int at = 0;",
            load=f"As[ty][tx] = A[min(row * K + at, M * K - 1)];\n        {LOAD_B}",
            compute=f"{MATH}\n        mine = sum;\n        at += (int)mine;",
        ),
        "not_understood",
        "As[ty][tx] = A[min(",
    ),
    "an index that the compute phase sets": Bad(
        gemm(
            before="int at = 0;",
            load=f"{LOCAL.replace('k0 + tx]', 'k0 + tx + at]')}",
            compute=f"{MATH}\n        at = sum > 0.0f ? 0 : 0;",
        ),
        "not_understood",
        "float v =",
    ),
    "an index that the compute phase advances by what it computes": Bad(
        gemm(
            before="int at = 0;",
            load=LOCAL.replace("k0 + tx]", "k0 + tx + at]"),
            compute=f"{MATH}\n        const int d = 0;\n        at += d;",
        ),
        "not_understood",
        "at += d",
    ),
    "where it stores changes from tile to tile": Bad(
        gemm(
            before="int at = 0;",
            load=f"float v = {VALUE};\n        v += 1.0f;\n        As[(ty + at) & 15][tx] = v;\n        {LOAD_B}\n        at += 1;",
        ),
        "already_pipelined",
        "As[(ty + at)",
    ),
    "a store inside an expression": Bad(
        gemm(load=f"float v = 1.0f;\n        v = As[ty][tx] = {VALUE};\n        {LOAD_B}"),
        "not_understood",
        "v = As[ty][tx]",
    ),
    "a store that counts": Bad(
        gemm(
            load=f"int n = tx;\n        float v = {VALUE};\n        v += 1.0f;\n        As[ty][n++] = v;\n        {LOAD_B}"
        ),
        "not_understood",
        "As[ty][n++]",
    ),
    "another name of what is advanced": Bad(
        gemm(
            before="int at = 0;\n    int &same = at;",
            load=f"{LOCAL.replace('k0 + tx]', 'k0 + tx + 0 * same]')}\n        at += 1;",
        ),
        "not_understood",
        "float v =",
    ),
    "a pointer to what is advanced": Bad(
        gemm(
            before="int at = 0;\n    const int *same = &at;",
            load=LOCAL,
            compute=f"{MATH}\n        sum += *same;\n        at += 1;",
        ),
        "not_understood",
        "sum += *same",
    ),
    "a `while` loop that stores": Bad(
        gemm(
            load=f"int i = tx;\n        while (i < T) {{\n            As[ty][i] = A[min(row * K + k0 + i, M * K - 1)];\n            i += T;\n        }}\n        {LOAD_B}"
        ),
        "not_understood",
        "while (i < T)",
    ),
}

# Loads that no subscript shows, in a kernel whose compute phase stores to global memory.
KEEP = f"{MATH}\n        if (row < M && col < N) C[row * N + col] = sum;"
PARAMETERS = "const float *A, const float *__restrict__ B, float *__restrict__ C, int M, int N, int K"
PTX = 'float v;\n        asm("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(<at>));\n        As[ty][tx] = v;'
BY_PTX = '{ float v; asm("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(p)); return v; }'
FRAGMENT = (
    "wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> f;\n"
    "        wmma::load_matrix_sync(f, A + k0, K);\n        As[ty][tx] = f.x[0];"
)
UNSEEN = {
    "inline PTX": {"load": PTX.replace("<at>", "A + row * K + k0 + tx")},
    "inline PTX, by number": {
        "before": "const unsigned long long from = (unsigned long long)(A + row * K + tx);",
        "load": PTX.replace("<at>", "from + 4 * k0"),
    },
    "a function's inline PTX": {
        "file": f"__device__ float get(const float *p) {BY_PTX}",
        "load": "As[ty][tx] = get(A + row * K + k0 + tx);",
    },
    "a function's inline PTX, by number": {
        "file": f"__device__ float get(unsigned long long p) {BY_PTX}",
        "load": "As[ty][tx] = get((unsigned long long)(A + row * K + k0 + tx));",
    },
    "a fragment": {"file": "#include <mma.h>\nusing namespace nvcuda;", "load": FRAGMENT},
}


def unseen(name: str, parameters: str = PARAMETERS) -> str:
    slots = UNSEEN[name]
    return gemm(**{**slots, "params": parameters, "load": f"{slots['load']}\n        {LOAD_B}", "compute": KEEP})


@pytest.mark.parametrize("name", UNSEEN)
def test_loads_that_no_subscript_shows_may_alias_a_store(name: str) -> None:
    text = unseen(name)
    found = read(text, BLOCK)
    assert isinstance(found, Refusal), found
    assert (found.code, found.line) == ("may_alias", line_of(text, "        if (row < M && col < N) C")), found


@pytest.mark.parametrize("name", ["inline PTX", "a fragment"])
def test_loads_through_a_restricted_pointer_do_not(name: str) -> None:
    found = read(unseen(name, PARAMETERS.replace("*A", "*__restrict__ A")), BLOCK)
    assert isinstance(found, TiledKernel), found
    assert any("loads through `A` do not see stores through `C`" in x for x in found.assumptions)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str) -> None:
    bad = REFUSED[name]
    found = read(bad.text, BLOCK)
    assert isinstance(found, Refusal), found
    assert (found.code, found.line) == (bad.code, line_of(bad.text, bad.at)), found


# A register that is read by anything but a store of it: no copy statement by statement.
ON_REGISTERS = {
    "a sum": "norm += v;",
    "a local": "const float twice = v + v;",
    "a guard": "Bs[ty][tx] = v > 0.0f ? B[tx] : 0.0f;",
    "a branch": "if (v > 0.0f) Bs[ty][tx] = B[tx];\n        else Bs[ty][tx] = 0.0f;",
    "a load": "const float w = v > 0.0f ? B[tx] : 0.0f;\n        Bs[ty][tx] = w;",
}


@pytest.mark.parametrize("name", ON_REGISTERS)
def test_what_rests_on_a_loaded_register_is_read_as_a_whole(name: str) -> None:
    load = f"float v = {VALUE};\n        As[ty][tx] = v;\n        <and>\n        {LOAD_B}"
    plain, other = (
        read(gemm(before="float norm = 0.0f;", load=load.replace("<and>", x)), BLOCK) for x in ("", ON_REGISTERS[name])
    )
    assert isinstance(plain, TiledKernel)
    assert plain.stream is None
    assert isinstance(other, TiledKernel)
    assert other.stream is not None


@pytest.mark.parametrize("name", [*ALL, *REGISTERS, *SINGLE])
def test_what_the_emulator_runs_is_read(name: str) -> None:
    text = {**ALL, **REGISTERS, **SINGLE}[name]
    assert isinstance(read(text, BLOCK), TiledKernel)


def test_a_counter_that_is_shadowed_is_no_index() -> None:
    text = gemm(
        load="if (ty < 8) {\n            for (int i = 0; i < 2; ++i) {\n                const int r = ty + 8 * i;\n"
        f"                {{\n                    const int i = tx;\n                    As[r][i] = A[min(r * K + k0 + i, M * K - 1)];\n                }}\n            }}\n        }}\n        {LOAD_B}"
    )
    kernel = read(text, BLOCK)
    assert isinstance(kernel, TiledKernel)
    found = {name: rewrite(kernel, Remedy()) for name, rewrite in REWRITERS.items()}
    assert {n for n, r in found.items() if isinstance(r, RewrittenSource)} == {"cp_async"}


def test_a_condition_that_counts_is_asked_in_the_stores_too() -> None:
    load = f"int n = ty;\n        if (n++ < M) As[ty][tx] = A[min(row * K + k0 + tx, M * K - 1)];\n        else As[ty][tx] = 0.0f;\n        Bs[n - 1][tx] = {VALUE.replace('row < M', 'k0 + ty < K').replace('A[row * K + k0 + tx]', 'B[(k0 + ty) * N + min(col, N - 1)]')};"
    kernel = read(gemm(load=load), BLOCK)
    assert isinstance(kernel, TiledKernel)
    out = REWRITERS["ldg"](kernel, Remedy())
    assert isinstance(out, RewrittenSource)
    stores = out.text[out.text.index("auto store_tile") : out.text.index("// Prologue")]
    assert "n++ < M" in stores


def test_the_compute_phase_gets_its_own_copies() -> None:
    kernel = read(ALL["a pointer and an index that the compute phase reads too"], BLOCK)
    assert isinstance(kernel, TiledKernel)
    for rewrite in REWRITERS.values():
        out = rewrite(kernel, Remedy())
        assert isinstance(out, RewrittenSource)
        assert "auto kb_compute = kb;" in out.text
        assert "auto &kb = kb_compute;" in out.text
        assert "pa_compute" not in out.text  # it needs no pointer


def test_loads_are_left_out_of_the_stores() -> None:
    kernel = read(REGISTERS["lanes fixed up through a pointer"], BLOCK)
    assert isinstance(kernel, TiledKernel)
    out = REWRITERS["ldg"](kernel, Remedy())
    assert isinstance(out, RewrittenSource)
    stores = out.text[out.text.index("auto store_tile") : out.text.index("// Prologue")]
    assert "CONST4" not in stores
    assert "lane[" not in stores
    assert "As[ty][4 * tx + i] = As_next[i];" in stores


def test_a_slice_keeps_what_guards_a_store() -> None:
    kernel = read(SINGLE["an if without else"], BLOCK)
    assert isinstance(kernel, TiledKernel)
    out = REWRITERS["ldg_single"](kernel, Remedy())
    assert isinstance(out, RewrittenSource)
    assert "if (k0 + tx < K && row < M) As[ty][tx] = As_next;" in out.text
    assert "store_tile(k0_next)" in out.text


def test_the_sidecars_block_decides_about_passes() -> None:
    """Without the size of the block the passes follow from the loop's own bounds, and the order from nothing."""
    text = ALL["passes that differ from thread to thread"]
    kernel = read(text, None)
    assert isinstance(kernel, TiledKernel)
    assert kernel.stream is not None
    assert [p.trips for p in kernel.stream.loops.values()] == [3]
    known = read(text, BLOCK)
    assert isinstance(known, TiledKernel)
    assert known.unordered is None
    assert LOAD_A not in text


def test_early_loads_clear_what_a_guard_may_skip() -> None:
    """As written no scalar is cleared; with early loads those of a loop that threads start differently are."""
    cleared = re.compile(
        r"for \((?:float|int|(?:un)?signed \w+|char|short) &value(?:_\d)? : \w+_next\) value(?:_\d)? = 0;"
    )
    found = 0
    for text in ALL.values():
        kernel = read(text, BLOCK)
        assert isinstance(kernel, TiledKernel)
        plain, early = (REWRITERS["ldg"](kernel, r) for r in (Remedy(), Remedy(early_loads=True)))
        assert isinstance(plain, RewrittenSource)
        assert isinstance(early, RewrittenSource)
        assert not cleared.search(plain.text)
        first = cleared.search(early.text)
        if first is not None:
            found += 1
            assert first.start() < early.text.index("for (int pass")
    assert found
