"""Small functions that generated code calls by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.emulator.machine.chunk import Active


def sel(predicate: Any, new: Any, old: Any) -> Any:
    """``new`` where the predicate holds, else ``old``; types are equal."""
    if not predicate.ndim:
        return new if predicate else old
    return np.where(predicate, new, old)


def cut(value: Any, mask: Any) -> Any:
    """The values of some threads; ``mask`` None: all."""
    return value if mask is None or not value.ndim else value[mask]


def merge(mask: Any, new: Any, old: Any, active: Active) -> Any:
    """Values of all active threads, with ``new`` for those of the mask."""
    if mask is None:
        return new
    out = np.full(active.count, old) if not old.ndim else old.copy()
    out[mask] = new
    return out


def guard(active: Active, predicate: Any) -> tuple[Active | None, Any]:
    """(threads for which the predicate holds, mask): (None, None) for nobody, mask None for everybody."""
    if not predicate.ndim:
        return (active, None) if predicate else (None, None)
    if predicate.all():
        return active, None
    if not predicate.any():
        return None, None
    return active.subset(predicate), predicate


def first(value: Any) -> int:
    """An operand that all threads must agree on."""
    return int(value.flat[0]) if value.ndim else int(value)


NAMES: dict[str, Any] = {"np": np, "sel": sel, "cut": cut, "merge": merge, "guard": guard, "first": first}
