"""`tilewright layout`: every command of docs/layout.md prints what stands there; JSON, pictures, exit codes."""

from __future__ import annotations

import json
import re
import shlex
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tilewright.cli.app import main
from tilewright.cli.layout import _OPERATIONS
from tilewright.cli.layout_hardware import OPERATIONS
from tilewright.layout.atoms import atom
from tilewright.layout.drawing import color_of, grid_of_operand, svg_of, text_of
from tilewright.layout.notation import parse_plain

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "layout.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```console\n\$ tilewright (.*?)\n(.*?)```", DOCUMENT, re.DOTALL)
SVG = "{http://www.w3.org/2000/svg}"


def test_the_document_has_its_examples() -> None:
    assert len(EXAMPLES) >= 10
    assert len(EXAMPLES) == DOCUMENT.count("```console")


@pytest.mark.parametrize(("command", "printed"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_the_document_says_what_is_printed(command: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(shlex.split(command))
    out, err = capsys.readouterr()
    assert out + err == printed
    failed = 4 if "none is free" in out else 1 if "x the ideal" in out else 0
    assert code == (2 if err else failed)


@pytest.mark.parametrize(("name", "example"), [(name, example) for name, _, example in (*_OPERATIONS, *OPERATIONS)])
def test_every_operation_runs_its_example(
    name: str, example: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["layout", name, *shlex.split(example)]) == (1 if name == "banks" else 0)
    text = capsys.readouterr().out
    assert main(["layout", name, "--help"]) == 0
    assert f"Example: tilewright layout {name}" in capsys.readouterr().out
    arguments = [part for part in shlex.split(example) if part != "--json"]
    assert main(["layout", name, *arguments, "--json"]) == (1 if name == "banks" else 0)
    record = json.loads(capsys.readouterr().out)
    if "layout" in record and name != "at":
        assert text.startswith(record["layout"] + "\n")


def test_json_has_the_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    main(["layout", "(2,3):(3,1)", "--json"])
    record = json.loads(capsys.readouterr().out)
    assert record["offsets"] == [0, 3, 1, 4, 2, 5]
    assert (record["shape"], record["stride"], record["size"], record["cosize"]) == ([2, 3], [3, 1], 6, 6)


def test_json_has_the_place_of_each_value(capsys: pytest.CaptureFixture[str]) -> None:
    main(["layout", "atom", "mma.m16n8k16.f16", "--json"])
    record = json.loads(capsys.readouterr().out)
    a = record["operands"][0]
    assert [operand["name"] for operand in record["operands"]] == ["a", "b", "c"]
    assert a["places"][5] == [[1, 2], [1, 3], [9, 2], [9, 3], [1, 10], [1, 11], [9, 10], [9, 11]]  # lane 5: row 1


def test_a_picture_has_a_cell_for_each_element(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "a.svg"
    assert main(["layout", "atom", "mma.m16n8k16.f16", "--operand", "a", "--svg", str(target)]) == 0
    root = ElementTree.fromstring(target.read_text(encoding="utf-8"))
    boxes = [box for box in root.iter(f"{SVG}rect") if box.get("stroke") == "black"]
    assert len(boxes) == 256
    labels = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert sum(label == "T0" for label in labels) == 8  # a thread's eight values
    assert sum(label.startswith("V") for label in labels) == 256
    assert len({box.get("fill") for box in boxes}) == 32
    assert list(tmp_path.iterdir()) == [target]
    capsys.readouterr()


def test_cells_stand_where_their_element_does() -> None:
    grid = grid_of_operand(atom("mma.m16n8k16.f16").operands["c"], "C")
    assert grid.cells[9][3].lines == ("T5", "V3")  # lane 4g + t: row g + 8, column 2t + 1
    assert grid.cells[9][3].owner == 5
    picture = svg_of([grid, grid])
    assert picture.count("<text") == 2 * (1 + 8 + 16 + 2 * 128)
    assert color_of(5) in picture


def test_a_table_is_aligned_and_a_huge_one_left_out() -> None:
    lines = text_of(grid_of_operand(atom("mma.m16n8k16.f16").operands["b"], "B")).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert "too large" in text_of(grid_of_operand(atom("wgmma.m64n256k16.f16").operands["c"], "C"))


def test_a_place_that_several_threads_hold_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    main(["layout", "tiled-mma", "mma.m16n8k8.f16", "--atoms", "(1,2,1)", "--operand", "a"])
    assert "T0/V0/+1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["4:", "--svg", "x.svg"], "layout/notation"),
        (["(4096,4096)", "--svg", "x.svg"], "layout/too_large"),
        (["atom", "mma.m16n8k8.tf32", "--operand", "d"], "layout/unknown_operand"),
        (["atom", "wmma.m16n16k16.f16"], "layout/opaque_atom"),
        (["smem", "128B", "s8", "--major", "mn"], "layout/unknown_atom"),
        (["tiled-copy", "--threads", "(4,4):(8,1)", "--values", "(1,2)"], "layout/tiled"),
        (["tiled-mma", "mma.m16n8k8.f16", "--atoms", "(2,2,1)", "--tile", "(16,16,8)"], "layout/tiled"),
        (["tiled-mma", "mma.m16n8k8.f16", "--tile", "(16,16)"], "layout/tiled"),
        (["tiled-mma", "ldmatrix.x4"], "layout/tiled"),
        (["banks", "(8,8)", "--bytes", "2"], "cli/usage"),
        (["banks", "(8,8)", "--bytes", "3", "--pattern", "ldmatrix"], "cli/usage"),
        (["banks", "8", "--bytes", "2", "--pattern", "ldmatrix"], "cli/usage"),
        (["banks", "(64,64):(1,64)", "--bytes", "2", "--pattern", "ldmatrix"], "layout/not_contiguous"),
        (["banks", "Sw<3,2,3> o 0 o (64,64):(64,1)", "--bytes", "2", "--pattern", "ldmatrix"], "layout/not_contiguous"),
        (["banks", "(64,64):(65,1)", "--bytes", "2", "--pattern", "ldmatrix"], "layout/misaligned"),
        (["banks", "(99999,9999)", "--bytes", "2", "--threads", "(32,1)"], "layout/outside"),
        (["solve", "--rows", "9999", "--cols", "9999", "--bytes", "2", "--read", "ldmatrix"], "layout/tile"),
        (["tiled-copy", "--threads", "(4,4)"], "cli/usage"),
        (["tiled-copy", "--threads", "(2,2)", "--atom", "mma.m16n8k8.f16"], "layout/tiled"),
        (["tiled-copy", "--threads", "(2,2)", "--atom", "ldmatrix.x1", "--tile", "(16,8)"], "layout/tiled"),
        (["tiled-copy", "--threads", "(2,2)", "--atom", "ldmatrix.x1", "--tile", "16"], "layout/tiled"),
        (["tiled-copy", "--threads", "(999999,999999)", "--values", "2"], "layout/tiled"),
        (["9" * 5000], "layout/notation"),
        (["solve", "--rows", "8", "--cols", "8", "--bytes", "2"], "layout/no_pattern"),
        (["solve", "--rows", "0", "--cols", "8", "--bytes", "2", "--read", "rows16"], "layout/tile"),
        (["solve", "--rows", "8", "--cols", "8", "--bytes", "3", "--read", "rows4"], "layout/tile"),
        (["at", "(4,8)", "(1,2,3)"], "layout/coordinate"),
        (["divide", "(8,16)", "<4,8>", "--form", "round"], "cli/usage"),
        (["recast", "(8,16)", "16", "24"], "layout/recast"),
    ],
)
def test_bad_input_is_one_message(
    arguments: list[str], code: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["layout", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"[{code}]" in err
    assert list(tmp_path.iterdir()) == []


def test_a_large_layout_is_shown_without_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layout", "(4096,4096)"]) == 0
    assert "size       16777216" in capsys.readouterr().out
    assert parse_plain("(4096,4096)").cosize == 1 << 24
    assert main(["layout", "Sw<3,4,3> o 0 o (4096,4096)"]) == 0
    assert "cosize not computed" in capsys.readouterr().out


def test_a_folder_that_is_not_there_is_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["layout", "(2,2)", "--svg", str(tmp_path / "none" / "a.svg")]) == 2
    assert "cli/os_error" in capsys.readouterr().err
    assert main(["layout", "(2,2)", "--svg", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []
    capsys.readouterr()


def test_banks_of_a_write_do_not_merge(capsys: pytest.CaptureFixture[str]) -> None:
    passes = {}
    for more in ((), ("--write",)):
        command = ["layout", "banks", "(2,16):(1,2)", "--bytes", "4", "--threads", "((2,16),2):((0,2),1)"]
        assert main([*command, "--width", "8", "--json", *more]) == 0
        passes[more] = json.loads(capsys.readouterr().out)["passes"]
    assert passes == {(): 1, ("--write",): 2}


def test_the_recorded_agreement_is_the_documents() -> None:
    record = json.loads((ROOT / "benchmarks" / "results" / "layout-agreement.json").read_text(encoding="utf-8"))
    table = DOCUMENT.split("<!-- agreement -->")[1].split("<!-- end -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]
    keys = ("same", "theirs_wrong", "theirs_stops", "ours_longer", "both_refuse")
    want = [[f"`{name}`", *(f"{row.get(key, 0):,}" for key in keys)] for name, row in record["operations"].items()]
    assert rows == want
    assert all(row["layouts"] == 10_000 and row["wrong"] == [] for row in record["operations"].values())


@pytest.mark.parametrize(
    ("coordinate", "offset"),
    [
        ("(3,7)", 31),
        ("31", 31),
        ("(0,0)", 0),
        ("(4,0)", None),
        ("(9,9)", None),
        ("32", None),
        ("-1", None),
        ("(0,-1)", None),
    ],
)
def test_at_takes_places_of_the_layout_only(
    coordinate: str, offset: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["layout", "at", "(4,8):(8,1)", coordinate])
    out, err = capsys.readouterr()
    assert code == (2 if offset is None else 0)
    assert out == ("" if offset is None else f"{offset}\n")
    assert ("layout/" in err) == (offset is None)


def test_a_picture_that_cannot_be_written_is_named_as_it_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "none" / "x.svg"
    assert main(["layout", "(4,8)", "--svg", str(place)]) == 2
    assert f"{place}:" in capsys.readouterr().err
