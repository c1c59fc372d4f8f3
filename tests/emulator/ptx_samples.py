"""PTX and CUDA that the tests of the ptx room share."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tilewright.build.artifact import Artifact, BuildRequest
from tilewright.build.build import build
from tilewright.ptx.module import Function, Instruction, Module
from tilewright.ptx.parse import parse_ptx
from tilewright.settings import Settings
from tilewright.source.device_view import device_view

EXAMPLES = Path(__file__).parents[2] / "examples"
HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
REGISTERS = """
    .reg .pred %p<9>;
    .reg .b16 %rs<9>;
    .reg .b32 %r<99>;
    .reg .f32 %f<99>;
    .reg .b64 %rd<9>;
"""

CALLS_CUDA = r"""
#include <cassert>
#include <cstdio>
struct Big { int a; float b; long long c; float v[5]; };
__device__ int whole[5] = {5, 6};
__device__ int* inside = &whole[3];
__device__ __noinline__ Big mix(Big x, int k) {
  __shared__ int s[4];
  s[threadIdx.x & 3] = k;
  __syncthreads();
  x.a += k + s[0]; x.v[k & 3] *= 2.f; x.c = x.a * 3ll;
  return x;
}
__device__ __noinline__ float leaf(float x) {
  if (x > 3.f) return x * x;
  float t[8];
  for (int i = 0; i < 8; ++i) t[(i * (int)x) & 7] = x + i;
  return t[(int)x & 7] - 1.f;
}
__device__ __noinline__ float two(float x, char c) { return leaf(x + c) + leaf(x * 2.f); }
__device__ __forceinline__ int nested(int v) {
  int r;
  asm volatile("{\n .reg .pred p;\n .reg .b32 t<3>, q;\n L1: setp.lt.s32 p, %1, 3;\n @p bra L2;\n"
    "{\n .reg .b32 q;\n mov.b32 q, 5;\n add.s32 %0, q, %1;\n bra.uni DONE;\n DONE:\n }\n bra L3;\n"
    "L2: mov.b32 t1, 7; sub.s32 %0, t1, -3;\n L3:\n}\n" : "=r"(r) : "r"(v));
  return r;
}
extern "C" __global__ __launch_bounds__(128, 2) void calls(float* out, const float* in, int n, Big b, char c) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  assert(n > 0);
  if (i >= n) return;
  Big r = mix(b, i);
  float acc = two(in[i], c) + r.v[2] + r.b + (float)r.c;
  if (acc > 100.f) printf("big %f %d\n", acc, i);
  acc += nested(i) + nested(i + 1) + inside[i & 1];
  out[i] = acc;
}
"""


def kernel(body: str, params: str = "", registers: str = REGISTERS) -> str:
    """PTX of one kernel ``k`` with the usual registers."""
    return f"{HEAD}.visible .entry k({params})\n{{{registers}{body}\n    ret;\n}}\n"


def parsed(body: str, params: str = "", registers: str = REGISTERS) -> Function:
    return parse_ptx(kernel(body, params, registers)).functions["k"]


def instructions(function: Function) -> list[Instruction]:
    return [item for item in function.body if isinstance(item, Instruction)]


def one(text: str) -> Instruction:
    """The single instruction of ``text``."""
    found, end = instructions(parsed(text))
    assert end.opcode == "ret"
    return found


@cache
def compiled(name: str) -> str:
    """PTX of an example, or of ``calls``."""
    path = EXAMPLES / f"{name}.cu"
    text = CALLS_CUDA if name == "calls" else path.read_text()
    view = device_view(text, path)
    with TemporaryDirectory() as folder:
        made = build(BuildRequest(view.text, path.name, "sm_86", name, view.headers), Settings(Path(folder)))
    assert isinstance(made, Artifact), made
    return made.ptx


@cache
def module_of(name: str) -> Module:
    return parse_ptx(compiled(name))
