"""The order of the tests."""

from __future__ import annotations

import pytest

# Files that take half a minute and more of one worker. They are begun first: begun last, the other workers would wait.
LONG = (
    "test_examples_verified",
    "test_workflow_",
    "test_mutants_caught",
    "test_held_conversions",
    "test_ladder",
    "test_generated_",
    "test_analyze_kernels",
    "test_skeleton_",
    "test_sass_",
    "test_tile_",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.path.name.startswith(LONG))
