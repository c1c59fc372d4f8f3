"""What times the ladder on a card: builds that die, benches that crash, records that are joined, runs that go on."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import msgspec
import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.gpu import device
from tilewright.gpu.buffers import doubled
from tilewright.gpu.device import GpuInfo
from tilewright.ladder import peer_bench, timing
from tilewright.ladder.building import Build, build_apart, builds_of
from tilewright.ladder.compiled_peers import PeerOptions
from tilewright.ladder.family import load_family
from tilewright.ladder.pacing import Pace
from tilewright.ladder.peer_bench import NOT_BEGUN
from tilewright.ladder.report import LadderBench, PeerPoint, TimedRung, joined, split
from tilewright.ladder.running import operation_launch
from tilewright.launch.inputs import make_inputs, repeating_inputs
from tilewright.settings import Settings
from tilewright.workflow.climbing import bench_family

ROOT = Path(__file__).parents[2]
INFO = GpuInfo(
    0, "a card", "sm_90", "580", (13, 0), 132, 60 << 20, 1 << 37, 1980, 227 << 10, 228 << 10, 1 << 10, 65536, 2048, 32
)  # fmt: skip


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


card = script("ladder_card")


def report(*dtypes: str, date: str = "2026-01-01", message: str = "", torch: str = "2.11") -> LadderBench:
    rungs = tuple(TimedRung("01_naive", "Naive", d, "default", {"N": 1}, "passed") for d in dtypes)
    points = tuple(PeerPoint(d, "", {"N": 1}, "", False, 4, 8.0, 1.0, "01_naive", message=message) for d in dtypes)
    return LadderBench("softmax", "Softmax", "a card", "580", date, rungs, points, torch, "3.6", "auto")


def write(folder: Path, name: str, one: LadderBench) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(msgspec.json.encode(one))


# Records.


def test_joined_records_come_apart_as_they_were() -> None:
    parts = [report("float32"), report("float16", date="2026-01-02")]
    whole = joined(parts)
    assert [p.dtype for p in whole.points] == [r.dtype for r in whole.rungs] == ["float32", "float16"]
    assert whole.date == "2026-01-02"
    again = split(whole)
    assert list(again) == ["float32", "float16"]
    assert [again[d].points for d in again] == [p.points for p in parts]


@pytest.mark.parametrize("change", [{"card": "another"}, {"family": "add"}, {"torch": "2.13"}])
def test_records_of_other_conditions_are_not_joined(change: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="do not belong together"):
        joined([report("float32"), replace(report("float16"), **change)])


def test_a_run_goes_on_where_another_one_ended(tmp_path: Path) -> None:
    write(tmp_path, "ladder-softmax.json", report("float32", "float16"))
    write(
        tmp_path, "ladder-softmax-float16.json", report("float16", date="2026-02-01", message=f"{NOT_BEGUN}out of time")
    )
    write(tmp_path, "ladder-softmax-bfloat16.json", report("bfloat16"))
    (tmp_path / "ladder-add.json").write_text('{"family": "ad')  # one that was being written
    parts = card.records_of(tmp_path)
    assert set(parts) == {("softmax", "float32"), ("softmax", "float16"), ("softmax", "bfloat16")}
    assert card.NOT_BEGUN == NOT_BEGUN
    assert card.wanted(["softmax", "sgemv"], "all", parts) == {"softmax": ("float16",), "sgemv": ("float32",)}
    assert card.wanted(["softmax"], "float32,bfloat16", parts) == {}


def test_what_is_packed_is_joined_and_of_one_kind(tmp_path: Path) -> None:
    parts = {
        ("softmax", "float16"): report("float16", date="2026-03-01"),
        ("softmax", "float32"): report("float32"),
        ("softmax", "bfloat16"): report("bfloat16", torch="2.10"),
    }
    card.pack(parts, tmp_path)
    with tarfile.open(tmp_path / "ladder.tar.gz") as packed:
        assert packed.getnames() == ["ladder-softmax.json"]
        member = packed.extractfile("ladder-softmax.json")
        assert member is not None
        found = msgspec.json.decode(member.read(), type=LadderBench)
    assert [p.dtype for p in found.points] == ["float32", "float16"]


# Builds.


def test_builds_are_those_that_a_bench_asks_for_each_once() -> None:
    family = load_family("softmax")
    sets = [("default", family.sizes["default"]), ("", {"R": 1, "C": 1, "ld_x": 1}), ("", {"R": 7, "C": 1, "ld_x": 1})]
    builds = builds_of(family, family.rungs, ("float16",), sets, INFO)
    assert {b.rung for b in builds if b.is_counted} == {r.name for r in family.rungs if "float16" in r.dtypes}
    sized = [b for b in builds if not b.is_counted]
    made = [(b.rung, *family.rung(b.rung).at(dict(b.sizes or ()), b.dtype).defines.items()) for b in sized]
    assert len(set(made)) == len(made) > 1


def test_nothing_is_built_for_another_card_and_what_only_chooses_is_built_for_its_sizes() -> None:
    family = load_family("hgemm")
    builds = builds_of(family, family.rungs, ("float16",), [("default", family.sizes["default"])], INFO)
    assert "40_ring_mma" not in {b.rung for b in builds}
    assert [b.sizes is None for b in builds if b.rung == "32_packed"] == [True, False]


def fate(build: Build, info: GpuInfo, settings: Settings) -> str:
    """What becomes of a build says its rung's name."""
    if build.rung == "dies":
        os._exit(7)
    if build.rung == "raises":
        raise ValueError("so it goes")
    if build.rung == "hangs":
        time.sleep(60)
    return "is wrong" if build.rung == "wrong" else ""


