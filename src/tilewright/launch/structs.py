"""A structure that is passed by value: members one after another, laid out as C++ lays out a plain struct."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.launch.bind import BoundArray, BoundScalar


@dataclass(frozen=True)
class BoundStruct:
    """One parameter made of scalars and pointers.

    Each member lies at the next multiple of its size, and the whole is a multiple of the widest (Itanium C++ ABI, plain
    data of scalar types, whose alignment is their size).

    Attributes:
        name: of the parameter. members: in the order of the declaration.
    """

    name: str
    members: tuple[BoundScalar | BoundArray, ...]

    @property
    def offsets(self) -> tuple[int, ...]:
        """Bytes from the start to each member."""
        out: list[int] = []
        end = 0
        for member in self.members:
            width = member.param_bytes
            out.append(-(-end // width) * width)
            end = out[-1] + width
        return tuple(out)

    @property
    def param_bytes(self) -> int:
        """Bytes of the kernel's parameter, padding included."""
        widest = max(member.param_bytes for member in self.members)
        end = self.offsets[-1] + self.members[-1].param_bytes
        return -(-end // widest) * widest

    def packed(self, raw: Callable[[BoundScalar | BoundArray], bytes]) -> bytes:
        """The parameter's bytes; padding is zero.

        Args:
            raw: the bytes of one member: a scalar's value, an array's address.
        """
        out = bytearray(self.param_bytes)
        for offset, member in zip(self.offsets, self.members, strict=True):
            out[offset : offset + member.param_bytes] = raw(member)
        return bytes(out)


def struct_of(name: str) -> str | None:
    """The parameter that ``param.input`` is a member of; None for an argument of its own."""
    head, dot, _ = name.partition(".")
    return head if dot else None


def grouped(names: Sequence[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(parameter, indices of its arguments): the members of a structure stand next to one another."""
    start = 0
    while start < len(names):
        owner = struct_of(names[start])
        end = start + 1
        while owner is not None and end < len(names) and struct_of(names[end]) == owner:
            end += 1
        yield owner or names[start], tuple(range(start, end))
        start = end
