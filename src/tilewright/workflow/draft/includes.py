"""Folders for headers that a file includes and that do not lie beside it, where no sidecar names them."""

from __future__ import annotations

import re
from pathlib import Path

from tilewright.launch.host_code import bare
from tilewright.source.device_headers import is_cuda_header, library_of, standard_headers

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
LEVELS_UP = 3
MOST_FOLDERS = 200


def guessed_includes(text: str, file: Path) -> tuple[Path, ...]:
    """The nearest folders that hold those headers: above the file, or one step below such a folder.

    Looked for at most three levels up, and not above the folder that holds ``.git``.
    """
    missing = [name for name in _included(text) if not (file.parent / name).is_file()]
    if not missing:
        return ()
    found: dict[Path, None] = {}
    for name in missing:
        if any((folder / name).is_file() for folder in found):
            continue
        folder = next((f for f in _near(file.parent) if (f / name).is_file()), None)
        if folder is not None:
            found[folder] = None
    return tuple(found)


def _included(text: str) -> list[str]:
    commented = bare(text)
    out = []
    for match in _INCLUDE.finditer(text):
        name = match[1] or match[2]
        if "#" not in commented[match.start() : match.end()]:
            continue
        if not (is_cuda_header(name) or name in standard_headers() or library_of(name)):
            out.append(name)
    return out


def _near(folder: Path) -> list[Path]:
    out: list[Path] = []
    for _ in range(LEVELS_UP + 1):
        try:
            below = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
        except OSError:
            break
        out += [folder, *below[:MOST_FOLDERS]]
        if (folder / ".git").exists() or folder.parent == folder:
            break
        folder = folder.parent
    return out
