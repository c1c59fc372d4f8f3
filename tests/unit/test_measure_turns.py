"""Turns at one card, between real processes: who keeps whom out, who comes first, what the dead leave behind."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.measure.turns import FileTurns, Turns

# A process that holds the card as it is told, line by line, and says so.
HOLDER = """
import sys, pathlib
from contextlib import ExitStack
from tilewright.measure.turns import FileTurns
held_s = float(sys.argv[2]) or None
turns, stack = FileTurns(pathlib.Path(sys.argv[1]), held_s=held_s), ExitStack()
for line in sys.stdin:
    word = line.strip()
    if word == "end":
        stack.close()
    else:
        stack.enter_context(getattr(turns, word)())
    print(word, flush=True)
"""


class Holder:
    def __init__(self, folder: Path, held_s: float = 0.0) -> None:
        words = [sys.executable, "-c", HOLDER, str(folder), str(held_s)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def ask(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def get(self) -> str:
        assert self.process.stdout is not None
        assert not waits(self, 20.0), "no answer"
        return self.process.stdout.readline().strip()

    def now(self, word: str) -> None:
        self.ask(word)
        assert self.get() == word

    def close(self) -> str:
        self.process.kill()
        return self.process.communicate()[1]


class Holders:
    def __init__(self, folder: Path) -> None:
        self._folder, self.all = folder, list[Holder]()

    def __call__(self, held_s: float = 0.0) -> Holder:
        self.all.append(Holder(self._folder, held_s))
        return self.all[-1]


@pytest.fixture
def holders(tmp_path: Path) -> Iterator[Holders]:
    made = Holders(tmp_path / "turns")
    yield made
    for one in made.all:
        one.close()


def waits(holder: Holder, seconds: float = 0.3) -> bool:
    """Nothing was said for so long."""
    assert holder.process.stdout is not None
    return not select.select([holder.process.stdout], [], [], seconds)[0]


def test_who_has_the_card_alone_has_it_alone(holders: Holders) -> None:
    a, b, c = holders(), holders(), holders()
    a.now("shared")
    b.now("shared")  # two may prepare
    c.ask("alone")
    assert waits(c)
    a.now("end")
    assert waits(c, 0.1)
    b.now("end")
    assert c.get() == "alone"
    a.ask("shared")
    assert waits(a)
    c.now("end")
    assert a.get() == "shared"


def test_who_comes_later_does_not_overtake_who_wants_it_alone(holders: Holders) -> None:
    a, b, c = holders(), holders(), holders()
    a.now("shared")
    b.ask("alone")
    assert waits(b)
    c.ask("shared")  # the card is shared at this moment, and yet
    assert waits(c)
    a.now("end")
    assert b.get() == "alone"
    assert waits(c, 0.1)
    b.now("end")
    assert c.get() == "shared"


def test_two_that_have_it_shared_may_both_want_it_alone(holders: Holders) -> None:
    a, b = holders(), holders()
    a.now("shared")
    b.now("shared")
    a.ask("alone")
    assert waits(a)
    b.ask("alone")  # gives back what it shares, or they would wait for each other
    assert a.get() == "alone"
    assert waits(b, 0.1)
    a.ask("end")
    assert b.get() == "alone"
    assert waits(a, 0.1)  # on its way back it shares the card once more, and not with b
    b.now("end")
    assert a.get() == "end"


@pytest.mark.parametrize("word", ["shared", "alone"])
def test_what_the_dead_held_is_free(holders: Holders, word: str) -> None:
    a, b, c = holders(), holders(), holders()
    a.now(word)
    b.ask("alone")
    assert waits(b)
    a.close()
    assert b.get() == "alone"
    c.ask("shared")  # as is what one was waiting in
    assert waits(c)
    d = holders()
    d.ask("alone")
    c.close()
    b.now("end")
    assert d.get() == "alone"


def test_one_that_hangs_is_ended_with_its_traceback(holders: Holders) -> None:
    a, b = holders(0.5), holders()
    a.now("alone")
    b.now("shared")
    assert a.process.wait(10) == 1
    assert "Timeout" in a.close()


# Within a process: what is held, in which order, and that all has ended before it is given back.


def test_what_is_held_inside_of_what(tmp_path: Path) -> None:
    settled = list[str]()
    turns = FileTurns(tmp_path, settle=lambda: settled.append(turns.held), held_s=None)

    def holds(held: str) -> bool:
        return turns.held == held

    with turns.shared():
        with turns.alone():
            assert holds("alone")
            with turns.shared():  # less than what is held already
                assert holds("alone")
        assert holds("shared")
        with turns.aside():
            assert holds("")
        assert holds("shared")
        with turns.shared():
            turns.step_aside()
            assert holds("")
            turns.step_back()
            assert holds("alone")
        assert holds("shared")
        turns.step_aside()  # what comes behind it raises, and nobody steps back
    assert holds("")
    turns.step_back()
    assert holds("")
    with turns.alone():
        turns.step_aside()  # it would lose what it measures
        assert holds("alone")
    assert settled == ["shared", "alone", "shared", "shared", "alone", "shared", "alone"]
    assert turns.told().startswith("waiting 0.0 s, shared ")


def test_what_raises_gives_the_card_back(tmp_path: Path) -> None:
    def broken() -> None:
        raise RuntimeError("the card is gone")

    one, other = FileTurns(tmp_path, settle=broken, held_s=None), FileTurns(tmp_path, held_s=None)
    with pytest.raises(RuntimeError, match="is gone"), one.alone():
        pass
    with other.alone():  # or this would wait for ever
        assert other.held == "alone"


def test_nobody_else_is_there() -> None:
    turns = Turns()
    with turns.shared(), turns.alone(), turns.aside():
        turns.step_aside()
        turns.step_back()
    assert (turns.told(), turns.at_once) == ("", 1)


# Many at the same: what a twin without the turnstile, or with shared locks alone, would get wrong.

CROWD = """
import os, sys, pathlib, random, time
from tilewright.measure.turns import FileTurns
folder, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2])
turns, random = FileTurns(folder), random.Random(seed)
log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
say = lambda text: os.write(log, f"{seed} {text}\\n".encode())
for _ in range(25):
    with turns.shared():
        say("+shared")
        time.sleep(random.random() * 0.004)
        say("-shared")
        with turns.alone():
            say("+alone")
            time.sleep(random.random() * 0.002)
            say("-alone")
"""


def test_a_crowd_keeps_its_turns(tmp_path: Path) -> None:
    (tmp_path / "turns").mkdir()
    words = [sys.executable, "-c", CROWD, str(tmp_path / "turns")]
    begin = time.monotonic()
    crowd = [subprocess.Popen([*words, str(seed)]) for seed in range(4)]
    assert [one.wait(60) for one in crowd] == [0] * 4
    shared, alone, count = set[str](), set[str](), 0
    for line in (tmp_path / "turns" / "log").read_text().splitlines():
        who, word = line.split()
        group = alone if word.endswith("alone") else shared
        (group.add if word[0] == "+" else group.discard)(who)
        assert not alone or len(alone | shared) == 1
        count += word == "+alone"
    assert count == 100
    assert time.monotonic() - begin < 60
