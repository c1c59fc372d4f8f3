"""The receipt's contract: names of keys, order, numbers, reading back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import receipt_samples as samples

from tilewright.errors import TilewrightError
from tilewright.receipt.evidence import Measurement, Proof, Resources, Verification
from tilewright.receipt.record import (
    VARIANT_NAMES,
    Attribution,
    Control,
    Launch,
    Prediction,
    Receipt,
    from_json,
    to_json,
    variant_label,
)

# The keys that others rely on, as DESIGN lists them. A key may be added to the records; none of these may go.
CONTRACT: dict[str, set[str]] = {
    "": {
        "schema", "tool", "kernel", "arch", "refusal", "baseline", "tile", "preconditions", "budget", "decision",
        "variants", "assumptions", "checklist", "choice",
    },
    "tool": {"version"},
    "kernel": {"file", "name"},
    "refusal": {"code", "message", "line", "hint"},
    "baseline": {"verify", "proof", "measure", "resources", "hazards"},
    "tile": {"BM", "BN", "BK", "dims", "threads", "elements"},
    "preconditions": {"name", "holds", "facts"},
    "budget": {"stages", "smem_bytes", "blocks_per_sm", "warps_per_sm", "limiter", "fits", "crosses_cliff"},
    "decision": {"verdict", "flop_per_byte", "ops_per_load", "warps_per_sm", "predicted", "reasons"},
    "decision.predicted": {"speedup", "low", "high"},
    "variants": {
        "name", "stages", "status", "refusal", "source", "diff", "source_path", "diff_path", "launch", "resources",
        "verify", "proof", "measure", "controls", "attribution",
    },
    "variants.launch": {"grid", "block", "shared_bytes", "extra_args"},
    "variants.resources": {"registers", "smem_bytes", "spill_bytes", "stack_bytes"},
    "variants.verify": {"verdict", "executor", "sizes", "bit_identical", "max_abs_error", "hazards"},
    "variants.proof": {
        "verdict", "tiles_in_flight", "mma_while_in_flight", "barriers_between", "mma_per_tile",
        "baseline_mma_per_tile", "stalls", "excerpt",
    },
    "variants.measure": {
        "size", "median_us", "min_us", "iqr_us", "samples", "gflops", "gbps", "roofline_share", "speedup", "card",
        "driver", "date", "verdict",
    },
    "variants.controls": {"name", "proof", "verify", "measure"},
    "variants.attribution": {"width", "async_copy", "overlap", "stages", "warps_per_sm_before", "warps_per_sm_after"},
    "hazards": {"kind", "line", "message"},
    "checklist": {"item", "holds"},
    "choice": {"variant", "stages", "reason"},
}  # fmt: skip


def _objects(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """One object of each kind, as the JSON holds it."""
    variant = record["variants"][1]
    return {
        "": record,
        **{key: record[key] for key in ("tool", "kernel", "baseline", "tile", "decision", "choice")},
        **{key: record[key][0] for key in ("preconditions", "budget", "checklist", "variants")},
        "decision.predicted": next(iter(record["decision"]["predicted"].values())),
        **{
            f"variants.{key}": variant[key]
            for key in ("launch", "resources", "verify", "proof", "measure", "attribution")
        },
        "variants.controls": variant["controls"][0],
    }


def _missing(receipt: Receipt, refused: Receipt) -> dict[str, set[str]]:
    record, no = json.loads(to_json(receipt)), json.loads(to_json(refused))
    objects = {**_objects(record), "refusal": no["refusal"], "hazards": no["baseline"]["hazards"][0]}
    assert objects.keys() == CONTRACT.keys()
    return {kind: CONTRACT[kind] - objects[kind].keys() for kind in CONTRACT if CONTRACT[kind] - objects[kind].keys()}


def test_no_key_of_the_contract_is_missing() -> None:
    assert _missing(samples.with_gpu(), samples.refused()) == {}


def test_a_renamed_key_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: the check above must see a key that is gone."""
    real = to_json
    monkeypatch.setattr(
        "test_receipt_record.to_json", lambda receipt: real(receipt).replace('"median_us"', '"median_microseconds"')
    )
    assert _missing(samples.with_gpu(), samples.refused()) == {"variants.measure": {"median_us"}}


def test_keys_come_in_the_order_of_the_records() -> None:
    record = json.loads(to_json(samples.with_gpu()))
    assert list(record) == [field.name for field in dataclasses.fields(Receipt)]
    assert list(record["decision"]["predicted"]) == ["ldg", "cp_async2"]  # ranking order, not alphabetical


@pytest.mark.parametrize("make", [samples.laptop, samples.with_gpu, samples.refused])
def test_a_receipt_reads_back_as_it_was(make: Any) -> None:
    assert from_json(to_json(make())) == make()


def test_numbers_that_are_not_finite_become_null() -> None:
    base = samples.laptop()
    assert base.decision is not None
    odd = dataclasses.replace(
        base.decision, ops_per_load=float("inf"), predicted={"ldg": Prediction(float("nan"), float("-inf"), 1.0)}
    )
    text = to_json(dataclasses.replace(base, decision=odd))
    assert "NaN" not in text
    assert "Infinity" not in text
    read = from_json(text).decision
    assert read is not None
    assert read.ops_per_load is None
    assert read.predicted["ldg"] == Prediction(None, None, 1.0)


def test_defaults_say_not_run_and_not_known() -> None:
    assert (Verification().verdict, Proof().verdict, Measurement().verdict) == ("not_run", "unknown", "not_run")
    assert Resources().spill_bytes is None  # not 0: nothing was compiled
    assert Attribution().width is None
    assert Control("widen").measure.verdict == "not_run"


def test_an_unknown_key_of_a_newer_receipt_is_ignored() -> None:
    record = json.loads(to_json(samples.laptop()))
    record["weather"] = "fine"
    assert from_json(json.dumps(record)) == samples.laptop()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "receipt/not_a_receipt"),
        ("[]", "receipt/not_a_receipt"),
        (b"\xff\xfe", "receipt/not_a_receipt"),
        ('{"tool":{"version":"1"},"kernel":{"file":"a","name":"b"},"arch":"sm_86","schema":99}', "receipt/schema"),
    ],
)
def test_what_is_no_receipt_is_refused_with_its_file(text: str | bytes, code: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        from_json(text, file="receipt.json")
    assert caught.value.code == code
    assert caught.value.place == "receipt.json"


def test_labels_name_stages_only_where_they_vary() -> None:
    assert [variant_label(name, 2) for name in VARIANT_NAMES[:4]] == ["ldg", "ldg_single", "cp_async2", "bulk2"]


def test_launch_holds_numbers_or_expressions() -> None:
    base = samples.laptop()
    launch = Launch(grid=("ceil_div(N, BN)", 4, 1), block=(128, 1, 1), shared_bytes=1024, extra_args=("int ldb",))
    changed = dataclasses.replace(base, variants=(dataclasses.replace(base.variants[0], launch=launch),))
    assert from_json(to_json(changed)).variants[0].launch == launch
