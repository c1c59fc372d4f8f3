"""What the emulator counts of a rung at its small set, kept in the cache: predictions ask for it, again and again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping

from tilewright import __version__
from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import Family, Rung
from tilewright.ladder.running import operation, run_emulated
from tilewright.ladder.specs import rung_spec
from tilewright.settings import Settings

COUNTED_AT = "small"


def counted(family: Family, rung: Rung, dtype: str, settings: Settings) -> Mapping[str, float]:
    """Counters by name, see ``running.counters_of``; empty where the emulator has nothing to say of the rung.

    Raises:
        TilewrightError: what building raises.
    """
    sizes = family.sizes[COUNTED_AT]
    if dtype not in rung.dtypes or rung.misfit(sizes):
        return {}
    compiled = compile_rung(rung_spec(family, rung, dtype), settings)
    file = settings.cache_dir / "counters" / f"{_key(compiled, sizes)}.json"
    try:
        found: dict[str, float] = json.loads(file.read_text("utf-8"))
        return found
    except (OSError, ValueError):
        done = run_emulated(compiled, operation(family, dtype, sizes), counters=True)
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
