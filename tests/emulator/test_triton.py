"""Triton kernels: made into PTX without a GPU, run in the emulator, and their broken twins found."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed: pip install 'tilewright[triton]'")

from tilewright.emulator.executor import EmulatorExecutor
from tilewright.emulator.options import EmulatorOptions
from tilewright.errors import EXIT_CHECK_FAILED, EXIT_MISSING, EXIT_OK, EXIT_REFUSED, TilewrightError
from tilewright.launch.sidecar import load_sidecar
from tilewright.settings import Settings
from tilewright.triton.build import TritonBuild, build_triton
from tilewright.verification.baseline import baseline_runs
from tilewright.verification.mutation import judge_mutants, ptx_programs
from tilewright.workflow.verifying import verify

FOLDER = Path(__file__).with_name("triton_kernels")
SEED = 7


def copied(folder: Path, name: str, *edits: tuple[str, str]) -> Path:
    """A kernel and its sidecar in another folder; each edit: (what stands once in one of them, what is to stand)."""
    files = [path for path in FOLDER.iterdir() if path.is_file()]
    for path in files:
        shutil.copy(path, folder / path.name)
    for old, new in edits:
        pair = [folder / f"{name}.py", folder / f"{name}.toml"]
        found = [path for path in pair if path.read_text().count(old) == 1]
        assert len(found) == 1, old
        found[0].write_text(found[0].read_text().replace(old, new))
    return folder / f"{name}.py"


def built(path: Path, arch: str = "sm_86") -> TritonBuild:
    return build_triton(path, load_sidecar(path.with_suffix(".toml")), arch, Settings.from_environment())


@pytest.mark.parametrize("arch", ["sm_86", "sm_90a"])
@pytest.mark.parametrize("name", ["vector_add", "row_softmax", "matmul", "histogram"])
def test_passes(name: str, arch: str) -> None:
    done = verify(FOLDER / f"{name}.py", arch=arch, seed=SEED)
    assert done.exit_code == EXIT_OK, done.report.verify
    assert done.report.verify.hazards == ()
    assert done.report.kernel.line is not None
    assert done.report.tool.compiler.startswith("triton ")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("vector_add", "mask = at < count", "mask = at < count - 1"),
        ("vector_add", "mask=mask) + tl.load", "mask=mask) - tl.load"),
        ("row_softmax", "tl.max(x, axis=0)", "0.5 * tl.sum(x, axis=0)"),
        ("matmul", "range(0, K, BLOCK_K)", "range(BLOCK_K, K, BLOCK_K)"),
        ("histogram", "values, 1, mask=mask)", "values, 1)"),
    ],
)
def test_a_wrong_kernel_fails(tmp_path: Path, name: str, old: str, new: str) -> None:
    done = verify(copied(tmp_path, name, (old, new)), seed=SEED)
    assert done.exit_code == EXIT_CHECK_FAILED, done.report.verify


def test_a_stray_access_is_found_at_its_line(tmp_path: Path) -> None:
    path = copied(tmp_path, "vector_add", ("mask = at < count", "mask = at < count + 1"))
    done = verify(path, seed=SEED)
    lines = path.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "tl.load(x_ptr" in text)
    assert done.exit_code == EXIT_CHECK_FAILED
    assert (done.report.verify.hazards[0].kind, done.report.verify.hazards[0].line) == ("out_of_bounds_read", line)


CAUGHT = {
    "sm_86": {"wait_removed.0", "wait_one_group_short.0", "barrier_removed.0", "barrier_before_wait.0"},
    "sm_90a": {"wait_removed.0", "barrier_removed.0", "wgmma_wait_dropped.0", "proxy_fence_dropped.0"},
}


@pytest.mark.parametrize("sums", ["float32", "float16"])
@pytest.mark.parametrize("arch", list(CAUGHT))
def test_broken_synchronisation_is_found(tmp_path: Path, arch: str, sums: str) -> None:
    """Sums of halves lie two in a register, and are taken apart by ``mov`` before the wait: not a use of them."""
    made = built(copied(tmp_path, "matmul", ("BLOCK_K = 32 }", f'BLOCK_K = 32, SUM_TYPE = "tl.{sums}" }}')), arch)
    assert ("wgmma.mma_async" in made.program.ptx) == (arch == "sm_90a")
    assert "cp.async" in made.program.ptx
    executor = EmulatorExecutor(arch, EmulatorOptions(max_seconds=20), "matmul.py")
    record = baseline_runs(made.program, made.spec, made.constants, executor, SEED)
    assert record.verification.verdict == "passed", record.verification
    mutants = [m for m in ptx_programs(made.program, None) if m.name in CAUGHT[arch]]
    assert {m.name for m in mutants} == CAUGHT[arch]
    assert [v.name for v in judge_mutants(record, mutants, None, executor) if not v.caught] == []


def test_against_cuda(tmp_path: Path) -> None:
    """Other blocks than the baseline's: at the default set, what both have written is compared."""
    for path, other in (("vector_add.py", "vector_add_cuda.cu"), ("vector_add_cuda.cu", "vector_add.py")):
        done = verify(FOLDER / path, against=FOLDER / other, seed=SEED)
        assert (done.exit_code, done.report.verify.bit_identical) == (EXIT_OK, True), done.report.verify
    copied(tmp_path, "vector_add", ("mask=mask) + tl.load", "mask=mask) * tl.load"))
    done = verify(tmp_path / "vector_add.py", against=tmp_path / "vector_add_cuda.cu", seed=SEED)
    assert done.exit_code == EXIT_CHECK_FAILED


