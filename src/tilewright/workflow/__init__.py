"""Strings the stages together: each verb's library call."""

from tilewright.workflow.inspecting import InspectOutcome, inspect
from tilewright.workflow.main_job import PipelineOutcome, pipeline
from tilewright.workflow.proving import ProveOutcome, prove
from tilewright.workflow.tiling import TileOutcome, tile
from tilewright.workflow.verifying import VerifyOutcome, verify

__all__ = [
    "InspectOutcome",
    "PipelineOutcome",
    "ProveOutcome",
    "TileOutcome",
    "VerifyOutcome",
    "inspect",
    "pipeline",
    "prove",
    "tile",
    "verify",
]
