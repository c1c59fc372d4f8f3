"""Times candidates for a family's rungs beside its peers, on a card: what ``sized`` and ``best_when`` are written from.

    PYTHONPATH=src python benchmarks/ladder_trial.py trials.json [--budget 60] [--seconds 0.1] > trial.jsonl

``trials.json`` is a list of

    {"family": "softmax", "dtype": "bfloat16", "sizes": [{"R": 128, "C": 1024, "ld_x": 1024}],
     "candidates": [["09_one_barrier", {"WORKERS": 128}], ["04_registers", {}]], "compiled": true}

A candidate is a rung and defines in place of those that its ``sized`` gives there; one that does not take the sizes is
left out. "shipped" is what who names no rung gets. All are checked against float64, and take turns as in
``tilewright ladder bench``. One line of JSON a set of sizes: medians in microseconds by name, and what failed.
Needs PyTorch. Everything is built first, by processes without it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.gpu.device import GpuInfo, find_gpu
from tilewright.ladder.compiling import compile_rung
from tilewright.ladder.family import Rung, load_family
from tilewright.ladder.launching import arch_of
from tilewright.ladder.picking import best_of
from tilewright.ladder.specs import figure, rung_spec
from tilewright.settings import Settings

Trial = Mapping[str, Any]


def rungs_of(trial: Trial, sizes: Mapping[str, int], info: GpuInfo) -> dict[str, Rung]:
    """By name: candidates with their defines, and what is shipped."""
    family, dtype = load_family(trial["family"]), trial["dtype"]
    shipped = best_of(family, "", sizes, dtype, info)
    out = {"shipped": shipped} if shipped is not None else {}
    for name, defines in trial["candidates"]:
        rung = family.rung(name).at(sizes, dtype)
        if not rung.misfit(sizes):
            title = " ".join([rung.name, *(f"{key}={value}" for key, value in defines.items())])
            out[title] = replace(rung, defines={**rung.defines, **defines}, claims=())
    return out


def build(job: tuple[str, str, Rung, str]) -> str:
    """Into the cache; why not, or ""."""
    family, dtype, rung, arch = job
    try:
        compile_rung(rung_spec(load_family(family), rung, dtype), Settings.from_environment(), arch)
    except TilewrightError as error:
        return f"{family} {rung.name} {dict(rung.defines)}: {error}"
    return ""


def jobs(trials: list[Trial], info: GpuInfo) -> Iterator[tuple[str, str, Rung, str]]:
    seen = set()
    for trial in trials:
        for sizes in trial["sizes"]:
            for rung in rungs_of(trial, sizes, info).values():
                key = (trial["family"], trial["dtype"], rung.name, tuple(rung.defines.items()))
                if key not in seen:
                    seen.add(key)
                    yield trial["family"], trial["dtype"], rung, arch_of(rung, info)


class Bench:
    """PyTorch, a stream, and what one set of sizes leaves for the next."""

    def __init__(self, info: GpuInfo, seconds: float) -> None:
        import torch

        from tilewright.gpu.executor import GpuExecutor
        from tilewright.ladder.graphs import flush_bytes
        from tilewright.ladder.yardstick import build_copy, load_copy

        self.torch, self.info, self.seconds = torch, info, seconds
        self.settings = Settings.from_environment()
        self.executor = GpuExecutor(info)
        build_copy(info.arch, self.settings)
        self.copy = load_copy(info.arch, self.settings)
        self.stream = torch.cuda.Stream()
        self.flush = torch.empty(flush_bytes(info.l2_bytes), dtype=torch.uint8, device="cuda")
        self._compiled: dict[str, Any] = {}

    def compiled(self, mode: str) -> Any:
        from tilewright.ladder.compiled_peers import CompiledPeers, PeerOptions, load_compiler

        if mode not in self._compiled:
            if mode != "off":
                load_compiler()
            self._compiled[mode] = CompiledPeers(self.torch, PeerOptions(compiled=mode))  # type: ignore[arg-type]
        return self._compiled[mode]

    def line(self, trial: Trial, sizes: Mapping[str, int]) -> dict[str, Any]:
        """One set of sizes."""
        from tilewright.ladder.arena import Arena
        from tilewright.ladder.comparing import Contender, contest
        from tilewright.ladder.graphs import GraphClock, protocol_for
        from tilewright.ladder.peers import peers_of
        from tilewright.ladder.report import PeerPoint
        from tilewright.measure.measure import Plan

        family, dtype = load_family(trial["family"]), trial["dtype"]
        arena = Arena(self.torch, family, dtype, sizes)
        contenders: list[Contender] = []
        for name, rung in rungs_of(trial, sizes, self.info).items():
            made = compile_rung(rung_spec(family, rung, dtype), self.settings, arch_of(rung, self.info))
            contenders.append(replace(arena.rung(made, self.executor), name=name))
        for peer in peers_of(family.name):
            if not peer.group:
                mode = "auto" if trial.get("compiled", True) else "off"
                contenders += [arena.peer(peer), *self.compiled(mode).contenders(arena, peer)]
        total = figure(family.bytes, family, sizes, dtype)
        protocol = protocol_for(total, max(1.0, total / 4e6), self.info.l2_bytes)
        contenders += arena.copies(protocol.is_cold, self.copy)
        clocks: list[GraphClock] = []

        def clock_for(ready: Mapping[str, Contender]) -> GraphClock:
            clocks.append(GraphClock(self.torch, self.stream, ready, protocol, self.flush))
            return clocks[0]

        plan = Plan(warmup_rounds=2, min_rounds=8, max_rounds=100, budget_s=self.seconds)
        point = PeerPoint(dtype, "", sizes, "", protocol.is_cold, protocol.calls, total, 0.0, "shipped")
        done = contest(point, contenders, arena.check, clock_for, plan)
        for clock in clocks:
            clock.close()
        timed = sorted((c for c in done.contenders if c.median_us is not None), key=lambda c: c.median_us or 0.0)
        return {
            "family": family.name,
            "dtype": dtype,
            "sizes": dict(sizes),
            "is_cold": protocol.is_cold,
            "us": {c.name: float(f"{c.median_us:.5g}") for c in timed},
            "failed": {c.name: c.message for c in done.contenders if c.median_us is None},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", type=Path)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds: no set of sizes is begun after them")
    parser.add_argument("--seconds", type=float, default=0.1, help="for each set of sizes")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    args = parser.parse_args()
    begin = time.monotonic()
    info = find_gpu()
    if info is None:
        sys.exit("there is no GPU here")
    trials: list[Trial] = json.loads(args.trials.read_text("utf-8"))
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        for why in filter(None, pool.map(build, jobs(trials, info))):
            print(json.dumps({"not_built": why[:300]}), flush=True)
    print(json.dumps({"card": info.name, "driver": info.driver, "built_s": round(time.monotonic() - begin, 1)}))
    bench = Bench(info, args.seconds)
    with bench.torch.cuda.stream(bench.stream), bench.torch.no_grad():
        for trial in trials:
            for sizes in trial["sizes"]:
                if time.monotonic() - begin > args.budget:
                    print(json.dumps({"not_begun": [trial["family"], trial["dtype"], sizes]}), flush=True)
                    continue
                try:
                    told = bench.line(trial, sizes)
                except Exception as error:  # too little memory, a fault of the card: it says so, and the next may do
                    told = {
                        "family": trial["family"],
                        "sizes": sizes,
                        "error": f"{type(error).__name__}: {error}"[:300],
                    }
                print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
