"""Occupancy next to the driver of a card: what it says of real kernels, and its own limits against the tables.

    python benchmarks/occupancy_driver.py --prepare occupancy.npz                 # where NVRTC is
    python benchmarks/occupancy_driver.py --ask occupancy.npz --out rows.json     # where the card is; needs no compiler
    python benchmarks/occupancy_driver.py --compare rows.json                     # writes results/<card>-occupancy.json

The kernels span few to 255 registers, static shared memory and hardware barriers; each is asked about with random
blocks, dynamic shared memory and carve-outs: cuOccupancyMaxActiveBlocksPerMultiprocessor, and its form with flags.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
KIB = 1024
# Values live at once: more than registers, so that the compiler takes every one it is allowed; or few.
MANY = 300
FEW = (1, 3, 6, 9, 12)
REGISTERS = (24, 28, 32, 36, 40, 44, 48, 56, 64, 72, 80, 88, 96, 104, 112, 128, 136, 144, 160, 168, 184, 200)
MORE_REGISTERS = (216, 232, 248, 255)
STATIC_BYTES = (1, 1024, 5000, 16 * KIB, 40 * KIB, 48 * KIB)
BARRIERS = (0, 2, 3, 4, 5, 8, 16)
DEFAULT_CARVEOUT = -1
ATTRIBUTES = (
    *("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "WARP_SIZE", "MAX_THREADS_PER_BLOCK"),
    *("MAX_THREADS_PER_MULTIPROCESSOR", "MAX_BLOCKS_PER_MULTIPROCESSOR", "MAX_REGISTERS_PER_BLOCK"),
    *("MAX_REGISTERS_PER_MULTIPROCESSOR", "MAX_SHARED_MEMORY_PER_BLOCK", "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
    *("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR", "RESERVED_SHARED_MEMORY_PER_BLOCK", "MULTIPROCESSOR_COUNT"),
    *("L2_CACHE_SIZE", "CLOCK_RATE", "MEMORY_CLOCK_RATE", "GLOBAL_MEMORY_BUS_WIDTH", "CLUSTER_LAUNCH"),
)
# The driver's attribute → the table's field.
FIELDS = {
    "WARP_SIZE": "warp_size",
    "MAX_THREADS_PER_BLOCK": "max_threads_per_block",
    "MAX_THREADS_PER_MULTIPROCESSOR": "max_threads_per_sm",
    "MAX_BLOCKS_PER_MULTIPROCESSOR": "max_blocks_per_sm",
    "MAX_REGISTERS_PER_BLOCK": "registers_per_block",
    "MAX_REGISTERS_PER_MULTIPROCESSOR": "registers_per_sm",
    "MAX_SHARED_MEMORY_PER_BLOCK": "smem_static_max_bytes",
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": "smem_optin_max_bytes",
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": "smem_per_sm_bytes",
    "RESERVED_SHARED_MEMORY_PER_BLOCK": "smem_reserved_bytes",
}


@dataclass(frozen=True)
class Kernel:
    """One kernel of the prepared file.

    Attributes:
        live: values that it keeps. registers: the most that it may take; the driver says what it took.
        barriers: that ptxas says it uses.
    """

    label: str
    live: int
    registers: int
    static_bytes: int
    barriers: int


def source(live: int, static_bytes: int, barriers: int) -> str:
    """A kernel with so many values live in a loop, static shared memory and barriers."""
    shared = f"__shared__ char s[{static_bytes}]; s[n % {static_bytes}] = (char)n;" if static_bytes else ""
    syncs = " ".join(f'asm volatile("bar.sync {i};");' for i in range(barriers))
    read = f"out[{live}] = s[(n + 1) % {static_bytes}];" if static_bytes else ""
    return f"""
