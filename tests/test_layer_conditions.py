"""Selects by conditions that depend on layers: comparisons become tables of codes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from qgraph import quantize
from qgraph.choices import CalibrationMethod
from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_of
from qgraph.program import lower, run
from qgraph.quantized import Quantized
from qgraph.verification.verify import verify
from tests.helpers.c_programs import needs_compiler
from tests.helpers.forms import OWN_PROFILES, missing_tool
from tests.helpers.moved_variables import assert_trains

rng = np.random.default_rng(0)
DATA = {"x": rng.normal(size=(64, 6)).astype(np.float32)}
Condition = Callable[[Graph, str, str], str]


def left_in_float(made: Quantized) -> list[str]:
    return [r.node for r in made.trace.refusals if r.reason.startswith("stays float")]


def number(graph: Graph, value: object) -> str:
    return graph.const(np.asarray(value, np.float32))


COLUMN = {"begin": (None, 1), "end": (None, 2), "strides": (1, 1)}
CONDITIONS: dict[str, Condition] = {
    "greater": lambda g, a, b: g.add("greater", a, b),
    "less_or_equal": lambda g, a, b: g.add("greater_equal", b, a),
    "above_a_number": lambda g, a, b: g.add("greater", a, number(g, 0.3)),
    "below_a_number": lambda g, a, b: g.add("greater", number(g, -0.2), a),
    "at_least_a_number": lambda g, a, b: g.add("greater_equal", a, number(g, 0)),
    "above_a_row": lambda g, a, b: g.add("greater", a, number(g, [0.1, -0.4, 0.2, 0.0])),
    "equal": lambda g, a, b: g.add("equal", g.add("relu", a), number(g, 0)),
    "not_equal": lambda g, a, b: g.add("not_equal", g.add("relu", a), g.add("relu", b)),
    "both": lambda g, a, b: g.add(
        "logical_and", g.add("greater", a, b), g.add("greater", b, number(g, -1))
    ),
    "not_either": lambda g, a, b: g.add(
        "logical_not",
        g.add("logical_or", g.add("greater", a, b), g.add("greater", b, number(g, 0.5))),
    ),
    "one_column": lambda g, a, b: g.add("slice", g.add("greater", a, b), attrs=COLUMN),
}


def network(condition: Condition, *, product: bool = False) -> Graph:
    """Two layers, of which a comparison chooses one, and a layer."""
    graph, weights = Graph("chosen"), np.random.default_rng(1)
    x = graph.input("x", "float32", (None, 6))

    def layer(value: str, rows: int, columns: int) -> str:
        made = weights.normal(size=(rows, columns)).astype(np.float32)
        return graph.add("matmul", value, graph.const(made))

    a, b = layer(x, 6, 4), layer(x, 6, 4)
    holds = condition(graph, a, b)
    if product:
        chosen = graph.add("mul", a, graph.add("cast", holds, attrs={"dtype": "float32"}))
    else:
        chosen = graph.add("select", holds, a, b)
    graph.outputs["y"] = layer(chosen, 4, 3)
    return graph


@pytest.mark.parametrize(
    ("name", "product"),
    [*((name, False) for name in CONDITIONS), ("greater", True), ("not_either", True)],
)
def test_they_are_integers(name: str, product: bool, tmp_path: Path) -> None:
    made = quantize(network(CONDITIONS[name], product=product), DATA, effort="plain")
    assert not left_in_float(made)
    assert made.facts.agreement.sqnr > 10  # near the jump, codes choose otherwise
    found = verify(made.save(tmp_path / "out"), forms=["engine", "onnx-integer"])
    assert found.equal and not found.refused


@needs_compiler
def test_every_form_is_exact(tmp_path: Path) -> None:
    made = quantize(network(CONDITIONS["both"]), DATA, effort="plain")
    found = verify(made.save(tmp_path / "out"))
    assert found.equal and found.refused.keys() <= {*OWN_PROFILES}


@pytest.mark.parametrize(
    ("form", "profile"),
    [(form, profile) for form, profiles in OWN_PROFILES.items() for profile in profiles],
)
@pytest.mark.parametrize("name", ["greater", "not_equal"])
def test_forms_with_profiles_of_their_own_are_exact(
    form: str, profile: str, name: str, tmp_path: Path
) -> None:
    """Also in files of 8 bits: the difference of two layers needs no more bits than they have."""
    if missing := missing_tool(form):
        pytest.skip(missing)
    made = quantize(network(CONDITIONS[name]), DATA, effort="plain", profile=profile)
    found = verify(made.save(tmp_path / "out"), forms=[form])
    assert found.equal and not found.refused


@pytest.mark.parametrize("method", CalibrationMethod)
def test_saturated_differences_keep_their_sign(method: CalibrationMethod) -> None:
    """A comparison is that of the codes, wherever they are."""
    plan = f"method={method}"
    made = quantize(network(CONDITIONS["greater"]), DATA, plan=plan, profile="litert")
    program = lower(made.graph)
    (step,) = (s for s in program.steps if s.op == "sub" and s.output.endswith("/difference"))
    a, b = (program.tensors[name] for name in step.inputs)
    assert a.exponent == b.exponent
    codes = {program.entries[0].tensor: np.random.default_rng(2).integers(-128, 128, (500, 6))}
    mask = next(s.output for s in program.steps if s.op == "lookup")
    found = run(program, codes, [*step.inputs, step.output, mask])
    first, second = (found[name] for name in step.inputs)
    assert np.abs(found[step.output]).max() > 127  # these saturate
    np.testing.assert_array_equal(found[mask], first > second)


def test_they_train() -> None:
    """The compared layers train too; entries of tables of conditions stay 0 and 1."""
    training = assert_trains(network(CONDITIONS["above_a_row"]), DATA)
    tables = [n for n in training.finalized().nodes.values() if n.op == "lookup"]
    assert [(spec_of(n).bits, spec_of(n).exponent) for n in tables] == [(1, 0)]
