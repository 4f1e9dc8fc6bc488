"""Nodes with one changed attribute, one more optional input or one more optional output."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from benchmarks.onnx_nodes import node_cases
from qgraph.frontends.onnx.model import MIN_OPSET
from qgraph.frontends.onnx.ops import EVALUATORS, IMPORTERS

Kind = defs.OpSchema.AttrType
WINDOWS = (
    [0], [1], [2], [-1], [1, 1], [2, 2], [3, 3], [1, 2], [0, 1], [1, 0], [0, 2], [2, 0],
    [0, 1, 2, 3], [1, 0, 0, 1], [1, 1, 1, 1], [0, 0, 1, 0, 0, 0, 0, 1],
)  # fmt: skip
VALUES = {
    Kind.INT: (0, 1, 2, 3, -1),
    Kind.FLOAT: (0.3, 2.5),
    Kind.INTS: WINDOWS,
    Kind.FLOATS: ([1.0, 1.0, 2.0, 2.0], [0.5]),
    Kind.STRINGS: (["a"], ["Relu"], ["Relu", "Softsign"], ["Relu", "Softsign", "Elu"]),
    Kind.TENSOR: (numpy_helper.from_array(np.float32([3])),),
}
# For attributes that are text, every value that a schema allows.
TEXTS = {
    "auto_pad": ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"),
    "approximate": ("none", "tanh"),
    "nearest_mode": ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"),
    "coordinate_transformation_mode": (
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
        "tf_crop_and_resize", "tf_half_pixel_for_nn",
    ),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "reduction": ("none", "sum", "mean", "add", "mul", "max", "min"),
    "round_mode": ("up", "down", "nearest"),
    "direction": ("forward", "reverse", "bidirectional"),
    "value_string": ("a",),
    "equation": ("ij->ji", "ij->i", "...ii->...i", "i,i", "bij,bjk->bik", "i...->...i", "->"),
}  # fmt: skip
MODES = {
    "DepthToSpace": ("DCR", "CRD"),
    "SpaceToDepth": ("DCR", "CRD"),
    "Pad": ("constant", "reflect", "edge", "wrap"),
    "Resize": ("nearest", "linear", "cubic"),
    "Upsample": ("nearest", "linear"),
}
ROW = np.float32([[-1.5, 0.5, 2.0]])
IMAGE = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 4)
SIZES = np.int64([2, 3])
TOKENS = np.linspace(-1, 2, 24, dtype=np.float32).reshape(1, 2, 3, 4)  # one sample, two heads
# For ops whose tests in `onnx` do not reach the importer or not all of their attributes: inputs, of
# which `x` is an input, and attributes.
OWN: dict[Any, tuple[dict[str, Any], dict[str, Any]]] = {
    ("Resize", 10): ({"x": IMAGE, "scales": np.float32([1, 1, 2, 2])}, {}),
    ("Upsample", 7): ({"x": IMAGE}, {"scales": [1.0, 1.0, 2.0, 2.0]}),
    ("Slice", 1): ({"x": ROW}, {"starts": [0, 0], "ends": [1, 2]}),
    ("Pad", 2): ({"x": IMAGE}, {"pads": [0, 0, 1, 0, 0, 0, 0, 1]}),
    "Attention": (
        {"x": TOKENS[0], "k": TOKENS[0] * 2, "v": 1 - TOKENS[0]},
        {"q_num_heads": 2, "kv_num_heads": 2},
    ),
    "Constant": ({}, {}),
    "Cast": ({"x": ROW}, {"to": 7}),
    "CastLike": ({"x": ROW, "like": np.int64([1])}, {}),
    "ConstantOfShape": ({"shape": SIZES}, {}),
    "CumSum": ({"x": ROW, "axis": np.int64(1)}, {}),
    "OneHot": (
        {"x": np.int64([0, 2]), "depth": np.int64(3), "values": np.float32([0.5, 2])}, {},
    ),
    "LayerNormalization": (
        {"x": IMAGE, "scale": np.float32([1, 2, 3, 4]), "b": np.float32([4, 3, 2, 1])}, {},
    ),
    "Mod": ({"a": np.int64([7, -7]), "b": np.int64([3, 3])}, {}),
    "Range": ({"a": np.float32(1), "b": np.float32(6), "c": np.float32(2)}, {}),
    **{("ReduceProd", v): ({"sizes": SIZES}, {}) for v in (1, 11, 13, 18)},
    ("Split", 2): ({"x": np.arange(2, dtype=np.float32)}, {}),
    ("Split", 11): ({"x": np.arange(2, dtype=np.float32)}, {}),
    "Transpose": ({"x": ROW}, {}),
}  # fmt: skip


AXES = {"x": ROW, "axes": np.int64([1])}
LABELLED = {"x": ROW, "labels": np.int64([1]), "weights": np.float32([1, 2, 3])}


def _recurrent(gates: int, *more: tuple[str, Any]) -> dict[str, Any]:
    """Two steps of one unit on three features."""
    weights = np.linspace(-1, 1, gates * 3, dtype=np.float32).reshape(1, gates, 3)
    state = np.float32([[[0.5]]])
    return {
        "x": np.stack([ROW, -ROW]), "w": weights, "r": weights[..., :1],
        "b": np.full((1, 2 * gates), 0.25, np.float32), "lengths": np.int32([2]), "h": state,
        **dict(more),
    }  # fmt: skip


CELL = (("c", np.float32([[[-0.75]]])), ("p", np.float32([[0.5, 1.0, -0.5]])))
# For ops with optional inputs: a node with all of them.
WHOLE: dict[str, dict[str, Any]] = {
    "Attention": {
        "x": TOKENS, "k": TOKENS[..., ::-1], "v": TOKENS[:, ::-1],
        "mask": np.float32([0, 1, 0]), "past_k": TOKENS, "past_v": TOKENS,
        "lengths": np.int64([2]),
    },
    "Clip": {"x": ROW, "min": np.float32(-0.5), "max": np.float32(1.5)},
    "Conv": {"x": IMAGE, "w": np.ones((2, 1, 2, 2), np.float32), "b": np.float32([1, 2])},
    "ConvTranspose": {"x": IMAGE, "w": np.ones((1, 2, 2, 2), np.float32), "b": np.float32([1, 2])},
    "Dropout": {"x": ROW, "ratio": np.float32(0.9), "training": np.bool_(False)},
    "GRU": _recurrent(3),
    "LSTM": _recurrent(4, *CELL),
    "RNN": _recurrent(1),
    "Gemm": {"x": ROW, "b": np.ones((3, 2), np.float32), "c": np.float32([1, 2])},
    "LayerNormalization": OWN["LayerNormalization"][0],
    "Pad": {"x": ROW[0], "pads": SIZES, "value": np.float32(9), "axes": np.int64([0])},
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceMax", "ReduceMean"), AXES),
    **dict.fromkeys(("ReduceMin", "ReduceSum", "ReduceSumSquare", "ReduceLogSumExp"), AXES),
    "NegativeLogLikelihoodLoss": LABELLED,
    "SoftmaxCrossEntropyLoss": LABELLED,
    "Trilu": {"x": IMAGE, "k": np.int64(1)},
    "ReduceProd": {"sizes": SIZES, "axes": np.int64([0])},
    "Resize": {
        "x": IMAGE, "roi": np.zeros(8, np.float32), "scales": np.float32([1, 1, 2, 2]),
        "sizes": np.int64([1, 1, 4, 8]),
    },
    "Slice": {
        "x": ROW, "starts": np.int64([2]), "ends": np.int64([0]), "axes": np.int64([1]),
        "steps": np.int64([-1]),
    },
    "Split": {"x": np.arange(2, dtype=np.float32), "split": np.int64([2])},
    "Squeeze": {"x": IMAGE, "axes": np.int64([0])},
}  # fmt: skip


@dataclass(frozen=True)
class Example:
    """A model of one node, and data for its first inputs; other inputs are constants."""

    model: Any
    feeds: dict[str, Any]

    @property
    def node(self) -> Any:
        return self.model.graph.node[0]


def read_ops() -> list[str]:
    """Ops of ONNX that have an importer or an evaluator, without graphs inside."""
    return sorted(op for op in {*IMPORTERS, *EVALUATORS} if defs.has(op) and not _has_graph(op))


def _has_graph(op: str) -> bool:
    return any(a.type == Kind.GRAPH for a in defs.get_schema(op).attributes.values())


def schemas_of(op: str) -> list[Any]:
    """The op's schemas that apply to models of supported opsets, oldest first."""
    found = {
        defs.get_schema(op, opset, "").since_version: defs.get_schema(op, opset, "")
        for opset in range(MIN_OPSET, defs.onnx_opset_version() + 1)
        if _existed(op, opset)
    }
    return [schema for _, schema in sorted(found.items()) if not schema.deprecated]


