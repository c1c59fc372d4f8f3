"""The content-addressed cache: files named by a hash, safe to copy to another machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")

MAGIC = b"TWC1"
DIGEST_BYTES = 32


@dataclass(frozen=True)
class Cache:
    """Entries of one namespace under ``root``.

    A value is written to a temporary file beside its place and then moved there, so that an interrupted run, or
    two runs at once, leave nothing half-written. Each file carries the SHA-256 of its payload: a damaged entry is
    a miss.

    Attributes:
        root: the cache's folder (``Settings.cache_dir``); made on the first write.
        namespace: one folder below it: ``artifact``, ``study``.
    """

    root: Path
    namespace: str = "artifact"

    def path(self, key: str) -> Path:
        """Where the entry of a key lies."""
        return self.root / self.namespace / key[:2] / key[2:]

    def get(self, key: str) -> bytes | None:
        """The payload, or None where there is none, or a damaged one."""
        try:
            data = self.path(key).read_bytes()
        except OSError:
            return None
        head = len(MAGIC) + DIGEST_BYTES
        payload = data[head:]
        if data[:head] != MAGIC + hashlib.sha256(payload).digest():
            return None
        return payload

    def put(self, key: str, payload: bytes) -> None:
        """Store a payload. A cache that cannot be written (full, read-only) costs time, not the run."""
        path = self.path(key)
        temporary: str | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
            with os.fdopen(handle, "wb") as file:
                file.write(MAGIC + hashlib.sha256(payload).digest() + payload)
            os.replace(temporary, path)
            temporary = None
        except OSError:
            return
        finally:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)

    def get_value(self, key: str, type_: type[T]) -> T | None:
        """A dataclass or plain value stored by :meth:`put_value`; None where it is missing or of another shape."""
        payload = self.get(key)
        if payload is None:
            return None
        try:
            return msgspec.msgpack.decode(payload, type=type_)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return None

    def put_value(self, key: str, value: object) -> None:
        """Store a dataclass or plain value (msgpack, so that bytes stay bytes)."""
        self.put(key, msgspec.msgpack.encode(value))
