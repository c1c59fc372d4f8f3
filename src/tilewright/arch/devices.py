"""Cards: clocks, memory and peaks per precision, from ``data/devices.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

# A driver reports a little less memory than a card has (ECC, its own share); 72 GB are not 48.
MEMORY_TOLERANCE = 0.1
# Words of a name without which it is that of another card.
OTHER_MODELS = frozenset({"ti", "super", "d", "laptop"})


@dataclass(frozen=True)
class Device:
    """One card.

    Every number has its ``source`` in `sources` under its own name, and in `kinds` whether it is ``documented``,
    ``measured`` (a card said so of itself) or ``derived`` (calculated from others, as the source says).

    Attributes:
        name: the vendor's name, with the form where several are called the same.
        arch: the architecture it runs, ``sm_90a``.
        sms: streaming multiprocessors.
        l2_bytes: size of the L2 cache.
        dram_bytes_per_s: of the datasheet, read and written together.
        peaks: operations per second by precision, dense: structured sparsity is not counted. ``fp32`` and ``fp64`` are
            those of the ordinary units; ``tf32``, ``fp16``, ``bf16``, ``fp8``, ``fp4``, ``int8`` those of the matrix
            units, ``fp16`` and ``fp8`` with sums in FP32; ``fp16_acc16`` and ``fp8_acc16`` with sums in FP16, where
            that is faster.
        sources: document and section of each number.
        base_clock_hz: None where no document was found. boost_clock_hz: of the SMs.
        dram_bytes: memory of the card.
        names: what the driver calls it, in lower case and without the vendor.
    """

    name: str
    arch: str
    sms: int
    l2_bytes: int
    dram_bytes_per_s: float
    peaks: Mapping[str, float]
    sources: Mapping[str, str] = field(repr=False)
    kinds: Mapping[str, str] = field(repr=False)
    base_clock_hz: float | None
    boost_clock_hz: float
    dram_bytes: int
    names: tuple[str, ...]


def find_device(card: str, sms: int | None = None, memory_bytes: int | None = None) -> Device | None:
    """The device that a card is, or None: then there is no roofline.

    The name has to be one of the table's to the letter: ``NVIDIA GeForce RTX 4090 Laptop GPU``, ``NVIDIA H100 NVL``,
    ``NVIDIA A10G`` or a MIG slice are other cards than those whose names theirs begin with.

    Args:
        card: as the driver reports it.
        sms, memory_bytes: of the driver too, where they are known; a card that says otherwise is another one.
    """
    name = _plain(card)
    found = next((device for device in known_devices() if name in device.names), None)
    if found is None or (sms is not None and sms != found.sms):
        return None
    if memory_bytes is not None and abs(memory_bytes / found.dram_bytes - 1) > MEMORY_TOLERANCE:
        return None
    return found


def devices_called(text: str) -> tuple[Device, ...]:
    """The card with that name; else all whose names hold every word of ``text``, in any order and case.

    Words are whole: ``h20`` is no H200 and ``l40`` no L40S. A word that makes another model of a name (``Ti``) has to
    be said: ``3070`` is no RTX 3070 Ti. Memory may be written ``80``, ``80 GB`` or ``80gb``.
    """
    exact = find_device(text)
    if exact is not None:
        return (exact,)
    words = _words(text)
    if not words:
        return ()
    return tuple(d for d in known_devices() if words <= (own := _words(d.name)) and not (own - words) & OTHER_MODELS)


def known_devices() -> tuple[Device, ...]:
    """Every card with a table."""
    text = files(__package__).joinpath("data", "devices.toml").read_text("utf-8")
    return tuple(_device(row) for row in tomllib.loads(text)["device"])


def _plain(card: str) -> str:
    return " ".join(card.lower().split()).removeprefix("nvidia ")


def _words(text: str) -> frozenset[str]:
    return frozenset(re.sub(r"(\d)\s*gb\b", r"\1", text.lower().replace("-", " ")).split())


def _device(row: dict[str, Any]) -> Device:
    peaks: dict[str, Any] = row["peaks"]
    single = {key: number for key, number in row.items() if isinstance(number, dict) and key != "peaks"}
    base = single.get("base_clock_hz")
    return Device(
        name=row["name"],
        arch=row["arch"],
        sms=single["sms"]["value"],
        l2_bytes=single["l2_bytes"]["value"],
        dram_bytes_per_s=float(single["dram_bytes_per_s"]["value"]),
        peaks={key: float(number["value"]) for key, number in peaks.items()},
        sources={key: number["source"] for key, number in {**single, **peaks}.items()},
        kinds={key: number["kind"] for key, number in {**single, **peaks}.items()},
        base_clock_hz=None if base is None else float(base["value"]),
        boost_clock_hz=float(single["boost_clock_hz"]["value"]),
        dram_bytes=single["dram_bytes"]["value"],
        names=tuple(_plain(name) for name in row["names"]),
    )
