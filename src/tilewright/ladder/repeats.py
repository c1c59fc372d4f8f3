"""Calls of an operator that repeat an earlier one: what was worked out then is used again, on this call's addresses.

PyTorch's dispatcher, and finding a rung for arrays, cost the host more than a small kernel costs the card. A call is a
repeat where everything that either of them looks at is the same: of each array the dispatch keys (device, negated,
conjugated, wrapped by a transform, made in inference mode), shape, strides, dtype, card, and how its address is
aligned; and the numbers, bit by bit. The stream and the current card are looked up in each call.

Where PyTorch has something to do before a kernel, it is asked as ever: under a mode (fake tensors, tracing, functions
that are overridden), a transform, the profiler, for subclasses, and for arrays that gradients are asked of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

KEPT_CALLS = 1024
ALIGNED_BYTES = 256  # no rung asks for more
_ZERO = object()

# Launches again: addresses of inputs and then of outputs, and the stream's handle.
Again = Callable[[Sequence[int], int], object]


class _Kept(NamedTuple):
    """What a call comes to.

    Attributes:
        outputs: of each its shape, strides and dtype. device: where they are made. card: its ordinal.
    """

    outputs: tuple[tuple[Any, ...], ...]
    device: Any
    card: int
    again: Again


class Repeats:
    """The calls of one operator, at most `KEPT_CALLS` of them. From any thread.

    Args:
        torch: the module.
    """

    def __init__(self, torch: Any) -> None:
        core = torch._C
        keys, kept = core.DispatchKey, core.DispatchKeySet
        backend = kept(keys.BackendSelect)
        # What a thread asks of every call where it asks nothing in particular, and in inference mode.
        self._usual = {(backend | kept(keys.ADInplaceOrView)).raw_repr(), backend.raw_repr()}
        self._types = (torch.Tensor, torch.nn.Parameter)
        self._forward = torch.autograd.forward_ad
        self._asked_of_all = core._dispatch_tls_local_include_set
        self._overrides = core._len_torch_function_stack
        self._is_profiled = core._autograd._profiler_enabled
        self._wants_gradients = torch.is_grad_enabled
        self._keys_of = core._dispatch_keys
        self._new = torch.empty_strided
        # Not there where PyTorch was built for the CPU alone.
        self._stream_of: Any = getattr(core, "_cuda_getCurrentRawStream", lambda _: 0)
        self._kept: dict[Any, _Kept] = {}

    def direct(self, tensors: Sequence[Any], numbers: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """`again`, for a call that PyTorch has not seen: None, too, where it has to see it."""
        if (
            self._forward._current_level >= 0
            or self._overrides()
            or self._asked_of_all().raw_repr() not in self._usual
            or self._is_profiled()
        ):
            return None
        wants_gradients = self._wants_gradients()
        for tensor in tensors:
            if tensor is None:
                continue
            if type(tensor) not in self._types or (wants_gradients and tensor.requires_grad):
                return None
        return self.again(tensors, numbers)

    def again(self, tensors: Sequence[Any], numbers: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Launch what the same call launched before, on PyTorch's current stream.

        Args:
            tensors: inputs; None for one that is not there. numbers: all else, through `told_apart`.

        Returns:
            The outputs; None where this is no repeat.
        """
        key, pointers = self._key(tensors, numbers)
        try:
            found = self._kept.get(key)
        except TypeError:  # something in place of a number that cannot be a part of a key
            return None
        if found is None:
            return None
        outputs, device, card, again = found
        new = self._new
        made = tuple([new(shape, strides, dtype=dtype, device=device) for shape, strides, dtype in outputs])
        for output in made:
            address = output.data_ptr()
            if address % ALIGNED_BYTES:  # an allocator of one's own
                return None
            pointers.append(address)
        again(pointers, self._stream_of(card))
        return made

    def keep(self, tensors: Sequence[Any], numbers: tuple[Any, ...], made: Sequence[Any], again: Again) -> None:
        """Keep a call whose outputs are `made` and which `again` would launch."""
        if not made or any(each.data_ptr() % ALIGNED_BYTES for each in made):
            return
        if len(self._kept) >= KEPT_CALLS:
            self._kept.clear()
        outputs = tuple((tuple(each.shape), each.stride(), each.dtype) for each in made)
        key, _ = self._key(tensors, numbers)
        self._kept[key] = _Kept(outputs, made[0].device, made[0].get_device(), again)

    def _key(self, tensors: Sequence[Any], numbers: tuple[Any, ...]) -> tuple[Any, list[int]]:
        """What a call has to have in common with another, and the addresses of its inputs."""
        keys_of = self._keys_of
        key: list[Any] = [numbers]
        pointers = []
        for t in tensors:
            if t is None:
                key.append(None)
                pointers.append(0)
                continue
            address = t.data_ptr()
            pointers.append(address)
            key += (
                keys_of(t).raw_repr(),
                t.shape,
                t.stride(),
                t.dtype,
                t.get_device(),
                address % ALIGNED_BYTES,
            )
        return tuple(key), pointers


def told_apart(number: Any) -> Any:
    """A number as a part of a key: 0.0 and -0.0, which compare equal, differ."""
    return number or (_ZERO, repr(number))
