"""Ops on elements at constant places, against ONNX Runtime."""

import numpy as np
import pytest

from qgraph.errors import GraphError
from tests.helpers.onnx_graphs import assert_like_runtime, f, imported, ints, one_op

TABLE = f(3, 4, 5)
PLACES = np.int64([[[0, -1, 2]], [[1, 1, 0]]])
LABELS = np.int64([1, 0, 2, 2])
CASES = {
    **{f"GatherElements {a}": one_op("GatherElements", TABLE, PLACES, axis=a) for a in (0, -1)},
    "GatherND": one_op("GatherND", TABLE, np.int64([[0, -1], [2, 1]])),
    "GatherND batch": one_op("GatherND", TABLE, np.int64([[0], [3], [1]]), batch_dims=1),
    "Compress": one_op("Compress", TABLE, np.array([True, False, True])),
    "Compress axis": one_op("Compress", TABLE, np.array([False, True, True]), axis=1),
    "ScatterElements": one_op("ScatterElements", TABLE, PLACES, f(2, 1, 3), axis=2),
    **{
        f"ScatterElements {r}": one_op(
            "ScatterElements", TABLE, PLACES, f(2, 1, 3), axis=1, reduction=r, opset=18
        )
        for r in ("add", "mul", "max", "min")
    },
    "ScatterND": one_op("ScatterND", TABLE, np.int64([[0, 1], [2, -1]]), f(2, 5)),
    "Trilu": one_op("Trilu", TABLE, np.int64(1)),
    "Trilu lower": one_op("Trilu", TABLE, upper=0),
    "CumSum": one_op("CumSum", TABLE, np.int64(1)),
    "CumSum other": one_op("CumSum", TABLE, np.int64(-1), exclusive=1, reverse=1),
    "Hardmax": one_op("Hardmax", np.sign(TABLE), axis=1),
    "Gather 2-d": one_op("Gather", TABLE, np.int64([[0, -1], [2, 2]]), axis=1),
    "Tile": one_op("Tile", TABLE, ints(2, 30, 3)),
    **{
        f"{loss} {r}": one_op(loss, f(4, 3), LABELS, np.float32([1, 2, 3]), reduction=r)
        for loss in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
        for r in ("none", "sum", "mean")
    },
    "SoftmaxCrossEntropyLoss parts": one_op(
        "SoftmaxCrossEntropyLoss", f(4, 3), LABELS, ignore_index=2, outputs=("y", "log")
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_op_computes_what_onnx_runtime_does(case):
    shape = [d.dim_value for d in CASES[case].graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(5).integers(-3, 4, shape).astype(np.float32)
    assert_like_runtime(CASES[case], {"x": x})


@pytest.mark.parametrize("axis", [0, 1])
def test_one_hot(axis):
    values = np.float32([-1, 2])
    model = one_op("OneHot", np.int64([2, -1, 0, 5]), np.int64(4), values, axis=axis)
    assert_like_runtime(model, {"x": np.int64([2, -1, 0, 5])})


def test_an_index_outside_is_an_error():
    for op, indices in (("GatherElements", PLACES + 5), ("GatherND", np.int64([[9]]))):
        with pytest.raises(GraphError, match="an index outside of"):
            imported(one_op(op, TABLE, indices))
