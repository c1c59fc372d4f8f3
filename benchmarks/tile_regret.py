"""How good the tile is that the model alone chooses: its measured time over the best of the legal space.

    python benchmarks/tile_regret.py tile_measured.json        # writes results/h200-tile-choice.json
    python benchmarks/tile_regret.py --text                    # the table that docs/tile.md shows, from the record

Reads a report of tile_space.py over tile_shapes.toml. A choice that was not measured (it does not run, or is wrong)
counts as a failure: its regret is null. The best is taken among those that were timed to the end: a median of three
rounds may be lucky.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECORD = HERE / "results" / "h200-tile-choice.json"
WITHIN = 0.10


def lists() -> dict[str, list[str]]:
    """Names of the shapes by list."""
    shapes = tomllib.loads((HERE / "tile_shapes.toml").read_text("utf-8"))
    return {name: [shape["name"] for shape in rows] for name, rows in shapes.items()}


def judged(report: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per shape: what was chosen, what was best."""
    from tilewright.arch.arch import load_arch
    from tilewright.arch.devices import find_device
    from tilewright.tile.gemm import label, timed_space
    from tilewright.tile.machine import Machine
    from tilewright.tile.ops import Gemm
    from tilewright.tile.parameters import load_parameters

    device = find_device(report["card"])
    assert device is not None
    machine, cost = Machine(load_arch(report["arch"]), device), load_parameters()
    kind = {name: which for which, names in lists().items() for name in names}
    out = []
    for shape in report["shapes"]:
        op = Gemm(shape["m"], shape["n"], shape["k"], shape["batch"])
        timed = timed_space(op, machine, cost)
        predicted = {_key(tile): float(timed.time.seconds[i]) * 1e6 for i, tile in enumerate(timed.tiles)}
        rows = {tuple(row["config"]): row for row in shape["rows"]}
        rounds = max(row["rounds"] for row in shape["rows"])
        best = next(row for row in shape["rows"] if row["rounds"] == rounds)
        chosen = rows.get(_key(timed.best))
        errors = [abs(predicted[key] / row["median_us"] - 1) for key, row in rows.items() if key in predicted]
        near = [
            abs(predicted[key] / row["median_us"] - 1)
            for key, row in rows.items()
            if key in predicted and row["median_us"] <= 1.5 * best["median_us"]
        ]
        out.append(
            {
                "list": kind[shape["name"]],
                **{key: shape[key] for key in ("name", "batch", "m", "n", "k")},
                "legal": len(timed.tiles),
                "measured": len(rows),
                "chosen": label(timed.best),
                "chosen_us": chosen["median_us"] if chosen else None,
                "chosen_samples": chosen["rounds"] if chosen else 0,
                "predicted_us": predicted[_key(timed.best)],
                "best": list(best["config"]),
                "best_us": best["median_us"],
                "best_iqr_us": best["iqr_us"],
                "chosen_iqr_us": chosen["iqr_us"] if chosen else None,
                "best_samples": best["rounds"],
                "cublas_us": shape["cublas_us"],
                "cut_short": shape["cut_short"],
                "regret": chosen["median_us"] / best["median_us"] - 1 if chosen else None,
                "trials_to_2_percent": next(
                    number
                    for number, index in enumerate(timed.order, 1)
                    if (row := rows.get(_key(timed.tiles[index]))) and row["median_us"] <= 1.02 * best["median_us"]
                ),
                "median_error": statistics.median(errors),
                "median_error_near_best": statistics.median(near),
            }
        )
    return out


def fixed(report: dict[str, Any]) -> dict[str, Any]:
    """What one tile for everything would do: the one that is best on average on the calibration shapes, unsplit."""
    from tilewright.skeleton.gemm import GemmTile
    from tilewright.tile.gemm import label

    names = lists()
    behind: dict[tuple[int, ...], dict[str, float]] = {}
    for shape in report["shapes"]:
        rounds = max(row["rounds"] for row in shape["rows"])
        best = next(row["median_us"] for row in shape["rows"] if row["rounds"] == rounds)
        for row in shape["rows"]:
            if row["config"][6:] == [1, 1]:
                behind.setdefault(tuple(row["config"]), {})[shape["name"]] = row["median_us"] / best - 1
    everywhere = {tile: found for tile, found in behind.items() if len(found) == len(report["shapes"])}
    tile = min(everywhere, key=lambda t: statistics.fmean(everywhere[t][name] for name in names["calibration"]))
    regrets = [everywhere[tile][name] for name in names["test"]]
    return {
        "tile": label(GemmTile(*tile)),
        "within_10_percent": sum(r <= WITHIN for r in regrets),
        "mean_regret": statistics.fmean(regrets),
        "worst_regret": max(regrets),
    }


