"""``ladder.toml`` is read strictly; shapes of arrays give sizes; the right rung is chosen."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.ladder.family import KERNELS, Family, Limit, load_families, load_family
from tilewright.ladder.launching import _without_maps
from tilewright.ladder.specs import bound_launches, cleared_before, figure, operation_spec, rung_spec, sidecar_text
from tilewright.ladder.views import DeviceView, bound_operation, device_view_of, row_major
from tilewright.ladder.writing import write_rung
from tilewright.launch.bind import BoundScalar
from tilewright.launch.sidecar import parse_sidecar

GOOD = """
[family]
title = "Sum"
op = "y = sum(x)"
reference = "total"
dtypes = ["float32", "float16"]
bytes = "N * item_bytes"
flops = "N"
length = "N"

[family.sizes]
default = { N = 1000 }
small = { N = 10 }

[[family.args]]
name = "x"
dtype = "T"
shape = ["N"]

[[family.args]]
name = "y"
dtype = "float32"
shape = [1]
role = "out"

[[rung]]
file = "01_atomic.cu"
kernel = "total"
technique = "Atomics"
changes = "The start."
grid = [1]
block = [32]
args = ["x", { name = "y", role = "inout", fill = "zeros()" }]

[[rung]]
file = "02_two.cu"
kernel = "first"
technique = "Two passes"
changes = "Partial sums first."
grid = ["BLOCKS"]
block = [32]
defines = { BLOCKS = 4 }
limits = { N = { at_most = 100, multiple_of = 2 } }
best_for = { N = { at_least = 50 } }
scratch = [{ name = "partial", dtype = "float32", shape = ["BLOCKS"] }]
args = ["x", "partial"]
passes = [{ kernel = "second", grid = [1], block = [32], args = [{ name = "partial", role = "in" }, "y"] }]
shows = [{ counter = "global_atomic_requests", equals = 0 }]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "sums"
    home.mkdir()
    (tmp_path / "include").mkdir()
    for name in ("01_atomic.cu", "02_two.cu"):
        (home / name).write_text("// nothing\n")
    (home / "ladder.toml").write_text(GOOD)
    return tmp_path


def test_a_good_file(folder: Path) -> None:
    family = load_family("sums", folder)
    assert [r.name for r in family.rungs] == ["01_atomic", "02_two"]
    first, second = family.rungs
    assert first.launches[0].args[1] == {
        "name": "y", "dtype": "float32", "shape": [1], "role": "inout", "fill": "zeros()",
    }  # fmt: skip
    assert [launch.kernel for launch in second.launches] == ["first", "second"]
    assert [arg["role"] for launch in second.launches for arg in launch.args if arg["name"] == "partial"] == [
        "out",
        "in",
    ]
    assert second.claims[0].text == "global_atomic_requests equals 0"
    assert figure(family.bytes, family, {"N": 10}, "float16") == 20
    assert family.rung("two") is family.rung("02") is second
    assert family.before(second) is first


