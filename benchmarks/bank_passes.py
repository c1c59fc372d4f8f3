"""Passes of shared memory, measured: what `tilewright layout banks` counts, next to a card's clock.

    python benchmarks/bank_passes.py --prepare banks.npz --arch sm_90a    # where NVRTC is
    python benchmarks/bank_passes.py --measure banks.npz                  # where the card is

The second writes `results/<card>-bank-passes.json`.

One block of 32 warps repeats one request of known addresses; with so many in flight the pipe of shared memory is what
takes the time, so cycles per request are its passes.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
WARPS, LOADS, ROUNDS = 32, 8, 256
KINDS = {
    "ld.4": (4, 'asm volatile("ld.volatile.shared.b32 %0, [%1];" : "=r"(r[i].x) : "r"(at[i]));'),
    "ld.8": (8, 'asm volatile("ld.volatile.shared.v2.b32 {%0, %1}, [%2];" : "=r"(r[i].x), "=r"(r[i].y) : "r"(at[i]));'),
    "ld.16": (
        16,
        'asm volatile("ld.volatile.shared.v4.b32 {%0, %1, %2, %3}, [%4];"'
        ' : "=r"(r[i].x), "=r"(r[i].y), "=r"(r[i].z), "=r"(r[i].w) : "r"(at[i]));',
    ),
    "ldmatrix.x4": (
        16,
        'asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"'
        ' : "=r"(r[i].x), "=r"(r[i].y), "=r"(r[i].z), "=r"(r[i].w) : "r"(at[i]));',
    ),
    "st.4": (4, 'asm volatile("st.shared.b32 [%0], %1;" :: "r"(at[i]), "r"(i) : "memory");'),
    "st.8": (8, 'asm volatile("st.shared.v2.b32 [%0], {%1, %1};" :: "r"(at[i]), "r"(i) : "memory");'),
    "st.16": (16, 'asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" :: "r"(at[i]), "r"(i) : "memory");'),
}
SOURCE = """
extern "C" __global__ void probe(const int *where, long long *cycles) {
    __shared__ __align__(128) unsigned char smem[40960];
    for (int i = threadIdx.x; i < 10240; i += blockDim.x) ((int *)smem)[i] = i;
    // Addresses that the compiler takes for different ones in every round, so that it keeps every access.
    int zero = where[32];
    unsigned at[LOADS];
    for (int i = 0; i < LOADS; ++i) at[i] = (unsigned)__cvta_generic_to_shared(smem) + where[threadIdx.x % 32];
    int4 r[LOADS] = {};
    int sum = 0;
    __syncthreads();
    long long begin = clock64();
    #pragma unroll 1
    for (int round = 0; round < ROUNDS; ++round) {
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) { at[i] = (at[i] ^ zero) + i * zero; ACCESS }
    }
    for (int i = 0; i < LOADS; ++i) sum += r[i].x + r[i].y + r[i].z + r[i].w;
    __syncthreads();
    long long end = clock64();
    cycles[threadIdx.x] = end - begin + (sum == 123456789);
}
"""
SIDECAR = """
kernel = "probe"
[launch]
grid = 1
block = 1024
[sizes]
default = { N = 1024 }
[[args]]
name = "where"
dtype = "int32"
shape = [33]
[[args]]
name = "cycles"
dtype = "int64"
shape = ["N"]
role = "out"
"""


def requests(width: int, matrix: bool) -> dict[str, list[int]]:
    """Named address patterns of 32 lanes: those of the documentation, and random ones."""
    rng = random.Random(width + 100 * matrix)
    lanes = range(32)
    found = {
        "consecutive": [lane * width for lane in lanes],
        "one place": [0 for _ in lanes],
        "pairs share": [lane // 2 * width for lane in lanes],
        "halves share": [lane % 16 * width for lane in lanes],
        "quarters share": [lane % 8 * width for lane in lanes],
        "every other": [lane * 2 * width for lane in lanes],
        "rows of 128": [lane * 128 for lane in lanes],
        "rows of 128 + width": [lane * (128 + width) for lane in lanes],
        "rows of 80": [lane * 80 for lane in lanes],
        "swizzled 128": [lane * 128 + (lane % 8) * 16 for lane in lanes],
        "two rows of 64, pitch 80": [lane // 4 * 80 + lane % 4 * 16 for lane in lanes],
        "two rows of 64, swizzled": [lane // 4 * 64 + (lane % 4 ^ lane // 8 % 4) * 16 for lane in lanes],
        "halves crossed": [(lane * 2 % 32 + lane // 16) * width for lane in lanes],
    }
    for i in range(12):
        spread = rng.choice((8, 32, 128, 1024))
        found[f"random {i}, {spread} places"] = [rng.randrange(spread) * width for _ in lanes]
    return found | in_pairs(width)


def in_pairs(width: int) -> dict[str, list[int]]:
    """What decides about loads whose lanes share in pairs: which partners, all of them or some, with conflicts."""
    rng = random.Random(1000 + width)
    lanes = range(32)
    pairs = [lane // 2 for lane in lanes]
    two_apart = [lane // 4 * 2 + lane % 2 for lane in lanes]
    found = {
        "two apart share": two_apart,
        "four apart share": [lane // 8 * 4 + lane % 4 for lane in lanes],
        "pairs share but one": [*pairs[:31], 16],
        "first half in pairs": [*pairs[:16], *range(16, 32)],
        "second half in pairs": [*range(16), *(16 + pair for pair in pairs[16:])],
        "pairs, then two apart": [*pairs[:16], *two_apart[16:]],
    }
    for i in range(6):
        spread = (8, 32, 128, 128, 1024, 1024)[i]
        places = [rng.randrange(spread) for _ in range(16)]
        found[f"random pairs {i}, {spread} places"] = [places[lane // 2] for lane in lanes]
    return {name: [place * width for place in places] for name, places in found.items()}


def prepare(out: Path, arch: str) -> None:
    from tilewright.build.artifact import Artifact, BuildRequest
    from tilewright.build.build import build
    from tilewright.settings import Settings

    cubins: dict[str, Any] = {"arch": np.array(arch)}
    for kind, (_, access) in KINDS.items():
        text = SOURCE.replace("ACCESS", access).replace("LOADS", str(LOADS)).replace("ROUNDS", str(ROUNDS))
        artifact = build(BuildRequest(text, "probe.cu", arch, "probe"), Settings.from_environment())
        if not isinstance(artifact, Artifact):
            raise SystemExit(f"{kind}: {artifact}")
        cubins[kind] = np.frombuffer(artifact.cubin, np.uint8)
        cubins[f"{kind} ptx"] = np.array(artifact.ptx)
    np.savez(out, **cubins)


def measure(prepared: Path, executor: Any, samples: int) -> list[dict[str, Any]]:
    """One row for each kind and pattern: passes as counted, cycles per request as measured (the least of some)."""
    from tilewright.launch.bind import bind
    from tilewright.launch.executor import Program
    from tilewright.launch.sidecar import parse_sidecar
    from tilewright.layout.banks import passes

    data = np.load(prepared)
    launch = bind(parse_sidecar(SIDECAR, Path("probe.toml")), "default", {})
    rows = []
    for kind, (width, _) in KINDS.items():
        program = Program(data[kind].tobytes(), str(data[f"{kind} ptx"]), "probe", str(data["arch"]))
        for name, addresses in requests(width, "matrix" in kind).items():
            if any(address % width or address > 40960 - 16 for address in addresses):
                continue
            arrays = {"where": np.array([*addresses, 0], np.int32), "cycles": np.zeros(1024, np.int64)}
            taken = []
            for _ in range(samples):
                result = executor.run(program, launch, arrays)
                if result.error:
                    raise SystemExit(result.error)
                taken.append(int(result.arrays["cycles"].max()) / (WARPS * LOADS * ROUNDS))
            counted = passes(addresses, width, is_load=kind.startswith("ld.")).total
            row = {"kind": kind, "pattern": name, "counted": counted, "cycles": round(min(taken), 3)}
            rows.append(row)
            print(f"{kind:<12} {name:<28} counted {counted:>3}   cycles {row['cycles']:>7.2f}", flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prepare", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--measure", type=Path)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.prepare is not None:
        prepare(options.prepare, options.arch)
    if options.measure is None:
        return 0
    from tilewright.gpu.device import find_gpu
    from tilewright.gpu.executor import GpuExecutor

    card = find_gpu()
    if card is None:
        raise SystemExit("no NVIDIA GPU")
    rows = measure(options.measure, GpuExecutor(card), options.samples)
    off = [row for row in rows if abs(row["cycles"] - row["counted"]) > 0.15 * row["counted"] + 0.15]
    record = {"card": card.name, "date": datetime.now(UTC).isoformat(timespec="seconds"), "off": off, "rows": rows}
    name = card.name.lower().replace("nvidia ", "").replace(" ", "-")
    out = options.out or ROOT / "benchmarks" / "results" / f"{name}-bank-passes.json"
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{len(rows)} requests, {len(off)} of them off by more than 15 %: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
