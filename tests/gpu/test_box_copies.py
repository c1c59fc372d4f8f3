"""A box of a matrix copied through a tensor map that the launch makes: in the emulator, and on a card from sm_90 on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright.build.artifact import Artifact, BuildRequest
from tilewright.build.build import build
from tilewright.emulator.executor import EmulatorExecutor
from tilewright.gpu.executor import GpuExecutor
from tilewright.launch.bind import BoundLaunch, LaunchChange, bind
from tilewright.launch.executor import Executor, Program
from tilewright.launch.inputs import make_inputs
from tilewright.launch.sidecar import parse_sidecar
from tilewright.launch.tensor_maps import FlagArg, TensorMapArg
from tilewright.settings import Settings

# `has_map` 0: the threads copy, so that every size gives the same box.
SOURCE = r"""
struct alignas(64) Map { char bytes[128]; };
constexpr int ROWS = 6, COLUMNS = 32;

extern "C" __global__ void box(const TYPE* in, TYPE* out, int rows, int columns, int pitch, int x, int y,
                               const __grid_constant__ Map map, int has_map) {
    __shared__ alignas(128) TYPE tile[ROWS][COLUMNS];
    __shared__ alignas(8) unsigned long long full;
    unsigned at = (unsigned)__cvta_generic_to_shared(&full), to = (unsigned)__cvta_generic_to_shared(tile);
    if (has_map) {
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"((int)sizeof(tile))
                         : "memory");
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                         "[%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(at) : "memory");
        }
        __syncthreads();
        unsigned done;
        do {
            asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n\t"
                         "selp.u32 %0, 1, 0, p;\n\t}" : "=r"(done) : "r"(at) : "memory");
        } while (!done);
    } else {
        for (int i = threadIdx.x; i < ROWS * COLUMNS; i += blockDim.x) {
            int row = y + i / COLUMNS, column = x + i % COLUMNS;
            bool inside = row >= 0 && row < rows && column >= 0 && column < columns;
            tile[i / COLUMNS][i % COLUMNS] = inside ? in[(long long)row * pitch + column] : (TYPE)0;
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < ROWS * COLUMNS; i += blockDim.x) out[i] = tile[i / COLUMNS][i % COLUMNS];
}
"""
SIDECAR = """
kernel = "box"
[launch]
grid = 1
block = 32
[sizes]
default = { R = 20, C = 48, P = 64, X = 32, Y = 19 }
over_the_edge = { R = 20, C = 40, P = 48, X = 48, Y = 33 }
before_the_start = { R = 20, C = 48, P = 48, X = 0, Y = 14 }
odd_pitch = { R = 20, C = 37, P = 37, X = 21, Y = 33 }
no_rows = { R = 0, C = 48, P = 48, X = 16, Y = 16 }
[[args]]
name = "in"
dtype = "DTYPE"
shape = ["R", "C"]
strides = ["P", 1]
fill = "randint(1, 100)"
[[args]]
name = "out"
dtype = "DTYPE"
shape = ["ROWS", "COLUMNS"]
role = "out"
""" + "".join(
    f'[[args]]\nname = "{name}"\ndtype = "int32"\nvalue = "{size}"\n'
    for name, size in (("rows", "R"), ("columns", "C"), ("pitch", "P"), ("x", "X - 16"), ("y", "Y - 16"))
)
CONSTANTS = {"ROWS": 6, "COLUMNS": 32}
TYPES = {"int8": ("signed char", 1), "float32": ("float", 4)}


def change(dtype: str) -> LaunchChange:
    size = TYPES[dtype][1]
    box = TensorMapArg("map", "in", dtype, ("columns", "rows"), (f"pitch * {size}",), (32, 6))
    return LaunchChange(tensor_maps=(box,), flags=(FlagArg("has_map", "encodable(map)"),))


def launch_of(dtype: str, size: str) -> BoundLaunch:
    return bind(parse_sidecar(SIDECAR.replace("DTYPE", dtype), Path("box.toml")), size, CONSTANTS, change(dtype))


def check(executor: Executor, arch: str, dtype: str, size: str) -> None:
    request = BuildRequest(SOURCE, "box.cu", arch, "box", (), (("TYPE", TYPES[dtype][0]),))
    artifact = build(request, Settings.from_environment())
    assert isinstance(artifact, Artifact), artifact
    program = Program(artifact.cubin, artifact.ptx, artifact.kernel, artifact.arch)
    launch = launch_of(dtype, size)
    arrays = {**make_inputs(launch, 3), "out": np.full(6 * 32, 77, launch.buffers[1].dtype.numpy())}
    result = executor.run(program, launch, arrays)
    assert (result.error, result.hazards) == (None, ())
    sizes = launch.sizes
    matrix, expected = launch.view("in", arrays), np.zeros((6, 32), launch.buffers[1].dtype.numpy())
    for i, j in np.ndindex(6, 32):
        row, column = sizes["Y"] - 16 + i, sizes["X"] - 16 + j  # a size is never negative
        if 0 <= row < sizes["R"] and 0 <= column < sizes["C"]:
            expected[i, j] = matrix[row, column]
    assert np.array_equal(launch.view("out", result.arrays), expected)


SIZES = ("default", "over_the_edge", "before_the_start", "odd_pitch", "no_rows")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", SIZES)
def test_in_the_emulator(dtype: str, size: str) -> None:
    check(EmulatorExecutor("sm_90a"), "sm_90a", dtype, size)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", SIZES)
def test_on_the_card(executor: GpuExecutor, dtype: str, size: str) -> None:
    if int(executor.arch.removeprefix("sm_").rstrip("af")) < 90:
        pytest.skip(f"{executor.arch} has no tensor maps")
    check(executor, executor.arch, dtype, size)


def test_the_other_way_is_taken_where_no_map_can_be_made() -> None:
    flags = {size: launch_of("int8", size).scalars["has_map"] for size in SIZES}
    assert flags == {"default": 1, "over_the_edge": 1, "before_the_start": 1, "odd_pitch": 0, "no_rows": 0}
    flags = {size: launch_of("float32", size).scalars["has_map"] for size in SIZES}
    assert flags["odd_pitch"] == 0
