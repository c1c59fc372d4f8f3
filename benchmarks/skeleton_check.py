"""Runs one skeleton of every kind on a card: right at a ragged and at a large size, and how fast beside PyTorch.

    python benchmarks/skeleton_check.py --prepare skeletons.pkl --arch sm_90a
    python benchmarks/skeleton_check.py --check skeletons.pkl skeletons.json

The first needs Tilewright and no card; the second a card, torch and cuda-bindings, and nothing of Tilewright.
Outputs lie between guards and are poisoned: what is not written, or written beside them, is found.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tile_space import Card

GUARD = 1024  # elements before and behind every output
ROUNDS = 20


def skeletons(arch_name: str) -> dict[str, tuple[Any, dict[str, Any], dict[str, dict[str, int]]]]:
    """Name → skeleton, what the check has to know of it, its two sizes."""
    from tilewright.arch.arch import load_arch
    from tilewright.skeleton.attention import AttentionTile, attention_cuda
    from tilewright.skeleton.conv import ConvShape, conv_cuda
    from tilewright.skeleton.elementwise import ElementwiseTile, elementwise_cuda
    from tilewright.skeleton.gemm import GemmTile, Vectors, gemm_cuda
    from tilewright.skeleton.rows import RowTile, rows_cuda

    arch = load_arch(arch_name)
    tile = GemmTile(128, 128, 32, 2, 2, 4)
    big = {"M": 4096, "N": 4096, "K": 4096, "BATCH": 1}
    ragged = {"M": 203, "N": 144, "K": 208, "BATCH": 2}
    odd = {"M": 203, "N": 141, "K": 77, "BATCH": 2}
    deep = {"M": 512, "N": 512, "K": 16384, "BATCH": 1}
    products = {
        "fp16": (gemm_cuda(tile, "fp16", arch), {"ragged": ragged, "large": big}),
        "fp16 unaligned": (
            gemm_cuda(tile, "fp16", arch, vectors=Vectors(1, 1, 1)),
            {"ragged": odd, "large": {**big, "N": 4095, "K": 4095}},
        ),
        "bf16": (gemm_cuda(tile, "bf16", arch), {"ragged": ragged, "large": big}),
        "int8": (gemm_cuda(GemmTile(128, 128, 64, 2, 2, 4), "int8", arch), {"ragged": ragged, "large": big}),
        "tf32": (gemm_cuda(GemmTile(128, 128, 16, 2, 2, 4), "tf32", arch), {"ragged": ragged, "large": big}),
        "fp32": (gemm_cuda(GemmTile(128, 128, 16, 2, 4, 3), "fp32", arch), {"ragged": ragged, "large": big}),
        "split": (gemm_cuda(GemmTile(128, 64, 64, 2, 2, 4, 8), "fp16", arch), {"ragged": ragged, "large": deep}),
        "persistent": (
            gemm_cuda(tile, "fp16", arch, mode="persistent", persistent_blocks=264),
            {"ragged": ragged, "large": big},
        ),
    }
    made: dict[str, Any] = {
        f"gemm {k}": (s, {"op": "gemm", "is_tf32": k == "tf32"}, z) for k, (s, z) in products.items()
    }
    images = {
        "ragged": {"NB": 2, "H": 13, "W": 11, "C": 24, "KF": 40},
        "large": {"NB": 32, "H": 56, "W": 56, "C": 128, "KF": 128},
    }
    conv = conv_cuda(tile, ConvShape(3, 3, 1, 1), "fp16", arch)
    made["conv"] = (conv, {"op": "conv", "stride": 1, "pad": 1}, images)
    heads = {"ragged": {"B": 2, "H": 1, "N": 201}, "large": {"B": 1, "H": 32, "N": 8192}}
    for causal in (False, True):
        attention = attention_cuda(AttentionTile(128, 64, 8, 2), "fp16", arch, d=128, causal=causal)
        made["attention causal" if causal else "attention"] = (attention, {"op": "attention", "causal": causal}, heads)
    many = {"ragged": {"R": 37, "C": 1096}, "large": {"R": 32768, "C": 4096}}
    few = {"ragged": {"R": 3, "C": 5000}, "large": {"R": 16, "C": 1 << 22}}
    for op in ("sum", "softmax", "layernorm"):
        made[f"{op} bf16"] = (rows_cuda(op, RowTile(256, 1, 2), "bf16", arch), {"op": op}, many)
        made[f"{op} split"] = (rows_cuda(op, RowTile(512, 1, 4, split=32), "fp32", arch), {"op": op}, few)
    flat = elementwise_cuda(ElementwiseTile(256, 4), "fp16", arch, inputs=2)
    made["elementwise"] = (flat, {"op": "elementwise"}, {"ragged": {"n": 70001}, "large": {"n": 1 << 27}})
    return made


def prepare(out: str, arch: str) -> None:
    from tilewright.build.artifact import Artifact, BuildRequest
    from tilewright.build.build import build
    from tilewright.launch.bind import BoundScalar, bind
    from tilewright.launch.sidecar import parse_sidecar
    from tilewright.settings import Settings

    cases = []
    for name, (skeleton, facts, sizes) in skeletons(arch).items():
        passes = [(skeleton.kernel, skeleton.sidecar)]
        if skeleton.second is not None:
            passes.append((skeleton.second.kernel, skeleton.second.sidecar))
        artifact = build(BuildRequest(skeleton.text, "skeleton.cu", arch, skeleton.kernel), Settings.from_environment())
        assert isinstance(artifact, Artifact), (name, artifact.message)
        launches: dict[str, list[dict[str, Any]]] = {size: [] for size in sizes}
        for size, values in sizes.items():
            for _, sidecar in passes:
                bound = bind(parse_sidecar(sidecar, Path("skeleton.toml")), values, skeleton.constants)
                args = [
                    ("scalar", a.name, a.dtype.name, a.value)
                    if isinstance(a, BoundScalar)
                    else ("array", a.name, a.dtype.name, a.shape)
                    for a in bound.arguments
                ]
                launches[size].append(
                    {"grid": bound.grid, "threads": bound.block[0], "smem": bound.shared_bytes, "args": args}
                )
        cases.append(
            {
                "name": name,
                "facts": facts,
                "cubin": zlib.compress(artifact.cubin, 9),
                "kernels": [kernel for kernel, _ in passes],
                "smem_bytes": skeleton.smem_bytes,
                "registers": artifact.resources.registers,
                "spill_bytes": artifact.resources.spill_bytes,
                "launches": launches,
                "sizes": sizes,
            }
        )
        print(
            f"{name}: {artifact.resources.registers} registers, {artifact.resources.spill_bytes} bytes spilled",
            flush=True,
        )
    Path(out).write_bytes(pickle.dumps(cases))


class Launches:
    """Both passes of a case at one size, with their buffers."""

    def __init__(self, card: Card, functions: list[Any], launches: list[dict[str, Any]], op: str) -> None:
        import ctypes

        torch = card.torch
        self.card, self.functions, self.launches = card, functions, launches
        self.generator = torch.Generator("cuda").manual_seed(7)
        self.tensors: dict[str, Any] = {}
        self.guarded: dict[str, Any] = {}
        self.packed = []
        output = launches[-1]["args"]
        self.out = [a[1] for a in output if a[0] == "array"][-1] if op not in ("sum",) else "Y"
        for launch in launches:
            values, kinds = [], []
            for what, name, dtype, value in launch["args"]:
                if what == "scalar":
                    values.append(value)
                    kinds.append({"int32": ctypes.c_int, "int64": ctypes.c_longlong, "float32": ctypes.c_float}[dtype])
                    continue
                if name not in self.tensors:
                    self.tensors[name] = self.made(name, getattr(torch, dtype), value)
                values.append(self.tensors[name].data_ptr())
                kinds.append(ctypes.c_void_p)
            self.packed.append((tuple(values), tuple(kinds)))

    def made(self, name: str, dtype: Any, shape: tuple[int, ...]) -> Any:
        torch = self.card.torch
        if name in (self.out, "W"):
            count = 1
            for extent in shape:
                count *= extent
            whole = torch.full((count + 2 * GUARD,), -77, dtype=dtype, device="cuda")
            self.guarded[name] = whole
            inside = whole[GUARD : GUARD + count]
            if dtype.is_floating_point:
                inside.fill_(float("nan"))
            return inside.view(shape)
        if dtype == torch.int8:
            return torch.randint(-20, 20, shape, dtype=dtype, device="cuda", generator=self.generator)
        return torch.randn(shape, device="cuda", generator=self.generator).to(dtype)

    def run(self) -> None:
        for function, launch, args in zip(self.functions, self.launches, self.packed, strict=True):
            self.card.launch(function, launch["grid"], launch["threads"], launch["smem"], args)

    def guards_hold(self) -> bool:
        return all(bool((w[:GUARD] == -77).all()) and bool((w[-GUARD:] == -77).all()) for w in self.guarded.values())


def references(torch: Any, t: dict[str, Any], facts: dict[str, Any], is_small: bool) -> tuple[Any, Callable[[], Any]]:
    """The exact result (FP64 where small, else FP32), and PyTorch's own operation to time beside."""
    functional = torch.nn.functional
    high = torch.float64 if is_small else torch.float32
    op = facts["op"]
    if op == "gemm":
        if t["A"].dtype == torch.int8:
            a, b = t["A"], t["B"]
            own = (lambda: torch._int_mm(a[0], b[0])) if not is_small else (lambda: None)
            return a.double() @ b.double(), own
        a, b = t["A"], t["B"]

        def peer() -> Any:
            torch.backends.cuda.matmul.allow_tf32 = facts["is_tf32"]
            return a @ b

        return a.to(high) @ b.to(high), peer
    if op == "conv":
        x = t["X"].permute(0, 3, 1, 2)
        f = t["F"].permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
        stride, pad = facts["stride"], facts["pad"]
        exact = functional.conv2d(x.to(high), f.to(high), stride=stride, padding=pad).permute(0, 2, 3, 1)
        return exact, lambda: functional.conv2d(x, f, stride=stride, padding=pad)
    if op == "attention":
        q, k, v = t["Q"], t["K"], t["V"]
        attend = functional.scaled_dot_product_attention
        exact = attend(q.to(high), k.to(high), v.to(high), is_causal=facts["causal"])
        return exact, lambda: attend(q, k, v, is_causal=facts["causal"])
    if op == "elementwise":
        a, b = t["A_"], t["B_"]
        return a.to(high) + b.to(high), lambda: a + b
    x = t["X"]
    if op == "sum":
        return x.to(torch.float64).sum(1), lambda: x.sum(1, dtype=torch.float32)
    if op == "softmax":
        return x.to(high).softmax(1), lambda: x.softmax(1)
    scale, shift = t["scale"], t["shift"]
    exact = functional.layer_norm(x.to(high), x.shape[1:], scale.to(high), shift.to(high), 1e-5)
    weight, bias = scale.to(x.dtype), shift.to(x.dtype)
    return exact, lambda: functional.layer_norm(x, x.shape[1:], weight, bias, 1e-5)


