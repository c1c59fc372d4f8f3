"""Scores the prediction on the card's measured times, and fits its rates.

    python benchmarks/prediction.py score                        # what the record says; needs nothing else
    python benchmarks/prediction.py collect TIMES.json STUDIES CASES.pkl
    python benchmarks/prediction.py fit CASES.pkl --side a       # calibrated on side a (or b, or all): rates as JSON
    python benchmarks/prediction.py record CASES.pkl --a A.json --b B.json --before RATES.toml \\
        --toolchain "NVRTC 13.0.88" --late NAME ...

Every kernel of an origin is on one side of the split, a rule set before anything was fitted: side a are the kernels
made here (generated ones and the examples), side b the public ones. What is fitted on one side predicts the other; so
each case of the record is predicted by rates that never saw its origin. Side a's rates and ranges are those that are
shipped: on side b exactly what is shipped is scored. (The form of the model, what it has rates for, was found while
looking at cases of both sides.)
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from math import exp, log
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from prediction_cases import Case, collect
from prediction_score import BASELINE, kind_lines, miss_lines, score_lines, spreads_of, summary

from tilewright.arch.arch import load_arch
from tilewright.arch.devices import find_device
from tilewright.arch.occupancy import occupancy
from tilewright.plan.compiled import (
    LONG,
    Built,
    Model,
    Spread,
    first_tile_cycles,
    kind_of,
    load_model,
    parse_model,
    ranked,
)
from tilewright.plan.pipes import QUARTERS, Rates, cycles_per_trip
from tilewright.sass.schedule import Schedule, Slot
from tilewright.settings import Settings

RECORD = Path(__file__).parent / "results" / "h200-prediction.json"
ARCH = load_arch("sm_90a")
CARD = "NVIDIA H200"
SIDE_A = ("generated", "examples")
SHIPPED = "a"
# What is fitted: name → the value that the fit begins with. The rest of rates.toml was set before.
FITTED = {
    "strictness": 0.5, "async_sector_cycles": 0.3, "async_cycles": 1.0, "global_latency": 400.0,
    "async_latency": 420.0, "l2_bytes_per_cycle": 40.0, "line_cycles": 1.0, "return_cycles": 1.0,
    "matrix_macs_per_cycle": 320.0, "multiply_cycles": 2.0, "block_cycles": 1500.0, "bulk_cycles": 30.0,
    "row_cycles": 3.0, "clash_cycles": 1.0,
}  # fmt: skip
STEP, HUBER, ROUNDS = 0.3, 0.1, 3
# Cases at these sizes are fitted on; all are scored. The others of a kernel say much the same.
FITTED_SETS = ("default", "longk")
ROW_CYCLES = (1.4, 1.8, 2.2, 2.6, 3.0, 3.4, 3.8, 4.2, 4.6, 5.0, 5.5, 6.0)
WARM, MEASURED, MOST_ISSUES = 4, 4, 8_000
_PIPES = ("issue", "fma", "half", "multiply", "alu", "special", "uniform", "matrix", "shared", "global", "async")
_RATES = (
    "global_latency", "async_latency", "bulk_latency", "cache_latency", "shared_latency", "store_latency",
    "matrix_latency", "line_cycles", "pass_cycles", "strictness", "return_cycles", "async_cycles", "async_pass_cycles",
    "async_sector_cycles", "barrier_cycles", "matrix_macs_per_cycle", "l2_bytes_per_cycle", "bulk_cycles",
    "row_cycles", "fma_cycles", "half_cycles", "multiply_cycles", "alu_cycles", "special_cycles", "uniform_cycles",
    "clash_cycles", "backlog_cycles",
)  # fmt: skip


class _Slot(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_double) for name in ("macs", "wavefronts", "lines", "sectors", "words")),
        *((name, ctypes.c_int) for name in ("pipe", "stall", "waits", "write", "read", "clash", "joins", "commits")),
        *((name, ctypes.c_int) for name in ("leaves", "bulk_bytes", "phase", "bulk_rows", "own")),
    ]


class _Rates(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in _RATES]


class Fast:
    """`cycles_per_trip`, compiled; results are kept per K-loop and set of rates."""

    def __init__(self) -> None:
        source = Path(__file__).with_name("prediction_pipes.c")
        with tempfile.TemporaryDirectory() as folder:  # a library that is loaded needs its file no longer
            library = Path(folder) / "pipes.so"
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-lm"], check=True)
            self.call = ctypes.CDLL(str(library)).cycles_per_trip
        self.call.restype = ctypes.c_double
        self.code: dict[int, tuple[Any, int, Any, int]] = {}
        self.kept: dict[tuple[int, int, int], tuple[Rates, float]] = {}

    def __call__(self, schedule: Schedule, warps: int, blocks: int, rates: Rates) -> float:
        key = (id(schedule), warps, blocks)
        if key in self.kept and self.kept[key][0] == rates:
            return self.kept[key][1]
        if id(schedule) not in self.code:
            trip, others = _array(schedule.trip), _array(schedule.others)
            self.code[id(schedule)] = (trip, len(schedule.trip), others, len(schedule.others))
        numbers = _Rates(*(getattr(rates, name) for name in _RATES))
        how = (
            ctypes.c_double(schedule.in_flight),
            ctypes.c_double(schedule.leading),
            ctypes.byref(numbers),
            WARM,
            MEASURED,
            MOST_ISSUES,
        )
        found = float(self.call(*self.code[id(schedule)], warps, blocks, *how))
        self.kept[key] = (rates, found)
        return found


def _array(slots: Sequence[Slot]) -> Any:
    made = (_Slot * max(len(slots), 1))()
    for place, slot in zip(made, slots, strict=False):
        for name, _ in _Slot._fields_:
            setattr(place, name, _PIPES.index(slot.pipe) if name == "pipe" else getattr(slot, name))
    return made


def launch_cycles(label: str, built: Built, model: Model, fast: Fast) -> float:
    """As `compiled.launch_cycles`, with the fast simulation."""
    fit = occupancy(ARCH, built.threads, built.registers, built.smem_bytes).blocks_per_sm
    warps = -(-built.threads // ARCH.warp_size)
    most = -(-(built.blocks or 1) // _sms(CARD))
    resident = min(fit, most)
    once = model.block_cycles + first_tile_cycles(label, model.rates)

    def round_of(blocks: int) -> float:
        loop = fast(built.schedule, warps, blocks, model.rates) / built.schedule.math_per_trip
        edges = (built.schedule.before + built.schedule.after) * max(1.0, warps * blocks / QUARTERS)
        return (LONG if built.math is None else built.math) * loop + once + model.edge_cycles * edges

    whole, rest = divmod(most, resident)
    full = round_of(resident)
    last = (1 - model.blend) * round_of(rest) + model.blend * full * rest / resident if rest else 0.0
    return whole * full + last + model.launch_cycles


@lru_cache(maxsize=1)
def _sms(card: str) -> int:
    found = find_device(card)
    assert found is not None
    return found.sms


def predict(case: Case, model: Model, fast: Fast) -> dict[str, float]:
    """Speedup over the baseline, by label."""
    cycles = {label: launch_cycles(label, built, model, fast) for label, built in case.builds.items()}
    return {label: cycles[BASELINE] / took for label, took in cycles.items() if label != BASELINE}


def loss(cases: Sequence[Case], model: Model, fast: Fast) -> float:
    """Huber's, of log(measured / predicted) about its mean in each case; slow variants count less."""
    total = 0.0
    for case in cases:
        predicted = {BASELINE: 1.0, **predict(case, model, fast)}
        best = min(case.measured.values())
        weights = {label: 1 / (1 + 3 * (us / best - 1)) for label, us in case.measured.items()}
        whole = sum(weights.values())
        errors = {label: -log(predicted[label] * us) for label, us in case.measured.items()}
        middle = sum(weights[label] * errors[label] for label in errors) / whole
        for label, error in errors.items():
            off = abs(error - middle)
            total += weights[label] / whole * (off * off / 2 if off < HUBER else HUBER * (off - HUBER / 2))
    return total / len(cases)


