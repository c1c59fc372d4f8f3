"""Files are written whole, under names that say whether they were verified, and nothing else is touched."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import receipt_samples as samples

from tilewright.errors import TilewrightError
from tilewright.receipt.record import from_json
from tilewright.receipt.write import source_name, sources_of, write_out


def test_unverified_sources_are_named_so(tmp_path: Path) -> None:
    write_out(samples.laptop(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "receipt.json",
        "igemm_tiled.ldg.unverified.cu",
        "igemm_tiled.ldg.unverified.diff",
        *(f"igemm_tiled.cp_async{s}.unverified.cu" for s in (2, 3, 4)),
        *(f"igemm_tiled.cp_async{s}.unverified.diff" for s in (2, 3, 4)),
    }


def test_accepted_sources_have_plain_names() -> None:
    names = set(sources_of(samples.with_gpu()))
    assert "igemm_tiled.cp_async2.cu" in names
    assert not any("unverified" in name for name in names)


def test_the_stored_receipt_names_the_files_that_were_written(tmp_path: Path) -> None:
    returned = write_out(samples.with_gpu(), tmp_path / "deep" / "out")
    stored = from_json((tmp_path / "deep" / "out" / "receipt.json").read_bytes())
    assert stored == returned
    for variant in stored.variants:
        if variant.status == "refused":
            assert variant.source_path is None
        else:
            assert variant.source_path is not None
            assert Path(variant.source_path).read_text() == variant.source
            assert variant.diff_path is not None
            assert Path(variant.diff_path).read_text() == variant.diff


def test_line_ends_are_kept(tmp_path: Path) -> None:
    base = samples.with_gpu()
    windows = replace(base.variants[0], source="// a\r\n// b\n")
    write_out(replace(base, variants=(windows,)), tmp_path)
    assert (tmp_path / source_name("igemm_tiled.cu", windows)).read_bytes() == b"// a\r\n// b\n"


def test_what_is_there_already_stays(tmp_path: Path) -> None:
    (tmp_path / "igemm_tiled.cp_async2.cu").write_text("verified earlier")
    (tmp_path / "notes.txt").write_text("mine")
    write_out(samples.laptop(), tmp_path)
    assert (tmp_path / "igemm_tiled.cp_async2.cu").read_text() == "verified earlier"
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_other_name_of_a_variant_goes_where_an_earlier_receipt_lists_it(tmp_path: Path) -> None:
    (tmp_path / "notes.cu").write_text("mine")
    write_out(samples.laptop(), tmp_path)
    edited = tmp_path / "igemm_tiled.cp_async3.unverified.cu"
    edited.write_text("mine now")
    write_out(samples.with_gpu(), tmp_path)
    left = {path.name for path in tmp_path.iterdir() if "unverified" in path.name}
    assert left == {edited.name}
    assert (tmp_path / "igemm_tiled.cp_async2.cu").exists()
    write_out(samples.laptop(), tmp_path)
    assert not (tmp_path / "igemm_tiled.cp_async2.cu").exists()
    assert not (tmp_path / "igemm_tiled.cp_async2.diff").exists()
    assert (tmp_path / "notes.cu").read_text() == "mine"


def test_a_receipt_that_is_not_ours_removes_nothing(tmp_path: Path) -> None:
    (tmp_path / "receipt.json").write_text('{"total": 3}')
    (tmp_path / "igemm_tiled.cp_async2.cu").write_text("// cp_async 2\n")
    write_out(samples.laptop(), tmp_path)
    assert (tmp_path / "igemm_tiled.cp_async2.cu").exists()


def test_a_full_disk_leaves_the_earlier_run_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_out(samples.laptop(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write, calls = Path.write_text, []

    def full(self: Path, *arguments: object, **options: object) -> int:
        calls.append(self)
        if len(calls) == 4:
            raise OSError(28, "No space left on device", str(self))
        return write(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(TilewrightError, match="No space left on device") as caught:
        write_out(samples.with_gpu(), tmp_path)
    assert ".part" not in str(caught.value)
    assert str(caught.value.facts["file"]).startswith(str(tmp_path / "igemm_tiled."))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "receipt.json").mkdir()
    with pytest.raises(TilewrightError) as caught:
        write_out(samples.laptop(), tmp_path)
    assert caught.value.facts["file"] == str(tmp_path / "receipt.json")
    assert not list(tmp_path.glob(".*.part"))


def test_an_interrupted_write_leaves_the_old_file_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_out(samples.laptop(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def interrupted(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_out(replace(samples.laptop(), arch="sm_90a"), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(TilewrightError) as caught:
        write_out(samples.laptop(), tmp_path / "out")
    assert caught.value.code == "receipt/cannot_write"
    assert caught.value.exit_code == 2
    assert str(tmp_path / "out") in str(caught.value)
    assert (tmp_path / "out").read_text() == "a file"


def test_given_sources_win(tmp_path: Path) -> None:
    write_out(samples.refused(), tmp_path, {"host_shim.cu": "// host\n"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["host_shim.cu", "receipt.json"]
    assert json.loads((tmp_path / "receipt.json").read_text())["refusal"]["code"] == "already_pipelined"
