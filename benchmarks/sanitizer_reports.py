"""What compute-sanitizer prints → findings; and which of them are explained, by an argument and by a control run.

A finding is explained where `KNOWN` names its family, rung, tool and source lines, the control is clean (the same rung
with edits that give the tool an order that it follows), and the tool finds a race again where one is put into the
control. Explained findings stay in the record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.ladder.family import KERNELS

SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?|hazards? displayed)")
_LINE = re.compile(r"^=========(\s*)(.*)$")
_PLACE = re.compile(r" in ([\w.\-]+):(\d+)")
_ACCESS = re.compile(r"(Read|Write) access at ")
_HAZARDS = re.compile(r"\[(\d+) hazards?\]")

Place = tuple[str, int]  # (file name, line)
NOWHERE: Place = ("", 0)  # an instruction that the compiler gave no line
# What the two accesses of a race are called, and the step from a write's place to a read's.
_WRITE_TO_READ = {"race: Write and Read": 1, "race: Read and Write": -1}


@dataclass(frozen=True)
class Finding:
    """Attributes:

    what: the tool's words, without offsets and threads. places: source lines, in the tool's order; of a race, two.
    reports, hazards: how many the tool printed for these places. text: the first of them.
    """

    what: str
    places: tuple[Place, ...]
    text: tuple[str, ...]
    reports: int = 1
    hazards: int = 0


@dataclass(frozen=True)
class Known:
    """Races between a write and a read that are none. Which of them the tool names first tells nothing of their order.

    Attributes:
        places: the write's, the read's: (file, what its line says; "" for a file that is not here, or for no line).
        why: the argument. edits: of the rung's source (what is there, what is there instead, on the same line): with
            an order that the tool follows, the findings have to be gone.
        broken: more edits, with which there is a race: the tool has to find it.
    """

    tool: str
    family: str
    rungs: tuple[str, ...]
    places: tuple[tuple[str, str], ...]
    why: str
    edits: tuple[tuple[str, str], ...]
    broken: tuple[tuple[str, str], ...]


_FOR_THE_WARP = (
    "Lane 0 arrives for its warp: __syncwarp() orders what the other lanes did (copies that landed, by wait_group; "
    "reads) before its mbarrier.arrive.release, and whoever waits acquires the phase. The tool takes the arrival for "
    "that of lane 0 alone, be the __syncwarp() a WARPSYNC in the machine code or, of a warp that has converged, a NOP."
)
_EVERY_LANE = (
    ("if (lane == 0) arrive(landed);", "arrive(landed);"),
    ("expect_arrivals<THREADS / 32>(&landed);", "expect_arrivals<THREADS>(&landed);"),
)
_EVERY_READER = (
    ("if (lane == 0) arrive(&ring->empty[stage]);", "arrive(&ring->empty[stage]);"),
    ("expect_arrivals<THREADS / 32>(&ring.empty[stage]);", "expect_arrivals<THREADS>(&ring.empty[stage]);"),
)
_BY_BYTES = (
    "In a cluster, thread 0 asks for the stage's next rows when the figures of all warps are there: st.async, counted "
    "in bytes on an mbarrier. A warp's figures are made of all that its lanes have read of the stage, so every read "
    "is over. The tool follows arrivals, not the bytes of stores."
)
_BARRIER = (("if (worker == 0) ring.fill(stage,", "__syncthreads(); if (worker == 0) ring.fill(stage,"),)
# Races that leave nobody waiting for ever.
_NO_WAIT = (("wait_for(landed, phase);", ""),)
_TOO_SOON = (("if (k == BK - 1) {", "if (k == 0) {"),)
_NO_WAIT_FOR_COPIES = (("wait_for(&arrivals[stage], phase);", ""),)
# The line that NVRTC 13.0 gives the statement; with 13.5 it is the statement's first.
_COPY = ("tma.cuh", '"l"(from), "r"(count), "r"(shared_address(arrivals))')
_CP_ASYNC = ("cuda_pipeline_helpers.h", "")
# Of two cp.async the tool tells no line: at their offsets the code that NVRTC 13.0 makes has LDGSTS.
_CP_ASYNC_OF_NO_LINE = ("", "")


def _of_sgemm(
    rungs: tuple[str, ...],
    write: tuple[str, str],
    edits: tuple[tuple[str, str], ...],
    broken: tuple[tuple[str, str], ...],
) -> list[Known]:
    return [
        Known(
            "racecheck", "sgemm", (rung,), (write, (f"{rung}.cu", f"float4*>(&{array}[")), _FOR_THE_WARP, edits, broken
        )
        for rung in rungs
        for array in ("a_from", "b_from")
    ]


KNOWN: tuple[Known, ...] = (
    *_of_sgemm(
        ("16_split_k", "17_left_over_first", "18_any_pitch", "19_stream_k", "21_parts_in_memory"),
        _CP_ASYNC,
        _EVERY_LANE,
        _NO_WAIT,
    ),
    *_of_sgemm(("18_any_pitch",), _CP_ASYNC_OF_NO_LINE, _EVERY_LANE, _NO_WAIT),
    *_of_sgemm(("22_packed", "23_half_packed"), _COPY, _EVERY_READER, _TOO_SOON),
    *(
        Known(
            "racecheck",
            family,
            (rung,),
            (_COPY, ("words.cuh", "const uint4*>(from)")),
            _BY_BYTES,
            _BARRIER,
            _NO_WAIT_FOR_COPIES,
        )
        for family, rung in (("softmax", "07_ring"), ("rmsnorm", "05_ring"), ("layernorm", "05_ring"))
    ),
)


def findings(text: str) -> tuple[Finding, ...]:
    """Of a run's output, one for each kind and source lines; a report that cannot be read is a finding, too."""
    found: dict[tuple[str, tuple[Place, ...]], Finding] = {}
    blocks = list(_blocks(text))
    for block in blocks:
        for one in _of_block(block):
            before = found.get((one.what, one.places))
            if before is not None:
                one = replace(before, reports=before.reports + 1, hazards=before.hazards + one.hazards)
            found[one.what, one.places] = one
    summary = SUMMARY.search(text)
    unseen = int(summary.group(1)) - len(blocks) if summary else 0
    if unseen > 0:
        found["unseen", ()] = Finding(f"{unseen} reports that were not printed", (), ())
    return tuple(found.values())