extern "C" __global__ void probe(const float *in, float *out, int n)
{{
    {shared}
    float x[{live}];
    #pragma unroll
    for (int i = 0; i < {live}; ++i) x[i] = in[i];
    {syncs}
    #pragma unroll 1
    for (int k = 0; k < n; ++k) {{
        #pragma unroll
        for (int i = 0; i < {live}; ++i) x[i] = x[i] * x[(i + 1) % {live}] + in[k];
    }}
    #pragma unroll
    for (int i = 0; i < {live}; ++i) out[i] = x[i];
    {read}
}}
"""


def prepare(path: Path, arch: str) -> None:
    """Compile every kernel and write them, with what they are, into one file."""
    from tilewright.build import nvrtc

    wanted = [Kernel(f"few{n}", n, 255, 0, 1) for n in FEW]
    wanted += [Kernel(f"r{n}", MANY, n, 0, 1) for n in (*REGISTERS, *MORE_REGISTERS)]
    wanted += [Kernel(f"r{r}s{b}", MANY, r, b, 1) for b in STATIC_BYTES for r in (32, 64)]
    wanted += [Kernel(f"b{n}", 3, 255, 0, n) for n in BARRIERS]
    arrays: dict[str, np.ndarray] = {}
    rows = []
    for kernel in wanted:
        options = (f"--gpu-architecture={arch}", f"--maxrregcount={kernel.registers}", "--ptxas-options=-v")
        text = source(kernel.live, kernel.static_bytes, kernel.barriers)
        compiled = nvrtc.run(nvrtc.Program(text, f"{kernel.label}.cu", (), options, "probe"))
        if compiled.cubin is None:
            raise SystemExit(f"{kernel.label} does not compile: {compiled.log}")
        used = re.search(r"Used (\d+) registers, used (\d+) barriers", compiled.log)
        if used is None:
            raise SystemExit(f"{kernel.label}: ptxas does not say what it used: {compiled.log}")
        arrays[kernel.label] = np.frombuffer(compiled.cubin, np.uint8)
        rows.append({**asdict(kernel), "registers": int(used[1]), "barriers": int(used[2])})
    head = json.dumps({"arch": arch, "kernels": rows}).encode()
    with path.open("wb") as file:
        np.savez_compressed(file, head=np.frombuffer(head, np.uint8), **arrays)
    spread = sorted({row["registers"] for row in rows})
    print(f"{path}: {len(rows)} kernels, {path.stat().st_size:,} bytes; registers {spread}")


def draw(kernel: dict[str, Any], limits: dict[str, int], rng: random.Random) -> dict[str, int]:
    """One launch of a kernel: a block, dynamic shared bytes, a carve-out, and whether it opted in."""
    optin, most = limits["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"], limits["MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"]
    reserved, static = limits["RESERVED_SHARED_MEMORY_PER_BLOCK"], kernel["static_bytes"]
    threads = rng.choice((rng.randint(1, 1024), rng.randint(1, 256), 32 * rng.randint(1, 32)))
    edge = most // rng.randint(1, 32) - reserved - static + rng.choice((-129, -128, -1, 0, 1, 127, 128))
    sizes = (0, rng.randint(0, 12 * KIB), rng.randint(0, optin), edge, optin - static, 48 * KIB - static)
    dynamic = min(max(rng.choice(sizes), 0), optin - static)
    carveout = rng.choice((DEFAULT_CARVEOUT, DEFAULT_CARVEOUT, 0, 50, 100, rng.randint(0, 100)))
    needs = static + dynamic > limits["MAX_SHARED_MEMORY_PER_BLOCK"]
    return {
        "threads": threads,
        "dynamic_bytes": dynamic,
        "carveout": carveout,
        "opted_in": int(not needs or rng.random() < 0.85),
    }


def ask(path: Path, out: Path, per_kernel: int, seed: int) -> None:
    """Ask the driver about every kernel, ``per_kernel`` launches each."""
    from cuda.bindings import driver

    from tilewright.gpu.driver import checked

    checked(driver.cuInit(0))
    device = checked(driver.cuDeviceGet(0))
    context = checked(driver.cuDevicePrimaryCtxRetain(device))
    checked(driver.cuCtxSetCurrent(context))
    known = driver.CUdevice_attribute
    limits = {
        name: int(checked(driver.cuDeviceGetAttribute(getattr(known, f"CU_DEVICE_ATTRIBUTE_{name}"), device)))
        for name in ATTRIBUTES
    }
    with np.load(path) as stored:
        head = json.loads(stored["head"].tobytes())
        cubins = {kernel["label"]: stored[kernel["label"]].tobytes() for kernel in head["kernels"]}
    rng, rows, kernels = random.Random(seed), [], []
    for kernel in head["kernels"]:
        module = checked(driver.cuModuleLoadData(cubins[kernel["label"]]))
        function = checked(driver.cuModuleGetFunction(module, b"probe"))
        facts = _facts(driver, function, kernel)
        kernels.append(facts)
        launches = [draw(facts, limits, rng) for _ in range(per_kernel)]
        rows += [{"kernel": kernel["label"], **launch, **_said(driver, function, launch)} for launch in launches]
        if kernel["label"] == "r32":
            facts["max_potential_cluster"] = _cluster(driver, function, limits)
        checked(driver.cuModuleUnload(module))
    record = {
        "card": checked(driver.cuDeviceGetName(256, device)).split(b"\0")[0].decode(),
        "memory_bytes": int(checked(driver.cuDeviceTotalMem(device))),
        "cuda": int(checked(driver.cuDriverGetVersion())),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "arch": head["arch"],
        "seed": seed,
        "attributes": limits,
        "kernels": kernels,
        "rows": rows,
    }
    out.write_text(json.dumps(record) + "\n")
    blocks = Counter(row["blocks"] for row in rows)
    spread = dict(sorted(blocks.items()))
    print(f"{record['card']}: {len(rows)} launches of {len(kernels)} kernels; blocks per SM {spread}")


def _facts(driver: Any, function: Any, kernel: dict[str, Any]) -> dict[str, Any]:
    """The kernel as the driver sees it."""
    from tilewright.gpu.driver import checked

    def read(name: str) -> int:
        attribute = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(checked(driver.cuFuncGetAttribute(attribute, function)))

    return {
        "label": kernel["label"],
        "barriers": kernel["barriers"],
        "registers": read("NUM_REGS"),
        "static_bytes": read("SHARED_SIZE_BYTES"),
        "max_threads": read("MAX_THREADS_PER_BLOCK"),
    }


def _said(driver: Any, function: Any, launch: dict[str, int]) -> dict[str, Any]:
    """What the driver answers; -1 where it refuses."""
    names = driver.CUfunction_attribute
    dynamic = launch["dynamic_bytes"] if launch["opted_in"] else 0
    settings = (
        (names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic),
        (names.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, launch["carveout"]),
    )
    for attribute, value in settings:
        (status,) = driver.cuFuncSetAttribute(function, attribute, value)
        if status.value:
            return {"blocks": -1, "with_flags": -1, "error": status.name}
    size, threads = launch["dynamic_bytes"], launch["threads"]
    plain = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, size)
    override = driver.CUoccupancy_flags.CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE
    flagged = driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(function, threads, size, override.value)
    answers = {"blocks": -1 if plain[0].value else plain[1], "with_flags": -1 if flagged[0].value else flagged[1]}
    return {**answers, "error": plain[0].name} if plain[0].value else answers


def _cluster(driver: Any, function: Any, limits: dict[str, int]) -> dict[str, Any]:
    """The largest cluster of blocks of 32 threads, without and with the permission to be not portable."""
    if not limits["CLUSTER_LAUNCH"]:
        return {}
    found: dict[str, Any] = {}
    allowed = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    for name, value in (("portable", 0), ("nonportable", 1)):
        driver.cuFuncSetAttribute(function, allowed, value)
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = 1024, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = 32, 1, 1
        status, *size = driver.cuOccupancyMaxPotentialClusterSize(function, config)
        found[name] = status.name if status.value else int(size[0])
    return found


def compare(path: Path, out: Path | None) -> int:
    """The driver's answers and attributes against Tilewright's; writes the result, and returns 1 where they differ."""
    from tilewright.arch.arch import load_arch
    from tilewright.arch.devices import find_device
    from tilewright.arch.occupancy import occupancy, preferred_carveout

    told = json.loads(path.read_text())
    arch, attributes = load_arch(told["arch"]), told["attributes"]
    kernels = {kernel["label"]: kernel for kernel in told["kernels"]}
    wrong: list[dict[str, Any]] = []
    for row in told["rows"]:
        kernel = kernels[row["kernel"]]
        own = occupancy(
            arch,
            row["threads"],
            kernel["registers"],
            kernel["static_bytes"] + row["dynamic_bytes"],
            carveout_bytes=None if row["carveout"] < 0 else preferred_carveout(arch, row["carveout"]),
            barriers=kernel["barriers"],
            opted_in=bool(row["opted_in"]),
        )
        if own.blocks_per_sm != max(row["blocks"], 0) or row["with_flags"] != row["blocks"]:
            wrong.append({**row, **kernel, "tilewright": own.blocks_per_sm, "limits": own.limits})
    limits = {name: (attributes[name], getattr(arch, own_name)) for name, own_name in FIELDS.items()}
    device = find_device(told["card"], attributes["MULTIPROCESSOR_COUNT"], told["memory_bytes"])
    if device is not None:
        limits["MULTIPROCESSOR_COUNT"] = (attributes["MULTIPROCESSOR_COUNT"], device.sms)
        limits["L2_CACHE_SIZE"] = (attributes["L2_CACHE_SIZE"], device.l2_bytes)
        limits["CLOCK_RATE"] = (attributes["CLOCK_RATE"], round(device.boost_clock_hz / 1e3))
    differing = {name: {"driver": said, "table": own} for name, (said, own) in limits.items() if said != own}
    result = {
        **{key: told[key] for key in ("card", "cuda", "date", "arch", "seed", "memory_bytes", "attributes")},
        "kernels": kernels,
        "launches": len(told["rows"]),
        "refused": sum(row["blocks"] < 0 for row in told["rows"]),
        "with_a_chosen_carveout": sum(row["carveout"] >= 0 for row in told["rows"]),
        "blocks_per_sm": {str(n): times for n, times in sorted(Counter(row["blocks"] for row in told["rows"]).items())},
        "different": len(wrong),
        "different_by": _by_kind(wrong),
        "first_differences": wrong[:20],
        "table": "none for this card" if device is None else device.name,
        "attributes_that_differ": differing,
    }
    card = told["card"].lower().removeprefix("nvidia ").replace(" ", "_")
    target = out or ROOT / "benchmarks" / "results" / f"{card}-occupancy.json"
    target.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{result['launches']} launches, {len(wrong)} different {result['different_by']}")
    print(f"attributes: {differing or 'equal'}")
    return 1 if wrong or differing else 0


def _by_kind(wrong: list[dict[str, Any]]) -> dict[str, int]:
    """Where the differences are: by what the launches have in common."""
    kinds = {
        "the two calls differ": lambda row: row["with_flags"] != row["blocks"],
        "with a chosen carve-out": lambda row: row["carveout"] >= 0,
        "not opted in": lambda row: not row["opted_in"],
        "several barriers or none": lambda row: row["barriers"] != 1,
        "static shared memory": lambda row: row["static_bytes"] > 0,
    }
    return {name: times for name, has in kinds.items() if (times := sum(map(bool, map(has, wrong))))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--prepare", type=Path, metavar="FILE", help="compile the kernels into FILE")
    what.add_argument("--ask", type=Path, metavar="FILE", help="ask the driver about FILE's kernels")
    what.add_argument("--compare", type=Path, metavar="ROWS", help="compare the answers with Tilewright's")
    parser.add_argument("--arch", default="sm_90a", help="of --prepare")
    parser.add_argument("--out", type=Path, help="of --ask and --compare")
    parser.add_argument("--per-kernel", type=int, default=120, help="launches of each kernel")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.prepare is not None:
        prepare(options.prepare, options.arch)
    elif options.ask is not None:
        ask(options.ask, options.out or Path("rows.json"), options.per_kernel, options.seed)
    else:
        return compare(options.compare, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
