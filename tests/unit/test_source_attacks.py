"""Every attack is refused with its code and line, or rewritten: never half understood."""

from __future__ import annotations

from pathlib import Path

import pytest
from attacks import ATTACKS, KERNELS, Attack
from source_samples import BLOCKS, REWRITERS, read

from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.settings import Settings
from tilewright.workflow.opening import Compiler
from tilewright.workflow.probing import confirm


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: f"{a.base}-{a.name}".replace(" ", "_"))
def test_an_attack_is_refused_or_rewritten(attack: Attack, tmp_path: Path) -> None:
    kernel: TiledKernel | Refusal = read(attack.text(), BLOCKS[attack.base])
    if attack.by_compiler:
        assert isinstance(kernel, TiledKernel), kernel
        path = tmp_path / f"{attack.base}.cu"
        compiler = Compiler(path, "sm_80", attack.base, None, Settings(cache_dir=tmp_path), use_cache=False)
        kernel = confirm(kernel, compiler) or kernel
    if attack.refused:
        assert isinstance(kernel, Refusal)
        assert kernel.code == attack.refused
        if attack.at:
            assert kernel.line == attack.line(), kernel
        return
    assert isinstance(kernel, TiledKernel), kernel
    results = {name: rewrite(kernel, Remedy()) for name, rewrite in REWRITERS.items()}
    assert {n: r.code for n, r in results.items() if isinstance(r, Refusal)} == attack.without
    for result in results.values():
        if isinstance(result, RewrittenSource):
            the_rest_is_untouched(kernel, result.text)
        else:
            assert result.line is not None


def the_rest_is_untouched(kernel: TiledKernel, text: str) -> None:
    """Everything in front of the first tile and behind the K-loop stays, byte for byte, but for one #include."""
    before = kernel.text.decode()
    start = kernel.text[: min(a.declaration.start for a in kernel.staged)].decode()
    head = start[: start.rfind("\n") + 1]
    assert text.replace("#include <cuda_pipeline.h>\n", "", 1).startswith(head)
    for array in kernel.staged:
        text = text.replace(f"{array.name}_last", array.name)  # the last tile's stage, where it is used behind the loop
    end = kernel.text[kernel.loop.stmt.span.end :].decode()
    tail = end[end.find("\n") :]
    assert text.endswith(tail)
    assert before.endswith(tail)


def test_the_kernels_have_sidecars() -> None:
    for path in KERNELS.glob("*.cu"):
        assert path.with_suffix(".toml").is_file()


def test_names_are_unique() -> None:
    names = [(a.base, a.name) for a in ATTACKS]
    assert len(set(names)) == len(names)
