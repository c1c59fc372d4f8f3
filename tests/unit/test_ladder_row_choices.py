"""What families of rows choose at sizes whose candidates an H200 has timed: the fastest, or one within 1 % of it."""

from __future__ import annotations

import pytest

from tilewright.ladder.family import Rung, load_family
from tilewright.ladder.launching import runs_code

# (family, element type, rows, columns): microseconds of the rung and the defines that were asked for
# (benchmarks/ladder_trial.py, 2026-12-01, medians), the fastest few.
MEASURED = {
    ("softmax", "bfloat16", 2048, 65536): {
        "12_powers_ahead CLUSTER=2 WORKERS=512 PACKS=8 STAGES=2 CLUSTERS=64": 142.06,
        "07_ring CLUSTER=2 WORKERS=512 PACKS=8 STAGES=2 CLUSTERS=64": 143.82,
        "12_powers_ahead CLUSTER=4 WORKERS=256 PACKS=8 STAGES=3 CLUSTERS=60": 143.86,
        "12_powers_ahead CLUSTER=2 WORKERS=512 PACKS=8 STAGES=3 CLUSTERS=64": 144.40,
    },
    ("softmax", "bfloat16", 1024, 131072): {
        "12_powers_ahead CLUSTER=4 WORKERS=512 PACKS=8 STAGES=2 CLUSTERS=30": 140.54,
        "12_powers_ahead CLUSTER=4 WORKERS=512 PACKS=8 STAGES=3 CLUSTERS=30": 141.73,
        "12_powers_ahead CLUSTER=8 WORKERS=512 PACKS=4 STAGES=4 CLUSTERS=15": 143.49,
        "07_ring": 144.54,
    },
    ("softmax", "bfloat16", 4096, 32768): {
        "04_registers": 139.36,
        "12_powers_ahead CLUSTER=1 WORKERS=512 PACKS=8 STAGES=3 CLUSTERS=128": 140.99,
        "12_powers_ahead CLUSTER=2 WORKERS=256 PACKS=8 STAGES=3 CLUSTERS=128": 142.51,
    },
    ("softmax", "bfloat16", 30000, 3000): {
        "09_one_barrier WORKERS=128 PIECES=3": 89.38,
        "09_one_barrier WORKERS=256 PIECES=2": 106.50,
    },
    ("softmax", "bfloat16", 40000, 1500): {
        "09_one_barrier WORKERS=128 PIECES=3": 64.21,
        "09_one_barrier WORKERS=192 PIECES=2": 68.80,
        "09_one_barrier WORKERS=256 PIECES=2": 77.54,
    },
    ("softmax", "bfloat16", 512, 262144): {
        "12_powers_ahead CLUSTER=8 WORKERS=512 PACKS=8 STAGES=2 CLUSTERS=15": 139.90,
        "07_ring": 143.65,
    },
    ("layernorm", "bfloat16", 16384, 5120): {
        "07_one_barrier WORKERS=160 PIECES=4 LATE=1 BLOCKS=6": 84.91,
        "07_one_barrier WORKERS=224 PIECES=3 LATE=1 BLOCKS=4": 88.08,
        "07_one_barrier WORKERS=256 PIECES=3": 88.61,
        "07_one_barrier WORKERS=320 PIECES=2": 96.70,
    },
    ("layernorm", "float32", 8192, 5120): {
        "07_one_barrier WORKERS=320 PIECES=4": 97.66,
        "07_one_barrier WORKERS=448 PIECES=3": 98.08,
        "07_one_barrier WORKERS=512 PIECES=3": 99.71,
    },
    ("layernorm", "float32", 65536, 4096): {
        "07_one_barrier WORKERS=512 PIECES=2 LATE=1 AGAIN=1 BLOCKS=4": 510.69,
        "07_one_barrier WORKERS=512 PIECES=2 LATE=1 AGAIN=0": 517.86,
        "07_one_barrier WORKERS=256 AGAIN=0": 519.20,
        "07_one_barrier WORKERS=512 PIECES=2 LATE=1 AGAIN=1 BLOCKS=3": 536.32,
        "07_one_barrier LATE=1 AGAIN=1 BLOCKS=6": 549.36,
    },
    ("layernorm", "float32", 2048, 32768): {
        "08_told_ahead CLUSTER=2 WORKERS=512 PACKS=8 STAGES=3 CLUSTERS=64": 138.94,
        "05_ring": 141.22,
    },
    ("layernorm", "bfloat16", 32768, 4096): {
        "07_one_barrier LATE=1 BLOCKS=8": 134.42,
        "07_one_barrier LATE=0": 135.70,
        "07_one_barrier LATE=1 WORKERS=256 PIECES=2 BLOCKS=5": 136.48,
    },
    ("layernorm", "bfloat16", 4096, 12288): {
        "07_one_barrier BLOCKS=3": 54.40,
        "03_registers": 56.35,
        "07_one_barrier BLOCKS=2": 59.55,
    },
    ("layernorm", "bfloat16", 512, 262144): {
        "08_told_ahead CLUSTER=8 WORKERS=512 PACKS=8 STAGES=3 CLUSTERS=15": 142.75,
        "05_ring": 260.75,
    },
    ("rmsnorm", "bfloat16", 4096, 32768): {
        "08_told_ahead CLUSTER=1 WORKERS=512 PACKS=8 STAGES=3 CLUSTERS=128": 137.58,
        "03_registers": 140.90,
    },
    ("rmsnorm", "bfloat16", 512, 262144): {
        "08_told_ahead CLUSTER=8 WORKERS=512 PACKS=8 STAGES=3 CLUSTERS=15": 138.34,
        "05_ring": 141.78,
    },
    ("rmsnorm", "bfloat16", 16384, 5120): {
        "07_weights_ahead WORKERS=256 PIECES=3": 82.56,
        "07_weights_ahead WORKERS=224 PIECES=3": 82.85,
        "07_weights_ahead WORKERS=160 PIECES=4": 83.74,
        "07_weights_ahead WORKERS=320 PIECES=2": 87.94,
    },
    ("rmsnorm", "bfloat16", 16384, 7168): {
        "07_weights_ahead WORKERS=224 PIECES=4": 114.45,
        "07_weights_ahead WORKERS=448 PIECES=2": 121.41,
        "07_weights_ahead WORKERS=512 PIECES=2": 122.19,
    },
    ("rmsnorm", "float32", 8192, 5120): {
        "07_weights_ahead WORKERS=320 PIECES=4": 83.74,
        "07_weights_ahead WORKERS=448 PIECES=3": 90.21,
        "07_weights_ahead WORKERS=512 PIECES=3": 90.50,
    },
    ("rmsnorm", "float32", 4096, 16384): {
        "07_weights_ahead WORKERS=512 PIECES=8 LATE=1 BLOCKS=2": 134.27,
        "03_registers": 139.74,
    },
    ("rmsnorm", "float32", 30000, 3000): {
        "07_weights_ahead WORKERS=256 PIECES=3": 176.54,
        "07_weights_ahead WORKERS=512 PIECES=2": 238.18,
    },
    ("rmsnorm", "float32", 2048, 32768): {
        "08_told_ahead CLUSTER=2 WORKERS=512 PACKS=8 STAGES=3 CLUSTERS=64": 137.22,
        "03_registers": 138.21,
    },
    ("add_layernorm", "bfloat16", 8192, 5120): {
        "05_one_barrier WORKERS=320 PIECES=2 LATE=0": 84.80,
        "05_one_barrier WORKERS=256 PIECES=3": 94.05,
        "05_one_barrier WORKERS=640 PIECES=1": 94.14,
        "05_one_barrier WORKERS=1024 PIECES=1": 143.42,
    },
    ("add_layernorm", "bfloat16", 30000, 3000): {
        "05_one_barrier WORKERS=128 PIECES=3": 176.45,
        "05_one_barrier WORKERS=192 PIECES=2": 176.51,
        "05_one_barrier WORKERS=256 PIECES=2": 183.55,
    },
    ("add_layernorm", "bfloat16", 256, 262144): {
        "03_cluster CLUSTER=8 WORKERS=1024 PACKS=4": 186.27,
        "03_cluster CLUSTER=8 WORKERS=512 PACKS=8": 274.67,
    },
    ("add_layernorm", "bfloat16", 4096, 12288): {
        "05_one_barrier WORKERS=512 PIECES=3 LATE=1 BLOCKS=2": 103.10,
        "05_one_barrier LATE=1": 114.61,
        "05_one_barrier WORKERS=1024": 115.46,
    },
    ("add_layernorm", "bfloat16", 4096, 16384): {
        "05_one_barrier WORKERS=512 PIECES=4 LATE=1 BLOCKS=2": 135.97,
        "05_one_barrier WORKERS=1024": 138.66,
    },
    ("add_rmsnorm", "bfloat16", 8192, 7168): {
        "05_weights_ahead WORKERS=896 PIECES=1": 116.03,
        "05_weights_ahead WORKERS=1024 PIECES=1": 116.38,
        "05_weights_ahead WORKERS=448 PIECES=2": 116.51,
    },
    ("add_rmsnorm", "bfloat16", 4096, 12288): {
        "05_weights_ahead WORKERS=512 PIECES=3 LATE=1 BLOCKS=2": 102.18,
        "05_weights_ahead LATE=1": 107.71,
        "05_weights_ahead WORKERS=1024": 108.42,
    },
    ("add_rmsnorm", "float32", 4096, 12288): {
        "05_weights_ahead WORKERS=512 PIECES=6 LATE=1 BLOCKS=2": 199.97,
        "02_fused": 202.03,
    },
    # Rows in no packs of 16 bytes.
    ("layernorm", "float32", 20000, 5003): {
        "07_one_barrier WORKERS=384 PIECES=14 LATE=1 BLOCKS=3": 229.76,
        "07_one_barrier WORKERS=448 PIECES=12 LATE=1 BLOCKS=3": 232.54,
        "07_one_barrier WORKERS=320 PIECES=16 LATE=1 BLOCKS=4": 245.42,
    },
    ("layernorm", "float32", 4096, 4097): {
        "07_one_barrier WORKERS=320 PIECES=13 LATE=1 BLOCKS=4": 44.37,
        "07_one_barrier WORKERS=288 PIECES=15 LATE=1 BLOCKS=4": 44.64,
        "07_one_barrier WORKERS=416 PIECES=10 LATE=1 BLOCKS=3": 46.08,
    },
    ("layernorm", "float32", 30000, 3001): {
        "07_one_barrier WORKERS=256 PIECES=12 LATE=1 BLOCKS=5": 190.05,
        "07_one_barrier WORKERS=320 PIECES=10 LATE=1 BLOCKS=4": 205.25,
        "07_one_barrier WORKERS=384 PIECES=8 LATE=0 BLOCKS=3": 228.22,
    },
    ("layernorm", "float32", 30000, 2051): {
        "07_one_barrier WORKERS=192 PIECES=11 LATE=1 BLOCKS=7": 132.21,
        "07_one_barrier WORKERS=160 PIECES=13 LATE=1 BLOCKS=8": 134.40,
        "07_one_barrier WORKERS=192 PIECES=11 LATE=1 BLOCKS=1": 135.02,
    },
    ("layernorm", "float32", 16000, 6001): {
        "07_one_barrier WORKERS=384 PIECES=16 LATE=1 BLOCKS=3": 215.36,
        "07_one_barrier WORKERS=448 PIECES=14 LATE=1 BLOCKS=3": 218.91,
        "07_one_barrier WORKERS=512 PIECES=12 LATE=1 BLOCKS=1": 242.27,
    },
    ("layernorm", "float32", 16000, 8191): {
        "07_one_barrier WORKERS=512 PIECES=16 LATE=1 BLOCKS=2": 307.94,
        "07_one_barrier WORKERS=608 PIECES=14 LATE=1 BLOCKS=2": 309.44,
        "07_one_barrier WORKERS=704 PIECES=12 LATE=1 BLOCKS=1": 419.23,
    },
    ("layernorm", "bfloat16", 20000, 5002): {
        "07_one_barrier WORKERS=256 PIECES=10 LATE=1 BLOCKS=5": 123.36,
        "07_one_barrier WORKERS=320 PIECES=8 LATE=1 BLOCKS=4": 134.30,
        "07_one_barrier WORKERS=448 PIECES=6 LATE=1 BLOCKS=3": 152.67,
    },
    ("layernorm", "bfloat16", 20000, 5003): {
        "09_words WORKERS=256 PIECES=10 LATE=1 BLOCKS=5": 140.78,
        "09_words WORKERS=320 PIECES=8 LATE=0 BLOCKS=4": 152.48,
        "09_words WORKERS=320 PIECES=8 LATE=1 BLOCKS=4": 157.55,
    },
    ("layernorm", "bfloat16", 16000, 8191): {
        "09_words WORKERS=416 PIECES=10 LATE=1 BLOCKS=3": 185.79,
        "09_words WORKERS=512 PIECES=8 LATE=1 BLOCKS=2": 239.63,
    },
    ("rmsnorm", "bfloat16", 16000, 8191): {
        "09_words WORKERS=512 PIECES=8 LATE=1 BLOCKS=2": 168.99,
        "09_words WORKERS=512 PIECES=8 LATE=0 BLOCKS=2": 192.42,
    },
    ("add_layernorm", "float32", 20000, 5003): {
        "05_one_barrier WORKERS=640 PIECES=8 LATE=1 BLOCKS=1": 420.54,
        "05_one_barrier WORKERS=640 PIECES=8 LATE=1 BLOCKS=2": 420.70,
        "05_one_barrier WORKERS=512 PIECES=10 LATE=1 BLOCKS=2": 421.47,
    },
    ("add_layernorm", "float32", 4096, 4097): {
        "05_one_barrier WORKERS=544 PIECES=8 LATE=1 BLOCKS=1": 78.51,
        "05_one_barrier WORKERS=544 PIECES=8 LATE=1 BLOCKS=2": 78.69,
        "05_one_barrier WORKERS=544 PIECES=8 LATE=0 BLOCKS=2": 80.38,
    },
    ("add_layernorm", "float32", 30000, 2051): {
        "05_one_barrier WORKERS=288 PIECES=8 LATE=1 BLOCKS=4": 254.02,
        "05_one_barrier WORKERS=224 PIECES=10 LATE=1 BLOCKS=6": 286.69,
    },
    ("add_layernorm", "float32", 16000, 8191): {
        "05_one_barrier WORKERS=1024 PIECES=8 LATE=1 BLOCKS=1": 613.95,
        "05_one_barrier WORKERS=832 PIECES=10 LATE=1 BLOCKS=1": 622.69,
    },
    ("add_layernorm", "bfloat16", 20000, 5002): {
        "05_one_barrier WORKERS=320 PIECES=8 LATE=1 BLOCKS=4": 212.96,
        "05_one_barrier WORKERS=448 PIECES=6 LATE=1 BLOCKS=3": 216.64,
    },
    ("add_layernorm", "bfloat16", 20000, 5003): {
        "06_words WORKERS=320 PIECES=8 LATE=1 BLOCKS=1": 225.60,
        "06_words WORKERS=320 PIECES=8 LATE=1 BLOCKS=4": 227.90,
        "06_words WORKERS=448 PIECES=6 LATE=1 BLOCKS=3": 229.54,
    },
    ("add_layernorm", "bfloat16", 16000, 8191): {
        "06_words WORKERS=512 PIECES=8 LATE=1 BLOCKS=1": 298.88,
        "06_words WORKERS=512 PIECES=8 LATE=1 BLOCKS=2": 298.98,
        "06_words WORKERS=704 PIECES=6 LATE=1 BLOCKS=1": 401.44,
    },
    ("add_rmsnorm", "float32", 20000, 5003): {
        "05_weights_ahead WORKERS=640 PIECES=8 LATE=1 BLOCKS=2": 407.84,
        "05_weights_ahead WORKERS=640 PIECES=8 LATE=0 BLOCKS=2": 408.03,
        "05_weights_ahead WORKERS=640 PIECES=8 LATE=1 BLOCKS=1": 408.54,
    },
    ("add_rmsnorm", "float32", 20000, 5002): {
        "05_weights_ahead WORKERS=640 PIECES=4 LATE=1 BLOCKS=2": 396.00,
        "05_weights_ahead WORKERS=448 PIECES=6 LATE=1 BLOCKS=3": 403.57,
    },
    ("add_rmsnorm", "float32", 16000, 6001): {
        "05_weights_ahead WORKERS=608 PIECES=10 LATE=1 BLOCKS=2": 401.12,
        "05_weights_ahead WORKERS=768 PIECES=8 LATE=1 BLOCKS=1": 442.27,
        "05_weights_ahead WORKERS=768 PIECES=8 LATE=0 BLOCKS=1": 458.82,
    },
    ("add_rmsnorm", "float32", 16000, 8191): {
        "05_weights_ahead WORKERS=832 PIECES=10 LATE=1 BLOCKS=1": 585.46,
        "05_weights_ahead WORKERS=1024 PIECES=8 LATE=1 BLOCKS=1": 611.63,
        "05_weights_ahead WORKERS=1024 PIECES=8 LATE=0 BLOCKS=1": 721.52,
    },
}


