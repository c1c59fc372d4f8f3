"""`tilewright ladder`: list, show, run, bench; text and JSON, exit codes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.cli.app import main
from tilewright.gpu.device import find_gpu
from tilewright.ladder import family as families
from tilewright.ladder.family import Claim, load_families, load_family
from tilewright.ladder.report import LadderBench, TimedRung
from tilewright.ladder.report_text import render_bench
from tilewright.workflow import climbing


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["ladder", *arguments]) == code
    return capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    return json.loads(printed(capsys, *arguments, "--json", code=code))


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "list")
    report = as_json(capsys, "list")
    assert [f["name"] for f in report["families"]] == [f.name for f in load_families()]
    assert all(f["name"] in text and f["op"] in text for f in report["families"])


def test_show_prints_the_difference_to_the_rung_before(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "show", "transpose", "--rung", "padded")
    assert "-    __shared__ TW_T tile[TILE][TILE];\n+    __shared__ TW_T tile[TILE][TILE + PAD];\n" in text
    first, *later = as_json(capsys, "show", "transpose")["rungs"]
    assert first["before"] is None
    assert first["diff"] == ""
    assert first["source"] in printed(capsys, "show", "transpose", "--rung", "01")
    assert all(rung["diff"].startswith(f"--- {rung['before']}.cu\n+++ {rung['rung']}.cu") for rung in later)


def test_run_shows_counters_and_claims(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "run", "transpose", "--dtype", "float16")
    assert "02_shared" in text
    assert "holds: shared_conflicts equals 0 (found 0)" in text
    report = as_json(capsys, "run", "transpose", "--rung", "03", "--size", "all", "--dtype", "float16")
    assert {r["size"] for r in report["rungs"]} == set(load_family("transpose").emulated_sets())
    for rung in report["rungs"]:
        assert rung["verdict"] == "passed"
        assert rung["counters"]["shared_conflicts"] == 0
        assert rung["registers"] > 0
        assert all(claim["holds"] for claim in rung["claims"])


def test_a_rung_that_is_written_out_is_a_kernel_like_any_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = printed(capsys, "show", "transpose", "--rung", "padded", "--out", str(tmp_path), "--dtype", "float16")
    assert "written" in text
    file = tmp_path / "03_padded.cu"
    assert file.read_bytes() == (families.KERNELS / "transpose" / file.name).read_bytes()
    sidecar = file.with_suffix(".toml")
    sidecar.write_text(
        re.sub(r"(default|large\w*) = .*", r"\1 = { M = 70, N = 66, ld_x = 72 }", sidecar.read_text("utf-8"))
    )
    assert main(["verify", str(file), "--json"]) == 0
    receipt = json.loads(capsys.readouterr().out)
    assert '"passed"' in json.dumps(receipt)
    # A wrong kernel beside the same sidecar is found out.
    file.write_text(file.read_text("utf-8").replace("tile[threadIdx.x][at]", "tile[threadIdx.y][at]"), "utf-8")
    assert main(["verify", str(file)]) == 1
    capsys.readouterr()
    assert main(["ladder", "show", "transpose", "--out", str(tmp_path)]) == 2
    assert "--rung" in capsys.readouterr().err


def test_a_rung_that_keeps_arrays_of_its_own_is_verified_against_itself(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    printed(capsys, "show", "dot", "--rung", "last_block", "--out", str(tmp_path))
    file = tmp_path / "03_last_block.cu"
    sidecar = file.with_suffix(".toml")
    small = "{ N = 700, stride_a = 1, stride_b = 1 }"
    sidecar.write_text(re.sub(r"(default|large\w*|small) = .*", rf"\1 = {small}", sidecar.read_text("utf-8")))
    assert main(["verify", str(file), "--json"]) == 0
    assert "compared with itself only" in capsys.readouterr().out
    text = file.read_text("utf-8")
    file.write_text(text.replace("is_last = draws_last(ticket, gridDim.x)", "is_last = true"), "utf-8")
    assert file.read_text("utf-8") != text
    assert main(["verify", str(file)]) == 1
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "transpos"), "there is no family 'transpos'"),
        (("run", "transpose", "--rung", "99"), "transpose has no rung '99'"),
        (("run", "transpose", "--dtype", "int8"), "there is no dtype 'int8'"),
        (("run", "transpose", "--size", "default"), "there is no size 'default'"),
        (("run", "transpose", "--arch", "sm_1"), "sm_1"),
    ],
)
def test_wrong_names(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str) -> None:
    assert main(["ladder", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_claim_that_fails_is_exit_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    family = load_family("transpose")
    lie = replace(family.rungs[1], claims=(Claim("counter", "shared_conflicts", "equals", 0),))
    lying = replace(family, rungs=(family.rungs[0], lie))
    monkeypatch.setattr(climbing, "load_family", lambda name: lying)
    text = printed(capsys, "run", "transpose", code=1)
    assert "FAILS: shared_conflicts equals 0 (found 7936)" in text
    assert families.load_family("transpose").rungs[1].claims != lie.claims


def test_a_rung_that_does_not_take_the_dtype_is_not_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    family = load_family("transpose")
    narrow = replace(family, rungs=(family.rungs[0], replace(family.rungs[1], dtypes=("float16",), claims=())))
    monkeypatch.setattr(climbing, "load_family", lambda name: narrow)
    _, second = as_json(capsys, "run", "transpose", "--dtype", "float32")["rungs"]
    assert (second["verdict"], second["message"]) == ("not_run", "it takes float16")


@pytest.mark.skipif(find_gpu() is not None, reason="there is a GPU")
def test_bench_without_a_gpu_is_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ladder", "bench", "transpose"]) == 3
    assert "Times need a GPU, and none was found" in capsys.readouterr().err
    assert main(["ladder", "bench", "transpose", "--dtype", "int8"]) == 2


def test_a_bench_in_text() -> None:
    timed = TimedRung(
        "01_naive", "One", "float32", "default", {"M": 2}, "passed", "", 12.5, 12.0, 0.3, 30, 430.0, None, 1.0
    )
    failed = replace(timed, rung="02_shared", verdict="failed", message="ragged: wrong", median_us=None, gbps=None)
    report = LadderBench("transpose", "Transpose", "a card", "580", "2026-11-30", (timed, failed))
    text = render_bench(report)
    assert "01_naive   passed   12.5" in text
    assert "ragged: wrong" in text
    assert "a card, driver 580" in text