def _blocks(text: str) -> Iterable[list[str]]:
    block: list[str] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        indent, words = match.groups()
        if len(indent) > 1 and block:
            block.append(words)
            continue
        if block:
            yield block
        block = [words] if words and words != "COMPUTE-SANITIZER" and not SUMMARY.search(words) else []
    if block:
        yield block


def _of_block(block: list[str]) -> Iterable[Finding]:
    device = [line for line in block if not line.startswith(("Host Frame", "Saved host backtrace"))]
    if "Race reported between" not in block[0]:
        places = [place for line in device for place in _places(line)]
        yield Finding(block[0], tuple(dict.fromkeys(places)), tuple(device[:8]))
        return
    first = _ACCESS.search(device[0])
    for line in device[1:]:
        second, count = _ACCESS.search(line), _HAZARDS.search(line)
        what = f"race: {first.group(1) if first else '?'} and {second.group(1) if second else '?'}"
        hazards = int(count.group(1)) if count else 0
        yield Finding(what, (_place(device[0]), _place(line)), (device[0], line), hazards=hazards)


def _places(line: str) -> list[Place]:
    return [(file, int(number)) for file, number in _PLACE.findall(line)]


def _place(line: str) -> Place:
    return next(iter(_places(line)), NOWHERE)


def source_line(family: str, file: str, number: int) -> str:
    """Of a kernel or a shared header; "" where there is none."""
    for path in (KERNELS / family / file, KERNELS / "include" / file):
        if path.is_file():
            lines = path.read_text("utf-8").splitlines()
            return lines[number - 1] if 0 < number <= len(lines) else ""
    return ""


def known_of(
    finding: Finding, tool: str, family: str, rung: str, line_of: Callable[[str, str, int], str] = source_line
) -> Known | None:
    """The entry that names a finding, if there is one."""
    step = _WRITE_TO_READ.get(finding.what)
    if step is None:
        return None
    for known in KNOWN:
        if (known.tool, known.family) != (tool, family) or rung not in known.rungs:
            continue
        if len(known.places) == len(finding.places) and all(
            file == want and text in line_of(family, file, number)
            for (file, number), (want, text) in zip(finding.places[::step], known.places, strict=True)
        ):
            return known
    return None


def edited(file: Path, edits: Iterable[tuple[str, str]]) -> str:
    """A rung's source with a control's edits.

    Raises:
        ValueError: an edit's text is not there once.
    """
    text = file.read_text("utf-8")
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"{file.name} has {old!r} {text.count(old)} times")
        text = text.replace(old, new)
    return text
