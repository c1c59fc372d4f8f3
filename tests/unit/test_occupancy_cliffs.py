"""Where occupancy changes: every cliff against a walk over all values, and the smallest change that crosses one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.arch.arch import Arch, known_archs, load_arch
from tilewright.arch.cliffs import RESOURCES, Launch, Resource, change_text, cliff_text, cliffs, ladder, limits_text
from tilewright.arch.occupancy import occupancy, preferred_carveout, register_cliff, smem_cliff, split_registers
from tilewright.arch.work import accumulator_registers
from tilewright.errors import TilewrightError

KIB = 1024
HIGHEST = {"registers": 255, "threads": 1024}


def walked(arch: Arch, launch: Launch, resource: Resource) -> list[tuple[int, int]]:
    """(blocks, the last value with so many), by trying every value; shared bytes in steps that hit every edge."""
    step = 128 if resource == "shared" else 1
    highest = HIGHEST.get(resource, arch.smem_optin_max_bytes)
    first = 0 if resource == "shared" else 1
    found: dict[int, int] = {}
    for value in range(first, highest + 1, step):
        blocks = launch.with_value(resource, value).fit(arch).blocks_per_sm
        if blocks:
            found[blocks] = value
    return list(found.items())


launches = st.tuples(
    st.sampled_from(known_archs()),
    st.builds(Launch, st.integers(1, 1024), st.integers(1, 255), st.integers(0, 240 * KIB)),
    st.sampled_from([None, 0, 20, 50, 100]),
)


def drawn(shape: tuple[str, Launch, int | None]) -> tuple[Arch, Launch]:
    name, launch, percent = shape
    arch = load_arch(name)
    return arch, replace(launch, carveout_bytes=None if percent is None else preferred_carveout(arch, percent))


@settings(max_examples=12, deadline=None)
@given(launches)
def test_the_ladder_is_what_a_walk_over_all_values_finds(shape: tuple[str, Launch, int | None]) -> None:
    arch, launch = drawn(shape)
    for resource in RESOURCES:
        rungs = ladder(arch, launch, resource)
        assert [(c.blocks, c.most) for c in rungs] == walked(arch, launch, resource)
        assert [c.beyond for c in rungs] == [c.blocks for c in rungs[1:]] + [0] * bool(rungs)


@settings(max_examples=80, deadline=None)
@given(launches)
def test_the_smallest_change_crosses_and_one_less_does_not(shape: tuple[str, Launch, int | None]) -> None:
    arch, launch = drawn(shape)
    blocks, found = launch.fit(arch).blocks_per_sm, cliffs(arch, launch)
    for resource, change in found.gains.items():
        assert change.delta < 0
        assert change.blocks_per_sm > blocks
        assert launch.with_value(resource, change.value + 1).fit(arch).blocks_per_sm <= blocks
    for resource, change in found.loses.items():
        assert change.delta > 0
        assert change.blocks_per_sm < blocks
        assert launch.with_value(resource, change.value - 1).fit(arch).blocks_per_sm == blocks
    for best, among in ((found.gain, found.gains), (found.loss, found.loses)):
        assert (best is None) == (not among)
        assert best is None or best.share == min(change.share for change in among.values())


@settings(max_examples=60, deadline=None)
@given(launches)
def test_a_resource_without_a_gain_cannot_gain_at_all(shape: tuple[str, Launch, int | None]) -> None:
    arch, launch = drawn(shape)
    blocks, gains = launch.fit(arch).blocks_per_sm, cliffs(arch, launch).gains
    for resource in set(RESOURCES) - set(gains):
        least = launch.with_value(resource, min(launch.value(resource), 0 if resource == "shared" else 1))
        assert least.fit(arch).blocks_per_sm <= blocks


def test_the_cliff_of_sm_86_stands_at_49_kib_and_says_why() -> None:
    arch = load_arch("sm_86")
    two = next(c for c in ladder(arch, Launch(128, 32, 16 * KIB), "shared") if c.blocks == 2)
    assert (two.most, two.beyond) == (49 * KIB, 1)
    assert cliff_text(arch, two) == (
        "2 blocks fit on an SM of sm_86 up to 49 KiB of shared memory per block (100 KiB per SM, of which the system "
        "reserves 1 KiB for each block); with one byte more, 1 does."
    )
    # Without the reserved KiB it would stand where folklore has it.
    folk = replace(arch, smem_reserved_bytes=0)
    assert next(c for c in ladder(folk, Launch(128, 32, 0), "shared") if c.blocks == 2).most == 50 * KIB


@pytest.mark.parametrize(("name", "most_kib"), [("sm_86", 99), ("sm_90a", 227), ("sm_75", 64), ("sm_120a", 99)])
def test_the_last_cliff_of_shared_memory_is_the_opt_in(name: str, most_kib: int) -> None:
    arch = load_arch(name)
    last = ladder(arch, Launch(128, 32, 0), "shared")[-1]
    assert (last.blocks, last.most, last.beyond) == (1, most_kib * KIB, 0)
    assert cliff_text(arch, last).endswith("with one byte more, the launch fails.")


def test_sm_86_holds_16_blocks() -> None:
    """Neither the 32 of sm_80 nor the 24 of sm_89."""
    fit = occupancy(load_arch("sm_86"), 32, 16, 0)
    assert (fit.blocks_per_sm, fit.limiter) == (16, "blocks")


def test_a_128x128_accumulator_does_not_exceed_the_register_file() -> None:
    """128 x 128 FP32 sums are 128 registers of each of 128 threads, with 127 to spare."""
    arch = load_arch("sm_86")
    assert accumulator_registers(128, 128, 128) == 128 < arch.max_registers_per_thread
    assert occupancy(arch, 128, 128 + 40, 0).blocks_per_sm == 3


def test_an_attention_accumulator_of_512_columns_does_not_fit_256_threads() -> None:
    assert accumulator_registers(128, 64, 256) == 32
    needed = accumulator_registers(128, 512, 256)
    assert needed == 256 > load_arch("sm_90a").max_registers_per_thread
    assert occupancy(load_arch("sm_90a"), 256, needed, 0).blocks_per_sm == 0


def test_130_registers_are_two_too_many() -> None:
    """One block per SM because of 130 registers: the smallest change is the cap, and it is told."""
    arch, launch = load_arch("sm_90a"), Launch(256, 130, 16 * KIB)
    found = cliffs(arch, launch)
    assert launch.fit(arch).limiter == "registers"
    assert launch.fit(arch).blocks_per_sm == 1
    assert found.gain is not None
    assert (found.gain.resource, found.gain.value, found.gain.delta) == ("registers", 128, -2)
    assert change_text(arch, launch, found.gain) == (
        "128 registers per thread instead of 130: 2 blocks and 16 warps per SM instead of 1 and 8."
    )
    assert cliff_text(arch, found.ladder["registers"][-2]) == (
        "2 blocks fit on an SM of sm_90a up to 128 registers per thread (65,536 registers per SM, handed to a warp in "
        "steps of 256); with one more, 1 does."
    )
    assert limits_text(launch.fit(arch)) == "registers 1, warps 8, shared 13, blocks 32, barriers 64"


def test_fewer_threads_can_fit_more_blocks_and_fewer_warps() -> None:
    arch, launch = load_arch("sm_86"), Launch(1024, 32, 0)
    gain = cliffs(arch, launch).gains["threads"]
    assert (gain.value, gain.blocks_per_sm, gain.warps_per_sm) == (768, 2, 48)
    assert "threads per block instead of 1,024" in change_text(arch, launch, gain)


def test_what_no_single_change_gains_is_said() -> None:
    arch = load_arch("sm_86")
    assert cliffs(arch, Launch(32, 16, 0)).gain is None
    # Two resources hold it at once: neither alone helps.
    both = Launch(256, 128, 49 * KIB)
    assert occupancy(arch, 256, 128, 49 * KIB).blocks_per_sm == 2
    assert set(cliffs(arch, both).gains) == set()


def test_a_launch_that_does_not_fit_gains_by_what_stops_it() -> None:
    arch = load_arch("sm_90a")
    found = cliffs(arch, Launch(512, 200, 0))
    assert set(found.gains) == {"registers", "threads"}
    assert found.gains["registers"].value == 128
    assert not found.loses


def test_idle_resources_are_counted() -> None:
    fit = occupancy(load_arch("sm_86"), 100, 33, 20 * KIB)
    assert (fit.blocks_per_sm, fit.limiter) == (4, "shared")
    assert fit.idle_lanes_per_block == 28
    assert fit.free_warps == 48 - 16
    assert fit.registers_per_block == 4 * 1280  # 33 x 32 is rounded up to five steps of 256
    assert fit.free_registers == 65536 - 4 * 4 * 1280
    assert fit.smem_per_block_bytes == 21 * KIB
    assert fit.free_smem_bytes == 100 * KIB - 4 * 21 * KIB


def test_a_carve_out_limits_and_grows_for_one_block() -> None:
    arch = load_arch("sm_90a")
    # 8 KiB and 1 KiB reserved: 25 blocks in 228 KiB, 7 in 64 KiB; 128 threads stop them at 16.
    assert occupancy(arch, 128, 32, 8 * KIB).blocks_per_sm == 16
    small = occupancy(arch, 128, 32, 8 * KIB, carveout_bytes=64 * KIB)
    assert (small.blocks_per_sm, small.limiter, small.carveout_bytes) == (7, "shared", 64 * KIB)
    # A wish for nothing is not heard beyond what one block needs: 9 KiB, of which the next step is 16.
    least = occupancy(arch, 128, 32, 8 * KIB, carveout_bytes=0)
    assert (least.blocks_per_sm, least.carveout_bytes) == (1, 16 * KIB)


@pytest.mark.parametrize(
    ("name", "percent", "kib"),
    [("sm_90a", 50, 132), ("sm_90a", 0, 0), ("sm_90a", 100, 228), ("sm_86", 50, 64), ("sm_75", 0, 32), ("sm_80", 1, 8)],
)
def test_a_preferred_carve_out_is_rounded_up_to_a_step(name: str, percent: int, kib: int) -> None:
    assert preferred_carveout(load_arch(name), percent) == kib * KIB


def test_without_opting_in_a_large_block_does_not_launch() -> None:
    arch = load_arch("sm_86")
    assert occupancy(arch, 128, 32, 48 * KIB, opted_in=False).blocks_per_sm == 2
    assert occupancy(arch, 128, 32, 48 * KIB + 1, opted_in=False).blocks_per_sm == 0


def test_barriers_limit_from_hopper_on() -> None:
    fit = occupancy(load_arch("sm_90a"), 32, 16, 0, barriers=16)
    assert (fit.blocks_per_sm, fit.limiter) == (4, "barriers")
    assert occupancy(load_arch("sm_120a"), 32, 16, 0, barriers=2).blocks_per_sm == 12
    assert "barriers" not in occupancy(load_arch("sm_86"), 32, 16, 0, barriers=16).limits


def test_a_resource_that_limits_nothing_is_not_the_limiter() -> None:
    fit = occupancy(load_arch("sm_75"), 32, 0, 0)
    assert fit.limiter == "blocks"
    assert set(fit.limits) == {"warps", "blocks"}


def test_a_setmaxnreg_split_of_384_threads_takes_63488_registers() -> None:
    arch, block = load_arch("sm_90a"), split_registers([(128, 32), (256, 232)])
    assert block == 32 * 128 + 232 * 256 == 63_488
    # A second block would need 126,976: one per SM.
    assert 2 * block == 126_976 > arch.registers_per_sm
    assert arch.registers_per_sm // block == 1
    # It is launched with 168 registers for each of the 384 threads: 65,536 / 384, rounded down to 8.
    assert occupancy(arch, 384, 168, 0).blocks_per_sm == 1


@pytest.mark.parametrize("registers", [16, 33, 264])
def test_setmaxnreg_takes_a_multiple_of_8_from_24_to_256(registers: int) -> None:
    with pytest.raises(TilewrightError) as caught:
        split_registers([(128, registers)])
    assert caught.value.code == "arch/bad_launch"


@pytest.mark.parametrize("shape", [(0, 32, 0), (-32, 32, 0), (32, -1, 0), (32, 32, -1)])
def test_a_block_that_is_none_is_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(TilewrightError) as caught:
        occupancy(load_arch("sm_86"), *shape)
    assert caught.value.code == "arch/bad_launch"


@settings(max_examples=40, deadline=None)
@given(launches)
def test_the_older_cliff_functions_agree(shape: tuple[str, Launch, int | None]) -> None:
    arch, launch = load_arch(shape[0]), shape[1]
    at_most = {c.blocks: c.most for c in ladder(arch, launch, "shared")}
    for blocks, most in at_most.items():
        assert smem_cliff(arch, launch.threads, launch.registers, blocks) == most
    slim = replace(launch, smem_bytes=0)
    for rung in ladder(arch, slim, "registers"):
        assert register_cliff(arch, launch.threads, rung.blocks) == rung.most


def test_no_loss_is_named_that_no_compiler_could_cause() -> None:
    hopper = load_arch("sm_90a")
    by_shared = cliffs(
        hopper, Launch(64, 200, 100 * KIB)
    )  # up to 255 registers two blocks fit, and there ends the scale
    assert by_shared.loses.keys() == {"shared", "threads"}
    assert cliffs(hopper, Launch(256, 100, 0)).loses["registers"].value == 129
