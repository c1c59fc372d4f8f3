"""Families as PyTorch operators: schema, fake kernels, torch.compile. What computes is a stand-in on the CPU."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tilewright import ops
from tilewright.errors import TilewrightError
from tilewright.ladder.family import load_families, load_family


def test_the_names_are_the_families() -> None:
    assert dir(ops) == [family.name for family in load_families()]
    with pytest.raises(AttributeError, match="no operator 'sorting'"):
        ops.sorting  # noqa: B018


def test_without_pytorch_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TilewrightError, match=r"PyTorch is not installed.*tilewright\[torch\]") as caught:
        ops.make_operator(load_family("transpose"))
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("family", load_families(), ids=lambda family: family.name)
def test_every_family_has_a_schema(family: Any) -> None:
    shape = ops._Signature(family)
    assert shape.schema.startswith("(Tensor")
    assert shape.made or shape.changed, "an operator that gives nothing"


@pytest.fixture(scope="module")
def operator() -> Any:
    torch = pytest.importorskip("torch")

    def launch(family: str, tensors: dict[str, Any], numbers: dict[str, float]) -> None:
        assert (family, sorted(tensors), numbers) == ("transpose", ["x", "y"], {})
        tensors["y"].copy_(tensors["x"].t())

    assert torch is not None
    return ops.make_operator(load_family("transpose"), launch)


def test_an_operator(operator: Any) -> None:
    import torch

    x = torch.randn(5, 33)
    assert torch.equal(operator(x), x.t())
    assert operator(x[:, ::2]).shape == (17, 5)
    torch.library.opcheck(operator.operator, (x,))


def test_under_torch_compile(operator: Any) -> None:
    import torch

    compiled = torch.compile(lambda x: operator(x * 2) + 1, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (5, 7):
        x = torch.randn(rows, 33)
        assert torch.equal(compiled(x), (x * 2).t() + 1)


def test_a_tensor_of_another_rank_is_refused(operator: Any) -> None:
    import torch

    with pytest.raises(TilewrightError, match="'x' of transpose has 1 dimensions; it needs 2"):
        operator(torch.randn(3))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what PyTorch itself calls there
def test_forward_mode_is_refused_and_not_a_constant(operator: Any) -> None:
    import torch
    from torch.autograd import forward_ad

    x = torch.randn(2, 3)
    with pytest.raises(TilewrightError, match="transpose has no derivative in forward mode"):
        torch.func.jvp(operator, (x,), (x,))
    with forward_ad.dual_level(), pytest.raises(TilewrightError, match="forward mode"):
        operator(forward_ad.make_dual(x, x))
    assert operator(x).shape == (3, 2)


def test_a_backward_pass_is_refused(operator: Any) -> None:
    import torch

    x = torch.randn(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        operator(x).sum().backward()
    assert x.grad is None


def test_outputs_of_a_later_call_are_those_of_its_own_sizes(operator: Any) -> None:
    """What an output looks like is worked out once for tensors of one kind."""
    torch = pytest.importorskip("torch")
    for extents in ((3, 40), (5, 40), (3, 40)):
        for x in (torch.randn(extents), torch.randn(extents).half(), torch.randn(5, 80)[: extents[0], ::2]):
            y = operator(x)
            assert (y.dtype, y.is_contiguous()) == (x.dtype, True)
            assert torch.equal(y, x.t())
