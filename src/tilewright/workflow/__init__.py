"""Strings the stages together: each verb's library call."""

from tilewright.workflow.inspecting import InspectOutcome, inspect
from tilewright.workflow.main_job import PipelineOutcome, pipeline
from tilewright.workflow.proving import ProveOutcome, prove
from tilewright.workflow.verifying import VerifyOutcome, verify

__all__ = [
    "InspectOutcome",
    "PipelineOutcome",
    "ProveOutcome",
    "VerifyOutcome",
    "inspect",
    "pipeline",
    "prove",
    "verify",
]