def _existed(op: str, opset: int) -> bool:
    try:
        return bool(defs.get_schema(op, opset, ""))
    except defs.SchemaError:
        return False


@cache
def node_examples() -> dict[str, list[Any]]:
    """ONNX's own tests of a single node, by op; those with few and simple types come first."""
    found = defaultdict(list)
    for case in node_cases():
        if len(case.model.graph.node) == 1 and not case.model.graph.initializer:
            found[case.model.graph.node[0].op_type].append(case)
    return found


def examples(schema: Any, most: int) -> Iterator[Example]:
    """Nodes of the op by `schema`: without inputs and attributes that it does not have."""
    count = 0
    own = OWN.get((schema.name, schema.since_version), OWN.get(schema.name))
    if own is not None:
        given, attrs = own
        node = helper.make_node(schema.name, list(given), ["y"], **attrs)
        yield model_of_node(node, given, schema.since_version, [n for n in given if n == "x"])
    for case in node_examples().get(schema.name, ()):
        feeds = list(case.data_sets[0][0])
        if own is None and count < most and all(_plain(f) for f in feeds):
            made = _of_version(case, feeds, schema)
            if made is not None:
                count += 1
                yield made


def _plain(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.name in (
        "float32", "int64", "int32", "bool", "float64", "uint8",
    )  # fmt: skip


def _of_version(case: Any, feeds: list[Any], schema: Any) -> Example | None:
    old = case.model.graph.node[0]
    names = list(old.input)[: max(schema.max_input, 0)]
    given = dict(zip([n for n in old.input if n], feeds, strict=False))
    attrs = {a.name: helper.get_attribute_value(a) for a in old.attribute}
    kept = {key: value for key, value in attrs.items() if key in schema.attributes}
    for i, (name, formal) in enumerate(zip(names, schema.inputs, strict=False)):
        if not name and formal.option == defs.OpSchema.FormalParameterOption.Single:
            names[i] = f"none{i}"  # an output that was needed once is optional now
            given[names[i]] = np.float32([])
    node = helper.make_node(schema.name, names, list(old.output), **kept)
    present = [n for n in names if n]
    fed = [*(n for n in present if given[n].dtype.kind == "f"), *present][:1]
    return model_of_node(node, {n: given[n] for n in present}, schema.since_version, fed)


def model_of_node(node: Any, given: dict[str, Any], version: int, fed: list[str]) -> Example:
    """`given` are the node's inputs; those that are not `fed` are constants."""
    infos = [_info(n, given[n]) for n in fed]
    kept = [numpy_helper.from_array(a, n) for n, a in given.items() if n not in fed]
    results = [helper.make_empty_tensor_value_info(o) for o in node.output if o]
    graph = helper.make_graph([node], "g", infos, results, kept)
    opset = max(version, MIN_OPSET)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8 if opset < 20 else helper.find_min_ir_version_for(model.opset_import)
    return Example(model, {n: given[n] for n in fed})


def _info(name: str, array: Any) -> Any:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def changed(example: Example, name: str, value: Any) -> Example:
    """The example with a changed attribute."""
    model = onnx.ModelProto()
    model.CopyFrom(example.model)
    node = model.graph.node[0]
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])
    return Example(model, example.feeds)


