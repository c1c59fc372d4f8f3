"""A variant that is built in two orders: the faster one is kept, and only a clock says which it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tilewright
from tilewright.receipt import evidence
from tilewright.settings import Settings
from tilewright.workflow.main_job import _faster_order
from tilewright.workflow.opening import open_file
from tilewright.workflow.running import Ran, contenders
from tilewright.workflow.study import StudiedVariant, Study
from tilewright.workflow.studying import study

EXAMPLE = Path(__file__).parents[2] / "examples" / "sgemm_float4.cu"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Study:
    settings = Settings(cache_dir=tmp_path_factory.mktemp("orders"))
    opened = open_file(EXAMPLE.read_bytes(), EXAMPLE, None, None, "sm_86", settings, True)
    return study(opened, (2,), ("ldg",), lambda _: None)


def ran(mine: float | None, its: float | None, early: str = "passed") -> Ran:
    passed = evidence.Verification("passed")
    times = {"ldg": mine, "ldg/early": its}
    return Ran(
        passed,
        evidence.Measurement(),
        {"ldg": passed, "ldg/early": evidence.Verification(early)},
        {k: replace(evidence.Measurement(), speedup=v) for k, v in times.items()},
    )


def ldg(made: Study) -> StudiedVariant:
    (found,) = made.variants
    assert found.early is not None
    return found


def test_both_orders_are_built_and_run(made: Study) -> None:
    found = ldg(made)
    assert found.early is not None
    assert "in front of the barrier" in " ".join(found.early.notes)
    assert found.early.source != found.source
    assert [label for label, _, _ in contenders(made)] == ["ldg", "ldg/early", "ldg/waited", "ldg/early/waited"]


@pytest.mark.parametrize(("mine", "its", "label"), [(0.9, 1.1, "ldg/early"), (1.1, 0.9, "ldg")])
def test_the_faster_one_is_kept(made: Study, mine: float, its: float, label: str) -> None:
    chosen, at = _faster_order(ldg(made), ran(mine, its))
    assert at == label
    assert f"{mine:.2f}x" in chosen.notes[-1]
    assert f"{its:.2f}x" in chosen.notes[-1]


def test_untimed_or_failed_the_first_one_stays(made: Study) -> None:
    assert _faster_order(ldg(made), ran(None, None))[1] == "ldg"
    assert _faster_order(ldg(made), ran(0.9, 1.1, early="failed"))[1] == "ldg"


def test_without_a_gpu_one_of_them_is_verified(tmp_path: Path) -> None:
    kernel = tmp_path / "k.cu"
    kernel.write_bytes(EXAMPLE.read_bytes())
    settings = Settings(cache_dir=tmp_path / "cache")
    outcome = tilewright.pipeline(kernel, arch="sm_86", variants=("ldg",), settings=settings, run=False)
    (variant,) = outcome.receipt.variants
    assert variant.status == "built"
    assert [c.name for c in variant.controls] == ["waited"]
