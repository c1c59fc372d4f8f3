"""The examples: they compile without spills, their sidecars fit, their references say what the kernels should give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright.arch.arch import known_archs
from tilewright.build.artifact import Artifact, BuildRequest, CompileFailure
from tilewright.build.build import build
from tilewright.launch.bind import bind
from tilewright.launch.inputs import make_inputs
from tilewright.launch.sidecar import check_against, load_sidecar
from tilewright.launch.spec import LaunchSpec
from tilewright.settings import Settings
from tilewright.source.device_view import device_view
from tilewright.source.reader import read_source
from tilewright.verification.reference import load_reference

EXAMPLES = Path(__file__).parents[2] / "examples"
CONSTANTS = {
    "igemm_wmma": {"BM": 64, "BN": 64, "BK": 32, "NUM_THREADS": 128},
    "hgemm_mma": {"BM": 128, "BN": 128, "BK": 32, "NUM_THREADS": 256},
    "sgemm_float4": {"BM": 128, "BN": 128, "BK": 8, "THREADS": 256},
    "hgemm_wmma": {"BM": 64, "BN": 64, "BK": 32, "BLOCK_SIZE": 128},
}
# What each kernel asks of its sizes, in its own words at the top of the file.
MULTIPLES = {
    "igemm_wmma": {"M": 16, "N": 16},
    "hgemm_mma": {"N": 8, "K": 8},
    "sgemm_float4": {"M": 128, "N": 128, "K": 8},
    "hgemm_wmma": {},
}
NAMES = sorted(CONSTANTS)


def sidecar(name: str) -> LaunchSpec:
    return load_sidecar(EXAMPLES / f"{name}.toml")


def compiled(source: str, name: str, arch: str, cache: Path) -> Artifact | CompileFailure:
    view = device_view(source, EXAMPLES / f"{name}.cu")
    request = BuildRequest(view.text, f"{name}.cu", arch, name, headers=view.headers)
    return build(request, Settings(cache_dir=cache), use_cache=False)


# sm_75 has no mma.sync.m16n8k16 of FP16.
BUILDABLE = [(name, arch) for name in NAMES for arch in known_archs() if (name, arch) != ("hgemm_mma", "sm_75")]


@pytest.mark.parametrize(("name", "arch"), BUILDABLE)
def test_an_example_compiles_without_spills(name: str, arch: str, tmp_path: Path) -> None:
    artifact = compiled((EXAMPLES / f"{name}.cu").read_text(), name, arch, tmp_path)
    assert isinstance(artifact, Artifact), artifact
    assert artifact.resources.spill_bytes == 0
    assert artifact.resources.stack_bytes == 0
    assert artifact.resources.registers <= 128


def test_a_starved_example_spills(tmp_path: Path) -> None:
    # The mutant: 16 blocks per SM leave 32 registers a thread.
    source = (EXAMPLES / "igemm_wmma.cu").read_text().replace("(NUM_THREADS)\nigemm", "(NUM_THREADS, 16)\nigemm")
    artifact = compiled(source, "igemm_wmma", "sm_90a", tmp_path)
    assert isinstance(artifact, Artifact)
    assert artifact.resources.spill_bytes > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_sidecar_fits_its_kernel(name: str) -> None:
    spec = sidecar(name)
    source = read_source((EXAMPLES / f"{name}.cu").read_bytes(), f"{name}.cu")
    check_against(spec, source.kernel(spec.kernel).params, CONSTANTS[name])
    assert spec.sizes.keys() == {"default", "small", "ragged"}
    assert set(spec.sizes["default"].values()) == {4096}
    assert set(spec.sizes["small"].values()) == {512}


@pytest.mark.parametrize("name", NAMES)
def test_sizes_are_legal_and_the_ragged_ones_do_not_fit_the_tile(name: str) -> None:
    for sizes in sidecar(name).sizes.values():
        assert all(sizes[key] % multiple == 0 for key, multiple in MULTIPLES[name].items())
    ragged = sidecar(name).sizes["ragged"]
    free = {
        key: CONSTANTS[name][f"B{key}"] for key in "MNK" if MULTIPLES[name].get(key, 1) < CONSTANTS[name][f"B{key}"]
    }
    assert all(ragged[key] % tile for key, tile in free.items())
    if name == "hgemm_wmma":
        assert all(size % 2 for size in ragged.values())


@pytest.mark.parametrize(
    ("name", "grid"),
    [
        ("igemm_wmma", (3, 4, 1)),
        ("hgemm_mma", (2, 2, 1)),
        ("sgemm_float4", (2, 3, 1)),
        ("hgemm_wmma", (3, 4, 1)),
    ],
)
def test_the_ragged_launch_covers_the_output(name: str, grid: tuple[int, int, int]) -> None:
    launch = bind(sidecar(name), "ragged", CONSTANTS[name])
    assert launch.grid == grid
    assert launch.grid[0] * CONSTANTS[name]["BN"] >= launch.sizes["N"]
    assert launch.grid[1] * CONSTANTS[name]["BM"] >= launch.sizes["M"]


@pytest.mark.parametrize("name", NAMES)
def test_a_reference_is_the_product_by_hand(name: str) -> None:
    spec = sidecar(name)
    sizes = {"M": 128, "N": 128, "K": 8}
    launch = bind(replace(spec, sizes={**spec.sizes, "tiny": sizes}), "tiny", CONSTANTS[name])
    inputs = make_inputs(launch, seed=1)
    assert spec.reference is not None
    ((_, got),) = load_reference(spec.reference).compute(launch, inputs).items()
    a, b, c = (launch.view(arg.name, inputs) if arg.name in inputs else None for arg in launch.arrays)
    assert a is not None
    assert b is not None
    # The kernel gets its scalars as float: 0.05 is not 0.05 there.
    scalars = {key: float(np.float32(value)) for key, value in launch.scalars.items()}
    for row, col in ((0, 0), (3, 127), (127, 64)):
        want = sum(float(a[row, k]) * float(b[k, col]) for k in range(8))
        if name == "igemm_wmma":
            want *= scalars["scale_a"] * scalars["scale_b"]
        if c is not None:
            want = scalars["alpha"] * want + scalars["beta"] * float(c[row, col])
        assert got[row, col] == pytest.approx(want, rel=1e-9)
    assert got.dtype == np.float64
