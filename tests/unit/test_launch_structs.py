"""A structure that is passed by value."""

from __future__ import annotations

import struct as packing
from pathlib import Path

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.launch.bind import bind
from tilewright.launch.sidecar import check_against, parse_sidecar
from tilewright.launch.structs import BoundStruct
from tilewright.settings import Settings
from tilewright.workflow import verify

ARGS = {
    "p.flag": 'dtype = "int8"\nvalue = 3',
    "p.input": 'dtype = "float32"\nshape = ["N"]',
    "p.n": 'dtype = "int32"\nvalue = "N"',
    "p.scale": 'dtype = "float64"\nvalue = 0.5',
    "p.small": 'dtype = "int16"\nvalue = -2',
    "out": 'dtype = "float32"\nshape = ["N"]\nrole = "out"',
}
SOURCE = """\
struct Params { signed char flag; const float* input; int n; double scale; short small; };
__global__ void k(const Params p, float* out) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < p.n) out[i] = p.input[i] * float(p.scale) + float(p.flag) + float(p.small);
}
"""


def sidecar(args: dict[str, str]) -> str:
    rows = "".join(f'[[args]]\nname = "{name}"\n{rest}\n' for name, rest in args.items())
    return f'kernel = "k"\n[launch]\ngrid = ["ceil_div(N, 32)"]\nblock = [32]\n[sizes]\ndefault = {{ N = 70 }}\n{rows}'


def test_members_lie_as_in_c() -> None:
    launch = bind(parse_sidecar(sidecar(ARGS), Path("k.toml")), "default", {})
    whole, out = launch.arguments
    assert isinstance(whole, BoundStruct)
    assert (whole.name, out.name) == ("p", "out")
    assert whole.offsets == (0, 8, 16, 24, 32)
    assert whole.param_bytes == packing.calcsize("@bPidh0P") == 40
    address = (7).to_bytes(8, "little")
    raw = whole.packed(lambda member: address if member.name == "p.input" else member.raw())  # type: ignore[union-attr]
    assert raw[:34] == packing.pack("<b7xQi4xdh", 3, 7, 70, 0.5, -2)
    assert launch.scalars["p.n"] == 70
    assert [b.name for b in launch.buffers] == ["p.input", "out"]


def test_it_runs(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    (tmp_path / "k_reference.py").write_text(
        "def reference(p_input, p_scale, p_flag, p_small, **_):\n"
        "    return {'out': p_input.astype('float64') * p_scale + p_flag + p_small}\n"
    )
    (tmp_path / "k.toml").write_text(sidecar(ARGS) + '[reference]\nfile = "k_reference.py"\n')
    outcome = verify(tmp_path / "k.cu", arch="sm_86", settings=Settings(cache_dir=tmp_path / "c"))
    assert outcome.exit_code == 0
    # Two members in each other's place give other values.
    swapped = dict(ARGS, **{"p.small": ARGS["p.small"].replace("-2", "-3")})
    (tmp_path / "k_reference.py").write_text("def reference(p_input, **_): return {'out': p_input * 0.5 + 1}\n")
    (tmp_path / "k.toml").write_text(sidecar(swapped) + '[reference]\nfile = "k_reference.py"\n')
    assert verify(tmp_path / "k.cu", arch="sm_86", settings=Settings(cache_dir=tmp_path / "c")).exit_code == 1


def test_a_structure_of_another_size_is_not_launched(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    (tmp_path / "k.toml").write_text(sidecar({n: v for n, v in ARGS.items() if n != "p.scale"}))
    outcome = verify(tmp_path / "k.cu", arch="sm_86", settings=Settings(cache_dir=tmp_path / "c"))
    assert outcome.exit_code == 1


PARAMETERS = [("p", "const Params"), ("out", "float*")]


def check(args: dict[str, str], parameters: list[tuple[str, str]]) -> str:
    with pytest.raises(TilewrightError) as caught:
        check_against(parse_sidecar(sidecar(args), Path("k.toml")), parameters, {})
    return caught.value.code


def test_members_count_as_one_parameter() -> None:
    check_against(parse_sidecar(sidecar(ARGS), Path("k.toml")), PARAMETERS, {})
    assert check({"out": ARGS["out"]}, PARAMETERS) == "launch/argument_count"
    assert check(ARGS, [("q", "Params"), ("out", "float*")]) == "launch/argument_name"
    assert check(ARGS, [("p", "int"), ("out", "float*")]) == "launch/argument_type"
    assert check(ARGS, [("p", "Params*"), ("out", "float*")]) == "launch/argument_type"


def test_members_stand_next_to_one_another() -> None:
    apart = {"p.n": ARGS["p.n"], "out": ARGS["out"], "p.small": ARGS["p.small"]}
    with pytest.raises(TilewrightError, match="next to one another"):
        parse_sidecar(sidecar(apart), Path("k.toml"))
    with pytest.raises(TilewrightError, match="one member"):
        parse_sidecar(sidecar({"a.b.c": ARGS["p.n"], "out": ARGS["out"]}), Path("k.toml"))


def test_the_gpu_gets_the_same_bytes() -> None:
    from tilewright.gpu.executor import kernel_arguments

    launch = bind(parse_sidecar(sidecar(ARGS), Path("k.toml")), "default", {})
    given = kernel_arguments(launch, lambda name: 4096)
    assert isinstance(given[0], np.ndarray)
    assert given[0].tobytes()[:34] == packing.pack("<b7xQi4xdh", 3, 4096, 70, 0.5, -2)