def with_values(model: Model, values: Mapping[str, float]) -> Model:
    """The model with other values for some rates, or for what surrounds a K-loop."""
    own = {f.name for f in fields(Rates)}
    rates = replace(model.rates, **{name: value for name, value in values.items() if name in own})
    return replace(model, rates=rates, **{name: value for name, value in values.items() if name not in own})


def fit(cases: Sequence[Case], fast: Fast, rounds: int = ROUNDS) -> dict[str, float]:
    """One rate after the other, a step up or down where that helps; steps that help nowhere are halved."""
    chosen = [case for case in cases if case.set in FITTED_SETS]
    values, steps = dict(FITTED), dict.fromkeys(FITTED, STEP)
    best = loss(chosen, with_values(load_model(), values), fast)
    for turn in range(rounds):
        for name in FITTED:
            for factor in (1 + steps[name], 1 / (1 + steps[name])):
                tried = {**values, name: values[name] * factor}
                found = loss(chosen, with_values(load_model(), tried), fast)
                if found < best:
                    values, best = tried, found
                    break
            else:
                steps[name] /= 2
        print(f"round {turn}: {best:.6f}", {name: round(value, 3) for name, value in values.items()}, flush=True)
    return values


def fit_boxes(cases: Sequence[Case], values: Mapping[str, float], fast: Fast) -> dict[str, float]:
    """The rates with what a row of a box costs fitted anew, on the kernels with tensor maps alone, at all their sizes.

    They are few, so `fit` hardly sees them; and where the unit for bulk copies is what holds a kernel back, nothing
    else matters. Squared errors: a kernel that is far slower than predicted is what must not happen.
    """
    own = [case for case in cases if any(kind_of(label) == "tma" for label in case.builds)]

    def error(row_cycles: float) -> float:
        model = with_values(load_model(), {**values, "row_cycles": row_cycles})
        found = []
        for case in own:
            predicted, base = predict(case, model, fast), case.measured[BASELINE]
            boxes = [label for label in predicted if kind_of(label) == "tma" and label in case.measured]
            found += [log(base / case.measured[label] / predicted[label]) ** 2 for label in boxes]
        return sum(found)

    return {**values, "row_cycles": min(ROW_CYCLES, key=error)} if own else dict(values)