def summed(depth: int, is_tf32: bool, t: dict[str, Any]) -> float:
    """What FP32 sums of so many products of normal numbers may differ by.

    A partial sum is some sqrt(depth) large. FMA rounds it to nearest each time, which adds up like a random walk; a
    matrix instruction cuts off what does not fit, once per 8 or 16 products, always to the same side. TF32 drops 13
    bits of each factor on top.
    """
    if is_tf32:
        return 2**-8 * depth**0.5
    is_fma = t.get("A") is not None and t["A"].element_size() == 4
    return 4 * 2**-24 * depth if is_fma else 2**-23 * depth**1.5 / 8


def tolerance(torch: Any, t: dict[str, Any], facts: dict[str, Any], exact: Any, out: Any) -> Any:
    """What one rounding of the output, and the sums' own, may differ from the exact result."""
    epsilon = 0.0 if not out.dtype.is_floating_point else torch.finfo(out.dtype).eps
    if facts["op"] in ("gemm", "conv"):
        depth = t["A"].shape[-1] if facts["op"] == "gemm" else t["F"][0].numel()
        return exact.abs() * epsilon + (summed(depth, facts.get("is_tf32", False), t) if epsilon else 0.0)
    if facts["op"] == "attention":
        return exact.abs() * epsilon + 2 * epsilon
    if facts["op"] == "sum":
        return t["X"].double().abs().sum(1) * 2**-20
    return exact.abs() * (epsilon + 2**-18) + (2**-16 if facts["op"] == "layernorm" else 2**-24)


