"""Launches in host code, and host expressions in the sidecar's words."""

from __future__ import annotations

import pytest

from tilewright.errors import TilewrightError
from tilewright.launch.expressions import Name
from tilewright.launch.host_code import definitions, instantiations_of, launch_sites
from tilewright.launch.host_expressions import read_host_expression, shown
from tilewright.launch.kernel_names import launches_of
from tilewright.source.reader import open_kernel, read_source
from tilewright.workflow.draft.plan import Plan, parameters_of, planned
from tilewright.workflow.template_arguments import other_instantiation, template_arguments

HOST = """\
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define RUN(T, M) k<T, M><<<1, 1>>>(a)
// k<<<9, 9>>>(comment);
namespace host {
void run(const torch::Tensor& t, int M, int N) {
  const int BM = 128, BN = 64;
  constexpr int NT{256};
  dim3 grid((N + BN - 1) / BN, CEIL_DIV(M, BM));
  dim3 block; block.x = NT;
  const char* text = "k<<<8, 8>>>(x)";
  if (M > 0) k<float, BM><<<grid, block, 2 * BM * sizeof(float), stream>>>(t.data_ptr<float>(), M, (int)N);
}
}
"""


def test_the_launches_of_a_file() -> None:
    macro, site = launch_sites(HOST, "k")
    assert macro.in_macro
    assert not site.in_macro
    assert site.template == ("float", "BM")
    assert site.config == ("grid", "block", "2 * BM * sizeof(float)", "stream")
    assert site.arguments == ("t.data_ptr<float>()", "M", "(int)N")
    assert HOST[site.start : site.end].startswith("k<float")
    assert HOST[site.statement :].startswith("if (M > 0)")
    assert HOST[site.function :].lstrip().startswith("void run")


def test_locals_of_the_host_function() -> None:
    known = definitions(HOST, launch_sites(HOST, "k")[1])
    assert known["BM"] == "128"
    assert known["BN"] == "64"
    assert known["NT"] == "256"
    assert known["grid"] == "dim3((N + BN - 1) / BN, CEIL_DIV(M, BM))"
    assert known["block.x"] == "NT"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("(N + BN - 1) / BN", "ceil_div(N, BN)"),
        ("(M + 127) / 128", "ceil_div(M, 128)"),
        ("(M + 128) / 128", "(M + 128) // 128"),
        ("(M - 1) / BN + 1", "(M - 1) // BN + 1"),
        ("N >> 5", "N // 32"),
        ("ceil(float(N) / 32)", "ceil_div(N, 32)"),
        ("ceil(N / 32)", "N // 32"),  # C rounds down before ceil sees it
        ("ceil((float)(N / BN))", "N // BN"),
        ("ceil(N / 32.0f)", "ceil_div(N, 32)"),
        ("(int)ceil((N * 1.0) / BN)", "ceil_div(N, BN)"),
        ("std::ceil(static_cast<double>(N) / BN) / 2", "ceil_div(N, BN) // 2"),
        ("ceil((N + 15) / 16)", "ceil_div(N, 16)"),
        ("ceil((N + 15) / 16.0)", "ceil_div(N + 15, 16)"),
        ("ceil((int)(N / 16.0))", "N // 16"),
        ("ceil(real_n / BN)", "ceil_div(real_n, BN)"),
        ("N / 16.0", "N // 16"),
        ("cdiv(M, 4) * 2", "ceil_div(M, 4) * 2"),
        ("static_cast<int>(a.x) / (b * 2)", "a_x // (b * 2)"),
        ("a - (b - c)", "a - (b - c)"),
        ("32U * 2", "64"),
        ("010 * 2 + 0 + 00", "16"),
        ("a / b / c", "a // b // c"),
    ],
)
def test_expressions(text: str, want: str) -> None:
    node = read_host_expression(text, lambda name: Name(name.replace(".", "_")), is_real=lambda n: n == "real_n")
    assert node is not None
    assert shown(node) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [("ceil(UP(N))", "N // 16"), ("ceil(REAL(N))", "ceil_div(N, 16)"), ("UP(N)", "N // 16")],
)
def test_what_a_macro_computes_in_decides_too(text: str, want: str) -> None:
    bodies = {"UP": "({} / 16)", "REAL": "({} / 16.0)"}
    node = read_host_expression(text, Name, lambda f, a: bodies[f].format(*a) if f in bodies else None)
    assert node is not None
    assert shown(node) == want


