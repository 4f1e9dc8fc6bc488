"""`verify --files` prints the table for an ONNX file with one other number, in every form."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from qgraph import export, quantize
from qgraph.backends.onnx.onnx_forms import FILE, FORMS
from tests.helpers.cli import run
from tests.helpers.forms import missing_tool
from tests.helpers.read_back import IMAGES, network_model

pytest.importorskip("onnxruntime")
LAYERS = [
    helper.make_node("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["a"], ["r"]),
    helper.make_node("GlobalAveragePool", ["r"], ["mean"]),
    helper.make_node("Flatten", ["mean"], ["rows"]),
    helper.make_node("MatMul", ["rows", "w3"], ["scores"]),
    helper.make_node("Softmax", ["scores"], ["y"]),  # a float op behind the codes
]
NAMES = [form.name for form in FORMS]
WITH_SCALES = [name for name in NAMES if name != "onnx-integer"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Networks, and an export of one of them in each form."""
    place: Path = tmp_path_factory.mktemp("made")
    onnx.save(network_model(LAYERS), place / "net.onnx")
    for name in NAMES:
        profile = "ryzen-ai" if name == "onnx-xint8" else "int32-bias"
        if not (place / profile).exists():
            made = quantize(place / "net.onnx", IMAGES[:3], plan="plain", profile=profile)
            made.save(place / profile)
        export(place / profile, name, place / name)
        (place / f"{name}.profile").write_text(profile, "utf-8")
    return place


def change_weight(graph: onnx.GraphProto) -> None:
    """Change the first weight of the convolution by one bit."""
    held = next(one for one in graph.initializer if len(one.dims) == 4)
    array = numpy_helper.to_array(held).copy()
    whole = array.dtype.kind in "iu"
    array.flat[0] = array.flat[0] ^ 16 if whole else array.flat[0] + np.abs(array).max()
    held.CopyFrom(numpy_helper.from_array(array, held.name))


def scales_of(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The scale of the weights of the convolution, or of the first quantizer."""
    weights = {one.name for one in graph.initializer if len(one.dims) == 4}
    held = {one.name: one for one in graph.initializer}
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in weights and node.op_type in ("DequantizeLinear", "QLinearConv", "Quant"):
                yield held[node.input[place + 1]]


def change_scale(graph: onnx.GraphProto) -> None:
    """Give the convolution weights of twice the size."""
    held = next(scales_of(graph))
    array = numpy_helper.to_array(held) * np.float32(2)
    name = f"{held.name}/other"
    graph.initializer.append(numpy_helper.from_array(array, name))
    weights = {one.name for one in graph.initializer if len(one.dims) == 4}
    for node in graph.node:
        at = next((i for i, value in enumerate(node.input) if value in weights), None)
        if at is not None:
            node.input[at + 1] = name
            return


def change_last_scale(graph: onnx.GraphProto) -> None:
    """Give the codes of the scores a scale that is not a power of two."""
    node = [n for n in graph.node if n.op_type in ("DequantizeLinear", "Quant")][-1]
    graph.initializer.append(numpy_helper.from_array(np.float32(0.3), "other/scale"))
    node.input[1] = "other/scale"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((name, change_weight) for name in NAMES),
        *((name, change_scale) for name in WITH_SCALES),
        *((name, change_last_scale) for name in WITH_SCALES),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_changed_number_is_counted(folder, tmp_path, name, change) -> None:
    if missing := missing_tool(name):
        pytest.skip(f"{name}: {missing}")
    place = shutil.copytree(folder / name, tmp_path / name)
    model = onnx.load(place / FILE)
    change(model.graph)
    onnx.save(model, place / FILE)
    out = folder / (folder / f"{name}.profile").read_text("utf-8")
    done = run("verify", out, "--files", place)
    assert done.code == 9, done.err
    (row,) = (line for line in done.out.splitlines() if line.startswith(f"{name} "))
    assert row.split()[-1] == "DIFFERS"
    certificate = json.loads((out / "certificate.json").read_text("utf-8"))
    form = certificate["forms"][name]
    assert form["differences"] > 0 and not certificate["equal"]
    assert f"first in {form['first'][0]['tensor']} " in done.out


@pytest.mark.parametrize("name", ["onnx-qdq", "onnx-qoperator", "onnx-xint8"])
def test_another_float_op_is_named(folder, tmp_path, name) -> None:
    """Codes are equal, and the outputs behind them are not."""
    place = shutil.copytree(folder / name, tmp_path / name)
    model = onnx.load(place / FILE)
    (last,) = (node for node in model.graph.node if node.op_type == "Softmax")
    last.op_type = "LogSoftmax"
    onnx.save(model, place / FILE)
    out = folder / (folder / f"{name}.profile").read_text("utf-8")
    done = run("verify", out, "--files", place)
    assert done.code == 9
    assert f"{name}: y: the file gives other values than the network" in done.out
    form = json.loads((out / "certificate.json").read_text("utf-8"))["forms"][name]
    assert form["differences"] == 0 and "gives other values" in form["fault"]
