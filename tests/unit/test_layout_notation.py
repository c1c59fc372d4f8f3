"""CuTe's notation: what is printed is read back, and what is wrong is named with its place."""

from __future__ import annotations

import random

import pytest
from layout_oracle import Random

from tilewright.errors import TilewrightError
from tilewright.layout.algebra import compose
from tilewright.layout.layout import ComposedLayout, Layout, Swizzle
from tilewright.layout.notation import parse, parse_layout, parse_plain, parse_tiler, parse_tuple
from tilewright.layout.recast import downcast, recast, upcast
from tilewright.layout.tiling import divide, product


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("((2,2),4):((1,4),2)", ""),
        ("(8,64):(64,1)", ""),
        ("Sw<3,4,3> o 0 o (8,64):(64,1)", ""),
        ("Sw<2,3,-3>", ""),
        ("7:0", ""),
        ("8", "8:1"),
        ("(4,(2,3))", "(4,(2,3)):(1,(4,8))"),
        ("(_4,_8):(_8,_1)", "(4,8):(8,1)"),
        (" ( 4 , 8 ) : ( 8 , 1 ) ", "(4,8):(8,1)"),
        ("Sw<3,4,3>o 16 o(8,64):(64,1)", "Sw<3,4,3> o 16 o (8,64):(64,1)"),
        ("(4,):(2,)", "(4):(2)"),
    ],
)
def test_read_and_printed(text: str, printed: str) -> None:
    assert str(parse(text)) == (printed or text)


def test_random_layouts_come_back() -> None:
    random_layouts = Random(11)
    for i in range(300):
        layout = random_layouts.layout()
        assert parse(str(layout)) == layout
        whole = ComposedLayout(Swizzle(i % 4, i % 3, 4), i % 7, layout)
        assert parse(str(whole)) == whole


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("((2,2),4", 9, "need ')' or ',', have the end"),
        ("4:", 3, "need a number or '('"),
        ("(2,3):(1,2,3)", 1, "nests as the shape (2,3) does"),
        ("Sw<3,4>", 7, "need ','"),
        ("4:1 x", 5, "need the end, have 'x'"),
        ("", 1, "need a number"),
        ("()", 2, "need a number"),
        ("(2,,3)", 4, "need a number"),
        ("(2 3)", 4, "need ')' or ','"),
        ("Sw<3,4,3> o (8,64):(64,1)", 13, "offset"),
        ("Sw<3,4,3> o 0 (8,64)", 15, "'o'"),
        ("four", 1, "need a number"),
    ],
)
def test_errors_name_the_position(text: str, position: int, words: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        parse(text)
    assert caught.value.code == "layout/notation"
    assert caught.value.facts["position"] == position
    assert words in caught.value.message


@pytest.mark.parametrize("text", ["(0,2)", "4:-1", "Sw<2,0,1>", "Sw<1,2,3> o -1 o 4:1"])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(TilewrightError):
        parse(text)


def test_a_layout_is_needed_not_a_swizzle_or_none_on_top() -> None:
    with pytest.raises(TilewrightError, match="a layout is needed"):
        parse_layout("Sw<3,4,3>")
    with pytest.raises(TilewrightError, match="a plain layout is needed"):
        parse_plain("Sw<3,4,3> o 0 o (8,64):(64,1)")


def test_noise_is_an_error_and_never_a_crash() -> None:
    rng = random.Random(5)
    for _ in range(3000):
        text = "".join(rng.choice("()<>:,_ 0123Swo-") for _ in range(rng.randrange(12)))
        for read in (parse, parse_tiler, parse_tuple):
            try:
                read(text)
            except TilewrightError as error:
                assert error.code.startswith("layout/")  # noqa: PT017
    for text in ("(" * 5000, "<" * 5000):
        with pytest.raises(TilewrightError):
            parse_tiler(text)


def test_tilers() -> None:
    assert parse_tiler("<4:1,_,(2,2)>") == (Layout(4, 1), None, Layout((2, 2), (1, 2)))
    assert parse_tiler("<<2,_>,3>") == ((Layout(2, 1), None), Layout(3, 1))
    assert parse_tiler("4:2") == Layout(4, 2)
    for text in ("<4:1", "<>", "<4>>", "<4;2>"):
        with pytest.raises(TilewrightError):
            parse_tiler(text)


# Worked examples of the documentation of the algebra ("CuTe Layout Algebra").
@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("(6,2):(8,2)", "(4,3):(3,1)", "((2,2),3):((24,2),8)"),
        ("20:2", "(5,4):(4,1)", "(5,4):(8,2)"),
        ("(10,2):(16,4)", "(5,4):(1,5)", "(5,(2,2)):(16,(80,4))"),
        ("(12,(4,8)):(59,(13,1))", "<3:4,8:2>", "(3,(2,4)):(236,(26,1))"),
        ("(12,(4,8)):(59,(13,1))", "<_,8:2>", "(12,(2,4)):(59,(26,1))"),
        ("(8,4):(1,16)", "2:3", "2:3"),  # inside one mode: no divisibility needed
    ],
)
def test_compositions_of_the_documentation(a: str, b: str, expected: str) -> None:
    assert str(compose(parse_plain(a), parse_tiler(b))) == expected


