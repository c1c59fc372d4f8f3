"""Which rung takes a product, why, and why the others do not: the choice behind ``tilewright.ops.matmul``.

Two families can multiply halves. ``hgemm`` takes plain products of matrices in rows, and its table is the one that was
measured best there; ``matmul`` takes every layout, batches and epilogues. A product goes to the first that can take it,
to the rung that its ``ladder.toml`` means for the sizes; nothing falls back without being said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.errors import TilewrightError
from tilewright.ladder.choosing import fastest, time_of, why_not
from tilewright.ladder.compiling import constants_of
from tilewright.ladder.family import Family, Rung, load_family
from tilewright.ladder.references.matmul import ACTIVATIONS
from tilewright.ladder.specs import bound_launches, figure, rung_spec

PACK = 8  # elements of 16 bytes, the pieces that tensor maps and wide loads take
FAMILIES = ("hgemm", "matmul")  # in the order in which they are asked
# Where the expressions of a family's table come from.
_TABLES = {
    "hgemm": "measured on an H200, benchmarks/results/h200-hgemm-*.json",
    "matmul": "measured on an H200, benchmarks/results/h200-products.json",
}


@dataclass(frozen=True)
class Operand:
    """One matrix, or one of each batch, as it lies in memory: elements from a row, and from a column, to the next.

    Attributes:
        batch: elements from a matrix to the next; 0 where one stands for all.
    """

    batch: int
    row: int
    column: int

    @property
    def is_in_rows(self) -> bool:
        return self.column == 1


@dataclass(frozen=True)
class Product:
    """``y = activation(alpha * a @ b + beta * c + bias)``, without the numbers.

    Attributes:
        dtype: of all arrays. address: their addresses, or-ed. batches, rows, columns, depth: B, M, N, K.
        a, b: rows of ``a`` are m and its columns k; rows of ``b`` are k and its columns n. c: None for none.
        is_plain: alpha is 1.
    """

    dtype: str
    address: int
    batches: int
    rows: int
    columns: int
    depth: int
    a: Operand
    b: Operand
    c: Operand | None = None
    has_bias: bool = False
    activation: str = "none"
    is_plain: bool = True

    @property
    def layout(self) -> str:
        """As BLAS has it, for arrays in rows: N as it is, T transposed, S for strides in both directions."""
        return "".join("N" if o.is_in_rows else "T" if o.row == 1 else "S" for o in (self.a, self.b))

    def sizes(self, family: str) -> dict[str, int]:
        """What the product is to a family."""
        a, b, c = self.a, self.b, self.c
        shape = {"M": self.rows, "N": self.columns, "K": self.depth}
        if family == "hgemm":
            return {**shape, "ld_a": a.row, "ld_b": b.row}
        more = c or Operand(0, self.columns, 1)
        steps = (("a", a), ("b", b), ("c", more))
        out = {"B": self.batches, **shape}
        for name, operand in steps:
            out |= {f"batch_{name}": operand.batch, f"ld_{name}": operand.row, f"step_{name}": operand.column}
        told = {"with_bias": int(self.has_bias), "with_c": int(c is not None)}
        return {**out, **told, "activation": ACTIVATIONS.index(self.activation)}

    def not_of(self, family: str) -> str:
        """Why a family does not compute it, whatever its rungs; "" where it does."""
        if family != "hgemm":
            return ""
        why = [
            f"a batch of {self.batches}" if self.batches > 1 else "",
            f"the layout {self.layout}" if self.layout != "NN" else "",
            "an alpha" if not self.is_plain else "",
            "a bias" if self.has_bias else "",
            "c" if self.c is not None else "",
            f"the activation {self.activation}" if self.activation != "none" else "",
        ]
        has = ", ".join(filter(None, why))
        return f"it takes plain products of matrices in rows; this one has {has}" if has else ""


def operand_of(rows: int, columns: int, batch: int, row: int, column: int) -> Operand:
    """Strides in elements → an operand. Of a single row or column, the one that is never taken is free: it is made one
    that a tensor map takes."""
    if rows == 1 and column == 1:
        return Operand(batch, _whole(columns), 1)
    if columns == 1 and row == 1:
        return Operand(batch, 1, _whole(rows))
    if columns == 1:
        return Operand(batch, row, 1)
    return Operand(batch, 1, column) if rows == 1 else Operand(batch, row, column)


def _whole(extent: int) -> int:
    return -(-extent // PACK) * PACK


@dataclass(frozen=True)
class Pick:
    """A rung for a product.

    Attributes:
        rung: as a card gets it at these sizes. why: in words.
        refused: (``family/rung`` or a family's name, why not), in the order of the ladders.
    """

    product: Product
    family: Family
    rung: Rung
    why: str
    refused: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        return f"{self.family.name}/{self.rung.name}"


def pick(product: Product, runs_on: Callable[[str], bool], rung: str | None = None) -> Pick:
    """The rung for a product.

    Args:
        runs_on: whether the card runs code of an architecture. rung: ``hgemm/24_persistent``, or what names one of
            ``matmul``: it is taken if it can be.

    Raises:
        TilewrightError: ``ladder/no_rung``, with why each of them does not; ``ladder/no_dtype``.
    """
    families = {name: _family(name) for name in FAMILIES}
    if product.dtype not in families["matmul"].dtypes:
        known = ", ".join(families["matmul"].dtypes)
        message = f"matmul does not take {product.dtype}."
        raise TilewrightError("ladder/no_dtype", message, {}, f"It takes: {known}.")
    if rung is not None:
        return _named(product, families, runs_on, rung)
    refused: list[tuple[str, str]] = []
    found: Pick | None = None
    for family in families.values():
        whole = product.not_of(family.name)
        if whole:
            refused.append((family.name, whole))
            continue
        sizes = product.sizes(family.name)
        rungs = [one.at(sizes, product.dtype) for one in family.rungs]
        why = {one.name: why_not(one, sizes, product.dtype, runs_on, product.address) for one in rungs}
        fit = [one for one in rungs if not why[one.name]]
        best = fastest(fit[::-1], sizes, product.dtype) if fit and found is None else None
        for one in rungs:
            if one is not best:
                refused.append(
                    (f"{family.name}/{one.name}", why[one.name] or _later(product, family, one, best, found))
                )
        if best is not None:
            found = Pick(product, family, best, _meant(product, family, best), ())
    if found is None:
        raise _none_takes(product, refused)
    return Pick(product, found.family, found.rung, found.why, tuple(refused))


def _named(product: Product, families: Mapping[str, Family], runs_on: Callable[[str], bool], rung: str) -> Pick:
    """One that the caller asks for; whether it is meant for the sizes makes no difference."""
    of, _, name = rung.rpartition("/")
    if of and of not in families:
        hint = f"There are: {', '.join(families)}."
        raise TilewrightError("ladder/no_family", f"{of} multiplies no halves.", {}, hint)
    family = families[of or "matmul"]
    sizes = product.sizes(family.name)
    one = family.rung(name)
    asked = one.at(sizes, product.dtype)
    anywhere = replace(asked, best_when="", best_for={})
    why = product.not_of(family.name) or why_not(anywhere, sizes, product.dtype, runs_on, product.address)
    if why:
        hint = "Name no rung, or give arrays that it takes."
        raise TilewrightError("ladder/no_rung", f"{family.name}/{one.name} does not take it: {why}.", {}, hint)
    return Pick(product, family, asked, "it was asked for", ())


def _later(product: Product, family: Family, one: Rung, best: Rung | None, found: Pick | None) -> str:
    if best is None:
        return f"{found.name} takes it" if found else "another rung takes it"
    sizes = product.sizes(family.name)
    there, here = time_of(best, sizes, product.dtype), time_of(one, sizes, product.dtype)
    if there is None or here is None:
        return f"{family.name}/{best.name} is further up"
    return f"{family.name}/{best.name} is said to be as fast or faster: {there:.4g} us, this one {here:.4g}"


def _meant(product: Product, family: Family, rung: Rung) -> str:
    """The table's reason."""
    condition = f" ({rung.best_when} is not 0)" if rung.best_when else ""
    us = time_of(rung, product.sizes(family.name), product.dtype)
    which = "the last rung" if us is None else f"the fastest rung, by a cost of {us:.4g} us,"
    return f"{which} of {family.name} that takes it and is meant for it{condition}; {_TABLES[family.name]}"


def _none_takes(product: Product, refused: list[tuple[str, str]]) -> TilewrightError:
    why = "; ".join(f"{name}: {text}" for name, text in refused)
    facts = {"layout": product.layout, "dtype": product.dtype, "sizes": product.sizes("matmul")}
    return TilewrightError("ladder/no_rung", f"no rung takes this product: {why}.", facts)


@lru_cache
def _family(name: str) -> Family:
    return load_family(name)


@dataclass(frozen=True)
class Explanation:
    """What was chosen for a product, and why; ``str()`` draws it.

    Attributes:
        rung: ``family/rung``. technique: its title. layout: ``NT``. path: how each operand gets to the tensor cores.
        tile: rows, columns, depth of what a block makes. stages: tiles on their way at a time; 1 for none ahead.
        cluster: blocks. launches: kernels, one after the other; the last one multiplies. grid, block: of that one.
        shared_bytes: of a block of it, dynamic. copied_bytes: of operands that are written anew before it; 0 for none.
        order: in which tiles are taken. epilogue: what is done to sums. defines: for the compiler.
        flops, bytes: what the product needs at the least. why: in words. refused: (name, why not).
    """

    rung: str
    technique: str
    dtype: str
    layout: str
    path: str
    tile: tuple[int, int, int]
    stages: int
    cluster: int
    launches: int
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    copied_bytes: int
    order: str
    epilogue: str
    defines: Mapping[str, str | int | float]
    flops: float
    bytes: float
    why: str
    refused: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        tile = " x ".join(map(str, self.tile))
        behind = f", behind {self.launches - 1} more" if self.launches > 1 else ""
        rows = [
            ("rung", f"{self.rung}: {self.technique}"),
            ("because", self.why),
            ("layout", f"{self.layout}: {self.path}"),
            ("tile", f"{tile}, {self.stages} stages, clusters of {self.cluster}, {self.order}"),
            ("launch", f"grid {self.grid}, block {self.block}, {self.shared_bytes:,} bytes of shared memory{behind}"),
            ("epilogue", self.epilogue),
            (
                "needs",
                f"{self.flops / 1e9:,.3f} GFLOP, {self.bytes / 1e6:,.3f} MB: {self.flops / self.bytes:,.0f} FLOP/B",
            ),
            *(("not", f"{name}: {why}") for name, why in self.refused),
        ]
        return "\n".join(f"{name:9} {text}" for name, text in rows)


def explanation_of(found: Pick) -> Explanation:
    """What a choice comes to; nothing is compiled or launched."""
    product, family = found.product, found.family
    sizes = product.sizes(family.name)
    spec = rung_spec(family, found.rung, product.dtype)
    constants = constants_of(spec)
    *before, launch = bound_launches(spec, sizes, constants)  # of several the last one multiplies
    copied_bytes = sum(
        b.storage_elements * b.dtype.item_bytes for one in before for b in one.buffers if b.role == "out"
    )
    tile = tuple(int(constants.get(name, 0)) for name in ("BM", "BN", "BK"))
    group = int(constants.get("GROUP", 0))
    order = f"rows of tiles walked {group} at a time" if group else "row after row of tiles"
    cluster = int(constants.get("CLUSTER", constants.get("PARTS", 1)))
    return Explanation(
        rung=found.name,
        technique=found.rung.technique,
        dtype=product.dtype,
        layout=product.layout,
        path=_path(found, copied_bytes),
        tile=(tile[0], tile[1], tile[2]),
        stages=int(constants.get("STAGES", 1)),
        cluster=cluster,
        launches=len(before) + 1,
        grid=launch.grid,
        block=launch.block,
        shared_bytes=launch.shared_bytes,
        copied_bytes=copied_bytes,
        order=order,
        epilogue=_epilogue(product),
        defines=dict(found.rung.defines),
        flops=figure(family.flops, family, sizes, product.dtype),
        bytes=figure(family.bytes, family, sizes, product.dtype),
        why=found.why,
        refused=found.refused,
    )


def _path(found: Pick, copied_bytes: int) -> str:
    """How operands get to the kernel that multiplies: it has them as they lie, or copies ``a_…``, ``b_…`` of them."""
    last = found.rung.launches[-1]
    takes, maps = {arg["name"] for arg in last.args}, {each.array for each in last.maps}
    piece = "16 bytes at a time" if found.rung.align_bytes > 1 else "by element"
    told = []
    for name, operand, along in (("a", found.product.a, ("k", "m")), ("b", found.product.b, ("n", "k"))):
        read = {each for each in takes if each == name or each.startswith(f"{name}_")}
        way = ("" if name in takes else "copied first, then ") + ("by tensor map" if read & maps else piece)
        packed = along[0] if operand.is_in_rows else along[1] if operand.row == 1 else "neither k nor the other"
        told.append(f"{name} packed along {packed}, {way}")
    copies = f"the copies take {copied_bytes:,} bytes of scratch" if copied_bytes else "no copy is made"
    return "; ".join((*told, copies))


def _epilogue(product: Product) -> str:
    terms = ["a @ b" if product.is_plain else "alpha * a @ b"]
    terms += ["beta * c"] if product.c is not None else []
    terms += ["bias"] if product.has_bias else []
    inner = " + ".join(terms)
    return inner if product.activation == "none" else f"{product.activation}({inner})"
