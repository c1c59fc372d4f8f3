"""Lines of an edited text, and what they were before."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.source.edits import Edit


@dataclass(frozen=True)
class LineMap:
    """Lines of an edited text → lines of the text before.

    Attributes:
        starts, lines: from line ``starts[i]`` of the new text on, the old line is ``lines[i]``, moving on with it where
            ``moves[i]`` and standing still inside replaced text.
    """

    starts: tuple[int, ...] = (1,)
    lines: tuple[int, ...] = (1,)
    moves: tuple[bool, ...] = (True,)

    def old(self, line: int) -> int:
        """The old line of a new one."""
        i = max(bisect_right(self.starts, line) - 1, 0)
        return self.lines[i] + (line - self.starts[i] if self.moves[i] else 0)

    @staticmethod
    def of(text: bytes, edits: Sequence[Edit]) -> LineMap:
        """The map of one group of edits."""
        starts, lines, moves = [1], [1], [True]
        new = old = 1
        at = 0
        for edit in sorted(edits, key=lambda e: (e.start, e.end)):
            kept = text.count(b"\n", at, edit.start)
            new, old, at = new + kept, old + kept, edit.end
            added, dropped = edit.text.count("\n"), text.count(b"\n", edit.start, edit.end)
            whole = edit.start == 0 or text[edit.start - 1 : edit.start] == b"\n"
            if added != dropped:
                # Inserted lines are the line that they stand at; what follows the edit moves on with its own.
                if added:
                    starts.append(new if whole else new + 1)
                    lines.append(old)
                    moves.append(False)
                behind = 0 if added or whole else 1
                starts.append(new + added + behind)
                lines.append(old + dropped + behind)
                moves.append(True)
            new, old = new + added, old + dropped
        return LineMap(tuple(starts), tuple(lines), tuple(moves))


def original_line(maps: Sequence[LineMap], line: int) -> int:
    """A line of the last text → the line of the first; ``maps``: one for each group of edits, the first one first."""
    for one in reversed(maps):
        line = one.old(line)
    return line
