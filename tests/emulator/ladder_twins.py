"""Broken twins of the ladder's kernels."""

from __future__ import annotations

import re
from pathlib import Path

from tilewright.ladder.specs import INCLUDE


def twin_of(file: Path, old: str, new: str) -> str:
    """A kernel's text with ``new`` in the place of ``old``: in its file, or in a header, which is then written out."""
    text = file.read_text("utf-8")
    if old not in text:
        for line, name in re.findall(r'(#include "([^"]+)")', text):
            header = (INCLUDE / name).read_text("utf-8")
            if old in header:
                text = text.replace(line, header.replace("#pragma once", ""), 1)
                break
    assert old in text
    return text.replace(old, new)
