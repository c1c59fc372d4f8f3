"""Load phases cut at their loads: the bits of the original, and broken twins that are caught."""

from __future__ import annotations

from pathlib import Path

import pytest
from split_kernels import MASK, SPLIT
from stream_runs import SIZES
from trap_bench import LIMIT, Bench, bench

from tilewright.arch.arch import load_arch
from tilewright.build.artifact import Artifact
from tilewright.rewrite import ldg
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.workflow.bench import Bench as WorkBench
from tilewright.workflow.study import StudiedVariant
from tilewright.workflow.variants import make, proof_of

PAIRS = "masked pairs in a copy loop"
ARCH = load_arch("sm_86")
RAGGED = {"M": 19, "N": 11, "K": 38}
CUTS = {
    "two buffers": (False, Remedy(at_loads=True)),
    "early": (False, Remedy(at_loads=True, early_loads=True)),
    "one buffer": (True, Remedy(at_loads=True)),
}


def written(one: Bench, cut: str) -> RewrittenSource:
    single, remedy = CUTS[cut]
    out = ldg.rewrite(one.kernel, single, LIMIT, remedy)
    assert isinstance(out, RewrittenSource), out
    assert "_loaded" in out.text
    return out


@pytest.mark.parametrize("name", SPLIT)
def test_every_cut_keeps_the_bits(name: str, tmp_path: Path) -> None:
    text, _ = SPLIT[name]
    one = bench(tmp_path, text)
    sizes = ({"M": 19, "N": 12, "K": 36},) if "4(" in text and "__float" not in text else SIZES
    for cut in CUTS if name == MASK else ("two buffers", "one buffer"):
        for size in sizes:
            assert one.differs(written(one, cut).text, size, written(one, cut).launch) == frozenset(), (cut, size)


# (cut, text, what stands there in the twin)
SLIPS = {
    "stored with the index of the tile before": (
        "two buffers",
        "store_tile(k0_next, stage ^ 1);",
        "store_tile(k0, stage ^ 1);",
    ),
    "stored with the index of the tile before, one buffer": ("one buffer", "store_tile(k0_next);", "store_tile(k0);"),
    "loaded with the index of the tile before": ("two buffers", "fetch_tile(k0_next);", "fetch_tile(k0);"),
    "registers of another pass": ("two buffers", "v.x = A_loaded[i];", "v.x = A_loaded[i ^ 1];"),
    "registers of another load": ("one buffer", "? A_loaded_2[i] : 3.0f", "? A_loaded[i] : 3.0f"),
    "a guard left out of the loads": ("one buffer", "c + 1 < K) A_loaded_2", "c + 2 < K) A_loaded_2"),
}


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_caught(name: str, tmp_path: Path) -> None:
    cut, old, new = SLIPS[name]
    one = bench(tmp_path, SPLIT[PAIRS][0])
    right = written(one, cut)
    assert right.text.count(old) == 1, right.text
    assert one.differs(right.text, RAGGED, right.launch) == frozenset()
    assert one.differs(right.text.replace(old, new), RAGGED, right.launch)


def test_the_pointer_that_the_stores_advance_is_their_own(tmp_path: Path) -> None:
    one = bench(tmp_path, SPLIT["a pointer that moves, an array from outside"][0])
    right = written(one, "two buffers")
    assert right.text.count("auto &done = done_store;") == 1
    assert one.differs(right.text.replace("auto &done = done_store;", ""), SIZES[0], right.launch)


def made_by(one: Bench) -> StudiedVariant:
    """The variant ldg, with whatever remedy it takes."""
    baseline = proof_of(one.opened.baseline, one.opened.compiler)
    held = WorkBench(one.opened, ARCH, baseline, 256, one.opened.kernel.constants.names())
    return make("ldg", 2, lambda r: ldg.rewrite(one.kernel, False, LIMIT, r), held, True)


def proof(one: Bench, text: str) -> str:
    artifact = one.opened.compiler.build(text)
    assert isinstance(artifact, Artifact), artifact
    return proof_of(artifact, one.opened.compiler).verdict


# Whether the loads of the next tile are in flight while this one is computed: as written, and cut at the loads.
@pytest.mark.parametrize("name", [PAIRS, "a local array, turned", "a pass that is skipped"])
def test_the_proof_sees_the_overlap_that_the_other_cut_loses(name: str, tmp_path: Path) -> None:
    one = bench(tmp_path, SPLIT[name][0])
    verdicts = {}
    for at_loads in (False, True):
        out = ldg.rewrite(one.kernel, True, LIMIT, Remedy(at_loads=at_loads))
        assert isinstance(out, RewrittenSource)
        verdicts[at_loads] = proof(one, out.text)
    assert verdicts == {False: "no_overlap", True: "overlap"}


def built(one: Bench, text: str) -> Artifact:
    artifact = one.opened.compiler.build(text)
    assert isinstance(artifact, Artifact), artifact
    return artifact


@pytest.mark.parametrize("name", [PAIRS, MASK])
def test_the_other_cut_is_tried_where_nothing_else_overlaps(name: str, tmp_path: Path) -> None:
    """Pairs: no overlap by any other remedy. Lanes through a pointer: machine code that cannot be read."""
    made = made_by(bench(tmp_path, SPLIT[name][0]))
    assert made.refusal is None, made.refusal
    assert "_loaded" in made.source
    assert any("registers that hold what is loaded" in note for note in made.notes)


def test_no_other_cut_is_taken_where_another_remedy_overlaps(tmp_path: Path) -> None:
    one = bench(tmp_path, SPLIT["a value that is computed"][0])
    made = made_by(one)
    assert made.refusal is None, made.refusal
    assert "_loaded" not in made.source
