"""Occupancy against NVIDIA's own calculator, on random launches of every architecture that it knows.

20,000 and more of each: ``benchmarks/occupancy_agreement.py``, results/occupancy_agreement.json.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from unittest import mock

import numpy as np
import pytest
from occupancy_oracle import DEVICES, Configurations, ask, differences, draw

from tilewright.arch import occupancy as rules
from tilewright.arch.arch import Arch, known_archs, load_arch
from tilewright.arch.occupancy import occupancy

COUNT = 2000


@lru_cache
def answered(name: str) -> tuple[Configurations, dict[str, np.ndarray]]:
    asked = draw(name, COUNT, np.random.default_rng(20260301))
    return asked, ask(name, asked)


def test_every_architecture_has_an_oracle() -> None:
    assert set(DEVICES) == set(known_archs())


@pytest.mark.parametrize("name", DEVICES)
def test_agrees_with_the_toolkit(name: str) -> None:
    asked, said = answered(name)
    assert not list(differences(load_arch(name), asked, said))
    # The sample sees every outcome and every limit.
    assert len(Counter(said["blocks"].tolist())) > 12
    assert {"shared", "registers", "warps", "blocks"} <= limiters(load_arch(name), asked)


def limiters(arch: Arch, asked: Configurations) -> set[str]:
    rows = zip(*(asked.columns[key].tolist() for key in ("threads", "registers", "dynamic_bytes")), strict=True)
    return {occupancy(arch, *row).limiter for row in rows}


def noticed(arch: Arch) -> bool:
    return next(differences(arch, *answered(arch.name)), None) is not None


NUMBERS = {
    "register_granularity": (128, 512),
    "register_partitions": (1, 2),
    "registers_per_block": (32768,),
    "registers_per_sm": (32768, 131072),
    "smem_reserved_bytes": (512, 2048),
    "smem_granularity_bytes": (64, 512),
    "smem_static_max_bytes": (48 * 1024 - 128, 50 * 1024),
    "max_registers_per_thread": (254, 512),
    "max_threads_per_block": (512, 2048),
    "warp_size": (64,),
}
MUTANTS = [
    (name, key, value)
    for name in ("sm_75", "sm_86", "sm_90a", "sm_110a")
    for key, values in NUMBERS.items()
    for value in values
    # An SM of Turing holds no more than 1024 threads anyway.
    if (name, key, value) != ("sm_75", "max_threads_per_block", 2048)
]


@pytest.mark.parametrize(("name", "key", "value"), MUTANTS)
def test_a_wrong_number_is_noticed(name: str, key: str, value: int) -> None:
    arch = replace(load_arch(name), **{key: value})
    assert noticed(arch)


def off_by_a_step(arch: Arch) -> dict[str, dict[str, object]]:
    steps = arch.smem_carveouts_bytes
    return {
        "one block fewer": {"max_blocks_per_sm": arch.max_blocks_per_sm - 1},
        "sm_86 with the 32 blocks of sm_80": {"max_blocks_per_sm": 32 if arch.max_blocks_per_sm != 32 else 24},
        "four warps fewer": {"max_warps_per_sm": arch.max_warps_per_sm - 4},
        "one KiB more per SM": {"smem_per_sm_bytes": arch.smem_per_sm_bytes + 1024},
        # One KiB more would change nothing: the SM itself has not got it.
        "one KiB less per block": {"smem_optin_max_bytes": arch.smem_optin_max_bytes - 1024},
        "another smallest carve-out": {"smem_carveouts_bytes": (16384, *(s for s in steps if s > 16384))},
        "the second-largest carve-out is not there": {"smem_carveouts_bytes": (*steps[:-2], steps[-1])},
        "the reserved KiB": {"smem_reserved_bytes": 0 if arch.smem_reserved_bytes else 1024},
        "barriers": {"barriers_per_sm": 0 if arch.barriers_per_sm else 2 * arch.max_blocks_per_sm},
    }


@pytest.mark.parametrize("name", DEVICES)
def test_a_number_that_is_off_by_a_step_is_noticed(name: str) -> None:
    arch = load_arch(name)
    mutants = off_by_a_step(arch)
    seen = {what: noticed(replace(arch, **broken)) for what, broken in mutants.items()}  # type: ignore[arg-type]
    assert seen == dict.fromkeys(mutants, True)


def as_it_is(arch: Arch, smem_bytes: int, wanted_bytes: int | None) -> int:
    return arch.smem_per_sm_bytes if wanted_bytes is None else wanted_bytes


# Not among them: "a block's warps are not rounded up to the partitions". The header does it in the launch check alone,
# where it changes nothing as long as a block may have all registers of an SM; see register_partitions above.
RULES: dict[str, tuple[str, Callable[..., object]]] = {
    "nothing is rounded up": ("round_up", lambda a, b: a),
    "a started warp is none": ("ceil_div", lambda a, b: a // b or 1),
    "a small carve-out does not grow to hold one block": ("_carveout", as_it_is),
    "the carve-out is not seen": ("_carveout", lambda arch, smem, wanted: arch.smem_per_sm_bytes),
    "the reserved bytes are forgotten": ("_smem_per_block", lambda arch, smem: -(-smem // 128) * 128),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_wrong_rule_is_noticed(rule: str) -> None:
    name, broken = RULES[rule]
    with mock.patch.object(rules, name, broken):
        assert noticed(load_arch("sm_86"))


def test_registers_that_are_not_split_over_partitions_are_noticed() -> None:
    def whole(arch: Arch, warps: int, registers: int) -> int:
        per_warp = -(-registers * arch.warp_size // arch.register_granularity) * arch.register_granularity
        return arch.registers_per_sm // (per_warp * warps)

    with mock.patch.object(rules, "blocks_by_registers", whole):
        assert noticed(load_arch("sm_90a"))


@pytest.mark.parametrize("name", DEVICES)
def test_256_registers_are_where_the_two_differ(name: str) -> None:
    """The header's own check passes 256 registers; a thread has 255 (Table 31), and ptxas gives no more."""
    one = {key: column[:3].copy() for key, column in answered(name)[0].columns.items()}
    fixed = {"threads": 64, "static_bytes": 0, "dynamic_bytes": 0, "carveout": -1, "barriers": 1, "opted_in": 1}
    for key, value in fixed.items():
        one[key][:] = value
    one["registers"][:] = (255, 256, 257)
    said = ask(name, Configurations(one))["blocks"].tolist()
    own = [occupancy(load_arch(name), 64, registers, 0).blocks_per_sm for registers in (255, 256, 257)]
    assert said == [4, 4, 0]
    assert own == [4, 0, 0]
