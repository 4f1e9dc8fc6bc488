"""Float ops as operators of TFLite compute the same as the graph, in every executor."""

from dataclasses import replace

import numpy as np
import pytest

from qgraph.backends.tflite.arithmetic import LITERT, TFLM, TfliteExecutor
from qgraph.backends.tflite.executors import sessions_of
from qgraph.backends.tflite.floats.float_lowerings import FLOAT_LOWERINGS, write_float
from qgraph.backends.tflite.floats.float_writer import LACKED, FloatWriter
from qgraph.backends.tflite.model_builder import TfliteModelBuilder
from qgraph.errors import UnsupportedError
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import TensorType
from tests.backends.onnx.test_float_models import feeds_of
from tests.helpers.op_graphs import CASES

for package in ("tflite", "ai_edge_litert", "tflite_micro"):
    pytest.importorskip(package, reason="pip install 'qgraph-compiler[tflite]'")

BATCH, OPEN_SIZE = 2, 5
OF_EXECUTORS = pytest.mark.parametrize("arithmetic", [LITERT, TFLM], ids=lambda a: a.name)
WRITTEN = [
    (op, i) for op in FLOAT_LOWERINGS.lowered for i in range(len(CASES[op])) if op != "opaque"
]
# What the cases have that some executors lack; everything else must be written.
REFUSALS = (
    "no alpha", "does not have", "has type int64", "filters are computed", "in groups",
    "of int32", "has no elements", "to a scalar", "wider than the tensor",
)  # fmt: skip


def sized(graph: Graph) -> Graph:
    nodes = []
    for name in graph.inputs:
        kind = graph.types[name]
        sizes = [BATCH, *[OPEN_SIZE] * len(kind.shape)]
        shape = tuple(sizes[i] if d is None else d for i, d in enumerate(kind.shape))
        node = graph.nodes[name]
        nodes.append(replace(node, attrs={**node.attrs, "type": TensorType(kind.dtype, shape)}))
    graph.replace_all(nodes)
    return graph


def written(graph: Graph, arithmetic) -> TfliteModelBuilder:
    model = TfliteModelBuilder("floats")
    writer = FloatWriter(graph, model, arithmetic)
    for name in graph.inputs:
        made = model.tensor(name, writer.shape(name), writer.dtype(name))
        model.inputs[name] = made
        writer.put(name, made)
    for node in graph.topological():
        if node.op not in ("input", "const"):
            write_float(writer, node)
    model.outputs["y"] = writer.get(graph.outputs["y"])
    return model


def assert_computes(graph: Graph, arithmetic) -> None:
    model, feeds = written(graph, arithmetic), feeds_of(graph)
    with np.errstate(all="ignore"):
        (wanted,) = evaluate(graph, feeds).values()
    for executor in arithmetic.executors:
        for session in sessions_of(executor, model.model({})):
            session.run([*feeds.values()])
            found = session.tensor(model.outputs["y"])
            assert found.shape == wanted.shape and found.dtype == wanted.dtype
            scale = np.abs(wanted.astype(np.float64)).max(initial=0)
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * scale)


@OF_EXECUTORS
@pytest.mark.parametrize(("op", "index"), WRITTEN)
def test_an_op_computes_the_same_or_is_refused_by_name(op: str, index: int, arithmetic) -> None:
    graph = Graph("net")
    graph.outputs["y"] = CASES[op][index](graph)
    try:
        assert_computes(sized(graph), arithmetic)
    except UnsupportedError as error:
        assert error.node in graph.nodes
        assert any(reason in error.message for reason in REFUSALS), error


@pytest.mark.parametrize("op", FLOAT_LOWERINGS.lowered)
def test_every_op_is_written_in_some_case(op: str) -> None:
    if op == "opaque":
        return
    done = 0
    for build in CASES[op]:
        graph = Graph("net")
        graph.outputs["y"] = build(graph)
        try:
            done += bool(written(sized(graph), LITERT))
        except UnsupportedError:
            continue
    assert done


@pytest.mark.parametrize("executor", LACKED)
def test_executors_lack_what_is_stated(executor: TfliteExecutor, monkeypatch) -> None:
    """So the list is as short as possible."""
    monkeypatch.setattr("qgraph.backends.tflite.floats.float_writer.LACKED", {})
    only = replace(LITERT, executors=(executor,))
    for op in LACKED[executor]:
        graph = Graph("net")
        x = graph.input("x", "float32", (2, 3))
        attrs = {"ELU": {"alpha": 1.0}, "GELU": {"approximate": False}}.get(op, {})
        inputs = (x, graph.const(np.float32(3))) if op == "POW" else (x,)
        graph.outputs["y"] = graph.add(op.lower(), *inputs, attrs=attrs)
        with pytest.raises(Exception, match=r"find op|op for builtin|failed|resolve"):
            assert_computes(graph, only)


def test_an_op_that_tflite_lacks_is_refused_by_name() -> None:
    graph = Graph("net")
    graph.outputs["y"] = graph.add("erf", graph.input("x", "float32", (2, 3)), name="bell")
    with pytest.raises(UnsupportedError, match="bell: has no operator for a float `erf`"):
        written(graph, LITERT)
