"""compute-sanitizer's words, read; which findings count as explained: never a new one, nor one whose control is bad or
cannot fail."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.ladder.family import KERNELS, load_family

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from ladder_sanitizer import Job, Outcome, outer, rows_of
from sanitizer_reports import KNOWN, Finding, Known, edited, findings, known_of

# As it was printed beside an H200, shortened.
RACES = """========= COMPUTE-SANITIZER
RUN 05_ring float32 rows
========= Error: Race reported between Write access at copy_bytes(void *, const void *, int)+0x4130 in tma.cuh:{copy}
=========     and Read access at load_words(const float *)+0x3510 in words.cuh:{read} [4704 hazards]
=========     and Read access at load_words(const float *)+0x3540 in words.cuh:{read} [3920 hazards]
=========
========= Warning: Race reported between Write access at copy_bytes(void *, const void *, int)+0x4970 in tma.cuh:{copy}
=========     and Read access at load_words(const __half *)+0x38b0 in words.cuh:{read} [2304 hazards]
=========
RUNS 181 WRONG 0
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
BARRIERS = """========= COMPUTE-SANITIZER
========= Barrier error detected. Missing wait.
=========     at arrive(unsigned long long *)+0x2280 in arrivals.cuh:19
=========     by thread (0,0,0) in block (0,0,0)
=========         Device Frame: sgemm+0x15b0 in 19_stream_k.cu:271
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: launch_kernel in driver.py:247
========= Barrier error detected. Missing wait.
=========     at arrive(unsigned long long *)+0x2280 in arrivals.cuh:19
=========     by thread (32,0,0) in block (0,0,0)
=========         Device Frame: sgemm+0x15b0 in 19_stream_k.cu:271
========= ERROR SUMMARY: {count} errors
"""
RING = next(known for known in KNOWN if known.family == "rmsnorm")


def line_with(known: Known, place: int) -> int:
    file, text = known.places[place]
    path = KERNELS / "include" / file
    path = path if path.is_file() else KERNELS / known.family / file
    lines = [n for n, line in enumerate(path.read_text("utf-8").splitlines(), 1) if text in line]
    assert len(lines) == 1, (path.name, text, lines)
    return lines[0]


def races(more: int = 0) -> tuple[Finding, ...]:
    return findings(RACES.format(copy=line_with(RING, 0), read=line_with(RING, 1) + more))


def test_races_are_told_by_their_source_lines() -> None:
    (found,) = races()
    assert found.what == "race: Write and Read"
    assert found.places == (("tma.cuh", line_with(RING, 0)), ("words.cuh", line_with(RING, 1)))
    assert (found.reports, found.hazards) == (3, 4704 + 3920 + 2304)
    assert found.text[1].endswith("[4704 hazards]")


def test_a_barrier_error_has_the_places_on_the_device_only() -> None:
    (found,) = findings(BARRIERS.format(count=2))
    assert found.what == "Barrier error detected. Missing wait."
    assert found.places == (("arrivals.cuh", 19), ("19_stream_k.cu", 271))
    assert found.reports == 2


def test_reports_beyond_the_print_limit_are_a_finding() -> None:
    assert {found.what for found in findings(BARRIERS.format(count=5))} == {
        "Barrier error detected. Missing wait.",
        "3 reports that were not printed",
    }
    assert findings("========= COMPUTE-SANITIZER\nRUNS 3 WRONG 0\n========= ERROR SUMMARY: 0 errors\n") == ()


def test_only_the_lines_that_an_entry_names_are_explained() -> None:
    assert known_of(races()[0], "racecheck", "rmsnorm", "05_ring") == RING
    assert known_of(races(more=1)[0], "racecheck", "rmsnorm", "05_ring") is None
    assert known_of(races()[0], "racecheck", "rmsnorm", "04_cluster") is None
    assert known_of(races()[0], "synccheck", "rmsnorm", "05_ring") is None
    assert known_of(races()[0], "racecheck", "add", "05_ring") is None


def test_either_access_may_be_named_first() -> None:
    (found,) = races()
    turned = replace(found, what="race: Read and Write", places=found.places[::-1])
    assert known_of(turned, "racecheck", "rmsnorm", "05_ring") == RING
    for other in (replace(turned, places=found.places), replace(found, what="race: Write and Write")):
        assert known_of(other, "racecheck", "rmsnorm", "05_ring") is None


