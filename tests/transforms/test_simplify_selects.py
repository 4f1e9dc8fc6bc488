import numpy as np
import pytest

from qgraph.compiler import quantize
from qgraph.ir.graph import Graph
from qgraph.transforms.simplify_selects import SimplifySelects
from tests.helpers.evaluate import run_pass
from tests.helpers.graphs import ops


def flags(graph: Graph, *shape: int) -> str:
    return graph.add(
        "greater", graph.input("t", "float32", (None, *shape)), graph.const(np.float32(0))
    )


def selected(condition, *, zeros: int = 0) -> Graph:
    """A select by `condition(graph)` between inputs, or between one and zeros."""
    graph = Graph("net")
    values = [graph.input(name, "float32", (None, 3)) for name in "ab"]
    made = condition(graph)
    if zeros:
        rows = [graph.const(np.zeros((1, 3), np.float32)) for _ in range(zeros)]
        both = [graph.add("select", made, values[0], row) for row in rows]
        graph.outputs["y"] = graph.add("concat", *both, values[1], attrs={"axis": 1})
    else:
        graph.outputs["y"] = graph.add("select", made, *values)
    return graph


def copied(graph: Graph, size: int, axis: int = 1, *, indices=(0, 0, 0)) -> str:
    return graph.add("take", flags(graph, size), attrs={"axis": axis, "indices": indices})


def run(graph: Graph) -> list[str]:
    run_pass(SimplifySelects(), graph, 0)
    return [op for op in ops(graph) if op != "input"]


def test_a_condition_needs_no_copies() -> None:
    assert run(selected(lambda g: copied(g, 1))) == ["greater", "select"]


def test_other_elements_are_still_taken() -> None:
    made = selected(lambda g: copied(g, 2, indices=(0, 0, 0)))
    assert run(made) == ["greater", "take", "select"]


def test_copies_that_give_the_result_its_shape_stay() -> None:
    graph = Graph("net")
    a, b = (graph.const(np.float32(n)) for n in (1, 2))
    graph.outputs["y"] = graph.add("select", copied(graph, 1), a, b)
    assert run(graph) == ["greater", "take", "select"]


def test_a_negation_turns_the_choice() -> None:
    graph = selected(lambda g: g.add("logical_not", flags(g, 3)))
    assert run(graph) == ["greater", "select"]
    assert graph.nodes["select"].inputs[1:] == ("b", "a")


@pytest.mark.parametrize(("number", "left"), [(True, 0), (False, 1)])
def test_a_part_that_always_holds(number, left) -> None:
    made = selected(lambda g: g.add("logical_and", g.const(np.full((1, 3), number)), flags(g, 3)))
    assert run(made).count("logical_and") == left


def test_equal_selects_are_one() -> None:
    assert run(selected(lambda g: flags(g, 3), zeros=3)).count("select") == 1


def test_selects_of_other_constants_stay() -> None:
    graph = selected(lambda g: flags(g, 3), zeros=2)
    other = next(n for n in graph.nodes.values() if n.op == "const" and n.attrs["value"].ndim)
    graph.set_attrs(other.name, value=np.ones((1, 3), np.float32))
    assert run(graph).count("select") == 2


@pytest.mark.parametrize("layer", [False, True])
def test_products_with_conditions_of_inputs_select(layer: bool) -> None:
    """A condition behind a layer has a table, and the product is one of codes."""
    graph = Graph("net")
    values = graph.input("a", "float32", (None, 3))
    weights = graph.const(np.eye(3, dtype=np.float32))
    given = graph.input("t", "float32", (None, 3))
    tested = graph.add("matmul", given, weights) if layer else given
    condition = graph.add("greater", tested, graph.const(np.float32(0)))
    number = graph.add("cast", condition, attrs={"dtype": "float32"})
    graph.outputs["y"] = graph.add("mul", values, number)
    assert run(graph)[-1] == ("mul" if layer else "select")


def test_a_product_with_a_condition_of_a_layer_has_an_integer_form() -> None:
    graph = Graph("net")
    x = graph.input("x", "float32", (None, 4))
    numbers = np.random.default_rng(0).integers(-3, 4, (3, 4, 4)).astype(np.float32)
    first, second, last = map(graph.const, numbers)
    values, tested = (graph.add("matmul", x, weights) for weights in (first, second))
    condition = graph.add("greater", tested, graph.const(np.float32(1)))
    number = graph.add("cast", condition, attrs={"dtype": "float32"})
    graph.outputs["y"] = graph.add("matmul", graph.add("mul", values, number), last)
    samples = {"x": np.random.default_rng(1).normal(size=(32, 4)).astype(np.float32)}
    made = quantize(graph, samples, effort="plain")
    assert not [entry for entry in made.trace.refusals if "stays float" in entry.reason]
