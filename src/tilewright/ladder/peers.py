"""What PyTorch computes in a family's place: the peers that its rungs are timed against.

A peer is called with the family's inputs in their order, and returns its outputs in theirs. The formulas are those that
a user of PyTorch would write: one operator where there is one, the usual composition where there is none. They serve
twice more: on inputs in float64 they say what is right, and ``torch.compile`` makes a further peer of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tilewright.ladder.references.matmul import ACTIVATIONS

PeerKind = Literal["eager", "compile", "autotune", "triton"]


@dataclass(frozen=True)
class Result:
    """What an output has to be: ``shape``, and PyTorch's dtype of it."""

    shape: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True)
class PeerCall:
    """What a formula is given.

    Attributes:
        torch: the module. inputs: tensors, in the family's order. numbers: scalars by name (``epsilon``).
        results: of the family, in order. sizes: of the set, where the formula is not the same at all of them.
    """

    torch: Any
    inputs: tuple[Any, ...]
    numbers: Mapping[str, float]
    results: tuple[Result, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)


Formula = Callable[[PeerCall], tuple[Any, ...]]


@dataclass(frozen=True)
class Peer:
    """One way to compute a family's operation.

    Attributes:
        name: ``torch.softmax``; what the records call it.
        group: rungs are compared with peers of their own group only: ``tf32`` rounds its operands, "" does not.
        is_captured: it can be captured in a CUDA graph; one that waits for the device cannot.
        is_compiled: ``torch.compile`` makes a peer of it, too.
        is_shaped: the formula looks at the extents of the results, so that each of them is another program.
        reads: sizes that the formula asks for by name: each value of them is another program, too.
        is_tuned: compiling it times kernels on the card (PyTorch's compiler does, to pad products or not).
    """

    name: str
    formula: Formula = field(repr=False)
    group: str = ""
    is_captured: bool = True
    is_compiled: bool = True
    is_shaped: bool = False
    reads: tuple[str, ...] = ()
    is_tuned: bool = False


@dataclass(frozen=True)
class Tutorial:
    """A kernel of Triton's published tutorials.

    Attributes:
        file, function: what it is loaded from. call: calls the function that is given.
        most_row_bytes: of what it is written for; beyond, compiling takes a minute and comes to nothing.
    """

    file: str
    function: str
    call: Callable[[Any, PeerCall], tuple[Any, ...]] = field(repr=False)
    most_row_bytes: int | None = None

    def misfit(self, call: PeerCall) -> str:
        """Why it does not take inputs; "" where it does."""
        x = call.inputs[0]
        row_bytes = x.shape[-1] * x.element_size()
        if self.most_row_bytes is None or row_bytes <= self.most_row_bytes:
            return ""
        return f"it is for rows of {self.most_row_bytes:,} bytes at most"

    @property
    def name(self) -> str:
        return f"Triton {self.file.removesuffix('.py')}"


def peers_of(family: str) -> tuple[Peer, ...]:
    """PyTorch's ways to compute a family, the exact one first; none for a family that the table lacks."""
    return _PEERS.get(family, ())


def tutorial_of(family: str) -> Tutorial | None:
    """Triton's own kernel for a family, where its tutorials have one of the same operation and types."""
    return _TUTORIALS.get(family)


def exact_outputs(family: str, call: PeerCall) -> tuple[Any, ...] | None:
    """The outputs in float64; None where there is no formula.

    Sums with a residual are rounded to the element type first: that is what a family normalises.
    """
    peers = peers_of(family)
    if not peers:
        return None
    torch = call.torch
    wide = tuple(x.double() if x.is_floating_point() or x.dtype == torch.int8 else x for x in call.inputs)
    if family in ("add_rmsnorm", "add_layernorm"):
        x, residual, *others = call.inputs
        total = (x.float() + residual.float()).to(x.dtype).double()
        wide = (total, torch.zeros((), dtype=torch.float64, device=x.device), *(o.double() for o in others))
    results = tuple(Result(r.shape, torch.float64 if r.dtype.is_floating_point else r.dtype) for r in call.results)
    return peers[0].formula(PeerCall(torch, wide, call.numbers, results, call.sizes))


def _sum(c: PeerCall) -> tuple[Any, ...]:
    (result,) = c.results
    return (c.torch.sum(c.inputs[0], dtype=result.dtype).reshape(result.shape),)


def _dot(c: PeerCall) -> tuple[Any, ...]:
    return (c.torch.dot(c.inputs[0], c.inputs[1]).reshape(c.results[0].shape),)


