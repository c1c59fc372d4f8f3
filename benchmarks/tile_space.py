"""Measures every tile of the legal GEMM space on a card: what `tilewright tile` is judged by.

    python benchmarks/tile_space.py --prepare space.pkl --arch sm_90a --shapes benchmarks/tile_shapes.toml --jobs 16
    python benchmarks/tile_space.py --measure space.pkl out.json --shapes benchmarks/tile_shapes.toml --seconds 300

The first needs Tilewright and no card; the second a card, torch and cuda-bindings, and nothing of Tilewright.
``--space legal`` takes the space of the tile room for each shape; ``short`` (the default) a list of about a hundred.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import statistics
import sys
import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

# GemmTile's fields, in this order: bm, bn, bk, warps_m, warps_n, stages, split_k, group_m.
Config = tuple[int, int, int, int, int, int, int, int]

REDUCE_THREADS = 256
RAGGED = (1, 203, 136, 200)  # batch, M, N, K: no multiple of any tile, rows 16-byte aligned
FLUSH_BYTES = 256 << 20
# Successive halving: (rounds, how many times the best median a configuration may take to go on).
HEATS = ((3, 1.6), (6, 1.15), (12, 1.0))


def shapes_of(path: str) -> list[dict[str, Any]]:
    """``[{"name": …, "batch": 1, "m": …, "n": …, "k": …}, …]``; of a TOML file both lists, calibration and test."""
    text = Path(path).read_text("utf-8")
    if path.endswith(".toml"):
        import tomllib

        return [{"batch": 1, **shape, "list": name} for name, rows in tomllib.loads(text).items() for shape in rows]
    return json.loads(text)


def short_space(shape: dict[str, Any], sms: int = 132) -> list[Config]:
    """Tiles that people use; K is split where one block per tile would leave half of the card idle."""
    out: list[Config] = []
    for bm, bn, warps_m, warps_n in (
        *((256, 128, 4, 2), (128, 256, 2, 4), (128, 128, 2, 2), (128, 128, 2, 4), (128, 128, 4, 2)),
        *((256, 64, 4, 1), (64, 256, 1, 4), (128, 64, 2, 2), (64, 128, 2, 2), (64, 64, 2, 2), (64, 32, 2, 1)),
        *((32, 64, 1, 2), (32, 128, 1, 4), (32, 32, 2, 2)),
    ):
        blocks = -(-shape["m"] // bm) * -(-shape["n"] // bn) * shape["batch"]
        for bk in (32, 64):
            for stages in (2, 3, 4, 5):
                if stages * (bm + bn) * bk * 2 > 227 << 10:
                    continue
                for split in (1, 2, 4, 8, 16):
                    if split > 1 and (blocks * split > 3 * sms or shape["k"] // bk // split < 2 * stages):
                        continue
                    for group in (1, 8):
                        if group == 1 or min(shape["m"] // bm, shape["n"] // bn) > 1:
                            out.append((bm, bn, bk, warps_m, warps_n, stages, split, group))
    return out


def legal(shape: dict[str, Any], arch_name: str, card: str) -> list[Config]:
    from tilewright.arch.arch import load_arch
    from tilewright.arch.devices import find_device
    from tilewright.tile.ops import Gemm
    from tilewright.tile.space import legal_space

    device = find_device(card)
    assert device is not None, card
    found = legal_space(Gemm(shape["m"], shape["n"], shape["k"], shape["batch"]), load_arch(arch_name), device)
    return [(t.bm, t.bn, t.bk, t.warps_m, t.warps_n, t.stages, t.split_k, t.group_m) for t in found]


def compiled(job: tuple[Config, str]) -> tuple[Config, dict[str, Any] | str]:
    """One kernel with 16-byte vectors, or why there is none."""
    from tilewright.arch.arch import load_arch
    from tilewright.build.artifact import Artifact, BuildRequest
    from tilewright.build.build import build
    from tilewright.settings import Settings
    from tilewright.skeleton.gemm import GemmTile, gemm_cuda, why_no_gemm

    config, arch_name = job
    arch = load_arch(arch_name)
    why = why_no_gemm(GemmTile(*config), "fp16", arch)
    if why:
        return config, why
    skeleton = gemm_cuda(GemmTile(*config), "fp16", arch)
    names = [skeleton.kernel] + ([skeleton.second.kernel] if skeleton.second else [])
    artifact = build(BuildRequest(skeleton.text, "gemm.cu", arch_name, names[0]), Settings.from_environment())
    if not isinstance(artifact, Artifact):
        return config, f"does not compile: {artifact.message}"
    return config, {
        "cubin": zlib.compress(artifact.cubin, 9),
        "kernels": names,
        "smem_bytes": skeleton.smem_bytes,
        "threads": skeleton.block_threads,
        "registers": artifact.resources.registers,
        "registers_estimate": skeleton.registers_estimate,
        "spill_bytes": artifact.resources.spill_bytes,
    }


def prepare(out: str, arch: str, shapes: list[dict[str, Any]], jobs: int, space: str, card: str) -> None:
    """Compile the union of the shapes' spaces."""
    of_shape = {s["name"]: legal(s, arch, card) if space == "legal" else short_space(s) for s in shapes}
    wanted = list(dict.fromkeys(config for configs in of_shape.values() for config in configs))
    print(f"{len(wanted)} kernels: {', '.join(f'{name} {len(c)}' for name, c in of_shape.items())}", flush=True)
    kernels: dict[Config, dict[str, Any]] = {}
    left_out: dict[Config, str] = {}
    began = time.monotonic()
    with ProcessPoolExecutor(jobs) as pool:
        for number, (config, made) in enumerate(pool.map(compiled, [(c, arch) for c in wanted], chunksize=4), 1):
            if isinstance(made, str):
                left_out[config] = made
            else:
                kernels[config] = made
            if number % 50 == 0 or number == len(wanted):
                print(f"{number} of {len(wanted)}, {time.monotonic() - began:.0f} s", flush=True)
    data = {"arch": arch, "space": of_shape, "kernels": kernels, "left_out": left_out}
    Path(out).write_bytes(pickle.dumps(data))
    spilled = sum(k["spill_bytes"] > 0 for k in kernels.values())
    print(f"{len(kernels)} kernels, {spilled} spill, {len(left_out)} left out, {Path(out).stat().st_size >> 10} KiB")
    for why in sorted(set(left_out.values())):
        print(f"  left out: {why}")


