"""The order of the tests, and what they share: one compilation and one disassembly of equal inputs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tilewright.build import compile_worker
from tilewright.build.cache import Cache
from tilewright.build.nvrtc import Compiled, Program
from tilewright.sass import listing
from tilewright.settings import Settings

# Files that take half a minute and more of one worker. They are begun first: begun last, the other workers would wait.
# (--no-loadscope-reorder: else xdist begins with files of many tests, and ends with the few that take longest.)
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


# These are about the compiler and the disassembler themselves: they run them each time.
ALWAYS_RUN = ("test_build_", "test_doctor", "test_sass_listing")


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run, the same for all of its workers; gone with the run, so that no run helps the next."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "tools"


@pytest.fixture(scope="module", autouse=True)
def compile_once(request: pytest.FixtureRequest, shared_folder: Path) -> Iterator[None]:
    """What NVRTC and nvdisasm make of the same input is made once a run, under whatever cache a test has.

    Below the cache, so that each test sees its own: a miss there is still a miss, and what is stored is what the
    compiler gave. Only inputs that are equal to the byte, options and headers among them, share a result.
    """
    if request.path.name.startswith(ALWAYS_RUN):
        yield
        return
    compiled, text = Cache(shared_folder, "compiled"), Cache(shared_folder, "disassembled")
    compiler, disassembler = compile_worker.compile_apart, listing.run_nvdisasm

    def compile_apart(program: Program) -> Compiled:
        key = hashlib.sha256(msgspec.msgpack.encode(program)).hexdigest()
        found = compiled.get_value(key, Compiled)
        if found is None:
            found = compiler(program)
            compiled.put_value(key, found)
        return found

    def run_nvdisasm(cubin: bytes, settings: Settings) -> str:
        if settings.nvdisasm is not None:  # not the package's: a test of what happens without it
            return disassembler(cubin, settings)
        key = hashlib.sha256(cubin).hexdigest()
        found = text.get_value(key, str)
        if found is None:
            found = disassembler(cubin, settings)
            text.put_value(key, found)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile_worker, "compile_apart", compile_apart)
        patch.setattr(listing, "run_nvdisasm", run_nvdisasm)
        yield
