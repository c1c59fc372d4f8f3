"""widen, cap_registers and retile: verified where they hold, refused with the reason where they do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from move_samples import SIDECAR, SOURCE, edited, moved

from tilewright.receipt.record import Variant
from tilewright.settings import Settings
from tilewright.workflow import verify


def changed_lines(variant: Variant) -> list[str]:
    return [x for x in variant.diff.splitlines() if x.startswith(("+", "-")) and not x.startswith(("+++", "---"))]


def accepted(variant: Variant) -> bool:
    assert variant.refusal is None, variant.refusal
    return variant.status == "accepted" and variant.verify.bit_identical is True and not variant.verify.hazards


def test_all_three_are_verified_and_say_what_they_are(tmp_path: Path) -> None:
    receipt, made, code = moved(tmp_path, SOURCE, "widen", "retile", "cap_registers")
    assert code == 0
    assert receipt.baseline.resources.registers is not None
    wide, half, cap = made["widen"], made["retile"], made["cap_registers"]
    assert accepted(wide)
    assert accepted(half)
    assert accepted(cap)
    for one in (wide, half, cap):
        assert (one.stages, one.proof.verdict, one.proof.tiles_in_flight) == (1, "no_overlap", 0)
        assert one.launch is not None
        assert (one.launch.grid, one.launch.block, one.launch.shared_bytes) == ((2, 1, 1), (256, 1, 1), 0)
    # Nothing but the bounds, and one more block fits.
    assert changed_lines(cap) == [
        "-" + next(line for line in SOURCE.splitlines() if "__global__" in line),
        "+" + next(line for line in SOURCE.splitlines() if "__global__" in line).replace(
            "__global__", "__global__ __launch_bounds__(256, 5)"
        ),
    ]  # fmt: skip
    assert cap.resources.registers is not None
    assert cap.resources.registers <= 48 < receipt.baseline.resources.registers
    assert "5 blocks per SM instead of 4" in cap.notes[0]
    assert "a launch of more than 256 threads a block fails" in cap.notes[1]
    # One constant, and half the math for half a tile.
    assert changed_lines(half) == ["-constexpr int BK = 16;  // deep", "+constexpr int BK = 8;  // deep"]
    assert half.proof.mma_per_tile == half.proof.baseline_mma_per_tile == 128
    assert half.resources.smem_bytes == 4096
    assert wide.proof.mma_per_tile == 256
    assert any(copy.width_bytes == 16 for copy in wide.proof.copies)
    assert "uint4" in wide.source
    # What is built as a variant is not built again as a control.
    assert receipt.decision is not None
    assert {"widen", "cap_registers", "retile"} <= receipt.decision.predicted.keys()


def test_rows_halve_where_depth_does_not_and_the_grid_follows(tmp_path: Path) -> None:
    source = edited(("k0 += BK", "k0 += 16"), ("[BK]", "[16]"), ("* BK", "* 16"), ("BK *", "16 *"),
                    ("/ BK", "/ 16"), ("% BK", "% 16"), ("kk < BK", "kk < 16"))  # fmt: skip
    _, made, code = moved(tmp_path, source, "retile")
    assert code == 0
    half = made["retile"]
    assert accepted(half)
    assert changed_lines(half) == ["-constexpr int BM = 64;", "+constexpr int BM = 32;"]
    assert half.launch is not None
    assert half.launch.grid == (2, 2, 1)
    assert half.launch.changed_constants == {"BM": 32, "ROWS": 2}
    assert half.proof.mma_per_tile == 128
    # Where the sidecar's grid is a number it cannot follow.
    _, made, _ = moved(tmp_path, source, "retile", sidecar=SIDECAR.replace('"M // BM"', '"M // 64"'), run=False)
    refusal = made["retile"].refusal
    assert refusal is not None
    assert "grid does not follow `BM`" in refusal.message


NO_ROWS = ("constexpr int ROWS", 'static_assert(BM == 64, "rows");\nconstexpr int ROWS')
UNHALVED = edited(("for (int kk = 0; kk < BK; ++kk)", "for (int kk = 0; kk < 16; ++kk)"), ("bs[BK]", "bs[BK + 16]"),
                  ("as[BK]", "as[BK + 16]"), NO_ROWS)  # fmt: skip
PER_TILE = edited(
    ("float sum[ROWS][4] = {};", "float sum[ROWS][4] = {}, part[ROWS][4] = {};"),
    ("sum[i][j] += as", "part[i][j] += as"),
    ("        __syncthreads();\n    }\n", """\
        for (int i = 0; i < ROWS; ++i) {
            for (int j = 0; j < 4; ++j) {
                sum[i][j] += part[i][j];
                part[i][j] = 0.0f;
            }
        }
        __syncthreads();
    }
