"""A call is a repeat only where nothing that matters differs: each part of the key, left out, is caught.

PyTorch is a stand-in here: these are the rules. ``test_ops_repeats`` has PyTorch's own tensors, modes and transforms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.ladder import repeats
from tilewright.ladder.repeats import Repeats, told_apart


class Keys(int):
    """DispatchKeySet."""

    def raw_repr(self) -> int:
        return int(self)

    def __or__(self, other: int) -> Keys:
        return Keys(int(self) | int(other))


@dataclass(frozen=True)
class Array:
    """A tensor, as far as it is looked at."""

    pointer: int = 0x7000
    shape: tuple[int, ...] = (8, 4)
    strides: tuple[int, ...] = (4, 1)
    dtype: str = "bfloat16"
    card: int = 0
    keys: int = 3
    device: str = "cuda:0"
    requires_grad: bool = False

    def data_ptr(self) -> int:
        return self.pointer

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def get_device(self) -> int:
        return self.card


class Torch:
    """PyTorch's module, and what may be asked of a thread."""

    def __init__(self) -> None:
        self.next_output = 0x9000
        self.stream = {0: 70, 1: 71}
        self.Tensor = Array
        self.nn = SimpleNamespace(Parameter=type("Parameter", (Array,), {}))
        self.autograd = SimpleNamespace(forward_ad=SimpleNamespace(_current_level=-1))
        self.gradients, self.overrides, self.profiled, self.asked = False, 0, False, 5
        self._C = SimpleNamespace(
            DispatchKey=SimpleNamespace(BackendSelect=1, ADInplaceOrView=4),
            DispatchKeySet=Keys,
            _dispatch_tls_local_include_set=lambda: Keys(self.asked),
            _len_torch_function_stack=lambda: self.overrides,
            _autograd=SimpleNamespace(_profiler_enabled=lambda: self.profiled),
            _dispatch_keys=lambda array: Keys(array.keys),
            _cuda_getCurrentRawStream=lambda card: self.stream[card],
        )

    def is_grad_enabled(self) -> bool:
        return self.gradients

    def empty_strided(self, shape: Any, strides: Any, *, dtype: str, device: str) -> Array:
        return Array(self.next_output, tuple(shape), tuple(strides), dtype, device=device)


class Calls:
    """The calls of one operator, and what was launched again."""

    def __init__(self, kind: type[Repeats] = Repeats) -> None:
        self.torch = Torch()
        self.repeats = kind(self.torch)
        self.launched: list[tuple[list[int], int]] = []

    def keep(self, *arrays: Any, numbers: tuple[Any, ...] = (), output: Array | None = None) -> None:
        made = (output or Array(0x8000, (8,), (1,), "float32"),)
        self.repeats.keep(arrays, numbers, made, lambda at, stream: self.launched.append((list(at), stream)))


FIRST, SECOND = Array(), Array(0xA000)
OTHERS = {
    "keys": replace(FIRST, keys=7),
    "shape": replace(FIRST, shape=(4, 4)),
    "strides": replace(FIRST, strides=(1, 8)),
    "dtype": replace(FIRST, dtype="float16"),
    "card": replace(FIRST, card=1),
    "alignment": replace(FIRST, pointer=0x7010),
}


def taken_wrongly(kind: type[Repeats]) -> set[str]:
    """The differences that do not make a call another one."""
    calls = Calls(kind)
    calls.keep(FIRST, SECOND, numbers=(told_apart(0.0),))
    zero = (told_apart(0.0),)
    found = {name for name, other in OTHERS.items() if calls.repeats.again((other, SECOND), zero)}
    found |= {f"second {name}" for name, other in OTHERS.items() if calls.repeats.again((FIRST, other), zero)}
    found |= {f"{n}" for n in (-0.0, 1.0, "x") if calls.repeats.again((FIRST, SECOND), (told_apart(n),))}
    found |= {"absent"} if calls.repeats.again((FIRST, None), zero) else set()
    assert calls.repeats.again((FIRST, SECOND), zero), "a repeat is one"
    return found


def test_what_differs_is_no_repeat() -> None:
    assert taken_wrongly(Repeats) == set()


