"""Which card a prediction is for: its SMs, and how fast its matrix units are by precision.

The GPU of this machine where it runs the architecture; else the one that is assumed, and that is said: the first card
of the architecture in ``data/devices.toml``, or its ``[[assumed]]`` row where no card of it has a table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files

from tilewright.arch.arch import Arch, canonical_arch
from tilewright.arch.devices import Device, find_device, known_devices
from tilewright.errors import TilewrightError

# Multiply-adds over those of FP16, of the architectures' own rates: TF32 at half of it (NVIDIA A100 whitepaper, Table
# 1), FP8 at twice (the peaks in devices.toml).
OF_FP16 = {"fp16": 1.0, "fp16_acc16": 1.0, "bf16": 1.0, "tf32": 0.5, "fp8": 2.0, "fp8_acc16": 2.0}
_GEFORCE = "geforce"


@dataclass(frozen=True)
class Card:
    """What the prediction has to know of a card.

    Attributes:
        name: the vendor's, or the driver's. sms: streaming multiprocessors, at least 1.
        reason: why this card.
        is_assumed: no card of the architecture was found here or asked for.
        peaks: dense multiply-adds per SM and cycle at the boost clock, by precision as in `Device.peaks`; empty where
            the tables have none of this card.
        like: the card whose peaks these are, where it is another: GeForce cards of one architecture have them alike.
    """

    name: str
    sms: int
    reason: str
    is_assumed: bool = False
    peaks: Mapping[str, float] = field(default_factory=dict)
    like: str = ""

    @property
    def told(self) -> str:
        """A sentence: which card, and why."""
        like = f", with the matrix rates of the {self.like}" if self.like else ""
        head = "No card is known here. Predicted for" if self.is_assumed else "Predicted for"
        return f"{head} {self.name}, {self.sms} SMs ({self.reason}{like})."

    def mac_per_cycle(self, arch: Arch, precision: str) -> float:
        """Multiply-adds of ``mma.sync`` per SM and cycle: the architecture's, or the card's peak where that is less.

        GeForce has half the rate with sums in FP32 (``fp16``, ``bf16``, ``tf32``, ``fp8``); ``fp16_acc16`` and
        ``fp8_acc16`` are those with sums in FP16.
        """
        is_int8 = precision == "int8"
        rate = float(arch.int8_mac_per_cycle) if is_int8 else arch.fp16_mac_per_cycle * OF_FP16[precision]
        peak = self.peaks.get(precision, self.peaks.get(precision.removesuffix("_acc16")))
        # What a datasheet rounds (255.4 of 256) is no other rate.
        return rate if peak is None or peak > rate * 0.97 else peak


def card_of(device: Device, reason: str, *, is_assumed: bool = False) -> Card:
    """The card of a table."""
    return Card(device.name, device.sms, reason, is_assumed, _peaks(device))


def card_here(arch: str, name: str, gpu_arch: str, sms: int, memory_bytes: int) -> Card:
    """The GPU of this machine where code for ``arch`` runs on it, else the assumed one.

    Args:
        name, gpu_arch, sms, memory_bytes: as the driver reports them.
    """
    wanted = canonical_arch(arch)
    if gpu_arch.rstrip("af") != wanted.rstrip("af"):
        return assumed_card(wanted)
    reason = "the GPU here"
    own = find_device(name, sms, memory_bytes)
    if own is not None:
        return card_of(own, reason)
    if _GEFORCE in name.lower():
        alike = next((d for d in known_devices() if d.arch == wanted and _GEFORCE in d.name.lower()), None)
        if alike is not None:
            return Card(name, sms, reason, peaks=_peaks(alike), like=alike.name)
    return Card(name, sms, reason)


@lru_cache(maxsize=16)
def assumed_card(arch: str) -> Card:
    """The card that is assumed of an architecture where none is known.

    Raises:
        TilewrightError: ``arch/unknown``, when there is no such architecture; ``arch/no_card``, when the tables have no
            card of it.
    """
    name = canonical_arch(arch)
    first = next((device for device in known_devices() if device.arch == name), None)
    if first is not None:
        return card_of(first, f"assumed, as a card of {name}", is_assumed=True)
    rows = tomllib.loads(files(__package__).joinpath("data", "devices.toml").read_text("utf-8"))["assumed"]
    row = next((row for row in rows if row["arch"] == name), None)
    if row is None:
        hint = "Add it to arch/data/devices.toml, with its source."
        raise TilewrightError("arch/no_card", f"The tables have no card of {name}.", {"arch": name}, hint)
    return Card(row["name"], row["sms"]["value"], f"assumed, as a card of {name}", True)


def _peaks(device: Device) -> dict[str, float]:
    per_cycle = 2 * device.sms * device.boost_clock_hz
    return {name: peak / per_cycle for name, peak in device.peaks.items()}
