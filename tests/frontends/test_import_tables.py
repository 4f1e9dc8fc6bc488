"""Every op of the graph that ONNX or TensorFlow calls by the same name is imported under it."""

import onnx
import pytest
import tensorflow as tf

from qgraph.frontends.onnx import ops as onnx_ops
from qgraph.frontends.tf.ops import EVALUATORS as TF_EVALUATORS
from qgraph.frontends.tf.ops import IMPORTERS as TF_IMPORTERS
from qgraph.ir.ops import OPS

NAMES = {
    "ONNX": {s.name for s in onnx.defs.get_all_schemas() if not s.domain},
    "TensorFlow": set(dir(tf.raw_ops)),
}
PLAIN = {op.replace("_", ""): op for op in OPS}
FOLDERS = {"ONNX": "qgraph/frontends/onnx/ops", "TensorFlow": "qgraph/frontends/tf/ops"}
IMPORTERS = {"ONNX": onnx_ops.IMPORTERS, "TensorFlow": TF_IMPORTERS}
EVALUATORS = {"ONNX": onnx_ops.EVALUATORS, "TensorFlow": TF_EVALUATORS}


def same_names(names):
    """Names of a format by the graph's op of that name: `{"leaky_relu": "LeakyRelu"}`."""
    return {PLAIN[name.lower()]: name for name in names if name.lower() in PLAIN}


FORMATS = {kind: same_names(names) for kind, names in NAMES.items()}


@pytest.mark.parametrize("kind", FORMATS)
def test_ops_of_the_same_name_are_imported(kind):
    missing = [
        f"{FOLDERS[kind]}: `{name}` of {kind}, which is `{op}`, has no importer"
        for op, name in FORMATS[kind].items()
        if name not in IMPORTERS[kind]
    ]
    assert not missing, missing


def test_arithmetic_on_shapes_is_the_same_for_both_formats():
    """An op that both formats call by the graph's name is evaluated in both or in neither."""
    missing = [
        f"{FOLDERS[kind]}/shapes.py: `{FORMATS[kind][op]}`, which is `{op}`, has no evaluator"
        for op in FORMATS["ONNX"].keys() & FORMATS["TensorFlow"].keys()
        for kind, other in (("ONNX", "TensorFlow"), ("TensorFlow", "ONNX"))
        if FORMATS[kind][op] not in EVALUATORS[kind] and FORMATS[other][op] in EVALUATORS[other]
    ]
    assert not missing, missing


@pytest.mark.parametrize("kind", FORMATS)
def test_definitions_name_ops_that_the_format_has(kind):
    said = [getattr(op.formats, kind.lower()) for op in OPS.values()]
    said = [name for name in said if name]
    assert set(said) <= NAMES[kind] and len(set(said)) == len(said) > 10


def test_names_are_compared_without_case_and_underscores():
    assert same_names(["LeakyRelu", "Conv2D", "Unheard"]) == {
        "leaky_relu": "LeakyRelu",
        "conv2d": "Conv2D",
    }
