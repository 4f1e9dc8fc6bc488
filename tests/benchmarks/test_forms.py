"""The comparison of forms: what a row has, and what pages show of it."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest

from benchmarks.forms import comparison
from benchmarks.forms.__main__ import PROFILES, by_profile
from benchmarks.forms.comparison import COLUMNS, Row, own_profiles, rows
from benchmarks.forms.networks import Source
from benchmarks.result import Machine, Result
from benchmarks.tables import Table
from benchmarks.topics.forms import TITLE, TOPICS
from qgraph.choices import ExportFormat
from qgraph.exports import FORMS
from qgraph.ir.graph import Graph
from tests.helpers.op_graphs import biased

FORMS_PAGE, TARGETS_PAGE = TOPICS


@pytest.fixture
def graph() -> Graph:
    made = Graph("small")
    made.outputs["y"] = biased(made)
    return made


def source(graph) -> Source:
    return Source("small", lambda: graph, inputs)


def inputs(graph) -> np.ndarray:
    shape = graph.types[graph.inputs[0]].shape
    return np.random.default_rng(0).normal(size=(4, *shape[1:])).astype(np.float32)


def test_each_form_is_compared_for_its_own_profiles_or_for_any() -> None:
    own = by_profile(True, [*ExportFormat])
    shared = by_profile(False, [*ExportFormat])
    assert set(shared) == set(PROFILES) and own == own_profiles()
    found = {name for forms in (*own.values(), *shared.values()) for name in forms}
    assert found == set(FORMS)


def test_rows_count_elements_of_each_form(graph) -> None:
    found = [*rows(source(graph), graph, inputs(graph), "int32-bias", [ExportFormat.ENGINE])]
    (row,) = found
    assert row.elements > 100 and row.different == 0 and not row.refused and not row.fault
    assert len(astuple(row)) == len(COLUMNS)


def test_a_refusal_has_its_reason(graph) -> None:
    (row,) = rows(source(graph), graph, inputs(graph), "graffitist-int8", [ExportFormat.ONNX_XINT8])
    assert row.elements is None and "XINT8 has int8 codes" in row.refused


def test_a_wrong_code_is_counted(graph, monkeypatch) -> None:
    right = comparison.runners_of

    def off_by_one(one, network, place):
        (name, runner), *_ = right(one, network, place).items()

        def run(codes):
            found = {tensor: np.array(array) for tensor, array in runner(codes).items()}
            found[network.program.exits[0]].flat[0] += 1
            return found

        return {name: run}

    monkeypatch.setattr(comparison, "runners_of", off_by_one)
    (row,) = rows(source(graph), graph, inputs(graph), "int32-bias", [ExportFormat.ENGINE])
    assert row.different == 3  # samples, random codes, lowest codes


def test_a_large_network_is_named_with_its_size(graph, monkeypatch) -> None:
    monkeypatch.setattr(comparison, "MOST_PRODUCTS", {ExportFormat.ENGINE: 1})
    (row,) = rows(source(graph), graph, inputs(graph), "int32-bias", [ExportFormat.ENGINE])
    assert row.refused.startswith("not tried: ") and "products" in row.refused


@pytest.fixture
def table() -> Table:
    made = Table("Codes compared with the integer reference", COLUMNS)
    lite, micro = "LiteRT reference kernels 2.3.0", "TFLM interpreter 1.0"
    for row in (
        Row("a", "tflm", "tflite", lite, 3, 2_000_000, 0, 0, 0, 0.1),
        Row("a", "tflm", "tflite", micro, 3, 1_000_000, 2, 5, 1, 0.1),
        Row("b", "tflm", "tflite", refused="x: sums reach 2^40"),
        Row("c", "tosa", "tosa", refused="not tried: 4.1 billion products for a sample"),
        Row("d", "tosa", "tosa", fault="the file is not valid"),
    ):
        made.rows.append(dict(zip(COLUMNS, astuple(row), strict=True)))
    return made


def test_a_page_has_a_column_for_each_executor_and_names_what_is_missing(table) -> None:
    result = Result("", "", "", Machine("", 2), {}, (), (table,))
    made = TARGETS_PAGE.table(result)
    assert [*made.columns] == [
        "network", "tflm: LiteRT reference kernels", "tflm: TFLM interpreter", "different",
    ]  # fmt: skip
    assert made.markdown().splitlines()[2:] == ["| a | 2 | 1 | 2 |"]
    assert made.notes[:2] == [
        "refused by `tflite` with profile `tflm`: b",
        "not tried in `tosa` with profile `tosa`: c (4.1 billion products for a sample)",
    ]
    assert "5 codes" in made.notes[2] and made.notes[3] == "1 fault: d, tosa: the file is not valid"
    assert TARGETS_PAGE.headline(result) == "0.0 billion codes of 1 networks compared, 2 differ"
    assert TITLE in table.title
