"""One GPU generation as a frozen value, read from ``data/<name>.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from typing import Any

from tilewright.errors import TilewrightError

DEFAULT_ARCH = "sm_86"
KINDS = ("documented", "measured", "estimate")


@dataclass(frozen=True)
class Arch:
    """What one architecture allows and how fast it is.

    Limits are per block or per SM; ``*_bytes`` are bytes, ``*_cycles`` SM clock cycles, ``*_per_cycle`` per SM.
    Every number has its ``source`` (document, section, address) under its own name in `sources`, and in `kinds` whether
    it is ``documented``, ``measured`` by somebody who published it, or an ``estimate``. What occupancy needs is
    documented, all of it; only the prediction uses the rest.

    Attributes:
        name: the compiler's name: ``sm_90a``.
        smem_static_max_bytes: the most that a block gets without opting in.
        smem_optin_max_bytes: the most that a block gets after ``cudaFuncSetAttribute``.
        smem_reserved_bytes: what the system takes per block, on top of what the kernel asks for.
        register_granularity: registers are handed to a warp in multiples of this many.
        register_partitions: the register file is split in so many equal parts, one per scheduler.
        smem_carveouts_bytes: the sizes that an SM's shared memory can have, rising (``cudaSharedmemCarveout`` picks
            one); the last is `smem_per_sm_bytes`.
        l1_smem_bytes: L1 cache and shared memory together.
        barriers_per_sm: hardware barriers that resident blocks share; 0 where they do not limit the blocks.
        cluster_max_blocks: blocks of a cluster on every card with clusters; 1 where there are none.
        cluster_max_blocks_nonportable: the same, after ``cudaFuncAttributeNonPortableClusterSizeAllowed``.
        has_bulk: bulk and tensor copies (TMA). has_wgmma, has_tcgen05: the matrix instructions of a warp group.
        fp16_mac_per_cycle, int8_mac_per_cycle: dense multiply-adds of ``mma.sync``.
        int_lanes_per_cycle: 32-bit integer additions, comparisons and logic.
        multiply_lanes_per_cycle: 32-bit integer multiply-adds (IMAD) and dot products of four bytes (IDP).
        exp_per_cycle: exponentials of the special function units.
        l2_bytes_per_cycle: what one SM takes in from L2.
    """

    name: str
    compute_capability: tuple[int, int]

    warp_size: int
    max_threads_per_block: int
    max_threads_per_sm: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    registers_per_block: int
    max_registers_per_thread: int
    register_granularity: int
    register_partitions: int
    smem_per_sm_bytes: int
    smem_static_max_bytes: int
    smem_optin_max_bytes: int
    smem_reserved_bytes: int
    smem_granularity_bytes: int
    smem_carveouts_bytes: tuple[int, ...]
    l1_smem_bytes: int
    barriers_per_sm: int
    cluster_max_blocks: int
    cluster_max_blocks_nonportable: int

    has_cp_async: bool
    has_bulk: bool
    has_wgmma: bool
    has_tcgen05: bool

    schedulers_per_sm: int
    fma_lanes_per_cycle: int
    fp16_mac_per_cycle: int
    int8_mac_per_cycle: int
    int_lanes_per_cycle: int
    multiply_lanes_per_cycle: int
    exp_per_cycle: int
    smem_bytes_per_cycle: int
    l2_bytes_per_cycle: int
    l2_latency_cycles: int
    smem_latency_cycles: int

    sources: Mapping[str, str] = field(repr=False)
    kinds: Mapping[str, str] = field(repr=False)

    def __hash__(self) -> int:  # two of a name are rare, and told apart by the comparison
        return hash(self.name)

    @property
    def estimates(self) -> tuple[str, ...]:
        """The numbers that are neither documented nor measured, as far as the table knows."""
        return tuple(name for name, kind in self.kinds.items() if kind == "estimate")


def known_archs() -> tuple[str, ...]:
    """The architectures with a data file, by rising compute capability: ``("sm_80", "sm_86", …)``."""
    names = [path.name.removesuffix(".toml") for path in files(__package__).joinpath("data").iterdir()]
    return tuple(sorted((name for name in names if name.startswith("sm_")), key=_capability))


def default_arch() -> str:
    """What is assumed where neither a GPU nor the sidecar nor ``--arch`` says anything."""
    return DEFAULT_ARCH


def canonical_arch(name: str) -> str:
    """The known architecture that ``name`` means.

    ``90``, ``9.0``, ``sm_90``, ``compute_90`` and ``sm_90a`` all mean ``sm_90a``: the cubin of the card, with its
    accelerated instructions.

    Raises:
        TilewrightError: ``arch/unknown``, when there is no such data file.
    """
    digits = name.strip().lower().removeprefix("sm_").removeprefix("compute_").replace(".", "").rstrip("af")
    by_digits = {known.removeprefix("sm_").rstrip("a"): known for known in known_archs()}
    if digits not in by_digits:
        raise TilewrightError(
            "arch/unknown",
            f"There is no architecture '{name}' in Tilewright's tables.",
            {"arch": name, "known": list(by_digits.values())},
            f"Known are {', '.join(by_digits.values())}.",
        )
    return by_digits[digits]


def load_arch(name: str) -> Arch:
    """Read one architecture; see `canonical_arch` for the spellings that are understood.

    Raises:
        TilewrightError: ``arch/unknown``, when there is no such data file.
    """
    text = files(__package__).joinpath("data", f"{canonical_arch(name)}.toml").read_text("utf-8")
    return parse_arch(text)


def parse_arch(text: str) -> Arch:
    """Make an `Arch` of a data file's text.

    Raises:
        TilewrightError: ``arch/bad_data``, when a number, its source or its kind is missing, or one is not known.
    """
    data: dict[str, Any] = tomllib.loads(text)
    rows: dict[str, dict[str, Any]] = {**data["limits"], **data["features"], **data["rates"]}
    wanted = {f.name for f in fields(Arch)} - {"name", "compute_capability", "sources", "kinds"}
    unsourced = sorted(key for key, row in rows.items() if not row.get("source") or row.get("kind") not in KINDS)
    if rows.keys() != wanted or unsourced:
        facts = {
            "missing": sorted(wanted - rows.keys()),
            "unknown": sorted(rows.keys() - wanted),
            "unsourced": unsourced,
        }
        raise TilewrightError("arch/bad_data", f"The table of '{data['name']}' does not fit: {facts}.", facts)
    major, minor = data["compute_capability"]
    return Arch(
        name=data["name"],
        compute_capability=(major, minor),
        sources={key: row["source"] for key, row in rows.items()},
        kinds={key: row["kind"] for key, row in rows.items()},
        **{key: _frozen(row["value"]) for key, row in rows.items()},
    )


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _capability(name: str) -> int:
    return int(name.removeprefix("sm_").rstrip("a"))
