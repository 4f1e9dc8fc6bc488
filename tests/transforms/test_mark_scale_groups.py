"""Scale groups: closed over the graph, and everyone knows who forced whom."""

import pytest

from qgraph.errors import PassError
from qgraph.passes import PassManager
from qgraph.rewrite.trace import Trace
from qgraph.transforms.insert_quantizers import InsertQuantizers
from qgraph.transforms.lower_batch_norm import LowerBatchNorm
from qgraph.transforms.mark_scale_groups import MarkScaleGroups
from tests.helpers.layers import Net
from tests.helpers.quantized import INT8, INT32_BIAS


def groups(net: Net, *outputs: str, profile=INT8) -> tuple[list[set[str]], Trace]:
    """Members of each scale group, those of bias and internal stage left out; and the log."""
    graph, trace = net.graph, Trace()
    graph.outputs.update((f"y{i}", y) for i, y in enumerate(outputs))
    graph.facts |= LowerBatchNorm.ensures
    PassManager([InsertQuantizers(profile), MarkScaleGroups()]).run(graph, trace)
    found: dict[str, set[str]] = {}
    for node in graph.topological():
        spec = node.attrs.get("spec")
        if spec is not None and spec.group and spec.role not in ("bias", "internal"):
            found.setdefault(spec.group, set()).add(node.name)
    return list(found.values()), trace


def log(trace: Trace) -> list[tuple[str, str]]:
    return [(r.node, r.after) for r in trace.rewrites if r.rule == "share-scale"]


def test_an_add_puts_its_inputs_on_one_scale():
    net = Net()
    total = net.op("add", net.fc(net.x, "a"), net.fc(net.x, "b"), name="s")
    found, trace = groups(net, total)
    assert found == [{"a/q8", "b/q8"}]
    assert log(trace) == [("s", "forces one scale on a/q8, b/q8")]


@pytest.mark.parametrize("op", ["add", "sub", "maximum", "minimum"])
def test_ops_that_share_a_scale(op):
    net = Net()
    assert groups(net, net.op(op, net.fc(net.x, "a"), net.fc(net.x, "b")))[0] == [{"a/q8", "b/q8"}]


def test_a_product_does_not():
    net = Net()
    assert groups(net, net.op("mul", net.fc(net.x, "a"), net.fc(net.x, "b")))[0] == []


def test_groups_are_closed_transitively():
    net = Net()
    a, b, c, d, e = (net.fc(net.x, name) for name in "abcde")
    sums = [net.op("add", p, q, name=f"{p}+{q}") for p, q in ((a, b), (c, d), (b, c), (d, e))]
    found, trace = groups(net, *sums)
    assert found == [{"a/q8", "b/q8", "c/q8", "d/q8", "e/q8"}]
    assert [node for node, _ in log(trace)] == ["a+b", "c+d", "b+c", "d+e"]


def test_an_op_that_forces_nothing_new_is_not_named():
    net = Net()
    a, b = net.fc(net.x, "a"), net.fc(net.x, "b")
    _, trace = groups(net, net.op("add", a, b, name="one"), net.op("sub", a, b, name="two"))
    assert [node for node, _ in log(trace)] == ["one"]


def test_a_new_quantizer_ends_a_group():
    net = Net()
    first = net.op("add", net.fc(net.x, "a"), net.fc(net.x, "b"), name="s")
    second = net.op("add", first, net.fc(net.x, "c"), name="t")
    assert groups(net, second)[0] == [{"a/q8", "b/q8"}, {"s/q8", "c/q8"}]


def test_scales_reach_through_what_moves():
    net = Net(4, 4, 4)
    window = {"ksize": (2, 2), "strides": (1, 1), "padding": "same"}
    a = net.op("max_pool", net.op("relu", net.conv(net.x, "a"), name="r"), **window)
    a = net.op("pad", a, paddings=((0, 0), (0, 0), (0, 0), (0, 0)))
    a = net.op("reshape", net.op("transpose", a, perm=(0, 2, 1, 3)), shape=(-1, 64))
    b = net.op("reshape", net.op("tanh", net.conv(net.x, "b"), name="t"), shape=(-1, 64))
    joined = net.op("concat", a, b, name="c", axis=1)
    found, trace = groups(net, joined)
    assert found == [{"r/q8", "t"}]  # a table is a quantizer too
    assert log(trace) == [("c", "forces one scale on r/q8, t")]


def test_concats_of_concats():
    net = Net()
    a, b, c = (net.fc(net.x, name) for name in "abc")
    inner = net.op("concat", a, b, axis=1)
    outer = net.op("concat", inner, c, axis=1)
    assert groups(net, outer)[0] == [{"a/q8", "b/q8", "c/q8"}]


def test_a_bias_joins_the_internal_stage_but_no_accumulator():
    for profile, shared in ((INT8, {"f/q16", "b/q16"}), (INT32_BIAS, set())):
        net = Net()
        y = net.op("bias_add", net.fc(net.x, "f"), net.const("b", 4))
        groups(net, y, profile=profile)
        named = [n for n in net.graph.nodes.values() if n.op == "quantize"]
        assert {n.name for n in named if n.attrs["spec"].group} == shared


def test_members_keep_their_bits_and_signs():
    net = Net()
    total = net.op("add", net.op("relu", net.fc(net.x, "a"), name="r"), net.fc(net.x, "b"))
    groups(net, total)
    specs = [net.graph.nodes[name].attrs["spec"] for name in ("r/q8", "b/q8")]
    assert [s.signed for s in specs] == [False, True] and specs[0].group == specs[1].group


def test_leaky_relu_is_one_scale():
    net = Net()
    groups(net, net.leaky(net.fc(net.x, "f")))
    specs = [net.graph.nodes[name].attrs["spec"] for name in ("f/q16_1", "v/q16")]
    assert specs[0].group == specs[1].group is not None
    assert net.graph.nodes["alpha/q16"].attrs["spec"].group is None


def test_quantizers_first():
    with pytest.raises(PassError, match=r"pass `mark-scale-groups` needs \['quantized'\] first"):
        MarkScaleGroups().run(Net().graph)
