"""Random float networks with all properties that are often handled wrongly.

`graphs()` is a hypothesis strategy, `random_graph(seed)` one network of a seed. Elementwise ops
come from the definitions in `qgraph.ir.ops`. tests/ir/test_graph_generator.py names each op that is
neither drawn nor excluded with a reason.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from hypothesis import strategies as st

from qgraph.ir.graph import Graph
from tests.helpers.generators.choices import Choices
from tests.helpers.generators.graph_ops import (
    attention,
    dilated_pool,
    float_island,
    gate,
    layer_norm,
    local_response,
    log_softmax,
    move,
    pair,
    table,
)
from tests.helpers.generators.layers import Network, Value

Layer = Callable[[Network, Value], Value]
# Convolutions (grouped, dilated, strided, depthwise, with multipliers) that may share weights;
# batch norms fused and written out, before and after layers, with gammas and variances of 0.
CNN: Sequence[Layer] = (
    Network.conv, Network.conv, Network.conv, Network.depthwise, Network.batch_norm,
    Network.batch_norm, Network.batch_norm, Network.activation, Network.activation, Network.pool,
    Network.scale, Network.join, Network.join, Network.noise,
)  # fmt: skip
# With tables, layer norms, products and moves besides.
EVERY: Sequence[Layer] = (
    Network.conv, Network.conv, Network.depthwise, Network.batch_norm, Network.activation, table,
    table, Network.pool, Network.scale, Network.join, pair, gate, move, move, move, Network.noise,
    layer_norm,
)  # fmt: skip
# With attention, normalizations, dilated pools and float islands besides.
WITH_ISLANDS: Sequence[Layer] = (
    *EVERY, attention, float_island, log_softmax, local_response, dilated_pool,
)  # fmt: skip


def random_graph(
    source: random.Random | int,
    layers: int = 10,
    dtype: str = "float64",
    kinds: Sequence[Layer] = CNN,
) -> Graph:
    """A network with this number of layers on an input `x` [?, h, w, c].

    Its outputs are `map`, the last value, and `logits`, a product of it; sometimes also `inner`, a
    value that other layers read, and `input`, the input itself. Networks of every kind of layer
    have smaller images, and one of the first two outputs or both.
    """
    choices, every = Choices(source), kinds is not CNN
    name = f"random_{source}" if isinstance(source, int) else "random"
    height, width = (choices.number(*((1, 7) if every else (5, 8))) for _ in range(2))
    net = Network(choices, dtype, name, height, width, choices.number(1, 5))
    for _ in range(layers):
        start = choices.pick(*net.live) if choices.chance(0.2) else net.live[-1]
        net.live.append(choices.pick(*kinds)(net, start))
    outputs, last = net.graph.outputs, net.live[-1]
    both = ("map", "logits")
    ends = choices.pick(("map",), ("logits",), both) if every else both
    if "map" in ends:
        outputs["map"] = last
    if "logits" in ends:
        outputs["logits"] = net.flat_head(last) if every else net.head(last)
    if choices.chance(0.3):
        outputs["inner"] = choices.pick(*net.live[1:])
    if choices.chance(0.2):
        outputs["input"] = "x"
    return net.graph


def graphs(layers: int = 6, kinds: Sequence[Layer] = EVERY) -> st.SearchStrategy[Graph]:
    """Random float32 networks with up to this number of layers of every kind; see
    `random_graph`.
    """
    sources = st.randoms(use_true_random=False)
    counts = st.integers(1, layers)
    return st.builds(partial(random_graph, dtype="float32", kinds=kinds), sources, counts)
