"""Every attribute, optional input and optional output of every op that is read, in every version.

The schemas of the installed `onnx` say what there is. Nodes are ONNX's own tests with one thing
changed; what is read of them has to be what ONNX Runtime (or ONNX's reference) computes, or the
node is left to its source, or refused.
"""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from onnx import defs
from onnx.reference import ReferenceEvaluator

from qgraph.errors import QGraphError
from qgraph.frontends.onnx import import_model, read
from qgraph.interpret import evaluate
from tests.helpers.graphs import opaque_kinds
from tests.helpers.onnx_attributes import (
    changed,
    examples,
    read_ops,
    schemas_of,
    values_of,
    with_inputs,
    with_outputs,
)
from tests.helpers.onnx_graphs import runtime

Option = defs.OpSchema.FormalParameterOption
EXAMPLES = 2  # of each version of an op
# Never read: every value but the default is refused, or left to the op's source.
LEFT = {("Constant", "sparse_value")}


def expected(example):
    """The outputs of the model; None if no executor runs it."""
    for run in (runtime, reference):
        try:
            return list(run(example.model, example.feeds).values())
        except Exception:  # a change may make nonsense of a node
            continue
    return None


def reference(model, feeds):
    outputs = [o.name for o in model.graph.output]
    return dict(zip(outputs, ReferenceEvaluator(model).run(None, feeds), strict=True))


def verdict(example, whole=None):
    """`read`, `opaque`, `refused` or `senseless`; asserts that results are right if the model is
    read.

    `whole`: all outputs of an example that omits some.
    """
    try:
        graph = import_model(read(example.model))
        found = evaluate(graph, {k: v for k, v in example.feeds.items() if k in graph.inputs})
    except QGraphError:
        return "refused"
    if opaque_kinds(graph):
        return "opaque"
    wanted = expected(whole or example)
    if wanted is None:
        return "senseless"
    if whole is not None:
        wanted = [b for o, b in zip(example.node.output, wanted, strict=True) if o]
    for a, b in zip(found.values(), wanted, strict=True):
        b = np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), example.node
        if b.dtype.kind == "f":
            np.testing.assert_allclose(a, b, 1e-4, 1e-5, err_msg=str(example.node))
        else:
            assert np.array_equal(a, b), example.node
    return "read"


@pytest.mark.parametrize("op", read_ops())
def test_every_attribute_is_read_or_the_node_is_not(op):
    for schema in schemas_of(op):
        for name, attribute in schema.attributes.items():
            verdicts = Counter(
                verdict(changed(example, name, value))
                for example in examples(schema, EXAMPLES)
                for value in values_of(op, attribute)
            )
            message = f"no example of {op} {schema.since_version} with {name} is read: {verdicts}"
            assert verdicts["read"] or (op, name) in LEFT, message


def optional_inputs(schema):
    return [i for i, formal in enumerate(schema.inputs) if formal.option == Option.Optional]


@pytest.mark.parametrize("op", [op for op in read_ops() if optional_inputs(schemas_of(op)[-1])])
def test_every_optional_input_is_read_or_the_node_is_not(op):
    newest = len(schemas_of(op)[-1].inputs)
    for schema in [s for s in schemas_of(op) if len(s.inputs) == newest]:
        optional = optional_inputs(schema)
        needed = [i for i in range(newest) if i not in optional]
        read = Counter()
        for size in range(len(optional) + 1):
            for chosen in combinations(optional, size):
                example = with_inputs(schema, [*needed, *chosen])
                reached = verdict(example) == "read"
                read.update((i, i in chosen) for i in optional if reached)
        assert set(read) == {(i, given) for i in optional for given in (True, False)}


SEVERAL = [op for op in read_ops() if len(schemas_of(op)[-1].outputs) > 1 or op == "Split"]


@pytest.mark.parametrize("op", SEVERAL)
@pytest.mark.parametrize("outputs", [["", "b"], ["a", "b"], ["a", ""]])
def test_outputs_may_be_left_out(op, outputs):
    for schema in schemas_of(op):
        for example in examples(schema, 3):
            verdict(with_outputs(example, outputs), whole=with_outputs(example, ["a", "b"]))
