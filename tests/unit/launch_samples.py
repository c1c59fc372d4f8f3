"""A sidecar for tests, and its text with one thing changed."""

from __future__ import annotations

from pathlib import Path

from tilewright.launch.sidecar import parse_sidecar
from tilewright.launch.spec import LaunchSpec

GEMM = """\
kernel = "gemm"
[launch]
grid = ["ceil_div(N, BN)", "ceil_div(M, BM)", 1]
block = ["THREADS", 1, 1]
[sizes]
default = { M = 24, N = 20, K = 16 }
ragged = { M = 17, N = 9, K = 5 }
empty = { M = 8, N = 8, K = 0 }
[[args]]
name = "a"
dtype = "float16"
shape = ["M", "K"]
fill = "uniform(-1, 1)"
[[args]]
name = "b"
dtype = "float16"
shape = ["K", "N"]
fill = "normal(0, 1)"
[[args]]
name = "c"
dtype = "float32"
shape = ["M", "N"]
role = "out"
[[args]]
name = "M"
dtype = "int32"
value = "M"
[[args]]
name = "N"
dtype = "int32"
value = "N"
[[args]]
name = "K"
dtype = "int32"
value = "K"
[[args]]
name = "alpha"
dtype = "float32"
value = 0.5
"""

CONSTANTS = {"BM": 8, "BN": 8, "THREADS": 64}
PARAMETERS = [
    ("a", "const __half* __restrict__"),
    ("b", "const half *"),
    ("c", "float*"),
    ("M", "int"),
    ("N", "int"),
    ("K", "const int"),
    ("alpha", "float"),
]


def gemm_spec(*changes: tuple[str, str], path: Path = Path("gemm.toml")) -> LaunchSpec:
    """The sample with each ``(old, new)`` replaced."""
    return parse_sidecar(gemm_text(*changes), path)


def gemm_text(*changes: tuple[str, str]) -> str:
    text = GEMM
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text
