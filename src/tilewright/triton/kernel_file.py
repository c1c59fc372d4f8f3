"""A Python file → its ``@triton.jit`` function.

The file is executed, statement by statement. One that fails (``import torch`` where there is none, a question to the
GPU's driver) is left out: a kernel seldom needs it, and where it does, the message names what was left out.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError

_MAX_WRAPPERS = 8


@dataclass(frozen=True)
class LeftOut:
    """A statement that failed."""

    line: int
    why: str

    def __str__(self) -> str:
        return f"line {self.line} was left out ({self.why})"


@dataclass(frozen=True)
class JitKernel:
    """A kernel as Triton knows it.

    Attributes:
        function: Triton's ``JITFunction``, without autotuner and heuristics.
        line: of its ``def``.
        left_out: the statements of the file that failed.
    """

    path: Path
    name: str
    function: Any
    line: int
    left_out: tuple[LeftOut, ...]

    def error(self, code: str, message: str, hint: str = "", line: int | None = None) -> TilewrightError:
        facts = {"file": str(self.path), "line": self.line if line is None else line}
        return TilewrightError(code, message, facts, hint)


def load_kernel(path: Path, name: str) -> JitKernel:
    """Execute the file and take the kernel ``name``. It is not put into ``sys.modules``; what it prints goes to stderr.

    Raises:
        TilewrightError: ``triton/no_file``, ``triton/bad_python``, ``triton/no_kernel``, ``triton/not_a_kernel``.
    """
    facts: dict[str, object] = {"file": str(path)}
    try:
        text = path.read_bytes()
    except OSError as error:
        raise TilewrightError("triton/no_file", f"The file cannot be read: {error.strerror}.", facts) from None
    try:
        body = ast.parse(text, str(path)).body
    except (SyntaxError, ValueError) as error:
        facts |= {"line": error.lineno} if isinstance(error, SyntaxError) else {}
        raise TilewrightError("triton/bad_python", f"The file is not Python: {error}.", facts) from None
    linecache.checkcache(str(path))  # Triton reads the kernel's source from there
    namespace: dict[str, Any] = {"__name__": f"tilewright_triton_{path.stem}", "__file__": str(path)}
    left_out: list[LeftOut] = []
    with _as_script(path):
        for statement in body:
            left_out += _execute(statement, path, name, namespace)
    definitions = [s for s in body if isinstance(s, ast.FunctionDef) and s.name == name]
    if not definitions or name not in namespace:
        raise _no_kernel(path, name, namespace, left_out)
    function = _unwrapped(namespace[name])
    if type(function).__name__ == "InterpretedFunction":
        message = f"{name} is interpreted: TRITON_INTERPRET is set."
        raise TilewrightError("triton/not_a_kernel", message, facts, "Unset TRITON_INTERPRET.")
    if not _is_jit(function):
        facts["line"] = definitions[-1].lineno
        raise TilewrightError("triton/not_a_kernel", f"{name} is not a @triton.jit function.", facts)
    return JitKernel(path, name, function, definitions[-1].lineno, tuple(left_out))


@contextlib.contextmanager
def _as_script(path: Path) -> Iterator[None]:
    """As ``python FILE`` would run it: its folder is searched for modules."""
    folder = str(path.parent.resolve())
    sys.path.insert(0, folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _execute(statement: ast.stmt, path: Path, name: str, namespace: dict[str, Any]) -> list[LeftOut]:
    why = _failure(statement, path, namespace)
    if why is None:
        return []
    if isinstance(statement, ast.FunctionDef):
        # An autotuner may ask the GPU for its configurations; the sidecar gives them here.
        bare = [decorator for decorator in statement.decorator_list if _names_jit(decorator)]
        if bare and len(bare) < len(statement.decorator_list):
            only = ast.parse("def f(): pass").body[0]
            assert isinstance(only, ast.FunctionDef)
            for field, value in ast.iter_fields(statement):
                setattr(only, field, value)
            only.decorator_list = bare
            ast.copy_location(only, statement)
            if _failure(only, path, namespace) is None:
                return []
    return [LeftOut(statement.lineno, why)]


def _failure(statement: ast.stmt, path: Path, namespace: dict[str, Any]) -> str | None:
    """Run one statement: why it failed, or None."""
    try:
        exec(compile(ast.Module([statement], []), str(path), "exec"), namespace)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return None


def _names_jit(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) == "jit"


def _unwrapped(function: Any) -> Any:
    """Without ``triton.autotune`` and ``triton.heuristics``: what they would choose is in the sidecar."""
    for _ in range(_MAX_WRAPPERS):
        if _is_jit(function) or not hasattr(function, "fn"):
            break
        function = function.fn
    return function


def _is_jit(value: Any) -> bool:
    return type(value).__name__ == "JITFunction" and hasattr(value, "params") and hasattr(value, "arg_names")


def _no_kernel(path: Path, name: str, namespace: dict[str, Any], left_out: list[LeftOut]) -> TilewrightError:
    found = sorted(key for key, value in namespace.items() if _is_jit(_unwrapped(value)))
    message = f"The file defines no kernel {name}" + (f"; it has {', '.join(found)}." if found else ".")
    return TilewrightError("triton/no_kernel", message, {"file": str(path)}, and_left_out(left_out))


def and_left_out(left_out: list[LeftOut] | tuple[LeftOut, ...]) -> str:
    """A hint: which statements of the file did not run."""
    shown = "; ".join(str(one) for one in left_out[:3])
    more = f"; {len(left_out) - 3} more" if len(left_out) > 3 else ""
    return f"While the file ran, {shown}{more}." if shown else ""
