"""Strings the stages together: each verb's library call."""

from tilewright.workflow.inspecting import InspectOutcome, inspect
from tilewright.workflow.main_job import PipelineOutcome, pipeline
from tilewright.workflow.proving import ProveOutcome, prove

__all__ = ["InspectOutcome", "PipelineOutcome", "ProveOutcome", "inspect", "pipeline", "prove"]
