"""The ops that a tile can be chosen for, as frozen values; a dim may be a range (`Dim.low` < `Dim.high`)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

from tilewright.errors import EXIT_REFUSED, TilewrightError
from tilewright.launch.dtypes import DTYPES, DType
from tilewright.skeleton.elements import GemmDType

# The matrix instruction's element type by the array's; float32 arrays go through it rounded to TF32.
MATRIX_DTYPES: dict[str, GemmDType] = {"float16": "fp16", "bfloat16": "bf16", "int8": "int8", "float32": "tf32"}
SHORT_DTYPES = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "tf32": "float32"}


@dataclass(frozen=True)
class Gemm:
    """C[batch, m, n] = A[batch, m, k] @ B[batch, k, n], row-major, FP32 (integers: INT32) sums.

    Attributes:
        dtype: of A and B.
        out_dtype: of C.
        name: ``gemm``, ``batched_gemm`` or ``conv`` (a convolution as the implicit GEMM that this is).
    """

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: str = "float16"
    out_dtype: str = "float16"
    name: str = "gemm"

    @property
    def flops(self) -> float:
        """Operations: a multiply and an add for each product."""
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def unique_bytes(self) -> float:
        """DRAM bytes where each input is read once and the output written once."""
        inputs = (self.m * self.k + self.k * self.n) * element(self.dtype).item_bytes
        return float(self.batch * (inputs + self.m * self.n * element(self.out_dtype).item_bytes))


@dataclass(frozen=True)
class Attention:
    """softmax(Q K^T / sqrt(d)) V with Q, K, V of [b, h, n, d]; ``causal`` leaves out keys after the query."""

    b: int
    h: int
    n: int
    d: int
    causal: bool = False
    dtype: str = "float16"
    name: str = "attention"

    @property
    def flops(self) -> float:
        """Two products of 2 d operations for each query and key that it sees: n², n(n + 1) / 2 under the mask."""
        seen = self.n * (self.n + 1) / 2 if self.causal else self.n**2
        return 4.0 * self.b * self.h * seen * self.d

    @property
    def unique_bytes(self) -> float:
        """Q, K and V read once, the output written once."""
        return 4.0 * self.b * self.h * self.n * self.d * element(self.dtype).item_bytes


@dataclass(frozen=True)
class RowReduction:
    """One value (or a normalised row) per row of [r, c]: sums, softmax, norms.

    Attributes:
        writes_rows: the output is as large as the input (softmax, norms), not one value per row.
    """

    r: int
    c: int
    writes_rows: bool = False
    dtype: str = "float32"
    name: str = "row_reduction"

    @property
    def flops(self) -> float:
        """One operation per element; it never decides."""
        return float(self.r * self.c)

    @property
    def unique_bytes(self) -> float:
        """The input once; the output once: rows as they came in, sums in FP32."""
        item_bytes = element(self.dtype).item_bytes
        out = self.r * self.c * item_bytes if self.writes_rows else self.r * element("float32").item_bytes
        return float(self.r * self.c * item_bytes + out)


@dataclass(frozen=True)
class Elementwise:
    """out[i] = f(in_0[i], …) over n elements."""

    n: int
    inputs: int = 1
    dtype: str = "float32"
    name: str = "elementwise"

    @property
    def flops(self) -> float:
        """One operation per element and input; it never decides."""
        return float(self.n * self.inputs)

    @property
    def unique_bytes(self) -> float:
        """Every input read once, the output written once."""
        return float(self.n * (self.inputs + 1) * element(self.dtype).item_bytes)


@dataclass(frozen=True)
class Convolution:
    """A 2D convolution: NHWC input [n, h, w, c], filters [k, r, s, c]; stride and padding the same both ways."""

    n: int
    h: int
    w: int
    c: int
    k: int
    r: int
    s: int
    stride: int = 1
    pad: int = 0
    dtype: str = "float16"
    name: str = "conv"

    @property
    def p(self) -> int:
        """Rows of the output."""
        return (self.h + 2 * self.pad - self.r) // self.stride + 1

    @property
    def q(self) -> int:
        """Columns of the output."""
        return (self.w + 2 * self.pad - self.s) // self.stride + 1

    def as_gemm(self) -> Gemm:
        """The implicit GEMM: m = n·p·q output pixels, n = k filters, k = r·s·c taps. A is gathered, never stored."""
        return Gemm(self.n * self.p * self.q, self.k, self.r * self.s * self.c, 1, self.dtype, self.dtype, "conv")


Target = Literal["cuda", "triton"]
Op = Gemm | Attention | RowReduction | Elementwise | Convolution


@dataclass(frozen=True)
class Range:
    """A dim that is known only as ``low`` to ``high``, both included."""

    dim: str
    low: int
    high: int


@dataclass(frozen=True)
class Request:
    """What was asked for: the op at the upper end of its range, and the range where the shape is dynamic."""

    op: Op
    dynamic: Range | None = None


def element(dtype: str) -> DType:
    """The element type of a name.

    Raises:
        TilewrightError: ``tile/unknown_dtype``.
    """
    if dtype not in DTYPES:
        raise TilewrightError(
            "tile/unknown_dtype",
            f"'{dtype}' is no element type.",
            {"dtype": dtype, "known": sorted(DTYPES)},
            "Use a NumPy or ml_dtypes name: float16, bfloat16, int8, float32.",
        )
    return DTYPES[dtype]


def skeleton_dtype(dtype: str) -> GemmDType:
    """The matrix skeleton's name of an element type.

    Raises:
        TilewrightError: ``tile/no_matrix_dtype``, exit 4, where there is no matrix instruction of it here.
    """
    if dtype not in MATRIX_DTYPES:
        raise TilewrightError(
            "tile/no_matrix_dtype",
            f"There is no matrix product of {dtype} here.",
            {"dtype": dtype, "known": sorted(MATRIX_DTYPES)},
            f"Supported are {', '.join(MATRIX_DTYPES)} (float32 as TF32).",
            EXIT_REFUSED,
        )
    return MATRIX_DTYPES[dtype]


def at(op: Op, dim: str, value: int) -> Op:
    """The same op with one dim at another value."""
    return replace(op, **{dim: value})  # type: ignore[arg-type]


OPS: dict[str, type[Op]] = {
    "gemm": Gemm,
    "batched_gemm": Gemm,
    "attention": Attention,
    "row_reduction": RowReduction,
    "elementwise": Elementwise,
    "conv": Convolution,
}
_OPTIONAL = {"batch": 1, "causal": 0, "writes_rows": 0, "inputs": 1, "stride": 1, "pad": 0}
_FLAGS = ("causal", "writes_rows")
# What is compiled into a kernel cannot vary between its launches.
_COMPILED_IN = {
    "attention": ("d", "causal"),
    "row_reduction": ("writes_rows",),
    "elementwise": ("inputs",),
    "conv": ("r", "s", "stride", "pad"),
}
# Kernels count rows and columns in 32 bits, rounded up to whole tiles.
LARGEST_DIM = 2**31 - 1025
_TEXT = ("dtype", "out_dtype", "name")


def request(name: str, dims: tuple[str, ...], dtype: str | None) -> Request:
    """Read ``("M=4096", "N=4096", "K=1..4096")``: one dim may be a range.

    Raises:
        TilewrightError: ``tile/unknown_op``, ``tile/bad_dims``, ``tile/unknown_dtype``.
    """
    kind = OPS.get(name)
    if kind is None:
        known = ", ".join(OPS)
        raise TilewrightError("tile/unknown_op", f"There is no op '{name}'.", {"op": name}, f"Known are {known}.")
    wanted = [f.name for f in fields(kind) if f.name not in _TEXT]
    values: dict[str, int] = {}
    dynamic: Range | None = None
    for text in dims:
        dim, low, high = _dim(text, name, wanted)
        if dim in values:
            raise _bad_dims(name, wanted, f"{dim.upper()} is given twice.")
        if low < high:
            if dynamic is not None:
                raise _bad_dims(name, wanted, "Only one dim may be a range.")
            if dim in _COMPILED_IN.get(name, ()):
                raise _bad_dims(name, wanted, f"{dim.upper()} is compiled into a kernel: it may be no range.")
            dynamic = Range(dim, low, high)
        values[dim] = high
    missing = [dim for dim in wanted if dim not in values and dim not in _OPTIONAL]
    if name == "batched_gemm" and "batch" not in values:
        missing.append("batch")
    if missing:
        raise _bad_dims(name, wanted, f"{', '.join(dim.upper() for dim in missing)} missing.")
    if dynamic is not None:  # what holds at both ends holds between them
        _made(kind, {**values, dynamic.dim: dynamic.low}, dtype)
    return Request(_made(kind, values, dtype), dynamic)


def _made(kind: type[Op], values: dict[str, int], dtype: str | None) -> Op:
    given: dict[str, object] = dict(values)
    for flag in _FLAGS:
        if flag in given:
            given[flag] = bool(given[flag])
    if dtype is not None:
        given["dtype"] = SHORT_DTYPES.get(dtype, dtype)
        element(str(given["dtype"]))
    if kind is Gemm:
        given["name"] = "batched_gemm" if values.get("batch", 1) > 1 else "gemm"
        kinds = element(str(given.get("dtype", "float16"))).kind
        given["out_dtype"] = "int32" if kinds == "int" else str(given.get("dtype", "float16"))
    op = kind(**given)  # type: ignore[arg-type]
    if isinstance(op, Convolution) and (op.p < 1 or op.q < 1):
        raise TilewrightError("tile/bad_dims", "The filter is larger than the padded image.", {"p": op.p, "q": op.q})
    return op


def _dim(text: str, name: str, wanted: list[str]) -> tuple[str, int, int]:
    dim, equals, value = text.partition("=")
    dim = dim.strip().lower()
    low, dots, high = value.strip().partition("..")
    if not equals or dim not in wanted:
        raise _bad_dims(name, wanted, f"'{text}' is no dim of {name}.")
    if not low.isdecimal() or (dots and not high.isdecimal()):
        raise _bad_dims(name, wanted, f"'{text}' is neither a number nor a range such as {dim.upper()}=1..4096.")
    first, last = int(low), int(high) if dots else int(low)
    least, most = 0 if dim in ("pad", *_FLAGS) else 1, 1 if dim in _FLAGS else LARGEST_DIM
    if last < first:
        raise _bad_dims(name, wanted, f"'{text}' must rise.")
    if first < least or last > most:
        raise _bad_dims(name, wanted, f"'{text}' is out of range: {dim.upper()} is {least} to {most}.")
    return dim, first, last


def _bad_dims(name: str, wanted: list[str], message: str) -> TilewrightError:
    given = " ".join(f"{dim.upper()}=…" if dim not in _OPTIONAL else f"[{dim.upper()}=…]" for dim in wanted)
    return TilewrightError("tile/bad_dims", message, {"op": name, "dims": wanted}, f"Write: {name} {given}.")
