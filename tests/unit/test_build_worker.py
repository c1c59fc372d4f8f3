"""The compiler in a process of its own: the same results, and a crash that costs no more than its input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.build import compile_worker
from tilewright.build.artifact import Artifact, CompileFailure
from tilewright.build.compile_worker import Workers, compile_apart
from tilewright.build.nvrtc import Program, run, toolchain
from tilewright.errors import EXIT_MISSING, TilewrightError
from tilewright.settings import Settings
from tilewright.workflow.opening import Compiler, open_file

pytestmark = pytest.mark.skipif(toolchain() is None, reason="no NVRTC")

PROGRAM = Program("__global__ void k(float* a) { a[0] = 1; }", "/k.cu", (), ("--gpu-architecture=sm_86",), "k")
# Answers nothing and dies: as NVRTC does where an input breaks it.
DIES = (sys.executable, "-c", "import os, signal; os.read(0, 8); os.kill(os.getpid(), signal.SIGSEGV)")


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(compile_worker._workers().command)
    yield made
    made.close()


def test_the_result_is_that_of_a_run_here() -> None:
    assert compile_apart(PROGRAM) == run(PROGRAM)


def test_a_compile_error_is_a_result() -> None:
    made = compile_apart(replace(PROGRAM, source="__global__ void k() { x; }"))
    assert made.cubin is None
    assert 'identifier "x" is undefined' in made.log


def test_a_refused_flag_is_the_same_error() -> None:
    with pytest.raises(TilewrightError) as caught:
        compile_apart(replace(PROGRAM, options=("--gpu-architecture=sm_1",)))
    assert caught.value.code == "build/unknown_arch"
    assert "sm_90" in caught.value.hint


def test_one_worker_serves_one_program_after_another(workers: Workers) -> None:
    for _ in range(3):
        workers.compile(PROGRAM)
    assert len(workers._idle) == 1


def test_threads_compile_side_by_side(workers: Workers) -> None:
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda _: workers.compile(PROGRAM).cubin, range(6)))
    assert len(set(made)) == 1
    assert 1 <= len(workers._idle) <= 3


def test_a_crash_names_the_file_and_the_signal() -> None:
    with pytest.raises(TilewrightError) as caught:
        Workers(DIES).compile(PROGRAM)
    error = caught.value
    assert (error.code, error.exit_code, error.facts["file"]) == ("build/compiler_crashed", EXIT_MISSING, "k.cu")
    assert "SIGSEGV" in error.message
    assert error.hint


def test_a_crashed_worker_is_not_used_again() -> None:
    workers = Workers(DIES)
    for _ in range(2):
        with pytest.raises(TilewrightError):
            workers.compile(PROGRAM)
    assert not workers._idle


def test_a_baseline_that_crashes_the_compiler_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_worker, "_workers", lambda: Workers(DIES))
    path = tmp_path / "k.cu"
    path.write_text(PROGRAM.source)
    with pytest.raises(TilewrightError) as caught:
        open_file(path.read_bytes(), path, None, None, "sm_86", Settings(tmp_path), False)
    assert caught.value.code == "build/compiler_crashed"


def test_a_rewrite_that_crashes_the_compiler_is_one_that_does_not_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = Compiler(tmp_path / "k.cu", "sm_86", "k", None, Settings(tmp_path), False)
    assert isinstance(compiler.build(PROGRAM.source), Artifact)
    monkeypatch.setattr(compile_worker, "_workers", lambda: Workers(DIES))
    made = compiler.build(PROGRAM.source)
    assert isinstance(made, CompileFailure)
    assert "crashed" in made.message