def test_an_access_without_a_line_is_kept_apart() -> None:
    rung = "18_any_pitch"
    line = next(line_with(each, 1) for each in KNOWN if rung in each.rungs)
    report = (
        "========= Error: Race reported between Write access at sgemm+0x1ed0\n"
        f"=========     and Read access at add() in {rung}.cu:{line} [4 hazards]\n"
    )
    (found,) = findings(report)
    assert found.places == (("", 0), (f"{rung}.cu", line))
    assert known_of(found, "racecheck", "sgemm", rung) is not None
    assert known_of(replace(found, places=found.places[1:] * 2), "racecheck", "sgemm", rung) is None


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.family}-{known.rungs[0]}-{known.places[1][1][-8:]}")
def test_entries_name_what_is_there(known: Known) -> None:
    for rung in known.rungs:
        file = load_family(known.family).rung(rung).file
        for edits in (known.edits, known.edits + known.broken):  # lines keep their numbers
            assert edited(file, edits).count("\n") == file.read_text("utf-8").count("\n")
    for place, (file_name, text) in enumerate(known.places):
        if text:
            assert line_with(known, place), file_name
    with pytest.raises(ValueError, match="0 times"):
        edited(file, (("no such text", ""),))


def runner(found: dict[str, tuple[Finding, ...]], control: Outcome, broken: Outcome) -> Callable:
    """Each rung alone finds its own; the control and what is broken, what they are told to."""

    def run(jobs: Sequence[Job]) -> list[Outcome]:
        of_edits = {(): None, RING.edits: control, RING.edits + RING.broken: broken}
        return [
            replace(told, job=job) if (told := of_edits[job.edits]) else Outcome(job, 8, found.get(job.rungs[0], ()))
            for job in jobs
        ]

    return run


GROUP = Job("rmsnorm", "racecheck", ("04_cluster", "05_ring"))


CLEAN, RACY = Outcome(GROUP, 8, ()), Outcome(GROUP, 8, races())


def verdict(found: dict[str, tuple[Finding, ...]], control: Outcome = CLEAN, broken: Outcome = RACY) -> str:
    everything = tuple(each for some in found.values() for each in some)
    (row,) = rows_of([Outcome(GROUP, 16, everything)], runner(found, control, broken))
    assert len(row["findings"]) == len(everything)  # type: ignore[arg-type]
    return str(row["verdict"])


def test_verdicts() -> None:
    new, known = races(more=1), {"05_ring": races()}
    assert verdict({}) == "clean"
    assert verdict(known) == "explained"
    assert verdict(known, broken=Outcome(GROUP, 8, races(), "2 wrong results")) == "explained"
    assert verdict(known, control=RACY) == "faults"
    assert verdict(known, control=Outcome(GROUP, 8, new)) == "faults"
    assert verdict(known, control=Outcome(GROUP, 8, (), "2 wrong results")) == "faults"
    assert verdict(known, control=Outcome(GROUP, 7, ())) == "faults"
    assert verdict(known, broken=CLEAN) == "faults"
    assert verdict(known, broken=Outcome(GROUP, 0, (), "not over after 70 s")) == "faults"
    assert verdict({"05_ring": races() + new}) == "faults"
    assert verdict({"04_cluster": races()}) == "faults"


def test_what_a_group_found_and_no_rung_alone_is_kept() -> None:
    (row,) = rows_of([Outcome(GROUP, 16, races())], runner({}, CLEAN, CLEAN))
    assert row["verdict"] == "faults"
    assert row["findings"][0]["rung"] == "04_cluster 05_ring"  # type: ignore[index]


def test_a_process_that_ends_early_is_no_clean_one() -> None:
    (row,) = rows_of([Outcome(GROUP, 0, (), "not over after 70 s")], runner({}, CLEAN, CLEAN))
    assert row["verdict"] == "faults"


@pytest.mark.parametrize(
    ("text", "code", "failure", "count"),
    [
        ("RUNS 4 WRONG 0\n========= ERROR SUMMARY: 0 errors\n", 0, "", 0),
        ("RUNS 4 WRONG 2\n========= ERROR SUMMARY: 0 errors\n", 1, "2 wrong results", 0),
        ("========= ERROR SUMMARY: 0 errors\n", 0, "exit 0, no summary: ========= ERROR SUMMARY: 0 errors", 0),
        (f"RUNS 4 WRONG 0\n{BARRIERS.format(count=2)}", 9, "", 1),
        ("RUNS 4 WRONG 0\n========= ERROR SUMMARY: 0 errors\n", 9, "exit 9, 0 reports, none of them read", 0),
    ],
)
def test_a_process_is_read(tmp_path: Path, text: str, code: int, failure: str, count: int) -> None:
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\nexit {code}\n")
    tool.chmod(0o755)
    done = outer(Job("sgemm", "synccheck", ("19_stream_k",)), str(tool), 10)
    assert (done.failure, len(done.findings)) == (failure, count)
