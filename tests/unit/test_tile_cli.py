"""`tilewright tile`: text, Markdown and JSON of one record; what --out writes can be read back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright import workflow
from tilewright.arch.arch import load_arch
from tilewright.arch.occupancy import occupancy
from tilewright.build.artifact import Artifact, BuildRequest
from tilewright.build.build import build, toolchain
from tilewright.cli.app import main
from tilewright.errors import TilewrightError
from tilewright.gpu.device import GpuInfo
from tilewright.launch.bind import bind
from tilewright.launch.sidecar import load_sidecar
from tilewright.receipt.tile_text import render_tile, render_tile_markdown
from tilewright.settings import Settings
from tilewright.workflow.tiling import card_for

GEMM = ("gemm", "M=1000", "N=3000", "K=504", "--device", "h200")


def report(*dims: str, op: str = "gemm", **options: object):  # type: ignore[no-untyped-def]
    arguments = {"device": "h200", "settings": Settings.from_environment(), **options}
    return workflow.tile(op, dims, **arguments).report  # type: ignore[arg-type]


def test_json_and_text_show_the_same_choice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tile", *GEMM, "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert main(["tile", *GEMM]) == 0
    text = capsys.readouterr().out
    chosen = read["choice"]["candidate"]
    assert chosen["label"] in text
    assert read["candidates"][0]["label"] == chosen["label"]
    assert read["legal"] == len(read["plan"]["trials"])
    assert all(len(line) <= 100 for line in text.splitlines())
    assert main(["tile", *GEMM, "--markdown"]) == 0
    markdown = capsys.readouterr().out
    assert f"**{chosen['label']}**" in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(rows) == len(read["candidates"]) + 2
    assert len({row.count("|") for row in rows}) == 1


@pytest.mark.parametrize(
    ("op", "dims"),
    [
        ("batched_gemm", ("M=256", "N=256", "K=64", "BATCH=8")),
        ("attention", ("B=1", "H=8", "N=2048", "D=64")),
        ("row_reduction", ("R=4096", "C=4096")),
        ("elementwise", ("N=1000000",)),
        ("conv", ("N=8", "H=56", "W=56", "C=64", "K=128", "R=3", "S=3", "PAD=1")),
        ("gemm", ("M=1..256", "N=1024", "K=1024")),
    ],
)
def test_every_op_is_drawn(op: str, dims: tuple[str, ...]) -> None:
    found = report(*dims, op=op)
    assert found.choice.candidate.label in render_tile(found)
    assert found.choice.candidate.label in render_tile_markdown(found)
    assert bool(found.ranges) == any(".." in dim for dim in dims)


def test_what_out_writes_can_be_read_back(tmp_path: Path) -> None:
    found = report("M=96", "N=200", "K=4096", out=tmp_path)
    assert found.choice.candidate.parameters["split_k"] > 1
    plan = json.loads((tmp_path / "plan.json").read_text("utf-8"))
    assert plan["trials"][0]["parameters"] == dict(found.choice.candidate.parameters)
    written = json.loads((tmp_path / "tile.json").read_text("utf-8"))
    assert sorted(Path(name).name for name in written["skeleton"]["files"]) == sorted(
        p.name for p in tmp_path.iterdir()
    )
    for sidecar in tmp_path.glob("*.toml"):
        spec = load_sidecar(sidecar)
        launch = bind(spec, "default", {k.upper(): v for k, v in found.choice.candidate.parameters.items()})
        assert launch.scalars
    assert f"M = {96}, N = {200}, K = {4096}" in (tmp_path / "gemm_fp16.toml").read_text("utf-8")


def test_rows_that_are_not_aligned_get_narrow_vectors() -> None:
    assert "VEC_A = 8" in report("M=512", "N=512", "K=512").skeleton.source
    narrow = report("M=512", "N=512", "K=510").skeleton.source
    assert "VEC_A = 2" in narrow
    assert "VEC_B = 8" in narrow


@pytest.mark.skipif(toolchain() is None, reason="needs NVRTC")
def test_compiled_candidates_show_what_ptxas_gave(capsys: pytest.CaptureFixture[str]) -> None:
    found = report("M=4096", "N=4096", "K=4096", compiles=True, top=2)
    shown = found.candidates
    assert [c.registers_compiled is not None for c in shown] == [True, True]
    assert all(c.spill_bytes == 0 for c in shown)
    assert str(shown[0].registers_compiled) in render_tile(found)
    assert found.legal == report("M=4096", "N=4096", "K=4096").legal


def test_a_card_is_named_or_found() -> None:
    assert card_for("H200", None)[0].arch == "sm_90a"
    assert card_for(None, "sm_90")[0].arch == "sm_90a"
    assert card_for("4090", None)[0].arch == "sm_89"
    assert card_for(None, None)[1]
    wrong = (("h4711", None, "tile/unknown_device"), ("h200", "sm_80", "tile/device_arch"))
    for device, arch, code in (*wrong, ("a100", None, "tile/unknown_device"), ("", None, "tile/unknown_device")):
        with pytest.raises(TilewrightError) as caught:
            card_for(device, arch)
        assert caught.value.code == code


def test_bad_input_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tile", "gemm", "M=12", "--device", "h200", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "tile/bad_dims"
    assert main(["tile", "gemm", "M=64", "N=64", "K=64", "--dtype", "float64", "--device", "h200"]) == 4
    assert "tile/no_matrix_dtype" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("gemm", "M=128", "N=128", "K=128", "BATCH=65536"), 4, "grid.z = BATCH is 65536"),
        (("gemm", "M=128", "N=128", "K=128", "BATCH=65535"), 0, "gemm_fp16; --out DIR"),
        (("gemm", "M=64", "N=64", "K=64", "BATCH=65536", "--target", "triton"), 4, "grid.y = BATCH is 65536"),
        (("attention", "B=64", "H=1024", "N=128", "D=64"), 4, "grid.y = B * H is 65536"),
        (("conv", "N=1", "H=32765", "W=8", "C=8", "K=8", "R=3", "S=3"), 4, "up to 32767"),
        (("conv", "N=1", "H=32764", "W=8", "C=8", "K=8", "R=3", "S=3"), 0, "conv_fp16; --out DIR"),
        (("conv", "N=8", "H=56", "W=56", "C=64", "K=64", "R=3", "S=3", "--target", "triton"), 4, "no Triton skeleton"),
        (("elementwise", "N=1000", "--dtype", "int8"), 4, "no skeleton of int8"),
        (("elementwise", "N=1000", "INPUTS=9"), 4, "9 inputs; 1 to 8 are made"),
    ],
)
def test_a_kernel_that_is_not_there_is_exit_code_4_with_the_table(
    arguments: tuple[str, ...], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tile", *arguments, "--device", "h200", "--top", "1"]) == code
    text = " ".join(capsys.readouterr().out.split())
    assert told in text
    assert "choice" in text


@pytest.mark.parametrize("top", ["0", "-1"])
def test_an_empty_table_is_bad_usage(top: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tile", *GEMM, "--top", top, "--compile"]) == 2
    assert "tile/bad_top" in capsys.readouterr().err


def test_what_somebody_has_edited_is_not_written_over(tmp_path: Path) -> None:
    report("M=96", "N=200", "K=4096", out=tmp_path)  # split: two sidecars
    first = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    assert len([name for name in first if name.endswith(".toml")]) == 2
    report("M=2048", "N=2048", "K=4096", out=tmp_path)  # unedited: written anew, and what is no longer made goes
    second = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    assert "gemm_fp16.gemm_fp16_reduce.toml" not in second
    assert second["gemm_fp16.cu"] != first["gemm_fp16.cu"]
    report("B=1", "H=8", "N=512", "D=64", op="attention", out=tmp_path)
    assert not (tmp_path / "gemm_fp16.cu").exists()

    (tmp_path / "attention_fp16.cu").write_text("mine\n", "utf-8")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(TilewrightError) as caught:
        report("B=1", "H=8", "N=1024", "D=128", op="attention", out=tmp_path)
    assert (caught.value.code, caught.value.exit_code) == ("tile/exists", 2)
    assert caught.value.facts["files"] == ["attention_fp16.cu"]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    report("M=2048", "N=2048", "K=4096", out=tmp_path)  # another op: the edited file stays, unlisted
    assert (tmp_path / "attention_fp16.cu").read_text("utf-8") == "mine\n"


@pytest.mark.parametrize("name", ["gemm_fp16.cu", "plan.json", "tile.json"])
def test_a_file_of_somebody_else_stays(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("[1]", "utf-8")
    with pytest.raises(TilewrightError, match=name) as caught:
        report("M=512", "N=512", "K=512", out=tmp_path)
    assert caught.value.code == "tile/exists"
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.skipif(toolchain() is None, reason="needs NVRTC")
@pytest.mark.parametrize(
    ("op", "dims"),
    [
        ("gemm", ("M=4096", "N=4095", "K=4095")),  # vectors of one element
        ("conv", ("N=8", "H=28", "W=28", "C=64", "K=64", "R=3", "S=3", "PAD=1")),
        ("attention", ("B=1", "H=8", "N=2048", "D=64")),
        ("row_reduction", ("R=4096", "C=4096", "WRITES_ROWS=1")),
    ],
)
def test_the_kernel_that_is_compiled_is_the_one_that_is_written(op: str, dims: tuple[str, ...]) -> None:
    found = report(*dims, op=op, compiles=True, top=1)
    chosen, made = found.choice.candidate, found.skeleton
    artifact = build(BuildRequest(made.source, "made.cu", found.arch, made.kernel), Settings.from_environment())
    assert isinstance(artifact, Artifact)
    assert chosen.registers_compiled == artifact.resources.registers
    assert chosen.spill_bytes == artifact.resources.spill_bytes == 0
    arch = load_arch(found.arch)
    fits = occupancy(arch, chosen.threads, artifact.resources.registers, chosen.smem_bytes)
    assert (chosen.blocks_per_sm, chosen.limiter) == (fits.blocks_per_sm, fits.limiter)


@pytest.mark.parametrize("target", ["cuda", "triton"])
def test_the_sidecar_names_the_architecture_that_the_tile_was_chosen_for(target: str, tmp_path: Path) -> None:
    """Without it `verify` takes sm_86, where the ring of an H200 does not fit."""
    report("M=4096", "N=4096", "K=4096", out=tmp_path, target=target)
    (sidecar,) = tmp_path.glob("*.toml")
    assert load_sidecar(sidecar).arch == "sm_90a"


def test_a_gpu_without_a_table_is_not_said_to_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    here = GpuInfo(0, "NVIDIA H100 NVL", "sm_90", "580", (13, 0), 132, 1, 1, None, 1, 1, 1, 1, 1, 1)
    monkeypatch.setattr("tilewright.workflow.tiling.find_gpu", lambda: here)
    card, why = card_for(None, None)
    assert card.arch == "sm_90a"
    assert "NVIDIA H100 NVL is not in them" in why
    # Of the table's name, with another number of SMs: another card.
    monkeypatch.setattr("tilewright.workflow.tiling.find_gpu", lambda: replace(here, name="NVIDIA H200", sms=66))
    assert "NVIDIA H200 is not in them" in card_for(None, None)[1]
    table = card_for("h200", None)[0]
    whole = replace(here, name="NVIDIA H200", sms=table.sms, memory_bytes=table.dram_bytes)
    monkeypatch.setattr("tilewright.workflow.tiling.find_gpu", lambda: whole)
    assert card_for(None, None) == (table, "this machine's GPU")
