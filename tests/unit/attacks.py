"""Every attack on the analysis."""

from __future__ import annotations

from attack_base import KERNELS, Attack
from attacks_copies import macros, vectors, widened
from attacks_loops import early_returns, k_loops
from attacks_phases import phases
from attacks_tiles import tiles

__all__ = ["ATTACKS", "KERNELS", "Attack"]

ATTACKS = tuple(a for group in (k_loops, early_returns, phases, tiles, macros, vectors, widened) for a in group())
