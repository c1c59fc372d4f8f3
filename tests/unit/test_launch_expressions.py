"""The expression language: values as Python has them, and messages for everything else."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.errors import TilewrightError
from tilewright.launch.expressions import Place, parse, parse_call

NAMES = {"M": 208, "N": 144, "K": 72, "BM": 64, "BK": 32, "alpha": 0.5}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ceil_div(N, BM)", 3),
        ("ceil_div(N, 144)", 1),
        ("ceil_div(0, BM)", 0),
        ("2 ** 3 ** 2", 512),
        ("-2 ** 2", -4),
        ("2 ** -1", 0.5),
        ("-7 // 2", -4),
        ("-7 % 5", 3),
        ("10 - 4 - 3", 3),
        ("2 * (3 + 4)", 14),
        ("min(M, N, K)", 72),
        ("max(1, K)", 72),
        ("sqrt(16)", 4.0),
        ("0x10 + 1e2 + .5 + 1.", 117.5),
        ("alpha * 2", 1.0),
        ("+ - - 3", 3),
    ],
)
def test_values(text: str, value: float) -> None:
    assert parse(text).evaluate(NAMES) == value


def test_division_of_integers_is_exact_where_it_divides() -> None:
    whole = parse("2**100 / 2**40").evaluate({})
    assert whole == 2**60
    assert isinstance(whole, int)
    assert parse("K / BK").evaluate(NAMES) == 2.25
    with pytest.raises(TilewrightError, match=r"2\.25, and a whole number is needed\. Use // or ceil_div"):
        parse("K / BK").evaluate_int(NAMES)
    assert parse("6 / 2.0").evaluate_int({}) == 3


_leaf = st.one_of(st.integers(0, 9).map(str), st.sampled_from(sorted(NAMES)))
_tree = st.recursive(
    _leaf,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "/"]), inner).map(" ".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"-{text}"),
        st.tuples(inner, inner).map(lambda pair: f"min({pair[0]}, {pair[1]})"),
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(_tree)
def test_precedence_is_pythons(text: str) -> None:
    try:
        expected = eval(text, {"__builtins__": {}, "min": min, **NAMES})
    except ZeroDivisionError:
        with pytest.raises(TilewrightError, match="division by zero"):
            parse(text).evaluate(NAMES)
        return
    assert math.isclose(parse(text).evaluate(NAMES), expected, rel_tol=1e-12)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("", "bad_expression", "empty"),
        ("N N", "bad_expression", "unexpected 'N'"),
        ("(1", "bad_expression", "')' is missing before the end"),
        ("1 +", "bad_expression", "unexpected the end"),
        ("N)", "bad_expression", "unexpected ')'"),
        ("a.b", "bad_expression", "unexpected '.'"),
        ("__import__('os')", "bad_expression", "unexpected '''"),
        ("M if N else K", "bad_expression", "unexpected 'if'"),
        ("(" * 100, "bad_expression", "nesting"),
        ("1+" * 300 + "1", "bad_expression", "characters"),
        ("ceil_div(1)", "bad_expression", "takes 2 arguments and got 1"),
        ("min()", "bad_expression", "at least 1"),
        ("exec(1)", "unknown_function", "ceil_div, min, max, sqrt"),
        ("1 // 0", "bad_value", "division by zero"),
        ("ceil_div(M, 0)", "bad_value", "division by zero"),
        ("9 ** 9 ** 9 ** 9", "bad_value", "out of range"),
        ("1e308 * 1e308", "bad_value", "out of range"),
        ("sqrt(0 - 1)", "bad_value", "out of range"),
        ("(0 - 8) ** 0.5", "bad_value", "root of a negative"),
    ],
)
def test_errors(text: str, code: str, words: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        parse(text, Place("k.toml", 7)).evaluate(NAMES)
    assert caught.value.code == f"launch/{code}"
    assert words in caught.value.message
    assert caught.value.place == "k.toml:7"
    assert caught.value.exit_code == 2


def test_unknown_name_says_what_is_known() -> None:
    with pytest.raises(TilewrightError, match=r"'BMM' in 'ceil_div\(M, BMM\)' is not known; known are BK, BM, K"):
        parse("ceil_div(M, BMM)").evaluate(NAMES)
    with pytest.raises(TilewrightError, match="Did you mean 'BM'"):
        parse("BMM").evaluate(NAMES)


def test_long_flat_expression_does_not_recurse_too_deep() -> None:
    assert parse("+".join("1" * 200)).evaluate({}) == 200


def test_call_form_of_a_fill() -> None:
    name, arguments = parse_call("randint(-20, 2 * K)")
    assert name == "randint"
    assert [argument.evaluate(NAMES) for argument in arguments] == [-20, 144]
    for text in ("randint", "randint(1, 2) + 1", "3"):
        with pytest.raises(TilewrightError):
            parse_call(text)


def test_comparisons_give_one_or_zero_and_bind_least() -> None:
    assert [parse(f"2 {sign} 3").evaluate({}) for sign in ("==", "!=", "<", "<=", ">", ">=")] == [0, 1, 1, 1, 0, 0]
    assert parse("1 + 1 == 2 * 1").evaluate({}) == 1
    assert parse("(N > 1) * 5").evaluate(NAMES) == 5
    with pytest.raises(TilewrightError, match="unexpected '='"):
        parse("a = b")


def test_what_was_evaluated_goes_to_another_process_as_it_came() -> None:
    expression = parse("ceil_div(M, 128) ** 2")
    assert expression.evaluate({"M": 129}) == 4
    other = pickle.loads(pickle.dumps(expression))
    assert other == expression
    assert other.evaluate({"M": 257}) == 9
    assert other.names() == {"M"}
