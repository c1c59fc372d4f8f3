"""The rewrites of two kernels as a reviewer saw them.

After a change that is meant, write them anew and review the difference: ``python tests/unit/test_rewrite_golden.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from attack_base import KERNELS
from source_samples import BLOCKS, REWRITERS, rewritten, understood

GOLDEN = Path(__file__).parent / "golden"
CASES = [(kernel, variant) for kernel in ("bytes", "vector") for variant in REWRITERS]


def made(kernel: str, variant: str) -> str:
    text = (KERNELS / f"{kernel}.cu").read_text()
    return rewritten(understood(text, BLOCKS[kernel]), variant).text


@pytest.mark.parametrize(("kernel", "variant"), CASES)
def test_a_rewrite_is_as_it_was_reviewed(kernel: str, variant: str) -> None:
    assert made(kernel, variant) == (GOLDEN / f"{kernel}.{variant}.cu").read_text()


def test_nothing_else_lies_there() -> None:
    assert {p.name for p in GOLDEN.iterdir()} == {f"{k}.{v}.cu" for k, v in CASES}


if __name__ == "__main__":
    for name, way in CASES:
        (GOLDEN / f"{name}.{way}.cu").write_text(made(name, way))
