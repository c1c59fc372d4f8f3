"""Blocks that wait for words which nobody is left to write: it is said at once, and of nothing that would go on."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from async_harness import Done, run

import tilewright
from tilewright.emulator.options import EmulatorOptions

ALL = EmulatorOptions(max_seconds=60)
CORNERS = replace(ALL, blocks="corners")
# The last block waits for out[1], which another one writes.
BLOCK = "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %nctaid.x;\nsub.u32 %r2, %r2, 1;\nsetp.eq.u32 %p2, %r1, %r2;\n"
WRITES = """
    setp.eq.u32 %p3, %r1, 1;
    and.pred %p3, %p3, %p15;
    mov.u32 %r3, 7;
    @%p3 st.relaxed.gpu.global.u32 [%d61+4], %r3;
"""
SPIN = "AGAIN:\nld.relaxed.gpu.global.u32 %r4, [%d61+4];\nsetp.eq.u32 %p4, %r4, 0;\n@%p4 bra AGAIN;\n"
POLL = f"@!%p2 bra OUT;\n{SPIN}OUT:\n"
NOTHING = np.zeros(4, np.int32)


def ran(body: str, blocks: int = 1, options: EmulatorOptions = ALL, threads: int = 32) -> Done:
    began = time.monotonic()
    done = run(body, NOTHING, 8, blocks=blocks, threads=threads, options=options)
    assert time.monotonic() - began < 20
    return done


@pytest.mark.parametrize("ends", ["", "bar.sync 0;\n", "shfl.sync.down.b32 %r5, %r4, 1, 31, -1;\n"])
def test_a_part_of_a_grid_may_wait_for_a_block_that_is_left_out(ends: str) -> None:
    poll = POLL.replace(
        "@!%p2 bra OUT", "and.pred %p5, %p2, %p15;\n@!%p5 bra OUT"
    )  # one thread; the others wait for it
    part = ran(BLOCK + WRITES + poll + ends, 6, CORNERS)
    assert part.emulation.is_unsupported
    assert part.kinds == set()
    assert part.emulation.error is not None
    for words in ("thread 0 of block 5 waits", "3 of 6 blocks ran", "[sizes]", "ld.relaxed.gpu.global.u32"):
        assert words in part.emulation.error
    assert "time" not in part.emulation.error
    whole = ran(BLOCK + WRITES + poll + ends, 6)
    assert (whole.emulation.error, whole.kinds) == (None, set())
    assert whole.out[1] == 7


def test_blocks_that_come_later_are_no_deadlock() -> None:
    """All blocks run, but not at once: the first ones may wait for the last."""
    first = BLOCK.replace("%r2, %r2, 1", "%r2, %r2, %r2") + WRITES + POLL
    done = ran(first, 6, replace(ALL, chunk_threads=32))
    assert done.emulation.is_unsupported
    assert "5 blocks have not begun" in (done.emulation.error or "")
    assert ran(first, 6).emulation.error is None


ATOMIC = POLL.replace("ld.relaxed.gpu.global.u32 %r4, [%d61+4]", "atom.global.cas.b32 %r4, [%d61+4], 5, 6")
SLEEPY = POLL.replace("AGAIN:\n", "AGAIN:\nnanosleep.u32 100;\n")
VOTES = POLL.replace("setp.eq.u32 %p4, %r4, 0;", "setp.eq.u32 %p4, %r4, 0;\nvote.sync.any.pred %p4, %p4, -1;")


@pytest.mark.parametrize(
    ("poll", "schedule"),
    [(POLL, "lockstep"), (POLL, "warp_serial"), (POLL, "random"), (ATOMIC, "lockstep"), (SLEEPY, "lockstep"),
     (VOTES, "random")],
)  # fmt: skip
def test_what_nobody_writes_is_a_deadlock(poll: str, schedule: str) -> None:
    done = ran(BLOCK + poll, 3, replace(ALL, schedule=schedule))
    assert done.kinds == {"deadlock"}
    assert not done.emulation.is_unsupported
    assert "read memory again and again" in done.words
    assert "block 2 and 31 more" in done.words


# -- what goes on ----------------------------------------------------------------------------------------

LATE = "mov.u32 %r10, 0;\nCOUNT:\nadd.u32 %r10, %r10, 1;\nsetp.lt.u32 %p6, %r10, {rounds};\n@%p6 bra COUNT;\n"
SECOND_WARP = "setp.ge.u32 %p7, %r60, 32;\n"
HANDS_OVER = "setp.eq.u32 %p8, %r60, 32;\nmov.u32 %r3, 7;\n@%p8 st.relaxed.gpu.global.u32 [%d61+4], %r3;\n"
# Behind many rounds without an effect, the second warp writes what the first one waits for.
OTHERS_COUNT = f"{SECOND_WARP}@!%p7 bra WAIT;\n{LATE}{HANDS_OVER}bra OUT;\nWAIT:\n{SPIN}OUT:\n"
ROUNDS = {"lockstep": 5000, "warp_serial": 30, "random": 5000}  # one warp after the other, 512 steps go by for each
# With a counter in the wait, or the time that it took: it gives up.
COUNTED = "add.u32 %r10, %r10, 1;\nsetp.lt.u32 %p6, %r10, 9000;\n@%p6 bra"
GIVES_UP = "mov.u32 %r10, 0;\n" + SPIN.replace("@%p4 bra", COUNTED)
TIMED = "mov.u32 %r10, %clock;\nsub.u32 %r10, %r10, %r12;\nsetp.lt.u32 %p6, %r10, 4000;\n@%p6 bra"
BY_THE_CLOCK = "mov.u32 %r12, %clock;\n" + SPIN.replace("@%p4 bra", TIMED)
TICKET = SPIN.replace("ld.relaxed.gpu.global.u32 %r4, [%d61+4]", "atom.global.add.u32 %r4, [%d61+4], 1").replace(
    "setp.eq.u32 %p4, %r4, 0", "setp.lt.u32 %p4, %r4, 80000"
)
# Half of a warp exchanges values and then writes what the other half waits for.
HALVES = f"""
    setp.ge.u32 %p7, %r60, 16;
    @!%p7 bra FIRST;
    {SPIN}
    bra OUT;