def _key(tile: Any) -> tuple[int, ...]:
    return tuple(vars(tile).values())


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many are within ten per cent, and the mean and worst regret, by list."""
    out: dict[str, Any] = {}
    for which in ("calibration", "test"):
        regrets = [row["regret"] for row in rows if row["list"] == which]
        known = [r for r in regrets if r is not None]
        out[which] = {
            "shapes": len(regrets),
            "within_10_percent": sum(r <= WITHIN for r in known),
            "mean_regret": statistics.fmean(known) if known else None,
            "worst_regret": max(known) if len(known) == len(regrets) and known else None,
        }
    return out


def text(record: dict[str, Any], which: str = "test") -> str:
    """A Markdown table of one list."""
    lines = [
        "| shape | chosen by the model | measured us | best us | behind the best | cuBLAS us |",
        "|---|---|---|---|---|---|",
    ]
    for row in record["shapes"]:
        if row["list"] == which:
            batch = f"{row['batch']} x " if row["batch"] > 1 else ""
            regret = "not run" if row["regret"] is None else f"{row['regret']:.1%}"
            measured = "-" if row["chosen_us"] is None else f"{row['chosen_us']:.1f}"
            lines.append(
                f"| {batch}{row['m']} x {row['n']} x {row['k']} | {row['chosen']} | {measured} | {row['best_us']:.1f} "
                f"| {regret} | {row['cublas_us']:.1f} |"
            )
    found = record["summary"][which]
    mean, one = f"{found['mean_regret']:.1%}", record["one_tile_for_all"]
    lines.append("")
    lines.append(
        f"Within 10 % of the best: {found['within_10_percent']} of {found['shapes']}; on average {mean} behind it, "
        f"at worst {found['worst_regret']:.1%}. One tile for all of them ({one['tile']}, the best on average of the "
        f"calibration shapes): {one['within_10_percent']} of {found['shapes']}, {one['mean_regret']:.1%}, "
        f"{one['worst_regret']:.1%}."
    )
    trials = max(row["trials_to_2_percent"] for row in record["shapes"])
    lines.append(
        f"Of every shape of both lists, one within 2 % of the best is among the first {trials} trials of the plan."
    )
    short = [row["name"] for row in record["shapes"] if row["list"] == which and row["cut_short"]]
    if short:
        lines.append(f"The time ran out at {', '.join(short)}: medians of {row_samples(record, short[0])} rounds.")
    return "\n".join(lines) + "\n"


def row_samples(record: dict[str, Any], name: str) -> int:
    """Rounds behind the best time of a shape."""
    return next(int(row["best_samples"]) for row in record["shapes"] if row["name"] == name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", nargs="?")
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--only", choices=("calibration", "test"), help="print this list only, and write nothing")
    parser.add_argument("--out", type=Path, default=RECORD)
    options = parser.parse_args()
    if options.text:
        print(text(json.loads(RECORD.read_text("utf-8"))), end="")
        return
    if options.measured is None:
        parser.error("name the report of tile_space.py")
    report = json.loads(Path(options.measured).read_text("utf-8"))
    names = set(lists()[options.only]) if options.only else None
    report["shapes"] = [s for s in report["shapes"] if names is None or s["name"] in names]
    rows = judged(report)
    record = {
        "card": report["card"],
        **{key: report[key] for key in ("driver", "date", "torch") if key in report},
        "arch": report["arch"],
        "protocol": "benchmarks/tile_space.py: every legal tile, in random order, L2 flushed before each; medians",
        "summary": summary(rows),
        "one_tile_for_all": fixed(report) if options.only is None else None,
        "shapes": rows,
    }
    for row in rows:
        regret = "-" if row["regret"] is None else f"{row['regret']:6.1%}"
        print(f"{row['list']:11} {row['name']:24} {row['chosen']:32} {regret}  err {row['median_error_near_best']:.0%}")
    if options.only is None:
        options.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        print(json.dumps(record["summary"], indent=1))


if __name__ == "__main__":
    main()
