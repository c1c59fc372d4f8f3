"""How good a ranking is: regret, skill over fixed rules, error, ranges. All of it from the cases of the record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import exp, log
from statistics import mean, median
from typing import Any

BASELINE = "baseline"
COVERED = 0.90  # of the ranges: between these quantiles of the error
MISSED = 1.05  # regret above this is looked into
CAUTION = 0.1  # of the error's lower half: chosen where it lowers the regret on the side that was fitted on


def quantile(values: Sequence[float], share: float) -> float:
    """By linear interpolation between the sorted values."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def regret(row: Mapping[str, Any], picked: str) -> float:
    """Time of what was picked over the best time."""
    measured: Mapping[str, float] = row["measured_us"]
    return measured[picked] / min(measured.values())


def deepest(row: Mapping[str, Any]) -> str:
    """The rule to beat: always the deepest ring of cp.async."""
    return next((f"cp_async{n}" for n in (4, 3, 2) if f"cp_async{n}" in row["measured_us"]), BASELINE)


def always(label: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: label if label in row["measured_us"] else BASELINE


RULES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "the decision": lambda row: str(row["ranking"][0]),
    "always the deepest cp.async": deepest,
    "always cp_async2": always("cp_async2"),
    "always ldg": always("ldg"),
    "always ldg_single": always("ldg_single"),
    "always the baseline": always(BASELINE),
}


def errors(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, float]]:
    """(label, log of measured over predicted speedup) of every variant of every case."""
    found = []
    for row in rows:
        base = row["measured_us"][BASELINE]
        found += [(label, log(base / row["measured_us"][label] / s)) for label, s in row["predicted"].items()]
    return found


def spreads_of(rows: Sequence[Mapping[str, Any]], kind_of: Callable[[str], str]) -> dict[str, dict[str, float]]:
    """Quantiles of the error by kind of variant; ``other`` over all."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    for label, error in errors(rows):
        by_kind[kind_of(label)].append(error)
        by_kind["other"].append(error)
    tail = (1 - COVERED) / 2
    return {
        kind: {
            "low": quantile(values, tail),
            "high": quantile(values, 1 - tail),
            "caution": CAUTION * (quantile(values, 0.5) - quantile(values, tail)),
        }
        for kind, values in sorted(by_kind.items())
        if len(values) >= 20
    }


def coverage(rows: Sequence[Mapping[str, Any]]) -> float:
    """Share of the measured speedups that lie in their range."""
    inside = [
        low <= row["measured_us"][BASELINE] / row["measured_us"][label] <= high
        for row in rows
        for label, (low, high) in row["ranges"].items()
    ]
    return mean(inside) if inside else 0.0


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything that is reported of some cases."""
    rules = {}
    for name, rule in RULES.items():
        values = [regret(row, rule(row)) for row in rows]
        rules[name] = {
            "mean": round(mean(values), 4),
            "median": round(median(values), 4),
            "q90": round(quantile(values, 0.9), 4),
            "q95": round(quantile(values, 0.95), 4),
            "max": round(max(values), 4),
            "beyond_1.25": sum(value > 1.25 for value in values),
        }
    absolute = [abs(error) for _, error in errors(rows)]
    return {
        "cases": len(rows),
        "origins": len({row["origin"] for row in rows}),
        "predictions": len(absolute),
        "regret": rules,
        "error_median": round(exp(median(absolute)) - 1, 4),
        "error_q90": round(exp(quantile(absolute, 0.9)) - 1, 4),
        "coverage": round(coverage(rows), 4),
    }


def kind_lines(rows: Sequence[Mapping[str, Any]], kind_of: Callable[[str], str]) -> list[str]:
    """By kind of variant: how far off, which way, and how many ranges hold."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    for label, error in errors(rows):
        by_kind[kind_of(label)].append(error)
    lines = [f"{'kind':14} {'predictions':>11} {'middle':>8} {'error':>7} {'q90':>7} {'in range':>9}"]
    for kind, found in sorted(by_kind.items(), key=lambda item: -len(item[1])):
        absolute = [abs(error) for error in found]
        own = [
            {**row, "ranges": {label: span for label, span in row["ranges"].items() if kind_of(label) == kind}}
            for row in rows
        ]
        lines.append(
            f"{kind:14} {len(found):11} {exp(median(found)) - 1:+8.1%} {exp(median(absolute)) - 1:7.1%} "
            f"{exp(quantile(absolute, 0.9)) - 1:7.1%} {coverage(own):9.1%}"
        )
    return lines


def miss_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the cases have in common in which the decision loses more than 5 %."""
    missed = [row for row in rows if regret(row, row["ranking"][0]) > MISSED]
    ties = under = 0
    for row in missed:
        measured, predicted = row["measured_us"], {BASELINE: 1.0, **row["predicted"]}
        picked, best = row["ranking"][0], min(measured, key=lambda label: measured[label])
        ties += predicted[picked] / predicted[best] < 1.03
        under += measured[BASELINE] / measured[best] / predicted[best] > 1.10
    return [
        f"{len(missed)} cases lose more than {MISSED - 1:.0%}: in {ties} the best was predicted within 3 % of the one "
        "that was picked,",
        f"in {under} the best is more than 10 % faster than predicted",
    ]


def score_lines(rows: Sequence[Mapping[str, Any]], worst: int = 12) -> list[str]:
    """The summary as text, and the cases where the decision loses most."""
    found = summary(rows)
    lines = [
        f"{found['cases']} cases of {found['origins']} origins, {found['predictions']} predicted speedups: error "
        f"{found['error_median']:.1%} (median), {found['error_q90']:.1%} (q90); ranges hold {found['coverage']:.1%}",
        f"{'regret':30} {'mean':>7} {'median':>7} {'q90':>7} {'q95':>7} {'max':>7} {'>1.25':>6}",
    ]
    for name, r in found["regret"].items():
        figures = " ".join(f"{r[key]:7.3f}" for key in ("mean", "median", "q90", "q95", "max"))
        lines.append(f"{name:30} {figures} {r['beyond_1.25']:6}")
    for row in sorted(rows, key=lambda row: -regret(row, row["ranking"][0]))[:worst]:
        picked, measured = row["ranking"][0], row["measured_us"]
        best = min(measured, key=lambda label: measured[label])

        def told(label: str, row: Mapping[str, Any] = row) -> str:
            base = row["measured_us"][BASELINE]
            return f"{label} {base / row['measured_us'][label]:.2f}x, predicted {row['predicted'].get(label, 1.0):.2f}x"

        sizes = " ".join(f"{key}={value}" for key, value in row["dims"].items())
        lines.append(f"{regret(row, picked):.3f} {row['name']} {sizes}: picked {told(picked)}; best {told(best)}")
    return lines
