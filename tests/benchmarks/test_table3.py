"""Rows of table 3: made once, made again where something differs, and shown in the table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.families import table3
from benchmarks.families.data import Part, Split
from benchmarks.families.networks import FAMILIES
from benchmarks.families.table3 import OPTIONS, Case, measured, table_3, table_5
from benchmarks.families.train import freeze
from benchmarks.families.ways import WAYS


@pytest.fixture
def case(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "vgg.pb"
    path.write_bytes(freeze(FAMILIES["vgg"]()).SerializeToString())
    part = Part(rng.random((40, 28, 28, 1), np.float32), rng.integers(0, 10, 40))
    options = replace(OPTIONS, epochs=1, batch_size=8)
    return Case("vgg", path, Split(part, part.first(16), part.first(20)), options)


@pytest.mark.slow
def test_a_row_is_made_once_and_again_for_other_options(case, tmp_path, monkeypatch):
    rows = {way: measured(case, way, tmp_path, again=False) for way in WAYS}
    assert all(facts["different"].startswith("0 of ") for way, facts in rows.items() if way.profile)
    assert [way.title for way in WAYS if "history" in rows[way]] == [
        "wt FP32", "wt INT8", "wt+th INT8", "wt+th INT4", "wt FP32 annealed", "INT4 from static",
        "INT4/4 from static",
    ]  # fmt: skip
    assert len(rows[WAYS[4]]["history"]) == 1 + table3.VALIDATIONS
    assert rows[WAYS[4]]["history"][-1]["step"] == 5

    calls = []
    monkeypatch.setattr(table3, "_made", lambda case, way, *_: calls.append(way.title) or {})
    assert measured(case, WAYS[4], tmp_path, again=False) == rows[WAYS[4]]
    assert calls == []
    other = replace(case, options=replace(case.options, weight_rate=1e-3))
    for way in WAYS[:1] + WAYS[4:5]:  # what trains nothing does not depend on the options
        measured(other, way, tmp_path, again=False)
    measured(case, WAYS[0], tmp_path, again=True)
    assert calls == ["wt+th INT8", "FP32"]


def test_the_tables_show_differences_and_the_mean_of_the_last_epoch():
    def facts(test, *validations):
        scores = [
            {"step": 10 * i, "epoch": 0, "loss": 1.0, "accuracy": a, "frozen": 0}
            for i, a in enumerate(validations)
        ]
        best = max(scores, key=lambda s: s["accuracy"]) if scores else None
        return {"test": test, "history": scores, "best": best, "steps_per_epoch": 50}

    found = (
        facts(0.9), facts(0.8), facts(0.91, 0.5, 0.9), facts(0.9, 0.9),
        facts(0.912, 0.5, 0.9, 0.6, 0.7, 0.8, 0.9, 0.7), facts(0.905, 0.9),
        facts(0.89), facts(0.911, 0.9), facts(0.908, 0.8, 0.9), facts(0.79), facts(0.8, 0.7, 0.8),
    )  # fmt: skip
    rows = {"vgg": dict(zip(WAYS, found, strict=True))}
    (row,) = table_3(rows, ()).rows
    assert [row[way.title] for way in WAYS] == [
        0.9, 0.8, 0.91, 0.9, 0.912, 0.905, 0.89, 0.911, 0.908, 0.79, 0.8,
    ]  # fmt: skip
    epochs = [row.get(f"{way.title}, epoch") for way in WAYS]
    assert epochs == [None, None, 0.2, 0.0, 0.2, 0.0, None, 0.0, 0.2, None, 0.2]
    assert row["INT8 over wt FP32"] == pytest.approx(0.2)
    assert row["INT4 over wt FP32"] == pytest.approx(-0.5)
    assert row["INT4 from static over wt FP32"] == pytest.approx(-0.2)
    assert row["INT4 from static over wt FP32 annealed"] == pytest.approx(-0.3)
    (row,) = table_5(rows).rows
    assert list(row.values())[1:] == pytest.approx([0.6, 0.7, 0.8, 0.9, 0.7, 0.74, 0.9, 0.16, 0.2])