PARTS = ["-0.0", *OTHERS, *(f"second {name}" for name in OTHERS)]


@pytest.mark.parametrize(("at", "name"), [*enumerate(PARTS)])
def test_each_part_of_the_key_is_needed(at: int, name: str) -> None:
    class Mutant(Repeats):
        def _key(self, tensors: Any, numbers: Any) -> Any:
            key, pointers = super()._key(tensors, numbers)
            return key[:at] + key[at + 1 :], pointers

    assert name in taken_wrongly(Mutant)


def test_zeros_of_both_signs_are_told_apart() -> None:
    assert told_apart(0.0) != told_apart(-0.0)
    assert told_apart(0.0) == told_apart(0.0)
    assert told_apart(0.0) != "0.0"
    assert told_apart(1e-5) == 1e-5


def test_a_repeat_has_its_own_addresses_outputs_and_stream() -> None:
    calls = Calls()
    calls.keep(FIRST, None)
    moved = replace(FIRST, pointer=0x1_0000_0000)
    calls.torch.stream[0] = 5
    (made,) = calls.repeats.again((moved, None), ()) or ()
    assert (made.shape, made.strides, made.dtype, made.device) == ((8,), (1,), "float32", "cuda:0")
    calls.torch.stream[0], calls.torch.next_output = 6, 0xB000
    calls.repeats.again((FIRST, None), ())
    assert calls.launched == [([0x1_0000_0000, 0, 0x9000], 5), ([0x7000, 0, 0xB000], 6)]


def test_the_stream_is_that_of_the_arrays_card() -> None:
    calls = Calls()
    there = replace(FIRST, card=1)
    calls.keep(there, output=Array(0x8000, card=1))
    calls.repeats.again((there,), ())
    assert calls.launched[0][1] == 71


def test_outputs_that_are_aligned_otherwise_are_no_repeat() -> None:
    calls = Calls()
    calls.keep(FIRST)
    calls.torch.next_output = 0x9010
    assert calls.repeats.again((FIRST,), ()) is None
    assert not calls.launched
    other = Calls()
    other.keep(FIRST, output=Array(0x8010))
    assert other.repeats.again((FIRST,), ()) is None


def test_what_cannot_be_part_of_a_key_is_no_repeat() -> None:
    calls = Calls()
    calls.keep(FIRST, numbers=(2.0,))
    assert calls.repeats.again((FIRST,), ([2.0],)) is None


def test_not_more_calls_are_kept_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "KEPT_CALLS", 3)
    calls = Calls()
    for rows in range(10):
        calls.keep(replace(FIRST, shape=(rows, 4)))
        assert len(calls.repeats._kept) <= 3
    assert calls.repeats.again((replace(FIRST, shape=(9, 4)),), ())


SEEN = {
    "forward mode": lambda torch: setattr(torch.autograd.forward_ad, "_current_level", 0),
    "an override": lambda torch: setattr(torch, "overrides", 1),
    "a mode": lambda torch: setattr(torch, "asked", 5 | 64),
    "the profiler": lambda torch: setattr(torch, "profiled", True),
}


@pytest.mark.parametrize("name", SEEN)
def test_where_pytorch_has_something_to_do_it_is_asked(name: str) -> None:
    calls = Calls()
    calls.keep(FIRST, None)
    assert calls.repeats.direct((FIRST, None), ())
    SEEN[name](calls.torch)
    assert calls.repeats.direct((FIRST, None), ()) is None
    assert len(calls.launched) == 1


def test_subclasses_and_arrays_that_gradients_are_asked_of_are_pytorchs() -> None:
    calls = Calls()
    calls.keep(FIRST)
    calls.keep(replace(FIRST, requires_grad=True))
    learned = replace(FIRST, requires_grad=True)
    assert calls.repeats.direct((learned,), ())
    calls.torch.gradients = True
    assert calls.repeats.direct((learned,), ()) is None
    assert calls.repeats.direct((FIRST,), ())
    assert calls.repeats.direct((calls.torch.nn.Parameter(),), ())
    assert calls.repeats.direct((type("Own", (Array,), {})(),), ()) is None
    calls.torch.asked = 1  # inference mode
    assert calls.repeats.direct((FIRST,), ())
