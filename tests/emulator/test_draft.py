"""A sidecar drafted from a launch, a signature and a run; and what keeps a wrong one from deciding anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.launch.sidecar import load_sidecar
from tilewright.settings import Settings
from tilewright.workflow import drafting, main_job, pipeline
from tilewright.workflow.draft.extents import shape_of
from tilewright.workflow.draft.result import Draft

GEMM = """\
#define T 16
__global__ void gemm(const float* __restrict__ A, const float* __restrict__ B,
                     float* __restrict__ C, int M, int N, int K) {
    __shared__ float As[T][T];
    __shared__ float Bs[T][T];
    int row = blockIdx.y * T + threadIdx.y;
    int col = blockIdx.x * T + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < K; k += T) {
        As[threadIdx.y][threadIdx.x] = row < M && k + threadIdx.x < K ? A[row * K + k + threadIdx.x] : 0.0f;
        Bs[threadIdx.y][threadIdx.x] = k + threadIdx.y < K && col < N ? B[(k + threadIdx.y) * N + col] : 0.0f;
        __syncthreads();
        for (int i = 0; i < T; ++i) sum += As[threadIdx.y][i] * Bs[i][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}
"""
UNGUARDED = GEMM.replace("row < M && k + threadIdx.x < K ? ", "").replace("k + threadIdx.y < K && col < N ? ", "")
UNGUARDED = UNGUARDED.replace(" : 0.0f;", ";").replace("if (row < M && col < N) ", "")
LAUNCH = """\
void run(const float* a, const float* b, float* c, int m, int n, int k) {
    dim3 block(T, T), grid((n + T - 1) / T, (m + T - 1) / T);
    gemm<<<grid, block>>>(a, b, c, m, n, k);
}
"""


def drafted(folder: Path, text: str, name: str = "k.cu") -> Draft:
    path = folder / name
    path.write_text(text)
    return drafting.draft_for(
        text.encode(), path, None, "sm_86", Settings(cache_dir=folder / "cache"), True, lambda _: None
    )


def test_from_a_launch(tmp_path: Path) -> None:
    made = drafted(tmp_path, GEMM + LAUNCH)
    assert made.fits
    assert made.is_told
    spec = drafting.spec_of(made, tmp_path / "k.cu")
    assert spec is not None
    assert [e.text for e in spec.grid] == ["ceil_div(N, T)", "ceil_div(M, T)", "1"]
    assert [e.text for e in spec.block] == ["T", "T", "1"]
    shapes = {a.name: ([e.text for e in a.shape], a.role) for a in spec.args if a.shape is not None}
    assert shapes == {"A": (["M", "K"], "in"), "B": (["K", "N"], "in"), "C": (["M", "N"], "out")}
    assert {"default", "small", "ragged"} == set(spec.sizes)
    assert any(value % 16 for value in spec.sizes["ragged"].values())


def test_without_a_launch_candidates_are_tried(tmp_path: Path) -> None:
    made = drafted(tmp_path, GEMM)
    assert made.fits
    assert not made.is_told
    assert any("the file has no launch" in guess for guess in made.guesses)
    spec = drafting.spec_of(made, tmp_path / "k.cu")
    assert spec is not None
    assert [e.text for e in spec.grid[:2]] == ["ceil_div(N, T)", "ceil_div(M, T)"]


def test_without_guards_no_ragged_sizes(tmp_path: Path) -> None:
    made = drafted(tmp_path, UNGUARDED + LAUNCH)
    assert made.fits
    assert "ragged" not in made.text


def test_what_is_read_before_it_is_written_is_inout(tmp_path: Path) -> None:
    made = drafted(tmp_path, GEMM.replace("C[row * N + col] = sum", "C[row * N + col] += sum") + LAUNCH)
    assert 'role = "inout"' in made.text


@pytest.mark.parametrize(
    ("text", "word"),
    [
        # The launch asks for a block that the kernel does not fit: threads beyond the tile write beside it.
        (GEMM + LAUNCH.replace("block(T, T)", "block(2 * T, T)"), "out_of_bounds"),
        (GEMM.replace("float* __restrict__ C", "Thing* C") .replace("#define", "struct Thing { float x[3]; };\n#define")
         .replace("C[row * N + col] = sum", "C[row * N + col].x[0] = sum") + LAUNCH, "Thing"),
        (GEMM.replace("float* __restrict__ C", "const float* C").replace("C[row * N + col] = sum;", ";"), "write"),
    ],
)  # fmt: skip
def test_what_does_not_fit_says_why(tmp_path: Path, text: str, word: str) -> None:
    made = drafted(tmp_path, text)
    assert not made.fits
    assert word in made.problem
    assert "TODO" in made.text


def test_the_main_job_without_a_sidecar(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(GEMM + LAUNCH)
    settings = Settings(cache_dir=tmp_path / "cache")
    outcome = pipeline(path, arch="sm_86", settings=settings, variants=("ldg",), save_draft=True)
    assert [v.status for v in outcome.receipt.variants] == ["accepted"]
    assert any(a.startswith("guessed: C has the shape [M, N], out") for a in outcome.receipt.assumptions)
    assert load_sidecar(tmp_path / "k.toml").kernel == "gemm"
    # Kept, it is a sidecar like any other: nothing is guessed.
    again = pipeline(path, arch="sm_86", settings=settings, variants=("ldg",), run=False).receipt
    assert not [a for a in again.assumptions if a.startswith("guessed")]


def test_a_wrong_draft_accepts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = drafted(tmp_path, GEMM + LAUNCH)
    # As if C had been taken for smaller than it is.
    wrong = replace(good, text=good.text.replace('shape = ["M", "N"]', 'shape = ["M"]'))
    assert wrong.text != good.text
    monkeypatch.setattr(main_job, "draft_or_none", lambda *_: wrong)
    outcome = pipeline(
        tmp_path / "k.cu", arch="sm_86", settings=Settings(cache_dir=tmp_path / "cache"), variants=("ldg",)
    )
    assert [v.status for v in outcome.receipt.variants] == ["built"]
    assert any("does not fit: out_of_bounds" in note for note in outcome.receipt.notes)
    assert outcome.receipt.choice is None


def test_init_writes_and_never_replaces(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(GEMM + LAUNCH)
    settings = Settings(cache_dir=tmp_path / "cache")
    done = drafting.init(path, arch="sm_86", settings=settings)
    assert done.path == tmp_path / "k.toml"
    assert not done.problem
    done.path.write_text("# mine")
    with pytest.raises(TilewrightError) as caught:
        drafting.init(path, arch="sm_86", settings=settings)
    assert caught.value.code == "init/exists"
    assert done.path.read_text() == "# mine"
    drafting.init(path, arch="sm_86", settings=settings, force=True)
    assert done.path.read_text() == done.text


def test_of_several_kernels_each_has_a_sidecar_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(GEMM + "__global__ void other(float* a) { a[0] = 1; }\n" + LAUNCH)
    done = drafting.init(path, kernel="gemm", arch="sm_86", settings=Settings(cache_dir=tmp_path / "cache"))
    assert done.path.name == "k.gemm.toml"


def test_shapes_are_what_every_run_agrees_on() -> None:
    # 2 * 384 * 128 is 256 * 384 too; a second run tells them apart.
    first = {"B": 2, "T": 384, "C": 128, "OC": 256}
    second = {"B": 3, "T": 256, "C": 384, "OC": 128}
    alone = shape_of([(2 * 384 * 128, first)], {}, ())
    assert alone is not None
    assert set(alone.extents) == {"OC", "T"}
    both = shape_of([(2 * 384 * 128, first), (3 * 256 * 384, second)], {}, ())
    assert both is not None
    assert set(both.extents) == {"B", "T", "C"}
    assert shape_of([(7, first), (11, second)], {}, ()) is None
