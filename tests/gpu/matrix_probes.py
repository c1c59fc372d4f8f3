"""Probes of matrix instructions: whole numbers, whose sums are exact, tell of layouts; others of rounding."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
from op_harness import Program
from probes import TARGET, Probe
from replays import Array


def probes() -> Iterator[Probe]:
    yield from _dense_mma()
    yield from _sparse_mma()
    yield from _wmma_layouts()
    yield from _wmma_products()
    yield from _wgmma()


WARPS = 32
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "f64": 64}
SMALL = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
Fill = str  # whole: products are exact. normal, wide (exponents far apart), raw (any finite bits)


def _numbers(rng: np.random.Generator, fill: Fill, count: int) -> Array:
    if fill == "whole":
        return rng.integers(-4, 5, count).astype(np.float64)
    normal = rng.standard_normal(count)
    return normal if fill == "normal" else normal * np.exp2(rng.integers(-8, 8, count))


def registers(rng: np.random.Generator, element: str, fill: Fill, count: int, threads: int) -> list[Array]:
    """So many registers of packed elements: uint32[threads], or uint64 of f64."""
    bits = BITS[element]
    if element == "f64":
        return [_numbers(rng, fill, threads).view(np.uint64) for _ in range(count)]
    if element in ("s8", "u8", "s4", "u4", "b1"):
        return [rng.integers(0, 1 << 32, threads, dtype=np.uint32) for _ in range(count)]
    out = []
    for _ in range(count):
        numbers = _numbers(rng, fill, threads * 32 // bits)
        if element == "tf32":
            words = numbers.astype(np.float32).view(np.uint32)
            out.append(words if fill == "raw" else words & np.uint32(0xFFFFE000))
        else:
            out.append(numbers.astype(SMALL[element]).view(np.uint32))
    return out


def shape_of(shape: str) -> tuple[int, int, int]:
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def braces(letter: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"%{letter}{first + k}" for k in range(count)) + "}"


def accumulators(
    rng: np.random.Generator, type_: str, elements: int, fill: Fill, threads: int
) -> tuple[list[str], list[Array]]:
    """Register types and C."""
    if type_ == "f16":
        return ["b32"] * (elements // 2), registers(rng, "f16", fill, elements // 2, threads)
    if type_ == "f64":
        return ["f64"] * elements, registers(rng, "f64", fill, elements, threads)
    if type_ == "s32":
        return ["b32"] * elements, [
            rng.integers(-1000, 1000, threads).astype(np.int32).view(np.uint32) for _ in range(elements)
        ]
    return ["f32"] * elements, [
        _numbers(rng, fill, threads).astype(np.float32).view(np.uint32) for _ in range(elements)
    ]


DENSE = (
    ("m16n8k16", "f32", "f16", "f16"), ("m16n8k8", "f32", "f16", "f16"), ("m16n8k16", "f16", "f16", "f16"),
    ("m16n8k8", "f16", "f16", "f16"), ("m16n8k16", "f32", "bf16", "bf16"), ("m16n8k8", "f32", "bf16", "bf16"),
    ("m16n8k8", "f32", "tf32", "tf32"), ("m16n8k4", "f32", "tf32", "tf32"), ("m16n8k32", "f32", "e4m3", "e4m3"),
    ("m16n8k32", "f32", "e4m3", "e5m2"), ("m16n8k32", "f32", "e5m2", "e5m2"), ("m16n8k16", "f32", "e4m3", "e4m3"),
    ("m16n8k32", "f16", "e4m3", "e4m3"), ("m16n8k32", "s32", "s8", "s8"), ("m16n8k32", "s32", "u8", "s8"),
    ("m16n8k16", "s32", "s8", "s8"), ("m8n8k16", "s32", "s8", "u8"), ("m16n8k64", "s32", "s4", "s4"),
    ("m16n8k32", "s32", "s4", "u4"), ("m8n8k32", "s32", "u4", "s4"), ("m16n8k256", "s32", "b1", "b1"),
    ("m16n8k128", "s32", "b1", "b1"), ("m8n8k4", "f64", "f64", "f64"), ("m16n8k4", "f64", "f64", "f64"),
    ("m16n8k8", "f64", "f64", "f64"), ("m16n8k16", "f64", "f64", "f64"),
)  # fmt: skip


def _dense_mma() -> Iterator[Probe]:
    threads = 32 * WARPS
    for shape, d, a, b in DENSE:
        is_float = a in SMALL or a in ("tf32", "f64")
        for fill in ("whole", "normal", "wide", *(("raw",) if a == "tf32" else ())) if is_float else ("whole",):
            name = f"mma.sync.aligned.{shape}.row.col.{d}.{a}.{b}.{d}" + (".and.popc" if a == "b1" else "")
            yield _mma_probe(name, shape, (d, a, b), fill, threads)
    for shape, a in (("m16n8k16", "s8"), ("m16n8k32", "u8")):
        name = f"mma.sync.aligned.{shape}.row.col.satfinite.s32.{a}.{a}.s32"
        yield _mma_probe(name, shape, ("s32", a, a), "whole", threads)


def _mma_probe(
    name: str,
    shape: str,
    kinds: tuple[str, str, str],
    fill: Fill,
    threads: int,
    metadata: Array | None = None,
    selector: int = 0,
) -> Probe:
    d, a, b = kinds
    m, n, k = shape_of(shape)
    rng = np.random.default_rng([6, *name.encode(), *fill.encode(), selector])
    kept = k if metadata is None else k // 2
    counts = [
        max(elements * BITS[t] // (1024 if t != "f64" else 2048), 1) for elements, t in ((m * kept, a), (n * k, b))
    ]
    c_types, c = accumulators(rng, d, m * n // 32, fill, threads)
    operands = [x for count, t in zip(counts, (a, b), strict=True) for x in registers(rng, t, fill, count, threads)]
    word = "f64" if a == "f64" else "b32"
    inputs = [*[word] * sum(counts), *c_types, *(["b32"] if metadata is not None else [])]
    first_c, e = sum(counts), sum(counts) + len(c)
    tail = f", %i{e}, {selector}" if metadata is not None else ""
    body = (
        f"{name} {braces('o', 0, len(c))}, {braces('i', 0, counts[0])}, {braces('i', counts[0], counts[1])}, "
        f"{braces('i', first_c, len(c))}{tail};"
    )
    arrays = (*operands, *c, *([metadata] if metadata is not None else []))
    types = tuple("f16x2" if d == "f16" else t for t in c_types)
    note = {"whole": "exact: layout", "normal": "order and width of the sum", "wide": "width of the sum"}.get(
        fill, "unrounded tf32"
    )
    shown = f"{name} {fill}" + (f" selector {selector}" if metadata is not None else "")
    return Probe(shown, Program(inputs, c_types, body, TARGET), arrays, threads, types=types, note=note)


SPARSE = (
    ("m16n8k32", "f16", "f32", (0, 1)), ("m16n8k16", "f16", "f32", (0, 1, 2, 3)), ("m16n8k32", "bf16", "f32", (0, 1)),
    ("m16n8k16", "tf32", "f32", (0, 1)), ("m16n8k8", "tf32", "f32", (0, 1, 2, 3)), ("m16n8k64", "s8", "s32", (0,)),
    ("m16n8k32", "s8", "s32", (0, 1)), ("m16n8k64", "u8", "s32", (0,)), ("m16n8k64", "e4m3", "f32", (0,)),
    ("m16n8k128", "s4", "s32", (0,)), ("m16n8k64", "s4", "s32", (0, 1)),
)  # fmt: skip
PAIRS = (0x4, 0x8, 0x9, 0xC, 0xD, 0xE)  # two different places of four, in order


def _sparse_mma() -> Iterator[Probe]:
    threads = 32 * WARPS
    for shape, element, d, selectors in SPARSE:
        for selector in selectors:
            rng = np.random.default_rng([7, *shape.encode(), *element.encode(), selector])
            codes = np.array((0x4, 0xE) if element == "tf32" else PAIRS, np.uint32)
            metadata = np.zeros(threads, np.uint32)
            for nibble in range(8):
                metadata |= rng.choice(codes, threads) << np.uint32(4 * nibble)
            name = f"mma.sp::ordered_metadata.sync.aligned.{shape}.row.col.{d}.{element}.{element}.{d}"
            yield _mma_probe(name, shape, (d, element, element), "whole", threads, metadata, selector)


SHAPES = ("m16n16k16", "m32n8k16", "m8n32k16")
KINDS = (("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("s8", "s32"), ("u8", "s32"))
WMMA = (
    *((shape, *kinds) for kinds in KINDS for shape in SHAPES),
    ("m16n16k8", "tf32", "f32"), ("m8n8k4", "f64", "f64"), ("m8n8k32", "s4", "s32"), ("m8n8k128", "b1", "s32"),
)  # fmt: skip
DUMP_THREADS = 512  # 2 KiB of memory behind each pointer


def _fragment_registers(shape: str, element: str, which: str) -> int:
    m, n, k = shape_of(shape)
    if which in ("c", "d"):
        return m * n // (64 if element == "f16" else 32)
    if element == "f16":
        return 8
    elements = m * k if which == "a" else n * k
    return elements // 32 if element == "f64" else max(elements * BITS[element] // 1024, 1)


def _ld(shape: str, which: str, layout: str) -> int:
    m, n, k = shape_of(shape)
    rows, cols = {"a": (m, k), "b": (k, n)}.get(which, (m, n))
    return max(cols if layout == "row" else rows, 16)  # a multiple of 16 bytes


def _layouts(element: str, which: str) -> tuple[str, ...]:
    if element in ("s4", "b1") and which in ("a", "b"):
        return ("row",) if which == "a" else ("col",)
    return ("row", "col")


def _wmma_layouts() -> Iterator[Probe]:
    """What each register holds after a load, and where each goes in a store."""
    seen = set()
    for shape, element, d in WMMA:
        for which in ("a", "b", "c"):
            kind = d if which == "c" else element
            for layout in _layouts(element, which):
                if (shape, kind, which, layout) in seen:
                    continue
                seen.add((shape, kind, which, layout))
                yield _load_probe(shape, kind, which, layout)
                if which == "c":
                    yield _store_probe(shape, kind, layout)


def _memory(kind: str) -> Array:
    """2 KiB in which every 16-bit half is another, and bytes are mixed."""
    rng = np.random.default_rng(8)
    if kind in ("f16", "bf16"):
        return np.arange(DUMP_THREADS * 2, dtype=np.uint16).view(np.uint32)
    if kind in ("f32", "tf32", "s32"):
        return np.arange(DUMP_THREADS, dtype=np.uint32)
    return rng.integers(0, 1 << 32, DUMP_THREADS, dtype=np.uint32)


def _load_probe(shape: str, kind: str, which: str, layout: str) -> Probe:
    count = _fragment_registers(shape, kind, which)
    out = "f64" if kind == "f64" else "f32" if kind == "f32" else "b32"
    name = f"wmma.load.{which}.sync.aligned.{layout}.{shape}.global.{kind}"
    ld = _ld(shape, which, layout)
    body = f"ld.param.u64 %d0, [in0]; {name} {braces('o', 0, count)}, [%d0], {ld};"
    program = Program(["b32"], [out] * count, body, TARGET)
    types = tuple("b64" if kind == "f64" else "b32" for _ in range(count))
    return Probe(name, program, (_memory(kind),), DUMP_THREADS, 32, types, "registers of x[i]")


def _store_probe(shape: str, kind: str, layout: str) -> Probe:
    count = _fragment_registers(shape, kind, "d")
    rng = np.random.default_rng(9)
    word = "f64" if kind == "f64" else "f32" if kind == "f32" else "b32"
    name = f"wmma.store.d.sync.aligned.{layout}.{shape}.global.{kind}"
    body = (
        f"setp.ne.u32 %p0, %cta, 0; @%p0 ret; ld.param.u64 %d0, [in{count}]; "
        f"{name} [%d0], {braces('i', 0, count)}, {_ld(shape, 'd', layout)};"
    )
    dtype = np.uint64 if kind == "f64" else np.uint32
    data = [rng.integers(0, 1 << 30, DUMP_THREADS).astype(dtype) for _ in range(count)]
    program = Program([*[word] * count, "b32"], [], body, TARGET)
    return Probe(name, program, (*data, np.zeros(DUMP_THREADS, np.uint32)), DUMP_THREADS, 32, (), "registers of x[i]")


def _wmma_products() -> Iterator[Probe]:
    for shape, element, d in WMMA:
        for a_layout in _layouts(element, "a"):
            for b_layout in _layouts(element, "b"):
                fills = ("whole", "normal") if element in ("f16", "bf16", "tf32") else ("whole",)
                for fill in fills if (a_layout, b_layout) == ("row", "col") else ("whole",):
                    yield _product_probe(shape, element, d, (a_layout, b_layout), fill)


def _product_probe(shape: str, element: str, d: str, layouts: tuple[str, str], fill: Fill) -> Probe:
    rng = np.random.default_rng([10, *shape.encode(), *element.encode(), *fill.encode()])
    count_a, count_b, count_d = (
        _fragment_registers(shape, t, w) for t, w in ((element, "a"), (element, "b"), (d, "d"))
    )
    types = "" if element == "f16" else f".{element}.{element}"
    operation = ".and.popc" if element == "b1" else ""
    name = f"wmma.mma{operation}.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}.{d}{types}.{d}"
    word = "f64" if element == "f64" else "b32"
    out = "f64" if d == "f64" else "f32" if d == "f32" else "b32"
    loads = "".join(
        f"ld.param.u64 %d{k}, [in{k}]; "
        f"wmma.load.{w}.sync.aligned.{layouts[k]}.{shape}.global.{element} {braces(letter, 40, count)}, "
        f"[%d{k}], {_ld(shape, w, layouts[k])};\n"
        for k, (w, letter, count) in enumerate((("a", "y", count_a), ("b", "z", count_b)))
    )
    declare = f".reg .{word} %y<60>; .reg .{word} %z<60>;"
    body = (
        f"{loads}{name} {braces('o', 0, count_d)}, {braces('y', 40, count_a)}, {braces('z', 40, count_b)}, "
        f"{braces('i', 2, count_d)};"
    )
    operands = [x for _ in range(2) for x in registers(rng, element, fill, 1, DUMP_THREADS)]
    c_types, c = accumulators(rng, d, shape_of(shape)[0] * shape_of(shape)[1] // 32, fill, DUMP_THREADS)
    program = Program([word, word, *c_types], [out] * count_d, body, TARGET, locals=declare)
    shown = tuple("f16x2" if d == "f16" else out for _ in range(count_d))
    return Probe(f"{name} {fill}", program, (*operands, *c), DUMP_THREADS, 32, shown, "fragments of A and B")


WGMMA = (
    ("m64n8k16", "f32", "f16"), ("m64n8k16", "f16", "f16"), ("m64n8k16", "f32", "bf16"), ("m64n8k8", "f32", "tf32"),
    ("m64n8k32", "f32", "e4m3"), ("m64n8k32", "f32", "e5m2"), ("m64n8k32", "f16", "e4m3"), ("m64n8k32", "s32", "s8"),
    ("m64n8k32", "s32", "u8"),
)  # fmt: skip


def _wgmma() -> Iterator[Probe]:
    """A in registers; B in shared memory, two core matrices of 128 bytes, not swizzled."""
    for shape, d, element in WGMMA:
        for fill in ("whole",) if element in ("s8", "u8") else ("whole", "normal", "wide"):
            yield _wgmma_probe(shape, d, element, fill)


def _wgmma_probe(shape: str, d: str, element: str, fill: Fill) -> Probe:
    threads = 128 * 16
    name = f"wgmma.mma_async.sync.aligned.{shape}.{d}.{element}.{element}"
    rng = np.random.default_rng([11, *name.encode(), *fill.encode()])
    c_types, c = accumulators(rng, d, 4, fill, threads)
    count = len(c)
    tail = {"f16": ", 1, 1, 0", "bf16": ", 1, 1, 0", "s8": "", "u8": ""}.get(element, ", 1, 1")
    mover = "f32" if d == "f32" else "b32"
    moves = " ".join(f"mov.{mover} %o{k}, %i{4 + k};" for k in range(count))
    body = f"""
    mov.u32 %r0, matrix_b; mov.u32 %r1, %tid.x; setp.lt.u32 %p0, %r1, 64; shl.b32 %r2, %r1, 2; add.u32 %r2, %r2, %r0;
    @%p0 st.shared.b32 [%r2], %i{4 + count};
    fence.proxy.async.shared::cta; bar.sync 0;
    shr.u32 %r3, %r0, 4; and.b32 %r3, %r3, 0x3fff; cvt.u64.u32 %d0, %r3; or.b64 %d0, %d0, {8 << 16 | 16 << 32:#x};
    setp.eq.u32 %p1, 0, 0; {moves}
    wgmma.fence.sync.aligned;
    {name} {braces("o", 0, count)}, {braces("i", 0, 4)}, %d0, %p1{tail};
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    """
    declarations = ".shared .align 128 .b8 matrix_b[256];"
    program = Program(["b32"] * 4 + c_types + ["b32"], c_types, body, TARGET, declarations)
    arrays = (*registers(rng, element, fill, 4, threads), *c, *registers(rng, element, fill, 1, threads))
    types = tuple("f16x2" if d == "f16" else t for t in c_types)
    return Probe(f"{name} {fill}", program, arrays, threads, 128, types, "order and width of the sum")
