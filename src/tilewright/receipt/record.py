"""The receipt's JSON contract as frozen dataclasses.

This room depends on no other room's types: `workflow` fills these records from what the other rooms return. Keys may be
added; none is renamed or removed, because scripts read them. ``None`` stands for "not known" or "not measured".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tilewright.errors import TilewrightError
from tilewright.receipt.evidence import Hazard, Measurement, Proof, Resources, Verification

SCHEMA = 1

DecisionVerdict = Literal["pipeline", "try_both", "do_not_pipeline"]
Status = Literal["accepted", "built", "refused", "failed"]
Fact = str | int | float | bool | None

VARIANT_NAMES = ("ldg", "ldg_single", "cp_async", "bulk", "tma", "widen", "retile", "cap_registers")

# These variants come in as many builds as stages were asked for; the others have one fixed number of stages.
STAGED_VARIANTS = frozenset({"cp_async", "bulk", "tma"})


def variant_label(name: str, stages: int) -> str:
    """The short name of one build: ``ldg``, ``cp_async2``. It keys `Decision.predicted` and names files.

    Half a tile comes with one buffer, and again with each ring that it makes room for: ``retile``, ``retile2``.
    """
    return f"{name}{stages}" if name in STAGED_VARIANTS or (name == "retile" and stages > 1) else name


@dataclass(frozen=True)
class Tool:
    """Which programs made the receipt; empty text where one was not used."""

    version: str
    compiler: str = ""
    disassembler: str = ""


@dataclass(frozen=True)
class Kernel:
    """Where the kernel stands: ``line`` is that of its name, counted from 1.

    Attributes:
        source_sha256: of the file as it was read, without a byte order mark; "" in receipts of earlier versions.
        template: the template arguments that it was instantiated with, in order.
    """

    file: str
    name: str
    line: int | None = None
    source_sha256: str = ""
    template: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """Why something is not made. ``code`` is stable; ``line`` points into the kernel's file."""

    code: str
    message: str
    line: int | None = None
    hint: str = ""


@dataclass(frozen=True)
class Phase:
    """One piece of the K-loop's body, lines inclusive."""

    kind: str  # load | sync | compute
    first_line: int
    last_line: int


@dataclass(frozen=True)
class Loop:
    """The K-loop, lines inclusive, its phases in source order.

    Attributes:
        num_tiles: trips at the sidecar's ``default`` sizes, or None without them.
    """

    first_line: int
    last_line: int
    phases: tuple[Phase, ...] = ()
    num_tiles: int | None = None


@dataclass(frozen=True)
class Tile:
    """What one block computes per trip of the K-loop.

    Attributes:
        BM, BN, BK: tile sizes in elements, None where meaningless.
        dims: further sizes by the source's own names.
        threads: threads per block.
        elements: element type by operand, in the order A, B, accumulator.
        math: ``wmma``, ``mma``, ``fma``; empty when not known.
    """

    BM: int | None = None
    BN: int | None = None
    BK: int | None = None
    dims: dict[str, int] = field(default_factory=dict)
    threads: int | None = None
    elements: dict[str, str] = field(default_factory=dict)
    math: str = ""


@dataclass(frozen=True)
class Precondition:
    """One thing that pipelining needs; ``holds`` is None when it could not be judged."""

    name: str
    holds: bool | None
    facts: dict[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True)
class BudgetRow:
    """What a number of stages costs on the architecture.

    Attributes:
        smem_bytes: shared bytes per block as launched, static and dynamic, padding included.
        limiter: what limits ``blocks_per_sm``: ``shared``, ``registers``, ``warps``, ``blocks``.
        crosses_cliff: fewer blocks per SM than at one stage, because of shared memory.
        cliff_bytes: the most shared bytes per block that still keep the blocks per SM of one stage.
    """

    stages: int
    smem_bytes: int
    blocks_per_sm: int
    warps_per_sm: int
    limiter: str
    fits: bool
    crosses_cliff: bool
    cliff_bytes: int | None = None


@dataclass(frozen=True)
class Proposal:
    """A way round the cliff, what it gives and, in ``cost``, what it takes."""

    kind: str  # retile | fewer_stages | ldg_single
    stages: int
    smem_bytes: int
    blocks_per_sm: int
    cost: str


@dataclass(frozen=True)
class Prediction:
    """A predicted speedup over the baseline with its range, as factors."""

    speedup: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class PredictedGain:
    """What the best cp.async variant's gain, as predicted before compiling, is made of: factors."""

    width: float | None = None
    async_copy: float | None = None
    overlap: float | None = None


@dataclass(frozen=True)
class Decision:
    """Whether pipelining should pay, and why. ``predicted`` is keyed by `variant_label`.

    Attributes:
        flop_per_byte: from the tile: FLOP per byte loaded into shared memory.
        ops_per_load: from the SASS: matrix (or FMA) instructions per global load instruction in the steady state.
        ranking: of what was compiled, ``baseline`` among it, the labels in the order in which the decision would take
            them: not quite that of `predicted`, since a kind whose predictions are less to be trusted counts for less.
            Empty where nothing was.
        card, sms: what it was predicted for. card_reason: why; it says where the card is assumed.
    """

    verdict: DecisionVerdict
    flop_per_byte: float | None = None
    ops_per_load: float | None = None
    warps_per_sm: int | None = None
    predicted: dict[str, Prediction] = field(default_factory=dict)
    gain: PredictedGain | None = None
    reasons: tuple[str, ...] = ()
    ranking: tuple[str, ...] = ()
    card: str = ""
    sms: int | None = None
    card_reason: str = ""

    def rank(self, label: str) -> tuple[int, float]:
        """A variant's place, to sort by: the ranking first, then the predicted speedup."""
        place = self.ranking.index(label) if label in self.ranking else len(self.ranking)
        prediction = self.predicted.get(label)
        return place, -(prediction.speedup or 0.0) if prediction is not None else 0.0