@pytest.mark.parametrize(
    ("host", "grid"),
    [
        ("k<<<ceil(n / 32), 32>>>(a, n);", "n // 32"),
        ("k<<<ceil(n / 32.0), 32>>>(a, n);", "ceil_div(n, 32)"),
        ("float m = n; k<<<ceil(m / 32), 32>>>(a, n);", "ceil_div(n, 32)"),
        ("auto m = 1.0f * n; k<<<ceil(m / 32), 32>>>(a, n);", "ceil_div(n, 32)"),
        ("int m = n / 32.0; k<<<ceil(m), 32>>>(a, n);", "n // 32"),
        ("float m = n / 32; k<<<ceil(m), 32>>>(a, n);", None),
        ("k<<<ceil(n * 0.5f), 32>>>(a, n);", None),
    ],
)
def test_a_grid_is_what_the_host_code_computes(host: str, grid: str | None) -> None:
    text = f"__global__ void k(float *a, int n) {{ a[n] = 1; }}\nvoid run(float *a, int n) {{ {host} }}\n"
    source = read_source(text.encode(), "k.cu")
    opened = open_kernel(source, source.kernel(None), {})
    parameters = parameters_of(opened)
    assert isinstance(parameters, tuple)
    found = planned(opened, parameters)
    assert isinstance(found, Plan) == (grid is not None), found
    if isinstance(found, Plan):
        assert found.grid[0] == grid


ODD = [
    "ceil(N * 0.5)",
    "N / 16.0 * 2",
    "ceil(N / 16.0 + 1)",
    "a ? b : c",
    "f(x)",
    "a[0]",
    "",
    "x &",
    "sizeof(Thing)",
    "a << b",
    "08",
    "1e999",
    "-" * 900 + "1",
    "(" * 900,
]


@pytest.mark.parametrize("text", ODD)
def test_what_cannot_be_said_is_none(text: str) -> None:
    assert read_host_expression(text, Name) is None


KERNEL = """\
constexpr int TM = 8;
template <int BM, int BK, typename T = float, int Z = 4>
__global__ void k(const T* a, T* b, int n) {{ b[n] = a[n] + BM + BK + Z; }}
{host}
"""


def arguments(host: str) -> tuple[dict[str, str], str]:
    source = read_source(KERNEL.format(host=host).encode(), "k.cu")
    found = template_arguments(source, source.kernel(None), None)
    return found.values, found.note


def test_names_of_the_host_function_are_replaced() -> None:
    values, note = arguments(
        "void run(int n) { const int BM = 128, W = 4; constexpr int BK = W * 2; k<BM, BK><<<n, 1>>>(n); }"
    )
    assert values == {"BM": "128", "BK": "8", "T": "float", "Z": "4"}
    assert not note


def test_names_of_the_file_stay() -> None:
    assert arguments("void run(int n) { k<TM * 2, TM><<<n, 1>>>(n); }")[0]["BM"] == "TM * 2"


def test_the_first_of_several_launches_is_told() -> None:
    values, note = arguments("void run(int n) { k<64, 8><<<n, 1>>>(n); k<32, 8><<<n, 1>>>(n); }")
    assert values["BM"] == "64"
    assert "<32, 8>" in note


def test_an_instantiation_of_the_host_template() -> None:
    host = "template <int S> void run(int n) { k<S, 8><<<n, 1>>>(n); }\ntemplate void run<96>(int);"
    assert arguments(host)[0]["BM"] == "96"


def test_a_macro_that_launches() -> None:
    host = "#define RUN(S) k<S, 8><<<1, 1>>>(n)\nvoid run(int n) { RUN(48); }"
    assert arguments(host)[0]["BM"] == "48"


INSTANCE = "template __global__ void k<{}, 8>(const float*, float*, int);"


