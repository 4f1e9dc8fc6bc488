"""`If` and `Loop` with known conditions and steps."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qgraph.errors import UnsupportedError
from qgraph.frontends.onnx import import_model, read
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph

onnxruntime = pytest.importorskip("onnxruntime")

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
node = helper.make_node
info = helper.make_tensor_value_info


def body(name: str, nodes, inputs, outputs, **arrays) -> onnx.GraphProto:
    held = [numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items()]
    return helper.make_graph(nodes, name, inputs, outputs, held)


def model(nodes, outputs=("y",), opset: int = 17, shape=("N", 3), **arrays) -> onnx.ModelProto:
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = body("net", nodes, [info("x", FLOAT, shape)], results, **arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def compared(made: onnx.ModelProto, feed: np.ndarray = X) -> Graph:
    """The graph, whose results equal those of ONNX Runtime."""
    graph = import_model(read(made))
    session = onnxruntime.InferenceSession(made.SerializeToString())
    wanted = session.run(list(graph.outputs), {"x": feed})
    found = evaluate(graph, {"x": feed})
    for name, array in zip(graph.outputs, wanted, strict=True):
        np.testing.assert_allclose(found[name], array, rtol=1e-6, err_msg=name)
    assert not any(n.op == "opaque" for n in graph.topological())
    return graph


def branches() -> dict[str, onnx.GraphProto]:
    result = [info("r", FLOAT, None)]
    return {
        "then_branch": body("then", [node("Mul", ["a", "k"], ["r"])], [], result,
                            k=np.float32([2.0])),
        "else_branch": body("else", [node("Add", ["a", "a"], ["s"]), node("Relu", ["s"], ["r"])],
                            [], result),
    }  # fmt: skip


@pytest.mark.parametrize("opset", [11, 13, 17])
@pytest.mark.parametrize("taken", [True, False])
def test_the_branch_that_is_taken_is_read(taken, opset) -> None:
    nodes = [node("Neg", ["x"], ["a"]), node("If", ["c"], ["y"], **branches())]
    graph = compared(model(nodes, opset=opset, c=np.asarray(taken)))
    assert ("relu" in {n.op for n in graph.topological()}) is not taken


def test_a_condition_on_shapes_is_known() -> None:
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("Shape", ["x"], ["dims"]),
        node("Gather", ["dims", "last"], ["d"]),
        node("Equal", ["d", "three"], ["c"]),
        node("If", ["c"], ["y"], **branches()),
    ]
    compared(model(nodes, last=np.int64(1), three=np.int64(3)))


def test_a_branch_may_return_an_outer_value() -> None:
    same = body("then", [], [], [info("a", FLOAT, None)])
    other = branches()["else_branch"]
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("If", ["c"], ["b"], then_branch=same, else_branch=other),
        node("Relu", ["b"], ["y"]),
    ]
    graph = import_model(read(model(nodes, c=np.asarray(True))))
    np.testing.assert_array_equal(evaluate(graph, {"x": X})["y"], np.maximum(-X, 0))


def test_branches_may_contain_branches() -> None:
    inner = node("If", ["c"], ["r"], **branches())
    outer = body("then", [node("Abs", ["x"], ["a"]), inner], [], [info("r", FLOAT, None)])
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("If", ["c"], ["z"], then_branch=outer, else_branch=branches()["else_branch"]),
        node("Add", ["z", "a"], ["y"]),
    ]
    made = model(nodes, c=np.asarray(True))
    graph = import_model(read(made))
    np.testing.assert_array_equal(evaluate(graph, {"x": X})["y"], 2 * np.abs(X) - X)


def test_a_condition_on_data_is_refused_by_name() -> None:
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Greater", ["m", "zero"], ["c"]),
        node("If", ["c"], ["y"], **branches()),
    ]
    with pytest.raises(UnsupportedError, match=r"^y: the condition of this `If` depends on"):
        import_model(read(model(nodes, zero=np.float32(0))))


def steps(extra=(), condition="keep") -> onnx.GraphProto:
    """state = relu(state + x * step) in each step, and its negative as a result of the step."""
    nodes = [
        node("Cast", ["i"], ["f"], to=FLOAT),
        node("Mul", ["x", "f"], ["p"]),
        node("Add", ["state", "p"], ["q"]),
        node("Relu", ["q"], ["next"]),
        node("Neg", ["next"], ["row"]),
        *extra,
    ]
    inputs = [info("i", INT64, []), info("keep", BOOL, []), info("state", FLOAT, None)]
    outputs = [info(condition, BOOL, []), info("next", FLOAT, None), info("row", FLOAT, None)]
    return body("body", nodes, inputs, outputs, limit=np.int64(2))


@pytest.mark.parametrize("opset", [11, 13, 17])
def test_steps_of_a_loop_are_written_out(opset) -> None:
    loop = node("Loop", ["trips", "yes", "x"], ["y", "rows"], body=steps())
    made = model([loop], ("y", "rows"), opset, trips=np.int64(4), yes=np.asarray(True))
    graph = compared(made)
    assert sum(n.op == "relu" for n in graph.topological()) == 4


def test_a_condition_ends_a_loop() -> None:
    less = node("Less", ["i", "limit"], ["again"])
    loop = node("Loop", ["", "", "x"], ["y", "rows"], body=steps([less], "again"))
    graph = compared(model([loop], ("y", "rows")))
    assert sum(n.op == "relu" for n in graph.topological()) == 3


def test_no_step_leaves_the_state() -> None:
    loop = node("Loop", ["trips", "", "x"], ["z", ""], body=steps())
    graph = import_model(read(model([loop, node("Neg", ["z"], ["y"])], trips=np.int64(0))))
    np.testing.assert_array_equal(evaluate(graph, {"x": X})["y"], -X)


@pytest.mark.parametrize("trips", [1 << 20, 1 << 62])
def test_too_many_steps_are_refused(trips) -> None:
    loop = node("Loop", ["trips", "", "x"], ["y", ""], body=steps())
    with pytest.raises(UnsupportedError, match="more than 1024 steps"):
        import_model(read(model([loop], trips=np.int64(trips))))


def test_a_number_of_steps_that_depends_on_data_is_refused() -> None:
    nodes = [
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Cast", ["m"], ["trips"], to=INT64),
        node("Loop", ["trips", "", "x"], ["y", ""], body=steps()),
    ]
    with pytest.raises(UnsupportedError, match="the number of steps of this `Loop` depends"):
        import_model(read(model(nodes)))
