"""nvcc's flags in NVRTC's words."""

from __future__ import annotations


def nvrtc_flags(flags: tuple[str, ...]) -> list[str]:
    """Translate (first version: passes them through)."""
    return list(flags)