"""),
    NO_ROWS,
)  # fmt: skip


CLAMPED = edited(("k0 + i % BK]", "min(k0 + i % BK, k - 1)]"), ("(k0 + i / BN)", "min(k0 + i / BN, k - 1)"))
GUARDED = edited(("= a[", "= k0 + i % BK >= k ? 0.0f : a["), ("= b[", "= k0 + i / BN >= k ? 0.0f : b["))
FLOORED = SOURCE.replace("k0 < k;", "k0 < k / BK * BK;")


@pytest.mark.parametrize(
    ("source", "sizes"),
    [(CLAMPED, {"K=33", "K=40"}), (GUARDED, {"K=33", "K=40"}), (FLOORED, set())],
)
def test_half_a_tile_is_held_to_sizes_that_leave_a_rest(source: str, sizes: set[str], tmp_path: Path) -> None:
    """A clamped index adds the last product again for every place that is left: half as often with half the depth.

    Not where the kernel leaves its buffers at such a size, or leaves the rest out.
    """
    receipt, made, code = moved(tmp_path, source, "retile")
    half = made["retile"]
    assert sizes <= set(receipt.baseline.verify.sizes)
    assert bool({"K=33", "K=40"} & set(receipt.baseline.verify.sizes)) == bool(sizes)
    if source == CLAMPED:
        assert half.refusal is not None
        assert "at half of BK the kernel does not compute the same: K=" in half.refusal.message
        assert code != 1  # no fault of the kernel
    else:
        assert half.status == "accepted", half.refusal


@pytest.mark.parametrize(
    ("source", "what"),
    [
        # A static_assert that the constant does not pass.
        (edited(("constexpr int ROWS", 'static_assert(BK == 16 && BM == 64, "swizzle");\nconstexpr int ROWS')),
         "does not compile"),
        # The compute phase has the depth written out: twice the math for half the tile.
        (UNHALVED, "once a tile"),
        # Sums of a tile are added to the sums: half a tile adds in another order.
        (PER_TILE, "once a tile"),
    ],
)  # fmt: skip
def test_what_does_not_survive_half_a_tile_is_refused(source: str, what: str, tmp_path: Path) -> None:
    _, made, code = moved(tmp_path, source, "retile")
    refusal = made["retile"].refusal
    assert refusal is not None, made["retile"].status
    assert what in refusal.message
    assert made["retile"].source == ""
    assert code != 1  # no fault of the kernel


def test_registers_are_not_capped_where_something_else_is_in_the_way_or_they_spill(tmp_path: Path) -> None:
    shared = edited(("float as[BK][BM]", "float as[BK][BM + 256]"))  # 24 KiB a block: four of them, by shared memory
    _, made, _ = moved(tmp_path, shared, "cap_registers", run=False)
    refusal = made["cap_registers"].refusal
    assert refusal is not None
    assert refusal.code == "not_needed"
    assert "shared" in refusal.message
    # 8 x 8 results a thread need their registers.
    large = edited(("BM = 64", "BM = 128"), ("BN = 64", "BN = 128"), ("[4]", "[8]"), ("j < 4", "j < 8"),
                   ("col * 4", "col * 8"))  # fmt: skip
    sizes = SIDECAR.replace("M = 64, N = 64, K", "M = 128, N = 128, K").replace("M = 64, N = 128", "M = 128, N = 128")
    _, made, _ = moved(tmp_path, large, "cap_registers", run=False, sidecar=sizes)
    refusal = made["cap_registers"].refusal
    assert refusal is not None
    assert refusal.code == "budget_exceeded"
    assert "bytes a thread" in refusal.message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("const int first = (tid + pass * 256) * 4;", "const int first = (tid + pass * 256) * 8;"),  # every other one
        ("*reinterpret_cast<const uint4 *>(&b[", "*reinterpret_cast<const uint4 *>(&b[4 + "),  # the neighbour's
        ("*reinterpret_cast<uint4 *>(&bs[i / BN]", "*reinterpret_cast<uint4 *>(&bs[(i / BN) ^ 1]"),  # another row
        ("        __syncthreads();\n        #pragma unroll", "        #pragma unroll"),  # nobody waits
    ],
)
def test_a_broken_twin_of_widened_loads_is_caught(old: str, new: str, wide: Path, tmp_path: Path) -> None:
    text = (wide / "wide.cu").read_text()
    assert text.count(old) == 1, text
    twin = tmp_path / "twin.cu"
    twin.write_text(text.replace(old, new))
    settings = Settings(cache_dir=wide / "cache")
    outcome = verify(twin, against=wide / "product.cu", executor="emulator", arch="sm_86", settings=settings)
    assert outcome.exit_code == 1


def test_the_unbroken_one_passes(wide: Path) -> None:
    settings = Settings(cache_dir=wide / "cache")
    outcome = verify(
        wide / "wide.cu", against=wide / "product.cu", executor="emulator", arch="sm_86", settings=settings
    )
    assert outcome.exit_code == 0


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sample, its sidecar, and the sample with its loads widened."""
    folder = tmp_path_factory.mktemp("wide")
    _, made, _ = moved(folder, SOURCE, "widen", run=False)
    (folder / "wide.cu").write_text(made["widen"].source)
    return folder
