"""How far a result may be from a float64 reference: derived from the formats, the reduction length and the result.

The inputs reach the reference exactly as the kernel reads them, so their own rounding is no error. What is left:

* **roundings of the result**: the final one to the output's format, and at most three more in an epilogue (scale, bias,
  ``beta * C``), each half a unit: ``relative = 4 * eps(output)``.
* **accumulation**: each of the K additions rounds a partial sum by at most half a unit of the accumulator's format. The
  roundings are nearly independent, so they add up as √K; the partial sums are about as large as the results:
  ``16 * √K * eps(accumulator) * rms(reference)``. 16 covers the largest of 10**8 normally distributed errors (6 sigma)
  and the truncation, instead of rounding, in tensor cores.
* **operands rounded by the kernel** (TF32): errors of the products, independent, so they grow as the result does:
  ``4 * eps(operand) * rms(reference)``. Tensor cores drop the low bits of operands that the kernel did not round: then
  every product is too small, each of its operands by eps at most, and so is the sum: ``2 * eps(operand)``, relative.
* **an epilogue whose terms cancel**: four roundings in the accumulator's format (float32 for integers):
  ``4 * eps * rms(reference)``.

``absolute`` is the sum of the last three. Both are capped by the outer bounds that the project promises for each class
of types. Those are meant for results of the size of 1: the absolute one is multiplied by the rms where that is larger.
Integer outputs must equal the rounded reference: half a unit, and nothing relative.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.launch.dtypes import DTYPES, DType

ROUNDINGS = 4
ACCUMULATION = 16
OPERAND = 4

_TF32_EPSILON = (
    2.0**-10
)  # PTX ISA, "Alternate floating point data formats": tf32 has the range of f32, 10 mantissa bits
# Outer bounds (absolute, relative) by class.
_OUTER_8_BIT, _OUTER_16_BIT, _OUTER_32_BIT = (0.5, 0.1), (1e-2, 1e-2), (1e-3, 1e-3)


@dataclass(frozen=True)
class Arithmetic:
    """What a kernel's PTX says about its inner products.

    Attributes:
        accumulator_epsilon: of the narrowest floating accumulator that was seen.
        operand_epsilon: of operands that the kernel rounds itself; 0.0 where it takes them as they are.
    """

    accumulator_epsilon: float
    operand_epsilon: float = 0.0


@dataclass(frozen=True)
class Tolerance:
    """``|result - reference| <= absolute + relative * |reference|``; ``derivation`` says from what."""

    absolute: float
    relative: float
    derivation: str

    def twice(self) -> Tolerance:
        """Between two results that each keep this one."""
        return Tolerance(2 * self.absolute, 2 * self.relative, f"twice ({self.derivation})")


_MMA = re.compile(r"\b(?:wmma\.mma|wgmma\.mma_async|mma\.sync|mma)\.[\w.:]+")
_HALF_FMA = re.compile(r"\bfma\.rn(?:\.ftz|\.sat|\.relu)*\.(bf16|f16)(?:x2)?\b")
_TYPES = re.compile(r"\.(f16|bf16|tf32|f32|f64|s32)(?=\.|$)")


def read_arithmetic(ptx: str, inputs: Iterable[DType]) -> Arithmetic:
    """Find the accumulators in the PTX: the first type of an ``mma`` is its result's; a half-precision ``fma`` is one.

    Without either, sums are in float32, or in float64 where an input is; and exact where every input is an integer.
    """
    inputs = list(inputs)
    epsilons: list[float] = []
    operand = 0.0
    for opcode in set(_MMA.findall(ptx)):
        types = _TYPES.findall(opcode)
        if types and types[0] in ("f16", "f32"):
            epsilons.append(DTYPES["float16" if types[0] == "f16" else "float32"].epsilon)
        if "tf32" in types:
            operand = _TF32_EPSILON
    for kind in set(_HALF_FMA.findall(ptx)):
        epsilons.append(DTYPES["float16" if kind == "f16" else "bfloat16"].epsilon)
    if not epsilons:
        floats = [dtype for dtype in inputs if dtype.kind == "float"]
        wide = [dtype.epsilon for dtype in floats if dtype.item_bytes >= 4]
        epsilons = [max(wide, default=DTYPES["float32"].epsilon)] if floats else [0.0]
    return Arithmetic(max(epsilons), operand)


def derive(
    output: DType, inputs: Iterable[DType], arithmetic: Arithmetic, reduction: int | None, rms: float
) -> Tolerance:
    """The tolerance of one output.

    Args:
        output: its type.
        inputs: types of the arrays that the kernel reads.
        reduction: length of the inner products; None where it is not known: then only the outer bounds hold.
        rms: root mean square of the reference.
    """
    if output.kind != "float":
        return Tolerance(0.5, 0.0, f"{output.name} must equal the rounded reference")
    outer_absolute, outer_relative = _outer([output, *inputs], arithmetic)
    if reduction is None:
        # What scale the results have is known, and what is far below it is not told apart from an error.
        absolute = outer_absolute * rms
        return Tolerance(
            absolute, outer_relative, f"outer bounds of rms {rms:.3g}: the reduction's length is not known"
        )
    outer_absolute *= max(1.0, rms)
    relative = ROUNDINGS * output.epsilon + 2 * arithmetic.operand_epsilon
    accumulated = ACCUMULATION * math.sqrt(max(reduction, 1)) * arithmetic.accumulator_epsilon
    epilogue = ROUNDINGS * max(arithmetic.accumulator_epsilon, min(output.epsilon, DTYPES["float32"].epsilon))
    absolute = (accumulated + OPERAND * arithmetic.operand_epsilon + epilogue) * rms
    derivation = (
        f"{ROUNDINGS} eps({output.name}) relative; {ACCUMULATION} sqrt(K={reduction}) "
        f"* {arithmetic.accumulator_epsilon:.1e} * rms {rms:.3g}"
    )
    if arithmetic.operand_epsilon:
        derivation += f" + {OPERAND} * {arithmetic.operand_epsilon:.1e} * rms, and 2 of it relative (rounded operands)"
    return Tolerance(min(absolute, outer_absolute), min(relative, outer_relative), derivation)


def _outer(dtypes: list[DType], arithmetic: Arithmetic) -> tuple[float, float]:
    """The outer bounds of the narrowest type that takes part. TF32 has the mantissa of a 16-bit type."""
    narrowest = min(dtype.item_bytes for dtype in dtypes)
    if narrowest > 2 and arithmetic.operand_epsilon:
        return _OUTER_16_BIT
    return _OUTER_8_BIT if narrowest == 1 else _OUTER_16_BIT if narrowest == 2 else _OUTER_32_BIT