@dataclass(frozen=True)
class Baseline:
    """The kernel as it was handed over."""

    verify: Verification = field(default_factory=Verification)
    proof: Proof = field(default_factory=Proof)
    measure: Measurement = field(default_factory=Measurement)
    resources: Resources = field(default_factory=Resources)
    hazards: tuple[Hazard, ...] = ()


@dataclass(frozen=True)
class Launch:
    """How the variant is launched; what differs from the baseline's launch is the caller's to change.

    Attributes:
        grid, block: three extents each, numbers where the sizes are known, else the sidecar's expressions.
        shared_bytes: dynamic shared bytes.
        extra_args: arguments to add at the end, as C declarations; a tensor map's with what it describes.
        changed_bytes: dynamic shared bytes that the launch has to ask for instead of its own; None leaves its own.
        changed_constants: constants of the file that have other values in the variant, and that the host may use.
        changes_grid: grid or block differ from the baseline's at some size set.
        host_code: a header with a function that makes the extra arguments and launches the kernel; empty without any.
        host_path: where ``--out`` wrote it.
    """

    grid: tuple[int | str, ...] = ()
    block: tuple[int | str, ...] = ()
    shared_bytes: int = 0
    extra_args: tuple[str, ...] = ()
    changed_bytes: int | None = None
    changed_constants: dict[str, int | float] = field(default_factory=dict)
    changes_grid: bool = False
    host_code: str = ""
    host_path: str | None = None


@dataclass(frozen=True)
class Control:
    """A twin that differs in one thing, so that a gain can be attributed."""

    name: str
    proof: Proof = field(default_factory=Proof)
    verify: Verification = field(default_factory=Verification)
    measure: Measurement = field(default_factory=Measurement)


@dataclass(frozen=True)
class Attribution:
    """Factors whose product is the speedup; None where the control was not measured."""

    width: float | None = None
    async_copy: float | None = None
    overlap: float | None = None
    stages: float | None = None
    warps_per_sm_before: int | None = None
    warps_per_sm_after: int | None = None


@dataclass(frozen=True)
class Variant:
    """One rewritten kernel, or why it was not made.

    Attributes:
        status: ``accepted`` compiled, proven and verified; ``built`` compiled and proven, nothing here could run it.
        source, diff: the whole rewritten text and the unified diff; empty when refused.
        source_path, diff_path: where ``--out`` wrote them.
    """

    name: str
    stages: int
    status: Status
    refusal: Refusal | None = None
    source: str = ""
    diff: str = ""
    source_path: str | None = None
    diff_path: str | None = None
    launch: Launch | None = None
    resources: Resources = field(default_factory=Resources)
    verify: Verification = field(default_factory=Verification)
    proof: Proof = field(default_factory=Proof)
    measure: Measurement = field(default_factory=Measurement)
    controls: tuple[Control, ...] = ()
    attribution: Attribution | None = None
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The short name, see `variant_label`."""
        return variant_label(self.name, self.stages)


@dataclass(frozen=True)
class ChecklistItem:
    """One line of the checklist; ``holds`` is None when nothing here could tell."""

    item: str
    holds: bool | None
    reason: str = ""


@dataclass(frozen=True)
class Choice:
    """The variant to take. Only an accepted variant is ever chosen."""

    variant: str
    stages: int
    reason: str

    @property
    def label(self) -> str:
        """The short name, see `variant_label`."""
        return variant_label(self.variant, self.stages)


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """The record of one ``tilewright pipeline`` run.

    Attributes:
        arch_reason: where the architecture came from, one sentence.
        proposals: ways round the cliff, when two stages cross it.
        refusal: the whole kernel's, when nothing can be done with it.
        assumptions: what the source cannot show and the sidecar (or a guess) states.
        timings_s: seconds by step, ``total`` last.
        notes: advice and remarks, one sentence each.
    """

    schema: int = SCHEMA
    tool: Tool
    kernel: Kernel
    arch: str
    arch_reason: str = ""
    refusal: Refusal | None = None
    baseline: Baseline = field(default_factory=Baseline)
    tile: Tile | None = None
    loop: Loop | None = None
    preconditions: tuple[Precondition, ...] = ()
    budget: tuple[BudgetRow, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    decision: Decision | None = None
    variants: tuple[Variant, ...] = ()
    assumptions: tuple[str, ...] = ()
    checklist: tuple[ChecklistItem, ...] = ()
    choice: Choice | None = None
    timings_s: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def to_json(record: object) -> str:
    """A receipt or report as indented JSON: keys in the dataclasses' order; a float that is not finite becomes null."""
    import msgspec

    text = msgspec.json.encode(record)
    return msgspec.json.format(text, indent=2).decode() + "\n"


def from_json(text: str | bytes, *, file: str = "") -> Receipt:
    """Read a receipt back; unknown keys are ignored, so newer receipts of the same schema can be read.

    Raises:
        TilewrightError: ``receipt/not_a_receipt`` when the text is no receipt of this schema.
    """
    import msgspec

    try:
        receipt = msgspec.json.decode(text, type=Receipt)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        facts = {"file": file} if file else {}
        raise TilewrightError("receipt/not_a_receipt", f"This is no receipt: {error}.", facts) from error
    if receipt.schema != SCHEMA:
        raise TilewrightError(
            "receipt/schema",
            f"The receipt has schema {receipt.schema}; this version reads schema {SCHEMA}.",
            {"file": file} if file else {},
            "Run `tilewright pipeline` again to make a new one.",
        )
    return receipt
