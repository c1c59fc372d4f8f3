"""Bank conflicts: the emulator counts them while a kernel runs, the layouts count them beforehand; both agree."""

from __future__ import annotations

import numpy as np
import pytest
from async_harness import run

from tilewright.emulator.counters.banks import bank_conflicts
from tilewright.emulator.options import EmulatorOptions
from tilewright.layout.banks import passes, requests_of
from tilewright.layout.notation import parse_layout
from tilewright.layout.patterns import Tile, pattern
from tilewright.layout.reports import banks_by_pattern
from tilewright.layout.solve import solve

WIDTHS = (1, 2, 4, 8, 16)
LOADS = {
    1: "ld.shared.u8 %r1, [%r11]", 2: "ld.shared.u16 %r1, [%r11]", 4: "ld.shared.b32 %r1, [%r11]",
    8: "ld.shared.v2.b32 {%r1, %r2}, [%r11]", 16: "ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r11]",
}  # fmt: skip
STORES = {
    1: "st.shared.u8 [%r11], %r1", 2: "st.shared.u16 [%r11], %r1", 4: "st.shared.b32 [%r11], %r1",
    8: "st.shared.v2.b32 [%r11], {%r1, %r1}", 16: "st.shared.v4.b32 [%r11], {%r1, %r1, %r1, %r1}",
}  # fmt: skip
NOBODY = 1 << 20


