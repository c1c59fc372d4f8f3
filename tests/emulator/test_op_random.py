"""Random programs of integer arithmetic, guards and branches, against one thread at a time in Python."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_harness import Program, signed

# %v0 … are kept in 32 bits; %w0 … in 64; %q0 … are predicates.
WORDS, WIDE, FLAGS = 6, 4, 4
MASK = {"v": 0xFFFFFFFF, "w": 0xFFFFFFFFFFFFFFFF, "q": 1}
DECLARATIONS = f".reg .b32 %v<{WORDS}>; .reg .b64 %w<{WIDE}>; .reg .pred %q<{FLAGS}>;"
EDGES = (0, 1, 2, 31, 32, 33, 63, 64, 255, -1, -2, 0x7FFFFFFF, -0x80000000, 0x55555555)
# Statements a thread may run: programs have loops, but these are bounded by their counters.
STEPS = 20_000


@dataclass
class Line:
    """An instruction: what is written, how, from what; or a branch to ``target``."""

    opcode: str
    result: str = ""
    operands: tuple[str | int, ...] = ()
    guard: str = ""
    target: str = ""
    label: str = ""

    def text(self) -> str:
        if self.label:
            return f"{self.label}:"
        guard = f"@{self.guard} " if self.guard else ""
        if self.target:
            return f"{guard}bra {self.target};"
        if not self.result:
            return f"{guard}{self.opcode};"
        return f"{guard}{self.opcode} {', '.join([self.result, *map(str, self.operands)])};"


@dataclass
class Writer:
    """Writes a program: straight code, if/else, loops with counters of their own, early ends, barriers, spaghetti."""

    source: random.Random
    lines: list[Line] = field(default_factory=list)
    labels: int = 0
    counters: int = 0

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def register(self, kind: str) -> str:
        return f"%{kind}{self.source.randrange({'v': WORDS, 'w': WIDE, 'q': FLAGS}[kind])}"

    def value(self, kind: str) -> str | int:
        if kind != "q" and self.source.random() < 0.25:
            return self.source.choice(EDGES)
        if kind == "v" and self.source.random() < 0.05:
            return self.source.choice(("%tid.x", "%laneid"))
        return self.register(kind)

    def guard(self, chance: float) -> str:
        if self.source.random() > chance:
            return ""
        return self.source.choice(("", "!")) + self.register("q")

    def alu(self) -> None:
        kind = self.source.choice("vvvw")
        bits = 32 if kind == "v" else 64
        opcode, count = self.source.choice(
            [(f"{n}.{s}{bits}", 2) for n in ("add", "sub", "mul.lo", "mul.hi", "min", "max") for s in "su"]
            + [(f"{n}.b{bits}", 2) for n in ("and", "or", "xor")]
            + [(f"not.b{bits}", 1), (f"mov.b{bits}", 1), (f"neg.s{bits}", 1), (f"mad.lo.s{bits}", 3)]
            + [(f"shl.b{bits}", -1), (f"shr.u{bits}", -1), (f"shr.s{bits}", -1), (f"selp.b{bits}", -2)]
            + [("setp", 0)] * 8
            + [("and.pred", 9), ("or.pred", 9), ("xor.pred", 9), ("mov.pred", 8), ("not.pred", 8)]
            + [("cvt", 7), ("mul.wide", 6)]
        )
        result, guard = self.register(kind), self.guard(0.3)
        if opcode == "setp":
            how, sign = self.source.choice(("eq", "ne", "lt", "le", "gt", "ge")), self.source.choice("su")
            opcode, result, operands = (
                f"setp.{how}.{sign}{bits}",
                self.register("q"),
                [self.value(kind), self.value(kind)],
            )
        elif count == -1:
            operands = [self.value(kind), self.value("v")]
        elif count == -2:
            operands = [self.value(kind), self.value(kind), self.register("q")]
        elif count in (8, 9):
            result, operands = self.register("q"), [self.register("q") for _ in range(count - 7)]
        elif count == 7:
            to = self.source.choice(
                ("s64.s32", "u64.u32", "u32.u64", "s32.s8", "u32.u8", "s32.s16", "u64.u16", "s64.s8")
            )
            opcode = f"cvt.{to}"
            result = self.register("w" if "64" in to.split(".")[0] else "v")
            operands = [self.register("w" if to.endswith("u64") else "v")]
        elif count == 6:
            opcode, result = f"mul.wide.{self.source.choice('su')}32", self.register("w")
            operands = [self.value("v"), self.value("v")]
        else:
            operands = [self.value(kind) for _ in range(count)]
        self.lines.append(Line(opcode, result, tuple(operands), guard))

    def block(self, depth: int) -> None:
        for _ in range(self.source.randint(1, 5)):
            self.statement(depth)

    def statement(self, depth: int) -> None:
        choice = self.source.random()
        if depth == 0 or choice < 0.6:
            self.alu()
        elif choice < 0.78:
            self.branch(depth)
        elif choice < 0.9:
            self.loop(depth)
        elif choice < 0.93:
            self.lines.append(Line(self.source.choice(("ret", "exit")), guard=f"{self.register('q')}"))
        else:
            self.skip(depth)

    def branch(self, depth: int) -> None:
        other, end = self.label(), self.label()
        self.lines.append(Line("bra", guard=self.guard(1.0) or "%q0", target=other))
        self.block(depth - 1)
        self.lines.append(Line("bra", target=end))
        self.lines.append(Line("", label=other))
        self.block(depth - 1)
        self.lines.append(Line("", label=end))

    def loop(self, depth: int) -> None:
        """Up to as many rounds as the thread's number and a register say; perhaps left from the middle."""
        counter = f"%c{self.counters}"
        self.counters += 1
        begin, end = self.label(), self.label()
        self.lines.append(Line("and.b32", counter, (self.value("v"), 3)))
        self.lines.append(Line("", label=begin))
        self.block(depth - 1)
        if self.source.random() < 0.4:
            self.lines.append(Line("bra", guard=self.register("q"), target=end))
            self.block(depth - 1)
        self.lines.append(Line("sub.s32", counter, (counter, 1)))
        self.lines.append(Line("setp.ge.s32", "%qc", (counter, 0)))
        self.lines.append(Line("bra", guard="%qc", target=begin))
        self.lines.append(Line("", label=end))

    def skip(self, depth: int) -> None:
        """A jump over code that is itself jumped back to: out-of-line code, as compilers lay it out."""
        slow, back, end = self.label(), self.label(), self.label()
        self.lines.append(Line("bra", guard=self.register("q"), target=slow))
        self.lines.append(Line("", label=back))
        self.block(depth - 1)
        self.lines.append(Line("bra", target=end))
        self.lines.append(Line("", label=slow))
        self.block(depth - 1)
        self.lines.append(Line("bra", target=back))
        self.lines.append(Line("", label=end))