class Card:
    """torch for memory and events, the driver for launches; all on torch's stream."""

    def __init__(self) -> None:
        import torch
        from cuda.bindings import driver

        self.torch, self.driver = torch, driver
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        self.stream = torch.cuda.current_stream().cuda_stream
        self.flushed = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
        self.modules: list[Any] = []

    def checked(self, answer: tuple[Any, ...]) -> Any:
        if answer[0] != self.driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(str(answer[0]))
        return answer[1] if len(answer) > 1 else None

    def load(self, kernel: dict[str, Any]) -> list[Any]:
        module = self.checked(self.driver.cuModuleLoadData(zlib.decompress(kernel["cubin"])))
        self.modules.append(module)
        found = [self.checked(self.driver.cuModuleGetFunction(module, n.encode())) for n in kernel["kernels"]]
        attribute = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.checked(self.driver.cuFuncSetAttribute(found[0], attribute, kernel["smem_bytes"]))
        return found

    def launch(self, function: Any, grid: tuple[int, int, int], threads: int, smem: int, args: Any) -> None:
        self.checked(self.driver.cuLaunchKernel(function, *grid, threads, 1, 1, smem, self.stream, args, 0))


class Product:
    """One shape's operands, and launches of any configuration on them."""

    def __init__(self, card: Card, batch: int, m: int, n: int, k: int, max_split: int) -> None:
        import ctypes

        torch = card.torch
        self.card, self.batch, self.m, self.n, self.k = card, batch, m, n, k
        generator = torch.Generator("cuda").manual_seed(7)
        self.a = torch.randn(batch, m, k, device="cuda", dtype=torch.float16, generator=generator)
        self.b = torch.randn(batch, k, n, device="cuda", dtype=torch.float16, generator=generator)
        self.c = torch.empty(batch, m, n, device="cuda", dtype=torch.float16)
        self.peer = torch.empty_like(self.c)
        count = max_split * batch * m * n if max_split > 1 else 1
        self.workspace = torch.empty(count, device="cuda", dtype=torch.float32)
        ints, pointers = (ctypes.c_int,) * 3, (ctypes.c_void_p,) * 3
        a, b, c, w = (t.data_ptr() for t in (self.a, self.b, self.c, self.workspace))
        self.plain = ((a, b, c, m, n, k), (*pointers, *ints))
        self.split = ((a, b, w, m, n, k), (*pointers, *ints))
        self.reduce = ((w, c, batch * m * n), (*pointers[:2], ctypes.c_longlong))

    def run(self, config: Config, kernel: dict[str, Any], functions: list[Any]) -> None:
        bm, bn, split = config[0], config[1], config[6]
        grid = (-(-self.m // bm) * -(-self.n // bn), 1, self.batch * split)
        first = self.split if split > 1 else self.plain
        self.card.launch(functions[0], grid, kernel["threads"], kernel["smem_bytes"], first)
        if split > 1:
            blocks = -(-self.batch * self.m * self.n // REDUCE_THREADS)
            self.card.launch(functions[1], (blocks, 1, 1), REDUCE_THREADS, 0, self.reduce)

    def cublas(self) -> None:
        self.card.torch.matmul(self.a, self.b, out=self.peer)


def wrong(product: Product) -> str:
    """What is wrong with C: compared with an FP32 product; "" where nothing is."""
    torch = product.card.torch
    exact = torch.matmul(product.a.double(), product.b.double())
    # Half an ulp of the output, and FP32 sums of K products of order one: far below.
    error = (product.c.double() - exact).abs() / (exact.abs() + product.k**0.5)
    worst = float(torch.nan_to_num(error, nan=float("inf")).max())
    return "" if worst < 2**-10 else f"error {worst:.3g}"


def verified(card: Card, data: dict[str, Any], functions: dict[Config, list[Any]]) -> dict[Config, str]:
    """Configurations that are wrong at a ragged shape."""
    torch = card.torch
    largest = max(config[6] for config in data["kernels"])
    product = Product(card, *RAGGED, max_split=largest)
    bad: dict[Config, str] = {}
    for config, kernel in data["kernels"].items():
        product.c.fill_(float("nan"))
        product.workspace.fill_(float("nan"))
        product.run(config, kernel, functions[config])
        torch.cuda.synchronize()
        why = wrong(product)
        if why:
            bad[config] = why
    return bad


def timed(card: Card, product: Product, runs: dict[Any, Any], samples: dict[Any, list[float]]) -> None:
    """One round: each once, in random order, L2 flushed before each."""
    torch = card.torch
    order = list(runs)
    random.shuffle(order)
    events = []
    for name in order:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        card.flushed.zero_()
        start.record()
        runs[name]()
        end.record()
        events.append((name, start, end))
    torch.cuda.synchronize()
    for name, start, end in events:
        samples.setdefault(name, []).append(start.elapsed_time(end) * 1e3)


def spread(times: list[float]) -> float:
    """The interquartile range."""
    low, _, high = statistics.quantiles(times, n=4) if len(times) > 1 else (0.0, 0.0, 0.0)
    return high - low


def driver_version() -> str:
    import subprocess

    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip().splitlines()[0]


def measured_shape(
    card: Card, shape: dict[str, Any], data: dict[str, Any], functions: dict[Config, list[Any]], seconds: float
) -> dict[str, Any]:
    """Medians in microseconds; those far behind the best leave after each heat."""
    configs = [c for c in data["space"][shape["name"]] if c in functions]
    product = Product(card, shape["batch"], shape["m"], shape["n"], shape["k"], max((c[6] for c in configs), default=1))
    runs: dict[Any, Any] = {
        c: lambda c=c: product.run(c, data["kernels"][c], functions[c])  # type: ignore[misc]
        for c in configs
    }
    peer = product.cublas
    samples: dict[Any, list[float]] = {}
    deadline = time.monotonic() + seconds
    timed(card, product, {**runs, "cublas": peer}, {})  # warm-up
    product.c.fill_(float("nan"))
    is_out_of_time = False
    for rounds, keep in HEATS:
        for _ in range(rounds):
            timed(card, product, {**runs, "cublas": peer}, samples)
            if time.monotonic() > deadline:
                is_out_of_time = True
                break
        if is_out_of_time:
            break
        best = min(statistics.median(samples[c]) for c in runs)
        runs = {c: run for c, run in runs.items() if statistics.median(samples[c]) <= keep * best} if keep > 1 else runs
    rows = [
        {
            "config": list(c),
            "median_us": statistics.median(samples[c]),
            "min_us": min(samples[c]),
            "iqr_us": spread(samples[c]),
            "rounds": len(samples[c]),
        }
        for c in configs
    ]
    rows.sort(key=lambda row: row["median_us"])
    flops = 2.0 * shape["batch"] * shape["m"] * shape["n"] * shape["k"]
    peer_us = statistics.median(samples["cublas"])
    best_us = rows[0]["median_us"]
    print(
        f"{shape['name']:24} best {rows[0]['config']} {best_us:9.1f} us {flops / best_us * 1e-6:6.1f} TFLOPS  "
        f"cuBLAS {peer_us:9.1f} us  {peer_us / best_us:5.2f}x  {len(rows)} configurations"
        + ("  (out of time)" if is_out_of_time else ""),
        flush=True,
    )
    return {**shape, "cublas_us": peer_us, "cut_short": is_out_of_time, "rows": rows}


def measure(path: str, out: str, shapes: list[dict[str, Any]], seconds: float) -> None:
    began = time.monotonic()
    data = pickle.loads(Path(path).read_bytes())
    random.seed(7)
    card = Card()
    torch = card.torch
    functions = {config: card.load(kernel) for config, kernel in data["kernels"].items()}
    bad = verified(card, data, functions)
    print(f"{len(functions)} kernels, {len(bad)} wrong, {time.monotonic() - began:.0f} s", flush=True)
    for config, why in list(bad.items())[:10]:
        print(f"  wrong: {config}: {why}", flush=True)
    good = {config: found for config, found in functions.items() if config not in bad}
    results = []
    for number, shape in enumerate(shapes):
        # The time that is left is shared among the shapes that are left.
        left = seconds - (time.monotonic() - began)
        results.append(measured_shape(card, shape, data, good, max(left / (len(shapes) - number), 1.0)))
        torch.cuda.empty_cache()
    kernels = {
        "x".join(map(str, config)): {k: v for k, v in kernel.items() if k not in ("cubin", "kernels")}
        for config, kernel in data["kernels"].items()
    }
    report = {
        "card": torch.cuda.get_device_name(),
        "driver": driver_version(),
        "date": time.strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        "arch": data["arch"],
        "wrong": [{"config": list(c), "why": why} for c, why in bad.items()],
        "kernels": kernels,
        "shapes": results,
    }
    Path(out).write_text(json.dumps(report) + "\n", "utf-8")
    print(f"{time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--prepare", metavar="OUT.pkl")
    what.add_argument("--measure", nargs=2, metavar=("IN.pkl", "OUT.json"))
    parser.add_argument("--shapes", default=str(Path(__file__).with_name("tile_shapes.toml")))
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--card", default="H200", help="whose SMs the legal space is made for")
    parser.add_argument("--space", choices=("short", "legal"), default="short")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=300.0)
    options = parser.parse_args()
    shapes = shapes_of(options.shapes)
    if options.prepare:
        prepare(options.prepare, options.arch, shapes, options.jobs, options.space, options.card)
    else:
        measure(*options.measure, shapes, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
