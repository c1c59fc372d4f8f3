"""Replays: the format and the distances anywhere; the emulator's test kernels on a real card."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from distances import compare, ordered
from replay_on_gpu import SAME, run_all, said, show
from replays import BYTES, POINTER, Archive, Blobs, Buffer, Param, Replay, save

from tilewright.gpu.device import GpuInfo


def raw(values: list[float] | list[int], dtype: str) -> np.ndarray:
    return np.array(values, dtype).view(np.uint8)


def test_distances_of_floats() -> None:
    want = raw([1.0, 0.0, np.nan, np.inf, -2.0], "f4")
    assert compare("f32", want, want)["differ"] == 0
    near = want.copy()
    near.view(np.uint32)[0] += 3
    found = compare("f32", near, want)
    assert (found["differ"], found["ulp"], found["special"]) == (1, 3, 0)
    assert found["first"] == [0, "0x3f800003", "0x3f800000"]
    assert found["of_largest"] == pytest.approx(1.5)  # of eps times 2, the largest number here
    payload = want.copy()
    payload.view(np.uint32)[2] |= 5
    assert compare("f32", payload, want)["differ"] == 0
    assert compare("f32", payload, want)["nan_payloads"] == 1
    lost = want.copy()
    lost.view(np.uint32)[2] = 0
    assert compare("f32", lost, want)["special"] == 1


def test_distances_of_others() -> None:
    assert compare("b32", raw([1, 2, 3], "u4"), raw([1, 2, 4], "u4"))["differ"] == 1
    pairs = compare("f16x2", raw([1.0, 2.0], "f2"), raw([1.0, 2.002], "f2"))
    assert (pairs["count"], pairs["differ"], pairs["ulp"]) == (2, 1, 1)
    eight = compare("e4m3x2", raw([0x7F, 0x38], "u1"), raw([0xFF, 0x39], "u1"))
    assert (eight["differ"], eight["nan_payloads"], eight["ulp"]) == (1, 1, 1)
    signed = raw([-0.0, 0.0, -1.0], "f4").view(np.uint32)
    assert ordered("f32", signed).tolist() == [0, 0, -0x3F800000]


def packed(path: Path) -> Replay:
    blobs = Blobs()
    before, after = raw([1, 2], "u4"), raw([3, 4], "u4")
    buffers = (Buffer("in", "b32", blobs.add(before)), Buffer("out", "b32", blobs.add(before), blobs.add(after)))
    params = (Param(POINTER, 1), Param(BYTES, text="01000000"), Param("tensor_map", 0, element="UINT8", dims=(4, 2)))
    replay = Replay("one", "ops", blobs.add(b"code"), "k", (1, 2, 3), (32, 1, 1), 64, params, buffers)
    save(path, [replay], blobs)
    return replay


def test_a_file_keeps_what_it_is_given(tmp_path: Path) -> None:
    replay = packed(tmp_path / "replays.zip")
    archive = Archive(tmp_path / "replays.zip")
    assert archive.replays == [replay]
    assert archive.blob(replay.code) == b"code"
    assert archive.array(replay.buffers[1].after).view(np.uint32).tolist() == [3, 4]


def test_what_differs_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    found = compare("b32", raw([1, 2], "u4"), raw([1, 3], "u4"))
    rows = [
        {"name": "good", "group": "ops", "note": "", "status": "same", "buffers": {}},
        {"name": "bad", "group": "ops", "note": "", "status": "differs", "buffers": {"out": found}},
        {"name": "gone", "group": "kernels", "note": "", "status": "error", "message": "TIMED_OUT: no answer"},
    ]
    show(rows)
    text = capsys.readouterr().out
    assert "ops: 2 launches, 1 same, 1 differs, 0 error" in text
    assert "bad: out count=2 differ=1" in text
    assert "gone: TIMED_OUT" in text
    assert said(rows[2]) == "TIMED_OUT: no answer"


@pytest.mark.gpu
def test_the_kernels_of_the_table(card: GpuInfo, tmp_path: Path) -> None:
    """What the emulator's tests expect of their kernels is what the card computes."""
    if card.arch != "sm_90" or shutil.which("ptxas") is None:
        pytest.skip("the kernels are compiled for sm_90a, with a CUDA toolkit")
    pack = pytest.importorskip("pack_replays")
    blobs = Blobs()
    replays = list(pack.kernels(blobs))
    save(tmp_path / "kernels.zip", replays, blobs)
    answers = list(run_all(tmp_path / "kernels.zip", replays, tmp_path, 300.0))
    assert {r.name: a["status"] for r, a in zip(replays, answers, strict=True)} == {r.name: SAME for r in replays}
