"""The parts of verification: references, tolerances, comparisons."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from launch_samples import CONSTANTS, gemm_spec

from tilewright.errors import TilewrightError
from tilewright.launch.bind import bind
from tilewright.launch.dtypes import DTYPES
from tilewright.launch.inputs import make_inputs
from tilewright.verification import compare
from tilewright.verification.compare import bitwise, place_of, root_mean_square, within
from tilewright.verification.reference import load_reference
from tilewright.verification.tolerance import Arithmetic, Tolerance, derive, read_arithmetic

F16, F32, I8 = DTYPES["float16"], DTYPES["float32"], DTYPES["int8"]
LAUNCH = bind(gemm_spec(), "ragged", CONSTANTS)


def reference_file(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "ref.py"
    path.write_text("import numpy as np\n" + body)
    return path


def test_reference_gets_what_it_names_and_nothing_is_left_behind(tmp_path: Path) -> None:
    body = "def reference(a, b, alpha, M):\n    assert not a.flags.writeable and M == 17\n"
    body += "    return {'c': alpha * (a @ b)}\n"
    reference = load_reference(reference_file(tmp_path, body))
    result = reference.compute(LAUNCH, make_inputs(LAUNCH, 1))
    assert result["c"].dtype == np.float64
    assert result["c"].shape == (17, 9)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ref.py"]


def test_reference_with_any_keyword(tmp_path: Path) -> None:
    body = "def reference(**inputs):\n    assert set(inputs) == {'a', 'b', 'M', 'N', 'K', 'alpha'}\n"
    body += "    return {'c': np.zeros((17, 9))}\n"
    load_reference(reference_file(tmp_path, body)).compute(LAUNCH, make_inputs(LAUNCH, 1))


def test_reference_gets_scalars_as_the_kernel_does(tmp_path: Path) -> None:
    body = "def reference(alpha):\n    assert type(alpha) is float\n    return {'c': np.full((17, 9), alpha)}\n"
    launch = bind(gemm_spec(("value = 0.5", "value = 0.1")), "ragged", CONSTANTS)
    result = load_reference(reference_file(tmp_path, body)).compute(launch, {})
    assert result["c"][0, 0] == float(np.float32(0.1)) != 0.1


@pytest.mark.parametrize(
    ("body", "words", "line"),
    [
        ("def reference(:\n", "SyntaxError", 2),
        ("raise RuntimeError('at import')\n", "at import", 2),
        ("x = 1\n", "no function reference", None),
        ("def reference(a):\n    return {'c': a @ a}\n", "ValueError", 3),
        ("def reference(c):\n    return {'c': c}\n", "TypeError", None),
        ("def reference(a):\n    return a\n", "a dict of arrays", None),
        ("def reference(a):\n    return {'d': a}\n", "gives d; the sidecar's outputs are c", None),
        ("def reference(a):\n    return {'c': a}\n", r"shape \(17, 5\); the sidecar has \(17, 9\)", None),
        ("def reference(a):\n    return {'c': 'text'}\n", "not an array of numbers", None),
    ],
)
def test_wrong_references(tmp_path: Path, body: str, words: str, line: int | None) -> None:
    path = reference_file(tmp_path, body)
    with pytest.raises(TilewrightError, match=words) as caught:
        load_reference(path).compute(LAUNCH, make_inputs(LAUNCH, 1))
    assert caught.value.facts["file"] == str(path)
    assert caught.value.facts.get("line") == line
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("import sys\nsys.exit(3)\n", 2),
        ("import sys\ndef reference(a):\n    sys.exit('no')\n", 3),
    ],
)
def test_a_reference_that_leaves_is_an_input_error(tmp_path: Path, body: str, line: int) -> None:
    path = tmp_path / "leaves.py"
    path.write_text(body)
    with pytest.raises(TilewrightError, match="SystemExit") as caught:
        load_reference(path).compute(LAUNCH, make_inputs(LAUNCH, 1))
    assert (caught.value.code, caught.value.exit_code) == ("verify/bad_reference", 2)
    assert caught.value.facts["line"] == line


def test_what_a_reference_prints_does_not_reach_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = "print('loading')\ndef reference(a):\n    print('running')\n    return {'c': np.zeros((17, 9))}\n"
    load_reference(reference_file(tmp_path, body)).compute(LAUNCH, make_inputs(LAUNCH, 1))
    assert capsys.readouterr().out == ""


def test_missing_reference(tmp_path: Path) -> None:
    with pytest.raises(TilewrightError, match="cannot be read"):
        load_reference(tmp_path / "none.py")


MMA_F32 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};"


@pytest.mark.parametrize(
    ("ptx", "inputs", "accumulator", "operand"),
    [
        (MMA_F32, [F16], 2.0**-23, 0.0),
        ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {", [F16], 2.0**-10, 0.0),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {", [F16], 2.0**-23, 0.0),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16 {", [F16], 2.0**-10, 0.0),
        ("wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16 {", [F16], 2.0**-10, 0.0),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {", [F32], 2.0**-23, 2.0**-10),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32 {", [I8], 0.0, 0.0),
        ("fma.rn.f32 %f1, %f2, %f3, %f1;", [F32], 2.0**-23, 0.0),
        ("fma.rn.f16x2 %r1, %r2, %r3, %r1;", [F16], 2.0**-10, 0.0),
        ("fma.rn.ftz.bf16x2 %r1, %r2, %r3, %r1;", [DTYPES["bfloat16"]], 2.0**-7, 0.0),
        ("fma.rn.f64 %f1", [DTYPES["float64"]], 2.0**-52, 0.0),
        ("dp4a.s32.s32 %r1", [I8], 0.0, 0.0),
        ("", [F16], 2.0**-23, 0.0),
    ],
)
def test_arithmetic_is_read_from_ptx(ptx: str, inputs: list[object], accumulator: float, operand: float) -> None:
    assert read_arithmetic(ptx, inputs) == Arithmetic(accumulator, operand)  # type: ignore[arg-type]


def test_tolerance_grows_with_the_root_of_k_and_stays_inside_the_outer_bounds() -> None:
    single = Arithmetic(2.0**-23)
    small, large = (derive(F32, [F32], single, k, 1.0) for k in (256, 256 * 16))
    assert large.absolute / small.absolute == pytest.approx(4, rel=0.02)
    assert small.relative == 4 * 2.0**-23
    assert "K=256" in small.derivation
    assert derive(F32, [F32], single, 256, 100.0).absolute == pytest.approx(100 * small.absolute)
    half = derive(F16, [F16], Arithmetic(2.0**-10), 1 << 20, 1.0)
    assert (half.absolute, half.relative) == (1e-2, 4 * 2.0**-10)
    unknown = derive(F32, [F32], single, None, 1.0)
    assert (unknown.absolute, unknown.relative) == (1e-3, 1e-3)
    assert "length is not known" in unknown.derivation
    # Softmax over 65,536 columns: results of 2e-5, so that nothing but zeros must not be near enough.
    assert derive(F32, [F32], single, None, 2e-5).absolute == pytest.approx(2e-8)
    assert derive(F32, [I8], Arithmetic(0.0), None, 1.0).absolute == 0.5
    assert derive(DTYPES["int32"], [I8], Arithmetic(0.0), 64, 9.0).absolute == 0.5


@pytest.mark.parametrize("rounds", [True, False])
def test_tf32_by_rounding_or_by_truncation_is_within(rounds: bool) -> None:
    """Operands with 10 bits of mantissa; a dropped bit more is seen."""
    rng = np.random.default_rng(3)
    k = 256
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((64, k), (k, 64)))
    need = a.astype(np.float64) @ b.astype(np.float64)
    tolerance = derive(F32, [F32], Arithmetic(2.0**-23, 2.0**-10), k, root_mean_square(need))

    def short(x: np.ndarray, bits: int) -> np.ndarray:
        raw = x.view(np.uint32) + np.uint32((1 << (bits - 1)) if rounds else 0)
        return (raw & np.uint32(~((1 << bits) - 1) & 0xFFFFFFFF)).view(np.float32)

    def misses(bits: int) -> int:
        return within((short(a, bits) @ short(b, bits)).astype(np.float32), need, tolerance).count

    assert misses(13) == 0
    assert misses(17) > 0
    assert within(short(a, 13) @ short(b, 13), need, derive(F32, [F32], Arithmetic(2.0**-23), k, 16.0)).count > 0


@pytest.mark.parametrize("k", [64, 1024])
def test_tolerance_fits_real_arithmetic_and_catches_a_lost_product(k: int) -> None:
    """A float32 sum, one product at a time, passes; the same without one of its K products does not."""
    generator = np.random.default_rng(5)
    a = generator.standard_normal((48, k)).astype(np.float32)
    b = generator.standard_normal((k, 48)).astype(np.float32)
    need = a.astype(np.float64) @ b.astype(np.float64)
    tolerance = derive(F32, [F32], Arithmetic(2.0**-23), k, root_mean_square(need))
    sums = np.zeros((48, 48), np.float32)
    for step in range(k):
        sums += a[:, step : step + 1] * b[step : step + 1]
    assert within(sums, need, tolerance).count == 0
    assert within(sums - np.outer(a[:, 3], b[3]).astype(np.float32), need, tolerance).count > 0.9 * need.size


def test_bitwise() -> None:
    a = np.array([0.0, 1.0, np.nan, 2.0], np.float32)
    b = np.array([-0.0, 1.0, np.nan, 2.5], np.float32)
    assert bitwise(a, a.copy()).count == 0
    difference = bitwise(a, b)
    assert (difference.count, difference.first, difference.max_abs) == (2, 0, 0.5)
    assert bitwise(a, b, np.array([True, False, False, True])).count == 0
    other = b.copy()
    other.view(np.uint32)[2] ^= 1
    assert bitwise(b, other).first == 2


def test_within_handles_nan_infinity_and_unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "PIECE", 3)  # so that the pieces are put together
    tolerance = Tolerance(0.1, 0.0, "")
    need = np.array([1.0, np.nan, np.inf, -np.inf, 5.0, 6.0, np.nan])
    good = np.array([1.05, np.nan, np.inf, -np.inf, 4.95, 6.0, 0.0], np.float32)
    blank = np.array([False] * 6 + [True])
    assert within(good, need, tolerance, blank).count == 0
    assert within(good, need, tolerance).count == 1
    assert within(good, need, tolerance, blank).max_abs == pytest.approx(0.05, abs=1e-6)
    for index, value in ((0, 1.2), (0, np.nan), (0, np.inf), (1, 0.0), (2, 1.0), (2, -np.inf), (5, 6.2)):
        bad = good.copy()
        bad[index] = value
        difference = within(bad, need, tolerance, blank)
        assert (difference.count, difference.first) == (1, index)
    unwritten = blank.copy()
    unwritten[4] = True
    assert within(good, need, tolerance, unwritten).first == 4
    assert within(np.zeros((0, 3), np.float32), np.zeros((0, 3)), tolerance).count == 0


def test_rms_and_places() -> None:
    assert root_mean_square(np.array([3.0, 4.0, np.inf, np.nan])) == pytest.approx(np.sqrt(12.5))
    assert root_mean_square(np.zeros((0,))) == 0.0
    assert place_of(25, (3, 4, 5)) == "[1, 1, 0]"
