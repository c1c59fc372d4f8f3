"""What the emulator counts of a rung at small sets, kept in the cache: predictions ask for it, again and again."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright import __version__
from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import Family, Rung
from tilewright.ladder.running import operation, run_emulated
from tilewright.ladder.specs import bound_launches, figure, rung_spec
from tilewright.settings import Settings

COUNTED_AT = ("small", "ragged")  # sets of every family here
TILE = ("BM", "BN", "BK")  # constants of the files


@dataclass(frozen=True)
class Counted:
    """A run: ``work`` (operations, or bytes where there are none), ``threads`` launched, and ``counters`` by name.

    ``tile``: of a product's blocks, as the file names its extents; empty where it names none.
    """

    work: float
    threads: float
    counters: Mapping[str, float]
    tile: Mapping[str, float] = field(default_factory=dict)


def counted(family: Family, rung: Rung, dtype: str, settings: Settings) -> tuple[Counted, ...]:
    """Small runs of a rung; none where the emulator has nothing to say of it.

    Raises:
        TilewrightError: what building raises.
    """
    there = [family.sizes[name] for name in COUNTED_AT if name in family.sizes]
    sets = [sizes for sizes in there if not rung.misfit(sizes)]
    if dtype not in rung.dtypes or not sets:
        return ()
    compiled = compile_rung(rung_spec(family, rung, dtype), settings)
    runs = [(sizes, _counters(compiled, sizes, settings)) for sizes in sets]
    return tuple(
        Counted(work_of(family, sizes, dtype), threads_of(compiled, sizes), counters, tile_of(compiled))
        for sizes, counters in runs
        if counters
    )


def of_this_tile(runs: Sequence[Counted], compiled: CompiledRung) -> tuple[Counted, ...]:
    """Runs that say something of a rung as it was built: those of its tile. A card's tiles are larger than the
    emulator's, and read each operand fewer times."""
    return tuple(run for run in runs if run.tile == tile_of(compiled))


def tile_of(compiled: CompiledRung) -> dict[str, float]:
    return {name: compiled.constants[name] for name in TILE if name in compiled.constants}


def work_of(family: Family, sizes: Mapping[str, int], dtype: str) -> float:
    """Operations at sizes; bytes where the family has none."""
    text = family.flops if figure(family.flops, family, sizes, dtype) else family.bytes
    return figure(text, family, sizes, dtype)


def threads_of(compiled: CompiledRung, sizes: Mapping[str, int]) -> float:
    """Threads of all launches of a rung at sizes."""
    launches = bound_launches(compiled.spec, sizes, compiled.constants)
    return float(sum(math.prod(launch.grid) * math.prod(launch.block) for launch in launches))


def _counters(compiled: CompiledRung, sizes: Mapping[str, int], settings: Settings) -> Mapping[str, float]:
    file = settings.cache_dir / "counters" / f"{_key(compiled, sizes)}.json"
    try:
        found: dict[str, float] = json.loads(file.read_text("utf-8"))
        return found
    except (OSError, ValueError):
        what = operation(compiled.spec.family, compiled.spec.dtype, sizes)
        done = run_emulated(compiled, what, counters=True, checks=False)
    counters = dict(done.counters) if done.passed else {}
    file.parent.mkdir(parents=True, exist_ok=True)
    own = file.with_suffix(f".{os.getpid()}")
    own.write_text(json.dumps(counters), "utf-8")
    own.replace(file)  # in one step: another process may read it
    return counters


def _key(compiled: CompiledRung, sizes: Mapping[str, int]) -> str:
    spec = compiled.spec
    told = [__version__, spec.family.name, spec.dtype, sorted(sizes.items()), spec.texts]
    told += [a.ptx for a in compiled.artifacts]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
