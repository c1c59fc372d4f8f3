"""``ops.matmul`` on a card: every layout by every rung that takes it, ragged and in batches; what it says; streams."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.errors import TilewrightError
from tilewright.gpu.device import GpuInfo
from tilewright.ladder.launching import runs_code
from tilewright.ladder.matmul_op import explain_matmul
from tilewright.ladder.references.matmul import ACTIVATIONS

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
RUNGS = ("01_strided", "02_cp_async", "20_persistent", "21_split_k", "22_direct", "23_little", "24_packed")
SHAPES = ((1, 515, 389, 517), (1, 1024, 2048, 4096), (5, 333, 520, 264), (1, 70, 4096, 4104), (1, 2049, 1003, 1000))


@pytest.fixture(scope="module")
def torch(card: GpuInfo) -> Any:
    return pytest.importorskip("torch")


def matrix(torch: Any, batches: int, rows: int, columns: int, way: str, dtype: str) -> Any:
    """In rows (N) or in columns (T), each of which begins at a multiple of 8 elements."""
    outer, inner = (rows, columns) if way == "N" else (columns, rows)
    whole = torch.randn(batches, outer, -(-inner // 8) * 8, device="cuda").to(getattr(torch, dtype))[:, :, :inner]
    one = whole if way == "N" else whole.transpose(1, 2)
    return one if batches > 1 else one[0]


def worst(torch: Any, y: Any, need: Any, rms: float, depth: int) -> float:
    """How far the worst element is beyond what roundings explain, in float64."""
    eps = torch.finfo(y.dtype).eps
    bound = eps * need.abs() + 16 * depth**0.5 * 1.2e-7 * rms + 1e-6
    return float(((y.double() - need).abs() - bound).max())


def activated(torch: Any, x: Any, name: str) -> Any:
    functional = torch.nn.functional
    if name == "gelu_tanh":
        return functional.gelu(x, approximate="tanh")
    return x if name == "none" else getattr(functional, name)(x)


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_a_layout(torch: Any, card: GpuInfo, rung: str, layout: str) -> None:
    from tilewright import ops

    if rung >= "20" and rung != "23_little" and not runs_code("sm_90a", card.arch):
        pytest.skip("it needs sm_90a")
    if rung == "22_direct" and layout != "NT":
        pytest.skip("it takes a along k and b along k")
    for turn, (batches, m, n, k) in enumerate(SHAPES):
        if rung == "22_direct" and k % 8:
            continue
        dtype = ("bfloat16", "float16")[turn % 2]
        a, b = matrix(torch, batches, m, k, layout[0], dtype), matrix(torch, batches, k, n, layout[1], dtype)
        bias = torch.randn(n, device="cuda").to(a.dtype) if turn % 3 else None
        c = torch.randn(n, device="cuda").to(a.dtype) if turn % 2 else None  # the same row for all rows
        activation = ACTIVATIONS[turn]
        more = {"bias": bias, "c": c, "alpha": 0.5, "beta": -1.25, "activation": activation, "rung": rung}
        y, why = ops.matmul(a, b, **more, explain=True)
        assert (why.layout, why.rung) == (layout, f"matmul/{rung}")
        need = 0.5 * (a.double() @ b.double())
        rms = float(need.square().mean().sqrt())
        need = need - 1.25 * c.double() if c is not None else need
        need = activated(torch, need + bias.double() if bias is not None else need, activation)
        assert worst(torch, y, need, rms, k) <= 0, (batches, m, n, k)


def test_views_that_no_tensor_map_has(torch: Any, card: GpuInfo) -> None:
    from tilewright import ops

    x, w = torch.randn(300, 520, device="cuda").bfloat16(), torch.randn(520, 264, device="cuda").bfloat16()
    for a, b in ((x[:, 1:], w[1:]), (x[:, ::2], w[::2]), (x[3:, :7], w[:7, 5:]), (x[:1, :33], w[:33]), (x[:0], w)):
        need = a.double() @ b.double()
        for rung in (None, "24_packed") if need.numel() and runs_code("sm_90a", card.arch) else (None,):
            assert worst(torch, ops.matmul(a, b, rung=rung), need, 30.0, a.shape[1]) <= 0 if need.numel() else True
        assert ops.matmul(a, b, activation="relu").shape == need.shape


def test_in_a_graph_on_a_stream_of_its_own_and_compiled(torch: Any) -> None:
    from tilewright import ops

    x, w = torch.randn(256, 512, device="cuda").half(), torch.randn(1024, 512, device="cuda").half()
    bias = torch.randn(1024, device="cuda").half()
    matmul = ops.matmul
    need = torch.relu(x.double() @ w.double().t() + bias.double())

    def layer() -> Any:
        return matmul(x, w.t(), bias=bias, activation="relu")

    layer()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer()
    graph.replay()
    torch.cuda.synchronize()
    assert worst(torch, y, need, 23.0, 512) <= 0
    assert worst(torch, torch.compile(layer, fullgraph=True)(), need, 23.0, 512) <= 0


def test_what_no_rung_takes_is_refused(torch: Any) -> None:
    from tilewright import ops

    x = torch.randn(64, 64, device="cuda")
    with pytest.raises(TilewrightError, match="matmul does not take float32"):
        ops.matmul(x, x)
    half = x.half()
    with pytest.raises(TilewrightError, match="needs b whose rows, or columns, are packed"):
        ops.matmul(half, half[:, ::2], rung="02_cp_async")
    with pytest.raises(TilewrightError, match="lies in the host's memory"):
        ops.matmul(half.cpu(), half.cpu())
    assert explain_matmul(half, half[:, ::2]).rung == "matmul/23_little"
