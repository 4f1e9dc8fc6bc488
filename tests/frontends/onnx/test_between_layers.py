"""Ops of ONNX between two layers: all have integers, equal in every form, and can be trained."""

import numpy as np
import pytest
from onnx import ModelProto, helper

from qgraph import quantize
from qgraph.train.model import TrainingGraph
from qgraph.verification.verify import verify
from tests.helpers.c_programs import needs_compiler
from tests.helpers.forms import OWN_PROFILES, missing_tool
from tests.helpers.onnx_graphs import assert_like_runtime, f, imported, ints, model_of
from tests.train.test_training_graph import assert_is_inference

CHANNELS, SIZE = 4, 7
make = helper.make_node
# Profiles that are made for one form. Files for LiteRT with XNNPACK cannot hold `LRN`.
OTHERS = {"tflm": "tflite", "ryzen-ai": "onnx-xint8"}
DILATED = {"kernel_shape": [3, 2], "dilations": [2, 3]}
OPS = {
    "max pool": ("MaxPool", DILATED),
    "max pool, padded": (
        "MaxPool", {**DILATED, "pads": [2, 1, 1, 1], "strides": [2, 1], "ceil_mode": 1}
    ),
    "average pool": ("AveragePool", DILATED),
    "average pool, padded": ("AveragePool", {**DILATED, "pads": [1, 1, 0, 1], "strides": [2, 1]}),
    "average pool, counted": (
        "AveragePool", {**DILATED, "pads": [1, 1, 0, 1], "count_include_pad": 1}
    ),
    "local response": ("LRN", {"size": 3, "alpha": 2.0, "beta": 0.75}),
    "log-softmax": ("LogSoftmax", {}),
    "log-softmax of channels": ("LogSoftmax", {"axis": 1}),
    "log of sum": ("ReduceLogSumExp", {"axes": [1]}),
    "log of sum, two axes": ("ReduceLogSumExp", {"axes": [2, 3], "keepdims": 0}),
    "length": ("ReduceL2", {"axes": [1], "keepdims": 0}),
    "squares": ("ReduceSumSquare", {"axes": [3, 2]}),
}  # fmt: skip


def network() -> ModelProto:
    """A convolution, and a layer of the results of each op; the layers are added up."""
    nodes = [make("Conv", ["x", "w"], ["h"], kernel_shape=[3, 3], pads=[1] * 4)]
    constants, sums = {"w": f(CHANNELS, 3, 3, 3) / 2}, ["h0"]
    for i, (kind, attrs) in enumerate(OPS.values()):
        given = {key: value for key, value in attrs.items() if key != "axes"}
        names = ["h", f"axes{i}"] if "axes" in attrs else ["h"]
        constants |= {f"axes{i}": ints(*attrs["axes"])} if "axes" in attrs else {}
        own = [make(kind, names, [f"z{i}"], **given), make("Flatten", [f"z{i}"], [f"rows{i}"])]
        probe = model_of([nodes[0], *own], {"x": (2, 3, SIZE, SIZE)}, [f"rows{i}"], constants, 19)
        width = imported(probe).types[f"rows{i}"].shape[1]
        constants[f"v{i}"] = f(width, 3) / np.float32(width**0.5)
        nodes += [*own, make("MatMul", [f"rows{i}", f"v{i}"], [f"h{i}"])]
        sums += [f"s{i}"] if i else []
        nodes += [make("Add", [sums[-2], f"h{i}"], [f"s{i}"])] if i else []
    return model_of(nodes, {"x": ("N", 3, SIZE, SIZE)}, sums[-1:], constants, 19)


@needs_compiler
@pytest.mark.parametrize("profile", ["graffitist-int8", *OTHERS])
def test_all_have_integers(tmp_path, profile) -> None:
    if (form := OTHERS.get(profile)) and (missing := missing_tool(form)):
        pytest.skip(missing)
    model, data = network(), {"x": f(16, 3, SIZE, SIZE)}
    graph = assert_like_runtime(model, data)
    result = quantize(graph, data, effort="plain", profile=profile)
    assert not [r.reason for r in result.trace.refusals if r.reason.startswith("stays float")]
    assert result.facts.agreement.sqnr > 20
    found = verify(result.save(tmp_path / "out"))
    assert found.equal
    if profile == "graffitist-int8":
        assert not set(found.refused) - {*OWN_PROFILES}
        assert_is_inference(TrainingGraph(result.graph), data)
    else:
        assert OTHERS[profile] not in found.refused
