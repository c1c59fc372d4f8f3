"""The environment, read once, into a frozen value that is passed down."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """What the environment decides.

    Attributes:
        cache_dir: the content-addressed cache; it may be copied to another machine.
        nvdisasm: path of a disassembler to use instead of the package's, or None.
        color: False when ``NO_COLOR`` is set to anything but the empty text, or the terminal is dumb.
        debug: whether an unexpected exception shows its traceback (``TILEWRIGHT_DEBUG``).
        dumb_terminal: ``TERM`` is ``dumb``: no escape code may be written.
    """

    cache_dir: Path
    nvdisasm: Path | None = None
    color: bool = True
    debug: bool = False
    dumb_terminal: bool = False

    @staticmethod
    def from_environment(environ: Mapping[str, str] | None = None) -> Settings:
        """Read ``TILEWRIGHT_{CACHE,NVDISASM,DEBUG}``, ``XDG_CACHE_HOME``, ``NO_COLOR`` and ``TERM``."""
        env = os.environ if environ is None else environ
        cache = env.get("TILEWRIGHT_CACHE")
        base = Path(env["XDG_CACHE_HOME"]) if env.get("XDG_CACHE_HOME") else Path.home() / ".cache"
        nvdisasm = env.get("TILEWRIGHT_NVDISASM")
        is_dumb = env.get("TERM") == "dumb"
        return Settings(
            cache_dir=Path(cache) if cache else base / "tilewright",
            nvdisasm=Path(nvdisasm) if nvdisasm else None,
            color=not env.get("NO_COLOR") and not is_dumb,
            debug=bool(env.get("TILEWRIGHT_DEBUG")),
            dumb_terminal=is_dumb,
        )
