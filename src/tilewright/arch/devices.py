"""Cards: peaks per precision and memory bandwidth, from ``data/devices.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Device:
    """One card.

    Attributes:
        name: the vendor's name.
        arch: the architecture it runs, ``sm_90a``.
        sms: streaming multiprocessors.
        l2_bytes: size of the L2 cache.
        dram_bytes_per_s: of the datasheet, read and written together.
        peaks: operations per second by precision (``fp16``, ``int8``, …), dense: structured sparsity is not counted.
        sources: document and section of each number.
    """

    name: str
    arch: str
    sms: int
    l2_bytes: int
    dram_bytes_per_s: float
    peaks: Mapping[str, float]
    sources: Mapping[str, str] = field(repr=False)


def find_device(card: str) -> Device | None:
    """The device whose table matches the name that the driver reports, or None: then there is no roofline."""
    for row in _rows():
        if row["match"] in card.lower():
            return _device(row)
    return None


def known_devices() -> tuple[Device, ...]:
    """Every card with a table."""
    return tuple(_device(row) for row in _rows())


def _rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = tomllib.loads(files(__package__).joinpath("data", "devices.toml").read_text("utf-8"))[
        "device"
    ]
    return rows


def _device(row: dict[str, Any]) -> Device:
    single = {key: row[key] for key in ("sms", "l2_bytes", "dram_bytes_per_s")}
    peaks: dict[str, Any] = row["peaks"]
    return Device(
        name=row["name"],
        arch=row["arch"],
        peaks={key: float(number["value"]) for key, number in peaks.items()},
        sources={key: number["source"] for key, number in {**single, **peaks}.items()},
        **{key: number["value"] for key, number in single.items()},
    )
