"""Rungs with ``generated_from`` are what ``tilewright pipeline`` makes of the rung that they name, byte for byte.

Every one of them is compared with what the tool's rewriters may write, and each kind with what the whole job yields,
which also builds it, proves it, and so decides on a remedy; with ``TILEWRIGHT_LADDER_ALL=1`` every one of them.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from tilewright.arch.arch import load_arch
from tilewright.kloop.kernel import TiledKernel
from tilewright.ladder.family import Family, Rung, load_families
from tilewright.ladder.specs import INCLUDE, rung_spec
from tilewright.launch.expressions import parse
from tilewright.launch.sidecar import load_sidecar
from tilewright.rewrite.result import RewrittenSource
from tilewright.settings import Settings
from tilewright.workflow import pipeline
from tilewright.workflow.opening import open_file
from tilewright.workflow.threads import with_threads
from tilewright.workflow.understanding import understand
from tilewright.workflow.variants import REMEDIES, rewriters

ARCH = "sm_90a"  # that of the card which the ladder is timed on; for another the tool may want a pragma or a fence more
ALL = os.environ.get("TILEWRIGHT_LADDER_ALL") == "1"
VARIANT = re.compile(r"(ldg|cp_async)(\d*)$")
STAGES = (2, 3, 4)
HOW = "tilewright ladder show FAMILY --rung ORIGIN --out DIR, then tilewright pipeline DIR/ORIGIN.cu"


@dataclass(frozen=True)
class Origin:
    """A rung, and those that are generated from it."""

    family: Family
    rung: Rung
    made: tuple[Rung, ...]

    @property
    def text(self) -> str:
        return self.rung.file.read_text("utf-8")

    def written_to(self, folder: Path, text: str) -> Path:
        """The rung as a kernel with its sidecar, as a user would have it."""
        shutil.copytree(INCLUDE, folder / "include", dirs_exist_ok=True)
        file = folder / self.family.name / self.rung.file.name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
        spec = rung_spec(self.family, self.rung, self.rung.dtypes[0])
        file.with_suffix(".toml").write_text(spec.texts[0], "utf-8")
        return file


def origins() -> list[Origin]:
    out = []
    for family in load_families():
        made: dict[str, list[Rung]] = defaultdict(list)
        for rung in family.rungs:
            if rung.generated_from is not None:
                made[rung.generated_from].append(rung)
        out += [Origin(family, family.rung(name), tuple(rungs)) for name, rungs in made.items()]
    return out


def variant_of(rung: Rung) -> tuple[str, int]:
    """``("cp_async", 3)`` of ``09_cp_async3``; two stages for ``ldg``, as the receipt has it."""
    found = VARIANT.search(rung.name)
    assert found is not None, f"{rung.name} does not say which variant it is"
    return found[1], int(found[2] or 2)


def rewritten(
    origin: Origin, text: str, folder: Path
) -> tuple[dict[tuple[str, int], list[RewrittenSource]], dict[str, int | float]]:
    """What the rewriters make of a text, by remedy, as they write it first with none; and the file's constants."""
    file = origin.written_to(folder, text)
    spec = load_sidecar(file.with_suffix(".toml"))
    opened = open_file(text.encode(), file, None, spec, ARCH, Settings.from_environment(), True)
    kernel = understand(opened.kernel, opened.block, opened.shared_bytes, opened.no_alias)
    assert isinstance(kernel, TiledKernel), kernel
    kernel = with_threads(kernel, opened.function.launch_bounds)
    out = {}
    for name, stages, rewriter in rewriters(kernel, load_arch(ARCH), STAGES):
        if name in ("ldg", "cp_async"):
            sources = [rewriter(remedy) for remedy in REMEDIES]
            assert all(isinstance(each, RewrittenSource) for each in sources), sources[0]
            out[name, stages] = [each for each in sources if isinstance(each, RewrittenSource)]
    return out, opened.kernel.constants.names()


@pytest.mark.parametrize("origin", origins(), ids=lambda o: o.rung.name)
def test_generated_rungs_are_what_the_rewriters_write(origin: Origin, tmp_path: Path) -> None:
    made, constants = rewritten(origin, origin.text, tmp_path)
    for rung in origin.made:
        text = rung.file.read_text("utf-8")
        written = next((each for each in made[variant_of(rung)] if each.text == text), None)
        assert written is not None, f"{rung.name} is not what the tool makes: {HOW}"
        # What the caller has to change about the launch is what the table says.
        assert parse(str(rung.launches[0].shared_bytes)).evaluate(constants) == (written.launch.shared_bytes or 0)


@pytest.mark.parametrize("origin", origins(), ids=lambda o: o.rung.name)
def test_generated_rungs_are_what_the_whole_job_yields(origin: Origin, tmp_path: Path) -> None:
    first_of_its_kind = {variant_of(rung)[0]: rung for rung in reversed(origin.made)}
    rungs = origin.made if ALL else tuple(first_of_its_kind.values())[-1:]
    variants = {variant_of(rung) for rung in rungs}
    done = pipeline(
        origin.written_to(tmp_path, origin.text),
        arch=ARCH,
        stages=tuple(sorted({stages for _, stages in variants})),
        variants=tuple(sorted({name for name, _ in variants})),
        settings=Settings.from_environment(),
        run=False,
    )
    made = {(v.name, v.stages): v for v in done.receipt.variants}
    for rung in rungs:
        variant = made[variant_of(rung)]
        assert variant.refusal is None, variant.refusal
        assert rung.file.read_text("utf-8") == variant.source, f"{rung.name} is not what the tool makes: {HOW}"


def test_a_changed_origin_is_told(tmp_path: Path) -> None:
    origin = next(o for o in origins() if o.rung.name == "07_operand_reuse")
    text = origin.text.replace("first_row + row < M && k0 + k < K", "k0 + k < K && first_row + row < M")
    assert text != origin.text
    made, _ = rewritten(origin, text, tmp_path)
    texts = {each.text for rung in origin.made for each in made[variant_of(rung)]}
    assert not texts & {rung.file.read_text("utf-8") for rung in origin.made}


def test_both_kinds_of_rungs_are_looked_at() -> None:
    assert {variant_of(r)[0] for o in origins() for r in o.made} == {"ldg", "cp_async"}