def is_that(rung: Rung, candidate: str) -> bool:
    """Whether a rung at sizes is a candidate, as far as its name goes."""
    name, *defines = candidate.split()
    asked = dict(each.split("=") for each in defines)
    return rung.name == name and all(str(rung.defines.get(key, 0)) == value for key, value in asked.items())


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: "-".join(map(str, case)))
def test_the_choice_is_the_fastest_that_was_measured(case: tuple[str, str, int, int]) -> None:
    family, dtype, rows, columns = case
    sizes = {"R": rows, "C": columns, "ld_x": columns}
    found = load_family(family).best(sizes, dtype, lambda least: runs_code(least, "sm_90a"))
    told = MEASURED[case]
    chosen = [us for candidate, us in told.items() if is_that(found, candidate)]
    assert chosen, (found.name, found.defines)
    assert min(chosen) <= 1.01 * min(told.values()), (found.name, found.defines)


@pytest.mark.parametrize("family", ["softmax", "rmsnorm", "layernorm", "add_rmsnorm", "add_layernorm"])
def test_choices_are_whole_warps_that_hold_the_row(family: str) -> None:
    loaded = load_family(family)
    for dtype in ("float32", "bfloat16"):
        for rows in (1, 264, 265, 5000):
            for columns in (*range(513, 16384, 137), 4096, 8192, 12288, 16384, 40000, 65536, 131072):
                sizes = {"R": rows, "C": columns, "ld_x": columns}
                found = loaded.best(sizes, dtype, lambda least: runs_code(least, "sm_90a"))
                defines = found.defines
                if "PIECES" not in defines or "WORKERS" not in defines:
                    continue
                width = defines.get("WIDTH", 2)  # words of two elements
                assert defines["WORKERS"] % 32 == 0
                assert defines["WORKERS"] <= 1024
                assert defines["WORKERS"] * defines["PIECES"] * width >= columns
                assert (defines["PIECES"] - 1) * defines["WORKERS"] * width < columns
                assert defines.get("HELD", 0) in (0, 1)
                assert defines.get("LATE", 0) in (0, 1)
                assert defines["WORKERS"] * defines.get("BLOCKS", 1) <= 2048


@pytest.mark.parametrize(
    ("family", "rung", "columns"),
    [("softmax", "09", 16384), ("rmsnorm", "07", 4096), ("add_rmsnorm", "05", 4096), ("add_layernorm", "05", 4096)],
)
def test_many_rows_leave_registers_to_the_compiler_and_few_take_what_they_want(
    family: str, rung: str, columns: int
) -> None:
    """Told that one block an SM is enough it takes more than two leave room for: 188 us, not 131, at 8192 x 16384
    halves of softmax; 592, not 509, at 65536 x 4096 floats of RMSNorm. Few rows were 5 to 8 % faster by it."""
    found = load_family(family).rung(rung)
    sizes = [{"R": rows, "C": columns, "ld_x": columns} for rows in (264, 265)]
    assert [found.at(each, "float32").defines["BLOCKS"] for each in sizes] == [1, 0]
    assert "__launch_bounds__(WORKERS, BLOCKS)" in found.file.read_text("utf-8")
