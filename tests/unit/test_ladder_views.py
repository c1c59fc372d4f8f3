"""Arrays of any rank as one line of elements, and the memory that a rung keeps from call to call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tilewright import ops
from tilewright.errors import TilewrightError
from tilewright.ladder import workspaces
from tilewright.ladder.family import Family, load_family
from tilewright.ladder.specs import operation_spec
from tilewright.ladder.views import DeviceView, bound_operation, flattened
from tilewright.ladder.workspaces import Workspaces

REDUCE = load_family("reduce")
DOT = load_family("dot")


def view(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str = "float32") -> DeviceView:
    return DeviceView(4096, shape, strides, dtype, 0, None)


def line(family: Family, given: DeviceView) -> tuple[int, int]:
    whole = flattened(family, {"x": given, "y": view((), ())})
    sizes = bound_operation(family, operation_spec(family, "float32"), whole).sizes
    return sizes["N"], sizes["stride_x"]


@pytest.mark.parametrize(
    ("shape", "strides", "count", "stride"),
    [
        ((), (), 1, 1),
        ((7,), (1,), 7, 1),
        ((2, 3, 5), (15, 5, 1), 30, 1),
        ((2, 1, 5), (5, 99, 1), 10, 1),  # how far the next one would be, where there is one
        ((3, 5), (1, 3), 15, 1),  # a transposed matrix: the order of a sum is nobody's business
        ((4, 2, 3), (3, 12, 1), 24, 1),
        ((6,), (4,), 6, 4),
        ((2, 3), (12, 4), 6, 4),
        ((6,), (0,), 6, 0),  # one element, expanded
        ((0, 5), (5, 1), 0, 1),
        ((2**31 + 1,), (1,), 2**31 + 1, 1),
    ],
)
def test_any_rank_is_one_line(shape: tuple[int, ...], strides: tuple[int, ...], count: int, stride: int) -> None:
    assert line(REDUCE, view(shape, strides)) == (count, stride)


@pytest.mark.parametrize(("shape", "strides"), [((4, 50), (100, 1)), ((3, 5), (0, 1)), ((2, 3), (7, 2))])
def test_elements_in_no_line_are_refused(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    with pytest.raises(TilewrightError, match="one distance from each other") as caught:
        line(REDUCE, view(shape, strides))
    assert caught.value.code == "ladder/strides"
    assert caught.value.hint == "Give a contiguous copy."


def test_where_two_arrays_lie_differently_their_order_counts() -> None:
    add = load_family("add")
    turned, straight = view((3, 5), (1, 3)), view((3, 5), (5, 1))
    assert flattened(add, dict.fromkeys(("a", "b", "y"), turned))["a"].strides == (1,)
    with pytest.raises(TilewrightError, match=r"'a' of add .* one distance from each other"):
        flattened(add, {"a": turned, "b": straight, "y": straight})


def test_a_dot_product_is_of_vectors() -> None:
    matrix = {"a": view((3, 5), (5, 1)), "b": view((3, 5), (5, 1)), "y": view((), ())}
    with pytest.raises(TilewrightError, match="needs 1 dimensions"):
        bound_operation(DOT, operation_spec(DOT, "float32"), flattened(DOT, matrix))
    vectors = {"a": view((5,), (2,)), "b": view((5,), (1,)), "y": view((), ())}
    assert bound_operation(DOT, operation_spec(DOT, "float32"), vectors).sizes == {"N": 5, "stride_a": 2, "stride_b": 1}
    with pytest.raises(TilewrightError, match="needs N = 5"):
        bound_operation(DOT, operation_spec(DOT, "float32"), {**vectors, "b": view((6,), (1,))})


def test_the_operator_takes_any_rank() -> None:
    torch = pytest.importorskip("torch")

    def launch(family: str, tensors: dict[str, Any], numbers: dict[str, float]) -> None:
        tensors["y"].copy_(tensors["x"].sum())

    operator = ops.make_operator(replace(REDUCE, name="reduce_of_any_rank"), launch)
    for x in (torch.randn(2, 3, 5), torch.tensor(4.0), torch.randn(0, 3)):
        made = operator(x)
        assert (made.shape, made.dtype) == ((), x.dtype)
        assert torch.equal(made, x.sum())
    compiled = torch.compile(lambda x: operator(x * 2) + 1, backend="aot_eager", fullgraph=True, dynamic=True)
    assert compiled(torch.ones(3, 4)) == 25


def test_rows_of_any_rank() -> None:
    family = load_family("reduce_rows")

    def sizes(given: DeviceView, result: DeviceView) -> dict[str, int]:
        whole = flattened(family, {"x": given, "y": result})
        return dict(bound_operation(family, operation_spec(family, "float32"), whole).sizes)

    assert sizes(view((2, 3, 5), (15, 5, 1)), view((2, 3), (3, 1))) == {"R": 6, "C": 5, "ld_x": 5}
    assert sizes(view((2, 3, 5), (48, 16, 1)), view((2, 3), (3, 1))) == {"R": 6, "C": 5, "ld_x": 16}
    assert sizes(view((5,), (1,)), view((), ())) == {"R": 1, "C": 5, "ld_x": 5}
    for strides, why in (((60, 5, 1), "one distance"), ((15, 1, 3), "one distance|strides")):
        with pytest.raises(TilewrightError, match=why):
            sizes(view((2, 3, 5), strides), view((2, 3), (3, 1)))


def test_the_operator_for_rows_takes_any_rank() -> None:
    torch = pytest.importorskip("torch")

    def launch(family: str, tensors: dict[str, Any], numbers: dict[str, float]) -> None:
        tensors["y"].copy_(tensors["x"].sum(-1))

    operator = ops.make_operator(replace(load_family("reduce_rows"), name="rows_of_any_rank"), launch)
    for x in (torch.randn(2, 3, 5), torch.randn(4), torch.randn(6, 4)[:, :2], torch.randn(0, 3)):
        assert torch.equal(operator(x), x.sum(-1))
    compiled = torch.compile(lambda x: operator(x * 2) + 1, backend="aot_eager", fullgraph=True, dynamic=True)
    assert torch.equal(compiled(torch.ones(2, 3, 4)), torch.full((2, 3), 9.0))
    with pytest.raises(TilewrightError, match="has 0 dimensions"):
        operator(torch.tensor(1.0))


class Card:
    """In place of the driver: addresses count up, and streams are captured as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[int] = []
        self.captured: set[int] = set()
        monkeypatch.setattr(workspaces, "_zeros", self.zeros)
        monkeypatch.setattr(workspaces, "_is_captured", self.captured.__contains__)

    def zeros(self, count_bytes: int) -> int:
        self.made.append(count_bytes)
        return len(self.made) << 32