def write(seed: int) -> list[Line]:
    writer = Writer(random.Random(seed))
    for _ in range(8):
        writer.statement(3)
    return writer.lines


@dataclass
class Thread:
    """One thread, one instruction after the other."""

    number: int
    values: dict[str, int]

    def value(self, operand: str | int, mask: int) -> int:
        if isinstance(operand, int):
            return operand & mask
        if operand.startswith("!"):
            return 1 - self.values[operand[1:]]
        if operand == "%laneid":
            return self.number % 32
        return self.number if operand == "%tid.x" else self.values[operand]

    def run(self, lines: list[Line]) -> bool:
        """Whether it came to the end, and not to an early one."""
        labels = {line.label: at for at, line in enumerate(lines) if line.label}
        at = 0
        for _ in range(STEPS):
            if at == len(lines):
                return True
            line = lines[at]
            at += 1
            if line.label or (line.guard and not self.value(line.guard, 1)):
                continue
            if line.target:
                at = labels[line.target]
            elif not line.result:
                return False
            else:
                self.values[line.result] = self.result(line)
        raise AssertionError("a program that does not end")

    def result(self, line: Line) -> int:
        name, *rest = line.opcode.split(".")
        type_ = rest[-1]
        bits = 1 if type_ == "pred" else int(type_[1:])
        values = [self.value(o, MASK["w"] if bits == 64 else MASK["v"]) for o in line.operands]
        if name == "selp":
            return values[0] if values[2] else values[1]
        a, b, c = [signed(v, bits) if type_[0] == "s" else v & ((1 << bits) - 1) for v in [*values, 0, 0, 0][:3]]
        if name in ("shl", "shr"):
            b = min(values[1] & 0xFFFFFFFF, 64)
        if name == "setp":
            return int({"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[rest[0]])
        results = {
            "add": a + b, "sub": a - b, "and": a & b, "or": a | b, "xor": a ^ b, "mov": a, "cvt": a, "neg": -a,
            "not": 1 - a if type_ == "pred" else ~a, "min": min(a, b), "max": max(a, b), "mad": a * b + c,
            "mul": a * b >> bits if "hi" in rest else a * b,
            "shl": a << b if name == "shl" else 0, "shr": a >> b if name == "shr" else 0,
        }  # fmt: skip
        if name == "cvt":
            a = signed(a, int(rest[0][1:])) if rest[0][0] == "s" else a
        return results[name] & MASK[line.result[1]] if line.result[1] in MASK else results[name] & MASK["v"]


def compare(lines: list[Line], text: list[Line], seed: int, schedule: str) -> None:
    """``lines`` in Python, ``text`` in the emulator. Threads that end early leave what was stored at the start."""
    rng = np.random.default_rng(seed)
    threads, block = ((64, 64), (96, 48), (200, 50), (65, 65))[seed % 4]
    counters = sum(line.opcode == "and.b32" and line.result.startswith("%c") for line in lines)
    words = [rng.integers(0, 2**32, threads, dtype=np.uint32) for _ in range(WORDS)]
    wide = [rng.integers(0, 2**64, threads, dtype=np.uint64) for _ in range(WIDE)]
    # Some registers are the same for all threads.
    words[0][:], wide[0][:] = 5, 7
    names = [f"%v{k}" for k in range(WORDS)] + [f"%w{k}" for k in range(WIDE)] + [f"%q{k}" for k in range(FLAGS)]
    body = [f"{DECLARATIONS} .reg .b32 %c<{counters + 1}>; .reg .pred %qc;"]
    body += [f"mov.b32 %v{k}, %i{k};" if k else "mov.b32 %v0, 5;" for k in range(WORDS)]
    body += [f"mov.b64 %w{k}, %i{WORDS + k};" if k else "mov.b64 %w0, 7;" for k in range(WIDE)]
    body += [
        "setp.lt.u32 %q0, %v1, %v2;",
        "setp.eq.u32 %q1, 1, 1;",
        "setp.lt.s32 %q2, %v3, 0;",
        "setp.ne.u32 %q3, 1, 1;",
    ]
    body += [line.text() for line in text]
    body += [
        f"mov.{kind} %o{k}, {n};" for k, n in enumerate(names) for kind in [{"v": "b32", "w": "b64", "q": "pred"}[n[1]]]
    ]
    outputs = ["b32"] * WORDS + ["b64"] * WIDE + ["pred"] * FLAGS
    program = Program(["b32"] * WORDS + ["b64"] * WIDE, outputs, "\n".join(body))
    got = program.run([*words, *wide], threads, block, schedule=schedule, seed=seed)  # type: ignore[arg-type]
    for at in range(threads):
        values = {f"%v{k}": int(w[at]) for k, w in enumerate(words)} | {
            f"%w{k}": int(w[at]) for k, w in enumerate(wide)
        }
        values |= {"%q0": int(values["%v1"] < values["%v2"]), "%q1": 1, "%q2": values["%v3"] >> 31, "%q3": 0}
        thread = Thread(at % block, values)
        if thread.run(lines):
            for k, name in enumerate(names):
                assert int(got[k][at]) == thread.values[name], f"seed {seed}, {schedule}: thread {at}, {name}"
        else:
            assert int(got[0][at]) == 0xEEEEEEEE


@pytest.mark.parametrize("schedule", ["lockstep", "warp_serial", "random"])
@pytest.mark.parametrize("seed", range(10))
def test_random_programs(seed: int, schedule: str) -> None:
    for k in range(2):
        lines = write(2 * seed + k)
        compare(lines, lines, 2 * seed + k, schedule)


@settings(max_examples=8, deadline=None)
@given(st.integers(100, 2**32), st.sampled_from(["lockstep", "warp_serial", "random"]))
def test_more_random_programs(seed: int, schedule: str) -> None:
    lines = write(seed)
    compare(lines, lines, seed, schedule)


def test_a_different_program_is_seen() -> None:
    lines = write(1)
    for at, line in enumerate(lines):
        if line.opcode.startswith("add") or line.opcode.startswith("sub"):
            other = [*lines[:at], Line("mov.b32", "%v5", (123,)), *lines[at + 1 :]]
            break
    broken = [*other, Line("xor.b32", "%v4", ("%v4", 1))]
    with pytest.raises(AssertionError):
        compare(lines, broken, 1, "lockstep")
