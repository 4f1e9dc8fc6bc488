"""Arithmetic, activations and reductions against ONNX Runtime, with odd attributes."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from qgraph.errors import GraphError
from qgraph.interpret import evaluate
from tests.helpers.graphs import opaque_kinds
from tests.helpers.onnx_graphs import (
    assert_like_runtime,
    f,
    feed_of,
    imported,
    ints,
    one_op,
    positive,
)

IMAGE, ROW = f(2, 4, 9, 7), f(3, 6)
NUMBERS = np.float32([[-1, 0, 1, np.inf, -np.inf, np.nan], [0, 0, 2, 1, np.inf, np.nan]])
FLAGS = np.array([[True, False], [False, True]])

ELEMENTWISE = {
    **{op: one_op(op, ROW, f(3, 6)) for op in ("Add", "Sub", "Mul", "Max", "Min", "Sum", "Mean")},
    "Div": one_op("Div", ROW, positive(6)),
    "Pow": one_op("Pow", positive(3, 6), np.float32(1.5)),
    "Pow_int": one_op("Pow", ROW, np.int64(2)),
    "Add_channels": one_op("Add", IMAGE, f(4, 1, 1)),
    "Sum_3": one_op("Sum", ROW, f(3, 6), f(6)),
    "Max_1": one_op("Max", ROW),
    "Mean_3": one_op("Mean", ROW, f(3, 6), f(6)),
    **{op: one_op(op, ROW) for op in ("Neg", "Abs", "Exp", "Floor", "Reciprocal")},
    **{op: one_op(op, positive(3, 6)) for op in ("Log", "Sqrt")},
    **{op: one_op(op, ROW) for op in ("Ceil", "Round", "Sign", "Sin", "Cos", "Tan", "Atan")},
    **{op: one_op(op, ROW) for op in ("Sinh", "Cosh", "Asinh")},
}
WIDE = 4 * f(5, 12)
ACTIVATIONS = {
    **{
        op: one_op(op, WIDE)
        for op in (
            "Relu",
            "Sigmoid",
            "Tanh",
            "Softplus",
            "Softsign",
            "HardSwish",
            "Elu",
            "Selu",
            "HardSigmoid",
            "LeakyRelu",
            "Celu",
            "Softmax",
            "LogSoftmax",
        )
    },
    "Mish": one_op("Mish", WIDE, opset=18),
    "Gelu": one_op("Gelu", WIDE, opset=20),
    "Gelu_tanh": one_op("Gelu", WIDE, opset=20, approximate="tanh"),
    "Elu_alpha": one_op("Elu", WIDE, alpha=0.3),
    "Selu_other": one_op("Selu", WIDE, alpha=0.3, gamma=2.0),
    "Celu_alpha": one_op("Celu", WIDE, alpha=0.3),
    "LeakyRelu_alpha": one_op("LeakyRelu", WIDE, alpha=0.3),
    "HardSigmoid_other": one_op("HardSigmoid", WIDE, alpha=0.3, beta=0.4),
    "HardSigmoid_sixth": one_op("HardSigmoid", WIDE, alpha=1 / 6, beta=0.5),
    "PRelu_one": one_op("PRelu", WIDE, np.float32([0.3])),
    "PRelu_channels": one_op("PRelu", IMAGE, np.abs(f(4, 1, 1)) % 1),
    "PRelu_mixed": one_op("PRelu", IMAGE, 3 * f(4, 1, 1)),
    "ThresholdedRelu": one_op("ThresholdedRelu", WIDE),
    "ThresholdedRelu_alpha": one_op("ThresholdedRelu", WIDE, alpha=-0.5),
    "Shrink": one_op("Shrink", WIDE),
    "Shrink_soft": one_op("Shrink", WIDE, lambd=1.5, bias=1.5),
    "Clip": one_op("Clip", WIDE, np.float32(-1), np.float32(2.5)),
    "Clip_6": one_op("Clip", WIDE, np.float32(0), np.float32(6)),
    "Clip_positive": one_op("Clip", WIDE, np.float32(0)),
    "Clip_above": one_op("Clip", WIDE, None, np.float32(1)),
    "Clip_none": one_op("Clip", WIDE),
    "Clip_9": one_op("Clip", WIDE, opset=9, min=0.0, max=6.0),
    "Clip_9_below": one_op("Clip", WIDE, opset=9, min=0.5),
    "Softmax_axis": one_op("Softmax", IMAGE, axis=1),
    "Softmax_9": one_op("Softmax", IMAGE, opset=9),
    "Softmax_11_axis": one_op("Softmax", IMAGE, opset=11, axis=2),
    "Softmax_11_last": one_op("Softmax", IMAGE, opset=11, axis=-1),
    "Softmax_9_ones": one_op("Softmax", f(2, 5, 1, 1), opset=9),
    "LogSoftmax_axis": one_op("LogSoftmax", IMAGE, axis=1),
}
REDUCTIONS = {
    **{
        f"{op}_{name}": one_op(op, positive(2, 3, 4), opset=opset, **attrs)
        for op in (
            "ReduceMean",
            "ReduceMax",
            "ReduceMin",
            "ReduceL1",
            "ReduceL2",
            "ReduceSumSquare",
            "ReduceLogSum",
            "ReduceLogSumExp",
        )
        for name, attrs, opset in (
            ("all", {}, 11),
            ("one", {"axes": [1]}, 13),
            ("two", {"axes": [-1, 0], "keepdims": 0}, 12),
        )
    },
    "ReduceMean_18": one_op("ReduceMean", IMAGE, ints(2, 3), opset=18),
    "ReduceSum_11": one_op("ReduceSum", IMAGE, axes=[2, 3], keepdims=0, opset=11),
    "ReduceSum_13": one_op("ReduceSum", IMAGE, ints(-1), opset=13),
    "ReduceSum_noop": one_op("ReduceSum", IMAGE, noop_with_empty_axes=1, opset=13),
    "ArgMax": one_op("ArgMax", IMAGE, axis=1),
    "ArgMax_last": one_op("ArgMax", np.sign(IMAGE), axis=2, select_last_index=1),
    "ArgMin": one_op("ArgMin", IMAGE, axis=1),
    "ArgMin_last": one_op("ArgMin", IMAGE, axis=-1, keepdims=0, select_last_index=1),
    "ArgMax_flat": one_op("ArgMax", IMAGE, axis=-1, keepdims=0),
}
CASES = {**ELEMENTWISE, **ACTIVATIONS, **REDUCTIONS}


@pytest.mark.parametrize("case", CASES)
def test_op_computes_what_onnx_runtime_does(case):
    assert_like_runtime(CASES[case], {"x": feed_of(CASES[case])})


LOGIC = {
    **{
        op: one_op(op, NUMBERS, np.float32([0, 0, 1, np.inf, np.nan, np.nan]))
        for op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    },
    **{op: one_op(op, FLAGS, np.array([False, True])) for op in ("And", "Or", "Xor", "Equal")},
    "Not": one_op("Not", FLAGS),
    "IsNaN": one_op("IsNaN", NUMBERS),
    **{
        f"IsInf_{a}{b}": one_op("IsInf", NUMBERS, detect_negative=a, detect_positive=b)
        for a, b in ((1, 1), (0, 1), (1, 0))
    },
}


@pytest.mark.parametrize("case", LOGIC)
def test_logic_of_odd_numbers_is_onnx_runtimes(case):
    x = FLAGS if LOGIC[case].graph.input[0].type.tensor_type.elem_type == 9 else NUMBERS
    assert_like_runtime(LOGIC[case], {"x": x})


NOTHING = np.zeros((2, 0, 3), np.float32)


@pytest.mark.parametrize("axes", [ints(1), ints(0), None])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(
    "op",
    ["ReduceMax", "ReduceMin", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare",
     "ReduceLogSum"],
)  # fmt: skip
def test_reductions_over_nothing_are_onnxs(op, keepdims, axes):
    model = one_op(op, NOTHING, axes, opset=20, inputs=(2, "n", 3), keepdims=keepdims)
    graph = imported(model)
    (found,) = evaluate(graph, {"x": NOTHING}).values()
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": NOTHING})
    assert opaque_kinds(graph) == []
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    assert np.array_equal(found, wanted)


def test_argmax_over_nothing_is_an_error_that_names_the_node():
    graph = imported(one_op("ArgMax", NOTHING, axis=1, keepdims=0, inputs=(2, "n", 3)))
    with pytest.raises(GraphError, match="y: argmax along axis 1"):
        evaluate(graph, {"x": NOTHING})


def test_a_mean_of_integers_is_not_a_sum():
    """ONNX has no such mean, but files are not checked for it: its reference computes one."""
    graph = imported(one_op("Mean", np.int64([1, 2]), np.int64([3, 4])))
    assert opaque_kinds(graph) == ["Mean"]
    found = evaluate(graph, {graph.inputs[0]: np.int64([1, 2])})
    assert [array.tolist() for array in found.values()] == [[2, 3]]
