"""``tilewright.ops.matmul``: products of halves as a PyTorch operator. See ``products`` for which rung takes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from tilewright.arch.arch import load_arch
from tilewright.errors import EXIT_MISSING, TilewrightError
from tilewright.ladder.products import Explanation, Pick, Product, explanation_of, operand_of, pick
from tilewright.ladder.references.matmul import ACTIVATIONS
from tilewright.ladder.repeats import Again, Repeats, told_apart

NAME = "tilewright::matmul"
SCHEMA = "(Tensor a, Tensor b, Tensor? bias, Tensor? c, float alpha, float beta, str activation, str? rung) -> Tensor"
MOST_ALIGNED = 256  # bytes; no rung asks for more


@dataclass(frozen=True)
class Request:
    """A product and its arrays: views of the caller's, none of them a copy.

    Attributes:
        a: [B, M, K]. b: [B, K, N]. bias: [N] or None. c: [B, M, N] or None. y: [B, M, N], new and contiguous.
    """

    product: Product
    a: Any
    b: Any
    bias: Any
    c: Any
    y: Any


def shape_of(a: Any, b: Any, bias: Any = None, c: Any = None, activation: str = "none") -> tuple[Any, ...]:
    """Of the result. Extents may be symbolic.

    Raises:
        TilewrightError: ``ops/shape``, ``ops/dtype``, ``ops/activation``: what does not fit, and what is needed.
    """
    if a.dim() < 2 or b.dim() < 2 or (a.dim() > 3 and b.dim() != 2) or b.dim() > 3:
        message = f"matmul has arrays of {a.dim()} and {b.dim()} dimensions."
        hint = "a: [M, K], [B, M, K] or, where b is a matrix, [..., M, K]; b: [K, N] or [B, K, N]. Reshape them."
        raise TilewrightError("ops/shape", message, {}, hint)
    if a.shape[-1] != b.shape[-2]:
        message = f"a has the shape {tuple(a.shape)} and b {tuple(b.shape)}: K differs."
        raise TilewrightError("ops/shape", message, {}, "A layer's weights [N, K] are b.t().")
    batch = tuple(a.shape[:-2])
    if b.dim() == 3:
        if batch and batch[0] != b.shape[0] and batch[0] != 1 and b.shape[0] != 1:
            raise TilewrightError("ops/shape", f"batches of {batch[0]} and {b.shape[0]} matrices do not match.")
        batch = (b.shape[0] if not batch or batch[0] == 1 else batch[0],)
    shape = (*batch, a.shape[-2], b.shape[-1])
    for name, other in (("b", b), ("bias", bias), ("c", c)):
        if other is not None and (other.dtype != a.dtype or other.device != a.device):
            message = f"a is {a.dtype} on {a.device}, and {name} {other.dtype} on {other.device}."
            raise TilewrightError("ops/dtype", message, {}, "All arrays of a product are alike.")
    if bias is not None and (bias.dim() != 1 or bias.shape[0] != shape[-1]):
        raise TilewrightError("ops/shape", f"bias has the shape {tuple(bias.shape)}; it needs ({shape[-1]},).")
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise TilewrightError("ops/activation", f"there is no activation '{activation}'.", {}, f"There are: {known}.")
    return shape


def request_of(a: Any, b: Any, bias: Any, c: Any, alpha: float, beta: float, activation: str, y: Any = None) -> Request:
    """Views in three dimensions, and what they are to a kernel.

    Args:
        y: where the result goes; None for a new tensor.

    Raises:
        TilewrightError: as `shape_of`; ``ops/strides`` where leading dimensions make no line of matrices.
    """
    shape = shape_of(a, b, bias, c, activation)
    y = a.new_empty(shape) if y is None else y
    c = c.expand(shape) if c is not None and beta != 0 else None  # as PyTorch has it: nothing of c is read then
    if b.dim() == 2 and all(t is None or _is_one_line(t) for t in (a, c)):
        a, b, c, out = _matrix(a), b.unsqueeze(0), None if c is None else _matrix(c), _matrix(y)
    elif a.dim() > 3:
        message = f"a has the shape {tuple(a.shape)} and strides {tuple(a.stride())}: its rows lie in no line."
        raise TilewrightError("ops/strides", message, {}, "Make its leading dimensions one: a.flatten(0, -3).")
    else:
        batch = shape[0] if len(shape) == 3 else 1
        a, b, c, out = (t if t is None else _batch(t, batch) for t in (a, b, c, y))
    if bias is not None and bias.shape[0] > 1 and bias.stride(0) != 1:
        raise TilewrightError("ops/strides", "bias has gaps between its elements.", {}, "Give bias.contiguous().")
    return Request(_product(a, b, bias, c, alpha, activation), a, b, bias, c, out)


def _is_one_line(t: Any) -> bool:
    """Whether all dimensions but the last are one, in memory."""
    axes = [(t.stride(i), t.shape[i]) for i in range(t.dim() - 1) if t.shape[i] != 1]
    return all(outer == inner * extent for (outer, _), (inner, extent) in pairwise(axes))


def _matrix(t: Any) -> Any:
    """[..., M, K] as [1, M', K]: a view, `_is_one_line` says."""
    rows = 1
    for extent in t.shape[:-1]:
        rows *= extent
    step = next((t.stride(i) for i in range(t.dim() - 2, -1, -1) if t.shape[i] != 1), t.stride(-2))
    return t.as_strided((1, rows, t.shape[-1]), (0, step, t.stride(-1)))


def _batch(t: Any, count: int) -> Any:
    whole = t.unsqueeze(0) if t.dim() == 2 else t
    return whole.expand(count, *whole.shape[1:])


def _product(a: Any, b: Any, bias: Any, c: Any, alpha: float, activation: str) -> Product:
    address = 0
    for tensor in (a, b, bias, c):
        address |= 0 if tensor is None or tensor.is_meta else tensor.data_ptr() % MOST_ALIGNED
    batches, rows, depth = a.shape
    columns = b.shape[2]
    operands = [
        None if t is None else operand_of(m, n, t.stride(0) if batches > 1 else 0, t.stride(1), t.stride(2))
        for t, m, n in ((a, rows, depth), (b, depth, columns), (c, rows, columns))
    ]
    first, second, third = operands
    assert first is not None
    assert second is not None
    dtype = str(a.dtype).removeprefix("torch.")
    shape = (batches, rows, columns, depth)
    return Product(dtype, address, *shape, first, second, third, bias is not None, activation, alpha == 1)


def arrays_of(request: Request, family: str) -> dict[str, Any]:
    """By the family's arguments; what is not there is an empty array."""
    if family == "hgemm":
        return {"a": request.a[0], "b": request.b[0], "c": request.y[0]}
    bias = request.a.new_empty(0) if request.bias is None else request.bias
    c = request.y[:0] if request.c is None else request.c
    return {"a": request.a, "b": request.b, "bias": bias, "c": c, "y": request.y}


class Launcher:
    """The ladder's kernels on PyTorch's current stream."""

    def __init__(self) -> None:
        self._ladder: Any = None
        self.picked = lru_cache(maxsize=1024)(self._picked)

    def _picked(self, product: Product, card: int, rung: str | None) -> Pick:
        return pick(product, self.ladder.runs_on(card), rung)

    @property
    def ladder(self) -> Any:
        if self._ladder is None:
            from tilewright.ladder.launching import Ladder

            self._ladder = Ladder()
        return self._ladder

    def __call__(self, request: Request, alpha: float, beta: float, rung: str | None) -> Again | None:
        """Launch it. Returns what would do so again, given the addresses of a, b, bias, c and y."""
        import torch

        if not request.a.is_cuda:
            raise TilewrightError("ladder/not_on_a_card", "'a' lies in the host's memory.", {}, "Copy it to the GPU.")
        found = self.picked(request.product, request.a.device.index, rung)
        stream = torch.cuda.current_stream(request.a.device).cuda_stream
        name = found.family.name
        scalars = {"alpha": alpha, "beta": beta} if name == "matmul" else {}
        sizes = request.product.sizes(name)
        arrays = arrays_of(request, name)
        again = self.ladder.launched(
            name, arrays, rung=found.rung.name, sizes=sizes, scalars=scalars, stream=stream
        ).again
        if again is None:
            return None
        if name == "hgemm":
            return lambda at, stream: again({"a": at[0], "b": at[1], "c": at[4]}, stream)
        read = int(request.c is not None)  # beta of 0: an address, and nothing of it is read
        return lambda at, stream: again({"a": at[0], "b": at[1], "bias": at[2], "c": at[3] * read, "y": at[4]}, stream)


def make_matmul(
    launch: Callable[[Request, float, float, str | None], Again | None] | None = None,
    name: str = NAME,
    check: Callable[[str], None] = lambda _: None,
) -> Any:
    """Register the operator with PyTorch.

    Args:
        launch: what computes, given a request, alpha, beta and the rung that is asked for: see `Launcher`. None for
            the kernels.
        check: called with the operator's name before each call; it raises where there is none.

    Returns:
        ``matmul``: a function, see its own text.

    Raises:
        TilewrightError: ``ops/no_torch`` (exit 3).
    """
    try:
        import torch
    except ImportError:
        hint = "Install it: pip install 'tilewright[torch]'."
        raise TilewrightError("ops/no_torch", "PyTorch is not installed.", {}, hint, EXIT_MISSING) from None
    run = launch or Launcher()
    repeats = Repeats(torch)
    is_compiling = torch.compiler.is_compiling

    def compute(*values: Any) -> Any:
        check("matmul")
        a, b, bias, c, alpha, beta, activation, rung = values
        others = (told_apart(alpha), told_apart(beta), activation, rung)
        made = repeats.again((a, b, bias, c), others)
        if made is not None:
            return made[0]
        y = a.new_empty(shape_of(a, b, bias, c, activation))
        if y.numel():
            again = run(request_of(a, b, bias, c, alpha, beta, activation, y), alpha, beta, rung)
            if again is not None:
                repeats.keep((a, b, bias, c), others, (y,), again)
        return y

    def fake(*values: Any) -> Any:
        check("matmul")
        a, b, bias, c, _, _, activation, _ = values
        return a.new_empty(shape_of(a, b, bias, c, activation))

    operator = torch.library.custom_op(name, compute, mutates_args=(), schema=SCHEMA)
    operator.register_fake(fake)

    def matmul(
        a: Any,
        b: Any,
        *,
        bias: Any = None,
        c: Any = None,
        alpha: float = 1.0,
        beta: float = 1.0,
        activation: str = "none",
        rung: str | None = None,
        explain: bool = False,
    ) -> Any:
        """``activation(alpha * a @ b + beta * c + bias)``, rounded once.

        Args:
            a: [M, K], [B, M, K] or [..., M, K]. b: [K, N] or [B, K, N]. Each packed along either dimension
                (``weights.t()``), or with any strides. float16 or bfloat16. They are read as they lie, but for plain
                products of rows that begin anywhere: `hgemm/32_packed` writes those to scratch first.
            bias: [N]. c: what can be expanded to the result.
            activation: none, relu, gelu (exact), gelu_tanh, silu.
            rung: ``20_persistent``, ``hgemm/24_persistent``: that one, or an error.
            explain: return the result and an `Explanation` of what was chosen; not under ``torch.compile``.

        Raises:
            TilewrightError: ``ladder/no_rung`` with why no rung takes it; ``ops/…`` for what is no product.
        """
        made = None
        if not is_compiling():
            made = repeats.direct((a, b, bias, c), (told_apart(alpha), told_apart(beta), activation, rung))
        y = operator(a, b, bias, c, alpha, beta, activation, rung) if made is None else made[0]
        if not explain:
            return y
        more = {"bias": bias, "c": c, "alpha": alpha, "beta": beta, "activation": activation, "rung": rung}
        return y, explain_matmul(a, b, **more)

    def of_family(a: Any, b: Any, bias: Any, c: Any, with_bias: int, with_c: int, activation: int) -> Any:
        """The family's arguments, as a bench has them."""
        found = ACTIVATIONS[activation]
        return matmul(a, b, bias=bias if with_bias else None, c=c if with_c else None, activation=found)

    matmul.operator, matmul.repeats = operator, repeats  # type: ignore[attr-defined]
    matmul.of_family = of_family  # type: ignore[attr-defined]
    return matmul


def explain_matmul(
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    c: Any = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    activation: str = "none",
    rung: str | None = None,
    arch: str | None = None,
) -> Explanation:
    """What ``matmul`` chooses for such arguments, why, and why not the others; nothing is launched.

    Args:
        a, b, bias, c: tensors anywhere, on the device "meta" too. The others as of ``matmul``.
        arch: ``sm_90a``; None for that of the card on which ``a`` lies.

    Raises:
        TilewrightError: ``ops/no_arch`` where neither says it; ``ops/empty`` for a result without elements; as
            ``matmul``.
    """
    if arch is None and not a.is_cuda:
        raise TilewrightError("ops/no_arch", "a lies on no card.", {}, "Say for which: arch='sm_90a'.")
    shape = shape_of(a, b, bias, c, activation)
    if 0 in shape:
        raise TilewrightError("ops/empty", f"the result has the shape {tuple(shape)}: nothing is launched.")
    request = request_of(a, b, bias, c, alpha, beta, activation, a.new_empty(shape, device="meta"))
    return explanation_of(pick(request.product, _runs_on(a, arch), rung))


def _runs_on(a: Any, arch: str | None) -> Callable[[str], bool]:
    if arch is None:
        from tilewright.ladder.launching import Ladder

        here: Callable[[str], bool] = Ladder().runs_on(a.device.index)
        return here
    from tilewright.ladder.launching import runs_code

    have = load_arch(arch).name.removesuffix("a")
    return lambda least: runs_code(least, have)
