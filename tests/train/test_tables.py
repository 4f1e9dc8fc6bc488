"""Tables in training: every entry is that of inference, also with 16 bits on both sides."""

import numpy as np
import pytest

from qgraph import quantize
from qgraph.ir.graph import Graph
from qgraph.ir.ops.structure import TableAttrs
from qgraph.ir.ops.structure import table as entries_of
from qgraph.ir.reading import spec_of
from qgraph.train.model import TrainingGraph


@pytest.mark.parametrize("function", ["tanh", "sigmoid"])
def test_each_entry_of_a_table_is_rounded_once(function):
    """A number rounded to float32 first may be half of a code more: another code of 16 bits."""
    graph = Graph("table")
    x = graph.add("matmul", graph.input("x", "float32", (None, 1)), graph.const(np.float32([[1]])))
    graph.outputs["y"] = graph.add(function, x)
    samples = np.linspace(-7, 7, 64, dtype=np.float32)[:, None]
    calibrated = quantize(graph, {"x": samples}, profile="policy-int8", plan="plain").graph
    (node,) = (n for n in calibrated.topological() if n.op == "lookup")
    attrs = node.typed(TableAttrs)
    exponent = spec_of(calibrated.producer(node.inputs[0])).exponent
    codes = np.arange(attrs.domain.lo, attrs.domain.hi + 1)
    assert len(codes) == 2**16
    inputs = np.ldexp(codes, -exponent).astype(np.float32)[:, None]
    values, _ = TrainingGraph(calibrated).values({"x": inputs})
    seen = np.ldexp(values[node.inputs[0]].numpy()[:, 0], exponent).astype(np.int64)
    assert len(np.unique(seen)) > 2**15
    entries = entries_of(attrs, exponent)[seen - attrs.domain.lo]
    wanted = np.ldexp(entries, -attrs.spec.exponent)
    assert np.array_equal(values[node.name].numpy()[:, 0], wanted)
