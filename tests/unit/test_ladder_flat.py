"""Families that take arrays of any rank: as one line of elements, and as PyTorch operators."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright import ops
from tilewright.errors import TilewrightError
from tilewright.ladder.family import load_family
from tilewright.ladder.specs import operation_spec
from tilewright.ladder.views import DeviceView, bound_operation, flattened, row_major


def view(shape: tuple[int, ...], strides: tuple[int, ...] | None = None, dtype: str = "float32") -> DeviceView:
    return DeviceView(4096, shape, row_major(shape) if strides is None else strides, dtype, 0, None)


def sizes(name: str, **views: DeviceView) -> dict[str, int]:
    family = load_family(name)
    lines = flattened(family, views)
    return dict(bound_operation(family, operation_spec(family, "float32"), lines).sizes)


def test_any_rank_is_one_line() -> None:
    for shape in ((24,), (2, 3, 4), (2, 1, 12), (1, 1, 24, 1)):
        assert sizes("relu", x=view(shape), y=view(shape)) == {"N": 24}
    assert sizes("relu", x=view(()), y=view(())) == {"N": 1}


def test_elements_match_where_arrays_lie_the_same_way() -> None:
    turned = view((4, 6), (1, 4))
    assert sizes("relu", x=turned, y=turned) == {"N": 24}
    assert sizes("add", a=turned, b=turned, y=turned) == {"N": 24}
    with pytest.raises(TilewrightError, match=r"have to lie at one distance from each other.*contiguous copy"):
        sizes("add", a=turned, b=view((4, 6)), y=turned)


@pytest.mark.parametrize(
    ("shape", "strides", "message"),
    [
        ((4, 6), (12, 1), "have to lie at one distance"),
        ((4, 6), (0, 1), "have to lie at one distance"),
        ((24,), (2,), r"has strides \(2,\)"),
    ],
)
def test_gaps_between_elements_are_refused(shape: tuple[int, ...], strides: tuple[int, ...], message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        sizes("relu", x=view(shape, strides), y=view(shape, strides))


def test_as_many_elements_in_another_shape_are_refused() -> None:
    with pytest.raises(TilewrightError, match=r"agree in their first dimensions: 'a' \(2, 3\), 'b' \(3, 2\)"):
        sizes("add", a=view((2, 3)), b=view((3, 2)), y=view((2, 3)))
    with pytest.raises(TilewrightError, match="agree in their first dimensions"):
        sizes("add", a=view((2, 3)), b=view((3,)), y=view((2, 3)))  # PyTorch would repeat the row


def test_the_first_dimension_of_rows_is_several() -> None:
    indices, weight = view((2, 5), dtype="int64"), view((7, 8), (24, 1))
    need = {"N": 10, "V": 7, "C": 8, "ld_w": 24}
    assert sizes("embedding", indices=indices, weight=weight, y=view((2, 5, 8))) == need
    assert sizes("embedding", indices=view((), dtype="int64"), weight=weight, y=view((8,))) == {**need, "N": 1}
    with pytest.raises(TilewrightError, match="agree in their first dimensions"):
        sizes("embedding", indices=indices, weight=weight, y=view((5, 2, 8)))
    with pytest.raises(TilewrightError, match="int32; int64 is needed"):
        sizes("embedding", indices=view((2, 5), dtype="int32"), weight=weight, y=view((2, 5, 8)))


def stand_in(compute: Any) -> Any:
    """In the kernels' place: what the operator hands over, and what it makes of that."""

    def launch(family: str, tensors: dict[str, Any], numbers: dict[str, float]) -> None:
        *inputs, output = tensors.values()
        output.copy_(compute(*inputs, output))

    return launch


def test_operators_of_any_rank_and_of_sizes_that_no_tensor_says() -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    relu = ops.make_operator(load_family("relu"), stand_in(lambda x, _: functional.relu(x)))
    for x in (
        torch.randn(3, 4, 5),
        torch.randn(4, 5).t(),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ):
        assert torch.equal(relu(x), functional.relu(x))
        assert relu(x).stride() == x.stride()
        torch.library.opcheck(relu.operator, (x,))
    family = load_family("embedding")
    embedding = ops.make_operator(family, stand_in(lambda indices, weight, _: functional.embedding(indices, weight)))
    inputs = (torch.tensor([[0, 2, 1], [1, 1, 4]]), torch.randn(5, 8))
    assert torch.equal(embedding(*inputs), functional.embedding(*inputs))
    torch.library.opcheck(embedding.operator, inputs)
    family = load_family("histogram")
    histogram = ops.make_operator(family, stand_in(lambda x, y: torch.bincount(x.flatten(), minlength=len(y))))
    x = torch.randint(0, 9, (40, 3), dtype=torch.int32)
    assert histogram(x, 9).dtype == torch.int64
    assert torch.equal(histogram(x, 9), torch.bincount(x.flatten(), minlength=9))
    torch.library.opcheck(histogram.operator, (x, 9))


def test_rungs_that_families_share() -> None:
    relu, gelu = load_family("relu"), load_family("gelu")
    assert [rung.file for rung in relu.rungs] == [rung.file for rung in gelu.rungs]
    assert relu.rung("03").defines == {"TW_OP": "relu"}
    assert relu.rung("03").at({"N": 1 << 28}, "float16").defines["TW_OP"] == "relu"
    assert relu.sizes == gelu.sizes


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('shares = "unary"', 'shares = "ternary"', "there is no ternary/shared.toml"),
        ("flops", "sizes = {}\nflops", "family.sizes is that of unary/shared.toml"),
        ('flat = ["x", "y"]', 'flat = ["z"]', "family.flat: 'z' is none of x, y"),
    ],
)
def test_wrong_files_that_share(tmp_path: Path, old: str, new: str, message: str) -> None:
    family = load_family("relu")
    text = family.file.read_text("utf-8")
    assert old in text
    (tmp_path / "relu").mkdir()
    (tmp_path / "relu" / "ladder.toml").write_text(text.replace(old, new, 1))
    (tmp_path / "unary").symlink_to(family.file.parent.parent / "unary")
    with pytest.raises(TilewrightError, match=message):
        load_family("relu", tmp_path)


def test_a_broken_shared_file_is_named(tmp_path: Path) -> None:
    family = load_family("relu")
    for name in ("relu", "unary"):
        (tmp_path / name).mkdir()
    (tmp_path / "relu" / "ladder.toml").write_text(family.file.read_text("utf-8"))
    for text, message in (("[family", "Expected ']'"), ("[other]\n", "other is not a key")):
        (tmp_path / "unary" / "shared.toml").write_text(text)
        with pytest.raises(TilewrightError, match=message) as caught:
            load_family("relu", tmp_path)
        assert str(caught.value.facts["file"]).endswith("unary/shared.toml")
    assert replace(family, flat=()) != family
