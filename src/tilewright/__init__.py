"""Tilewright: software pipelining for tiled CUDA kernels, decided, rewritten, verified, timed and proven in SASS.

``tilewright.pipeline``, ``verify``, ``prove`` and ``inspect`` are the verbs as library calls, imported on first use, so
that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["inspect", "pipeline", "prove", "verify"]

if TYPE_CHECKING:
    from tilewright.workflow import inspect, pipeline, prove, verify


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("tilewright.workflow"), name)
    raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
