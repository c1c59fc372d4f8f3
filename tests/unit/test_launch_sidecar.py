"""The sidecar: what it reads, and that every wrong one names its line."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from launch_samples import CONSTANTS, GEMM, PARAMETERS, gemm_spec, gemm_text

from tilewright.errors import EXIT_BAD_INPUT, TilewrightError
from tilewright.launch.sidecar import check_against, find_sidecar, load_sidecar
from tilewright.launch.toml_lines import read_lines


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def test_an_instance_is_named_with_its_arguments(tmp_path: Path) -> None:
    path = tmp_path / "gemm.toml"
    for name in ("gemm<float, 64>", "ns::gemm <(A > B), f<2, 3>>"):
        path.write_text(GEMM.replace('kernel = "gemm"', f'kernel = "{name}"'))
        assert load_sidecar(path).kernel == name.split("<")[0].strip()
    assert load_sidecar(path).template == ("(A > B)", "f<2, 3>")
    assert find_sidecar(tmp_path / "gemm.cu", "gemm") == path
    path.write_text('template = ["32"]\n' + GEMM.replace('kernel = "gemm"', 'kernel = "gemm<64>"'))
    with pytest.raises(TilewrightError, match="Keep one of them") as caught:
        load_sidecar(path)
    assert (caught.value.code, caught.value.facts["line"]) == ("launch/template_arguments", 1)


def test_reads_everything(tmp_path: Path) -> None:
    (tmp_path / "ref.py").write_text("def reference(**inputs): return {}\n")
    (tmp_path / "headers").mkdir()
    path = tmp_path / "gemm.toml"
    path.write_text(
        'template = ["float", 64]\narch = "sm_86"\n'
        + GEMM
        + '[build]\ndefines = { FAST = 1, NAME = "x", ON = true }\ninclude = ["headers"]\nstd = "c++17"\n'
        + 'flags = ["--use_fast_math"]\n[reference]\nfile = "ref.py"\n[assume]\nno_alias = true\n'
    )
    spec = load_sidecar(path)
    assert (spec.kernel, spec.template, spec.arch) == ("gemm", ("float", "64"), "sm_86")
    assert spec.build.defines == {"FAST": "1", "NAME": "x", "ON": "true"}
    assert spec.build.include == (tmp_path / "headers",)
    assert (spec.build.std, spec.build.flags) == ("c++17", ("--use_fast_math",))
    assert spec.sizes["ragged"] == {"M": 17, "N": 9, "K": 5}
    assert [arg.name for arg in spec.args] == ["a", "b", "c", "M", "N", "K", "alpha"]
    assert [arg.role for arg in spec.args[:3]] == ["in", "in", "out"]
    assert spec.reference == tmp_path / "ref.py"
    assert spec.assume == {"no_alias": True}
    assert spec.args[2].line == line_of(path.read_text(), '[[args]]\nname = "c"')
    check_against(spec, PARAMETERS, CONSTANTS)


def test_missing_tables_have_defaults() -> None:
    spec = gemm_spec(('"ceil_div(N, BN)", "ceil_div(M, BM)", 1', '"ceil_div(N, BN)"'))
    assert spec.grid[1].evaluate_int({}) == 1
    assert spec.shared_bytes.evaluate_int({}) == 0
    assert spec.reference is None
    assert spec.build.flags == ()


# (what is replaced, by what, the part of the new text whose line the message must name, code, words)
WRONG = [
    ('kernel = "gemm"', "kernel = 3", "kernel = 3", "wrong_type", "kernel must be a text, and is an integer 3"),
    ('kernel = "gemm"\n', "", "[launch]", "missing_key", "kernel is missing"),
    ('kernel = "gemm"', 'kernal = "gemm"\nkernel = "gemm"', "kernal", "unknown_key", "kernal is not a key"),
    ("grid =", "gird =", "gird", "unknown_key", ""),
    ("[launch]", "[lanch]", "[lanch]", "unknown_key", "lanch is not a key"),
    ('grid = ["ceil_div(N, BN)", "ceil_div(M, BM)", 1]\n', "", "[launch]", "missing_key", "launch.grid is missing"),
    ('block = ["THREADS", 1, 1]', "block = [1, 1, 1, 1]", "block", "wrong_type", "1 to 3 expressions"),
    ('block = ["THREADS", 1, 1]', 'block = ["THREADS",\n  1,\n  []]', "  []", "wrong_type", "launch.block[2]"),
    ('"ceil_div(M, BM)"', '\n"ceil_div(M BM)"', '"ceil_div(M BM)"', "bad_expression", "')' is missing"),
    ("ragged = { M = 17", "ragged = { M = 1.5", "ragged", "wrong_type", "sizes.ragged.M must be an integer"),
    ("ragged = { M = 17", "ragged = { M = -1", "ragged", "bad_value", "0 or more"),
    ("ragged = { M = 17", "ragged = { L = 17", "ragged", "bad_value", "sizes.ragged has, and sizes.default lacks, 'L'"),
    ("default = {", "other = {", "[sizes]", "missing_key", "sizes.default is missing"),
    ('dtype = "float16"', 'dtype = "flaot16"', "flaot16", "unknown_dtype", "known are bool"),
    ('dtype = "float16"', 'dtype = "float4_e2m1fn"', "float4", "unknown_dtype", ""),
    ('role = "out"', 'role = "output"', '"output"', "bad_value", "known are in, out, inout"),
    ('role = "out"', 'role = "out"\nfill = "zeros()"', '"zeros()"', "bad_value", "poisoned before each run"),
    ('fill = "uniform(-1, 1)"', 'fill = "uniform(-1)"', "uniform", "bad_value", "takes 2 arguments"),
    ('fill = "uniform(-1, 1)"', 'fill = "gamma(-1)"', "gamma", "bad_value", "known are randint"),
    ('fill = "uniform(-1, 1)"', 'fils = "uniform(-1, 1)"', "fils", "unknown_key", "args[0].fils"),
    ('dtype = "float16"', 'dtype = "int8"', "uniform", "bad_value", "fill it with randint"),
    ('shape = ["K", "N"]', 'strides = ["N", 1]', '[[args]]\nname = "b"', "missing_key", "neither shape"),
    ('shape = ["K", "N"]', f"shape = {[1] * 33}", "[1, 1, 1, 1", "bad_value", "33 dimensions; at most 32"),
    ('shape = ["K", "N"]', 'shape = ["K", "N"]\nstrides = ["N"]', "strides", "bad_value", "2 dimensions and 1 stride"),
    ('shape = ["K", "N"]', 'shape = ["K", "N"]\noffset = 3', "offset", "bad_value", "belongs to alias_of"),
    ('value = "M"', 'value = "M"\nshape = ["M"]', 'shape = ["M"]', "bad_value", "for arrays"),
    ('name = "N"', 'name = "M"', 'name = "M"\ndtype = "int32"\nvalue = "N"', "duplicate", "two arguments"),
    ("alpha", "alpha\x00", "alpha", "bad_toml", "not valid TOML"),
    ('role = "out"', 'role = "out', 'role = "out', "bad_toml", "not valid TOML"),
    ("value = 0.5", "value = 0.5\n[reference]\nfile = 'nothere.py'", "file =", "no_reference", "nothere.py"),
    ("value = 0.5", "value = 0.5\n[assume]\nno_alais = true", "no_alais", "unknown_key", ""),
    ("value = 0.5", "value = 0.5\n[assume]\nno_alias = 1", "no_alias", "wrong_type", "true or false"),
    ("value = 0.5", "value = 0.5\n[build]\nstd = 'c++98'", "std", "bad_value", "c++17"),
    ("value = 0.5", "value = 0.5\n[build]\ndefines = { 'A B' = 1 }", "defines", "bad_value", "macro"),
    ("value = 0.5", "value = 0.5\n[build]\ninclude = ['.',\n  'no where']", "'no where'", "no_include", "no where"),
    (
        "value = 0.5",
        "value = 0.5\n[build]\ncompile_commands = 'c.json'",
        "compile",
        "not_supported",
        "not supported yet",
    ),
    ("value = 0.5", "value = 0.5\n[build]\nflags = '-G'", "flags", "wrong_type", "list of texts"),
]


@pytest.mark.parametrize(("old", "new", "part", "code", "words"), WRONG)
def test_wrong_sidecar_names_the_line(old: str, new: str, part: str, code: str, words: str, tmp_path: Path) -> None:
    text = gemm_text((old, new))
    path = tmp_path / "gemm.toml"
    path.write_text(text)
    with pytest.raises(TilewrightError) as caught:
        load_sidecar(path)
    error = caught.value
    assert error.code == f"launch/{code}", error
    assert words in error.message
    assert error.facts["file"] == str(path)
    if words == "kernel is missing":
        return  # a missing top-level key has no line
    assert error.facts["line"] == line_of(text, part)
    assert error.exit_code == EXIT_BAD_INPUT
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(TilewrightError, match="cannot be read"):
        load_sidecar(tmp_path / "none.toml")
    with pytest.raises(TilewrightError, match="cannot be read"):
        load_sidecar(tmp_path)
    rubbish = tmp_path / "rubbish.toml"
    rubbish.write_bytes(b"a = 1\n\xff\xfe")
    with pytest.raises(TilewrightError, match=r"rubbish.toml:2: .*not UTF-8"):
        load_sidecar(rubbish)


def test_aliases_are_checked() -> None:
    good = gemm_spec(('role = "out"', 'role = "out"\nalias_of = "a"'), ('dtype = "float32"', 'dtype = "float16"'))
    assert good.args[2].alias_of == "a"
    for other in ("z", "c", "M"):
        with pytest.raises(TilewrightError, match="not another array"):
            gemm_spec(('role = "out"', f'role = "out"\nalias_of = "{other}"'))
    with pytest.raises(TilewrightError, match="differ in width"):
        gemm_spec(('role = "out"', 'role = "out"\nalias_of = "a"'))


def test_find(tmp_path: Path) -> None:
    kernel = tmp_path / "file.v2.cu"
    assert find_sidecar(kernel) is None
    assert find_sidecar(tmp_path / "no" / "such.cu") is None
    (tmp_path / "file.v2.gemm.toml").write_text('kernel = "gemm"')
    assert find_sidecar(kernel) == tmp_path / "file.v2.gemm.toml"
    (tmp_path / "file.v2.other.toml").write_text("")
    assert find_sidecar(kernel) is None
    assert find_sidecar(kernel, "other") == tmp_path / "file.v2.other.toml"
    (tmp_path / "file.v2.toml").write_text('kernel = "third"')
    assert find_sidecar(kernel) == tmp_path / "file.v2.toml"
    assert find_sidecar(kernel, "gemm") == tmp_path / "file.v2.gemm.toml"
    assert find_sidecar(kernel, "third") == tmp_path / "file.v2.toml"
    assert find_sidecar(kernel, "fourth") is None
    assert find_sidecar(kernel, "ns::third") == tmp_path / "file.v2.toml"
    assert find_sidecar(kernel, "ns::gemm") == tmp_path / "file.v2.gemm.toml"
    (tmp_path / "file.v2.gemm.toml").write_text('kernel = "ns::gemm"')
    assert find_sidecar(kernel, "gemm") == find_sidecar(kernel, "ns::gemm") == tmp_path / "file.v2.gemm.toml"
    assert find_sidecar(kernel, "other_ns::gemm") is None
    (tmp_path / "file.v2.toml").write_text("rubbish")
    assert find_sidecar(kernel, "fourth") == tmp_path / "file.v2.toml"  # loading it says what is wrong


def altered(index: int, name: str, kind: str) -> list[tuple[str, str]]:
    return [*PARAMETERS[:index], (name, kind), *PARAMETERS[index + 1 :]]


@pytest.mark.parametrize(
    ("parameters", "part", "code", "words"),
    [
        (PARAMETERS[:6], '[[args]]\nname = "alpha"', "argument_count", "takes 6 arguments"),
        ([*PARAMETERS, ("beta", "float")], '[[args]]\nname = "alpha"', "argument_count", "takes 8 arguments"),
        (altered(3, "N", "int"), 'name = "M"', "argument_name", "is 'N'; the sidecar has 'M'"),
        (altered(0, "a", "__half"), '[[args]]\nname = "a"', "argument_type", "a scalar: give value"),
        (altered(3, "M", "int*"), '[[args]]\nname = "M"', "argument_type", "a pointer: give shape"),
        (altered(3, "M", "long long"), 'dtype = "int32"', "argument_type", "(int64), the argument is int32"),
        (altered(3, "M", "unsigned"), 'dtype = "int32"', "argument_type", "uint32"),
        (altered(6, "alpha", "const double"), 'dtype = "float32"\nvalue', "argument_type", "float64"),
        (altered(0, "a", "const float*"), 'dtype = "float16"', "argument_type", "(to float32), the array is float16"),
        (altered(0, "a", "const __nv_bfloat16*"), 'dtype = "float16"', "argument_type", "bfloat16"),
        (altered(0, "a", "std::int32_t *"), 'dtype = "float16"', "argument_type", "int32"),
        (altered(0, "a", "const int8_t* __restrict__"), 'dtype = "float16"', "argument_type", "(to int8)"),
        (altered(0, "a", "signed char const *"), 'dtype = "float16"', "argument_type", "(to int8)"),
        (altered(0, "a", "unsigned char*"), 'dtype = "float16"', "argument_type", "(to uint8)"),
        (altered(0, "a", "__nv_fp8_e4m3*"), 'dtype = "float16"', "argument_type", "(to float8_e4m3fn)"),
        (altered(0, "a", "double*"), 'dtype = "float16"', "argument_type", "(to float64)"),
    ],
)
def test_check_against_signature(parameters: list[tuple[str, str]], part: str, code: str, words: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        check_against(gemm_spec(), parameters, CONSTANTS)
    assert caught.value.code == f"launch/{code}"
    assert words in caught.value.message
    assert caught.value.facts["line"] == line_of(GEMM, part)


def test_check_against_accepts_storage_types() -> None:
    for kind in (
        "const unsigned short*",
        "const uint16_t *",
        "void const*",
        "std::byte*",
        "T*",
        "const half a[]",
        "uint4*",
    ):
        check_against(gemm_spec(), altered(0, "a", kind), CONSTANTS)
    check_against(gemm_spec(), altered(3, "", "T"), CONSTANTS)


def test_check_against_binds_every_set() -> None:
    with pytest.raises(TilewrightError, match="'BN' in 'ceil_div"):
        check_against(gemm_spec(), PARAMETERS, {"BM": 8, "THREADS": 64})
    with pytest.raises(TilewrightError, match=r"grid.y = ceil_div\(M, BM\) is 0"):
        check_against(gemm_spec(("empty = { M = 8", "empty = { M = 0")), PARAMETERS, CONSTANTS)


def test_a_block_must_keep_the_launch_bounds() -> None:
    check_against(gemm_spec(), PARAMETERS, CONSTANTS, max_threads=64)
    with pytest.raises(TilewrightError, match="has 64 threads; __launch_bounds__ of gemm allows 63") as caught:
        check_against(gemm_spec(), PARAMETERS, CONSTANTS, max_threads=63)
    assert caught.value.facts["line"] == line_of(GEMM, "block =")


def test_a_kernel_without_an_output_cannot_be_verified() -> None:
    with pytest.raises(TilewrightError, match="has no output") as caught:
        check_against(gemm_spec(('role = "out"', 'role = "in"')), PARAMETERS, CONSTANTS)
    assert caught.value.facts["line"] == line_of(GEMM, "[[args]]")
    check_against(gemm_spec(('role = "out"', 'role = "inout"')), PARAMETERS, CONSTANTS)


def test_lines_of_hard_toml() -> None:
    text = 's = """a\n[b]\n\\""""\n[x."y z".w]\n'
    text += "k.l = [ # [c]\n  1, {m = 2},\n]\n[[t]]\n[[t]]\nu = '#' # v\n[t.q]\nr = 1\n"
    lines = read_lines(text)
    assert lines.of(("s",)) == 1
    assert lines.of(("x", "y z", "w", "k", "l")) == 5
    assert lines.of(("x", "y z", "w", "k", "l", 1, "m")) == 6
    assert lines.of(("t", 1, "u")) == 10
    assert lines.of(("t", 1, "q", "r")) == 12
    assert lines.of(("t", 1, "nothing", "here")) == 9
    assert lines.of(("nothing",)) is None


def test_loading_a_sidecar_loads_no_numpy() -> None:
    code = "import sys, tilewright.launch.sidecar, tilewright.launch.executor; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
