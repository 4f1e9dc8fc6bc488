"""Attention with `(1 - mask) * number` added to its scores, where the mask is an integer input."""

import numpy as np
import onnx
import pytest
from onnx import helper

from qgraph import quantize
from qgraph.stored import load_network
from qgraph.verification.verify import verify
from tests.helpers.onnx_graphs import info, model_of

STEPS, WIDTH = 5, 8
FAR = float(np.finfo(np.float32).min)


def attention(kind, number):
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.normal(size=(WIDTH, WIDTH)).astype("f4") / 2 for i in range(4)}
    constants = {**weights, "one": np.float32(1), "number": np.float32(number)}
    node = helper.make_node
    nodes = [
        *(node("MatMul", ["x", f"w{i}"], [f"p{i}"]) for i in range(3)),
        node("Transpose", ["p1"], ["keys"], perm=[0, 2, 1]),
        node("MatMul", ["p0", "keys"], ["scores"]),
        node("Cast", ["mask"], ["numbers"], to=onnx.TensorProto.FLOAT),
        node("Sub", ["one", "numbers"], ["rest"]),
        node("Mul", ["rest", "number"], ["addend"]),
        node("Add", ["scores", "addend"], ["masked"]),
        node("Softmax", ["masked"], ["shares"], axis=-1),
        node("MatMul", ["shares", "p2"], ["mixed"]),
        node("MatMul", ["mixed", "w3"], ["y"]),
    ]
    inputs = {
        "x": info("x", ["N", STEPS, WIDTH]), "mask": info("mask", ["N", 1, STEPS], kind),
    }  # fmt: skip
    return model_of(nodes, inputs, ["y"], constants)


def samples(kind, count=16):
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, STEPS + 1, count)
    mask = (np.arange(STEPS) < lengths[:, None]).astype(kind)[:, None]
    return {"x": rng.normal(size=(count, STEPS, WIDTH)).astype("f4"), "mask": mask}


@pytest.mark.parametrize("kind", ["int64", "int32", "bool"])
@pytest.mark.parametrize("number", [-1e4, FAR])
def test_masked_scores_are_codes(kind, number, tmp_path):
    onnx.save(attention(kind, number), tmp_path / "net.onnx")
    data = samples(kind)
    made = quantize(tmp_path / "net.onnx", data, effort="plain")
    assert made.facts.agreement.sqnr > 15
    out = made.save(tmp_path / "out")
    assert not load_network(out).program.has_islands
    changed = data | {"x": np.where(data["mask"].transpose(0, 2, 1) > 0, data["x"], 3)}
    one, other = (made.reference().outputs(feed)["y"] for feed in (data, changed))
    kept = np.broadcast_to(data["mask"].transpose(0, 2, 1) > 0, one.shape)
    np.testing.assert_array_equal(one[kept], other[kept])  # masked rows have no share
    assert verify(out, forms=["engine", "onnx-integer"]).equal


@pytest.mark.parametrize(("number", "warned"), [(1, False), (2, True), (-1, True)])
def test_numbers_other_than_0_and_1_are_reported(number, warned, tmp_path):
    onnx.save(attention("int64", -1e4), tmp_path / "net.onnx")
    data = samples("int64")
    data["mask"][data["mask"] == 1] = number
    made = quantize(tmp_path / "net.onnx", data, effort="plain")
    found = [w for w in made.facts.warnings if "a mask of scores" in w]
    assert len(found) == warned
    assert not warned or "input `mask` is within" in found[0]
