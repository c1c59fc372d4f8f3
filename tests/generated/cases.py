"""The seeds that run on every change, and what is asked of them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from judge import Asked, Judged, judge, judge_mutant

from tilewright.settings import Settings

COUNT = int(os.environ.get("TILEWRIGHT_SEEDS", "12"))
SEEDS = range(100, 100 + COUNT)
TRAP_SEEDS = (1000, 1001, 1004, 1006, 1011, 1014, 1016, 1020)  # each kind of trap
MUTANT_SEEDS = (1, 3, 6, 7, 10, 15, 17, *((8, 22, 24) if COUNT >= 20 else ()))  # the last ones take longest
# By turns, for the time that it takes; ``benchmarks/generated_kernels.py`` runs all of them on each kernel.
NAMES = (("ldg", "cp_async"), ("ldg_single",))


@cache
def judged(seed: int, kind: str = "kernel") -> Judged:
    """One kernel (or ``trap``, ``mutant``), run once a process."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        names = NAMES[0] + NAMES[1] if kind == "trap" else NAMES[seed % 2]
        asked = Asked(Settings(cache_dir=root / "cache"), names=names, stages=(3,))
        return judge_mutant(seed, root, asked) if kind == "mutant" else judge(seed, root, asked, trap=kind == "trap")
