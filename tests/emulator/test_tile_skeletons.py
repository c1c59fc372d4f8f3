"""What `tilewright tile --out` writes passes `verify` against its own reference, and a broken twin does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright import workflow
from tilewright.settings import Settings

CASES = {
    "gemm": ("M=72", "N=40", "K=72"),
    "attention": ("B=1", "H=1", "N=70", "D=32", "CAUSAL=1"),
    "row_reduction": ("R=9", "C=600", "WRITES_ROWS=1"),
    "conv": ("N=1", "H=7", "W=9", "C=16", "K=32", "R=3", "S=3", "PAD=1", "STRIDE=2"),
}
# What a reference that computes something else says instead.
BROKEN = {
    "gemm": ("A.astype", "1.01 * A.astype"),
    "attention": ("np.arange(n) > first", "np.arange(n) > 1 + first"),
    "row_reduction": ("np.exp(x", "np.exp(1.01 * x"),
    "conv": ("stride, pad = 2, 1", "stride, pad = 2, 1\n    X = X[:, ::-1]"),
}


def written(op: str, folder: Path) -> Path:
    """The kernel's file; only its small sizes are kept, the default set is the asked shape."""
    settings = Settings.from_environment()
    report = workflow.tile(op, CASES[op], device="h200", out=folder, settings=settings).report
    assert report.skeleton.reference, report.skeleton.refusal
    (source,) = folder.glob("*.cu")
    sidecar = source.with_suffix(".toml")
    lines = [line for line in sidecar.read_text("utf-8").splitlines() if not line.startswith(("small =", "ragged ="))]
    sidecar.write_text("\n".join(lines), "utf-8")
    return source


@pytest.mark.parametrize("op", CASES)
def test_a_skeleton_computes_what_its_reference_says(op: str, tmp_path: Path) -> None:
    source = written(op, tmp_path)
    assert workflow.verify(source, settings=Settings.from_environment()).exit_code == 0
    (reference,) = tmp_path.glob("*_reference.py")
    text = reference.read_text("utf-8")
    assert BROKEN[op][0] in text
    reference.write_text(text.replace(*BROKEN[op]), "utf-8")
    assert workflow.verify(source, settings=Settings.from_environment()).exit_code == 1
