"""Arrays that must stay in place, promises of the sidecar, and rings of mbarriers in loops and beside other uses."""

from __future__ import annotations

from pathlib import Path

import pytest
from trap_bench import ANYWHERE, SINGLE, bench
from trap_kernels import SIDECAR, gemm, line_of

from tilewright.kloop.kernel import Refusal

RAGGED = {"M": 19, "N": 11, "K": 37}
TWICE = "for (int again = 0; again < 2; ++again) {\n    for (int k0 = 0; k0 < K; k0 += T)"

ONE_BUFFER = {
    "prepared in front": gemm(
        before="As[ty][tx] = 1.0f;\n    __syncthreads();",
        load="if (k0 + tx < K) As[ty][tx] = A[k0 + tx];\n        "
        + "Bs[ty][tx] = (k0 + ty < K && col < N) ? B[(k0 + ty) * N + col] : 0.0f;",
    ),
    "prepared in front, and padded": gemm(before="As[ty][T] = 1.0f;", compute="{0}\n        sum += As[tx][T];").replace(
        "float As[T][T]", "float As[T][T + 1]"
    ),
    "an address from in front": gemm(
        before="const float* mine = &As[ty][0];",
        compute="for (int k = 0; k < T; ++k) sum += mine[k] * Bs[k][tx];",
    ),
    "a number from in front": gemm(
        before="const unsigned at = (unsigned)__cvta_generic_to_shared(&As[ty][0]);",
        compute="for (int k = 0; k < T; ++k) {\n            float x;\n"
        '            asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at + 4 * k));\n'
        "            sum += x * Bs[k][tx];\n        }",
    ),
    "used behind the outer loop": gemm(loop=TWICE, after="}\n    sum += As[tx][ty];"),
    "named by a macro behind": gemm(file="#define A_(i, j) As[i][j]", after="sum += A_(tx, ty);"),
}


@pytest.mark.parametrize("name", ONE_BUFFER)
def test_arrays_that_must_stay_in_place_do(name: str, tmp_path: Path) -> None:
    one = bench(tmp_path, ONE_BUFFER[name])
    for variant in ANYWHERE:
        if variant in SINGLE:
            one.same(variant, RAGGED)
        else:
            assert one.refused(variant).code == "loop_carried_shared", variant


def test_no_alias_of_the_sidecar_is_believed_and_said(tmp_path: Path) -> None:
    text = gemm(compute="{0}\n        if (row < M && col < N) C[row * N + col] = sum;")
    plain = bench(tmp_path, text)
    assert isinstance(plain.found, Refusal)
    assert (plain.found.code, plain.found.line) == ("may_alias", line_of(text, "        if (row < M && col < N)"))
    assert "no_alias = true" in plain.found.hint
    said = bench(tmp_path, text, SIDECAR + "[assume]\nno_alias = true\n")
    assert any("no_alias" in a and "`C`" in a for a in said.kernel.assumptions)
    for variant in ANYWHERE:
        said.same(variant, RAGGED)


WHOLE = "As[ty][tx] = A[row * K + k0 + tx];\n        Bs[ty][tx] = B[(k0 + ty) * N + col];"
EPILOGUE = "As[ty][tx] = sum;\n    __syncthreads();\n    sum = As[ty][tx ^ 1];\n    __syncthreads();\n    }"
PREPARED = "As[ty][tx] = 1.0f + tx;\n    __syncthreads();\n    sum = As[tx][ty];\n    __syncthreads();"
BULK = {
    "in a loop, with a tail": gemm(load=WHOLE, loop=TWICE, after=EPILOGUE),
    "prepared in front of every run": gemm(
        load=WHOLE, loop=TWICE.replace("{\n", "{\n    " + PREPARED + "\n"), after=EPILOGUE
    ),
}


@pytest.mark.parametrize("name", BULK)
def test_bulk_copies_and_other_uses_of_their_arrays(name: str, tmp_path: Path) -> None:
    one = bench(tmp_path, BULK[name], arch="sm_90a")
    for k in (0, 48):
        one.same("bulk2", {"M": 16, "N": 16, "K": k})


def test_bulk_copies_need_every_thread(tmp_path: Path) -> None:
    text = gemm(load=WHOLE, before="if (row >= M) return;")
    refused = bench(tmp_path, text, arch="sm_90a").refused("bulk2")
    assert (refused.code, refused.line) == ("divergent_barrier", line_of(text, "return;"))
