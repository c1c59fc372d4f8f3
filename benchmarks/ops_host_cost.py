"""What a call of ``tilewright.ops`` costs the host once everything is compiled, beside PyTorch's own calls.

    python benchmarks/ops_host_cost.py [--out FILE] [--calls 300] [--rounds 15]

On a card: calls are put on a stream without waiting for it, on arrays so small that the card keeps up. Without one: the
kernels, the driver's calls and the card are stand-ins and the arrays lie in the host's memory, so that what is left is
Tilewright's own share; PyTorch's calls then compute on the CPU and are left out. Microseconds of a call: the median
over rounds of a round's mean, and the least. Needs PyTorch; takes less than 10 s once the kernels lie in the cache.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

ROWS, COLUMNS, EDGE = 64, 512, 256
_CONTEXT = 0x1000  # of a stand-in: any number but 0


@contextmanager
def stand_ins() -> Iterator[None]:
    """A card that takes every launch and does nothing; arrays in the host's memory pass for the card's."""
    import numpy as np
    import torch
    from cuda.bindings import driver

    from tilewright.ladder import launching, matmul_op, packed, plans, repeats, workspaces
    from tilewright.ladder.compiling import constants_of
    from tilewright.ladder.specs import rung_spec

    done = (driver.CUresult.CUDA_SUCCESS,)

    def load(_: Any, family: Any, rung: Any, dtype: str, card: Any) -> tuple[Any, list[Any]]:
        spec = rung_spec(family, rung, dtype)
        programs = [SimpleNamespace(ptx="", kernel=one.kernel) for one in spec.specs]
        compiled = SimpleNamespace(spec=spec, constants=constants_of(spec), programs=programs)
        return compiled, [SimpleNamespace(handle=1) for _ in programs]

    @contextmanager
    def on_card(index: int) -> Iterator[None]:
        yield

    blank = np.zeros(128, np.uint8)
    replaced = [
        (launching.Ladder, "_load", load),
        (launching.Ladder, "_card", lambda *_: SimpleNamespace(index=0, arch="sm_90", sms=132)),
        (launching, "on_card", on_card),
        (launching, "allow_shared_bytes", lambda *_: None),
        (launching, "waits_first", lambda *_: True),
        (plans, "fill", lambda *_: None),
        (workspaces, "_zeros", lambda _: 1 << 20),
        (packed, "encode_tensor_map", lambda *_: blank),
        (driver, "cuLaunchKernelEx", lambda *_: done),
        (driver, "cuCtxGetCurrent", lambda: (*done, _CONTEXT)),
        (driver, "cuMemAllocAsync", lambda *_: (*done, 1 << 20)),
        (driver, "cuMemFreeAsync", lambda *_: done),
        (driver, "cuStreamIsCapturing", lambda *_: (*done, 0)),
        (torch.cuda, "current_stream", lambda *_: SimpleNamespace(cuda_stream=0)),
    ]
    with ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(patch.object(owner, name, value))
        for owner, name in ((launching, "_MOST_ALIGNED"), (matmul_op, "MOST_ALIGNED"), (repeats, "ALIGNED_BYTES")):
            stack.enter_context(patch.object(owner, name, 64))  # as the host's allocator has it
        stack.enter_context(patch.object(torch.Tensor, "is_cuda", True, create=True))
        yield


def calls_on(device: str) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Tilewright's call and PyTorch's, by what they compute."""
    import torch
    from torch.nn import functional

    from tilewright import ops

    half = {"dtype": torch.bfloat16, "device": device}
    a, b, bias = torch.randn(EDGE, EDGE, **half), torch.randn(EDGE, EDGE, **half), torch.randn(EDGE, **half)
    x, y = torch.randn(ROWS, COLUMNS, **half), torch.randn(ROWS, COLUMNS, **half)
    weight = torch.randn(COLUMNS, **half)
    linear, scale = b.t(), (COLUMNS,)
    layer = ops.matmul(a, linear, bias=bias, explain=device != "cpu")
    rung = layer[1].rung if isinstance(layer, tuple) else "matmul/20_persistent"
    return {
        "linear": (lambda: ops.matmul(a, linear, bias=bias), lambda: functional.linear(a, b, bias)),
        "linear, rung named": (
            lambda: ops.matmul(a, linear, bias=bias, rung=rung),
            lambda: functional.linear(a, b, bias),
        ),
        "mm": (lambda: ops.matmul(a, b), lambda: torch.mm(a, b)),
        "hgemm": (lambda: ops.hgemm(a, b), lambda: torch.mm(a, b)),
        "add": (lambda: ops.add(x, y), lambda: torch.add(x, y)),
        "softmax": (lambda: ops.softmax(x), lambda: torch.softmax(x, -1)),
        "rmsnorm": (lambda: ops.rmsnorm(x, weight), lambda: functional.rms_norm(x, scale, weight, 1e-5)),
        "rmsnorm, epsilon given": (
            lambda: ops.rmsnorm(x, weight, epsilon=1e-6),
            lambda: functional.rms_norm(x, scale, weight, 1e-6),
        ),
        "rmsnorm, in a graph's wrapper": (
            lambda: torch.ops.tilewright.rmsnorm.default(x, weight, 1e-5),
            lambda: functional.rms_norm(x, scale, weight, 1e-5),
        ),
    }


def microseconds(call: Callable[[], Any], calls: int, rounds: int, wait: Callable[[], None]) -> tuple[float, float]:
    """Of one call, on the host: over rounds, the median and the least."""
    means = []
    for _ in range(rounds + 1):
        wait()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        means.append((time.perf_counter() - begin) / calls * 1e6)
    wait()
    return statistics.median(means[1:]), min(means[1:])  # the first warms up


def measured(calls: int, rounds: int) -> dict[str, Any]:
    """The record."""
    import torch

    is_on_card = torch.cuda.is_available()
    wait = torch.cuda.synchronize if is_on_card else (lambda: None)
    rows = []
    with ExitStack() as stack:
        if not is_on_card:
            stack.enter_context(stand_ins())
        for name, (own, peer) in calls_on("cuda" if is_on_card else "cpu").items():
            row: dict[str, Any] = {"call": name}
            row["tilewright_us"], row["tilewright_least_us"] = microseconds(own, calls, rounds, wait)
            if is_on_card:
                row["pytorch_us"], row["pytorch_least_us"] = microseconds(peer, calls, rounds, wait)
            rows.append(row)
    return {
        "card": torch.cuda.get_device_name() if is_on_card else None,
        "host": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "shapes": {"rows": ROWS, "columns": COLUMNS, "edge": EDGE, "dtype": "bfloat16"},
        "calls": calls,
        "rounds": rounds,
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a file for the record, as JSON")
    parser.add_argument("--calls", type=int, default=300, help="in a round")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    record = measured(options.calls, options.rounds)
    where = record["card"] or "no card: the kernels and the driver's calls are stand-ins"
    print(f"{where}; PyTorch {record['torch']}, Python {record['python']}")
    print(f"{'microseconds of a call':32} {'tilewright':>11} {'least':>7} {'PyTorch':>9} {'least':>7}")
    for row in record["rows"]:
        peer = f"{row['pytorch_us']:9.1f} {row['pytorch_least_us']:7.1f}" if "pytorch_us" in row else ""
        print(f"{row['call']:32} {row['tilewright_us']:11.1f} {row['tilewright_least_us']:7.1f} {peer}".rstrip())
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