def _gelu(c: PeerCall) -> tuple[Any, ...]:
    return (c.torch.nn.functional.gelu(c.inputs[0]),)


def _silu_mul(c: PeerCall) -> tuple[Any, ...]:
    return (c.torch.nn.functional.silu(c.inputs[0]) * c.inputs[1],)


def _embedding(c: PeerCall) -> tuple[Any, ...]:
    table = next(x for x in c.inputs if x.is_floating_point())
    rows = next(x for x in c.inputs if not x.is_floating_point())
    return (c.torch.nn.functional.embedding(rows, table),)


def _bincount(c: PeerCall) -> tuple[Any, ...]:
    (result,) = c.results
    return (c.torch.bincount(c.inputs[0].reshape(-1), minlength=result.shape[0])[: result.shape[0]].to(result.dtype),)


def _histc(c: PeerCall) -> tuple[Any, ...]:
    (result,) = c.results
    bins = result.shape[0]
    return (c.torch.histc(c.inputs[0], bins=bins, min=0, max=bins - 1).to(result.dtype),)


def _scatter_add(c: PeerCall) -> tuple[Any, ...]:
    (result,) = c.results
    rows = c.inputs[0].reshape(-1).long()
    ones = c.torch.ones_like(rows, dtype=result.dtype)
    return (c.torch.zeros(result.shape, dtype=result.dtype, device=rows.device).scatter_add_(0, rows, ones),)


def _softmax(c: PeerCall) -> tuple[Any, ...]:
    return (c.torch.softmax(c.inputs[0], -1),)


def _rms(c: PeerCall, x: Any, weight: Any) -> Any:
    return c.torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, c.numbers["epsilon"])


def _layer(c: PeerCall, x: Any, weight: Any, bias: Any) -> Any:
    return c.torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias, c.numbers["epsilon"])


def _add_rmsnorm(c: PeerCall) -> tuple[Any, ...]:
    x, residual, weight = c.inputs
    total = x + residual
    return total, _rms(c, total, weight)


def _add_layernorm(c: PeerCall) -> tuple[Any, ...]:
    x, residual, weight, bias = c.inputs
    total = x + residual
    return total, _layer(c, total, weight, bias)


def _rope_half(c: PeerCall) -> tuple[Any, ...]:
    x, cosines, sines = c.inputs
    cosine, sine = cosines[:, None, :], sines[:, None, :]
    a, b = x.chunk(2, -1)
    return (c.torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1).to(x.dtype),)


def _rope_interleaved(c: PeerCall) -> tuple[Any, ...]:
    x, cosines, sines = c.inputs
    cosine, sine = cosines[:, None, :], sines[:, None, :]
    a, b = x[..., 0::2], x[..., 1::2]
    return (c.torch.stack((a * cosine - b * sine, b * cosine + a * sine), -1).flatten(-2).to(x.dtype),)


def _merge_attention(c: PeerCall) -> tuple[Any, ...]:
    values, logs = c.inputs
    weights = c.torch.softmax(logs, 0)
    return (values * weights[..., None]).sum(0).to(values.dtype), c.torch.logsumexp(logs, 0)


def _matmul(is_tf32: bool) -> Formula:
    def product(c: PeerCall) -> tuple[Any, ...]:
        settings = c.torch.backends.cuda.matmul
        before = settings.allow_tf32
        settings.allow_tf32 = is_tf32
        try:
            return (c.torch.mm(c.inputs[0], c.inputs[1]),)
        finally:
            settings.allow_tf32 = before

    return product


def _plain_matmul(c: PeerCall) -> tuple[Any, ...]:
    return (c.torch.mm(c.inputs[0], c.inputs[1]),)


def _finished_matmul(c: PeerCall) -> tuple[Any, ...]:
    """As a user would write it: linear, addmm, mm, or their forms for batches; then the activation."""
    torch, functional = c.torch, c.torch.nn.functional
    a, b, bias, more = c.inputs
    if a.shape[0] > 1:
        y = torch.baddbmm(more, a, b) if more.numel() else torch.bmm(a, b)
        y = y + bias if bias.numel() else y
    elif more.numel():
        y = torch.addmm(more[0], a[0], b[0])
        y = y + bias if bias.numel() else y
    else:
        y = functional.linear(a[0], b[0].t(), bias) if bias.numel() else torch.mm(a[0], b[0])
    match ACTIVATIONS[c.sizes["activation"]]:
        case "relu":
            y = functional.relu(y)
        case "gelu":
            y = functional.gelu(y)
        case "gelu_tanh":
            y = functional.gelu(y, approximate="tanh")
        case "silu":
            y = functional.silu(y)
    return (y.reshape(c.results[0].shape),)


