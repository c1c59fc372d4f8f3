"""`tilewright analyze`: what holds a kernel back, and what to do about it first."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import gt
from pathlib import Path

from tilewright import __version__
from tilewright.analyze.record import AnalyzeReport
from tilewright.arch.arch import load_arch
from tilewright.arch.devices import Device, devices_called, find_device, known_devices
from tilewright.build.cache import Cache
from tilewright.errors import TilewrightError
from tilewright.gpu.device import GpuInfo, find_gpu
from tilewright.settings import Settings
from tilewright.workflow.analyze_subject import Asked, triton_entry
from tilewright.workflow.reading import code_fingerprint, headers_digest, includes_of, read_file, sidecar_for

Progress = Callable[[str], None]
Triple = tuple[int, int, int]
FORMAT = 1
# The same on every architecture (CUDA C++ Programming Guide, Technical Specifications per Compute Capability).
GRID_MOST: Triple = (2**31 - 1, 65535, 65535)
BLOCK_MOST: Triple = (1024, 1024, 64)


@dataclass(frozen=True)
class AnalyzeOptions:
    """What the caller knows besides the file.

    Attributes:
        grid, block, shared_bytes: of the launch, in place of the sidecar's.
        sizes: in place of the sidecar's default ones.
        time_us: measured. ncu: an export of ncu, as CSV.
        flops, bytes: of the launch, where they cannot be derived: operations, and unique DRAM bytes, outputs included.
    """

    grid: Triple | None = None
    block: Triple | None = None
    shared_bytes: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    time_us: float | None = None
    ncu: Path | None = None
    flops: float | None = None
    bytes: float | None = None


@dataclass(frozen=True)
class AnalyzeOutcome:
    """Exit code 0: it was analysed."""

    report: AnalyzeReport
    exit_code: int = 0


def analyze(
    path: Path,
    *,
    kernel: str | None = None,
    arch: str | None = None,
    spec: Path | None = None,
    device: str | None = None,
    options: AnalyzeOptions | None = None,
    settings: Settings | None = None,
    use_cache: bool = True,
    progress: Progress | None = None,
) -> AnalyzeOutcome:
    """Baseline figures, roofline, occupancy, ratios, machine code, memory accesses, and the strategies, ranked.

    Args:
        path: a CUDA source, a cubin, an entry of Triton's cache, or a Python file with a Triton kernel and its sidecar.
        kernel: which one, where there are several.
        arch: target of a source; the named card's, the GPU's, the sidecar's or sm_86 by default.
        device: a card, by a part of its name; by default the GPU's, else one with that architecture.

    Raises:
        TilewrightError: bad input (exit 2) or something missing (exit 3).
    """
    path = Path(path)
    given = options or AnalyzeOptions()
    settings = settings or Settings.from_environment()
    begin = time.perf_counter()
    _check(given)
    card = _named(device) if device is not None else None
    gpu = find_gpu() if card is None else None
    default_arch = card.arch if card is not None else gpu.arch if gpu is not None else None
    asked = Asked(path, kernel, arch, spec, default_arch, settings, use_cache)
    cache = Cache(settings.cache_dir, "analyze")
    key = _key(asked, given, card, gpu) if use_cache else ""
    report = cache.get_value(key, AnalyzeReport) if key else None
    if report is None:
        from tilewright.workflow.analyze_report import make_report

        report = make_report(asked, given, card, gpu, progress or (lambda _: None))
        if key:
            cache.put_value(key, report)
    report = replace(
        report,
        kernel=replace(report.kernel, file=str(path)),
        timings_s={"total": round(time.perf_counter() - begin, 3)},
    )
    return AnalyzeOutcome(report)


def _named(name: str) -> Device:
    """The card with that name, or the only one whose name has all of its words.

    Raises:
        TilewrightError: ``analyze/unknown_device``.
    """
    found = devices_called(name)
    if len(found) == 1:
        return found[0]
    have = ", ".join(d.name for d in found or known_devices())
    what = f"'{name}' may be any of several cards." if found else f"There is no card '{name}' in Tilewright's tables."
    raise TilewrightError("analyze/unknown_device", what, {"device": name}, f"Name one of: {have}.")


def card_for(arch: str, gpu: GpuInfo | None) -> tuple[Device | None, str]:
    """(a card of an architecture, why this one); None where the tables have none."""
    own = find_device(gpu.name, gpu.sms, gpu.memory_bytes) if gpu is not None else None
    if own is not None and load_arch(own.arch).name == arch:
        return own, "the GPU here"
    others = [d for d in known_devices() if load_arch(d.arch).name == arch]
    if not others:
        return None, f"no card of {arch} is in the tables: no roofline"
    rest = ", ".join(d.name for d in others[1:])
    also = f"; --device names another: {rest}" if rest else ""
    return others[0], f"assumed, as a card of {arch}{also}"


def _check(given: AnalyzeOptions) -> None:
    """Numbers that no launch can have."""
    for name, triple, most in (("--grid", given.grid, GRID_MOST), ("--block", given.block, BLOCK_MOST)):
        if triple is not None and min(triple) < 1:
            raise _bad(name, f"{name} is {triple}; every extent must be 1 or more")
        if triple is not None and any(map(gt, triple, most)):
            raise _bad(name, f"{name} is {triple}; no GPU takes more than {most}")
    if given.block is not None and given.block[0] * given.block[1] * given.block[2] > 1024:
        raise _bad("--block", f"a block of {given.block} threads is larger than any GPU takes (1024)")
    figures = {"--time-us": given.time_us, "--flops": given.flops, "--bytes": given.bytes}
    for name, value in figures.items():
        if value is not None and not 0 < value < float("inf"):
            raise _bad(name, f"{name} is {value:g}; it must be above 0, and finite")
    if given.shared_bytes is not None and given.shared_bytes < 0:
        raise _bad("--shared-bytes", f"--shared-bytes is {given.shared_bytes}; it cannot be negative")
    for name, value in given.sizes.items():
        if value < 0:
            raise _bad("--size", f"--size {name}={value} is negative")


def _bad(option: str, message: str) -> TilewrightError:
    return TilewrightError("analyze/bad_option", f"{message}.", {"option": option})


def _key(asked: Asked, given: AnalyzeOptions, card: Device | None, gpu: GpuInfo | None) -> str:
    """Everything that decides a report, by content; "" where it cannot be told what does (Python is executed)."""
    path = asked.path
    if path.suffix == ".py":
        return ""
    entry = triton_entry(path)
    files = [path] if entry is None else [entry[0], entry[0].with_suffix(".json"), entry[0].with_suffix(".ptx")]
    contents = [read_file(file) for file in files if file.is_file() or entry is None]
    parts: list[object] = [FORMAT, __version__, code_fingerprint(), path.name, asked.kernel, asked.arch]
    parts += [hashlib.sha256(content).hexdigest() for content in contents]
    if entry is None and contents[0][:4] != b"\x7fELF" and b"\0" not in contents[0]:
        spec = sidecar_for(path, asked.spec, asked.kernel)
        parts += [headers_digest(contents[0], path, includes_of(contents[0], path, spec))]
        parts += [hashlib.sha256(spec.path.read_bytes()).hexdigest() if spec is not None else None]
    elif asked.spec is not None:
        parts.append(hashlib.sha256(read_file(asked.spec)).hexdigest())
    parts += [given.grid, given.block, given.shared_bytes, sorted(given.sizes.items()), given.time_us]
    parts += [given.flops, given.bytes, card.name if card else None, gpu.name if gpu else None]
    parts.append(hashlib.sha256(read_file(given.ncu)).hexdigest() if given.ncu is not None else None)
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()