def test_an_explicit_instantiation_says_what_no_launch_does() -> None:
    unknown = "void run(int n) { k<n, 8><<<1, 1>>>(n); }"
    for host in (INSTANCE.format("(TM > 4)"), f"{unknown}\n{INSTANCE.format('(TM > 4)')}"):
        assert arguments(host)[0] == {"BM": "(TM > 4)", "BK": "8", "T": "float", "Z": "4"}
    values, note = arguments(f"{INSTANCE.format(64)}\n// {INSTANCE.format(48)}\n{INSTANCE.format(32)}")
    assert values["BM"] == "64"
    assert "line 4; the file also instantiates <32, 8>" in note
    known = "void run(int n) { k<16, 8><<<n, 1>>>(n); }"
    assert arguments(f"{INSTANCE.format(64)}\n{known}")[0]["BM"] == "16"  # what is launched is what is meant


def test_where_an_instantiation_is_found() -> None:
    text = (
        "template <> struct k<4>; void f() { a.template k<8>(); }\nextern template void ns::k<f<1, 2>>(int (*)(int));"
    )
    (one,) = instantiations_of(text, "ns::k")
    assert (one.line, one.template, text[one.end or 0 :]) == (2, ("f<1, 2>",), ");")
    assert not instantiations_of(text, "other::k")
    (one,) = instantiations_of("template decltype(k<8>) k<8>;", "k")
    assert one.end is None
    (one,) = instantiations_of("#define K(n) \\\n template void k<n>(int);\n", "k")
    assert one.in_macro


@pytest.mark.parametrize(("other", "refused"), [("TM * 4", False), ("32", False), ("64", True)])
def test_one_file_makes_one_instance(other: str, refused: bool) -> None:
    host = f"{INSTANCE.format(32)}\n{INSTANCE.format(other)}"
    source = read_source(KERNEL.format(host=host).encode(), "k.cu")
    found = other_instantiation(source, source.kernel(None), ("32", "8", "float", "4"))
    assert (found is not None) == refused
    if found is not None:
        assert ("k<64, 8>" in found.message, found.line) == (True, 5)


@pytest.mark.parametrize(
    "host",
    ["", "template <int S> void run(int n) { k<S, 8><<<n, 1>>>(n); }", "void run(int n) { k<n, 8><<<1, 1>>>(n); }"],
)
def test_what_only_the_running_host_knows_is_asked_for(host: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        arguments(host)
    assert caught.value.code == "source/template_arguments"


def test_a_name_is_looked_up_from_the_inside_out() -> None:
    text = (
        "namespace a { void f() { k<1><<<1, 1>>>(); a::k<2><<<1, 1>>>(); ::k<3><<<1, 1>>>(); } }\n"
        "namespace a::b { void f() { k<4><<<1, 1>>>(); } }\n"
        "namespace { void f() { k<5><<<1, 1>>>(); c::k<6><<<1, 1>>>(); } }\n"
    )
    names = ("k", "a::k")
    own = {name: [s.template[0] for s in launches_of(text, name, names)[0]] for name in names}
    assert own == {"k": ["3", "5"], "a::k": ["1", "2", "4"]}
    assert [s.template for s in launches_of(text, "k", names)[1]] == [("6",)]
    assert len(launches_of(text, "a::k", {"a::k"})[0]) == 6  # nothing else is called so


def test_kernels_of_one_name_are_both_named() -> None:
    kernel = "__global__ void k(int *a) { a[0] = 1; }"
    two = read_source(f"namespace a {{ {kernel} }}\nnamespace b {{ {kernel} }}".encode(), "k.cu")
    for name in (None, "k"):
        with pytest.raises(TilewrightError, match=r"a::k.* b::k") as caught:
            two.kernel(name)
        assert (caught.value.code, "--kernel a::k" in caught.value.hint) == ("source/several_kernels", True)
    assert two.kernel("b::k").line == 2
    mixed = read_source(f"{kernel}\nnamespace b {{ {kernel} }}".encode(), "k.cu")
    assert mixed.kernel("k").line == 1