def test_a_build_that_fails_is_named_and_the_others_are_done(tmp_path: Path) -> None:
    builds = [Build("f", name, "float32") for name in ("dies", "good", "raises", "wrong")]
    assert build_apart(builds, INFO, Settings(tmp_path), 1, time.monotonic() + 100, fate) == [
        "f dies float32: its process died, exit code 7",
        "f raises float32: ValueError: so it goes",
        "f wrong float32: is wrong",
    ]


def test_builds_end_when_their_time_is_over(tmp_path: Path) -> None:
    begin = time.monotonic()
    builds = [Build("f", name, "float32") for name in ("hangs", "late")]
    assert build_apart(builds, INFO, Settings(tmp_path), 1, begin + 2.0, fate) == [
        "f hangs float32: stopped, out of time",
        "f late float32: not begun, out of time",
    ]
    assert time.monotonic() - begin < 30


def test_what_drives_loads_no_pytorch_and_no_driver() -> None:
    code = f"""if True:
        import sys, ladder_card
        from tilewright.gpu.device import GpuInfo
        ladder_card.planned({{"softmax": ("float32",)}}, True, {INFO!r})
        print(sorted({{"torch", "triton", "cuda.bindings.driver"}} & set(sys.modules)))
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT / "benchmarks", check=True
    )
    assert done.stdout.strip() == "[]"


# Benches, played by a script: float16 crashes, bfloat16 takes too long.

PLAYED = """
import faulthandler, os, pathlib, signal, sys, time
words = sys.argv[1:]
dtypes, records = words[words.index("--dtype") + 1].split(","), pathlib.Path(words[words.index("--records") + 1])
for dtype in dtypes:
    if dtype == "float16":
        faulthandler.enable()
        os.kill(os.getpid(), signal.SIGSEGV)
    if dtype == "bfloat16":
        time.sleep(60)
    (records / f"ladder-{words[0]}-{dtype}.json").write_bytes((records.parent / f"{dtype}.json").read_bytes())