def rows_of(cases: Sequence[Case], values: Mapping[str, float], fast: Fast) -> list[dict[str, Any]]:
    """Cases as they are recorded, without ranking and ranges."""
    return _rows(cases, with_values(load_model(), values), fast)


def _rows(cases: Sequence[Case], model: Model, fast: Fast) -> list[dict[str, Any]]:
    rows = []
    for case in cases:
        predicted = {label: round(value, 4) for label, value in predict(case, model, fast).items()}
        about = {"name": case.name, "origin": case.origin, "set": case.set, "dims": dict(case.dims)}
        rows.append({**about, "measured_us": dict(case.measured), "predicted": predicted})
    return rows


def judged(rows: Sequence[dict[str, Any]], spreads: Mapping[str, Spread]) -> list[dict[str, Any]]:
    """The rows with the ranking and the ranges that spreads of other rows make of them."""
    model = replace(load_model(), spreads=spreads)
    found = []
    for row in rows:
        spread = {label: model.spread(label, ARCH) for label in row["predicted"]}
        ranges = {
            label: [round(value * exp(spread[label].low), 4), round(value * exp(spread[label].high), 4)]
            for label, value in row["predicted"].items()
        }
        found.append({**row, "ranking": list(ranked(row["predicted"], ARCH, model)), "ranges": ranges})
    return found


def side_of(origin: str) -> str:
    return "a" if origin in SIDE_A else "b"