def test_its_sidecars_and_launches(folder: Path) -> None:
    family = load_family("sums", folder)
    first, second = family.rungs
    spec = rung_spec(family, second, "float16")
    assert spec.specs[0].args[0].dtype.name == "float16"
    assert spec.specs[0].build.defines == {"TW_T": "__half", "TW_T_BYTES": "2", "BLOCKS": "4"}
    assert spec.specs[0].sizes["default"] == {"N": 10}, "1000 is beyond its limit: the largest one it takes stands in"
    with pytest.raises(TilewrightError, match="N = 1000; 02_two takes at most 100 and a multiple of 2"):
        bound_launches(spec, {"N": 1000}, {"BLOCKS": 4})
    launches = bound_launches(spec, {"N": 10}, {"BLOCKS": 4})
    assert launches[0].grid == (4, 1, 1)
    assert cleared_before(launches, ["x"]) == [(), ()]
    atomics = bound_launches(rung_spec(family, first, "float32"), {"N": 10}, {})
    assert [[a.name for a in each] for each in cleared_before(atomics, ["x"])] == [["y"]]


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ("title", "tittle", "family.tittle is not a key", 3),
        ('op = "y = sum(x)"\n', "", "family.op is missing", 2),
        ('dtypes = ["float32", "float16"]', 'dtypes = "float32"', "family.dtypes must be of type list", 6),
        ('["float32", "float16"]', '["float33"]', "'float33' is no element type", 6),
        ("default = { N = 1000 }", "large = { N = 1000 }", "family.sizes.default is missing", 11),
        ("small = { N = 10 }", "small = { M = 10 }", "family.sizes.small must give N", 13),
        ("02_two.cu", "02_three.cu", "'02_three.cu' is not beside", 36),
        ("01_atomic.cu", "02_two.cu", "rungs stand in the order of their files, each once", None),
        ('"second", grid', '"second", gird', "rung.1.passes.0.gird is not a key", None),
        ('args = ["x", "partial"]', 'args = ["x", "part"]', "'part' is no argument of the family", None),
        ("equals = 0", "equals = 0, at_most = 1", "needs one of counter, sass, resource, and one of equals", None),
        ("equals = 0", "ratio_at_most = 0.5", "a ratio needs 'against'", None),
        ("equals = 0", 'ratio_at_most = 0.5, against = "03"', "02_two names '03', which is no rung", None),
        ("limits = { N", "limits = { K", "'K' is no size", None),
        ("flops =", "flops ==", "", None),
        ("flops =", 'precision = { float32 = "fp32" }\nflops =', "family.precision.float16 is missing", 8),
        ("flops =", 'precision = { float32 = "tf32", float16 = "half" }\nflops =', "'half' is none of", 8),
        (
            "defines = {",
            'map_flag = "f"\ndefines = {',
            "rung.1.map_flag tells of tensor_maps, and there are none",
            None,
        ),
        (
            "defines = {",
            'tensor_maps = [{ name = "m", array = "z", dims = ["N"], pitches = [], box = [4] }]\ndefines = {',
            "'z' is no array of the kernel",
            None,
        ),
        (
            "defines = {",
            'tensor_maps = [{ name = "m", array = "x", dims = ["N"], pitches = [4], box = [4] }]\ndefines = {',
            "needs a box as long as its dims, and one pitch fewer",
            None,
        ),
    ],
)
def test_a_wrong_file_names_place_and_key(folder: Path, old: str, new: str, message: str, line: int | None) -> None:
    assert GOOD.count(old) == 1 or old in ("title", "01_atomic.cu")
    file = folder / "sums" / "ladder.toml"
    file.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(TilewrightError) as caught:
        load_family("sums", folder)
    assert message in caught.value.message
    assert caught.value.facts["file"] == str(file)
    assert line is None or caught.value.facts["line"] == line


def test_names_that_are_not_there(folder: Path) -> None:
    with pytest.raises(TilewrightError, match=r"there is no family 'products'.*sums"):
        load_family("products", folder)
    with pytest.raises(TilewrightError, match=r"no rung '07'.*01_atomic, 02_two"):
        load_family("sums", folder).rung("07")
    with pytest.raises(TilewrightError, match="does not take bfloat16"):
        rung_spec(load_family("sums", folder), load_family("sums", folder).rungs[0], "bfloat16")


def test_the_rung_that_is_meant_for_the_sizes(folder: Path) -> None:
    family = load_family("sums", folder)

    def best(n: int) -> str:
        return family.best({"N": n}, "float32", lambda arch: False).name

    assert [best(n) for n in (10, 50, 51, 100, 102)] == ["01_atomic", "02_two", "01_atomic", "02_two", "01_atomic"]
    late = replace(family, rungs=(family.rungs[0], replace(family.rungs[1], min_arch="sm_90a")))
    assert late.best({"N": 50}, "float32", lambda arch: False).name == "01_atomic"
    assert late.best({"N": 50}, "float32", lambda arch: arch == "sm_90a").name == "02_two"
    with pytest.raises(TilewrightError, match="no rung of sums takes these sizes in int8"):
        family.best({"N": 50}, "int8", lambda arch: True)
    assert Limit(at_least=3).allows(3)
    assert not Limit(at_least=3).allows(2)


def test_what_a_rung_needs_of_several_sizes_together(folder: Path) -> None:
    file = folder / "sums" / "ladder.toml"
    needs = 'needs = { "whole blocks" = "N % (8 * TW_WIDE) == 0" }\nsized = { TW_WIDE = "N > 16" }\n'
    file.write_text(GOOD.replace("defines = { ", f"{needs}defines = {{ TW_WIDE = 1, ", 1))
    rung = load_family("sums", folder).rung("02")
    assert rung.misfit({"N": 24}) == ""
    assert rung.misfit({"N": 20}) == "02_two needs whole blocks"
    sized = rung.at({"N": 24}, "float32")
    assert (sized.defines["TW_WIDE"], type(sized.defines["TW_WIDE"])) == (1, int), "True is no number to a compiler"
    file.write_text(GOOD.replace("defines = { ", 'needs = { "more" = "N >" }\ndefines = { ', 1))
    with pytest.raises(TilewrightError, match="in the expression 'N >'"):
        load_family("sums", folder)