"""


def test_a_bench_that_crashes_loses_its_own_element_type_only(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    for dtype in ("float32", "float64"):
        write(tmp_path, f"{dtype}.json", report(dtype))
    (tmp_path / "played.py").write_text(PLAYED)
    bench = card.Bench((sys.executable, str(tmp_path / "played.py")), (), records)
    say = card.Say(tmp_path / "log")
    found = card.time_family(bench, "softmax", ("float32", "float16", "float64"), 0.0, time.monotonic() + 60, say)
    assert set(found) == {("softmax", "float32"), ("softmax", "float64")}
    log = (tmp_path / "log").read_text()
    assert log.count("softmax float16: no record") == 2  # behind float32, and in an interpreter of its own
    assert log.count("exit code -11: Fatal Python error: Segmentation fault") == 2


def test_a_bench_that_takes_too_long_is_stopped_and_leaves_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card, "LEAST_S", 0.5)
    monkeypatch.setattr(card, "GRACE_S", 0.5)
    records = tmp_path / "records"
    records.mkdir()
    write(tmp_path, "float32.json", report("float32"))
    (tmp_path / "played.py").write_text(PLAYED)
    bench = card.Bench((sys.executable, str(tmp_path / "played.py")), (), records)
    say, begin = card.Say(tmp_path / "log"), time.monotonic()
    found = card.time_family(bench, "softmax", ("float32", "bfloat16", "float64"), 0.0, begin + 60, say)
    assert time.monotonic() - begin < 20
    assert set(found) == {("softmax", "float32")}
    assert "softmax bfloat16 float64: stopped, out of time" in (tmp_path / "log").read_text().splitlines()


# Several families at a time, each played by a script that says when it begins and ends.

BUSY = """
import os, pathlib, sys, time
words = sys.argv[1:]
records = pathlib.Path(words[words.index("--records") + 1])
log = os.open(records.parent / "busy", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(log, f"+{words[0]} {words[words.index('--at-most') + 1]}\\n".encode())
time.sleep(0.4)
if words[0] != "gelu":
    for dtype in words[words.index("--dtype") + 1].split(","):
        (records / f"ladder-{words[0]}-{dtype}.json").write_bytes((records.parent / f"{dtype}.json").read_bytes())
print("turns: waiting 1.0 s, shared 2.0 s, alone 3.0 s", file=sys.stderr)
os.write(log, f"-{words[0]} 0\\n".encode())
"""


@pytest.mark.parametrize("at_once", [1, 2, 9])
def test_so_many_families_at_a_time_and_all_of_them(tmp_path: Path, at_once: int) -> None:
    records = tmp_path / "records"
    records.mkdir()
    for dtype in ("float32", "float16"):
        write(tmp_path, f"{dtype}.json", report(dtype))
    (tmp_path / "busy.py").write_text(BUSY)
    bench = card.Bench((sys.executable, str(tmp_path / "busy.py")), (), records)
    families = {"softmax": ("float32", "float16"), "gelu": ("float32",), "add": ("float32",), "relu": ("float16",)}
    parts: card.Parts = {}
    card.time_all(bench, families, parts, tmp_path, time.monotonic() + 200, card.Say(tmp_path / "ladder.log"), at_once)
    assert set(parts) == {("softmax", "float32"), ("softmax", "float16"), ("add", "float32"), ("relu", "float16")}
    busy, most, begun = set[str](), 0, []
    for line in (tmp_path / "busy").read_text().splitlines():
        name, seconds = line[1:].split()
        (busy.add if line[0] == "+" else busy.discard)(name)
        most = max(most, len(busy))
        begun += [name] if line[0] == "+" else []
        assert line[0] == "-" or 30 < float(seconds) < 200
    assert most == min(at_once, 4)
    assert at_once > 1 or begun == list(families)
    log = (tmp_path / "ladder.log").read_text()
    assert "gelu float32: no record" in log
    assert "softmax: turns: waiting 1.0 s, shared 2.0 s, alone 3.0 s" in log
    with tarfile.open(tmp_path / "ladder.tar.gz") as packed:
        assert len(packed.getnames()) == 3


def test_shares_of_time() -> None:
    """Of 515 s that are left before the last ones."""
    end = 515 + card.LEAST_S / 3
    assert card.enough_for(4, 80, 0.0, end, 1) == pytest.approx(card.PATIENCE * 515 / 20)
    assert card.enough_for(4, 80, 0.0, end, 5) == pytest.approx(card.PATIENCE * 515 / 4)
    assert card.enough_for(4, 10, 415.0, end, 5) == pytest.approx(515)  # the last ones may have all that is left


@pytest.mark.parametrize(("until", "fails_at", "untried"), [(-1.0, 9, 3), (math.inf, 1, 2), (math.inf, 9, 0)])
def test_sets_that_nobody_tried_are_recorded_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: float, fails_at: int, untried: int
) -> None:
    class Ring:
        rates = SimpleNamespace(dram_bytes=1e12, launch_us=2.0)
        is_broken = False

        def __init__(self, *_: object) -> None:
            return

        def points(self, dtype: str, name: str, sizes: Mapping[str, int], seconds: float) -> list[PeerPoint]:
            self.is_broken = sizes["N"] >= fails_at
            return [PeerPoint(dtype, name, sizes, "", True, 1, 0.0, 0.0, "")]

    streams = SimpleNamespace(Stream=object, stream=lambda _: nullcontext())
    version = type("TorchVersion", (str,), {})("2.11")  # PyTorch's is no plain string, which JSON would not take
    torch = SimpleNamespace(cuda=streams, no_grad=nullcontext, __version__=version)
    monkeypatch.setattr(peer_bench, "need_torch", lambda: torch)
    monkeypatch.setattr(peer_bench, "_Ring", Ring)
    sets = [("", {"N": n}) for n in range(1, 4)]
    found = peer_bench.bench_peers(
        load_family("add"), ("float32",), sets, INFO, Settings(tmp_path), PeerOptions(), lambda _: None, until
    )
    assert type(found.torch) is str
    assert [p.sizes["N"] for p in found.points] == [1, 2, 3]
    assert sum(p.message.startswith(NOT_BEGUN) for p in found.points) == untried


@pytest.mark.parametrize(("first", "count"), [(4, 4), (4, 5), (4, 64), (12, 100), (0, 0)])
def test_copies_on_the_device_repeat_the_first_values_to_the_end(first: int, count: int) -> None:
    want = np.resize(np.arange(first, dtype=np.uint8), count)
    got = np.full(count, 255, np.uint8)
    got[:first] = want[:first]
    for begin, piece in doubled(first, count):
        assert piece <= begin  # no copy overlaps itself
        got[begin : begin + piece] = got[:piece]
    assert (got == want).all()


def test_repeating_inputs_are_the_first_values_of_the_whole_ones() -> None:
    launch = operation_launch(load_family("embedding"), "float16", load_family("embedding").sizes["small"])
    whole, first = make_inputs(launch, 0), repeating_inputs(launch, 0, 100)
    assert set(whole) == set(first)
    for name, values in first.items():
        assert 0 < values.size <= 100
        assert (whole[name][: values.size] == values).all()
    assert any(values.size < whole[name].size for name, values in first.items())


def test_the_first_set_is_nobodys_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever loads PyTorch and compiles for the first time would have nothing left of its own."""
    now, given = [0.0], list[float]()

    class Ring:
        rates = SimpleNamespace(dram_bytes=1e12, launch_us=2.0)
        is_broken = False

        def __init__(self, *_: object) -> None:
            now[0] += 10

        def points(self, dtype: str, name: str, sizes: Mapping[str, int], seconds: float) -> list[PeerPoint]:
            now[0] += seconds + (15 if sizes["N"] == 31 else 0.5)
            given.append(seconds)
            return [PeerPoint(dtype, name, sizes, "", True, 1, 0.0, 0.0, "")]

    streams = SimpleNamespace(Stream=object, stream=lambda _: nullcontext())
    torch = SimpleNamespace(cuda=streams, no_grad=nullcontext, __version__="2.11")
    monkeypatch.setattr(peer_bench, "need_torch", lambda: torch)
    monkeypatch.setattr(peer_bench, "_Ring", Ring)
    monkeypatch.setattr(peer_bench, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(peer_bench, "Pace", partial(Pace, clock=lambda: now[0]))
    sets = [("", {"N": n}) for n in range(1, 32)]
    settings, options = Settings(tmp_path), PeerOptions(seconds=0.25, compiled="off")
    found = peer_bench.bench_peers(
        load_family("add"), ("float32",), sets, INFO, settings, options, lambda _: None, 25.0 + 3 * 20.0, 3
    )
    assert not any(p.message for p in found.points)
    assert now[0] == pytest.approx(25.0 + 20.0, abs=1.0)
    assert 0.05 < given[-1] < 0.25


def test_each_element_type_is_written_as_soon_as_it_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bench(family: object, rungs: object, dtypes: tuple[str, ...], *_: object) -> LadderBench:
        if dtypes == ("bfloat16",):
            raise RuntimeError("the card is gone")
        return report(*dtypes)

    monkeypatch.setattr(device, "find_gpu", lambda: INFO)
    monkeypatch.setattr(timing, "bench", bench)
    whole = bench_family("softmax", dtype="float32,float16", settings=Settings(tmp_path)).report
    assert isinstance(whole, LadderBench)
    assert [r.dtype for r in whole.rungs] == ["float32", "float16"]
    with pytest.raises(RuntimeError):
        bench_family("softmax", dtype="all", records=tmp_path / "new", settings=Settings(tmp_path))
    assert set(card.records_of(tmp_path / "new")) == {("softmax", "float32"), ("softmax", "float16")}
    with pytest.raises(TilewrightError, match="no dtype 'int8'"):
        bench_family("softmax", dtype="float16,int8", settings=Settings(tmp_path))
