"""Reading ``ladder.toml`` strictly: a wrong one is a message that names its file, line and key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.arch.devices import known_devices
from tilewright.errors import TilewrightError
from tilewright.ladder.family import RELATIONS, SPECIALS, Claim, Family, KernelLaunch, Limit, MapTable, Rung
from tilewright.launch.dtypes import DTYPES
from tilewright.launch.expressions import Place, parse
from tilewright.launch.toml_lines import TomlLines, read_lines

ELEMENT = "T"
FAMILY_KEYS = (
    *("name", "title", "op", "reference", "dtypes", "sizes", "bytes", "flops", "length", "exact", "specials", "args"),
    *("shares", "defines", "flat", "precision"),
)
LAUNCH_KEYS = ("kernel", "grid", "block", "shared_bytes", "args", "tensor_maps", "map_flag")
RUNG_KEYS = (
    *LAUNCH_KEYS,
    *("file", "technique", "changes", "defines", "flags", "dtypes", "min_arch", "generated_from", "limits", "best_for"),
    *("best_when", "sized", "sized_limits", "align_bytes", "needs", "choices", "cost"),
    *("scratch", "kept", "passes", "shows"),
)
CLAIM_KEYS = ("counter", "sass", "resource", "against", "size", "dtype", *RELATIONS)
ARG_KEYS = ("name", "dtype", "shape", "strides", "fill", "role", "alias_of", "offset", "value")
_COUNTED = ("counter", "sass", "resource")
_MISSING = object()

KeyPath = tuple[str | int, ...]
ArgTable = Mapping[str, Any]


class _Part:
    """A table of the file, at its place."""

    def __init__(self, data: object, path: KeyPath, file: Path, lines: TomlLines) -> None:
        self.path, self.file, self.lines = path, file, lines
        if not isinstance(data, dict):
            raise self.error("wrong_type", f"{self.dotted()} must be a table.")
        self.data: dict[str, Any] = data

    def dotted(self, *keys: str | int) -> str:
        return ".".join(map(str, (*self.path, *keys)))

    def error(self, reason: str, message: str, *keys: str | int, hint: str = "") -> TilewrightError:
        facts = {"file": str(self.file), "line": self.line(*keys), "key": self.dotted(*keys)}
        return TilewrightError(f"ladder/{reason}", message, {k: v for k, v in facts.items() if v is not None}, hint)

    def line(self, *keys: str | int) -> int | None:
        return self.lines.of((*self.path, *keys))

    def only(self, known: Sequence[str]) -> _Part:
        for key in self.data:
            if key not in known:
                message = f"{self.dotted(key)} is not a key of a ladder.toml."
                raise self.error("unknown_key", message, key, hint=f"Known here: {', '.join(known)}.")
        return self

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = _MISSING) -> Any:
        value = self.data.get(key, default)
        if value is _MISSING:
            raise self.error("missing_key", f"{self.dotted(key)} is missing.")
        if key in self.data and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            names = [k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,))]
            message = f"{self.dotted(key)} must be of type {' or '.join(names)}."
            raise self.error("wrong_type", message, key)
        return value

    def texts(self, key: str, default: Sequence[str] = ()) -> tuple[str, ...]:
        value = self.get(key, list, list(default))
        if not all(isinstance(item, str) for item in value):
            raise self.error("wrong_type", f"{self.dotted(key)} must be a list of texts.", key)
        return tuple(value)

    def part(self, key: str, *index: int) -> _Part:
        value: Any = self.data[key]
        for i in index:
            value = value[i]
        return _Part(value, (*self.path, key, *index), self.file, self.lines)

    def parts(self, key: str) -> list[_Part]:
        return [self.part(key, i) for i in range(len(self.get(key, list, [])))]


def read_family(name: str, file: Path, data: Mapping[str, Any], lines: TomlLines) -> Family:
    """A family of the parsed file. Raises TilewrightError: what is wrong with it, and where."""
    root = _Part(dict(data), (), file, lines).only(("family", "rung"))
    root.get("family", dict)
    table = root.part("family").only(FAMILY_KEYS)
    if table.get("name", str, name) != name:
        raise table.error("bad_value", f"family.name is '{table.data['name']}', and the folder '{name}'.", "name")
    home, common = _common(root, table)
    args = tuple(_argument(part) for part in common.parts("args"))
    if not args:
        raise common.error("missing_key", "family.args is missing.")
    dtypes = _dtypes(table, None)
    sizes = _sizes(common)
    defines = table.get("defines", dict, {})
    rungs = tuple(_rung(part, args, dtypes, sizes, defines) for part in home.parts("rung"))
    if not rungs:
        raise home.error("missing_key", "there is no [[rung]].")
    specials = table.texts("specials", SPECIALS)
    odd = [s for s in specials if s not in SPECIALS]
    if odd:
        raise table.error("bad_value", f"'{odd[0]}' is none of {', '.join(SPECIALS)}.", "specials")
    _check_order(root, rungs)
    return Family(
        name,
        table.get("title", str),
        table.get("op", str),
        file,
        table.get("reference", str),
        dtypes,
        sizes,
        str(table.get("bytes", (str, int))),
        str(table.get("flops", (str, int))),
        str(table.get("length", (str, int), "1")),
        table.get("exact", bool, False),
        specials,
        args,
        rungs,
        _named(table, "flat", [arg for arg in args if arg.get("shape")]),
        _precision(table, dtypes),
    )


def _precision(table: _Part, dtypes: Sequence[str]) -> dict[str, str]:
    """dtype → a key of the peaks in the table of devices; none, or one for each dtype."""
    if "precision" not in table.data:
        return {}
    table.get("precision", dict)
    part = table.part("precision").only(dtypes)
    found = {dtype: part.get(dtype, str) for dtype in dtypes}
    known = {key for device in known_devices() for key in device.peaks}
    odd = next((dtype for dtype, key in found.items() if key not in known), None)
    if odd:
        raise part.error("bad_value", f"'{found[odd]}' is none of {', '.join(sorted(known))}.", odd)
    return found


def _common(root: _Part, table: _Part) -> tuple[_Part, _Part]:
    """Where rungs stand, and where sizes and arguments do: in the file itself, or in what it ``shares``."""
    if "shares" not in table.data:
        return root, table
    file = table.file.parent.parent / table.get("shares", str) / "shared.toml"
    for own, part in (("rung", root), ("sizes", table), ("args", table)):
        if own in part.data:
            raise part.error("unknown_key", f"{part.dotted(own)} is that of {file.parent.name}/shared.toml.", own)
    try:
        text = file.read_text("utf-8")
        data = tomllib.loads(text)
    except OSError:
        raise table.error("bad_value", f"there is no {file.parent.name}/shared.toml.", "shares") from None
    except tomllib.TOMLDecodeError as error:
        raise TilewrightError("ladder/bad_toml", f"{error}.", {"file": str(file)}) from None
    home = _Part(data, (), file, read_lines(text)).only(("family", "rung"))
    home.get("family", dict)
    return home, home.part("family").only(("sizes", "args"))


def _sizes(table: _Part) -> dict[str, dict[str, int]]:
    table.get("sizes", dict)
    part = table.part("sizes")
    if "default" not in part.data:
        raise part.error("missing_key", "family.sizes.default is missing: the set that is timed on a card.")
    names = set(part.get("default", dict))
    for key in part.data:
        values = part.get(key, dict)
        if set(values) != names or not all(isinstance(v, int) and v >= 0 for v in values.values()):
            raise part.error("bad_value", f"{part.dotted(key)} must give {', '.join(sorted(names))} as integers.", key)
    return {key: dict(values) for key, values in part.data.items()}


def _dtypes(table: _Part, known: tuple[str, ...] | None) -> tuple[str, ...]:
    found = table.texts("dtypes", known or ())
    if not found:
        raise table.error("missing_key", f"{table.dotted('dtypes')} is missing.")
    for dtype in found:
        if dtype not in (DTYPES if known is None else known):
            raise table.error("bad_value", f"'{dtype}' is no element type of the family.", "dtypes")
    return found


def _argument(part: _Part) -> ArgTable:
    part.only(ARG_KEYS).get("name", str)
    if part.get("dtype", str) != ELEMENT and part.data["dtype"] not in DTYPES:
        raise part.error("bad_value", f"'{part.data['dtype']}' is no dtype.", "dtype")
    if ("shape" in part.data) == ("value" in part.data):
        message = f"'{part.data['name']}' needs a shape (an array) or a value (a scalar)."
        raise part.error("missing_key", message)
    return dict(part.data)


def _rung(
    part: _Part,
    args: tuple[ArgTable, ...],
    dtypes: tuple[str, ...],
    sizes: Mapping[str, Any],
    defines: Mapping[str, str | int | float],
) -> Rung:
    part.only(RUNG_KEYS)
    file = part.file.with_name(part.get("file", str))
    if not file.is_file():
        raise part.error("bad_value", f"'{file.name}' is not beside the ladder.toml.", "file")
    pool = {a["name"]: a for a in args} | {a["name"]: a for a in map(_scratch, part.parts("scratch"))}
    passes = [p.only(LAUNCH_KEYS) for p in part.parts("passes")]
    taken = _dtypes(part, dtypes)
    return Rung(
        file.stem,
        file,
        part.get("technique", str),
        part.get("changes", str),
        tuple(_launch(p, args, pool) for p in (part, *passes)),
        taken,
        part.get("min_arch", str, None),
        part.get("generated_from", str, None),
        {**defines, **part.get("defines", dict, {})},
        part.texts("flags"),
        _limits(part, "limits", sizes["default"]),
        _expressions(part, "needs", part.get("needs", dict, {})),
        _limits(part, "best_for", sizes["default"]),
        _condition(part, "best_when"),
        part.get("align_bytes", int, 1),
        _named(part, "kept", part.data.get("scratch", [])),
        _expressions(part, "sized", part.get("sized", dict, {})),
        _expressions(part, "sized_limits", sizes["default"]),
        _choices(part),
        _expressions(part, "cost", part.get("cost", dict, {})),
        tuple(_claim(p, taken, sizes) for p in part.parts("shows")),
        part.line(),
    )


def _named(part: _Part, key: str, tables: Sequence[ArgTable]) -> tuple[str, ...]:
    names = part.texts(key)
    known = [table["name"] for table in tables]
    for name in names:
        if name not in known:
            raise part.error("bad_value", f"{part.dotted(key)}: '{name}' is none of {', '.join(known)}.", key)
    return names


def _scratch(part: _Part) -> ArgTable:
    """Of one rung: the first pass writes it."""
    return {"role": "out", **_argument(part)}


def _launch(part: _Part, args: tuple[ArgTable, ...], pool: Mapping[str, ArgTable]) -> KernelLaunch:
    given = part.get("args", list, None)
    own = args if given is None else tuple(_chosen(part, i, item, pool) for i, item in enumerate(given))
    grid, block = (tuple(part.get(key, list)) for key in ("grid", "block"))
    maps = tuple(_map(p, own) for p in part.parts("tensor_maps"))
    flag = part.get("map_flag", str, "")
    if flag and not maps:
        raise part.error(
            "bad_value", f"{part.dotted('map_flag')} tells of tensor_maps, and there are none.", "map_flag"
        )
    shared_bytes = part.get("shared_bytes", (str, int), 0)
    return KernelLaunch(part.get("kernel", str), grid, block, shared_bytes, own, maps, flag)


def _map(part: _Part, args: tuple[ArgTable, ...]) -> MapTable:
    part.only(("name", "array", "dims", "pitches", "box", "swizzle"))
    array = part.get("array", str)
    if not any(arg["name"] == array and "shape" in arg for arg in args):
        raise part.error("bad_value", f"'{array}' is no array of the kernel.", "array")
    dims, pitches, box = (tuple(map(str, part.get(key, list))) for key in ("dims", "pitches", "box"))
    if len(box) != len(dims) or len(pitches) != len(dims) - 1:
        message = f"{part.dotted()} needs a box as long as its dims, and one pitch fewer."
        raise part.error("bad_value", message)
    return MapTable(part.get("name", str), array, dims, pitches, box, part.get("swizzle", int, 0))


def _chosen(part: _Part, index: int, item: object, pool: Mapping[str, ArgTable]) -> ArgTable:
    if isinstance(item, str):
        if item not in pool:
            hint = f"There are: {', '.join(pool)}."
            raise part.error(
                "bad_value", f"'{item}' is no argument of the family or scratch.", "args", index, hint=hint
            )
        return pool[item]
    given = part.part("args", index).only(ARG_KEYS)
    whole = {**pool.get(given.get("name", str), {}), **given.data}
    return _argument(_Part(whole, given.path, given.file, given.lines))


def _limits(part: _Part, key: str, sizes: Mapping[str, int]) -> dict[str, Limit]:
    out = {}
    for name in part.get(key, dict, {}):
        if name not in sizes:
            raise part.error("bad_value", f"'{name}' is no size of the family.", key, name)
        part.part(key).get(name, dict)
        row = part.part(key).part(name).only(("at_most", "at_least", "multiple_of"))
        out[name] = Limit(row.get("at_most", int, None), row.get("multiple_of", int, 1), row.get("at_least", int, 0))
    return out


def _expressions(part: _Part, key: str, known: Mapping[str, Any]) -> dict[str, str]:
    out = {}
    for name, text in part.get(key, dict, {}).items():
        if name not in known or not isinstance(text, str | int):
            raise part.error("bad_value", f"{part.dotted(key)}.{name} must be an expression, for a size.", key)
        out[name] = str(text)
        parse(out[name], Place(str(part.file), part.line(key)))
    return out


def _choices(part: _Part) -> tuple[Mapping[str, int], ...]:
    """Sets of the same defines; with a ``cost`` to choose by."""
    tables = part.get("choices", list, [])
    for index, table in enumerate(tables):
        same = isinstance(table, dict) and set(table) == set(tables[0])
        if not same or not all(type(value) is int for value in table.values()):
            message = f"{part.dotted('choices')} must be tables of integers, all with the same names."
            raise part.error("bad_value", message, "choices", index)
    if bool(tables) != bool(part.get("cost", dict, {})):
        raise part.error("missing_key", f"{part.dotted()}: choices and cost stand together.")
    return tuple(dict(table) for table in tables)


def _condition(part: _Part, key: str) -> str:
    text: str = part.get(key, str, "")
    for one in text.split(" and ") if text else ():
        parse(one, Place(str(part.file), part.line(key)))
    return text


def _claim(part: _Part, dtypes: tuple[str, ...], sizes: Mapping[str, Any]) -> Claim:
    part.only(CLAIM_KEYS)
    kinds = [k for k in _COUNTED if k in part.data]
    relations = [r for r in RELATIONS if r in part.data]
    if len(kinds) != 1 or len(relations) != 1:
        message = f"{part.dotted()} needs one of {', '.join(_COUNTED)}, and one of {', '.join(RELATIONS)}."
        raise part.error("bad_value", message)
    kind: Any = kinds[0]
    against = part.get("against", str, None)
    if relations[0].startswith("ratio") != (against is not None):
        raise part.error("bad_value", f"{part.dotted()}: a ratio needs 'against', and nothing else takes it.")
    size, dtype = part.get("size", str, "small"), part.get("dtype", str, None)
    if kind == "counter" and size not in sizes:
        raise part.error("bad_value", f"{part.dotted()} is read at sizes.{size}, which the family lacks.")
    if dtype is not None and dtype not in dtypes:
        raise part.error("bad_value", f"{part.dotted()}: '{dtype}' is no dtype of the rung.", "dtype")
    value = part.get(relations[0], (int, float))
    return Claim(kind, part.get(kind, str), relations[0], value, against, size, dtype)


def _check_order(root: _Part, rungs: tuple[Rung, ...]) -> None:
    names = [r.name for r in rungs]
    if names != sorted(set(names)):
        raise root.error(
            "bad_value", f"rungs stand in the order of their files, each once: {', '.join(names)}.", "rung"
        )
    for index, rung in enumerate(rungs):
        for against in (*(c.against for c in rung.claims), rung.generated_from):
            if against is not None and against not in names:
                raise root.error("bad_value", f"{rung.name} names '{against}', which is no rung.", "rung", index)
