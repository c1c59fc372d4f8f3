"""`tilewright analyze` from the command line: cubins, entries of Triton's cache, and input that is no good."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import analyze_kernels as kernels
import pytest
from analyze_sample import disassembled_once

from tilewright.cli.app import main
from tilewright.settings import Settings
from tilewright.workflow.opening import open_file
from tilewright.workflow.reading import read_file, sidecar_for


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cubin and PTX of a kernel, for sm_90a."""
    folder = tmp_path_factory.mktemp("built")
    settings = Settings(cache_dir=folder / "cache")
    path = kernels.WMMA.write(folder, "wmma")
    opened = open_file(read_file(path), path, None, sidecar_for(path, None, None), "sm_90a", settings, True)
    path.with_suffix(".cubin").write_bytes(opened.baseline.cubin)
    path.with_suffix(".ptx").write_text(opened.baseline.ptx, "utf-8")
    return folder


@pytest.fixture(scope="module", autouse=True)
def each_cubin_once() -> Iterator[None]:
    with disassembled_once():
        yield


@pytest.fixture(autouse=True)
def one_cache(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(built / "cache"))


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:  # type: ignore[type-arg]
    assert main(["analyze", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_what_is_given_makes_the_roofline(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(built / "wmma.cubin")
    assert report(capsys, file)["roofline"]["rows"] == []
    given = ("--flops", "137438953472", "--bytes", "134217728", "--time-us", "400")
    found = report(capsys, file, "--device", "h200", *given)
    row = found["roofline"]["rows"][0]
    assert (row["precision"], row["intensity"]) == ("fp16", 1024.0)
    assert row["share"] == pytest.approx(137438953472 / 400e-6 / row["attainable"])
    assert any("multiply-add is two" in text for text in found["warnings"])


def test_ncu_decides_the_class(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
    for sm, memory, bound in ((80, 30, "compute"), (25, 35, "latency")):
        rows = f'"0","f(int)","Compute (SM) Throughput","%","{sm}"\n"0","f(int)","Memory Throughput","%","{memory}"\n'
        export = tmp_path / f"{sm}.csv"
        export.write_text(head + rows + '"0","f(int)","Duration","us","12.5"\n', "utf-8")
        found = report(capsys, str(built / "wmma.cubin"), "--ncu", str(export))
        assert found["verdict"]["bound"] == bound
        assert found["baseline"]["time_us"] is None  # a duration under the profiler is no time
        assert any("no benchmark" in text for text in found["warnings"])


def test_an_entry_of_tritons_cache(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = tmp_path / "ENTRY"
    entry.mkdir()
    shutil.copy(built / "wmma.cubin", entry / "f.cubin")
    shutil.copy(built / "wmma.ptx", entry / "f.ptx")
    (entry / "f.json").write_text(json.dumps({"num_warps": 8, "shared": 32768, "name": "f"}), "utf-8")
    for path in (entry, entry / "f.json"):
        found = report(capsys, str(path))
        assert found["input"] == "triton_cache"
        assert found["baseline"]["launch"]["block"] == [256, 1, 1]
        assert found["baseline"]["smem_bytes"] == 32768


def test_setmaxnreg_that_ptxas_dropped_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = """(float *p) {
    if (threadIdx.x < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    else asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    p[threadIdx.x] *= 2.0f;
}
"""
    path = tmp_path / "k.cu"
    path.with_suffix(".toml").write_text(
        'kernel = "k"\n[launch]\ngrid = [1]\nblock = [384]\n[sizes]\ndefault = { N = 384 }\n'
        '[[args]]\nname = "p"\ndtype = "float32"\nshape = ["N"]\nrole = "inout"\n',
        "utf-8",
    )
    for bounds, is_told in (("384", True), ("384, 1", False)):
        path.write_text(f"__global__ void __launch_bounds__({bounds}) k{body}", "utf-8")
        found = report(capsys, str(path), "--arch", "sm_90a")
        assert any("C7508" in text for text in found["warnings"]) is is_told


def test_markdown_and_text(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(built / "wmma.cubin"), "--markdown"]) == 0
    assert "## Decision matrix" in capsys.readouterr().out
    assert main(["analyze", str(built / "wmma.cubin")]) == 0
    assert "\nDecision matrix\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["missing.cu"], "source/no_file", 2),
        (["empty_folder"], "source/no_cu_files", 2),
        (["text.cubin"], "sass/corrupt_cubin", 2),
        (["cut.cubin"], "sass/corrupt_cubin", 2),
        (["wrong.cu"], "build/compile_error", 2),
        (["wmma.cubin", "--kernel", "g"], "sass/unknown_kernel", 2),
        (["wmma.cubin", "--device", "geforce 256"], "analyze/unknown_device", 2),
        (["wmma.cubin", "--device", "a100"], "analyze/unknown_device", 2),  # four cards have that name
        (["wmma.cubin", "--device", "NVIDIA A10"], "analyze/other_arch", 2),
        (["wmma.cubin", "--grid", "0"], "analyze/bad_option", 2),
        (["wmma.cubin", "--grid", "2147483648"], "analyze/bad_option", 2),  # no launch takes them
        (["wmma.cubin", "--grid", "1,65536"], "analyze/bad_option", 2),
        (["wmma.cubin", "--block", "1,1,65"], "analyze/bad_option", 2),
        (["wmma.cubin", "--grid", "4x4"], "cli/usage", 2),
        (["wmma.cubin", "--block", "64,64"], "analyze/bad_option", 2),
        (["wmma.cubin", "--flops", "-1"], "analyze/bad_option", 2),
        (["wmma.cubin", "--bytes", "nan"], "analyze/bad_option", 2),
        (["wmma.cubin", "--size", "M"], "cli/usage", 2),
        (["wmma.cubin", "--ncu", "missing.csv"], "source/no_file", 2),
        (["wmma.cubin", "--ncu", "wrong.cu"], "analyze/bad_ncu", 2),
        (["wmma.cu", "--size", "Q=5"], "analyze/unknown_size", 2),
        (["wmma.cu", "--arch", "sm_12"], "arch/unknown", 2),
        (["kernel.py"], "analyze/no_sidecar", 2),
        (["half"], "analyze/triton_entry", 2),
    ],
)
def test_bad_input_has_one_clear_message(
    built: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: str,
    exit_code: int,
) -> None:
    monkeypatch.chdir(built)
    for folder in ("empty_folder", "half"):
        (built / folder).mkdir(exist_ok=True)
    whole = (built / "wmma.cubin").read_bytes()
    (built / "half" / "f.cubin").write_bytes(whole)
    (built / "cut.cubin").write_bytes(whole[: len(whole) // 2])
    (built / "text.cubin").write_text("no machine code", "utf-8")
    (built / "wrong.cu").write_text("__global__ void f(int *p) { p[0] = nothing; }\n", "utf-8")
    (built / "kernel.py").write_text("x = 1\n", "utf-8")
    assert main(["analyze", *arguments]) == exit_code
    told = capsys.readouterr()
    assert f"[{code}]" in told.err
    assert told.out == ""
    assert "Traceback" not in told.err


def test_a_block_that_nobody_names_is_asked_for(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(cache_dir=built / "cache")
    path = kernels.STREAM.write(tmp_path, "stream")
    opened = open_file(read_file(path), path, None, sidecar_for(path, None, None), "sm_90a", settings, True)
    cubin = tmp_path / "lone.cubin"
    cubin.write_bytes(opened.baseline.cubin)
    assert main(["analyze", str(cubin)]) == 2
    assert "[analyze/no_block]" in capsys.readouterr().err
    given = ("--block", "256", "--grid", "16384", "--bytes", "134217728", "--flops", "33554432", "--device", "h200")
    found = report(capsys, str(cubin), *given)
    assert found["verdict"]["by"] == "dram"
    aside = {item["key"]: item["reason"] for item in found["set_aside"]}
    assert "tiling brings nothing" in aside["tile"]
