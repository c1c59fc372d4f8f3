"""Traps that public kernels hold: what is accepted keeps its bits, the rewrite that falls into the trap is caught."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from trap_bench import bench
from trap_kernels import LOAD_B, MATH, SIDECAR, gemm

from tilewright.kloop.kernel import Refusal

SIZES = {"M": 19, "N": 11, "K": 45}
WHOLE = {"M": 16, "N": 16, "K": 48}
ADDRESS = "const unsigned at = (unsigned)__cvta_generic_to_shared(&As[ty][0]);\n        "
BY_NUMBER = (
    "for (int k = 0; k < T; ++k) {\n            float x;\n"
    '            asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at + 4 * k));\n'
    "            sum += x * Bs[k][tx];\n        }"
)
EPILOGUE = "As[ty][tx] = sum;\n    __syncthreads();\n    sum = As[ty ^ 1][tx];"
TABLE = "__shared__ int turn[T];"


@dataclass(frozen=True)
class Twin:
    """``wrong``: edits of the variant's text that fall into the trap. ``caught``: one of these gives it away."""

    text: str
    variant: str
    wrong: tuple[tuple[str, str], ...]
    caught: frozenset[str] = frozenset({"values"})
    sizes: dict[str, int] | None = None


BUMPED = "a_k += T;"
TWINS = {
    "1: a guard that reads a bumped index": Twin(
        gemm(
            before="int a_k = tx;",
            load=f"{BUMPED}\n        As[ty][tx] = (row < M && a_k - T < K) ? A[row * K + a_k - T] : 0.0f;\n"
            f"        {LOAD_B}",
        ),
        "ldg",
        ((f"        {BUMPED}\n", ""), ("};\n    auto store_tile", f"    {BUMPED}\n    }};\n    auto store_tile")),
        frozenset({"values", "out_of_bounds_read"}),
    ),
    "2: a local of the load phase": Twin(
        gemm(load="const int left = min(T, K - k0);\n        {0}", compute=MATH.replace("k < T", "k < left")),
        "cp_async3",
        (("const int left = min(T, K - k0);\n        for", "const int left = min(T, K - k0_ahead);\n        for"),),
    ),
    "4: memory that the epilogue uses again": Twin(
        gemm(after=EPILOGUE),
        "cp_async3",
        (("    __syncthreads();  // as behind every tile", "    // as behind every tile"),),
        frozenset({"race_write_after_read"}),
    ),
    "4: the last tile is read behind the loop": Twin(
        gemm(after="sum += As[tx][ty];"),
        "ldg",
        (("As_ring[stage ^ 1];\n    sum", "As_ring[0];\n    sum"),),
        sizes=WHOLE | {"K": 32},
    ),
    "4: a persistent loop without its barrier": Twin(
        gemm(
            loop="for (int i = 0; i < 2; ++i) {\n    for (int k0 = 0; k0 < K; k0 += T)",
            after="sum += As[tx][ty];\n    __syncthreads();  // before the next run\n    }",
        ),
        "ldg",
        (("    __syncthreads();  // before the next run\n", ""),),
        frozenset({"race_write_after_read"}),
        WHOLE,
    ),
    "5: scratch that lives on": Twin(
        gemm(
            shared="__shared__ float own[T][T];",
            before="own[ty][tx] = 0.0f;",
            compute="for (int k = 0; k < T; ++k) own[ty][tx] += As[ty][k] * Bs[k][tx];",
            after="sum = own[ty][tx];",
        ),
        "cp_async3",
        (
            ("float own[T][T];", "float own_ring[3][T][T];"),
            ("own[ty][tx] = 0.0f;", "for (int s = 0; s < 3; ++s) own_ring[s][ty][tx] = 0.0f;"),
            ("auto &As = As_ring[read_stage];", "auto &As = As_ring[read_stage]; auto &own = own_ring[read_stage];"),
            ("sum = own[ty][tx];", "sum = own_ring[0][ty][tx];"),
        ),
    ),
    "8: reads past the last tile": Twin(
        gemm(load="As[ty][tx] = A[row * K + k0 + tx];\n        Bs[ty][tx] = B[(k0 + ty) * N + col];"),
        "cp_async3",
        (("if (k0_ahead < K) copy_tile", "copy_tile"),),
        frozenset({"out_of_bounds_read"}),
        WHOLE,
    ),
    "9: a shared address as a number": Twin(
        gemm(compute=ADDRESS + BY_NUMBER),
        "cp_async3",
        (("__cvta_generic_to_shared(&As[ty][0])", "__cvta_generic_to_shared(&As_ring[0][ty][0])"),),
        frozenset({"values", "read_in_flight"}),
    ),
    "10: macros and several declarators": Twin(
        gemm(
            file="#define A_(i, j) A[(i) * K + (j)]\n#define AS(i, j) As[i][j]",
            load=f"As[ty][tx] = (row < M && k0 + tx < K) ? A_(row, k0 + tx) : 0.0f;\n        {LOAD_B}",
            compute=MATH.replace("As[ty][k]", "AS(ty, k)"),
        )
        .replace("    __shared__ float Bs[T][T];\n", "")
        .replace("float As[T][T];", "float As[T][T], Bs[T][T];"),
        "ldg",
        (("auto &Bs = Bs_ring[stage];\n        for", "auto &Bs = Bs_ring[stage ^ 1];\n        for"),),
        frozenset({"values", "race_read_after_write", "race_write_after_read", "uninitialised_read"}),
    ),
    "10: a bug of the source stays": Twin(
        gemm(compute="for (int k = 0; k < T; ++k) sum += As[ty][k] * Bs[k][(tx + k) % T];"),
        "cp_async3",
        (("(tx + k) % T", "tx"),),
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_a_trap_is_avoided_and_falling_into_it_is_caught(name: str, tmp_path: Path) -> None:
    twin = TWINS[name]
    one, sizes = bench(tmp_path, twin.text), twin.sizes or SIZES
    one.same(twin.variant, sizes)
    written = one.written(twin.variant)
    wrong = written.text
    for old, new in twin.wrong:
        assert wrong.count(old) == 1, (old, wrong)
        wrong = wrong.replace(old, new)
    assert one.differs(wrong, sizes, written.launch) & twin.caught, wrong


def test_6_a_table_that_every_tile_rewrites(tmp_path: Path) -> None:
    """Refused; the loads of the next tile, issued ahead by hand, look the old table up."""
    table = "As[ty][tx] = A[row * K + k0 + turn[tx]];\n        " + LOAD_B
    before = "if (ty == 0) turn[tx] = tx;\n    __syncthreads();"
    steady = gemm(shared=TABLE, before=before, load=table)
    (tmp_path / "steady").mkdir()
    bench(tmp_path / "steady", steady).same("ldg", WHOLE)
    rewrite = MATH + "\n        __syncthreads();\n        if (ty == 0) turn[tx] = (turn[tx] + 1) % T;"
    rewritten = gemm(shared=TABLE, before=before, load=table, compute=rewrite)
    one = bench(tmp_path, rewritten)
    assert isinstance(one.found, Refusal)
    assert one.found.code == "loop_carried_shared"
    ahead = gemm(
        shared=TABLE,
        before=before + "\n    float a_next = A[row * K + turn[tx]];",
        load="As[ty][tx] = a_next;\n        " + LOAD_B,
        compute="a_next = k0 + T < K ? A[row * K + k0 + T + turn[tx]] : 0.0f;\n        " + rewrite,
    )
    assert "values" in one.differs(ahead, WHOLE)


def test_7_stores_that_the_loads_may_see(tmp_path: Path) -> None:
    """What is written for buffers that lie apart is wrong for one buffer, and then the promise is not believed."""
    text = gemm(compute="{0}\n        C[row * N + col] = sum;")
    promise = SIDECAR + "[assume]\nno_alias = true\n"
    apart, shared = tmp_path / "apart", tmp_path / "shared"
    apart.mkdir()
    shared.mkdir()
    written = bench(apart, text, promise).written("ldg")
    role, offset = 'role = "out"', 'role = "inout"\nalias_of = "A"\noffset = 16'
    head, _, tail = promise.partition(role)
    one = bench(shared, text, head.replace('shape = ["M", "K"]', 'shape = ["M", "2 * K"]') + offset + tail)
    assert isinstance(one.found, Refusal)
    assert one.found.code == "may_alias"
    assert "values" in one.differs(written.text, WHOLE)


def test_11_an_array_keeps_its_alignment_in_every_stage(tmp_path: Path) -> None:
    text = gemm().replace("float As[T][T];", "__align__(256) float As[T][T];")
    one = bench(tmp_path, text)
    for variant in ("ldg", "ldg_single", "cp_async3"):
        assert "__align__(256) float As" in one.written(variant).text
    one.same("cp_async3", SIZES)
    (tmp_path / "odd").mkdir()
    odd = bench(tmp_path / "odd", text.replace("As[T][T];", "As[T][T + 1];"))
    assert odd.refused("ldg").code == "misaligned"
