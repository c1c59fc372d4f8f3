"""The sizes of a sweep, from ``sweeps.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.ladder.family import Family
from tilewright.launch.expressions import parse


def sweep_sizes(family: Family) -> tuple[dict[str, int], ...]:
    """The sets that a family is timed at against its peers, in the order of the table.

    Raises:
        TilewrightError: ``ladder/no_sweep`` where the table has none for the family's sizes.
    """
    text = files(__package__).joinpath("sweeps.toml").read_text("utf-8")
    for table in tomllib.loads(text)["sweep"]:
        if family.name in table["families"]:
            return sets_of(family, table)
    raise TilewrightError("ladder/no_sweep", f"sweeps.toml has no sizes for {family.name}.")


def sets_of(family: Family, table: Mapping[str, Any]) -> tuple[dict[str, int], ...]:
    """The rows of a table as sets. Raises TilewrightError: ``ladder/no_sweep`` where they are of other sizes."""
    names = tuple(family.sizes["default"])
    derived = {name: parse(text) for name, text in table.get("derived", {}).items()}
    out = []
    for row in table["rows"]:
        given = dict(zip(table["names"], row, strict=False))
        made = {name: text.evaluate_int(given) for name, text in derived.items() if name not in given}
        if set(given) | set(made) != set(names):
            message = f"sweeps.toml gives {family.name} {', '.join(given | made)}; its sizes are {', '.join(names)}."
            raise TilewrightError("ladder/no_sweep", message)
        out.append({name: (given | made)[name] for name in names})
    return tuple(out)
