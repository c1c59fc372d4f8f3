"""A kernel whose load phase lies in a header and behind macros, through the main job: every variant is verified."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "unit"))  # its small kernels

from front_samples import CALLS, LOAD_ROW, flat
from same_code import SIDECAR

from tilewright.settings import Settings
from tilewright.workflow import pipeline

HEADER = f"""#ifndef LOADS
#define LOADS
namespace io {{
template <typename T>
{LOAD_ROW.replace("float", "T").replace("0.0f", "T(0)")}
}}
#define SYNC() __syncthreads()
#define OVER_K for (int k0 = 0; k0 < K; k0 += TILE)
#endif
"""


def test_every_variant_has_the_bits_of_its_baseline(tmp_path: Path) -> None:
    one = flat(
        "all", '#include "loads.cuh"\n', CALLS.replace("load_row", "io::load_row"), header="OVER_K", barrier="SYNC();"
    )
    (tmp_path / "loads.cuh").write_text(HEADER)
    (tmp_path / "k.cu").write_text(one.text)
    (tmp_path / "k.toml").write_text(SIDECAR.replace("K = 35 }", "K = 35 }\nlong = { M = 20, N = 37, K = 83 }"))
    outcome = pipeline(tmp_path / "k.cu", arch="sm_86", settings=Settings(cache_dir=tmp_path / "c"), out=tmp_path / "o")
    receipt = outcome.receipt
    assert outcome.exit_code == 0
    made = {v.label: v for v in receipt.variants if v.status == "accepted"}
    assert {"ldg", "ldg_single", "cp_async2", "cp_async3"} <= set(made)
    assert all(v.verify.bit_identical and not v.verify.hazards for v in made.values())
    text = (tmp_path / "o" / "k.ldg.cu").read_text()
    assert "io::load_row(As" not in text
    assert '#include "loads.cuh"' in text
    assert (tmp_path / "loads.cuh").read_text() == HEADER  # nothing of a header is edited
