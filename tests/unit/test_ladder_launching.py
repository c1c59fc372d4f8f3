"""What a call from Python refuses before anything is launched, and what it leaves as it was."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tilewright import ops
from tilewright.errors import TilewrightError
from tilewright.gpu.driver import DeviceError
from tilewright.ladder import launching
from tilewright.ladder.family import load_families, load_family
from tilewright.ladder.launching import Ladder, check_scalars, on_card
from tilewright.ladder.plans import Plan, Step
from tilewright.ladder.specs import operation_spec
from tilewright.ladder.views import DeviceView, bound_operation, device_view_of, row_major


def test_numbers_that_a_family_has_not_are_refused() -> None:
    rmsnorm = load_family("rmsnorm")
    check_scalars(rmsnorm, {"epsilon": 1e-3})
    for name in ("eps", "R"):  # a size would let the kernel leave its arrays
        with pytest.raises(TilewrightError, match=f"rmsnorm has no number '{name}'.*It has: epsilon"):
            check_scalars(rmsnorm, {name: 1})
    with pytest.raises(TilewrightError, match="relu has no number 'epsilon'"):
        check_scalars(load_family("relu"), {"epsilon": 1})


@pytest.mark.parametrize("family", load_families(), ids=lambda family: family.name)
def test_the_numbers_of_an_operator_are_those_of_its_family(family: Any) -> None:
    check_scalars(family, {arg.name: 1.0 for arg in ops._Signature(family).numbers})


def test_a_negated_view_is_refused() -> None:
    def tensor(is_negated: bool) -> Any:
        return SimpleNamespace(
            is_cuda=True,
            is_neg=lambda: is_negated,
            data_ptr=lambda: 4096,
            dtype="torch.float32",
            shape=(2,),
            stride=lambda: (1,),
            device=SimpleNamespace(index=0),
        )

    assert device_view_of("x", tensor(False), 0).dtype == "float32"
    with pytest.raises(TilewrightError, match=r"'x' is a negated view.*resolve_neg"):
        device_view_of("x", tensor(True), 0)


def test_no_rung_names_the_limit() -> None:
    with pytest.raises(TilewrightError, match=r"no rung of rope_half .*D = 33; 03_heads takes a multiple of 2"):
        load_family("rope_half").best({"tokens": 1, "H": 1, "D": 33, "ld_x": 33}, "float32", lambda arch: True)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("rmsnorm", "C"),
        ("layernorm", "C"),
        ("add_rmsnorm", "C"),
        ("add_layernorm", "C"),
        ("sgemv", "M"),
        ("transpose", "N"),
    ],
)
def test_counters_of_32_bits_do_not_pass_their_end(name: str, size: str) -> None:
    """A thread's next column, or a block's first row, would be negative beyond."""
    family = load_family(name)
    most = (1 << 31) - 1
    sizes = dict.fromkeys(family.sizes["default"], 1)
    sizes |= {each: most for each in sizes if each == size or (each.startswith("ld_") and size != "M")}
    with pytest.raises(TilewrightError, match=f"{size} = {most}; .* takes at most 214748"):
        family.best(sizes, "float32", lambda arch: True)
    assert family.best({**sizes, size: most - 1024}, "float32", lambda arch: True)


def view(shape: tuple[int, ...], dtype: str) -> DeviceView:
    return DeviceView(4096, shape, row_major(shape), dtype, 0, None)


def test_a_table_without_rows_and_a_histogram_without_bins() -> None:
    embedding = load_family("embedding")
    arrays = {"indices": view((0,), "int64"), "weight": view((0, 16), "float32"), "y": view((0, 16), "float32")}
    assert bound_operation(embedding, operation_spec(embedding, "float32"), arrays).sizes["V"] == 0
    histogram = load_family("histogram")
    arrays = {"x": view((7,), "int32"), "counts": view((0,), "int64")}
    assert bound_operation(histogram, operation_spec(histogram, "int32"), arrays).sizes["bins"] == 0


def test_the_current_card_stays_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    core = pytest.importorskip("cuda.core")
    current = [7]
    monkeypatch.setattr(
        core, "Device", lambda index: SimpleNamespace(set_current=lambda: driver.cuCtxSetCurrent(index))
    )
    monkeypatch.setattr(driver, "cuCtxGetCurrent", lambda: current[0])
    monkeypatch.setattr(driver, "cuCtxSetCurrent", lambda context: current.__setitem__(0, context))
    monkeypatch.setattr(launching, "checked", lambda result: result)
    with on_card(9):
        assert current == [9]
    assert current == [7]
    with pytest.raises(ZeroDivisionError), on_card(9):
        assert 1 // 0
    assert current == [7]
    current[0] = 0  # none was current
    with on_card(9):
        pass
    assert current == [9]


@pytest.mark.parametrize("name", ["../kernels/relu", "relu/", "", ".", ".."])
def test_a_family_is_no_path(name: str) -> None:
    with pytest.raises(TilewrightError, match="there is no family"):
        load_family(name)


def test_what_is_loaded_once_takes_what_any_call_with_its_defines_does() -> None:
    """Calls share a rung by its defines: what limits it must not follow from the sizes of the first call."""
    for family in load_families():
        for rung in family.rungs:
            for text in map(str, rung.sized_limits.values()):
                names = set(re.findall(r"[A-Za-z_]\w*", text))
                defines = {name for choice in (rung.sized, *rung.choices) for name in choice}
                assert names <= {"item_bytes", *defines}, (family.name, rung.name, text)


class Card:
    """In a card's place: whose context is current, and what was put on which stream there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        driver = pytest.importorskip("cuda.bindings.driver")
        self.current = 0
        self.error: Any = driver.CUresult.CUDA_SUCCESS
        self.put: list[tuple[int, dict[str, int], int]] = []
        monkeypatch.setattr(driver, "cuCtxGetCurrent", lambda: (driver.CUresult.CUDA_SUCCESS, self.current))
        monkeypatch.setattr(launching, "on_card", self.on_card)
        self.ladder = Ladder()
        monkeypatch.setattr(self.ladder, "_plan", self.plan)

    @contextmanager
    def on_card(self, index: int) -> Iterator[None]:
        before, self.current = self.current, 100 + index
        yield
        self.current = before

    def plan(self, family: Any, rung: Any, dtype: str, views: Any, sizes: Any, scalars: Any, card: int) -> Plan:
        names = tuple(views)

        def launch(pointer: Any, stream: int) -> None:
            if self.error:
                raise DeviceError("CUDA_ERROR_INVALID_VALUE")
            self.put.append((self.current, {name: pointer(name) for name in names}, stream))

        return Plan(family.rungs[0], card, (Step(launch, ()),), {}, None, True)  # type: ignore[arg-type]


