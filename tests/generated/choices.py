"""What a random tiled kernel is made of: one choice of each kind, and which of them go together.

The kernels are GEMMs, C (M × N) = A (M × K) · B (K × N), row-major, written with the idioms that public kernels use.
Every choice is drawn at random; combinations that no one would write, or that are not right CUDA, are drawn again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace

# (BM, BN, BK, TM, TN): the tile, and what a thread computes of it.
TILES = (
    (16, 16, 16, 1, 1),
    (32, 32, 32, 1, 1),
    (32, 32, 16, 2, 2),
    (32, 64, 16, 2, 4),
    (64, 64, 16, 4, 4),
    (64, 64, 8, 4, 4),
    (64, 32, 32, 4, 4),
)
ELEMENTS = ("float", "float", "__half", "signed char")
COPIES = (
    "strided", "strided", "rows", "nested", "each", "vector", "vector", "vector_transposed", "array", "initialised",
    "if_else", "typed_local",
)  # fmt: skip
GUARDS = ("none", "none", "edges")
WRAPS = ("plain", "plain", "plain", "helper", "template_helper", "macro", "block")
POINTERS = ("index", "index", "bump", "bump_late", "carried")
LOOPS = ("step", "step", "tiles", "tiles", "two", "pointer", "while", "outside", "at_most", "not_equal")
BARRIERS = ("trailing", "trailing", "leading", "scratch")
SHARED = ("two_d", "two_d", "flat", "padded", "in_loop", "one_statement", "dynamic", "dynamic_bytes", "alias")
CONSTANTS = ("define", "constexpr", "template")
OUTER = ("none", "none", "none", "early_return", "divergent_return", "persistent", "branch")
EXTRAS = ("none", "none", "bias_read", "log_store", "late_reuse", "zeroed_before")
# Seeds below keep to what stands above, so that they still mean the kernels of earlier records.
PLAIN_SEEDS = 50
COMPUTES = ("plain", "plain", "pairs", "wmma")  # wmma: four warps, 32 x 32 each
WMMA_TILES = ((64, 64, 16, 4, 8), (64, 64, 32, 4, 8))
INDICES = ("int", "int", "unsigned", "size_t")
MORE_EXTRAS = ("second_phase", "typed_epilogue")
ACCUMULATOR = {"float": "float", "__half": "float", "signed char": "int"}
# What must never be offered, each on top of a kernel that is right otherwise.
TRAPS = ("race", "staged_written", "address_from_shared", "log_store_aliasing", "stale_fill")


@dataclass(frozen=True)
class Choices:
    """One kernel.

    Attributes:
        trap: one of ``TRAPS`` that makes every rewrite of it wrong, or "".
        index: type of the copies' indices.
        partial: half of the threads load A.
        unroll: ``#pragma unroll`` on copy loops.
    """

    tile: tuple[int, int, int, int, int]
    element: str
    copy_a: str
    copy_b: str
    guard: str
    wrap: str
    pointers: str
    loop: str
    barriers: str
    shared: str
    constants: str
    outer: str
    extra: str
    restrict: bool
    block_2d: bool
    pragma: bool
    trap: str = ""
    compute: str = "plain"
    index: str = "int"
    partial: bool = False
    unroll: bool = False

    @property
    def threads(self) -> int:
        bm, bn, _, tm, tn = self.tile
        return (bm // tm) * (bn // tn)

    @property
    def vector(self) -> int:
        """Elements in 16 bytes."""
        return {"float": 4, "__half": 8, "signed char": 16}[self.element]

    @property
    def logs(self) -> bool:
        """Whether it stores to a log inside the K-loop."""
        return self.extra == "log_store" or self.trap == "log_store_aliasing"

    def text(self) -> str:
        return ", ".join(f"{f.name} {getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name))


def draw(seed: int, trap: bool = False) -> Choices:
    """The kernel of a seed; ``trap``: one that must not be rewritten."""
    rng = random.Random(seed)
    while True:
        pick = rng.choice
        found = Choices(
            pick(TILES), pick(ELEMENTS), pick(COPIES), pick(COPIES), pick(GUARDS), pick(WRAPS), pick(POINTERS),
            pick(LOOPS), pick(BARRIERS), pick(SHARED), pick(CONSTANTS), pick(OUTER), pick(EXTRAS),
            rng.random() < 0.6, rng.random() < 0.5, rng.random() < 0.3, pick(TRAPS) if trap else "",
        )  # fmt: skip
        if seed >= PLAIN_SEEDS:
            found = _more(found, rng)
        if fits(found):
            return found


def _more(c: Choices, rng: random.Random) -> Choices:
    """What was added later."""
    compute = rng.choice(COMPUTES)
    if compute == "wmma":
        c = replace(c, element="__half", tile=rng.choice(WMMA_TILES))
    extra = rng.choice(MORE_EXTRAS) if rng.random() < 0.25 and not c.trap else c.extra
    partial, unroll = rng.random() < 0.25, rng.random() < 0.3
    return replace(c, compute=compute, index=rng.choice(INDICES), partial=partial, unroll=unroll, extra=extra)


def fits(c: Choices) -> bool:
    """Whether the choices go together."""
    return _copies_fit(c, "a") and _copies_fit(c, "b") and _loop_fits(c) and _rest_fits(c) and _more_fits(c)


def _more_fits(c: Choices) -> bool:
    if c.compute == "pairs" and c.tile[4] % 2:
        return False
    if c.partial and c.copy_a in ("each", "rows", "nested"):
        return False  # not written with the number of loaders in them
    if c.unroll and c.wrap == "macro":
        return False
    if c.extra == "second_phase":  # A is used before B is loaded
        return c.wrap in ("plain", "block") and c.barriers != "scratch"
    return c.extra != "typed_epilogue" or c.shared in ("dynamic", "dynamic_bytes")


def _copies_fit(c: Choices, side: str) -> bool:
    bm, bn, bk, _, _ = c.tile
    rows, columns = (bm, bk) if side == "a" else (bk, bn)
    copy = c.copy_a if side == "a" else c.copy_b
    if copy == "each":
        return rows * columns == c.threads
    if copy == "rows":
        return c.threads % columns == 0 and rows % (c.threads // columns) == 0
    if copy == "nested":
        across = bn // c.tile[4]
        return c.block_2d and columns % across == 0 and rows % (c.threads // across) == 0
    if copy in ("vector", "vector_transposed", "array"):
        whole = columns % c.vector == 0 and (rows * columns // c.vector) % c.threads == 0
        flat_enough = c.shared != "padded" or c.vector <= 4
        narrow = copy != "vector_transposed" or c.element == "float"
        return whole and flat_enough and narrow and (side == "a" or copy == "vector")
    return True


def _loop_fits(c: Choices) -> bool:
    if c.loop == "pointer":  # counts in the pointer itself, so nothing else says where in K it is
        return c.pointers == "bump" and c.guard == "none" and c.outer in ("none", "early_return", "divergent_return")
    if c.loop == "two":
        return c.pointers == "index" and c.guard == "none"
    if c.loop in ("at_most", "not_equal"):
        return c.guard == "none"
    return True


def _rest_fits(c: Choices) -> bool:
    if c.shared in ("in_loop",) and (c.extra in ("late_reuse", "zeroed_before") or c.barriers == "scratch"):
        return False
    if c.outer == "persistent" and (c.pointers != "index" or c.loop == "two"):
        return False  # pointers would have to be set back
    if c.outer == "divergent_return" and c.guard != "none":
        return False  # threads that left do not load: right at whole tiles only
    if c.extra == "zeroed_before" and "transposed" in c.copy_a:
        return False
    if c.trap == "log_store_aliasing" and (c.restrict or c.extra != "none"):
        return False
    if c.trap == "stale_fill" and c.loop == "pointer":
        return False  # it does not know which tile it is at
    if c.trap == "race" and c.barriers != "trailing":
        return False
    if c.wrap == "helper" and c.constants == "template":
        return False  # the helper could not see them
    if c.wrap == "template_helper" and (c.constants == "define" or "nested" in (c.copy_a, c.copy_b)):
        return False  # its parameters would be macros; a nested copy needs TN too
    if c.wrap in ("helper", "template_helper") and (c.pointers == "carried" or c.copy_a == "each"):
        return False
    return not (c.extra == "log_store" and not c.restrict)  # without, that is a trap
