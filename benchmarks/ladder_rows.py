"""Times other defines of the ladder's top rungs than their ``sized`` tables give: run it where a card is new.

    python benchmarks/ladder_rows.py softmax rmsnorm --dtype bfloat16 --seconds 1
    python benchmarks/ladder_rows.py --compile-only          # no card needed: registers, spills, bytes under way an SM

For each family, element type and large set of sizes, all candidates that fit take turns in one run, from a cold L2,
once they are right at the family's small sets. The one that ``sized`` gives is marked with ``*``. Rates are the
family's bytes over the median time; they count only against one another.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import median

from tilewright.errors import TilewrightError
from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import Family, Limit, Rung, load_family
from tilewright.ladder.running import operation, operation_launch
from tilewright.ladder.specs import figure, rung_spec
from tilewright.launch.dtypes import DTYPES
from tilewright.launch.inputs import repeating_inputs
from tilewright.settings import Settings

FAMILIES = (
    "softmax",
    "rmsnorm",
    "layernorm",
    "add_rmsnorm",
    "add_layernorm",
    "rope_half",
    "rope_interleaved",
    "merge_attention",
    "reduce",
    "dot",
    "reduce_rows",
    *("add", "relu", "gelu", "sigmoid", "silu_mul"),
    "embedding",
    "histogram",
)
PACK_BYTES = 16
MOST_PACKS = 8
LEAST_WALK_BYTES = 1 << 20  # shorter arrays take a block a stretch; longer ones are walked by as many as are given here
WALKERS = (528, 792, 2112, 6336)
Defines = Mapping[str, str | int | float]


def candidates(rung: Rung, sizes: Mapping[str, int], item_bytes: int) -> Iterator[dict[str, int]]:
    """Defines to try."""
    text = rung.file.read_text("utf-8")
    if "#define HEADS" in text:
        yield from ({"HEADS": heads} for heads in (1, 2, 4, 8))
    elif "#define BATCH" in text:
        yield from ({"BATCH": batch} for batch in (1, 2, 4, 8))
    elif "#define CLUSTER" in text:
        for blocks in (2, 4, 8):
            for workers in (256, 512, 1024):
                packs = -(-sizes["C"] * item_bytes // (PACK_BYTES * workers * blocks))
                if packs <= MOST_PACKS:
                    yield {"CLUSTER": blocks, "WORKERS": workers, "PACKS": packs}
    elif "__cluster_dims__" in text and "#define LOADS" in text:
        for threads in (256, 512, 1024) if sizes["N"] * item_bytes <= 2 * LEAST_WALK_BYTES else ():
            yield from ({"THREADS": threads, "LOADS": loads} for loads in (1, 2, 4))
    elif "tickets" in text:
        for threads in (256, 512) if sizes["R"] < WALKERS[0] else ():
            yield from ({"THREADS": threads, "LOADS": n, "BLOCKS": most} for n in (2, 4, 8) for most in WALKERS[:2])
    elif "#define ROWS" in text and "#define LOADS" in text:
        yield from shared(sizes["C"] * item_bytes)
    elif "draws_last" in text:
        yield from walks(sizes["N"] * item_bytes, sum(name.startswith("stride_") for name in sizes))
    elif "#define STREAM" in text:
        yield from packed(sizes["N"] * item_bytes, 2 if "others[PACKS]" in text else 1)
    elif "#define COPIES" in text:
        yield from counted(sizes["N"] * item_bytes, sizes["bins"], "#define PACKS" in text)
    elif "indices" in text and "#define PACKS" in text:
        yield from ({"THREADS": threads, "PACKS": packs} for threads in (128, 256, 512) for packs in (1, 2, 4, 8))
    elif "#define ROWS" in text:
        for workers in (32, 64, 128, 256, 512, 1024):
            packs = -(-sizes["C"] * item_bytes // (PACK_BYTES * workers))
            if packs <= MOST_PACKS:
                yield {"WORKERS": workers, "ROWS": 4 if workers == 32 else 1, "PACKS": packs}


def walks(count_bytes: int, arrays: int) -> Iterator[dict[str, int]]:
    """Threads of a block, packs of each array that one has under way, the most blocks; for arrays of so many bytes."""
    is_long = count_bytes > LEAST_WALK_BYTES
    for threads in (256, 512) if is_long else (128, 256, 512, 1024):
        for loads in (2, 4, 8) if count_bytes > 16 * LEAST_WALK_BYTES else (1, 2, 4):
            if loads * arrays > MOST_PACKS:
                continue
            blocks = -(-count_bytes // (PACK_BYTES * threads * loads))
            if blocks == 1 and threads > 128 and 2 * count_bytes <= PACK_BYTES * threads * loads:
                continue  # half of the threads would have nothing to do
            for most in WALKERS if is_long else (792,):
                if most == WALKERS[0] or most <= blocks or not is_long:
                    yield {"THREADS": threads, "LOADS": loads, "BLOCKS": most}


def shared(row_bytes: int) -> Iterator[dict[str, int]]:
    """Threads of a row, rows of a block, packs that a thread has under way; for rows that are only read."""
    for workers in (2, 4, 8, 16, 32, 128, 256, 512):
        for loads in (1, 2, 4, 8):
            if not 1 <= 2 * row_bytes // (PACK_BYTES * workers * loads) <= 32:
                continue  # too many threads without work, or too few
            for rows in (128 // workers, 256 // workers) if workers <= 32 else (1,):
                yield {"WORKERS": workers, "ROWS": rows, "LOADS": loads}


def packed(count_bytes: int, arrays: int) -> Iterator[dict[str, int]]:
    """Threads of a block, packs of each array that one has under way, whether stores stream."""
    is_long = count_bytes > LEAST_WALK_BYTES
    for threads in (128, 256, 512):
        for packs in (1, 2, 4, 8) if is_long else (1, 2):
            for stream in (0, 1) if is_long else (0,):
                if packs * arrays <= MOST_PACKS:
                    yield {"THREADS": threads, "PACKS": packs, "STREAM": stream}


def counted(count_bytes: int, bins: int, has_packs: bool) -> Iterator[dict[str, int]]:
    """The most blocks, counters of a bin; and threads of a block, packs that one has under way."""
    shapes = [{"THREADS": threads, "PACKS": packs} for threads in (256, 512) for packs in (1, 2, 4)]
    for most in (132, 264, 528, 1056) if count_bytes > LEAST_WALK_BYTES else (33, 66, 132):
        for copies in (1, 4, 32):
            if copies > 1 and bins * copies > 16384:
                continue
            for shape in shapes if has_packs else [{}]:
                if count_bytes >= most * PACK_BYTES * shape.get("THREADS", 256) or most in (33, 132):
                    yield {**shape, "BLOCKS": most, "COPIES": copies}


def tried(rung: Rung, sizes: Mapping[str, int], dtype: str) -> dict[str, Rung]:
    """By a name that says the defines."""
    own = rung.at(sizes, dtype)
    found = {}
    for defines in candidates(rung, sizes, DTYPES[dtype].item_bytes):
        name = f"{rung.name} " + " ".join(f"{key}={value}" for key, value in defines.items())
        limits = {"C": Limit(at_most=sizes["C"])} if "C" in sizes else rung.limits
        whole = {**rung.defines, **defines}  # what every rung of the family is given stays
        found[name + " *" * (dict(own.defines) == whole)] = replace(rung, defines=whole, limits=limits)
    return found


def described(name: str, compiled: CompiledRung, defines: Defines) -> str:
    """Registers, spills, and what the blocks of an SM of 64 Ki registers and 2,048 threads have under way at once."""
    threads = int(defines.get("WORKERS", defines.get("THREADS", 128))) * int(defines.get("ROWS", 1))
    registers = -(-compiled.registers // 8) * 8
    resident = min(65536 // (registers * threads), 2048 // threads) * threads
    kept = int(defines.get("PACKS", defines.get("HEADS", defines.get("BATCH", defines.get("LOADS", 1)))))
    kib = resident * kept * PACK_BYTES / 1024
    return f"  {name}: {compiled.registers} registers, {compiled.spill_bytes} bytes spilled, {kib:.0f} KiB an SM"


def compile_all(family: Family, dtype: str, size: str) -> None:
    """Build every candidate for sm_90a, and say what came of it."""
    print(f"{family.name} {dtype} {size}")
    for rung in family.rungs:
        for name, one in tried(rung, family.sizes[size], dtype).items():
            compiled = compile_rung(rung_spec(family, one, dtype), Settings.from_environment(), "sm_90a")
            print(described(name, compiled, one.defines))


def time_all(family: Family, dtype: str, size: str, seconds: float) -> None:
    """Every candidate that is right, interleaved."""
    from tilewright.gpu.device import find_gpu
    from tilewright.gpu.executor import GpuExecutor
    from tilewright.ladder.launching import arch_of
    from tilewright.ladder.timing import DRAWN, RungStopwatch, run_on_gpu
    from tilewright.measure.measure import Plan, sample

    info = find_gpu()
    if info is None:
        raise SystemExit("there is no GPU: --compile-only needs none")
    executor = GpuExecutor(info)
    sizes, ready = family.sizes[size], {}
    for rung in family.rungs:
        for name, one in tried(rung, sizes, dtype).items():
            compiled = compile_rung(rung_spec(family, one, dtype), Settings.from_environment(), arch_of(rung, info))
            runs = [
                run_on_gpu(compiled, operation(family, dtype, family.sizes[small]), executor)
                for small in family.emulated_sets(one, sizes)
            ]
            wrong = [run.message for run in runs if not run.passed]
            if wrong:
                print(f"  {name}: wrong: {wrong[0]}")
            else:
                ready[name] = compiled
    if not ready:
        return
    launch = operation_launch(family, dtype, sizes)
    with RungStopwatch(executor, ready, launch, repeating_inputs(launch, 0, DRAWN)) as stopwatch:
        samples = sample(stopwatch, list(ready), Plan(min_rounds=10, budget_s=seconds * len(ready)))
    total_bytes = figure(family.bytes, family, sizes, dtype)
    print(f"{family.name} {dtype} {size} {dict(sizes)}")
    for name, times in sorted(samples.items(), key=lambda item: median(item[1])):
        print(f"  {total_bytes / median(times) / 1e3:7.0f} GB/s  {median(times):8.1f} us  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--dtype", default="all")
    parser.add_argument("--size", default="", help="one large set; default: all of them")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each candidate")
    parser.add_argument("--compile-only", action="store_true")
    args = parser.parse_args()
    for family in map(load_family, args.families):
        small = family.emulated_sets()
        for dtype in family.dtypes if args.dtype == "all" else (args.dtype,):
            for size in [args.size] if args.size else [name for name in family.sizes if name not in small]:
                try:
                    if args.compile_only:
                        compile_all(family, dtype, size)
                    else:
                        time_all(family, dtype, size, args.seconds)
                except TilewrightError as error:
                    print(f"{family.name} {dtype} {size}: {error.message}")


if __name__ == "__main__":
    main()
