"""Exports that are read again with their scales: codes of both networks, tensor by tensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import qgraph
from qgraph.ir.types import Array
from qgraph.program import Program, run
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
    "wide": RNG.normal(0, 0.3, (16, 4)),
    "around": np.array([0, 0, 1, 0, 0, 0, 2, 1]),
    "twice": np.array([1.0, 1.0, 2.0, 2.0]),
}
IMAGES = RNG.normal(size=(16, 3, 8, 8)).astype(np.float32)
FILES = {"tflite": "network.tflite"}

_FIRST = [node("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1])]
_RELU = [*_FIRST, node("Relu", ["a"], ["r"])]
_LAYER = {"pads": [1, 1, 1, 1]}
_BORDERS = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def _ended(nodes: list[onnx.NodeProto], value: str, weights: str = "w3") -> list[onnx.NodeProto]:
    """The nodes with a mean over the image and a layer behind them."""
    return [
        *nodes,
        node("GlobalAveragePool", [value], ["mean"]),
        node("Flatten", ["mean"], ["rows"]),
        node("MatMul", ["rows", weights], ["y"]),
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
    "joined branches": _ended(
        [
            *_RELU,
            node("Conv", ["r", "w2", "b"], ["c"], **_LAYER),
            node("Concat", ["r", "c"], ["s"], axis=1),
        ],
        "s",
        "wide",
    ),
    "zeros around an image": _ended(
        [*_RELU, node("Pad", ["r", "around"], ["p"]), node("Conv", ["p", "w2", "b"], ["c"])], "c"
    ),
    "several scales": _ended(
        [*_RELU, node("Mul", ["r", "half"], ["h"]), node("Add", ["h", "r"], ["s"])], "s"
    ),
}  # fmt: skip


def network_model(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    """A model of images x, with the weights that its nodes use."""
    used = {name for n in nodes for name in n.input}
    held = [
        numpy_helper.from_array(
            array if array.dtype == np.int64 else np.asarray(array, np.float32), name
        )
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


def assert_codes_are_read_back(
    name: str, profile: str, form: str, folder: Path, named: bool = True
) -> None:
    """Quantize a network, export it, read the export: each quantizer gives the same codes.

    The read network is one integer program. named: whether tensors of the file have the names of
    the network; otherwise any tensor with the same codes is enough.
    """
    onnx.save(network_model(NETWORKS[name]), folder / "float.onnx")
    first = qgraph.quantize(folder / "float.onnx", IMAGES, profile=profile, plan="plain")
    first.save(folder / "first")
    qgraph.export(folder / "first", form, folder / "written")
    path = folder / "written" / FILES.get(form, "network.onnx")
    again = qgraph.quantize(path, profile=profile)
    assert len(again.graph.notes) == 1 and "kept" in again.graph.notes[0], again.graph.notes
    again.save(folder / "again")
    programs = [load_network(folder / place).program for place in ("first", "again")]
    assert not programs[1].has_islands
    for image in IMAGES[:4]:
        wanted, found = (numbers_of(program, image[None]) for program in programs)
        quantized = [step.output for step in programs[0].steps if step.op == "requantize"]
        assert len(quantized) >= 2
        for tensor in quantized:
            if named:
                np.testing.assert_array_equal(found[tensor], wanted[tensor], err_msg=tensor)
            else:
                same = (np.array_equal(wanted[tensor], other) for other in found.values())
                assert any(same), tensor


def numbers_of(program: Program, image: Array) -> dict[str, Array]:
    """The numbers that codes of each step stand for, sorted: layouts do not matter."""
    (entry,) = program.entries
    exponent = program.tensors[entry.tensor].exponent
    codes = np.clip(np.rint(np.ldexp(image, exponent)), entry.spec.lo, entry.spec.hi)
    names = [step.output for step in program.steps]
    found = run(program, {entry.tensor: codes.astype(np.int64)}, names)
    return {
        name.removesuffix("/untransposed"): np.sort(
            np.ldexp(held.astype(np.float64), -np.asarray(program.tensors[name].exponent)),
            axis=None,
        )
        for name, held in found.items()
    }