def with_inputs(schema: Any, chosen: Collection[int]) -> Example:
    """The op's complete node, with these of its inputs."""
    given = WHOLE[schema.name]
    names = [name if i in chosen else "" for i, name in enumerate(given)]
    while names[-1] == "":
        names.pop()
    attrs = {"num_outputs": 1} if "num_outputs" in schema.attributes and 1 not in chosen else {}
    attrs |= {"hidden_size": 1} if "hidden_size" in schema.attributes else {}
    node = helper.make_node(schema.name, names, ["y"], **attrs)
    kept = {n: given[n] for n in names if n}
    return model_of_node(node, kept, schema.since_version, [n for n in kept if n == "x"])


def with_outputs(example: Example, outputs: list[str]) -> Example:
    """The example with these outputs; "" stands for a missing one."""
    model = onnx.ModelProto()
    model.CopyFrom(example.model)
    del model.graph.node[0].output[:], model.graph.output[:]
    model.graph.node[0].output.extend(outputs)
    results = [helper.make_empty_tensor_value_info(o) for o in outputs if o]
    model.graph.output.extend(results)
    return Example(model, example.feeds)


def values_of(op: str, attribute: Any) -> tuple[Any, ...]:
    """The values to try for an attribute of a schema."""
    if attribute.type == Kind.SPARSE_TENSOR:
        dense = numpy_helper.from_array(np.float32([3]), "values")
        return (helper.make_sparse_tensor(dense, numpy_helper.from_array(np.int64([1])), [2]),)
    if attribute.type == Kind.STRING:
        return MODES[op] if attribute.name == "mode" else TEXTS[attribute.name]
    return VALUES[attribute.type]
