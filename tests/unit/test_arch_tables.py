"""The data files: the figures that are often quoted wrongly, and that every number has a source."""

from __future__ import annotations

import pickle
import re
from dataclasses import fields
from importlib.resources import files

import pytest

from tilewright.arch.arch import canonical_arch, default_arch, known_archs, load_arch, parse_arch
from tilewright.errors import EXIT_BAD_INPUT, TilewrightError

KIB = 1024


@pytest.mark.parametrize(
    ("name", "blocks", "warps", "smem_kib", "bulk"),
    [
        ("sm_75", 16, 32, 64, False),
        ("sm_80", 32, 64, 164, False),
        ("sm_86", 16, 48, 100, False),
        ("sm_87", 16, 48, 164, False),
        ("sm_89", 24, 48, 100, False),
        ("sm_90a", 32, 64, 228, True),
        ("sm_100a", 32, 64, 228, True),
        ("sm_103a", 32, 64, 228, True),
        ("sm_110a", 24, 48, 228, True),
        ("sm_120a", 24, 48, 100, True),
        ("sm_121a", 24, 48, 100, True),
    ],
)
def test_golden_limits(name: str, blocks: int, warps: int, smem_kib: int, bulk: bool) -> None:
    arch = load_arch(name)
    assert (arch.max_blocks_per_sm, arch.max_warps_per_sm) == (blocks, warps)
    assert arch.max_threads_per_sm == warps * 32
    assert arch.smem_per_sm_bytes == smem_kib * KIB
    # Not 100 KiB on sm_86 and not 228 KiB on sm_90: from sm_80 on one KiB is the system's.
    reserved_kib = 0 if name == "sm_75" else 1
    assert arch.smem_reserved_bytes == reserved_kib * KIB
    assert arch.smem_optin_max_bytes == (smem_kib - reserved_kib) * KIB
    assert arch.smem_static_max_bytes == 48 * KIB
    assert arch.smem_granularity_bytes == (256 if name == "sm_75" else 128)
    assert arch.has_cp_async is (name != "sm_75")
    assert arch.has_bulk is bulk
    assert arch.has_wgmma is (name == "sm_90a")
    assert arch.has_tcgen05 is (name in ("sm_100a", "sm_103a", "sm_110a"))
    # CUDA Programming Guide, Table 32: unified data cache, and the sizes that shared memory can take of it.
    steps = {64: (32, 64), 100: (0, 8, 16, 32, 64, 100)}
    wide = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)
    expected = steps.get(smem_kib, tuple(step for step in wide if step <= smem_kib))
    assert arch.smem_carveouts_bytes == tuple(step * KIB for step in expected)
    assert arch.l1_smem_bytes == {64: 96, 100: 128, 164: 192, 228: 256}[smem_kib] * KIB
    # The header's cudaOccMaxBlocksPerSMBlockBarrierLimit: two a block on Hopper and B200, one a block after.
    assert arch.barriers_per_sm == {"sm_90a": 64, "sm_100a": 64}.get(name, blocks if bulk else 0)
    assert arch.cluster_max_blocks == (8 if bulk else 1)
    assert arch.cluster_max_blocks_nonportable >= arch.cluster_max_blocks
    assert (arch.cluster_max_blocks_nonportable == 16) is (name in ("sm_90a", "sm_100a", "sm_103a"))


@pytest.mark.parametrize(
    ("name", "number", "wrong", "right"),
    [
        ("sm_86", "smem_optin_max_bytes", 100 * KIB, 99 * KIB),
        ("sm_90a", "smem_optin_max_bytes", 228 * KIB, 227 * KIB),
        ("sm_86", "max_blocks_per_sm", 32, 16),
    ],
)
def test_figures_that_circulate_and_are_wrong(name: str, number: str, wrong: int, right: int) -> None:
    assert getattr(load_arch(name), number) == right != wrong


LIMITS = (
    *("warp_size", "max_", "register", "barr", "l1_smem"),
    *("smem_per_sm", "smem_static", "smem_optin", "smem_reserved", "smem_gran", "smem_carveouts"),
)
# What a source rests on: a header with the version of its package, a document or page with its address.
CITATION = re.compile(r"nvidia-cuda-(cccl|runtime) \d+\.\d+|https?://\S+\.\S+")
REASONED = ("Assumed", "Half of", "From")


@pytest.mark.parametrize("name", known_archs())
def test_every_number_has_a_source_and_estimates_are_marked(name: str) -> None:
    arch = load_arch(name)
    numbers = {f.name for f in fields(arch)} - {"name", "compute_capability", "sources", "kinds"}
    assert arch.sources.keys() == arch.kinds.keys() == numbers
    for key in numbers:
        source, kind = arch.sources[key], arch.kinds[key]
        if key.startswith((*LIMITS, "has_")) or key == "cluster_max_blocks":
            assert kind == "documented", key
        if kind == "estimate":
            # An estimate says how it was reasoned, and cannot be taken for a citation.
            assert source.startswith(REASONED), (key, source)
        else:
            assert CITATION.search(source), (key, source)
            assert not source.startswith(REASONED), (key, source)
    assert set(arch.estimates) == {key for key in numbers if arch.sources[key].startswith(REASONED)}


def test_a_number_without_source_or_a_missing_number_is_refused() -> None:
    text = files("tilewright.arch").joinpath("data", "sm_86.toml").read_text("utf-8")
    assert parse_arch(text).name == "sm_86"
    lines = text.splitlines()
    row = next(i for i, line in enumerate(lines) if line.startswith("max_blocks_per_sm"))
    for broken in (
        "",
        "max_blocks_per_sm = { value = 16, kind = 'documented', source = '' }",
        "max_blocks_per_sm = { value = 16, kind = 'guess', source = 'a document' }",
        "max_blocks_per_sm = { value = 16, source = 'a document' }",
        "max_blocks = { value = 16 }",
    ):
        mutant = "\n".join([*lines[:row], broken, *lines[row + 1 :]])
        with pytest.raises(TilewrightError) as caught:
            parse_arch(mutant)
        assert caught.value.code == "arch/bad_data"


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("sm_90", "sm_90a"),
        ("90", "sm_90a"),
        ("9.0", "sm_90a"),
        ("compute_90a", "sm_90a"),
        ("SM_86", "sm_86"),
        ("sm_120", "sm_120a"),
        ("12.0", "sm_120a"),
        ("7.5", "sm_75"),
        ("sm_100", "sm_100a"),
        ("10.3", "sm_103a"),
        ("compute_110a", "sm_110a"),
        ("121f", "sm_121a"),
        (" sm_80 ", "sm_80"),
    ],
)
def test_spellings(spelling: str, name: str) -> None:
    assert canonical_arch(spelling) == name
    assert load_arch(spelling).name == name


@pytest.mark.parametrize("name", ["sm_42", "", "sm_", "hopper", "sm_8", "sm_900"])
def test_an_unknown_architecture_lists_the_known_ones(name: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        load_arch(name)
    assert caught.value.code == "arch/unknown"
    assert caught.value.exit_code == EXIT_BAD_INPUT
    assert all(known in caught.value.hint for known in known_archs())


def test_known_and_default() -> None:
    ampere_and_before = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_89")
    assert known_archs() == (*ampere_and_before, "sm_90a", "sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a")
    assert default_arch() == "sm_86"


def test_an_arch_is_a_value() -> None:
    arch = load_arch("sm_86")
    assert pickle.loads(pickle.dumps(arch)) == arch
    with pytest.raises(AttributeError):
        arch.max_blocks_per_sm = 32  # type: ignore[misc]
