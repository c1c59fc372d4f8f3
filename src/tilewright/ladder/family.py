"""A family of the ladder, as its ``ladder.toml`` says: ``Family``, its ``Rung``s and their ``Claim``s.

``kernels/<family>/ladder.toml``::

    [family]
    title     = "Transpose"
    op        = "y[j, i] = x[i, j]"             # one line
    reference = "transpose"                     # function in tilewright.ladder.references.<family>
    dtypes    = ["float32", "float16", "bfloat16"]
    bytes     = "2 * M * N * item_bytes"        # unique bytes of DRAM; item_bytes is the element type's
    flops     = "0"
    length    = "1"                             # of the longest sum, which decides the tolerance (default 1)
    exact     = true                            # results equal the reference bit for bit (default false)
    specials  = ["nan", "inf", "-inf", "denormal"]   # that inputs may hold (the default; a family may take fewer)
    flat      = ["x"]       # arrays whose first dimension may be several of a caller's (default none)

    [family.sizes]                              # sets named default and large* are for a card, the others are emulated
    default = { M = 16384, N = 16384 }
    tiny    = { M = 1, N = 31 }

    [[family.args]]                             # as in a sidecar; dtype "T" is the rung's element type
    name = "x"
    dtype = "T"
    shape = ["M", "N"]

    [[rung]]
    file       = "02_coalesced.cu"
    kernel     = "transpose"
    technique  = "Tile in shared memory"
    changes    = "Both sides of the copy are coalesced: a block turns its tile in shared memory."
    grid       = ["ceil_div(N, TILE)", "ceil_div(M, TILE)"]
    block      = ["TILE", 8]
    # optional: shared_bytes, defines = { TILE = 32 }, flags, dtypes, min_arch, generated_from,
    # limits = { N = { at_most = 8192, multiple_of = 4 } },   # what it can do at all; at_least too
    # needs = { "rows or columns that are packed" = "(ld == 1) + (step == 1)" },   # in words, and an expression in the
    #         # sizes and the rung's defines that must not be zero: what no limit of one size can say
    # sized = { WORKERS = "32 + 96 * (C > 1024)", PACKS = "ceil_div(C * item_bytes, 16 * WORKERS)" },   # defines that
    #         # a card gets by its sizes, where those of the file are for the emulator
    # sized_limits = { C = "131072 // item_bytes" },          # the most it takes then
    # choices = [{ TILE = 64 }, { TILE = 128 }],   # such defines (lower-case names are none), before `sized`
    # cost = { tiles = "ceil_div(N, TILE)", us = "ceil_div(tiles, 132) * TILE" },   # line by line; the last one counts,
    #          # and if it is named us, it is held against those of other rungs
    # best_for = { N = { at_most = 1024 } },   # who names no rung gets the last one whose best_for and limits fit
    # best_when = "N * item_bytes > 65536"   # the same, where it takes more than one size, or the element's
    # args = ["x", "partial", { name = "y", role = "inout", fill = "zeros()" },
    #          { name = "k", dtype = "int32", value = 3 }]
    # tensor_maps = [{ name = "x_map", array = "x", dims = ["N", "M"], pitches = ["ld * TW_T_BYTES"], box = [32, 8] }],
    #                # each may say swizzle = 128: the width, in bytes, in which chunks change places in shared memory
    # align_bytes = 16,   # every array that it is given has to begin at a multiple of it (views may begin anywhere)
    # map_flag = "has_map",   # behind the maps: 0 where they cannot be made (a pitch that is no multiple of 16 bytes)
    # scratch = [ { name = "partial", dtype = "float32", shape = ["64"] } ]
    # kept = ["ticket"],   # of the scratch: zero before the first launch, and left so by each; nobody clears it again
    # passes = [ { kernel = "second", grid = [1], block = [256], args = [{ name = "partial", role = "in" }, "y"] } ]
    shows = [
      { counter = "global_store_sectors", against = "01_naive", ratio_at_most = 0.3 },
      { counter = "shared_conflicts", equals = 0 },
      { sass = "LDG.E.128", at_least = 1 },
      { resource = "spill_bytes", equals = 0 },
    ]

Families whose kernels differ in a macro only share rungs: ``shares = "unary"`` and ``defines = { OP = "relu" }`` under
``[family]`` stand for the arguments, sizes and rungs of ``kernels/unary/shared.toml``, every rung with those defines.
Files that it names lie beside it.

``args`` of a rung or of a pass is a list of names (of the family's arguments, or of the rung's ``scratch``) and of
tables; a table adds to the argument of its name, or is a new one. Without it the family's arguments are taken. The
element type comes as the macros ``TW_T`` (``float``, ``__half``, ``__nv_bfloat16``) and ``TW_T_BYTES``; expressions may
use every constant of the file and every define.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tilewright.errors import TilewrightError
from tilewright.ladder.choosing import fastest, may_be_meant, why_not
from tilewright.launch.dtypes import DTYPES
from tilewright.launch.expressions import parse_once
from tilewright.launch.toml_lines import read_lines

KERNELS = Path(__file__).with_name("kernels")
CARD_SETS = ("default", "large")  # how the names of sets begin that are too large to be emulated

ClaimKind = Literal["counter", "sass", "resource"]
Relation = Literal["equals", "at_most", "at_least", "ratio_at_most", "ratio_at_least"]
RELATIONS: tuple[Relation, ...] = ("equals", "at_most", "at_least", "ratio_at_most", "ratio_at_least")
SPECIALS = ("nan", "inf", "-inf", "denormal")


@dataclass(frozen=True)
class Claim:
    """Something that a rung has to show.

    Attributes:
        kind: a counter of the emulator, instructions in the machine code, or what ptxas says of resources.
        name: ``global_load_sectors``; ``LDG.E.128``; ``registers``.
        relation, value: what holds of it.
        against: the rung that a ratio is taken to; None where it stands alone.
        size: the set at which counters are read. dtype: the element type; None for the rung's first.
    """

    kind: ClaimKind
    name: str
    relation: Relation
    value: float
    against: str | None = None
    size: str = "small"
    dtype: str | None = None

    @property
    def text(self) -> str:
        """In words: ``global_store_sectors at most 0.3 × 01_naive``."""
        relation = self.relation.removeprefix("ratio_").replace("_", " ")
        factor = f" × {self.against}" if self.against else ""
        return f"{self.name} {relation} {self.value:g}{factor}"


@dataclass(frozen=True)
class MapTable:
    """A tensor map that a kernel takes behind its arguments: see ``launch.tensor_maps.TensorMapArg``.

    Attributes:
        name: of the parameter. array: the argument that it describes, as unsigned integers of its elements' width.
        dims, pitches, box: expressions; elements, bytes, elements, the innermost dimension first.
        swizzle_bytes: 0, 32, 64 or 128.
    """

    name: str
    array: str
    dims: tuple[str, ...]
    pitches: tuple[str, ...]
    box: tuple[str, ...]
    swizzle_bytes: int = 0


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel of a rung.

    Attributes:
        kernel: the ``extern "C"`` function.
        grid, block: one to three expressions. shared_bytes: of dynamic shared memory, an expression.
        args: the tables of its arguments, complete, in the order of the signature; dtype ``T`` is the element type.
        maps: tensor maps behind them. map_flag: the ``int`` behind those, 0 where they cannot be made; "" for none.
    """

    kernel: str
    grid: tuple[str | int, ...]
    block: tuple[str | int, ...]
    shared_bytes: str | int
    args: tuple[Mapping[str, Any], ...]
    maps: tuple[MapTable, ...] = ()
    map_flag: str = ""