@dataclass
class Tensor:
    """What the launcher asks of a PyTorch tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str = "torch.float16"
    is_cuda: bool = True
    index: int = 0

    def data_ptr(self) -> int:
        return 4096

    def is_neg(self) -> bool:
        return False

    def stride(self) -> tuple[int, ...]:
        return self.strides

    @property
    def device(self) -> Tensor:
        return self


def bound(**arrays: Tensor) -> dict[str, int]:
    family = load_family("transpose")
    views = {name: device_view_of(name, tensor, 0) for name, tensor in arrays.items()}
    return dict(bound_operation(family, operation_spec(family, "float16"), views).sizes)


def test_sizes_come_from_shapes_and_strides() -> None:
    y = Tensor((33, 5), (5, 1))
    assert bound(x=Tensor((5, 33), (40, 1)), y=y) == {"M": 5, "N": 33, "ld_x": 40}
    # Of a dimension with one element no stride is looked at.
    assert bound(x=Tensor((1, 33), (7, 1)), y=Tensor((33, 1), (1, 9))) == {"M": 1, "N": 33, "ld_x": 33}
    assert row_major((2, 3, 4)) == (12, 4, 1)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": Tensor((5, 33), (33, 1))}, "transpose needs 'y'"),
        ({"x": Tensor((5,), (1,)), "y": Tensor((33, 5), (5, 1))}, "it needs 2 dimensions"),
        ({"x": Tensor((5, 33), (33, 1)), "y": Tensor((33, 6), (6, 1))}, "it needs M = 5"),
        ({"x": Tensor((5, 33), (1, 5)), "y": Tensor((33, 5), (5, 1))}, r"'x' of transpose has strides \(1, 5\)"),
        ({"x": Tensor((5, 33), (33, 1)), "y": Tensor((33, 5), (8, 1))}, r"strides \(8, 1\); \(5, 1\) are needed"),
        ({"x": Tensor((5, 33), (33, 1)), "y": Tensor((33, 5), (5, 1), "torch.float32")}, "float16 is needed"),
        ({"x": Tensor((5, 33), (33, 1)), "y": Tensor((33, 5), (5, 1), index=1)}, "lie on several cards"),
        ({"x": Tensor((5, 33), (33, 1), is_cuda=False), "y": Tensor((33, 5), (5, 1))}, "lies in the host's memory"),
        ({"z": Tensor((1,), (1,))}, "transpose has no array 'z'"),
    ],
)
def test_arrays_that_are_not_taken(arrays: dict[str, Tensor], message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        bound(**arrays)


def test_where_no_map_can_be_made_the_kernel_is_told() -> None:
    family = load_family("transpose")
    spec = rung_spec(family, family.rung("tma"), "float16")
    constants = {"COLUMNS": 8, "ROWS": 16, "ALONG": 1, "PACK": 8, "THREADS": 128, "TW_T_BYTES": 2}
    for sizes, flag in (({"M": 40, "N": 72, "ld_x": 80}, 1), ({"M": 5, "N": 33, "ld_x": 33}, 0)):
        launch = bound_launches(spec, sizes, constants)[0]
        assert [arg.value for arg in launch.leaves if isinstance(arg, BoundScalar)][-1] == flag
        for start in (256, 250):  # a view of a tensor may begin anywhere
            view = DeviceView(start, (sizes["M"], sizes["N"]), (sizes["ld_x"], 1), "float16", 0, None)
            told = _without_maps(launch, {"x": view})
            scalars = [arg.value for arg in told.leaves if isinstance(arg, BoundScalar)]
            assert scalars[-1] == (flag if start == 256 else 0)
    with pytest.raises(TilewrightError, match="takes tensor maps, which no sidecar can say"):
        write_rung(family, family.rung("tma"), "float16", Path("nowhere"))


def test_what_is_no_array_or_lies_in_the_hosts_memory() -> None:
    import numpy as np

    with pytest.raises(TilewrightError, match="lies in the host's memory"):
        device_view_of("x", np.ones((2, 3), np.float32), 0)
    with pytest.raises(TilewrightError, match="'x' is a int, which gives no array"):
        device_view_of("x", 3, 0)


def test_every_rungs_sidecar_can_be_read_again() -> None:
    family = load_family("transpose")
    for rung in family.rungs:
        for dtype in rung.dtypes:
            text = sidecar_text(family, rung, rung.launches[0], dtype)
            assert parse_sidecar(text, KERNELS / "transpose" / "x.toml").sizes["small"] == family.sizes["small"]


@pytest.mark.parametrize("family", load_families(), ids=lambda family: family.name)
def test_what_is_sized_is_a_macro_of_the_file(family: Family) -> None:
    """A define in front of ``constexpr int THREADS = 256;`` would not compile on a card, where nobody looks."""
    for rung in family.rungs:
        text = rung.file.read_text("utf-8")
        for name in rung.sized:
            assert re.search(rf"^ *# *define {name}\b", text, re.M), (rung.name, name)
            assert not re.search(rf"constexpr int {name} =", text), (rung.name, name)
