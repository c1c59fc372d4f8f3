"""A rung written out as a kernel like any other: the source, its headers, a sidecar and a reference."""

from __future__ import annotations

import shutil
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.ladder.family import Family, Rung
from tilewright.ladder.specs import INCLUDE, rung_spec, sidecar_text


def write_rung(family: Family, rung: Rung, dtype: str, folder: Path) -> tuple[Path, ...]:
    """Write a rung into a folder, so that `verify`, `analyze`, `prove` and `pipeline` take it.

    A rung of one kernel gets ``NAME.toml`` and a reference. One of several gets ``NAME.KERNEL.toml`` for each, without:
    no kernel of it computes the whole.

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
    reference = f"{rung.name}_reference.py" if is_whole else ""
    for launch in rung.launches:
        path = source.with_suffix(".toml" if is_whole else f".{launch.kernel}.toml")
        path.write_text(sidecar_text(family, rung, launch, dtype, "include", reference), "utf-8")
        written.append(path)
    if reference:
        module = f"tilewright.ladder.references.{family.name}"
        text = f'"""{family.op}"""\n\nfrom {module} import {family.reference} as reference  # noqa: F401\n'
        (folder / reference).write_text(text, "utf-8")
        written.append(folder / reference)
    return tuple(written)


def only_rung(family: Family, rung: str | None) -> Rung:
    """The rung of that name.

    Raises:
        TilewrightError: ``ladder/no_rung`` where none is named.
    """
    if rung is None:
        raise TilewrightError("ladder/no_rung", "one rung is written at a time.", {}, "Name it with --rung.")
    return family.rung(rung)
