"""Lines of edited text lead back to the lines they came from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilewright.source.edits import Edit, finish
from tilewright.source.line_map import LineMap, original_line

TEXT = "\n".join(f"line {i};" for i in range(1, 11)) + "\n"


@given(st.lists(st.tuples(st.integers(1, 10), st.integers(0, 3), st.integers(0, 2)), max_size=4))
def test_every_kept_line_leads_back(cuts: list[tuple[int, int, int]]) -> None:
    """``cuts``: at the start of a line, drop so many lines and put in so many others."""
    raw = TEXT.encode()
    starts = [0] + [i + 1 for i, c in enumerate(raw) if c == 10]
    edits, busy = [], 0
    for line, dropped, added in sorted(cuts):
        end = min(line - 1 + dropped, 10)
        if line > busy:
            edits.append(Edit(starts[line - 1], starts[end], "new;\n" * added))
            busy = max(end, line)
    after = finish(raw, edits)
    back = LineMap.of(raw, edits)
    for number, text in enumerate(after.splitlines(), 1):
        if text.startswith("line"):
            assert back.old(number) == int(text.split()[1].rstrip(";"))
        else:
            assert 1 <= back.old(number) <= 11


def test_maps_chain() -> None:
    raw = TEXT.encode()
    first = [Edit(0, 0, "a\nb\n")]
    once = finish(raw, first).encode()
    second = [Edit(0, 0, "c\n")]
    maps = [LineMap.of(raw, first), LineMap.of(once, second)]
    twice = finish(once, second).splitlines()
    assert original_line(maps, twice.index("line 7;") + 1) == 7
