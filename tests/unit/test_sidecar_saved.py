"""A drafted sidecar is written whole, and never over one that is there."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.workflow import drafting


@pytest.fixture(params=["links", "no links"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A name on a file system with hard links, or without."""
    if request.param == "no links":

        def refuse(*_: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(drafting.os, "link", refuse)
    return tmp_path / "k.toml"


def test_one_that_is_there_stays(place: Path) -> None:
    drafting.save(place, "one")
    assert place.read_text() == "one"
    with pytest.raises(TilewrightError) as caught:
        drafting.save(place, "two")
    assert caught.value.code == "init/exists"
    assert place.read_text() == "one"
    drafting.save(place, "three", force=True)
    assert place.read_text() == "three"
    assert [p.name for p in place.parent.iterdir()] == ["k.toml"]
