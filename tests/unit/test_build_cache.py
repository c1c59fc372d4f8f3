"""The cache: atomic, checked, relocatable."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from tilewright.build.cache import Cache

KEY = "ab" + "0" * 62


@dataclass(frozen=True)
class Value:
    name: str
    data: bytes
    numbers: tuple[int, ...]


def test_what_is_put_is_got(tmp_path: Path) -> None:
    cache = Cache(tmp_path, "study")
    assert cache.get(KEY) is None
    cache.put(KEY, b"payload")
    assert cache.get(KEY) == b"payload"
    assert Cache(tmp_path, "artifact").get(KEY) is None, "namespaces are apart"


def test_values_keep_their_types(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    value = Value("k", b"\x00\xff", (1, 2))
    cache.put_value(KEY, value)
    assert cache.get_value(KEY, Value) == value
    assert cache.get_value(KEY, int) is None, "another shape is a miss"


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: d + b"x", lambda d: b"", lambda d: d[:40] + b"?" + d[41:]]
)
def test_a_damaged_entry_is_a_miss(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    cache = Cache(tmp_path)
    cache.put(KEY, b"payload of some length")
    path = cache.path(KEY)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get(KEY) is None


def test_it_can_be_moved(tmp_path: Path) -> None:
    Cache(tmp_path / "a").put(KEY, b"payload")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert Cache(tmp_path / "b").get(KEY) == b"payload"


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tilewright.build.cache.os.replace", stop)
    with pytest.raises(KeyboardInterrupt):
        cache.put(KEY, b"payload")
    assert cache.get(KEY) is None
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_an_unwritable_cache_does_not_stop_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    cache = Cache(tmp_path / "file")
    cache.put(KEY, b"payload")
    assert cache.get(KEY) is None


def test_readers_never_see_half_an_entry(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    payloads = [bytes([n]) * 200_000 for n in range(4)]
    seen: set[bytes | None] = set()
    writers = [threading.Thread(target=lambda p=p: [cache.put(KEY, p) for _ in range(10)]) for p in payloads]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        seen.add(cache.get(KEY))
    for writer in writers:
        writer.join()
    assert seen <= {None, *payloads}
    assert cache.get(KEY) in payloads