def _int_mm(c: PeerCall) -> tuple[Any, ...]:
    """In float64, which holds every sum that memory has room for, int32 wraps around as the kernels' sums do."""
    a, b, *_ = c.inputs
    if a.is_floating_point():
        return ((a @ b.t()).long().int(),)
    return (c.torch._int_mm(a, b.t()),)


def _w8a8(c: PeerCall) -> tuple[Any, ...]:
    *_, scale_a, scale_b, bias = c.inputs
    (sums,) = _int_mm(c)
    return ((sums.to(scale_a.dtype) * scale_a[:, None] * scale_b + bias).to(c.results[0].dtype),)


def _layer_tutorial(function: Any, c: PeerCall) -> tuple[Any, ...]:
    x, weight, bias = c.inputs
    return (function(x, (x.shape[-1],), weight, bias, c.numbers["epsilon"]),)


_PEERS: Mapping[str, tuple[Peer, ...]] = {
    "reduce": (Peer("torch.sum", _sum, is_shaped=True),),
    "reduce_rows": (Peer("torch.sum", lambda c: (c.torch.sum(c.inputs[0], -1, dtype=c.results[0].dtype),)),),
    "dot": (Peer("torch.dot", _dot, is_shaped=True),),
    "add": (Peer("torch.add", lambda c: (c.inputs[0] + c.inputs[1],)),),
    "relu": (Peer("torch.relu", lambda c: (c.torch.relu(c.inputs[0]),)),),
    "gelu": (Peer("gelu", _gelu),),
    "sigmoid": (Peer("torch.sigmoid", lambda c: (c.torch.sigmoid(c.inputs[0]),)),),
    "silu_mul": (Peer("silu, mul", _silu_mul),),
    "embedding": (Peer("embedding", _embedding),),
    "histogram": (
        # It waits for the device to know how long its result is; the other two are told.
        Peer("torch.bincount", _bincount, is_captured=False, is_compiled=False),
        Peer("torch.histc", _histc, is_shaped=True),
        Peer("scatter_add_", _scatter_add, is_shaped=True),
    ),
    "softmax": (Peer("torch.softmax", _softmax),),
    "rmsnorm": (Peer("rms_norm", lambda c: (_rms(c, *c.inputs),)),),
    "layernorm": (Peer("layer_norm", lambda c: (_layer(c, *c.inputs),)),),
    "add_rmsnorm": (Peer("add, rms_norm", _add_rmsnorm),),
    "add_layernorm": (Peer("add, layer_norm", _add_layernorm),),
    "rope_half": (Peer("chunk, mul, cat", _rope_half),),
    "rope_interleaved": (Peer("mul, stack", _rope_interleaved),),
    "merge_attention": (Peer("softmax, mul, sum", _merge_attention),),
    # Of one row or column, contiguous() would give a view and launch nothing; a clone always copies.
    "transpose": (Peer("t().clone()", lambda c: (c.inputs[0].t().clone(memory_format=c.torch.contiguous_format),)),),
    "sgemv": (Peer("torch.mv", lambda c: (c.torch.mv(c.inputs[0], c.inputs[1]),)),),
    "sgemm": (
        Peer("torch.mm", _plain_matmul, is_tuned=True),
        Peer("torch.mm, TF32", _matmul(True), group="tf32", is_compiled=False),
    ),
    "hgemm": (Peer("torch.mm", _plain_matmul, is_tuned=True),),
    "matmul": (Peer("linear, addmm or bmm", _finished_matmul, is_shaped=True, reads=("activation",), is_tuned=True),),
    # It takes more than 16 rows, and multiples of 8 for the other two.
    "igemm": (Peer("torch._int_mm", _int_mm),),
    "w8a8": (Peer("_int_mm, mul, mul, add", _w8a8),),
}
_TUTORIALS: Mapping[str, Tutorial] = {
    "add": Tutorial("01-vector-add.py", "add", lambda f, c: (f(c.inputs[0], c.inputs[1]),)),
    # "Those whose rows can fit in the GPU's SRAM": 227 KiB on sm_90.
    "softmax": Tutorial("02-fused-softmax.py", "softmax", lambda f, c: (f(c.inputs[0]),), most_row_bytes=227 << 10),
    "layernorm": Tutorial("05-layer-norm.py", "layer_norm", _layer_tutorial),
}
