"""What an operation takes: arithmetic operations, and unique bytes to and from DRAM. All functions are pure.

Bytes are counted once per value, inputs read and outputs written, however often a kernel touches them: the roofline's
numerator and denominator, not a prediction. A multiply-add is two operations; a comparison, an exponential, a division
or a square root is one each.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import TilewrightError

# Per element: maximum, subtraction, exponential, sum, division.
SOFTMAX_OPS = 5
# Per element: square and sum, scale, weight.
RMSNORM_OPS = 4
# Per element: sum, difference from the mean, square and sum, scale, weight, bias.
LAYERNORM_OPS = 7


@dataclass(frozen=True)
class OpCount:
    """Operations and unique DRAM bytes of one launch."""

    ops: float
    dram_bytes: float

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.ops / self.dram_bytes


def gemm(
    m: int, n: int, k: int, input_bytes: float = 4, output_bytes: float | None = None, *, batch: int = 1
) -> OpCount:
    """``batch`` products C[m, n] = A[m, k] @ B[k, n]; bytes per element."""
    _positive(m=m, n=n, k=k, batch=batch)
    written = input_bytes if output_bytes is None else output_bytes
    return OpCount(2.0 * batch * m * n * k, batch * ((m * k + k * n) * input_bytes + m * n * written))


def gemv(m: int, k: int, input_bytes: float = 4, output_bytes: float | None = None) -> OpCount:
    """y[m] = A[m, k] @ x[k]."""
    return gemm(m, 1, k, input_bytes, output_bytes)


def dot(n: int, item_bytes: float = 4) -> OpCount:
    """The sum of x[i] * y[i]: one value is written."""
    return gemm(1, 1, n, item_bytes)


def elementwise(n: int, inputs: int, ops_per_element: float = 1, item_bytes: float = 4, *, outputs: int = 1) -> OpCount:
    """``outputs`` arrays of n from ``inputs`` arrays of n: an addition has two inputs, a ReLU one."""
    _positive(n=n, inputs=inputs, outputs=outputs)
    return OpCount(float(n) * ops_per_element, float(n) * (inputs + outputs) * item_bytes)


def softmax(rows: int, columns: int, item_bytes: float = 4) -> OpCount:
    """Softmax along the rows, shifted by the maximum."""
    _positive(rows=rows, columns=columns)
    return OpCount(float(SOFTMAX_OPS * rows * columns), 2.0 * rows * columns * item_bytes)


def rmsnorm(rows: int, columns: int, item_bytes: float = 4) -> OpCount:
    """RMSNorm along the rows, with a weight per column; what is done once per row is not counted."""
    _positive(rows=rows, columns=columns)
    return OpCount(float(RMSNORM_OPS * rows * columns), (2.0 * rows + 1) * columns * item_bytes)


def layernorm(rows: int, columns: int, item_bytes: float = 4) -> OpCount:
    """LayerNorm along the rows, with a weight and a bias per column; what is done once per row is not counted."""
    _positive(rows=rows, columns=columns)
    return OpCount(float(LAYERNORM_OPS * rows * columns), (2.0 * rows + 2) * columns * item_bytes)


def attention(
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    head_dim: int,
    item_bytes: float = 2,
    *,
    kv_heads: int | None = None,
    causal: bool = False,
) -> OpCount:
    """softmax(Q K^T) V: both products, as is the custom; the softmax between them is not counted, nor its bytes.

    Args:
        kv_heads: heads of K and V where several heads of Q share one; as many as ``heads`` by default.
        causal: query i sees the keys up to i, counted from the end where there are more keys than queries.
    """
    shared = heads if kv_heads is None else kv_heads
    _positive(batch=batch, heads=heads, queries=queries, keys=keys, head_dim=head_dim, kv_heads=shared)
    pairs = queries * keys
    if causal:
        seen = min(queries, keys)
        pairs = seen * keys - seen * (seen - 1) // 2
    ops = 4.0 * batch * heads * pairs * head_dim
    return OpCount(ops, 2.0 * batch * head_dim * (heads * queries + shared * keys) * item_bytes)


def accumulator_registers(rows: int, columns: int, threads: int, item_bytes: int = 4) -> int:
    """Registers of a thread that hold its share of a block's rows x columns sums."""
    _positive(rows=rows, columns=columns, threads=threads, item_bytes=item_bytes)
    return -(-rows * columns * item_bytes // (4 * threads))


def convolution(
    batch: int,
    channels: int,
    height: int,
    width: int,
    filters: int,
    kernel: tuple[int, int],
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    item_bytes: float = 4,
) -> OpCount:
    """A 2D convolution, as the matrix product that it is: [batch * outputs, channels * kernel] by [.., filters].

    Raises:
        TilewrightError: ``arch/bad_shape``, where no output is left, or channels or filters do not split into groups.
    """
    _positive(batch=batch, channels=channels, height=height, width=width, filters=filters, groups=groups)
    _positive(stride=stride, dilation=dilation, kernel_height=kernel[0], kernel_width=kernel[1])
    reached = [dilation * (size - 1) + 1 for size in kernel]
    rows = (height + 2 * padding - reached[0]) // stride + 1
    columns = (width + 2 * padding - reached[1]) // stride + 1
    if rows < 1 or columns < 1 or channels % groups or filters % groups:
        raise TilewrightError(
            "arch/bad_shape",
            f"A convolution of {channels} x {height} x {width} by {filters} filters has no such output.",
            {"rows": rows, "columns": columns, "groups": groups},
            "The kernel has to fit into the padded image, and channels and filters have to be multiples of the groups.",
        )
    taps = channels // groups * kernel[0] * kernel[1]
    values = batch * channels * height * width + filters * taps + batch * filters * rows * columns
    return OpCount(2.0 * batch * filters * rows * columns * taps, float(values) * item_bytes)


def _positive(**sizes: int) -> None:
    bad = {name: size for name, size in sizes.items() if size < 1}
    if bad:
        named = ", ".join(f"{name} = {size}" for name, size in bad.items())
        raise TilewrightError(
            "arch/bad_shape", f"There is nothing to compute: {named}.", dict(bad), "Sizes begin at 1."
        )
