"""What ends a run early."""

from __future__ import annotations


class Fault(Exception):  # noqa: N818
    """The kernel did what no GPU goes on after, or what is not modelled. Internal: the executor turns it into a result.

    Attributes:
        kind: of the hazard, where it is one (``misaligned``, ``deadlock``, …); else ``not_modelled``, ``trap``,
            ``too_long``, ``waits_for_others`` (blocks that do not run, or do not yet).
        message: one sentence, without the line.
        site: index of the instruction, or -1.
    """

    def __init__(self, kind: str, message: str, site: int = -1) -> None:
        super().__init__(kind, message, site)
        self.kind = kind
        self.message = message
        self.site = site
