"""`output` and `table` bits: what leaves the network, and what tables are looked up by."""

import json
from dataclasses import replace

import numpy as np

from qgraph.compiler import quantize
from qgraph.quant.profile import load_profile
from tests.helpers.layers import Net, inserted
from tests.helpers.quantized import INT8, assert_tf_equals_reference

POLICY = load_profile("policy-int8")


def specs(net: Net, y: str, profile=POLICY) -> dict[str, str]:
    inserted(net, y, profile)
    nodes = net.graph.nodes.values()
    return {n.name: str(n.attrs["spec"]) for n in nodes if "spec" in n.attrs}


def test_activations_stay_narrow_between_layers():
    net = Net()
    found = specs(net, net.fc(net.op("relu", net.fc(net.x, "a")), "b"))
    assert found["x/q16"] == "s16*2^-? input"
    assert found["relu/q8"] == "u8*2^-? activation"
    assert found["b/q16_1"] == "s16*2^-? activation"
    assert net.graph.outputs == {"y": "b/q16_1"}


def test_tables_are_looked_up_by_16_bits_and_say_8():
    net = Net()
    found = specs(net, net.fc(net.op("tanh", net.fc(net.x, "a"), name="t"), "b"))
    table = net.graph.nodes["t"].attrs
    assert (table["domain"].bits, table["spec"].bits) == (16, 8) and "a/q16_1" in found


def test_a_table_at_the_end_has_16_bits():
    net = Net()
    assert specs(net, net.op("tanh", net.fc(net.x, "a"), name="t"))["t"] == "s16*2^-? activation"


def test_a_sum_that_only_leaves_is_made_outside_and_has_no_scale_group():
    net = Net()
    y = net.op("add", net.fc(net.x, "a"), net.fc(net.x, "b"), name="sum")
    found = specs(net, y)
    assert net.graph.outputs == {"y": "sum"} and net.graph.nodes["sum"].attrs == {"outside": True}
    assert found["a/q16_1"] == found["b/q16_1"] == "s16*2^-? activation"


def test_what_is_made_outside_is_written_as_float(tmp_path):
    net = Net()
    net.graph.outputs["y"] = net.op("add", net.fc(net.x, "a"), net.fc(net.x, "b"), name="sum")
    samples = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    result = quantize(net.graph, samples, profile=POLICY)
    out = result.save(tmp_path / "out")
    found = json.loads((out / "manifest.json").read_text())
    assert found["float_ops"][-1] == {"name": "sum", "op": "add", "between": False}
    with np.load(out / "tensors.npz") as arrays:
        assert "codes/a/q16_1" in arrays and "codes/sum" not in arrays
    assert_tf_equals_reference(result.graph, {"x": samples})


def test_a_value_of_three_widths_has_a_quantizer_for_each():
    net = Net()
    bits = replace(POLICY.bits, output=16, table=12)
    shared = net.op("relu", net.fc(net.x, "a"), name="shared")
    net.graph.outputs["also"] = shared
    y = net.op("add", net.fc(shared, "b"), net.fc(net.op("tanh", shared, name="t"), "c"))
    inserted(net, y, replace(POLICY, bits=bits))
    nodes = net.graph.nodes
    found = {n.attrs["spec"].bits for n in nodes.values() if n.op == "quantize"
             and n.name.startswith("shared")}  # fmt: skip
    assert found == {8, 12, 16}
    assert nodes[net.graph.outputs["also"]].attrs["spec"].bits == 16
    assert nodes["t"].attrs["domain"].bits == 12


def test_without_them_nothing_changes():
    net = Net()
    y = net.op("add", net.fc(net.x, "a"), net.op("tanh", net.fc(net.x, "b")), name="sum")
    assert all(
        s[:2] != "s16"
        for s in specs(net, y, replace(INT8, bits=replace(INT8.bits, internal=None))).values()
    )
    assert np.all([n.attrs.get("outside") is None for n in net.graph.nodes.values()])