def timed_us(card: Card, runs: dict[str, Callable[[], Any]]) -> dict[str, float]:
    torch = card.torch
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, call in runs.items():
            card.flushed.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            samples[name].append(start.elapsed_time(end) * 1e3)
    return {name: statistics.median(values[2:]) for name, values in samples.items()}


def checked(card: Card, case: dict[str, Any]) -> dict[str, Any]:
    torch, facts = card.torch, case["facts"]
    torch.backends.cuda.matmul.allow_tf32 = False
    functions = card.load(case)
    row: dict[str, Any] = {"name": case["name"], "registers": case["registers"], "sizes": case["sizes"]}
    for size in case["launches"]:
        done = Launches(card, functions, case["launches"][size], facts["op"])
        done.run()
        torch.cuda.synchronize()
        exact, own = references(torch, done.tensors, facts, size == "ragged")
        out = done.tensors[done.out]
        error = (out.to(exact.dtype).reshape(exact.shape) - exact).abs()
        excess = torch.nan_to_num(error - tolerance(torch, done.tensors, facts, exact, out), nan=float("inf"))
        row[size] = {
            "right": bool((excess <= 0).all()),
            "max_error": float(torch.nan_to_num(error, nan=float("inf")).max()),
            "guards_hold": done.guards_hold(),
        }
        if size == "large":
            del exact, error, excess
            row["us"] = timed_us(card, {"skeleton": done.run, "torch": own})
        del done
        torch.cuda.empty_cache()
    us = row["us"]
    print(
        f"{case['name']:20} ragged {row['ragged']}  large {row['large']}  "
        f"{us['skeleton']:9.1f} us, torch {us['torch']:9.1f} us: {us['torch'] / us['skeleton']:.2f}x",
        flush=True,
    )
    return row


def check(path: str, out: str) -> int:
    card = Card()
    card.torch.backends.cudnn.allow_tf32 = False
    rows = []
    for case in pickle.loads(Path(path).read_bytes()):
        try:
            rows.append(checked(card, case))
        except RuntimeError as error:  # a case that fails must not take the others' results with it
            print(f"{case['name']}: {error}", flush=True)
            rows.append({"name": case["name"], "error": str(error)})
    report = {"card": card.torch.cuda.get_device_name(), "torch": card.torch.__version__, "rows": rows}
    Path(out).write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    good = [
        row
        for row in rows
        if "error" not in row and all(row[s]["right"] and row[s]["guards_hold"] for s in ("ragged", "large"))
    ]
    print(f"{len(good)} of {len(rows)} right")
    return 0 if len(good) == len(rows) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--prepare", metavar="OUT.pkl")
    what.add_argument("--check", nargs=2, metavar=("IN.pkl", "OUT.json"))
    parser.add_argument("--arch", default="sm_90a")
    options = parser.parse_args()
    if options.prepare:
        prepare(options.prepare, options.arch)
        return 0
    return check(*options.check)


if __name__ == "__main__":
    sys.exit(main())