@dataclass(frozen=True)
class Limit:
    """What a rung asks of a size."""

    at_most: int | None = None
    multiple_of: int = 1
    at_least: int = 0

    def allows(self, value: int) -> bool:
        return self.at_least <= value <= (value if self.at_most is None else self.at_most) and not (
            value % self.multiple_of
        )

    @property
    def text(self) -> str:
        least = f"at least {self.at_least}" if self.at_least else ""
        most = f"at most {self.at_most}" if self.at_most is not None else ""
        step = f"a multiple of {self.multiple_of}" if self.multiple_of > 1 else ""
        return " and ".join(filter(None, (least, most, step)))


@dataclass(frozen=True)
class Rung:
    """One technique.

    Attributes:
        name: the file's name without its suffix: ``02_coalesced``.
        file: the source.
        technique: its title. changes: what it changes against the rung before, one sentence.
        launches: the kernel, and the further ones of its passes, in order.
        dtypes: element types that it takes.
        min_arch: the least architecture, or None. generated_from: the rung that `tilewright pipeline` makes it of.
        defines, flags: for the compiler.
        limits: by size. needs: in words, and an expression in the sizes and the defines that must not be zero.
        best_for: by size, where the rung is chosen when none is named. best_when: an expression in the sizes,
            ``item_bytes`` and ``address`` (the arrays', or-ed) that must not be zero there, too; or several: "x and y".
        align_bytes: what the addresses of its arrays have to be multiples of.
        kept: arrays of its own that stay from launch to launch, zero at first, see `workspaces`.
        sized: further defines, expressions in the sizes and ``item_bytes``: how a card should have it at sizes.
        sized_limits: the most that it then takes of a size: an expression that may have those defines, too.
        choices: sets of such defines; lower-case names are none. cost: expressions in those, too; the last one counts.
        claims: what it has to show. line: in ``ladder.toml``.
        unfit: why it cannot be had at the sizes that it was asked for: one of its expressions has no value there.
        told: what ``cost`` says of the choice that was made at those.
    """

    name: str
    file: Path
    technique: str
    changes: str
    launches: tuple[KernelLaunch, ...]
    dtypes: tuple[str, ...]
    min_arch: str | None = None
    generated_from: str | None = None
    defines: Mapping[str, str | int | float] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    limits: Mapping[str, Limit] = field(default_factory=dict)
    needs: Mapping[str, str] = field(default_factory=dict)
    best_for: Mapping[str, Limit] = field(default_factory=dict)
    best_when: str = ""
    align_bytes: int = 1
    kept: tuple[str, ...] = ()
    sized: Mapping[str, str] = field(default_factory=dict)
    sized_limits: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[Mapping[str, int], ...] = ()
    cost: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    line: int | None = None
    unfit: str = ""
    told: float | None = field(default=None, compare=False)

    def at(self, sizes: Mapping[str, int], dtype: str) -> Rung:
        """The rung as a card should have it at sizes: with the defines that ``sized`` makes of them.

        It is ``unfit`` where one of them has no value, as where a size is zero and something is divided by it.

        Raises:
            TilewrightError: ``launch/…`` for an expression that has no whole value anywhere.
        """
        if not self.sized and not self.choices:
            return self
        try:
            return self._at(sizes, dtype)
        except TilewrightError as error:
            if error.code != "launch/bad_value":
                raise
            return replace(self, unfit=f"{self.name} cannot be had at these sizes: {error.message}")

    def _at(self, sizes: Mapping[str, int], dtype: str) -> Rung:
        names = {**sizes, "item_bytes": DTYPES[dtype].item_bytes}
        costs = [self.cost_of(choice, sizes, dtype) for choice in self.choices]
        made: dict[str, int] = dict(self.choices[costs.index(min(costs))]) if costs else {}  # the first of equals
        for name, text in self.sized.items():
            made[name] = int(parse_once(text).evaluate_int({**names, **made}))  # a comparison is a bool
        most = {name: parse_once(text).evaluate_int({**names, **made}) for name, text in self.sized_limits.items()}
        limits = {name: Limit(value, self.limits.get(name, Limit()).multiple_of) for name, value in most.items()}
        told = min(costs, default=None)
        made = {name: value for name, value in made.items() if not name.islower()}
        return replace(self, defines={**self.defines, **made}, limits={**self.limits, **limits}, told=told)

    def cost_of(self, choice: Mapping[str, int], sizes: Mapping[str, int], dtype: str) -> float:
        """What ``cost`` says of a choice; raises as `at`."""
        names: dict[str, int | float] = {**sizes, "item_bytes": DTYPES[dtype].item_bytes, **choice}
        told = 0.0
        for name, text in self.cost.items():
            told = names[name] = float(parse_once(text).evaluate(names))
        return told

    def is_meant_for(self, sizes: Mapping[str, int], dtype: str, address: int = 0) -> bool:
        """Whether who names no rung should get this one, as far as its limits and the card allow."""
        names = {**sizes, "item_bytes": DTYPES[dtype].item_bytes, "address": address}
        asked = not self.best_when or all(parse_once(one).evaluate_int(names) for one in self.best_when.split(" and "))
        return asked and all(limit.allows(sizes[name]) for name, limit in self.best_for.items())

    def misfit(self, sizes: Mapping[str, int]) -> str:
        """Which limit a set of sizes breaks; "" for none."""
        if self.unfit:
            return self.unfit
        for name, limit in self.limits.items():
            if not limit.allows(sizes[name]):
                return f"{name} = {sizes[name]}; {self.name} takes {limit.text}"
        numbers = {name: value for name, value in self.defines.items() if not isinstance(value, str)}
        for words, text in self.needs.items():
            if not parse_once(text).evaluate({**sizes, **numbers}):
                return f"{self.name} needs {words}"
        return ""


