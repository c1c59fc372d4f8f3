"""A rung written out as a kernel like any other: the source, its headers, a sidecar and a reference."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.ladder.family import Family, KernelLaunch, Rung
from tilewright.ladder.specs import INCLUDE, rung_spec, sidecar_text


def write_rung(family: Family, rung: Rung, dtype: str, folder: Path) -> tuple[Path, ...]:
    """Write a rung into a folder, so that `verify`, `analyze`, `prove` and `pipeline` take it.

    A rung of one kernel gets ``NAME.toml`` and a reference; without where it also writes arrays of its own, of which
    the reference knows nothing. One of several gets ``NAME.KERNEL.toml`` for each, without: no kernel of it computes
    the whole.

    Returns:
        The files.

    Raises:
        TilewrightError: ``ladder/no_dtype``; ``ladder/tensor_maps`` for a rung whose launch no sidecar can describe.
        OSError: the folder cannot be written to.
    """
    rung_spec(family, rung, dtype)
    if any(launch.maps for launch in rung.launches):
        message = f"{rung.name} takes tensor maps, which no sidecar can say."
        raise TilewrightError("ladder/tensor_maps", message, {}, "Take another rung.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "include").mkdir(exist_ok=True)
    source = folder / rung.file.name
    shutil.copyfile(rung.file, source)
    written = [source]
    for header in sorted(INCLUDE.glob("*.cuh")):
        written.append(folder / "include" / header.name)
        shutil.copyfile(header, written[-1])
    is_whole = len(rung.launches) == 1
    own = {arg["name"] for launch in rung.launches for arg in launch.args} - {arg["name"] for arg in family.args}
    reference = f"{rung.name}_reference.py" if is_whole and not own else ""
    for launch in rung.launches:
        path = source.with_suffix(".toml" if is_whole else f".{launch.kernel}.toml")
        text = sidecar_text(family, rung, _with_kept(rung, launch), dtype, "include", reference)
        path.write_text(text, "utf-8")
        written.append(path)
    if reference:
        module = f"tilewright.ladder.references.{family.name}"
        text = f'"""{family.op}"""\n\nfrom {module} import {family.reference} as reference  # noqa: F401\n'
        (folder / reference).write_text(text, "utf-8")
        written.append(folder / reference)
    return tuple(written)


def _with_kept(rung: Rung, launch: KernelLaunch) -> KernelLaunch:
    """What stays from launch to launch is zero before the first one, and need not be written by any."""
    kept = {"role": "inout", "fill": "zeros()"}
    return replace(launch, args=tuple({**arg, **kept} if arg["name"] in rung.kept else arg for arg in launch.args))


def only_rung(family: Family, rung: str | None) -> Rung:
    """The rung of that name.

    Raises:
        TilewrightError: ``ladder/no_rung`` where none is named.
    """
    if rung is None:
        raise TilewrightError("ladder/no_rung", "one rung is written at a time.", {}, "Name it with --rung.")
    return family.rung(rung)
