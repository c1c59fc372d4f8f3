"""The main job's other halves: the cache, a machine without a compiler, a GPU that finds a fault, exit codes."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.build.cache import Cache
from tilewright.errors import TilewrightError
from tilewright.gpu.device import GpuInfo
from tilewright.launch.bind import BoundLaunch
from tilewright.launch.executor import Hazard, Program, RunResult
from tilewright.measure.measure import BASELINE, Measurement
from tilewright.settings import Settings
from tilewright.verification.verdict import Verification
from tilewright.workflow import PipelineOutcome, pipeline, prove, running
from tilewright.workflow import main_job as job
from tilewright.workflow.running import contenders
from tilewright.workflow.study import Study

EXAMPLES = Path(__file__).parents[2] / "examples"
CARD = GpuInfo(0, "A card", "sm_90", "1.2", (13, 0), 132, 1 << 20, 1 << 30, 1980, 232448, 233472, 1024, 65536, 2048, 32)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds the study of the first example for sm_90a."""
    cache = tmp_path_factory.mktemp("warm")
    pipeline(EXAMPLES / "igemm_wmma.cu", arch="sm_90a", settings=Settings(cache_dir=cache), run=False)
    return cache


def on_copy(folder: Path, cache: Path, **options: Any) -> PipelineOutcome:
    folder.mkdir()
    for path in EXAMPLES.glob("igemm_wmma*"):
        shutil.copy(path, folder)
    return pipeline(folder / "igemm_wmma.cu", arch="sm_90a", settings=Settings(cache_dir=cache), **options)


def children_s() -> float:
    """Processor seconds of the processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_cached_run_answers_within_a_second(tmp_path: Path) -> None:
    """At matrices of the size that is timed; the K-loop is short, since the first run emulates it.

    Its own seconds, not those in which other tests have the core.
    """
    for path in EXAMPLES.glob("igemm_wmma*"):
        shutil.copy(path, tmp_path)
    sidecar = tmp_path / "igemm_wmma.toml"
    text = sidecar.read_text()
    short = re.sub(r"(?m)^default\b.*$", "default = { M = 4096, N = 4096, K = 128 }", text)
    sidecar.write_text(re.sub(r"(?m)^small\b.*$", "small = { M = 128, N = 128, K = 128 }", short))
    command = [
        sys.executable,
        "-m",
        "tilewright",
        "pipeline",
        str(tmp_path / "igemm_wmma.cu"),
        "--arch",
        "sm_90a",
        "--variants",
        "ldg",
        "--json",
    ]
    took: list[float] = []
    for _ in range(4):  # the first one emulates
        begin = children_s()
        done = subprocess.run(
            command, env={**os.environ, "TILEWRIGHT_CACHE": str(tmp_path / "c")}, capture_output=True, check=False
        )
        took.append(children_s() - begin)
        assert done.returncode == 0, done.stderr
    assert min(took) < 1.0


def test_the_cache_serves_a_machine_with_nothing_but_it(
    warm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another folder, a moved cache, no compiler, no parser, no disassembler."""
    moved = tmp_path / "moved"
    shutil.copytree(warm, moved)
    monkeypatch.setattr(job, "toolchain", lambda: None)
    for module in ("tree_sitter", "tree_sitter_cuda", "tilewright.workflow.opening", "tilewright.workflow.studying"):
        monkeypatch.setitem(sys.modules, module, None)
    outcome = on_copy(tmp_path / "elsewhere", moved, run=False)
    assert [v.status for v in outcome.receipt.variants[:5]] == ["built"] * 5
    assert str(tmp_path) in outcome.receipt.kernel.file


