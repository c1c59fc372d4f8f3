"""The ladder on a card: every rung at every small size and dtype, and calls with arrays of other libraries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.gpu.device import GpuInfo
from tilewright.gpu.executor import GpuExecutor
from tilewright.ladder.compiling import CompiledRung, compile_rung
from tilewright.ladder.family import Family, Rung, load_families, load_family
from tilewright.ladder.launching import Ladder, _runs, arch_of
from tilewright.ladder.running import Operation, judge, operation
from tilewright.ladder.specs import rung_spec
from tilewright.ladder.timing import run_on_gpu
from tilewright.settings import Settings

pytestmark = pytest.mark.gpu
# What PyTorch's compiler itself imports is out of date there.
COMPILES = pytest.mark.filterwarnings("ignore::DeprecationWarning")
FAMILIES = load_families()
CASES = [(family, rung, dtype) for family in FAMILIES for rung in family.rungs for dtype in rung.dtypes]


def name_of(value: object) -> str:
    return value.name if isinstance(value, Family | Rung) else str(value)


@pytest.fixture(scope="module")
def ladder(card: GpuInfo) -> Ladder:
    return Ladder()


def built(family: Family, rung: Rung, dtype: str, card: GpuInfo) -> CompiledRung:
    if rung.min_arch is not None and not _runs(rung.min_arch, card):
        pytest.skip(f"{rung.name} needs {rung.min_arch}")
    return compile_rung(rung_spec(family, rung, dtype), Settings.from_environment(), arch_of(rung, card))


@pytest.mark.parametrize(("family", "rung", "dtype"), CASES, ids=name_of)
def test_a_rung(family: Family, rung: Rung, dtype: str, executor: GpuExecutor, card: GpuInfo) -> None:
    compiled = built(family, rung, dtype, card)
    for size in family.emulated_sets(rung):
        done = run_on_gpu(compiled, operation(family, dtype, family.sizes[size]), executor)
        assert done.passed, f"{size}: {done.message}"
    what = operation(family, dtype, family.sizes["ragged"], specials=family.specials)
    if not rung.misfit(what.sizes):
        done = run_on_gpu(compiled, what, executor)
        assert done.passed, f"ragged with {family.specials}: {done.message}"


def tensors_of(what: Operation) -> dict[str, Any]:
    """PyTorch tensors with the operation's shapes and strides; outputs hold NaNs."""
    import torch

    out = {}
    for array in what.launch.buffers:
        count_bytes = array.storage_elements * array.dtype.item_bytes
        storage = what.inputs.get(array.name)
        raw = np.full(count_bytes, 0xFF, np.uint8) if storage is None else storage.view(np.uint8)
        dtype = getattr(torch, array.dtype.name)
        # Of an array without elements PyTorch makes no other type's view.
        flat = torch.from_numpy(raw.copy()).cuda().view(dtype) if count_bytes else torch.empty(0, dtype=dtype).cuda()
        out[array.name] = flat.as_strided(array.shape, array.strides)
    return out


def storages_of(what: Operation, tensors: dict[str, Any]) -> dict[str, np.ndarray]:
    """Back to NumPy's storages."""
    import torch

    out = {}
    for array in what.launch.buffers:
        flat = tensors[array.name].as_strided((array.storage_elements,), (1,)).cpu()
        out[array.name] = flat.view(torch.uint8).numpy().view(array.dtype.numpy())
    return out


def sizes_of_no_array(family: Family) -> list[str]:
    """Those that a caller has to name: they are no array's extent or stride by themselves."""
    known = {text for arg in family.args for text in (*arg.get("shape", ()), *arg.get("strides", ()))}
    return [name for name in family.sizes["default"] if name not in known]


@pytest.mark.parametrize("family", FAMILIES, ids=name_of)
def test_the_best_rung_is_called_on_tensors(family: Family, ladder: Ladder, card: GpuInfo) -> None:
    torch = pytest.importorskip("torch")
    for dtype in family.dtypes:
        for size in family.emulated_sets():
            what = operation(family, dtype, family.sizes[size])
            tensors = tensors_of(what)
            told = {name: what.sizes[name] for name in sizes_of_no_array(family)}
            rung = ladder.call(family.name, tensors, sizes=told, stream=torch.cuda.current_stream().cuda_stream)
            torch.cuda.synchronize()
            done = judge(built(family, rung, dtype, card), what, storages_of(what, tensors))
            assert done.passed, f"{dtype}, {size}, {rung.name}: {done.message}"


@COMPILES
def test_an_operator_under_torch_compile(card: GpuInfo) -> None:
    torch = pytest.importorskip("torch")
    from tilewright import ops

    transpose = ops.transpose
    compiled = torch.compile(lambda x: transpose(x * 2) + 1, fullgraph=True)
    x = torch.randn(301, 77, device="cuda", dtype=torch.bfloat16)
    assert torch.equal(compiled(x), (x * 2).t() + 1)
    sliced = torch.randn(64, 100, device="cuda")[:, :50]
    assert torch.equal(transpose(sliced), sliced.t())
    with pytest.raises(TilewrightError, match="strides"):
        transpose(sliced.t())


def test_the_ring_of_sm_120_is_right_where_it_can_be_run_too(executor: GpuExecutor, card: GpuInfo) -> None:
    """No card of sm_120 is here; sm_90a has all that it needs, but for the machine code."""
    if not card.arch.startswith("sm_90"):
        pytest.skip("it is for sm_90, in place of sm_120")
    family = load_family("hgemm")
    for sizes in (family.sizes["large_4096"], family.sizes["large_odd"]):
        rung = replace(family.rung("40_ring_mma").at(sizes, "bfloat16"), min_arch="sm_90a")
        compiled = compile_rung(rung_spec(family, rung, "bfloat16"), Settings.from_environment(), "sm_90a")
        done = run_on_gpu(compiled, operation(family, "bfloat16", sizes), executor)
        assert done.passed, done.message


def test_arrays_of_cupy(ladder: Ladder) -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.random.standard_normal((65, 40), dtype=cupy.float32)
    y = cupy.empty((40, 65), cupy.float32)
    ladder.call("transpose", {"x": x, "y": y}, stream=cupy.cuda.get_current_stream().ptr)
    assert bool((y == x.T).all())


def test_a_launch_can_be_captured_into_a_graph(ladder: Ladder) -> None:
    torch = pytest.importorskip("torch")
    family = load_family("transpose")
    x = torch.randn(128, 256, device="cuda")
    y = torch.empty(256, 128, device="cuda")
    ladder.call(family.name, {"x": x, "y": y}, stream=torch.cuda.current_stream().cuda_stream)  # compiled before
    torch.cuda.synchronize()
    y.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ladder.call(family.name, {"x": x, "y": y}, stream=torch.cuda.current_stream().cuda_stream)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, x.t())
