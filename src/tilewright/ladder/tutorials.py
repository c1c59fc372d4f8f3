"""Functions out of Triton's tutorials, which their user has fetched: nothing else of such a file is run.

A tutorial is a script that tests and times itself as it is imported. What one function needs of it (the kernels,
helpers, imports and constants that it names, and what those name) is written to a file of the cache, because Triton
reads a kernel's source from its file, and imported from there.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import symtable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError

_KEPT = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.Try)


@dataclass(frozen=True)
class _Piece:
    """A statement of the file: its text, the names that it binds, and those that it uses."""

    text: str
    binds: frozenset[str]
    uses: frozenset[str]


def load_tutorial(folder: Path, file: str, function: str, cache: Path) -> Any:
    """A function of a tutorial, ready to be called.

    Args:
        folder: a checkout's ``python/tutorials``. cache: where the piece of it is written.

    Raises:
        TilewrightError: ``ladder/no_tutorial`` where the file, or the function in it, is not there.
    """
    path = folder / file
    try:
        source = path.read_text("utf-8")
    except OSError as error:
        hint = "Give the folder python/tutorials of a checkout of Triton."
        raise TilewrightError("ladder/no_tutorial", f"{path} cannot be read: {error.strerror}.", {}, hint) from None
    text = extracted(source, function, str(path))
    name = f"tutorial_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    made = cache / "tutorials" / f"{name}.py"
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(name, made)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)


def extracted(source: str, function: str, path: str = "") -> str:
    """What a name of a module's top level needs of it, in the order of the file.

    Raises:
        TilewrightError: ``ladder/no_tutorial`` where nothing binds the name, or the file is no Python.
    """
    try:
        pieces = _pieces(source)
    except SyntaxError as error:
        message = f"{path}:{error.lineno} is no Python: {error.msg}."
        raise TilewrightError("ladder/no_tutorial", message) from None
    if not any(function in piece.binds for piece in pieces):
        message = f"{path} has no '{function}'."
        raise TilewrightError("ladder/no_tutorial", message, {}, "Take a checkout of the release that is installed.")
    wanted = {function}
    needed: set[int] = set()
    while wanted:
        name = wanted.pop()
        found = {i for i, piece in enumerate(pieces) if name in piece.binds} - needed
        needed |= found
        wanted |= {use for i in found for use in pieces[i].uses}
    return "\n\n\n".join(pieces[i].text for i in sorted(needed)) + "\n"


def _pieces(source: str) -> list[_Piece]:
    lines = source.splitlines()
    out = []
    for node in ast.parse(source).body:
        if not isinstance(node, _KEPT):
            continue
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        text = "\n".join(lines[first - 1 : node.end_lineno])
        table = symtable.symtable(text, "tutorial", "exec")
        symbols = table.get_symbols()
        binds = {s.get_name() for s in symbols if s.is_assigned() or s.is_imported() or s.is_namespace()}
        uses = {s.get_name() for s in symbols if s.is_referenced()} | _globals(table)
        out.append(_Piece(text, frozenset(binds), frozenset(uses)))
    return out


def _globals(table: symtable.SymbolTable) -> set[str]:
    """Names that functions and classes inside take from the module."""
    found: set[str] = set()
    for child in table.get_children():
        found |= {s.get_name() for s in child.get_symbols() if s.is_global()} | _globals(child)
    return found
