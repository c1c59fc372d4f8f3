"""Findings in words: the line, the two threads, the bytes and the step that is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from tilewright.emulator.checks.reports import Detail, Finding
from tilewright.launch.executor import Hazard


def describe(finding: Finding, line_of_site: Callable[[int], int | None], name_of_site: Callable[[int], str]) -> Hazard:
    """One sentence for a finding.

    Args:
        line_of_site: source line of an instruction, or None.
        name_of_site: its PTX name (``cp.async.cg.shared.global``), which decides what the remedy is called.
    """
    words = _Words(finding, line_of_site, name_of_site)
    message = _SENTENCES.get(finding.kind, _anything)(words)
    if finding.detail.note:
        message += f" ({finding.detail.note})"
    if finding.count > 1:
        message += f" [{finding.count} times]"
    return Hazard(finding.kind, line_of_site(finding.site), message)


def describe_all(
    findings: Iterable[Finding], line_of_site: Callable[[int], int | None], name_of_site: Callable[[int], str]
) -> tuple[Hazard, ...]:
    """One hazard per kind, line and earlier line: an unrolled loop makes many instructions of one line.

    Findings are counted together; the first of them gives the detail, one across warps if there is one.
    """
    together: dict[tuple[str, int | None, int | None], Finding] = {}
    for finding in findings:
        line = line_of_site(finding.site)
        other = line_of_site(finding.other_site) if finding.other_site >= 0 else None
        # Without lines, instructions are told apart by themselves; negative, so that they are no lines.
        key = (
            finding.kind,
            -1 - finding.site if line is None else line,
            -1 - finding.other_site if other is None else other,
        )
        first = together.get(key)
        if first is not None:
            shown = finding if finding.detail.is_across_warps and not first.detail.is_across_warps else first
            finding = replace(shown, count=first.count + finding.count)
        together[key] = finding
    return tuple(describe(finding, line_of_site, name_of_site) for finding in together.values())


class _Words:
    """The parts of a sentence."""

    def __init__(
        self, finding: Finding, line_of_site: Callable[[int], int | None], name_of_site: Callable[[int], str]
    ) -> None:
        detail = finding.detail
        self.detail: Detail = detail
        self.here = _place(finding.site, line_of_site, name_of_site)
        self.there = _place(finding.other_site, line_of_site, name_of_site) if finding.other_site >= 0 else "before"
        self.name = name_of_site(finding.site)
        self.other_name = name_of_site(finding.other_site) if finding.other_site >= 0 else ""
        self.bytes = _bytes(detail)
        self.thread = _thread(detail.thread)
        self.same_warp = detail.other_thread >= 0 and detail.thread >> 5 == detail.other_thread >> 5
        self.other = _thread(detail.other_thread)
        self.block = f"block {detail.block}"

    def with_warp(self, thread: int) -> str:
        """A thread, with its warp where two warps are concerned."""
        return _thread(thread) if self.same_warp or thread < 0 else f"{_thread(thread)} (warp {thread >> 5})"

    def missing_order(self) -> str:
        """What two accesses of different threads need between them."""
        if self.same_warp:
            return "both are in one warp with nothing between to order its lanes: add __syncwarp() between them"
        if self.detail.other_thread < 0:
            return f"without waiting for it: wait for the mbarrier of the copy before {self.here}"
        return "no barrier between: add __syncthreads() between them"

    def wait_for_copy(self, copy: str) -> str:
        """The wait that makes an asynchronous copy land."""
        if "bulk_group" in copy:
            return "wait for its group (cp.async.bulk.commit_group, cp.async.bulk.wait_group.read)"
        if "bulk" in copy or copy.startswith("st.async"):
            return "wait for its mbarrier (mbarrier.try_wait)"
        return "wait for its group (cp.async.wait_group / __pipeline_wait_prior)"


def _place(site: int, line_of_site: Callable[[int], int | None], name_of_site: Callable[[int], str]) -> str:
    line = line_of_site(site)
    return f"line {line}" if line is not None else f"the {name_of_site(site)}"


def _thread(thread: int) -> str:
    return f"thread {thread}" if thread >= 0 else "an asynchronous copy"


def _symbol(name: str) -> str:
    """A variable as the source calls it: ``tile`` of ``_ZZ4gemmPKfE4tile`` (Itanium ABI, local names)."""
    local = re.fullmatch(r"_ZZ.*?E([1-9]\d*)([A-Za-z_]\w*)", name)
    while local is not None:
        size, rest = int(local[1]), local[2]
        if len(rest) == size or (len(rest) > size and rest[size] == "_"):
            return rest[:size]
        local = re.fullmatch(r".*?E([1-9]\d*)([A-Za-z_]\w*)", rest)
    return name


def _bytes(detail: Detail) -> str:
    name = _symbol(detail.symbol) or "memory"
    if detail.size_bytes <= 0:
        return name
    last = detail.offset + detail.size_bytes - 1
    return f"{name}[{detail.offset}]" if detail.size_bytes == 1 else f"{name}[{detail.offset}..{last}]"


def _outside(verb: str) -> Callable[[_Words], str]:
    def sentence(w: _Words) -> str:
        first, size = w.detail.offset, w.detail.size_bytes
        name, *limit = w.detail.symbol.split(" ", 1)
        where = " ".join([_symbol(name), *limit]) or "memory"
        return (
            f"bytes {first:,}..{first + max(size, 1) - 1:,} of {where} are {verb} at {w.here} "
            f"by {w.thread} of {w.block}: out of bounds, correct the index or guard the access"
        )

    return sentence


def _misaligned(w: _Words) -> str:
    return (
        f"{w.bytes} is accessed at {w.here} by {w.thread} of {w.block}: the address is no multiple of the access size"
    )


def _uninitialised(w: _Words) -> str:
    reader = f"{w.bytes} is read at {w.here} by {w.thread} of {w.block}"
    return f"{reader}, but nothing has written it: fill it, or correct the index"


def _read_in_flight(w: _Words) -> str:
    return (
        f"{w.bytes} is read at {w.here} by {w.thread} while the {_short(w.other_name)} of {w.there} ({w.other}) "
        f"is still in flight: {w.wait_for_copy(w.other_name)} before {w.here}"
    )


def _write_in_flight(w: _Words) -> str:
    return (
        f"{w.bytes} is written at {w.here} by {w.thread} while the {_short(w.other_name)} of {w.there} ({w.other}) "
        f"is still in flight to the same bytes: {w.wait_for_copy(w.other_name)} before {w.here}, or use another stage"
    )


def _race(first: str, then: str) -> Callable[[_Words], str]:
    return lambda w: (
        f"{w.bytes} is {first} at {w.there} by {w.with_warp(w.detail.other_thread)}, "
        f"{then} at {w.here} by {w.with_warp(w.detail.thread)}, {w.missing_order()}"
    )


def _never_waited(w: _Words) -> str:
    if "bulk_group" in w.name:
        return (
            f"the {_short(w.name)} of {w.here} from {w.bytes} by {w.thread} may not have read it when the kernel ends: "
            f"{w.wait_for_copy(w.name)} before the end"
        )
    return (
        f"the {_short(w.name)} of {w.here} to {w.bytes} by {w.thread} is still in flight when the kernel ends: "
        f"{w.wait_for_copy(w.name)} before the end"
    )


def _proxy(w: _Words) -> str:
    return (
        f"{w.bytes} is written at {w.there} by {w.other} and read at {w.here} through the asynchronous proxy, "
        f"no proxy fence between: add fence.proxy.async after {w.there}, before the barrier"
    )


def _async_read(w: _Words) -> str:
    if not w.detail.size_bytes:
        return (
            f"a result of the wgmma of {w.there} is read at {w.here} by {w.thread} while it is still being computed: "
            f"commit it (wgmma.commit_group) and add wgmma.wait_group before {w.here}"
        )
    wait = "wgmma.wait_group" if "wgmma" in w.other_name else "cp.async.bulk.wait_group.read"
    return (
        f"{w.bytes} is written at {w.here} by {w.thread} while the {_short(w.other_name)} of {w.there} ({w.other}) "
        f"still reads it: add {wait} before {w.here}"
    )


def _overlap(w: _Words) -> str:
    return (
        f"{w.bytes} is written at {w.here} by {w.thread} of {w.block}, and with another value by another block: "
        "the result depends on their order"
    )


def _between_blocks(w: _Words) -> str:
    this, that = ("read", "written") if w.name.startswith(("ld", "cp", "wmma.load")) else ("written", "read")
    return (
        f"{w.bytes} is {this} at {w.here} by {w.thread} of {w.block} and {that} by another block, "
        "with nothing to order the two: blocks run in any order"
    )


def _deadlock(w: _Words) -> str:
    what = w.detail.symbol
    others = f" and {w.detail.size_bytes - 1} more" if w.detail.size_bytes > 1 else ""
    if not w.detail.symbol:
        return (
            f"{w.thread} of {w.block}{others} read memory again and again at {w.here}, for ever: no thread that is "
            "left writes what they wait for"
        )
    return (
        f"{w.thread} of {w.block}{others} wait at {w.here} for ever: the {what} never completes, "
        "an arrival (or a copy that signals it) is missing"
    )


def _divergence(w: _Words) -> str:
    places = f"{w.here} and {w.there}"
    return f"the threads of {w.block} meet at different barriers, {places}: let all of them reach the same one"


def _mbarrier(w: _Words) -> str:
    return f"the mbarrier {w.bytes} is misused at {w.here} by {w.thread} of {w.block}"


def _input_modified(w: _Words) -> str:
    return f"{w.bytes} is written at {w.here} by {w.thread} of {w.block}, but it is an input"


def _warp_mask(w: _Words) -> str:
    return (
        f"{w.thread} of {w.block} executes {w.here} with the member mask {w.detail.offset:#x}, which leaves it out: "
        "name every lane that takes part"
    )


def _inactive_lane(w: _Words) -> str:
    return (
        f"{w.thread} of {w.block} reads {w.detail.symbol} at {w.here}, which does not take part: the value is undefined"
    )


def _cluster_barrier(w: _Words) -> str:
    if w.other_name:
        return (
            f"{w.thread} of {w.block} arrives again at the cluster's barrier at {w.here}, and has not waited since its "
            f"arrival at {w.there}: add barrier.cluster.wait between the two"
        )
    return (
        f"{w.thread} of {w.block} waits for the cluster's barrier at {w.here} without an arrival of its own: add "
        "barrier.cluster.arrive before it"
    )


def _too_early(w: _Words) -> str:
    return (
        f"{w.thread} of {w.block} uses {w.bytes} of another block of the cluster at {w.here}, and that block may not "
        f"have begun: wait for a barrier of the cluster (barrier.cluster.arrive, then .wait) before {w.here}"
    )


def _too_late(w: _Words) -> str:
    return (
        f"{w.thread} of {w.block} uses {w.bytes} of another block of the cluster at {w.here}, and that block may have "
        "ended: end with a barrier of the cluster (barrier.cluster.arrive, then .wait)"
    )


def _anything(w: _Words) -> str:
    return f"{w.detail.symbol or 'something'} is wrong at {w.here} for {w.thread} of {w.block}"


def _short(name: str) -> str:
    """``cp.async.cg.shared.global.L2::128B`` is ``cp.async``."""
    for known in ("cp.async.bulk.tensor", "cp.async.bulk", "cp.async", "st.async", "wgmma"):
        if name.startswith(known):
            return known
    return name or "copy"


_SENTENCES: dict[str, Callable[[_Words], str]] = {
    "out_of_bounds_read": _outside("read"),
    "out_of_bounds_write": _outside("written"),
    "misaligned": _misaligned,
    "uninitialised_read": _uninitialised,
    "read_in_flight": _read_in_flight,
    "write_in_flight": _write_in_flight,
    "race_read_after_write": _race("written", "read"),
    "race_write_after_read": _race("read", "written"),
    "race_write_after_write": _race("written", "written again"),
    "copy_never_waited": _never_waited,
    "missing_proxy_fence": _proxy,
    "async_read_in_flight": _async_read,
    "overlapping_blocks": _overlap,
    "race_between_blocks": _between_blocks,
    "deadlock": _deadlock,
    "barrier_divergence": _divergence,
    "mbarrier_misuse": _mbarrier,
    "input_modified": _input_modified,
    "warp_mask": _warp_mask,
    "inactive_lane_read": _inactive_lane,
    "cluster_barrier_misuse": _cluster_barrier,
    "remote_too_early": _too_early,
    "remote_too_late": _too_late,
}