def check(cases: Sequence[Case], fast: Fast, count: int = 40) -> float:
    """The largest relative difference between both simulations, over some K-loops."""
    rates, worst = load_model().rates, 0.0
    for case in cases[:: max(1, len(cases) // count)]:
        built = next(iter(case.builds.values()))
        warps = -(-built.threads // ARCH.warp_size)
        one = cycles_per_trip(built.schedule, warps, 1, rates)
        worst = max(worst, abs(fast(built.schedule, warps, 1, rates) / one - 1))
    return worst


def record(
    cases: Sequence[Case],
    by_side: Mapping[str, Mapping[str, float]],
    fast: Fast,
    toolchain: str,
    late: Sequence[str],
    before: Model,
) -> dict[str, Any]:
    """Every case as the rates of the other side predict it, and beside that as those of its own do.

    Args:
        toolchain: what compiled the kernels. late: names of those that were first scored when nothing was changed.
        before: what was shipped before: the mean of both fits.
    """
    sides = {side: [case for case in cases if side_of(case.origin) == side] for side in "ab"}
    out = {side: rows_of(sides[side], by_side["b" if side == "a" else "a"], fast) for side in "ab"}
    within = {side: rows_of(sides[side], by_side[side], fast) for side in "ab"}
    # A side's ranges come from the errors of the rates that were fitted on the other side, on that other side.
    own = {side: spreads_of(within[side], kind_of) for side in "ab"}
    kept = {side: {kind: Spread(**row) for kind, row in own[side].items()} for side in "ab"}
    tested = {side: judged(out[side], kept["b" if side == "a" else "a"]) for side in "ab"}
    for side in "ab":
        for row, inside in zip(tested[side], within[side], strict=True):
            row["predicted_by_own_side"] = inside["predicted"]
    everything = [*tested["a"], *tested["b"]]
    earlier = {side: judged(_rows(sides[side], before, fast), before.spreads) for side in "ab"}
    about = cases[0]
    return {
        "what": "predicted and measured speedups of compiled variants; each case predicted by rates that were fitted "
        "on the other side of the split",
        "card": about.card,
        "driver": about.driver,
        "date": about.date,
        "toolchain": toolchain,
        "protocol": "contenders interleaved, L2 flushed before each launch, medians of 6 to 40 rounds; contenders "
        "whose interquartile range is above 10 % of their median are left out",
        "split": {
            "rule": "all kernels of an origin on one side, set before fitting: a: kernels made here, b: public ones",
            "a": sorted({case.origin for case in sides["a"]}),
            "b": sorted({case.origin for case in sides["b"]}),
        },
        "shipped": SHIPPED,
        "late": sorted(late),
        "fitted_note": "side b: 3 rounds of the fit; side a: 2 rounds; then row_cycles",
        "fitted_on": {side: sum(case.set in FITTED_SETS for case in sides[side]) for side in "ab"},
        "fitted": {side: {name: round(value, 4) for name, value in by_side[side].items()} for side in by_side},
        "summary": {
            "calibrated on a, tested on b": summary(tested["b"]),
            "calibrated on b, tested on a": summary(tested["a"]),
            "of the former, the late ones": summary([row for row in tested["b"] if row["name"] in late]),
            "mean of two fits, shipped before, on a": summary(earlier["a"]),
            "mean of two fits, shipped before, on b": summary(earlier["b"]),
            "all cases, each by the other side's rates": summary(everything),
        },
        "spreads": own,
        "cases": everything,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("score")
    one.add_argument("record", type=Path, nargs="?", default=RECORD)
    one = verbs.add_parser("collect")
    one.add_argument("times", type=Path)
    one.add_argument("studies", type=Path)
    one.add_argument("cases", type=Path)
    one = verbs.add_parser("fit")
    one.add_argument("cases", type=Path)
    one.add_argument("--side", choices=("a", "b", "all"), required=True)
    one.add_argument("--begun", type=Path, help="rates of an earlier fit: only the cost of a box's row is fitted")
    one.add_argument("--out", type=Path, required=True)
    one = verbs.add_parser("record")
    one.add_argument("cases", type=Path)
    one.add_argument("--a", type=Path, required=True)
    one.add_argument("--b", type=Path, required=True)
    one.add_argument("--toolchain", required=True, help="what compiled the kernels")
    one.add_argument("--before", type=Path, required=True, help="rates.toml as it was shipped before")
    one.add_argument("--late", nargs="*", default=(), help="kernels first scored when nothing was changed any more")
    one.add_argument("--out", type=Path, default=RECORD)
    asked = parser.parse_args()
    if asked.verb == "score":
        kept = json.loads(asked.record.read_text("utf-8"))
        for side in "ba":
            shipped = " (these are shipped)" if side != kept["shipped"] else ""
            print(f"side {side}, by the other side's rates{shipped}:")
            rows = [row for row in kept["cases"] if side_of(row["origin"]) == side]
            print(*score_lines(rows), *miss_lines(rows), "", *kind_lines(rows, kind_of), "", sep="\n")
        print("both:", *score_lines(kept["cases"], 0), sep="\n")
        return
    if asked.verb == "collect":
        asked.cases.write_bytes(pickle.dumps(collect(asked.times, asked.studies, Settings.from_environment())))
        return
    cases = pickle.loads(asked.cases.read_bytes())
    fast = Fast()
    print(f"both simulations differ by at most {check(cases, fast):.1e}")
    if asked.verb == "fit":
        chosen = [case for case in cases if asked.side in ("all", side_of(case.origin))]
        begun = json.loads(asked.begun.read_text("utf-8")) if asked.begun else fit(chosen, fast)
        asked.out.write_text(json.dumps(fit_boxes(chosen, begun, fast), indent=1) + "\n")
        return
    by_side = {side: json.loads(getattr(asked, side).read_text("utf-8")) for side in "ab"}
    before = parse_model(asked.before.read_text("utf-8"))
    made = record(cases, by_side, fast, asked.toolchain, asked.late, before)
    asked.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
