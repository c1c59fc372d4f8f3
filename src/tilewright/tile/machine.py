"""The card's rates as the cost model takes them: cycles, bytes per cycle, multiply-adds per cycle, per SM."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arch.arch import Arch
from tilewright.arch.devices import Device
from tilewright.tile.ops import skeleton_dtype

# Multiply-adds of 16-bit operands over those of TF32, on every architecture with TF32 (NVIDIA A100 whitepaper, Table
# 1).
TF32_OF_FP16 = 0.5


@dataclass(frozen=True)
class Machine:
    """An architecture and a card of it."""

    arch: Arch
    device: Device

    @property
    def clock_hz(self) -> float:
        """The boost clock: what a card runs at while it is neither hot nor at its power limit."""
        return self.device.boost_clock_hz

    def mac_per_cycle(self, dtype: str) -> float:
        """Dense multiply-adds of ``mma.sync`` per SM and cycle, sums in FP32; see `skeleton_dtype` for what is refused.

        The architecture's, or the card's peak where that is less: GeForce has half the rate with FP32 sums.
        """
        kind = skeleton_dtype(dtype)
        rate = float(self.arch.int8_mac_per_cycle if kind == "int8" else self.arch.fp16_mac_per_cycle)
        rate *= TF32_OF_FP16 if kind == "tf32" else 1.0
        peak = self.device.peaks.get(kind)
        return rate if peak is None else min(rate, peak / (2 * self.device.sms * self.clock_hz))
