"""The doctor finds what is there, and says what a missing piece costs; a needed one decides the exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tilewright import doctor
from tilewright.cli.app import main
from tilewright.doctor import PROBES, Finding, examine, render_examination
from tilewright.gpu.device import GpuInfo
from tilewright.settings import Settings

HERE = Finding("compiler", True, True, "nvrtc 13.5")
GONE = Finding("disassembler", False, True, "no nvdisasm", "no SASS can be read.", "pip install nvidia-cuda-nvdisasm")
NO_GPU = Finding("gpu", False, False, "no driver", "nothing is verified.", "a machine with an NVIDIA GPU")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "cache")


def _examine(settings: Settings, *findings: Finding) -> doctor.Examination:
    return examine(settings, [lambda _, finding=finding: finding for finding in findings])


def test_a_missing_gpu_is_no_failure_and_a_missing_disassembler_is(settings: Settings) -> None:
    assert _examine(settings, HERE, NO_GPU).exit_code == 0
    assert _examine(settings, HERE, GONE, NO_GPU).exit_code == 3


def test_what_is_missing_is_said_with_its_cost_and_command(settings: Settings) -> None:
    text = render_examination(_examine(settings, HERE, GONE))
    assert "disassembler  MISSING  no nvdisasm" in text
    assert "without it: no SASS can be read." in text
    assert "pip install nvidia-cuda-nvdisasm" in text
    assert text.splitlines()[-1] == "Missing: disassembler."


def test_the_last_line_says_what_can_be_done(settings: Settings) -> None:
    assert "Timing needs a GPU." in render_examination(_examine(settings, HERE, NO_GPU))
    gpu = Finding("gpu", True, False, "NVIDIA H200")
    assert render_examination(_examine(settings, HERE, gpu)).endswith("Ready to rewrite, prove, verify and time.\n")


def test_color_is_only_drawn_when_asked(settings: Settings) -> None:
    assert "\x1b" not in render_examination(_examine(settings, HERE, GONE))
    assert "\x1b[31mMISSING\x1b[0m" in render_examination(_examine(settings, HERE, GONE), color=True)


def test_this_machine_has_what_the_package_brings(settings: Settings) -> None:
    findings = {finding.name: finding for finding in examine(settings).findings}
    assert {name for name, finding in findings.items() if finding.needed} == {
        "compiler",
        "headers",
        "disassembler",
        "parser",
    }
    assert all(finding.found for finding in findings.values() if finding.needed)
    assert "nvrtc" in findings["compiler"].facts
    assert "nvdisasm" in findings["disassembler"].facts
    for finding in findings.values():
        assert finding.without, f"{finding.name} must say what it costs"
        assert finding.get, f"{finding.name} must say how to get it"


def test_a_disassembler_that_does_not_start_is_missing(tmp_path: Path) -> None:
    broken = tmp_path / "nvdisasm"
    broken.write_text("not a program")
    broken.chmod(0o755)
    for path, why in ((broken, "does not start"), (tmp_path / "nowhere", "is no file")):
        found = examine(Settings(tmp_path, nvdisasm=path), [doctor._disassembler]).findings[0]
        assert not found.found
        assert why in found.facts


def test_a_compiler_that_does_not_load_is_missing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)  # makes the import fail
    findings = examine(settings, [doctor._compiler, doctor._headers])
    assert [finding.found for finding in findings.findings] == [False, False]
    assert findings.exit_code == 3


def test_a_grammar_that_is_not_installed_is_missing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter_cuda", None)
    assert examine(settings, [doctor._parser]).exit_code == 3


def test_a_gpu_is_described_as_its_driver_does(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    card = GpuInfo(
        0, "NVIDIA H200", "sm_90", "580.159.03", (13, 0), 132, 62914560, 141 * 2**30, 1980, 232448, 233472, 1024, 65536,
        2048, 32,
    )  # fmt: skip
    monkeypatch.setattr("tilewright.gpu.device.find_gpu", lambda: card)
    found = doctor._gpu(settings)
    assert found.found
    assert found.facts == "NVIDIA H200, sm_90, 132 SMs, 141 GiB, driver 580.159.03 (CUDA 13.0)"
    monkeypatch.setattr("tilewright.gpu.device.find_gpu", lambda: None)
    assert not doctor._gpu(settings).found
    assert not doctor._gpu(settings).needed


def test_the_cache_is_counted(settings: Settings) -> None:
    assert "0 files, 0.0 MiB" in doctor._cache(settings).facts
    (settings.cache_dir / "ab").mkdir(parents=True)
    (settings.cache_dir / "ab" / "cd").write_bytes(b"x" * 200_000)
    assert "1 file, 0.2 MiB" in doctor._cache(settings).facts


def test_a_cache_in_a_file_is_not_usable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = doctor._cache(Settings(tmp_path / "file" / "cache"))
    assert not found.found
    assert "cannot be written" in found.facts


def test_the_verb_prints_json_and_returns_the_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    assert main(["doctor", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [finding["name"] for finding in record["findings"]] == [probe.__name__.removeprefix("_") for probe in PROBES]
    monkeypatch.setenv("TILEWRIGHT_NVDISASM", str(tmp_path / "nowhere"))
    assert main(["doctor"]) == 3
    assert "Missing: disassembler." in capsys.readouterr().out