@dataclass(frozen=True)
class Family:
    """One operation, and the rungs of its ladder.

    Attributes:
        name: the folder's. title, op: in words.
        file: its ``ladder.toml``.
        reference: the function in ``tilewright.ladder.references``.
        dtypes: element types. sizes: name of a set → name of a size → value.
        bytes, flops, length: expressions in the sizes and ``item_bytes``.
        exact: results equal the reference, rounded. specials: of ``SPECIALS``, those that inputs may hold.
        args: of the operation, complete tables.
        rungs: in order.
        flat: arrays whose first dimension may be several of a caller's, or none: the same ones in all of them.
        precision: dtype → the key of a device's peaks, where products are not made in float32.
    """

    name: str
    title: str
    op: str
    file: Path
    reference: str
    dtypes: tuple[str, ...]
    sizes: Mapping[str, Mapping[str, int]]
    bytes: str
    flops: str
    length: str
    exact: bool
    specials: tuple[str, ...]
    args: tuple[Mapping[str, Any], ...]
    rungs: tuple[Rung, ...]
    flat: tuple[str, ...] = ()
    precision: Mapping[str, str] = field(default_factory=dict)

    def rung(self, name: str) -> Rung:
        """The rung of that name, or whose name begins so (``02``), or ends so (``coalesced``).

        Raises:
            TilewrightError: ``ladder/no_rung``.
        """
        for found in (
            [r for r in self.rungs if r.name == name],
            [r for r in self.rungs if r.name.startswith(name) or r.name.partition("_")[2] == name],
        ):
            if len(found) == 1:
                return found[0]
        known = ", ".join(r.name for r in self.rungs)
        raise TilewrightError("ladder/no_rung", f"{self.name} has no rung '{name}'.", {}, f"It has: {known}.")

    def best(self, sizes: Mapping[str, int], dtype: str, runs_on: Callable[[str], bool], address: int = 0) -> Rung:
        """The rung for who names none: the last one that takes the sizes, is meant for them, and runs there; of those
        whose costs are times the fastest, if that one is among them (`choosing`).

        Args:
            runs_on: whether the card runs code of an architecture, such as a rung's ``min_arch``.
            address: the arrays' addresses, or-ed: its lowest bit says what all of them are multiples of.

        Raises:
            TilewrightError: ``ladder/no_rung``.
        """
        meant = [rung for rung in reversed(self.rungs) if may_be_meant(rung, sizes, dtype, address)]
        there = [rung.at(sizes, dtype) for rung in meant]
        fits = [rung for rung in there if not why_not(rung, sizes, dtype, runs_on, address)]
        if fits:
            return fastest(fits, sizes, dtype)
        facts = {"sizes": dict(sizes), "dtype": dtype}
        why = "; ".join(filter(None, (rung.at(sizes, dtype).misfit(sizes) for rung in self.rungs)))
        message = f"no rung of {self.name} takes these sizes in {dtype}{f': {why}' if why else ''}."
        raise TilewrightError("ladder/no_rung", message, facts)

    def before(self, rung: Rung) -> Rung | None:
        """The rung below; None for the first."""
        index = self.rungs.index(rung)
        return self.rungs[index - 1] if index else None

    def emulated_sets(self, rung: Rung | None = None, within: Mapping[str, int] | None = None) -> tuple[str, ...]:
        """Names of the sets that are small enough for the emulator, that a rung takes, and where no size is more than
        those for which it has its defines (``within``): what is built for rows of one length stops at longer ones."""
        return tuple(
            name
            for name, sizes in self.sizes.items()
            if not name.startswith(CARD_SETS) and (rung is None or not rung.misfit(sizes))
            if within is None or all(value <= within[each] for each, value in sizes.items())
        )


