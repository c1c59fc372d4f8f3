"""What the tests of streams share: every variant of a kernel against its baseline, at several numbers of tiles."""

from __future__ import annotations

from pathlib import Path

from trap_bench import ANYWHERE, bench

from tilewright.kloop.kernel import Refusal

# 3 tiles and 1, ragged where the kernel takes that.
SIZES = ({"M": 19, "N": 11, "K": 37}, {"M": 16, "N": 20, "K": 16})
WHOLE = ({"M": 16, "N": 16, "K": 48}, {"M": 32, "N": 16, "K": 16})


def check(folder: Path, text: str, without: dict[str, str], but: dict[str, str] | None = None) -> None:
    """Every variant gives the bits of the baseline; those ``without``, by how they begin, are refused with their codes.

    ``but``: the same by whole names.
    """
    kernel = bench(folder, text)
    assert not isinstance(kernel.found, Refusal), kernel.found
    for variant in ANYWHERE:  # rings of mbarriers have tests of their own
        code = next((c for prefix, c in without.items() if variant.startswith(prefix)), (but or {}).get(variant))
        if code is not None:
            assert kernel.refused(variant).code == code, variant
            continue
        for sizes in WHOLE if "4(" in text else SIZES:
            kernel.same(variant, sizes)
