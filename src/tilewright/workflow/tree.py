"""`tilewright pipeline DIR`: every kernel of a folder, one after another or several at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from tilewright.errors import EXIT_BAD_INPUT, TilewrightError
from tilewright.receipt.record import Receipt
from tilewright.receipt.tree import TreeError, TreeReport, worst
from tilewright.receipt.write import RECEIPT_NAME, is_generated
from tilewright.settings import Settings
from tilewright.workflow.main_job import pipeline
from tilewright.workflow.reading import no_sources, read_file

SUFFIXES = (".cu", ".cuh")
SKIPPED = frozenset(("build", "node_modules", "__pycache__", "venv"))
EXIT_INTERNAL = 70
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What every kernel of the run shares; as ``pipeline`` has it."""

    settings: Settings
    arch: str | None = None
    stages: tuple[int, ...] = (2, 3, 4)
    variants: tuple[str, ...] | None = None
    out: Path | None = None
    use_cache: bool = True
    run: bool = True
    save_draft: bool = False


@dataclass(frozen=True)
class _Task:
    """One kernel; ``out`` is its own folder."""

    path: Path
    kernel: str
    line: int
    options: Options


@dataclass(frozen=True)
class _Done:
    task: _Task
    receipt: Receipt | None = None
    error: TreeError | None = None
    exit_code: int = 0


def pipeline_tree(root: Path, options: Options, *, jobs: int = 1, progress: Progress | None = None) -> TreeReport:
    """Run the main job on every kernel below a folder. One that fails never stops the others.

    Args:
        jobs: processes; one where a GPU times, for kernels that share it disturb each other.

    Raises:
        TilewrightError: ``source/no_cu_files``.
    """
    say = progress or (lambda _: None)
    files = sorted(cuda_files(root))
    if not files:
        raise no_sources(root)
    tasks: list[_Task] = []
    errors: list[TreeError] = []
    for path in files:
        try:
            tasks += _tasks(path, root, options)
        except TilewrightError as error:
            errors.append(_error(error, path, ""))
    done: list[_Done] = []
    for one in _run(tasks, jobs if options.run and not _has_gpu() else 1, say):
        done.append(one)
        say(f"{len(done)} of {len(tasks)}: {one.task.path.name} {one.task.kernel}")
    done.sort(key=lambda d: (str(d.task.path), d.task.line))
    errors += [d.error for d in done if d.error is not None]
    receipts = [d for d in done if d.receipt is not None]
    quiet = [d for d in receipts if d.receipt is not None and _has_no_loop(d.receipt)]
    shown = [d for d in receipts if d not in quiet]
    codes = [d.exit_code for d in shown] + [e.exit_code for e in errors]
    return TreeReport(
        str(root),
        tuple(d.receipt for d in shown if d.receipt is not None),
        tuple(errors),
        len(quiet),
        len(files),
        worst(codes),
    )


def cuda_files(root: Path) -> Iterator[Path]:
    """CUDA sources below a folder, without hidden folders, build folders and what an earlier run wrote."""
    for folder, below, names in os.walk(root):
        if RECEIPT_NAME in names:  # beside it may lie the user's own: `--out .`
            names = [name for name in names if not is_generated(name)]
        below[:] = sorted(d for d in below if not d.startswith(".") and d not in SKIPPED and "cmake-build" not in d)
        for name in sorted(names):
            if name.endswith(SUFFIXES) and not name.startswith("."):
                yield Path(folder) / name


def _has_no_loop(receipt: Receipt) -> bool:
    return receipt.refusal is not None and receipt.refusal.code == "no_k_loop"


def _has_gpu() -> bool:
    from tilewright.gpu.device import find_gpu

    return find_gpu() is not None


def _tasks(path: Path, root: Path, options: Options) -> list[_Task]:
    raw = read_file(path)
    if b"__global__" not in raw:
        return []
    from tilewright.source.reader import read_source

    source = read_source(raw, str(path))
    out: list[_Task] = []
    for kernel in source.kernels:
        own = options
        if options.out is not None:
            own = replace(options, out=options.out / _folder(path.relative_to(root), kernel.qualified))
        out.append(_Task(path, kernel.qualified, kernel.line, own))
    return out


def _folder(place: Path, kernel: str) -> Path:
    """A folder for one kernel and no other: ``gemm.cu`` and ``gemm.cuh`` may lie side by side."""
    file = place.stem if place.suffix == SUFFIXES[0] else place.name
    return place.parent / f"{file}.{kernel.replace('::', '.')}"


def _run(tasks: list[_Task], jobs: int, say: Progress) -> Iterator[_Done]:
    if jobs <= 1 or len(tasks) <= 1:
        for number, task in enumerate(tasks):
            head = f"{number + 1} of {len(tasks)}: {task.path.name} {task.kernel}"
            yield _one(task, lambda step, head=head: say(f"{head}: {step}"))  # type: ignore[misc]
        return
    with ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(_one, task): task for task in tasks}
        for future in as_completed(waiting):
            try:
                yield future.result()
            except Exception as error:  # a worker that died: its kernel is told, the others go on
                yield _broken(waiting[future], error)


def _one(task: _Task, say: Progress | None = None) -> _Done:
    o = task.options
    try:
        outcome = pipeline(
            task.path,
            kernel=task.kernel,
            arch=o.arch,
            stages=o.stages,
            variants=o.variants,
            out=o.out,
            settings=o.settings,
            use_cache=o.use_cache,
            run=o.run,
            progress=say,
            save_draft=o.save_draft,
        )
    except TilewrightError as error:
        told = _error(error, task.path, task.kernel)
        return _Done(task, None, told if told.line is not None else replace(told, line=task.line))
    except Exception as error:
        return _broken(task, error)
    return _Done(task, outcome.receipt, None, outcome.exit_code)


def _error(error: TilewrightError, path: Path, kernel: str) -> TreeError:
    line = error.facts.get("line")
    own = error.facts.get("file") in (None, str(path))
    at = line if isinstance(line, int) and own else None
    return TreeError(str(path), kernel, error.code, error.message, at, error.hint, error.exit_code or EXIT_BAD_INPUT)


def _broken(task: _Task, error: Exception) -> _Done:
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    message = f"This is a defect of Tilewright: {summary}"
    hint = f"TILEWRIGHT_DEBUG=1 tilewright pipeline {task.path} --kernel {task.kernel} has the traceback."
    told = TreeError(str(task.path), task.kernel, "cli/unexpected", message, task.line, hint, EXIT_INTERNAL)
    return _Done(task, None, told)