def load_families(folder: Path = KERNELS) -> tuple[Family, ...]:
    """Every family, by name. Raises TilewrightError: as `load_family`."""
    return tuple(load_family(file.parent.name, folder) for file in sorted(folder.glob("*/ladder.toml")))


def load_family(name: str, folder: Path = KERNELS) -> Family:
    """One family.

    Raises:
        TilewrightError: ``ladder/no_family``; ``ladder/bad_toml``, ``ladder/missing_key``, ``ladder/unknown_key``,
            ``ladder/wrong_type``, ``ladder/bad_value`` with the file and the line of what is wrong with it.
    """
    from tilewright.ladder.family_file import read_family

    file = folder / name / "ladder.toml"
    try:
        if Path(name).name != name:  # a path, which may lead anywhere
            raise OSError
        text = file.read_text("utf-8")
        data = tomllib.loads(text)
    except OSError:
        known = ", ".join(sorted(f.parent.name for f in folder.glob("*/ladder.toml")))
        message = f"there is no family '{name}'."
        raise TilewrightError("ladder/no_family", message, {}, f"There are: {known}.") from None
    except tomllib.TOMLDecodeError as error:
        raise TilewrightError("ladder/bad_toml", f"{error}.", {"file": str(file)}) from None
    return read_family(name, file, data, read_lines(text))
