"""The best of what cuBLASLt's heuristic offers for a product: a peer beside ``torch.mm``, which takes its first answer.

    python benchmarks/cublaslt_best.py 4096 4096 4096 [--dtype bfloat16] [--offers 16]

prints a line of JSON: microseconds of each offer, in the heuristic's order, and of ``torch.mm``. As a module:
``best_of`` gives a call to be timed with others. It is the library that PyTorch brings, through its C interface ("Using
the cuBLASLt API" in NVIDIA's documentation names the calls, structures and numbers below). Sums are float32, and
parts of K are added up in it, as PyTorch does where reduced-precision reductions are off. Needs PyTorch and a card.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORKSPACE_BYTES = 64 << 20  # 32 MiB is what NVIDIA recommends for Hopper
COMPUTE_32F = 68  # cublasComputeType_t
R_32F = 0  # cudaDataType_t, as the next two
TYPES = {"float16": 2, "bfloat16": 14}
PREFERS_WORKSPACE_OF, PREFERS_REDUCTIONS = 1, 3  # cublasLtMatmulPreferenceAttributes_t
IN_COMPUTE_TYPE = 2  # cublasLtReductionScheme_t: parts of K are added up in float32; none at all is always allowed


class Offer(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


def library() -> ctypes.CDLL:
    """The one that PyTorch has loaded, or will load.

    Raises:
        OSError: there is none.
    """
    import torch

    roots = [Path(torch.__file__).parent / "lib", *(Path(place) / "nvidia" for place in sys.path)]
    found = sorted({file for root in roots if root.is_dir() for file in root.rglob("libcublasLt.so.*")})
    if not found:
        return ctypes.CDLL("libcublasLt.so")  # on the loader's own path
    wanted = f"libcublasLt.so.{(torch.version.cuda or '').partition('.')[0]}"
    return ctypes.CDLL(str(next((file for file in found if file.name == wanted), found[-1])))


def checked(status: int, call: str) -> None:
    if status:
        raise RuntimeError(f"{call} gave cublasStatus_t {status}")


class Plan:
    """A product of matrices in rows, as cuBLASLt sees it: matrices in columns, c^T = b^T a^T.

    Attributes:
        offers: what the heuristic has for it, its favourite first.
    """

    def __init__(self, a: Any, b: Any, c: Any, offers: int = 16) -> None:
        """Tensors a (M, K), b (K, N) and c (M, N) of one type; columns are packed, and c's rows, too.

        Raises:
            OSError: no library. RuntimeError: it refuses the product.
        """
        import torch

        m, k = a.shape
        n = b.shape[1]
        if a.stride(1) != 1 or b.stride(1) != 1 or c.stride(1) != 1:
            raise ValueError("matrices in rows are what this is for")
        self.a, self.b, self.c = a, b, c
        self.lib = library()
        kind = TYPES[str(a.dtype).removeprefix("torch.")]
        self.handle = self._made("cublasLtCreate")
        self.product = self._made("cublasLtMatmulDescCreate", ctypes.c_int(COMPUTE_32F), ctypes.c_int(R_32F))
        self.of_b = self._layout(kind, n, k, b.stride(0))
        self.of_a = self._layout(kind, k, m, a.stride(0))
        self.of_c = self._layout(kind, n, m, c.stride(0))
        self.workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=a.device)
        self.one, self.zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        self.offers = self._asked(offers)

    def run(self, offer: Offer) -> None:
        """On PyTorch's current stream; it does not wait."""
        import torch

        status = self.lib.cublasLtMatmul(
            self.handle,
            self.product,
            ctypes.byref(self.one),
            ctypes.c_void_p(self.b.data_ptr()),
            self.of_b,
            ctypes.c_void_p(self.a.data_ptr()),
            self.of_a,
            ctypes.byref(self.zero),
            ctypes.c_void_p(self.c.data_ptr()),
            self.of_c,
            ctypes.c_void_p(self.c.data_ptr()),
            self.of_c,
            ctypes.byref(offer),  # it begins with the algorithm
            ctypes.c_void_p(self.workspace.data_ptr()),
            ctypes.c_size_t(WORKSPACE_BYTES),
            ctypes.c_void_p(torch.cuda.current_stream(self.a.device).cuda_stream),
        )
        checked(status, "cublasLtMatmul")

    def _made(self, call: str, *words: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        checked(getattr(self.lib, call)(ctypes.byref(made), *words), call)
        return made

    def _layout(self, kind: int, rows: int, columns: int, pitch: int) -> ctypes.c_void_p:
        sizes = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(pitch)
        return self._made("cublasLtMatrixLayoutCreate", ctypes.c_int(kind), *sizes)

    def _asked(self, most: int) -> list[Offer]:
        prefers = self._made("cublasLtMatmulPreferenceCreate")
        settings: dict[int, Any] = {
            PREFERS_WORKSPACE_OF: ctypes.c_uint64(WORKSPACE_BYTES),
            PREFERS_REDUCTIONS: ctypes.c_uint32(IN_COMPUTE_TYPE),
        }
        for what, value in settings.items():
            status = self.lib.cublasLtMatmulPreferenceSetAttribute(
                prefers, ctypes.c_int(what), ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
            )
            checked(status, "cublasLtMatmulPreferenceSetAttribute")
        offers, count = (Offer * most)(), ctypes.c_int()
        status = self.lib.cublasLtMatmulAlgoGetHeuristic(
            self.handle,
            self.product,
            self.of_b,
            self.of_a,
            self.of_c,
            self.of_c,
            prefers,
            ctypes.c_int(most),
            offers,
            ctypes.byref(count),
        )
        checked(status, "cublasLtMatmulAlgoGetHeuristic")
        return [offer for offer in offers[: count.value] if offer.state == 0]


def microseconds(run: Callable[[], None], inner: int, rounds: int) -> float:
    """The median of so many rounds, each a CUDA graph of so many calls."""
    import torch

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):  # ``torch.cuda.graph`` would give memory back before each of them
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for _ in range(inner):
                run()
        finally:
            graph.capture_end()
    graph.replay()
    torch.cuda.synchronize()
    times: list[float] = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(float(begin.elapsed_time(end)) * 1e3 / inner)
    return statistics.median(times)


