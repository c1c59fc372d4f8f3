"""The decision for a card: made from a study, which knows none, once it is known which GPU is here."""

from __future__ import annotations

from tilewright.arch.arch import Arch, load_arch
from tilewright.arch.card import Card, assumed_card, card_here
from tilewright.gpu.device import GpuInfo
from tilewright.plan.decide import decide_built
from tilewright.receipt import record
from tilewright.workflow.records import decision_record
from tilewright.workflow.study import Planned, Study


def decided(planned: Planned, arch: Arch, card: Card) -> record.Decision:
    """The decision as it is recorded."""
    return decision_record(
        decide_built(planned.facts, planned.plan, arch, planned.builds, card=card), set(planned.made)
    )


def decision_for(studied: Study, arch_name: str, gpu: GpuInfo | None) -> record.Decision | None:
    """The study's own decision, or where a GPU is here that runs the code, the one for that GPU."""
    if studied.planned is None or gpu is None:
        return studied.decision
    card = card_here(arch_name, gpu.name, gpu.arch, gpu.sms, gpu.memory_bytes)
    if card == assumed_card(arch_name):  # the code is not for this GPU
        return studied.decision
    return decided(studied.planned, load_arch(arch_name), card)
