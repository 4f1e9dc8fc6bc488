"""ONNX's own node tests: whatever is read is right, and nothing escapes the error tree."""

import pytest

from benchmarks.onnx_nodes import Outcome, Verdict, node_cases, outcome_of, outcomes, table


@pytest.mark.slow
def test_no_node_test_is_wrong_or_crashes():
    found = list(outcomes())
    bad = [o for o in found if o.verdict in (Verdict.WRONG, Verdict.CRASHED)]
    assert not bad, "\n".join(f"{o.case}: {o.reason}" for o in bad)
    assert sum(o.verdict is Verdict.EQUAL for o in found) > 1300


def test_table_counts_by_op():
    made = table([
        Outcome("a", "Add", Verdict.EQUAL, integer=True),
        Outcome("b", "Add", Verdict.REFUSED, "why"),
        Outcome("c", "Abs", Verdict.EQUAL),
    ])  # fmt: skip
    assert made.markdown().splitlines()[2:] == [
        "| all | 2 | 1 | - | 1 | - | - |",
        "| Abs | 1 | - | - | - | - | - |",
        "| Add | 1 | 1 | - | 1 | - | - |",
    ]


@pytest.mark.parametrize(
    ("case", "integer"),
    [("test_relu", True), ("test_exp", True), ("test_add", True), ("test_acosh", False)],
)
def test_integer_forms_are_found(case, integer):
    found = next(c for c in node_cases() if c.name == case)
    outcome = outcome_of(found, integers=True)
    assert (outcome.verdict, outcome.integer) == (Verdict.EQUAL, integer)
