"""`pipeline DIR`: every kernel gets its row, and none stops the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.cli.app import main
from tilewright.errors import TilewrightError
from tilewright.receipt.tree import render_tree, worst
from tilewright.settings import Settings
from tilewright.workflow import pipeline, tree
from tilewright.workflow.tree import Options, cuda_files, pipeline_tree

PLAIN = "__global__ void f(float* a) { a[threadIdx.x] = 1; }\n__global__ void g(float* a) { a[threadIdx.x] += 1; }\n"
TILED = """\
#define T 16
__global__ void __launch_bounds__(256) gemm(const float* __restrict__ A, float* __restrict__ C, int K) {
    __shared__ float As[T][T];
    float sum = 0.0f;
    for (int k = 0; k < K; k += T) {
        As[threadIdx.y][threadIdx.x] = A[threadIdx.y * K + k + threadIdx.x];
        __syncthreads();
        for (int i = 0; i < T; ++i) sum += As[threadIdx.y][i] * As[i][threadIdx.x];
        __syncthreads();
    }
    C[threadIdx.y * T + threadIdx.x] = sum;
}
"""


def grown(root: Path) -> Path:
    for name, text in {
        "b/tiled.cu": TILED,
        "a/plain.cuh": PLAIN,
        "bad.cu": "__global__ void f(float* a) { a[0] = x; }\n",
        "host.cu": "int main() { return 0; }\n",
        "build/skipped.cu": TILED,
        ".git/skipped.cu": TILED,
        "old/receipt.json": "{}",
        "old/tiled.cp_async2.cu": TILED,
        "notes.txt": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "binary.cu").write_bytes(b"\xff\xfe__global__")
    return root


def options(folder: Path, **more: object) -> Options:
    return Options(Settings(cache_dir=folder / "cache"), "sm_86", (2,), ("ldg",), run=False, **more)  # type: ignore[arg-type]


def test_which_files(tmp_path: Path) -> None:
    root = grown(tmp_path / "tree")
    names = sorted(str(p.relative_to(root)) for p in cuda_files(root))
    assert names == ["a/plain.cuh", "b/tiled.cu", "bad.cu", "binary.cu", "host.cu"]


def test_one_row_each(tmp_path: Path) -> None:
    root = grown(tmp_path / "tree")
    report = pipeline_tree(root, options(tmp_path, out=tmp_path / "out"))
    assert [r.kernel.name for r in report.receipts] == ["gemm"]
    assert {(Path(e.file).name, e.code) for e in report.errors} == {
        ("bad.cu", "build/compile_error"),
        ("binary.cu", "source/not_text"),
    }
    assert report.without_k_loop == 2
    assert report.exit_code == 2
    assert (tmp_path / "out/b/tiled.gemm/receipt.json").is_file()
    text = render_tree(report, 100)
    rows = text.splitlines()
    assert rows[0].split() == ["place", "kernel", "best", "verdict"]
    assert any("tiled.cu:2" in row and "ldg" in row for row in rows)
    assert len({row.index("[") for row in rows if "[" in row}) == 1
    assert "2 kernels without a K-loop" in rows[-1]


def test_kernels_of_one_name_have_folders_of_their_own(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    two = "".join(f"namespace {n} {{\n{TILED.replace('#define T 16', 'const int T = 16;')}}}\n" for n in ("one", "two"))
    for name, text in {"tiled.cu": TILED, "tiled.cuh": TILED, "spaces.cu": two}.items():
        (root / name).write_text(text)
    report = pipeline_tree(root, options(tmp_path, out=tmp_path / "out"))
    assert not report.errors
    assert len(report.receipts) == 4
    made = {str(p.parent.relative_to(tmp_path / "out")) for p in (tmp_path / "out").glob("*/receipt.json")}
    assert made == {"tiled.gemm", "tiled.cuh.gemm", "spaces.one.gemm", "spaces.two.gemm"}


def test_a_defect_of_ours_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = grown(tmp_path / "tree")
    real = tree.pipeline

    def breaks(path: Path, **more: object) -> object:
        if path.name == "plain.cuh":
            raise RuntimeError("no")
        return real(path, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(tree, "pipeline", breaks)
    report = pipeline_tree(root, options(tmp_path))
    assert [r.kernel.name for r in report.receipts] == ["gemm"]
    assert "cli/unexpected" in {e.code for e in report.errors}
    assert report.exit_code != 0


def test_json_and_an_empty_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t/tiled.cu").write_text(TILED)
    command = ["pipeline", str(tmp_path / "t"), "--json", "--no-run", "--no-cache", "--arch", "sm_86"]
    assert main([*command, "--variants", "ldg"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [r["kernel"]["name"] for r in report["receipts"]] == ["gemm"]
    assert sorted(p.name for p in (tmp_path / "t").iterdir()) == ["tiled.cu"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(TilewrightError, match="it is empty"):
        pipeline_tree(tmp_path / "empty", options(tmp_path))


def test_a_folder_of_results_says_whose_they_are(tmp_path: Path) -> None:
    """With `--out .` the receipt lies beside the source, which is found all the same; alone, it says what it is of."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "tiled.cu").write_text(TILED)
    asked = {"arch": "sm_86", "stages": (2,), "variants": ("ldg",), "settings": Settings(cache_dir=tmp_path / "cache")}
    made = pipeline(here / "tiled.cu", out=here, run=False, **asked)  # type: ignore[arg-type]
    assert {"receipt.json", "tiled.ldg.unverified.cu"} <= {p.name for p in here.iterdir()}
    assert [p.name for p in cuda_files(here)] == ["tiled.cu"]
    (here / "tiled.cu").unlink()
    with pytest.raises(TilewrightError, match=r"receipt.json.* earlier run wrote \(tiled.ldg.unverified.cu") as caught:
        pipeline_tree(here, options(tmp_path))
    assert f"The receipt is of {made.receipt.kernel.file}: name that file" in caught.value.hint
    with pytest.raises(TilewrightError, match="This is a receipt") as caught:
        pipeline(here / "receipt.json", run=False, **asked)  # type: ignore[arg-type]
    assert "tilewright apply" in caught.value.hint
    (here / "receipt.json").write_text("{}")
    with pytest.raises(TilewrightError, match="earlier run") as caught:
        pipeline_tree(here, options(tmp_path))
    assert caught.value.hint == "Name a .cu file, or a folder that holds one."


def test_the_worst_exit_code() -> None:
    assert worst([]) == 0
    assert worst([0, 4, 0]) == 4
    assert worst([4, 2]) == 2
    assert worst([2, 3, 1]) == 1
    assert worst([0, 1, 70]) == 70