def random_request(rng: np.random.Generator, width: int) -> list[int | None]:
    """Addresses of all sorts: anywhere, strided, few words, some lanes out."""
    kind = rng.integers(6)
    if kind == 0:
        units = rng.integers(0, 4096 // width, 32)
    elif kind == 1:
        units = (np.arange(32) * rng.integers(1, 70) + rng.integers(8)) % (4096 // width)
    elif kind == 2:
        units = rng.integers(0, 6, 32) * (128 // width) % (4096 // width)
    elif kind == 3:
        units = rng.permutation(32) ^ rng.integers(32)
    else:  # in pairs, but for at most one lane
        units = np.repeat(rng.integers(0, 4096 // width, 16), 2)
        units[rng.integers(32)] ^= rng.integers(2)
        pairs = np.repeat(rng.random(16) < rng.choice([1.0, 0.6]), 2)
        return [int(u) * width if a else None for u, a in zip(units, pairs, strict=True)]
    active = rng.random(32) < rng.choice([1.0, 1.0, 0.6, 0.1])
    return [int(u) * width if a else None for u, a in zip(units, active, strict=True)]


def counted(requests: list[list[int | None]], width: int, access: str = "") -> tuple[int, int]:
    """(passes, ideal) as the emulator counts a kernel whose warps make one request each; a load unless it is named."""
    where = np.array([[NOBODY if a is None else a for a in request] for request in requests], np.int32)
    body = f"""
    cvt.u64.u32 %d1, %r59;
    add.u64 %d1, %d60, %d1;
    ld.global.b32 %r10, [%d1];
    setp.lt.u32 %p1, %r10, {NOBODY};
    add.u32 %r11, %r10, %r61;
    {access if ".sync" in access else f"@%p1 {access or LOADS[width]}"};
    """
    done = run(
        body,
        where.reshape(-1),
        1,
        threads=where.size,
        smem=4096,
        options=EmulatorOptions(counters=True, max_seconds=30),
    )
    counters = done.emulation.counters
    assert counters is not None
    lines = counters.lines.values()
    return int(sum(line.wavefronts for line in lines)), int(sum(line.ideal_wavefronts for line in lines))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_kernel_counts_the_same(width: int) -> None:
    rng = np.random.default_rng(width)
    for warps in (1, 1, 1, 1, 8, 32):
        requests = [random_request(rng, width) for _ in range(warps)]
        for access in (LOADS, STORES):
            found = [passes(request, width, is_load=access is LOADS) for request in requests]
            want = sum(p.total for p in found), sum(p.ideal for p in found)
            assert counted(requests, width, access[width]) == want


IN_PAIRS = [lane // 2 * 16 for lane in range(32)]


@pytest.mark.parametrize(
    ("access", "width", "want"),
    [
        (LOADS[8], 8, (1, 1)),
        (LOADS[16], 16, (2, 2)),
        ("ld.volatile.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r11]", 16, (2, 2)),
        (STORES[16], 16, (4, 4)),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r11]", 16, (4, 4)),
        ("atom.shared.add.u64 %d1, [%r11], %d1", 8, (2, 2)),
    ],
)
def test_only_loads_merge(access: str, width: int, want: tuple[int, int]) -> None:
    assert counted([[at // 16 * width for at in IN_PAIRS]], width, access) == want


@pytest.mark.parametrize("is_load", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_counting_itself_is_the_same(width: int, is_load: bool) -> None:
    rng = np.random.default_rng(100 + width)
    requests = [random_request(rng, width) for _ in range(400)]
    active = np.array([[a is not None for a in request] for request in requests])
    addresses = np.array([[a or 0 for a in request] for request in requests], np.int64)
    total, ideal = bank_conflicts(addresses, active, width, is_load)
    found = [passes(request, width, is_load=is_load) for request in requests]
    assert [p.total for p in found] == total.tolist()
    assert [p.ideal for p in found] == ideal.tolist()


def no_broadcast(request: list[int | None], width: int) -> int:
    lanes = [a for a in request if a is not None]
    return max((sum(a // 4 % 32 == bank for a in lanes) for bank in range(32)), default=0)


def no_phases(request: list[int | None], width: int) -> int:
    words = {(a + i) // 4 for a in request if a is not None for i in range(width)}
    return max((sum(word % 32 == bank for word in words) for bank in range(32)), default=0)


def no_merging(request: list[int | None], width: int) -> int:
    return passes(request, width, is_load=False).total


@pytest.mark.parametrize(
    ("broken", "width"), [(no_broadcast, 4), (no_phases, 16), (no_phases, 8), (no_merging, 8), (no_merging, 16)]
)
def test_broken_counting_is_noticed(broken, width: int) -> None:
    rng = np.random.default_rng(5)
    requests = [random_request(rng, width) for _ in range(8)]
    assert counted(requests, width)[0] != sum(broken(request, width) for request in requests)


@pytest.mark.parametrize(
    "shared", ["(64,64):(64,1)", "(64,64):(72,1)", "Sw<3,3,3> o 0 o (64,64):(64,1)", "Sw<2,3,3> o 0 o (64,64):(64,1)"]
)
def test_a_layout_counts_as_its_addresses_do(shared: str) -> None:
    layout = parse_layout(shared)
    threads = parse_layout("((4,8),(2,2,2)):((128,1),(64,8,512))")  # A of m16n8k16 in the top left corner of 64 rows
    found = requests_of(layout, threads, 2, 4)
    rows = [request for request in found if max(request) < 4080]
    assert len(rows) == 4
    assert counted([list(request) for request in rows], 4)[0] == sum(
        passes(request, 4, is_load=True).total for request in rows
    )


@pytest.mark.parametrize(
    ("tile", "names"),
    [
        (Tile(32, 32, 2), ("rows16", "ldmatrix")),
        (Tile(16, 64, 2), ("rows16", "ldmatrix")),
        (Tile(32, 24, 4), ("rows4", "cols4")),
        (Tile(32, 32, 1), ("rows16", "mma.m16n8k32.s8.a")),
    ],
)
def test_what_the_solver_proves_the_emulator_counts(tile: Tile, names: tuple[str, ...]) -> None:
    """The proof once more, by a kernel that makes every request; and the plain tile has the conflicts that it said."""
    patterns = [pattern(name, tile) for name in names]
    solution = solve(tile, patterns)
    assert solution.best is not None
    for proof in (solution.plain, solution.best):
        for wanted, access in zip(proof.counted, patterns, strict=True):
            requests = [
                [None if p is None else proof.arrangement.address(*p) for p in request] for request in access.requests
            ]
            found = [counted(requests[i : i + 32], access.width_bytes) for i in range(0, len(requests), 32)]
            assert sum(total for total, _ in found) == wanted.passes
            assert sum(ideal for _, ideal in found) == wanted.phases
        report = banks_by_pattern(parse_layout(proof.layout), patterns[0], tile.element_bytes)
        assert (report.passes, report.ideal) == (proof.counted[0].passes, proof.counted[0].phases)
