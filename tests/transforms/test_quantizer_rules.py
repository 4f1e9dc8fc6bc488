"""Rules of quantizer insertion that no golden text shows."""

from dataclasses import replace

import pytest

from qgraph.quant.profile import Override
from tests.helpers.evaluate import reasons
from tests.helpers.layers import WINDOW, Net, inserted
from tests.helpers.quantized import INT4, INT8


def specs(net: Net) -> dict[str, str]:
    return {n.name: str(n.attrs["spec"]) for n in net.graph.nodes.values() if n.op == "quantize"}


def test_an_output_that_is_an_input():
    net = Net()
    net.graph.outputs["same"] = net.x
    inserted(net, net.fc(net.x, "f"))
    assert net.graph.outputs == {"same": "x", "y": "f/q8"}


def test_overrides_are_by_layer():
    overrides = (Override("a*", weight=3, activation=5), Override("b", activation=6))
    net = Net()
    inserted(net, net.fc(net.fc(net.x, "a1"), "b"), replace(INT4, overrides=overrides))
    found = specs(net)
    assert found["a1/w/q3"] == "s3*2^-? weight" and found["a1/q5"] == "s5*2^-? activation"
    assert found["b/w/q8"] == "s8*2^-? weight" and found["b/q6"] == "s6*2^-? activation"


def test_weights_and_constants_always_saturate():
    net = Net()
    y = net.leaky(net.op("bias_add", net.fc(net.x, "f"), net.const("b", 4)))
    inserted(net, y, replace(INT8, overflow="wrap", rounding="floor"))
    made = [n.attrs["spec"] for n in net.graph.nodes.values() if n.op == "quantize"]
    assert {s.rounding for s in made} == {"floor"}
    assert {s.role: s.overflow for s in made} == {
        "input": "wrap", "internal": "wrap", "activation": "wrap",
        "weight": "saturate", "bias": "saturate", "constant": "saturate",
    }  # fmt: skip


def test_one_quantizer_for_a_constant_but_one_bias_for_each_layer():
    net = Net()
    w, b = net.const("w", 4, 4), net.const("b", 4)
    outs = [net.op("bias_add", net.op("matmul", net.x, w), b) for _ in range(2)]
    inserted(net, net.op("add", *outs))
    users = net.graph.users
    assert [n.name for n in users("w")] == ["w/q8"]
    assert [n.name for n in users("b")] == ["b/q16", "b/q16_1"]


@pytest.mark.parametrize("kind", ["weights", "bias"])
def test_weights_that_are_not_constant_are_refused(kind):
    net = Net(3, 3, 4)
    other = net.graph.input("other", "float32", (1, 1, 4, 4) if kind == "weights" else (4,))
    if kind == "weights":
        y = net.op("conv2d", net.conv(net.x, "f"), other, name="odd", **WINDOW)
    else:
        y = net.op("bias_add", net.conv(net.x, "f"), other, name="odd")
    _, trace = inserted(net, y)
    its = {"weights": "its weights are", "bias": "its bias is"}[kind]
    assert reasons(trace) == [("odd", f"stays float: {its} not constant")]


def test_every_quantizer_is_logged():
    net = Net()
    _, trace = inserted(net, net.op("relu", net.fc(net.x, "f"), name="r"))
    logged = [(r.rule, r.node, r.after) for r in trace.rewrites]
    assert logged == [
        ("quantize-weight", "f/w", "f/w/q8: s8*2^-? weight"),
        ("quantize-input", "x", "x/q8: s8*2^-? input"),
        ("quantize-internal", "f", "f/q16: s16*2^-? internal"),
        ("quantize-activation", "r", "r/q8: u8*2^-? activation"),
    ]
