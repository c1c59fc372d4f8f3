"""The user's own headers, as the compiler gets to see them. CUDA's own stay opaque."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.source import lexical
from tilewright.source.conditionals import Conditionals, conditionals
from tilewright.source.device_headers import PRELUDE
from tilewright.source.nodes import make_parser

if TYPE_CHECKING:
    from tree_sitter import Node

    from tilewright.source.device_view import DeviceView


@dataclass(frozen=True)
class Header:
    """One header of the user's: nothing in it is ever edited, but what it defines is known.

    Attributes:
        name: as it is included. text: what the compiler sees of it.
        root: its tree, of the text with the spots blanked that the grammar cannot read.
        seen: which parts of it the compiler takes.
    """

    name: str
    text: bytes
    root: Node = field(compare=False, repr=False)
    seen: Conditionals = field(default=Conditionals(), compare=False, repr=False)


def read_header(name: str, text: bytes) -> Header:
    """Parse a header."""
    seen = conditionals(lexical.without_comments(text))
    return Header(name, text, make_parser().parse(lexical.mask(text).text).root_node, seen)


def own_headers(view: DeviceView) -> tuple[Header, ...]:
    """The user's own headers among those of a device view: no stand-ins, nothing that is blank."""
    stand_ins = {PRELUDE, *view.stubbed}
    return tuple(read_header(n, t.encode()) for n, t in view.headers if n not in stand_ins and t.strip())