@pytest.mark.parametrize(
    ("a", "b", "form", "expected"),
    [
        ("(4,2,3):(2,1,8)", "4:2", "logical", "((2,2),(2,3)):((4,1),(2,8))"),
        ("(9,(4,8)):(59,(13,1))", "<3:3,(2,4):(1,8)>", "logical", "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))"),
        ("(9,(4,8)):(59,(13,1))", "<3:3,(2,4):(1,8)>", "zipped", "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))"),
        ("(9,(4,8)):(59,(13,1))", "<3:3,(2,4):(1,8)>", "tiled", "((3,(2,4)),3,(2,2)):((177,(13,2)),59,(26,1))"),
        ("(9,(4,8)):(59,(13,1))", "<3:3,(2,4):(1,8)>", "flat", "(3,(2,4),3,(2,2)):(177,(13,2),59,(26,1))"),
        ("(8,6)", "<4,_>", "zipped", "((4,1),(2,6)):((1,0),(4,8))"),
    ],
)
def test_divides_of_the_documentation(a: str, b: str, form, expected: str) -> None:
    assert str(divide(parse_plain(a), parse_tiler(b), form)) == expected


@pytest.mark.parametrize(
    ("a", "b", "form", "expected"),
    [
        ("(2,2):(4,1)", "6:1", "logical", "((2,2),(2,3)):((4,1),(2,8))"),
        ("(2,2):(4,1)", "(4,2):(2,1)", "logical", "((2,2),(4,2)):((4,1),(8,2))"),
        ("(2,5):(5,1)", "<3:5,4:6>", "logical", "((2,3),(5,4)):((5,10),(1,30))"),
        ("(2,5):(5,1)", "<3:5,4:6>", "flat", "(2,5,3,4):(5,1,10,30)"),
        ("(2,5):(5,1)", "(3,4):(1,3)", "blocked", "(6,(5,4)):(5,(1,30))"),
        ("(2,5):(5,1)", "(3,4):(1,3)", "raked", "((3,2),(4,5)):((10,5),(30,1))"),
        ("4:1", "2", "logical", "(4,2):(1,4)"),
    ],
)
def test_products(a: str, b: str, form, expected: str) -> None:
    found = product(parse_plain(a), parse_tiler(b), form)
    assert str(found) == expected


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("(8,64):(64,1)", 16, 8, "(8,128):(128,1)"),
        ("(8,64):(64,1)", 16, 32, "(8,32):(32,1)"),
        ("Sw<3,4,3> o 0 o (8,128):(128,1)", 8, 16, "Sw<3,3,3> o 0 o (8,64):(64,1)"),
        ("(8,4):(1,8)", 32, 32, "(8,4):(1,8)"),
    ],
)
def test_recast(text: str, old: int, new: int, expected: str) -> None:
    assert str(recast(parse_layout(text), old, new)) == expected


@pytest.mark.parametrize(
    ("change", "text", "by"),
    [
        (upcast, "(3,4):(1,3)", 2),
        (upcast, "8:2", 4),
        (upcast, "Sw<3,1,3> o 0 o (8,64):(64,1)", 8),
        (upcast, "Sw<3,3,3> o 1 o (8,64):(64,1)", 2),
        (upcast, "Sw<3,3,3> o 0 o (9,64):(64,1)", 3),
        (upcast, "4:1", 0),
        (downcast, "8:2", 2),
        (downcast, "(2,2):(1,1)", 2),
    ],
)
def test_recasts_that_would_tear_elements_are_refused(change, text: str, by: int) -> None:
    with pytest.raises(TilewrightError) as caught:
        change(parse_layout(text), by)
    assert caught.value.code == "layout/recast"


@pytest.mark.parametrize(
    ("operation", "a", "b", "code"),
    [
        (compose, "(4,2):(1,8)", "(2,2):(2,2)", "layout/carries"),
        (compose, "(4,2):(1,8)", "6:1", "layout/shape_divisibility"),
        (compose, "(8,4):(1,16)", "4:3", "layout/stride_divisibility"),
        (compose, "4:1", "<2,2>", "layout/rank"),
        (divide, "4:1", "<2,2>", "layout/rank"),
        (divide, "12:1", "(2,2):(2,3)", "layout/no_complement"),
        (product, "(2,2):(1,1)", "2", "layout/no_complement"),
    ],
)
def test_what_has_no_layout_is_refused(operation, a: str, b: str, code: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        operation(parse_plain(a), parse_tiler(b))
    assert caught.value.code == code
