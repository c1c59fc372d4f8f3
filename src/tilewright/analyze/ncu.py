"""Metrics of one kernel from an ncu export: ``ncu --csv --page raw`` or ``--page details``, by metric name."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from math import isfinite

from tilewright.errors import TilewrightError

# Our name → ncu's names of it, the raw page's first, then the details page's.
METRICS: Mapping[str, tuple[str, ...]] = {
    "sm_percent": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "Compute (SM) Throughput", "SM [%]"),
    "memory_percent": (
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "Memory Throughput [%]", "Memory [%]",
    ),
    "dram_percent": (
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed", "DRAM Throughput",
    ),
    "l1_hit_percent": ("l1tex__t_sector_hit_rate.pct", "L1/TEX Hit Rate"),
    "l2_hit_percent": ("lts__t_sector_hit_rate.pct", "L2 Hit Rate"),
    "achieved_occupancy_percent": (
        "sm__warps_active.avg.pct_of_peak_sustained_active", "Achieved Occupancy",
    ),
    "sectors_per_load": ("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",),
    "sectors_per_store": ("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",),
    "dram_bytes_read": ("dram__bytes_read.sum",),
    "dram_bytes_written": ("dram__bytes_write.sum",),
    "duration_ns": ("gpu__time_duration.sum", "Duration"),
    "stall_long_scoreboard": ("smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",),
    "stall_short_scoreboard": ("smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",),
    "stall_wait": ("smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",),
    "stall_barrier": ("smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",),
    "stall_math_pipe_throttle": ("smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio",),
    "stall_not_selected": ("smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio",),
}  # fmt: skip
_SCALES = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12, "ns": 1.0, "nsecond": 1.0, "us": 1e3,
           "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}  # fmt: skip
_WITH_UNIT = ("dram_bytes_read", "dram_bytes_written", "duration_ns")
_NAME, _VALUE, _UNIT, _KERNEL, _ID = "Metric Name", "Metric Value", "Metric Unit", "Kernel Name", "ID"


def read_ncu(text: str, kernel: str, file: str) -> dict[str, float]:
    """Metrics of the (first) launch of a kernel: percentages, ratios, bytes, nanoseconds.

    Args:
        kernel: its name; where the export holds one kernel alone, that one is taken.

    Raises:
        TilewrightError: ``analyze/bad_ncu``: no such export, or no such kernel in it.
    """
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if _KERNEL in line and '"ID"' in line), None)
    if start is None:
        raise _bad(file, 'no header line with "ID" and "Kernel Name" was found')
    rows = list(csv.reader(io.StringIO("\n".join(lines[start:]))))
    head, body = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    details = _NAME in head
    launches = _of_details(head, body) if details else _of_raw(head, body)
    names = {name for name, _ in launches}
    word = re.compile(rf"(?<!\w){re.escape(_plain(kernel))}(?!\w)")
    wanted = [found for name, found in launches if word.search(_plain(name.split("(")[0]))]
    if not wanted and len(names) == 1:
        wanted = [found for _, found in launches]
    if not wanted:
        raise _bad(file, f"it holds no launch of {kernel}, but of {', '.join(sorted(names)) or 'none'}")
    metrics = _ours(wanted[0])
    if not metrics:
        raise _bad(file, "it holds none of the metrics that are read here")
    return metrics


Found = Mapping[str, tuple[str, str]]  # metric → (value, unit)


def _of_raw(head: list[str], body: list[list[str]]) -> list[tuple[str, Found]]:
    """One row per launch; the first row has the units."""
    if not body:
        return []
    name = head.index(_KERNEL)
    units = body[0] if not body[0][head.index(_ID)].strip() else [""] * len(head)
    launches = body[1:] if units is body[0] else body
    return [(row[name], {h: (v, u) for h, v, u in zip(head, row, units, strict=True)}) for row in launches]


def _of_details(head: list[str], body: list[list[str]]) -> list[tuple[str, Found]]:
    """One row per metric."""
    at = {column: head.index(column) for column in (_ID, _KERNEL, _NAME, _VALUE, _UNIT) if column in head}
    if len(at) < 5:
        return []
    found: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for row in body:
        launch = found.setdefault((row[at[_ID]], row[at[_KERNEL]]), {})
        unit, metric = row[at[_UNIT]], row[at[_NAME]]
        # "Memory Throughput" stands twice: in percent, and in bytes per second.
        named = f"{metric} [%]" if metric == "Memory Throughput" and unit == "%" else metric
        launch[named] = (row[at[_VALUE]], unit)
    return [(name, metrics) for (_, name), metrics in found.items()]


def _ours(found: Found) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, theirs in METRICS.items():
        for one in theirs:
            value = _number(*found.get(one, ("", "")), has_unit=name in _WITH_UNIT)
            if value is not None:
                out[name] = value
                break
    return out


def _plain(name: str) -> str:
    """``f`` of ``_Z1fPf``; any other name as it is."""
    mangled = re.match(r"_Z(\d+)(\w+)", name)
    return mangled[2][: int(mangled[1])] if mangled else name


def _number(value: str, unit: str, *, has_unit: bool) -> float | None:
    """In bytes or nanoseconds where it has a unit; None where value or unit says nothing: it is not guessed."""
    scale = _SCALES.get(unit) if has_unit else 1.0
    try:
        number = float(value.replace(",", ""))
    except ValueError:
        return None
    return number * scale if scale is not None and isfinite(number) else None


def _bad(file: str, what: str) -> TilewrightError:
    return TilewrightError(
        "analyze/bad_ncu",
        f"An ncu export was needed: {what}.",
        {"file": file},
        "Export it with `ncu --import REPORT --csv --page raw` (or --page details).",
    )
