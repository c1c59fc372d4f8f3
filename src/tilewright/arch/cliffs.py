"""Where occupancy changes: for registers, shared bytes and threads, the values at which an SM holds another number of
blocks, and the smallest single change that gains one or loses one. All functions are pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tilewright.arch.arch import Arch
from tilewright.arch.occupancy import Limiter, Occupancy, occupancy

Resource = Literal["registers", "shared", "threads"]
RESOURCES: tuple[Resource, ...] = ("registers", "shared", "threads")


@dataclass(frozen=True)
class Launch:
    """What occupancy is asked of; see `occupancy` for the fields.

    Attributes:
        threads: per block.
        registers: per thread.
        smem_bytes: per block as launched.
    """

    threads: int
    registers: int
    smem_bytes: int
    carveout_bytes: int | None = None
    barriers: int = 1
    opted_in: bool = True

    def value(self, resource: Resource) -> int:
        return {"registers": self.registers, "shared": self.smem_bytes, "threads": self.threads}[resource]

    def with_value(self, resource: Resource, value: int) -> Launch:
        if resource == "registers":
            return replace(self, registers=value)
        return replace(self, smem_bytes=value) if resource == "shared" else replace(self, threads=value)

    def fit(self, arch: Arch) -> Occupancy:
        return occupancy(
            arch,
            self.threads,
            self.registers,
            self.smem_bytes,
            carveout_bytes=self.carveout_bytes,
            barriers=self.barriers,
            opted_in=self.opted_in,
        )


@dataclass(frozen=True)
class Cliff:
    """``blocks`` blocks fit on an SM up to ``most`` of a resource (and above the next cliff's); with one more, fewer.

    Attributes:
        most: registers per thread, shared bytes per block or threads per block.
        beyond: blocks with one more; 0 where such a launch fails.
    """

    resource: Resource
    blocks: int
    most: int
    beyond: int


@dataclass(frozen=True)
class Change:
    """One resource, changed as little as it takes.

    Attributes:
        value: what it has to become. delta: the same against the launch; below 0 for less.
        share: the size of the change over the launch's value, by which changes of different resources are compared.
        blocks_per_sm, warps_per_sm: with it. The warps can be fewer though the blocks are more, where threads change.
    """

    resource: Resource
    value: int
    delta: int
    share: float
    blocks_per_sm: int
    warps_per_sm: int


@dataclass(frozen=True)
class Cliffs:
    """Everything about one launch's place between the cliffs.

    Attributes:
        ladder: by resource, all cliffs with the other two as they are, from the most blocks to the last one.
        gains: by resource, the smallest change that fits at least one block more; without those where none does.
        loses: by resource, the smallest change with which at least one block fewer fits.
        gain, loss: the smallest of these by ``share``; None where no single change does it.
    """

    ladder: dict[Resource, tuple[Cliff, ...]]
    gains: dict[Resource, Change]
    loses: dict[Resource, Change]
    gain: Change | None
    loss: Change | None


def cliffs(arch: Arch, launch: Launch) -> Cliffs:
    """All cliffs round a launch.

    Raises:
        TilewrightError: ``arch/bad_launch``, as `occupancy`.
    """
    gains = {resource: change for resource in RESOURCES if (change := _gain(arch, launch, resource)) is not None}
    loses = {resource: change for resource in RESOURCES if (change := _loss(arch, launch, resource)) is not None}
    return Cliffs(
        ladder={resource: ladder(arch, launch, resource) for resource in RESOURCES},
        gains=gains,
        loses=loses,
        gain=min(gains.values(), key=lambda change: change.share, default=None),
        loss=min(loses.values(), key=lambda change: change.share, default=None),
    )


def ladder(arch: Arch, launch: Launch, resource: Resource) -> tuple[Cliff, ...]:
    """Every cliff of one resource, the others as the launch has them; empty where not one block ever fits."""
    found: list[Cliff] = []
    low, highest = _range(arch, resource)
    while low <= highest:
        blocks = _blocks(arch, launch, resource, low)
        if not blocks:
            break
        most = _last(arch, launch, resource, low, blocks)
        found.append(Cliff(resource, blocks, most, _blocks(arch, launch, resource, most + 1)))
        low = most + 1
    return tuple(found)


def cliff_text(arch: Arch, cliff: Cliff) -> str:
    """A cliff with its reason, as a sentence."""
    many = "1 block fits" if cliff.blocks == 1 else f"{cliff.blocks} blocks fit"
    then = f"{cliff.beyond} do" if cliff.beyond > 1 else "1 does" if cliff.beyond else "the launch fails"
    if cliff.resource == "threads":
        return f"{many} on an SM of {arch.name} up to {cliff.most} threads per block; with one more, {then}."
    if cliff.resource == "registers":
        return (
            f"{many} on an SM of {arch.name} up to {cliff.most} registers per thread "
            f"({arch.registers_per_sm:,} registers per SM, handed to a warp in steps of {arch.register_granularity}); "
            f"with one more, {then}."
        )
    room = f"{_kib(arch.smem_per_sm_bytes)} per SM"
    if arch.smem_reserved_bytes:
        room += f", of which the system reserves {_kib(arch.smem_reserved_bytes)} for each block"
    return (
        f"{many} on an SM of {arch.name} up to {_kib(cliff.most)} of shared memory per block ({room}); "
        f"with one byte more, {then}."
    )


def change_text(arch: Arch, launch: Launch, change: Change) -> str:
    """A change as a sentence: what becomes what, and what that gives."""
    before = launch.fit(arch)
    unit = {"registers": "registers per thread", "shared": "shared bytes per block", "threads": "threads per block"}
    return (
        f"{change.value:,} {unit[change.resource]} instead of {launch.value(change.resource):,}: "
        f"{change.blocks_per_sm} blocks and {change.warps_per_sm} warps per SM instead of {before.blocks_per_sm} and "
        f"{before.warps_per_sm}."
    )


def _range(arch: Arch, resource: Resource) -> tuple[int, int]:
    """The values that a launch can have; one above the last there is no launch, whatever the rest."""
    if resource == "registers":
        return 1, arch.max_registers_per_thread
    return (0, arch.smem_optin_max_bytes) if resource == "shared" else (1, arch.max_threads_per_block)


def _blocks(arch: Arch, launch: Launch, resource: Resource, value: int) -> int:
    return launch.with_value(resource, value).fit(arch).blocks_per_sm


def _last(arch: Arch, launch: Launch, resource: Resource, low: int, blocks: int) -> int:
    """The last value at which as many blocks fit as at ``low``: more of a resource never fits more blocks."""
    high = _range(arch, resource)[1]
    while low < high:
        middle = (low + high + 1) // 2
        if _blocks(arch, launch, resource, middle) >= blocks:
            low = middle
        else:
            high = middle - 1
    return low


def _gain(arch: Arch, launch: Launch, resource: Resource) -> Change | None:
    blocks, low = launch.fit(arch).blocks_per_sm, _range(arch, resource)[0]
    value = launch.value(resource)
    if value <= low or _blocks(arch, launch, resource, low) <= blocks:
        return None
    high = value - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _blocks(arch, launch, resource, middle) > blocks:
            low = middle
        else:
            high = middle - 1
    return _change(arch, launch, resource, low)


def _loss(arch: Arch, launch: Launch, resource: Resource) -> Change | None:
    blocks, value = launch.fit(arch).blocks_per_sm, launch.value(resource)
    if not blocks:
        return None
    last = _last(arch, launch, resource, value, blocks)
    if resource == "registers" and last == arch.max_registers_per_thread:
        return None  # no compiler gives a thread more
    return _change(arch, launch, resource, last + 1)


def _change(arch: Arch, launch: Launch, resource: Resource, value: int) -> Change:
    changed, before = launch.with_value(resource, value).fit(arch), launch.value(resource)
    # From nothing at all, a change has no relative size: any other comes first.
    share = abs(value - before) / before if before else float("inf")
    return Change(resource, value, value - before, share, changed.blocks_per_sm, changed.warps_per_sm)


def _kib(size_bytes: int) -> str:
    return f"{size_bytes / 1024:g} KiB" if size_bytes % 128 == 0 else f"{size_bytes:,} bytes"


def limits_text(fit: Occupancy) -> str:
    """What each resource allows, the tightest first: ``registers 3, shared 7, warps 8, blocks 16``."""
    ranked: list[tuple[Limiter, int]] = sorted(fit.limits.items(), key=lambda item: item[1])
    return ", ".join(f"{name} {blocks}" for name, blocks in ranked)
