"""Exports that are read again with their scales: codes of both networks, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import qgraph
from qgraph.exact.reference import Reference
from qgraph.ir.graph import Node
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array, Fixed
from qgraph.quantized import Quantized
from qgraph.stored import load_network

node = helper.make_node
RNG = np.random.default_rng(0)
WEIGHTS = {
    "w": RNG.normal(0, 0.3, (8, 3, 3, 3)),
    "b": RNG.normal(0, 0.3, 8),
    "w2": RNG.normal(0, 0.2, (8, 8, 3, 3)),
    "w3": RNG.normal(0, 0.3, (8, 4)),
    "w4": RNG.normal(0, 0.3, (8, 1, 3, 3)) * np.exp2(RNG.integers(-3, 3, (8, 1, 1, 1))),
    "low": np.array(0.0),
    "six": np.array(6.0),
    "half": np.array(0.5),
    "twice": np.array([1.0, 1.0, 2.0, 2.0]),
}
IMAGES = RNG.normal(size=(16, 3, 8, 8)).astype(np.float32)
FILES = {"tflite": "network.tflite"}

_FIRST = [node("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1])]
_RELU = [*_FIRST, node("Relu", ["a"], ["r"])]
_LAYER = {"pads": [1, 1, 1, 1]}
_BORDERS = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def _ended(nodes: list[onnx.NodeProto], value: str) -> list[onnx.NodeProto]:
    """The nodes with a mean over the image and a layer behind them."""
    return [
        *nodes,
        node("GlobalAveragePool", [value], ["mean"]),
        node("Flatten", ["mean"], ["rows"]),
        node("MatMul", ["rows", "w3"], ["y"]),
    ]


NETWORKS: dict[str, list[onnx.NodeProto]] = {
    "average with borders": _ended(
        [
            *_RELU,
            node("AveragePool", ["r"], ["p"], **_BORDERS),
            node("Conv", ["p", "w2", "b"], ["c"], **_LAYER),
            node("Add", ["p", "c"], ["s"]),
        ],
        "s",
    ),
    "strided average with borders": _ended(
        [*_RELU, node("AveragePool", ["r"], ["p"], **_BORDERS, strides=[2, 2])], "p"
    ),
    "average of signed values": _ended(
        [*_FIRST, node("AveragePool", ["a"], ["p"], **_BORDERS)], "p"
    ),
    "average before an activation": _ended(
        [*_FIRST, node("AveragePool", ["a"], ["p"], **_BORDERS), node("Relu", ["p"], ["q"])], "q"
    ),
    "average that counts borders": _ended(
        [*_RELU, node("AveragePool", ["r"], ["p"], **_BORDERS, count_include_pad=1)], "p"
    ),
    "average as output": [*_RELU, node("AveragePool", ["r"], ["y"], **_BORDERS)],
    "mean over a large image": _ended(
        [
            *_RELU,
            node(
                "Resize", ["r", "", "twice"], ["p"], mode="nearest",
                coordinate_transformation_mode="asymmetric", nearest_mode="floor",
            ),
        ],
        "p",
    ),
    "limits and a residual": _ended(
        [
            *_FIRST,
            node("Clip", ["a", "low", "six"], ["r"]),
            node("Conv", ["r", "w2", "b"], ["c"], **_LAYER),
            node("Add", ["r", "c"], ["s"]),
            node("Relu", ["s"], ["q"]),
        ],
        "q",
    ),
    "depthwise filters": _ended(
        [*_RELU, node("Conv", ["r", "w4", "b"], ["c"], group=8, **_LAYER)], "c"
    ),
    "several scales": _ended(
        [*_RELU, node("Mul", ["r", "half"], ["h"]), node("Add", ["h", "r"], ["s"])], "s"
    ),
}  # fmt: skip


def network_model(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    """A model of images x, with the weights that its nodes use."""
    used = {name for n in nodes for name in n.input}
    held = [
        numpy_helper.from_array(np.asarray(array, np.float32), name)
        for name, array in WEIGHTS.items()
        if name in used
    ]
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        held,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def assert_codes_are_read_back(name: str, profile: str, form: str, folder: Path) -> None:
    """Quantize a network, export it, read the export: each quantizer gives the same codes.

    The read network is one integer program.
    """
    onnx.save(network_model(NETWORKS[name]), folder / "float.onnx")
    first = qgraph.quantize(folder / "float.onnx", IMAGES, profile=profile, plan="plain")
    first.save(folder / "first")
    qgraph.export(folder / "first", form, folder / "written")
    path = folder / "written" / FILES.get(form, "network.onnx")
    again = qgraph.quantize(path, profile=profile)
    assert len(again.graph.notes) == 1 and "kept" in again.graph.notes[0], again.graph.notes
    again.save(folder / "again")
    assert not load_network(folder / "again").program.has_islands
    size = again.graph.types[again.graph.inputs[0]].shape[0] or len(IMAGES)
    for start in range(0, min(len(IMAGES), 4 * size), size):
        images = IMAGES[start : start + size]
        wanted, found = codes_of(first, images, is_activation), codes_of(again, images)
        assert len(wanted) > 2 and wanted.keys() <= found.keys(), wanted.keys() - found.keys()
        for tensor, codes in wanted.items():
            np.testing.assert_array_equal(found[tensor], codes, err_msg=tensor)


def is_activation(found: Node) -> bool:
    """Whether a node is a quantizer, and not of a constant."""
    return found.op == "quantize" and not spec_of(found).role.of_constant


def codes_of(
    made: Quantized, images: Array, wanted: Callable[[Node], bool] = lambda node: True
) -> dict[str, Array]:
    """The numbers of each tensor of codes that is wanted, sorted: layouts do not matter."""
    values = Reference(made.graph).run({made.graph.inputs[0]: images})
    found = {}
    for name, value in values.items():
        node = made.graph.nodes.get(name)
        if not isinstance(value, Fixed) or node is None or not wanted(node):
            continue
        if isinstance(value.exponent, int):
            numbers = np.ldexp(value.codes.astype(np.float64), -value.exponent)
            found[name.removesuffix("/untransposed")] = np.sort(numbers, axis=None)
    return found
