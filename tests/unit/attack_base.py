"""Kernels that a careless rewrite gets wrong: each is one of ``kernels/*.cu`` with a few edits.

``refused`` ones must be refused with that code at that line. The others must be rewritten rightly: every variant that
is not named in ``without`` is made, and gives the values of the original (checked by whatever can run them).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"
LDG, SINGLE, ASYNC = "ldg", "ldg_single", "cp_async"


@dataclass(frozen=True)
class Attack:
    """``refused``: the code for the whole kernel. ``at``: what its line holds. ``without``: variant → code."""

    name: str
    base: str
    edits: tuple[tuple[str, str], ...]
    refused: str = ""
    at: str = ""
    without: dict[str, str] = field(default_factory=dict)
    values: bool = True  # whether the original runs as it stands
    by_compiler: bool = False  # whether it takes the compiler to see it

    def text(self) -> str:
        text = (KERNELS / f"{self.base}.cu").read_text()
        for old, new in self.edits:
            assert old in text, (self.name, old)
            text = text.replace(old, new)
        return text

    def line(self) -> int | None:
        """The 1-based line that the refusal should name."""
        lines = self.text().split("\n")
        found = [i + 1 for i, line in enumerate(lines) if self.at in line] if self.at else []
        return found[0] if found else None


# Texts of kernels/scalar.cu.
LOAD_A = "        As[ty][tx] = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;\n"
LOAD_B = "        Bs[ty][tx] = (k0 + ty < K && col < N) ? B[(k0 + ty) * N + col] : 0.0f;\n"
FIRST_BARRIER = "        __syncthreads();\n\n        for"
LOOP = "    for (int k0 = 0; k0 < K; k0 += TILE) {\n"
MATH = "            sum += As[ty][k] * Bs[k][tx];\n"
SECOND_BARRIER = "        }\n        __syncthreads();\n    }\n"
INNER = "        for (int k = 0; k < TILE; ++k) {\n"
BEFORE = "    float sum = 0.0f;\n"
STORE = "        C[row * N + col] = sum;\n"
HEAD = "__global__ void scalar("
PARAMS = "const float *A, const float *B, float *C, int M, int N, int K"


def scalar(name: str, *edits: tuple[str, str], **expected: object) -> Attack:
    return Attack(name, "scalar", edits, **expected)  # type: ignore[arg-type]


def byte(name: str, *edits: tuple[str, str], **expected: object) -> Attack:
    return Attack(name, "bytes", edits, **expected)  # type: ignore[arg-type]


def vector(name: str, *edits: tuple[str, str], **expected: object) -> Attack:
    return Attack(name, "vector", edits, **expected)  # type: ignore[arg-type]


def refuse(code: str, at: str, values: bool = True) -> dict[str, object]:
    return {"refused": code, "at": at, "values": values}