class Device(NamedTuple):
    index: int


def tensor(pointer: int, card: int = 0) -> Any:
    shape = {"shape": (4,), "stride": lambda: (1,), "dtype": "torch.float32", "device": Device(card)}
    return SimpleNamespace(is_cuda=True, is_neg=lambda: False, data_ptr=lambda: pointer, **shape)


def test_a_launch_is_made_again_on_other_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch)
    made = card.ladder.launched("relu", {"x": tensor(0x1000), "y": tensor(0x2000)}, stream=3)
    assert made.again is not None
    made.again({"x": 0x5000, "y": 0x6000}, 4)
    card.current = 100  # that card's own
    made.again({"x": 0x7000, "y": 0x8000}, 5)
    card.current = 107  # another one's: not left alone with a launch that is not for it
    made.again({"x": 0x7000, "y": 0x8000}, 0)
    assert [(where, stream) for where, _, stream in card.put] == [(100, 3), (100, 4), (100, 5), (100, 0)]
    assert [places["x"] for _, places, _ in card.put] == [0x1000, 0x5000, 0x7000, 0x7000]
    assert card.current == 107
    card.error = 1
    with pytest.raises(TilewrightError, match="relu could not be launched: CUDA_ERROR_INVALID_VALUE"):
        made.again({"x": 0x7000, "y": 0x8000}, 0)


def test_numbers_of_both_zeros_have_their_own_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch)
    planned: list[float] = []
    true = card.plan
    monkeypatch.setattr(card.ladder, "_plan", lambda *given: (planned.append(given[5]["epsilon"]), true(*given))[1])
    x = {"x": tensor(0x1000), "weight": tensor(0x2000), "y": tensor(0x3000)}
    for epsilon in (0.0, -0.0, 0.0, -0.0):
        card.ladder.call("rmsnorm", x, scalars={"epsilon": epsilon})
    assert [str(each) for each in planned] == ["0.0", "-0.0"]
