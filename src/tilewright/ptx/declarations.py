"""Variables and parameters: their layout and their initial bytes."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

from tilewright.ptx.lexer import NAME, Cursor
from tilewright.ptx.module import TYPE_BYTES, Space, Symbol, Variable

# Textures, samplers and surfaces are handles of 64 bits (PTX ISA, "Texture Sampler and Surface Types").
_OPAQUE = frozenset({"texref", "samplerref", "surfref"})
_DIRECTIVE = re.compile(r"\.([a-zA-Z_]\w*(?:::\w+)*)")
_FLOAT_FORMATS = {"f32": "<f", "f64": "<d"}
_LARGEST_INITIALISER_BYTES = 1 << 26
_LARGEST_BYTES = 1 << 40
_BALANCED = re.compile(r"\([^()]*\)")


@dataclass
class _Data:
    """The bytes of an initialiser while it is read."""

    type: str
    element_bytes: int
    content: bytearray = field(default_factory=bytearray)
    symbols: dict[int, Symbol] = field(default_factory=dict)


def variable(cursor: Cursor, space: Space) -> Variable:
    """What follows ``.global`` (or ``.param``, …): modifiers, a type, a name, brackets and an initialiser."""
    start = cursor.skip()
    type_, align, lanes, pointer_to = "", 0, 1, None
    while (match := cursor.match(_DIRECTIVE)) is not None:
        word = match.group(1)
        if word == "align":
            align = _alignment(cursor)
            type_ = type_ or ""
        elif word in ("v2", "v4", "v8"):
            lanes = int(word[1])
        elif word == "ptr":
            pointer_to = "generic"
        elif pointer_to is not None and word in ("global", "shared", "const", "local"):
            pointer_to = word
        elif word == "attribute":
            cursor.take(_BALANCED, "the attributes in parentheses")
        elif word in TYPE_BYTES or word in _OPAQUE:
            type_ = "b64" if word in _OPAQUE else word
        else:
            cursor.fail("a type", match.start())
    if not type_:
        cursor.fail("a type")
    name = cursor.name("the name of a variable")
    element_bytes = TYPE_BYTES[type_] * lanes
    dims, is_open = _dims(cursor)
    count = 1
    for dim in dims:
        count *= dim
    if count * element_bytes > _LARGEST_BYTES:
        cursor.fail("a variable of a size that fits a device", start)
    initial: bytes | None = None
    symbols: tuple[tuple[int, Symbol], ...] = ()
    if cursor.accept("="):
        data = _initialiser(cursor, type_, TYPE_BYTES[type_], [*dims, lanes] if lanes > 1 else dims, is_open)
        size = max(len(data.content), 0 if is_open else count * element_bytes)
        initial, symbols = bytes(data.content.ljust(size, b"\0")), tuple(sorted(data.symbols.items()))
    else:
        size = 0 if is_open else count * element_bytes
    is_array = is_open or bool(dims)
    return Variable(
        name, space, type_, size, align or element_bytes, element_bytes, is_array, initial, symbols, pointer_to
    )


def _alignment(cursor: Cursor) -> int:
    start = cursor.skip()
    align = cursor.integer("an alignment")
    if not 0 < align <= 1 << 20 or align & (align - 1):
        cursor.fail("an alignment that is a power of two", start)
    return align


def _dims(cursor: Cursor) -> tuple[list[int], bool]:
    """Extents, and whether the first one is left open, ``[ ]``. Extents after an open one are kept."""
    dims: list[int] = []
    is_open = False
    while cursor.accept("["):
        if cursor.accept("]"):
            if dims or is_open:
                cursor.fail("an extent")
            is_open = True
            continue
        dim = cursor.expression()
        if dim.kind != "int" or not 0 <= dim.value <= _LARGEST_BYTES or len(dims) > 7:
            cursor.fail("an extent")
        dims.append(dim.value)
        cursor.expect("]")
    return dims, is_open


def _initialiser(cursor: Cursor, type_: str, element_bytes: int, dims: list[int], is_open: bool) -> _Data:
    data = _Data(type_, element_bytes)
    if not cursor.peek("{"):
        _element(cursor, data)
        return data
    _row(cursor, data, [-1, *dims] if is_open else dims or [1])
    return data


def _row(cursor: Cursor, data: _Data, dims: list[int]) -> None:
    """``{…}`` of one dimension; what the text leaves out is zero."""
    cursor.expect("{")
    begin = len(data.content)
    inner = data.element_bytes
    for dim in dims[1:]:
        inner *= dim
    limit = _LARGEST_INITIALISER_BYTES if dims[0] < 0 else min(dims[0] * inner, _LARGEST_INITIALISER_BYTES)
    if dims[0] * inner > _LARGEST_INITIALISER_BYTES:
        cursor.fail("an initialiser of at most 64 MiB")
    while not cursor.accept("}"):
        if cursor.peek("{"):
            if len(dims) < 2:
                cursor.fail("a number or an address")
            _row(cursor, data, dims[1:])
        else:
            _element(cursor, data)
        if len(data.content) - begin > limit:
            cursor.fail('"}": there are more values than elements')
        if not cursor.accept(",") and not cursor.peek("}"):
            cursor.fail('"," or "}"')
    if dims[0] >= 0:
        data.content.extend(bytes(dims[0] * inner - (len(data.content) - begin)))


def _element(cursor: Cursor, data: _Data) -> None:
    offset = len(data.content)
    if cursor.at_number() or cursor.peek("-") or cursor.peek("~"):
        start = cursor.pos
        value = cursor.expression()
        if value.kind == "int" and cursor.peek("("):
            _masked(cursor, data, value.value)
            return
        data.content.extend(_bytes_of(cursor, data, value.value, value.kind, start))
        return
    symbol = _symbol(cursor)
    data.symbols[offset] = symbol
    data.content.extend(bytes(data.element_bytes))


def _bytes_of(cursor: Cursor, data: _Data, value: int, kind: str, start: int) -> bytes:
    width = data.element_bytes
    if data.type in _FLOAT_FORMATS:
        if kind == "int":
            return struct.pack(_FLOAT_FORMATS[data.type], float(value))
        if kind != data.type:
            # PTX ISA, "Constants": a floating-point constant is converted to the type that is wanted.
            number = struct.unpack(
                "<d" if kind == "f64" else "<f", value.to_bytes(8 if kind == "f64" else 4, "little")
            )[0]
            return _packed_float(cursor, data.type, number, start)
    elif kind != "int" and TYPE_BYTES[kind] != width:
        cursor.fail(f"an integer of {width} bytes", start)
    return (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def _packed_float(cursor: Cursor, type_: str, number: float, start: int) -> bytes:
    try:
        return struct.pack(_FLOAT_FORMATS[type_], number)
    except OverflowError:
        cursor.fail(f"a number that fits {type_}", start)


def _symbol(cursor: Cursor) -> Symbol:
    """``name``, ``name+4``, ``generic(name)+4``."""
    name = cursor.take(NAME, "a number or an address").group()
    if name == "generic" and cursor.accept("("):
        name = cursor.name("the name of a variable")
        cursor.expect(")")
    offset = 0
    if cursor.peek("+") or cursor.peek("-"):
        value = cursor.expression()
        if value.kind != "int":
            cursor.fail("an offset in bytes")
        offset = value.value
    return Symbol(name, offset)


def _masked(cursor: Cursor, data: _Data, mask: int) -> None:
    """``0xFF00(name)``: one byte of an address (PTX ISA, "Initializers"); bytes 0 to 7 must follow one another."""
    offset = len(data.content)
    start = cursor.pos
    cursor.expect("(")
    symbol = _symbol(cursor)
    cursor.expect(")")
    byte = (mask.bit_length() - 1) // 8
    if data.element_bytes != 1 or mask != 0xFF << 8 * max(byte, 0):
        cursor.fail("a mask of one byte", start)
    if byte == 0:
        data.symbols[offset] = symbol
    elif data.symbols.get(offset - byte) != symbol:
        cursor.fail("the bytes of an address in order, from the lowest", start)
    data.content.append(0)