FIRST:
    shfl.sync.idx.b32 %r5, %r60, 3, 31, 0xffff;
    st.relaxed.gpu.global.u32 [%d61+4], %r5;
OUT:
"""


@pytest.mark.parametrize("schedule", ["lockstep", "warp_serial", "random"])
@pytest.mark.parametrize("body", [OTHERS_COUNT, GIVES_UP, BY_THE_CLOCK, HALVES])
def test_what_goes_on_is_let_go_on(body: str, schedule: str) -> None:
    body = body.replace("{rounds}", str(ROUNDS[schedule]))
    done = ran(body, options=replace(ALL, schedule=schedule), threads=64 if "COUNT" in body else 32)
    assert (done.emulation.error, done.kinds) == (None, set())


def test_tickets_are_drawn_to_the_end() -> None:
    assert ran(TICKET).emulation.error is None


WAITS_IN_VAIN = """
    mov.u32 %r10, 0;
    @%p15 mbarrier.init.shared::cta.b64 [bars], 1;
    bar.sync 0;
    setp.ge.u32 %p7, %r60, 32;
    @%p7 bra POLL;
TRY:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [bars], 0;
    add.u32 %r10, %r10, 1;
    setp.lt.u32 %p6, %r10, 3;
    @%p6 bra TRY;
    @%p15 st.relaxed.gpu.global.u32 [%d61+4], %r10;
    bra OUT;
POLL:
"""


def test_a_wait_that_ends_by_itself_is_let_end() -> None:
    """Nothing else happens until the time of ``try_wait`` is over: its thread then writes."""
    done = ran(f"{WAITS_IN_VAIN}{SPIN}OUT:\n", threads=64)
    assert (done.emulation.error, done.kinds) == (None, set())
    never = ran(f"{WAITS_IN_VAIN.replace('add.u32 %r10, %r10, 1;', '')}{SPIN}OUT:\n", threads=64)
    assert never.kinds == {"deadlock"}


# -- from a sidecar --------------------------------------------------------------------------------------

KERNEL = """
extern "C" __global__ void last(const int* x, int* words, int* y) {
    if (blockIdx.x + 1 < gridDim.x) {
        const int word = x[blockIdx.x] | 1;
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(words + blockIdx.x), "r"(word) : "memory");
        return;
    }
    int sum = 0;
    for (unsigned i = threadIdx.x; i + 1 < gridDim.x; i += blockDim.x) {
        int word;
        do asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(words + i) : "memory");
        while (word == 0);
        sum += word;
    }
    atomicAdd(y, sum);
}
"""
SIDECAR = """
kernel = "last"
[launch]
grid = ["N"]
block = [32]
[sizes]
default = { N = 40 }
small = { N = 9 }
[[args]]
name = "x"
dtype = "int32"
shape = ["N"]
fill = "randint(1, 99)"
[[args]]
name = "words"
dtype = "int32"
shape = ["N"]
role = "inout"
fill = "zeros()"
[[args]]
name = "y"
dtype = "int32"
shape = [1]
role = "inout"
fill = "zeros()"
"""


def test_verify_says_so_and_goes_by_the_other_sets(tmp_path: Path) -> None:
    (tmp_path / "last.cu").write_text(KERNEL)
    (tmp_path / "last.toml").write_text(SIDECAR)
    began = time.monotonic()
    outcome = tilewright.verify(tmp_path / "last.cu")
    assert time.monotonic() - began < 30
    assert outcome.report.verify.verdict == "passed"
    (note,) = [note for note in outcome.report.notes if "default" in note]
    assert note.startswith("left out: default: ")
    assert "3 of 40 blocks ran" in note
