"""The command line on real input: the main job without a GPU, and bad input that leaves nothing behind."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.cli.app import main
from tilewright.receipt.record import from_json

EXAMPLES = Path(__file__).parents[2] / "examples"
SHARED = "__shared__ int tile[32];"
KERNEL = "__global__ void {name}(int* out, int n) {{ " + SHARED + " tile[0] = n; out[0] = tile[0]; }}\n"

SIDECAR = """\
kernel = "scale"
[launch]
grid = ["{grid}", 1, 1]
block = [32, 1, 1]
[sizes]
default = {{ N = 64 }}
[[args]]
name = "out"
dtype = "int32"
shape = ["N"]
role = "out"
{more}
"""
COUNT = '[[args]]\nname = "n"\ndtype = "int32"\nvalue = "N"'


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs in an empty folder of its own, with its own cache outside it."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))


def _inputs() -> dict[str, tuple[dict[str, str | bytes], list[str], list[str]]]:
    """Name of the case → files to write, arguments, texts that the message must hold."""
    good = KERNEL.format(name="scale")
    return {
        "missing file": ({}, ["gone.cu"], ["gone.cu"]),
        "a folder without sources": ({"folder/readme.txt": "x"}, ["folder"], ["folder", ".cu"]),
        "binary rubbish": ({"k.cu": b"\x7f\x00\xff\xfe\x00"}, ["k.cu"], ["k.cu"]),
        "a syntax error": (
            {"k.cu": "\n\n__global__ void k(int* a) { a[0] = ; }\n"},
            ["k.cu"],
            ["k.cu:3", "expected an expr"],
        ),
        "no kernel": ({"k.cu": "int main() { return 0; }\n"}, ["k.cu"], ["k.cu", "__global__"]),
        "two kernels and none named": (
            {"k.cu": KERNEL.format(name="one") + KERNEL.format(name="two")},
            ["k.cu"],
            ["one", "two", "--kernel"],
        ),
        "a kernel that is not there": ({"k.cu": good}, ["k.cu", "--kernel", "other"], ["other", "scale"]),
        "a sidecar with an unknown name": (
            {"k.cu": good, "k.toml": SIDECAR.format(grid="ceil_div(Q, 32)", more=COUNT)},
            ["k.cu"],
            ["k.toml", "Q"],
        ),
        "a sidecar with too few arguments": (
            {"k.cu": good, "k.toml": SIDECAR.format(grid="1", more="")},
            ["k.cu"],
            ["k.toml"],
        ),
        "a sidecar that is not there": ({"k.cu": good}, ["k.cu", "--spec", "none.toml"], ["none.toml"]),
        "an unknown architecture": ({"k.cu": good}, ["k.cu", "--arch", "sm_42"], ["sm_42", "sm_86"]),
    }


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("case", list(_inputs()))
def test_bad_input_is_one_clear_message_and_leaves_nothing(
    case: str, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    files, arguments, needed = _inputs()[case]
    for name, content in files.items():
        path = Path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    before = sorted(Path().rglob("*"))
    assert main(["pipeline", *arguments, *(["--json", "--out", "out"] if as_json else [])]) == 2
    out, err = capsys.readouterr()
    assert sorted(Path().rglob("*")) == before
    if as_json:
        assert err == ""
        error = json.loads(out)["error"]
        message = f"{error['file']}:{error['line']} {error}"
    else:
        assert out == ""
        assert err.startswith("error: ")
        assert "Traceback" not in err
        message = err
    for text in needed:
        assert text in message


def test_the_main_job_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    """README's first command: all built and proven, nothing claimed that nothing ran."""
    arguments = ["pipeline", str(EXAMPLES / "igemm_wmma.cu"), "--arch", "sm_86", "--no-run"]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "Not verified and not timed" in text
    receipt = from_json(Path("out/receipt.json").read_bytes())
    assert receipt.choice is None
    made = [variant for variant in receipt.variants if variant.status == "built"]
    assert {variant.label for variant in made} >= {"ldg", "cp_async2", "cp_async3", "cp_async4"}
    for variant in made:
        assert variant.verify.verdict == variant.measure.verdict == "not_run"
        assert variant.source_path is not None
        assert variant.source_path.endswith(".unverified.cu")
        assert Path(variant.source_path).read_text() == variant.source
    assert main([*arguments, "--json"]) == 0
    assert from_json(capsys.readouterr().out).variants[0].source == receipt.variants[0].source


def children_s() -> float:
    """Processor seconds of the processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_cached_run_takes_less_than_a_second() -> None:
    for name in ("igemm_wmma.cu", "igemm_wmma.toml", "igemm_wmma_reference.py"):
        shutil.copy(EXAMPLES / name, name)
    program = "import sys; from tilewright.cli.app import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "pipeline", "igemm_wmma.cu", "--arch", "sm_86", "--no-run"]
    subprocess.run(command, check=True, capture_output=True)
    best_s = float("inf")
    for _ in range(3):  # processor seconds, and the best of three: other tests may be running
        start_s = children_s()
        subprocess.run(command, check=True, capture_output=True)
        best_s = min(best_s, children_s() - start_s)
    assert best_s < 1.0


def test_prove_and_inspect_agree_with_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    plain = str(EXAMPLES / "igemm_wmma.cu")
    assert main(["prove", plain, "--arch", "sm_86", "--json"]) == 1  # the baseline does not overlap
    proof = json.loads(capsys.readouterr().out)["kernels"][0]["proof"]
    assert (proof["verdict"], proof["tiles_in_flight"]) == ("no_overlap", 0)
    assert main(["inspect", plain, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"][0]["tile"]["BM"] == 64
    Path("k.cu").write_text(KERNEL.format(name="scale"))
    assert main(["inspect", "k.cu"]) == 4
    assert "[no_k_loop]" in capsys.readouterr().out
