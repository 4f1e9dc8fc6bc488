"""Accumulators that are made to wrap (what they compute then: tests/exact/test_bounds.py)."""

from dataclasses import replace

import pytest

from qgraph.errors import PassError
from qgraph.exact.bounds import bounds
from qgraph.passes import PassManager
from qgraph.rewrite.trace import Trace
from qgraph.transforms.wrap_accumulators import WrapAccumulators
from tests.helpers.evaluate import random_feeds
from tests.helpers.layers import Net
from tests.helpers.quantized import INT8, INT32_BIAS, assert_tf_equals_reference, quantize


def net() -> Net:
    made = Net()
    y = made.op("bias_add", made.fc(made.x, "f"), made.const("b", 4), name="u")
    made.graph.outputs["y"] = made.op("relu", y, name="r")
    return made


def wrap(made: Net, bits: int) -> tuple[set[str], Trace]:
    before, trace = set(made.graph.nodes), Trace()
    PassManager([WrapAccumulators(bits)]).run(made.graph, trace)
    return set(made.graph.nodes) - before, trace


def test_sums_that_fit_are_left_alone():
    made = net()
    quantize(made.graph, INT32_BIAS)
    width = max(b.width for name, b in bounds(made.graph).items() if name in "fu")
    assert wrap(made, width) == (set(), Trace())


def test_the_bias_is_part_of_the_accumulator_if_it_is_added_there():
    for profile, added in ((INT32_BIAS, {"f/acc10", "u/acc10"}), (INT8, {"f/acc10"})):
        made = net()
        quantize(made.graph, profile)
        width = bounds(made.graph)["f"].width
        found, trace = wrap(made, 10)
        assert found == added
        assert trace.rewrites[0].after == f"f/acc10: wraps at 10 bits, sums need {width}"


@pytest.mark.parametrize("per_channel", [False, True])
def test_what_wraps_is_on_the_accumulators_scale(per_channel):
    made = net()
    quantize(made.graph, replace(INT32_BIAS, per_channel=per_channel))
    wrap(made, 10)
    specs = {n: made.graph.nodes[n].attrs["spec"] for n in ("f/acc10", "u/acc10", "b/q32")}
    assert {s.exponent for s in specs.values()} == {specs["b/q32"].exponent}
    assert specs["f/acc10"].overflow == "wrap" and specs["f/acc10"].bits == 10
    assert assert_tf_equals_reference(made.graph, random_feeds(made.graph, batch=20))


def test_scales_first():
    with pytest.raises(PassError, match="'calibrated'"):
        WrapAccumulators(16).run(net().graph)