@pytest.mark.parametrize("change", ["source", "sidecar", "arch", "stages"])
def test_what_decides_a_study_is_in_its_key(
    warm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    folder = tmp_path / "changed"
    folder.mkdir()
    for path in EXAMPLES.glob("igemm_wmma*"):
        shutil.copy(path, folder)
    options: dict[str, Any] = {"arch": "sm_90a", "run": False}
    if change == "source":
        kernel = folder / "igemm_wmma.cu"
        kernel.write_text(kernel.read_text() + "\n")
    elif change == "sidecar":
        sidecar = folder / "igemm_wmma.toml"
        sidecar.write_text(sidecar.read_text().replace("4096", "2048"))
    elif change == "arch":
        options["arch"] = "sm_86"
    else:
        options["stages"] = (2,)
    made: list[str] = []

    def refuse(*_: object, **__: object) -> None:
        made.append("a new study")
        raise TilewrightError("test/stop", "a new study was asked for")

    import tilewright.workflow.opening as opening

    monkeypatch.setattr(opening, "open_file", refuse)
    with pytest.raises(TilewrightError, match="a new study"):
        pipeline(folder / "igemm_wmma.cu", settings=Settings(cache_dir=warm), **options)
    assert made


def test_without_a_sidecar_all_but_the_launch_is_done(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "igemm_wmma.cu", tmp_path / "bare.cu")
    settings = Settings(cache_dir=tmp_path / "c")
    # Where it may run, a sidecar is drafted: tests/emulator/test_draft.py.
    outcome = pipeline(tmp_path / "bare.cu", arch="sm_86", settings=settings, out=tmp_path / "o", run=False)
    receipt = outcome.receipt
    assert outcome.exit_code == 0
    assert receipt.choice is None
    assert [v.status for v in receipt.variants[:5]] == ["built"] * 5
    assert all(v.verify.verdict == v.measure.verdict == "not_run" for v in receipt.variants)
    assert any("sidecar" in note and "adds" in note for note in receipt.notes)
    assert any("128 threads" in a for a in receipt.assumptions)
    names = sorted(p.name for p in (tmp_path / "o").iterdir())
    assert "receipt.json" in names
    assert all(n.endswith((".unverified.cu", ".diff", "receipt.json")) for n in names)


# -- a GPU, played by NumPy ----------------------------------------------------------------------------


class Card:
    """Computes the first example's product; a program whose cubin is in ``faulty`` gets one element wrong."""

    name = "gpu"
    arch = "sm_90"
    is_hung = False
    is_dead = False

    def __init__(self, faulty: set[bytes]) -> None:
        self.faulty = faulty
        self.runs = 0

    def part_of(self, size_set: str) -> str:
        return "all"

    def run(self, program: Program, launch: BoundLaunch, arrays: Mapping[str, np.ndarray], **_: object) -> RunResult:
        self.runs += 1
        after = {name: array.copy() for name, array in arrays.items()}
        a, b = (launch.view(n, arrays).astype(np.float32) for n in ("matrix_a", "matrix_b"))
        scale = np.float32(launch.scalars["scale_a"]) * np.float32(launch.scalars["scale_b"])
        out = after["matrix_c"].reshape(launch.shapes["matrix_c"])
        out[...] = (a @ b) * scale
        if program.cubin in self.faulty and out.size:
            out[-1, -1] += 1
        return RunResult(after)


# What the tests on a card that is none speak of.
ON_CARD = ("ldg", "ldg_single", "cp_async", "widen", "retile")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first example at sizes that NumPy is quick at, with its study in the cache beside it."""
    folder = tmp_path_factory.mktemp("small")
    for path in EXAMPLES.glob("igemm_wmma*"):
        shutil.copy(path, folder)
    sidecar = folder / "igemm_wmma.toml"
    text = sidecar.read_text()
    for name in ("default", "small"):
        text = re.sub(rf"(?m)^{name}\b.*$", f"{name} = {{ M = 64, N = 80, K = 96 }}", text)
    sidecar.write_text(text)
    kernel = folder / "igemm_wmma.cu"
    pipeline(kernel, arch="sm_90a", settings=Settings(cache_dir=folder / "cache"), variants=ON_CARD, run=False)
    return kernel


def run_on_card(
    kernel: Path, monkeypatch: pytest.MonkeyPatch, *faulty: str, races: Mapping[str, Verification] | None = None
) -> tuple[PipelineOutcome, list[str]]:
    """The job on a card where the builds with these labels are faulty; returns what was timed, too.

    ``races``: what the emulator saw beside; None lets it look.
    """
    import tilewright.gpu.executor as executors
    import tilewright.measure.measure as timing

    timed: list[str] = []
    bad: set[bytes] = set()
    real = Cache.get_value

    def get_value(self: Cache, key: str, kind: type) -> Any:
        value = real(self, key, kind)
        if isinstance(value, Study):
            builds = [("baseline", value.baseline), *((label, a) for label, a, _ in contenders(value))]
            bad.update(a.cubin for label, a in builds if label in faulty)
        return value

    def measure(
        _record: object, base: object, passed: Mapping[str, object], *_: object, **__: object
    ) -> dict[str, Measurement]:
        if base is None:
            return {BASELINE: Measurement(reason="the baseline failed"), **dict.fromkeys(passed, Measurement())}
        timed.extend(passed)
        times = {BASELINE: 1000.0} | {label: TIMES.get(label, 950.0) for label in passed}
        return {
            label: Measurement(
                "default", t, t, 1.0, 30, speedup=1000.0 / t, card="A card", verdict="same" if t == 1000 else "faster"
            )
            for label, t in times.items()
        }

    monkeypatch.setattr(Cache, "get_value", get_value)
    monkeypatch.setattr(job, "find_gpu", lambda: CARD)
    monkeypatch.setattr(executors, "GpuExecutor", lambda _info: Card(bad))
    monkeypatch.setattr(timing, "measure", measure)
    if races is not None:
        monkeypatch.setattr(running, "_look_for_races", lambda *_: dict(races))
    settings = Settings(cache_dir=kernel.parent / "cache")
    return pipeline(kernel, arch="sm_90a", settings=settings, variants=ON_CARD), timed


TIMES = {
    "widen": 800.0,
    "cp_async2/waited": 640.0,
    "cp_async2": 500.0,
    "cp_async3": 400.0,
    "ldg": 700.0,
    "ldg/waited": 770.0,
}


def test_on_a_card_all_is_verified_and_the_fastest_is_taken(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, timed = run_on_card(small, monkeypatch)
    receipt = outcome.receipt
    assert outcome.exit_code == 0
    assert receipt.baseline.verify.verdict == "passed"
    made = {v.label: v for v in receipt.variants if v.status != "refused"}
    assert {v.status for v in made.values()} == {"accepted"}
    assert all(v.verify.bit_identical for v in made.values())
    trips = {"K=0", "K=32", "K=64", "K=96", "K=128", "K=160"}
    assert all(set(v.verify.sizes) == trips | {"default", "small", "ragged"} for v in made.values())
    # The control with its loads widened is the variant `widen`: it is built and timed once.
    moves = {"widen", "retile", "cap_registers"}
    timed_as = {*made, "ldg/early", "ldg_single/early"}
    assert set(timed) == {*timed_as, *(f"{x}/waited" for x in timed_as if "ldg_single" not in x and x not in moves)}
    assert len(timed) == len(set(timed))
    assert made["ldg"].controls[0].name == "widened"
    assert made["ldg"].controls[0].measure == made["widen"].measure
    assert receipt.choice is not None
    assert receipt.choice.label == "cp_async3"
    # Beside a variant of half depth the emulator also runs what leaves a rest of a tile, and of half of one.
    rests = {"K=65", "K=80"}
    assert all(set(v.verify.races_at) == {*v.verify.sizes, *rests} - {"default"} for v in made.values())
    assert not any(name.endswith(".unverified.cu") for name in outcome.sources)


def test_a_race_that_only_the_emulator_sees_fails_a_variant(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    race = Hazard("race_read_after_write", 132, "tile read at line 140, no barrier between")
    seen = Verification(
        "failed", "emulator", ("K=64",), hazards=(race,), reason=f"K=64: {race.message}", races_at=("K=64",)
    )
    outcome, timed = run_on_card(small, monkeypatch, races={"cp_async3": seen})
    made = {v.label: v for v in outcome.receipt.variants}
    assert made["cp_async3"].status == "failed"
    assert made["cp_async3"].verify.executor == "gpu"
    assert [h.line for h in made["cp_async3"].verify.hazards] == [132]
    assert "in the emulator" in made["cp_async3"].verify.reason
    assert "cp_async3" not in timed
    assert outcome.exit_code == 1
    assert outcome.receipt.choice is not None
    assert outcome.receipt.choice.label == "cp_async2"


def test_the_gain_is_attributed(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, _ = run_on_card(small, monkeypatch, races={})
    made = {v.label: v.attribution for v in outcome.receipt.variants}
    ring = made["cp_async3"]
    assert ring is not None
    assert (ring.width, ring.async_copy, ring.overlap, ring.stages) == (1.25, 1.25, 1.28, 1.25)
    ldg = made["ldg"]
    assert ldg is not None
    assert ldg.width == 1.25
    assert ldg.overlap == pytest.approx(1.1)
    assert ldg.stages == pytest.approx(800 / 770)
    wide = made["widen"]
    assert wide is not None
    assert (wide.width, wide.async_copy, wide.overlap, wide.stages) == (1.25, None, None, None)
    half = made["retile"]
    assert half is not None
    assert (half.width, half.overlap) == (None, None)
    assert half.warps_per_sm_before == wide.warps_per_sm_before == 32
    assert half.warps_per_sm_after is not None


@pytest.mark.parametrize("label", ["ldg", "cp_async3"])
def test_a_wrong_variant_is_failed_untimed_and_not_taken(
    small: Path, monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    outcome, timed = run_on_card(small, monkeypatch, label, races={})
    by = {v.label: v for v in outcome.receipt.variants}
    assert outcome.exit_code == 1
    assert by[label].status == "failed"
    assert by[label].verify.bit_identical is False
    assert label not in timed
    assert outcome.receipt.choice is not None
    assert outcome.receipt.choice.label != label
    assert not any(f".{label}." in name for name in outcome.sources)
    assert by["cp_async2"].status == "accepted"


def test_a_wrong_baseline_stops_everything(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, timed = run_on_card(small, monkeypatch, "baseline", races={})
    assert outcome.exit_code == 1
    assert outcome.receipt.baseline.verify.verdict == "failed"
    assert not timed
    assert outcome.receipt.choice is None
    assert all(name.endswith((".unverified.cu", ".diff")) for name in outcome.sources)


def test_prove_tells_the_two_verdicts_apart(warm: Path, tmp_path: Path) -> None:
    settings = Settings(cache_dir=warm)
    out = tmp_path / "out"
    pipeline(EXAMPLES / "igemm_wmma.cu", arch="sm_90a", settings=settings, run=False, out=out)
    assert prove(EXAMPLES / "igemm_wmma.cu", arch="sm_90a", settings=settings).exit_code == 1
    assert prove(out / "igemm_wmma.cp_async3.unverified.cu", arch="sm_90a", settings=settings).exit_code == 0