def best_of(
    a: Any, b: Any, c: Any, offers: int = 16, inner: int = 20, rounds: int = 3
) -> tuple[Callable[[], None], list[float | None]]:
    """c = a b by the fastest offer: a call, and the microseconds of each offer; None for one that does not run.

    Raises:
        OSError, RuntimeError: as `Plan`, or no offer runs.
    """
    plan = Plan(a, b, c, offers)
    times: list[float | None] = []
    for offer in plan.offers:
        try:
            times.append(round(microseconds(lambda offer=offer: plan.run(offer), inner, rounds), 2))  # type: ignore[misc]
        except RuntimeError:
            times.append(None)
    known = [(us, index) for index, us in enumerate(times) if us is not None]
    if not known:
        raise RuntimeError("no offer of cuBLASLt's heuristic runs")
    best = plan.offers[min(known)[1]]
    return lambda: plan.run(best), times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs=3, metavar=("M", "N", "K"))
    parser.add_argument("--dtype", choices=TYPES, default="bfloat16")
    parser.add_argument("--offers", type=int, default=16)
    words = parser.parse_args()
    import torch

    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    m, n, k = words.sizes
    kind = getattr(torch, words.dtype)
    a, b = torch.randn(m, k, device="cuda").to(kind), torch.randn(k, n, device="cuda").to(kind)
    c = torch.empty(m, n, device="cuda", dtype=kind)
    run, times = best_of(a, b, c, words.offers)
    c.fill_(float("nan"))
    run()
    expected = torch.mm(a, b)
    known = [us for us in times if us is not None]
    line = {
        "sizes": [m, n, k],
        "dtype": words.dtype,
        "offers_us": times,
        "best_us": min(known),
        "torch_us": round(microseconds(lambda: torch.mm(a, b, out=expected), 20, 3), 2),
        "largest_difference": float((c.float() - expected.float()).abs().max()),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
