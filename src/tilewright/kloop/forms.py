"""Index arithmetic of many threads and passes at once: sums of products of symbols with an array of factors each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.kloop.affine import Monomial
from tilewright.source import ir

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Form:
    """Σ factors · product of symbols; ``factors`` holds one integer a point. The empty product is the number itself."""

    terms: Mapping[Monomial, np.ndarray]

    @property
    def numbers(self) -> np.ndarray | None:
        """The values, where no symbol enters."""
        return self.terms[()] if set(self.terms) == {()} else None

    def number_part(self) -> np.ndarray:
        return self.terms[()]

    def symbols(self) -> dict[Monomial, np.ndarray]:
        return {m: c for m, c in self.terms.items() if m}

    def varies(self) -> bool:
        return any(bool((c != c[0]).any()) for c in self.terms.values())

    def at(self, points: np.ndarray) -> Form:
        return Form({m: c[points] for m, c in self.terms.items()})

    def plus(self, other: Form, sign: int = 1) -> Form:
        out = dict(self.terms)
        for m, c in other.terms.items():
            out[m] = out[m] + sign * c if m in out else sign * c
        return Form({m: c for m, c in out.items() if not m or c.any()})

    def times(self, other: Form) -> Form:
        out: dict[Monomial, np.ndarray] = {(): 0 * self.terms[()]}
        for m, c in self.terms.items():
            for n, d in other.terms.items():
                key = tuple(sorted((*m, *n)))
                out[key] = out[key] + c * d if key in out else c * d
        return Form({m: c for m, c in out.items() if not m or c.any()})


@dataclass(frozen=True)
class Place:
    """An address: the pointer or array it hangs on, and the bytes from there."""

    base: ir.Name
    offset: Form
