"""Cutting a file into declarations."""

from __future__ import annotations

import pytest

from tilewright.source.device_split import Item, split, tokens


def cut(text: str, loose: frozenset[str] = frozenset()) -> list[tuple[str, tuple[str, ...]]]:
    return [(item.kind, item.names) for item in split(tokens(text), loose) if item.kind != "directive"]


def only(text: str) -> Item:
    items = split(tokens(text))
    assert len(items) == 1, items
    return items[0]


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("void f(int a) { g({1, 2}); }", "function", "f"),
        ("template <int N = 3, class T = A<B<int>>> __global__ void k(T* a) { }", "function", "k"),
        ("__global__ void __launch_bounds__(128, 2) k(int* a) { }", "function", "k"),
        ('extern "C" __global__ void k(int* a) { }', "function", "k"),
        ('extern"C" void f() { }', "function", "f"),
        ("struct Result make(int a) { return {}; }", "function", "make"),
        ("auto f(int a) -> decltype(a) { return a; }", "function", "f"),
        ("A::A(int x) : a(x), b{x} { }", "function", "A"),
        ("std::vector<int> f() { }", "function", "f"),
        ("bool operator==(const A& a, const A& b) { return true; }", "function", "operator"),
        ("A& A::operator=(const A& a) { return *this; }", "function", "operator"),
        ("void f(int a);", "prototype", "f"),
        ("template void k<3>(int*);", "prototype", "k"),
        ("struct __align__(16) A { int x; };", "type", "A"),
        ("class A : public B<int> { };", "type", "A"),
        ("struct A;", "type", "A"),
        ("enum class E : int { one, two };", "type", "E"),
        ("using T = float;", "alias", "T"),
        ("typedef float (*F)(int);", "alias", "F"),
        ("namespace cg = cooperative_groups;", "alias", "cg"),
        ("using namespace std;", "using_namespace", "std"),
        ("constexpr int N = 4;", "variable", "N"),
        ("static const float table[2] = {1.f, 2.f};", "variable", "table"),
        ("int brace{3};", "variable", "brace"),
        ("auto lambda = [](int a) { return a; };", "variable", "lambda"),
        ('static_assert(sizeof(int) == 4, "x");', "static_assert", "static_assert"),
        ("REGISTER(x, y);", "macro_call", "REGISTER"),
        ('PYBIND11_MODULE(name, m) { m.def("f", &f); }', "macro_call", "PYBIND11_MODULE"),
    ],
)
def test_kinds_and_names(text: str, kind: str, name: str) -> None:
    item = only(text)
    assert item.kind == kind
    assert name in item.names
    last = tokens(text)[item.last]
    assert last.end == len(text), "the declaration ends where the text ends"


def test_several_declarators() -> None:
    assert only("const int BM = 64, BN = 32;").names == ("BM", "BN")
    assert only("int a, b[4];").names == ("a", "b")


def test_an_enums_values_are_names() -> None:
    assert {"BM", "BN"} <= set(only("enum { BM = 64, BN = 32 };").names)


def test_scopes_and_classes_have_children() -> None:
    scope = only("namespace a { namespace { void f() {} } int x; }")
    assert [child.kind for child in scope.children] == ["scope", "variable"]
    linkage = only('extern "C" { void f() {} void g(); }')
    assert [child.kind for child in linkage.children] == ["function", "prototype"]
    members = only("struct A { public: A() : x(1) {} int x; private: void g() const { } struct B { int y; } b; };")
    assert [child.kind for child in members.children] == ["function", "variable", "function", "type"]


@pytest.mark.parametrize(
    "text",
    [
        'const char* s = "} void x() {"; void f() { }',
        "// } not code {\nint a; /* { */ void f() { }",
        'const char* s = R"cuda(" } ) { )cuda"; void f() { }',
        "char c[] = {'{', '\\''}; void f() { }",
        "int n = 1'000'000; void f() { }",
        "#if 0\n} { don't read this\n#endif\nint a; void f() { }",
        "#define OPEN { \\\n  {\nint a; void f() { }",
        "#ifdef A\nvoid f(int a) {\n#else\nvoid f(float a) {\n#endif\n}\nvoid f() { }",
        "int a; void f() {\n#ifdef A\n  if (a) {\n#else\n  {\n#endif\n  }\n}",
    ],
)
def test_what_looks_like_a_bracket_and_is_none(text: str) -> None:
    kinds = cut(text)
    assert kinds[-1] == ("function", ("f",))
    assert len(kinds) == 2


def test_statement_macros_need_no_semicolon() -> None:
    text = "CHECKED(x)\n__global__ void k() { }"
    assert cut(text) == [("function", ("CHECKED",))]
    assert cut(text, frozenset({"CHECKED"})) == [("macro_call", ("CHECKED",)), ("function", ("k",))]


def test_broken_text_is_left_alone() -> None:
    assert cut("void f() { if (") == [("unknown", ("f",))]
    assert cut("}}} ) ] int a;")[-1][0] != "function"
    assert cut("\x00\xff\\ @ `") == [("unknown", ())]


def test_token_offsets_are_the_texts() -> None:
    text = "a /* x */ b\n  #define C \\\n d\n\"s\" 'c' 1.0e+3f"
    assert [t.text for t in tokens(text)] == ["a", "b", "#define C \\\n d", '"s"', "'c'", "1.0e+3f"]
    assert all(text[t.start : t.end] == t.text for t in tokens(text))
