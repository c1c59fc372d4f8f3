"""The emulator's test kernels compile, and the table says of each what its PTX says."""

from __future__ import annotations

import re

import numpy as np
import pytest
from kernel_table import BY_NAME, KERNELS, TABLE, TestKernel

from tilewright.build.artifact import Artifact
from tilewright.build.build import build
from tilewright.launch.dtypes import DTYPES
from tilewright.settings import Settings

# What a kernel is there for: without it the compiler has made something else of the source.
INSTRUCTIONS = {
    "ring_cp_async_mbarrier": ("cp.async.mbarrier.arrive.noinc", "mbarrier.test_wait.parity", "cp.async.cg"),
    "ring_cp_async_groups": ("cp.async.wait_group", "ldmatrix", "mma.sync", "bar.sync"),
    "ring_bulk": ("cp.async.bulk.shared::cluster.global", "mbarrier.try_wait.parity", "mbarrier.arrive.expect_tx"),
    "ring_tma": ("cp.async.bulk.tensor.2d.shared::cluster.global", "mbarrier.try_wait", "ldmatrix"),
    "gemm_wgmma": ("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", "wgmma.wait_group"),
    "gemm_wgmma_fp8": ("m64n64k32.f32.e4m3.e4m3",),
    "gemm_wgmma_s8": ("m64n64k32.s32.s8.s8",),
    "gemm_wgmma_register_a": ("wgmma.mma_async",),
    "gemm_wgmma_specialised": ("setmaxnreg.inc", "setmaxnreg.dec", "fence.proxy.async", "cp.async.bulk.wait_group"),
    "cluster_multicast": ("multicast::cluster", "mapa.", "barrier.cluster.wait", ".reqnctapercluster"),
    "mma_nvfp4": ("mma.sync.aligned.kind::mxf4nvf4",),
    "mma_fp8": (".e4m3.e5m2.",),
    "named_barriers": ("bar.arrive", "bar.sync"),
    "warp_operations_sm_80": (
        "shfl.sync.bfly",
        "vote.sync.ballot",
        "vote.sync.uni",
        "match.",
        "redux.sync",
        "activemask",
    ),
    "warp_operations_sm_90": ("elect.sync",),
    "atomics": (".shared.add", ".global.add.f32", ".cas.", ".exch.", ".max.s32"),
    "matrix_moves": ("movmatrix", "stmatrix", "ldmatrix"),
    "spin_wait": ("ld.volatile.shared", "st.volatile.shared", "membar.cta"),
    "last_block": (".inc.u32", "membar.gl"),
    "local_arrays": (".local .align", "ld.local", "st.local"),
    "tables": ("ld.const", ".const .align"),
    "generic_pointers": ("call", "cvta.shared", "cvta.local"),
    "print_and_assert": ("vprintf", "__assertfail"),
}
PARAMETER = re.compile(r"\.param [^\n]*?(\w+_param_\d+)(\[128\])?,?\n")
each = pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)


def built(case: TestKernel) -> Artifact:
    artifact = build(case.request, Settings.from_environment())
    assert isinstance(artifact, Artifact), artifact
    return artifact


@each
def test_it_compiles_to_what_it_is_there_for(case: TestKernel) -> None:
    artifact = built(case)
    for text in INSTRUCTIONS.get(case.name, ()):
        assert text in artifact.ptx, text
    assert artifact.resources.spill_bytes == 0


@each
def test_the_parameters_are_those_of_the_table(case: TestKernel) -> None:
    ptx = built(case).ptx
    head = ptx[ptx.index(f".entry {case.kernel}(") :]
    parameters = PARAMETER.findall(head[: head.index("{\n")])
    assert [is_map != "" for _, is_map in parameters] == [name in case.tensor_maps for name in case.args]
    mapped = {m.array for m in case.tensor_maps.values()}
    assert set(case.args) | mapped == {*case.arrays, *case.scalars, *case.tensor_maps}


@each
def test_the_reference_gives_every_result(case: TestKernel) -> None:
    inputs = case.inputs()
    before = {name: array.copy() for name, array in inputs.items()}
    expected = case.expected(inputs)
    assert set(expected) == {name for name, array in case.arrays.items() if array.role != "in"}
    for name, array in expected.items():
        assert array.dtype == DTYPES[case.arrays[name].dtype].numpy()
        assert array.shape == case.arrays[name].shape
        if name != "counter":  # it ends as it began
            assert array.astype(np.float64).any(), name
    for name, array in before.items():
        assert array.tobytes() == inputs[name].tobytes(), name


@each
def test_tensor_maps_fit_their_arrays(case: TestKernel) -> None:
    """The limits that cuTensorMapEncodeTiled sets."""
    for name, data in case.tensor_maps.items():
        array = case.arrays[data.array]
        item_bytes = DTYPES[array.dtype].item_bytes
        assert (data.dtype, data.dims) == (array.dtype, array.shape[::-1]), name
        assert data.strides_bytes == (array.shape[1] * item_bytes,)
        assert data.strides_bytes[0] % 16 == 0
        assert data.box[0] * item_bytes <= (data.swizzle_bytes or 1 << 20)
        assert data.box[0] * item_bytes % 16 == 0
        assert all(0 < size <= 256 for size in data.box)


def test_main_loops_take_several_trips() -> None:
    looping = [case for case in TABLE if case.k_steps]
    assert len(looping) >= 14
    assert all(2 <= case.k_steps <= 6 for case in looping), {c.name: c.k_steps for c in looping}


def test_every_kernel_is_in_the_table() -> None:
    assert {case.file for case in TABLE} == {path.name for path in KERNELS.glob("*.cu")}
    assert len(BY_NAME) == len(TABLE)