def test_against_triton_with_its_sidecar(tmp_path: Path) -> None:
    copied(tmp_path, "vector_add")
    other = tmp_path / "mine.py"
    other.write_text((FOLDER / "vector_add.py").read_text().replace("tl.load(x_ptr", "0.0 + tl.load(x_ptr"))
    assert verify(other, against=tmp_path / "vector_add.py", seed=SEED).exit_code == EXIT_OK
    other.write_text((FOLDER / "vector_add.py").read_text().replace("tl.load(x_ptr", "1.0 + tl.load(x_ptr"))
    assert verify(other, against=tmp_path / "vector_add.py", seed=SEED).exit_code == EXIT_CHECK_FAILED


def test_a_candidate_in_the_other_language_needs_a_sidecar(tmp_path: Path) -> None:
    copied(tmp_path, "vector_add")
    (tmp_path / "vector_add.toml").rename(tmp_path / "elsewhere.toml")
    with pytest.raises(TilewrightError, match="Nothing says how") as caught:
        verify(tmp_path / "vector_add.py", against=tmp_path / "vector_add_cuda.cu")
    assert caught.value.code == "verify/no_sidecar"


def test_the_launch_that_triton_decides() -> None:
    made = built(FOLDER / "matmul.py")
    assert [e.evaluate_int({}) for e in made.spec.block] == [128, 1, 1]
    assert made.spec.shared_bytes.evaluate_int({}) > 0
    assert made.constants == {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    assert made.program.cubin.startswith(b"\x7fELF")
    assert built(FOLDER / "matmul.py", "sm_90a").program.arch == "sm_90a"


def test_what_holds_at_every_size_set_is_told_to_the_compiler(tmp_path: Path) -> None:
    """Rows that are multiples of 16 are copied in whole chunks; where one set has others, no set may rely on it."""
    chunk = re.compile(r"cp\.async\.cg\.shared\.global \[.*0x10")
    assert chunk.search(built(FOLDER / "matmul.py").program.ptx)
    assert not chunk.search(built(copied(tmp_path, "matmul", ("N = 144, K = 112", "N = 143, K = 111"))).program.ptx)


def test_the_number_one_is_not_built_in() -> None:
    """Triton would; one program serves all sets, ``count = 1`` among them."""
    assert "add_kernel_param_3" in built(FOLDER / "vector_add.py").program.ptx


def test_descriptors() -> None:
    assert verify(FOLDER / "descriptors.py", seed=SEED).exit_code == EXIT_OK
    with pytest.raises(TilewrightError, match="scratch memory") as caught:
        verify(FOLDER / "descriptors.py", arch="sm_90a")
    assert (caught.value.code, caught.value.exit_code) == ("triton/not_supported", EXIT_REFUSED)


WRONG = [
    ("constants = { BLOCK = 256 }", "constants = { }", "launch/missing_key", "lacks 'BLOCK' of add_kernel"),
    ("constants = { BLOCK = 256 }", "constants = { BLOK = 256 }", "launch/argument_name", "no parameter 'BLOK'"),
    ("{ BLOCK = 256 }", "{ BLOCK = 256, count = 3 }", "launch/duplicate", "'count' is an argument and a constant"),
    ("{ BLOCK = 256 }", '{ BLOCK = "tl.nothing" }', "launch/bad_value", "triton.language has no 'nothing'"),
    ("num_warps = 4", "options = { maxnregs = 32 }", "launch/unknown_key", "'maxnregs' is not an option"),
    ("num_warps = 4", "options = { num_ctas = 2 }", "launch/unknown_key", "'num_ctas' is not an option"),
    ('name = "y_ptr"', 'name = "z_ptr"', "launch/argument_name", "takes x_ptr, y_ptr, out_ptr, count"),
    ('role = "out"', 'role = "in"', "launch/no_output", "has no output"),
    ("[launch]", "[launch]\nblock = [64]", "launch/out_of_range", "launches add_kernel with 128 threads"),
    ('kernel = "add_kernel"', 'kernel = "sub_kernel"', "triton/no_kernel", "no kernel sub_kernel; it has add_kernel"),
    ("@triton.jit\n", "", "triton/not_a_kernel", "is not a @triton.jit function"),
    ("import triton.language as tl", "import triton.language as t l", "triton/bad_python", "is not Python"),
    ("mask = at < count", "mask = at < limit", "triton/compile_error", "limit is not defined"),
    ("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, extra", "launch/argument_count", "the sidecar has"),
    ("y_ptr, out_ptr, count, B", "y_ptr, out_ptr, count: tl.int64, B", "launch/argument_type", "annotated as i64"),
]


@pytest.mark.parametrize(("old", "new", "code", "words"), WRONG)
def test_what_does_not_fit_is_named(tmp_path: Path, old: str, new: str, code: str, words: str) -> None:
    with pytest.raises(TilewrightError, match=re.escape(words)) as caught:
        built(copied(tmp_path, "vector_add", (old, new)))
    assert caught.value.code == code


def test_a_compile_error_names_the_line(tmp_path: Path) -> None:
    path = copied(tmp_path, "vector_add", ("mask = at < count", "mask = at < 'count'"))
    with pytest.raises(TilewrightError) as caught:
        built(path)
    assert caught.value.facts["line"] == path.read_text().splitlines().index("    mask = at < 'count'") + 1


def test_what_was_left_out_of_the_file_is_named_where_it_is_missed(tmp_path: Path) -> None:
    edit = ("@triton.jit", "from package_that_is_missing import limit\n\n\n@triton.jit")
    path = copied(tmp_path, "vector_add", edit, ("mask = at < count", "mask = at < limit"))
    with pytest.raises(TilewrightError) as caught:
        built(path)
    assert "line 7 was left out (ModuleNotFoundError" in caught.value.hint


def test_cuda_sidecars_and_triton_kernels_do_not_mix(tmp_path: Path) -> None:
    copied(tmp_path, "vector_add")
    with pytest.raises(TilewrightError, match=r"no \[triton\] table"):
        verify(tmp_path / "vector_add.py", spec=tmp_path / "vector_add_cuda.toml")
    with pytest.raises(TilewrightError, match="is for a Python file"):
        verify(tmp_path / "vector_add_cuda.cu", spec=tmp_path / "vector_add.toml")


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "triton", None)
    with pytest.raises(TilewrightError, match="Triton is not installed") as caught:
        built(FOLDER / "vector_add.py")
    assert (caught.value.exit_code, caught.value.code) == (EXIT_MISSING, "triton/missing")
    assert "tilewright[triton]" in caught.value.hint


def test_interpreted_kernels_are_refused(tmp_path: Path) -> None:
    path = copied(tmp_path, "vector_add", ("@triton.jit", "class InterpretedFunction:\n    pass\n\n\n@triton.jit"))
    path.write_text(path.read_text() + "\n\nadd_kernel = InterpretedFunction()\n")
    with pytest.raises(TilewrightError, match="TRITON_INTERPRET is set"):
        built(path)


def test_without_the_cache_nothing_is_left(tmp_path: Path) -> None:
    spec = load_sidecar(FOLDER / "vector_add.toml")
    settings = Settings(cache_dir=tmp_path / "cache")
    build_triton(FOLDER / "vector_add.py", spec, "sm_86", settings, use_cache=False)
    assert not settings.cache_dir.exists()
    build_triton(FOLDER / "vector_add.py", spec, "sm_86", settings)
    assert list(settings.cache_dir.glob("triton/*"))