def test_each_stream_has_its_own_and_each_captured_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch)
    kept = Workspaces({"partial": 300, "ticket": 4})
    first, second = kept.at(7), kept.at(8)
    assert kept.at(7) == first != second
    assert first["ticket"] - first["partial"] == 512
    card.captured.add(9)
    captured = [kept.at(9)["ticket"] for _ in range(40)]
    everything = {*captured, first["ticket"], second["ticket"]}
    assert len(everything) == 42, "what a graph holds is nobody else's"
    assert card.made == [16 * 768] * 3
    assert min(abs(a - b) for a in everything for b in everything if a != b) >= 768
    card.captured.clear()
    assert kept.at(9)["ticket"] not in everything


def test_a_rung_that_keeps_something_has_no_launch_before_it() -> None:
    from tilewright.ladder.compiling import compile_rung
    from tilewright.ladder.specs import bound_launches, cleared_before, rung_spec
    from tilewright.settings import Settings

    rung = REDUCE.rung("07_last_block")
    compiled = compile_rung(rung_spec(REDUCE, rung, "float32"), Settings.from_environment())
    launches = bound_launches(compiled.spec, REDUCE.sizes["small"], compiled.constants)
    assert cleared_before(launches, ["x", *rung.kept]) == [()]
    assert [a.name for a in cleared_before(launches, ["x"])[0]] == ["ticket"]
