"""Definitions of the graph's ops: complete, and true of what the ops compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from qgraph.errors import GraphError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import OPS
from qgraph.ir.ops.attributes import MarkedAttrs
from qgraph.ir.ops.base import OpDef, Scale
from qgraph.ir.ops.linear import ConvAttrs
from qgraph.ir.ops.pool import PoolAttrs
from qgraph.ir.types import Fixed, QuantSpec, TensorType
from qgraph.ops.attribute_types import type_hints, words
from qgraph.ops.attributes import Attributes, attributes_of, declarations
from qgraph.ops.reach import Reach

IMAGE = (2, 6, 8, 4)
WINDOW = {"strides": (1, 2), "dilations": (2, 1), "padding": "same"}
POOL = {"ksize": (3, 2), "strides": (2, 1), "padding": ((1, 2), (0, 1))}
SPEC, DOMAIN = QuantSpec(5, True, "activation", 1), QuantSpec(8, True, "activation")
STATISTICS = [(4,)] * 4


@dataclass(frozen=True)
class Example:
    """Attributes and the shapes of inputs of one op."""

    attrs: dict[str, Any]
    shapes: list[tuple[int, ...]]


GIVEN: dict[str, Example] = {
    "quantize": Example({"spec": SPEC}, [IMAGE]),
    "lookup": Example({"spec": SPEC, "domain": DOMAIN, "function": "tanh"}, [IMAGE]),
    "standardize": Example({"spec": SPEC, "domain": DOMAIN, "epsilon": 1e-3}, [IMAGE]),
    "integer_softmax": Example({"spec": SPEC, "domain": DOMAIN}, [IMAGE]),
    "conv2d": Example(WINDOW, [IMAGE, (3, 3, 2, 6)]),
    "depthwise_conv2d": Example(WINDOW, [IMAGE, (3, 3, 4, 2)]),
    "matmul": Example({}, [(3, 5), (5, 2)]),
    "batch_matmul": Example({}, [(2, 3, 5), (2, 5, 2)]),
    "bias_add": Example({}, [IMAGE, (4,)]),
    "batch_norm": Example({"epsilon": 1e-3}, [IMAGE, *STATISTICS]),
    "layer_norm": Example({"epsilon": 1e-3}, [IMAGE, *STATISTICS[:2]]),
    "leaky_relu": Example({"alpha": 0.1}, [IMAGE]),
    "tabulated": Example({"log2_steps": 2, "first": -3, "values": (0.5, -1.0, 2.0, 0.0)}, [IMAGE]),
    "composed": Example({"steps": (("tanh", (0,), ()), ("mul", (1, 0.5), ()))}, [IMAGE]),
    "cast": Example({"dtype": "float32"}, [IMAGE]),
    "select": Example({}, [IMAGE, IMAGE, IMAGE]),
    "max_pool": Example(POOL, [IMAGE]),
    "avg_pool": Example(POOL, [IMAGE]),
    "mean": Example({"axes": (1, 2), "keepdims": True}, [IMAGE]),
    "sum": Example({"axes": (-1,), "keepdims": False}, [IMAGE]),
    "reduce_max": Example({"axes": (1, -2), "keepdims": False}, [IMAGE]),
    "argmax": Example({"axis": -1, "dtype": "int64"}, [IMAGE]),
    "concat": Example({"axis": -1}, [IMAGE, (2, 6, 8, 1), IMAGE]),
    "pad": Example({"paddings": ((0, 0), (1, 2), (0, 1), (0, 0))}, [IMAGE]),
    "reshape": Example({"shape": (-1, 16, 12)}, [IMAGE]),
    "transpose": Example({"perm": (0, 3, 1, 2)}, [IMAGE]),
    "slice": Example(
        {"begin": (None, 1, -1, 0), "end": (None, -1, None, 4), "strides": (1, 2, -2, 3)}, [IMAGE]
    ),
    "squeeze": Example({"axes": (1, -1)}, [(2, 1, 3, 1)]),
    "expand_dims": Example({"axis": -2}, [IMAGE]),
    "take": Example({"axis": 1, "indices": (2, 0, 0, 5)}, [IMAGE]),
    "embedding": Example({}, [(3, 5), (2, 6)]),
    "resize_nearest": Example({"size": (9, 5), "half_pixel": True}, [IMAGE]),
    "space_to_depth": Example({"block": 2}, [IMAGE]),
    "depth_to_space": Example({"block": 2}, [IMAGE]),
    "space_to_batch": Example({"block": (2, 3), "paddings": ((1, 1), (0, 1))}, [IMAGE]),
    "batch_to_space": Example({"block": (2, 1), "crops": ((1, 0), (0, 2))}, [IMAGE]),
}
WITHOUT_INPUTS = {"input", "const", "opaque"}
BOOLEANS = {"logical_and", "logical_or", "logical_not"}


def example(op: str) -> Example:
    """The example of an op; plain arithmetic needs none."""
    if op in GIVEN:
        return GIVEN[op]
    return Example({}, [IMAGE, (8, 1)][: OPS[op].arity[0]])


COMPUTING = [op for op in OPS if op not in WITHOUT_INPUTS]
INTEGER = [op for op in COMPUTING if OPS[op].integer is not None]


def attributes(op: str) -> Attributes:
    made: Attributes = attributes_of(OPS[op].attributes, example(op).attrs)
    return made


def floats(op: str, low: float = -2.0, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    made = [rng.uniform(low, 2.0, shape) for shape in example(op).shapes]
    if op == "embedding":
        made[1] = np.floor(np.abs(made[1]))  # rows 0 and 1
    if op in BOOLEANS or op == "select":
        made[: 1 if op == "select" else None] = [x > 0 for x in made][
            : 1 if op == "select" else None
        ]
    return made


def evaluate(op: str, inputs: list[Any]) -> Any:
    rule = OPS[op].evaluate
    assert rule is not None
    with np.errstate(all="ignore"):
        return rule(attributes(op), inputs)


# -- complete -----------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
def test_every_op_is_defined_in_full(op: str) -> None:
    definition = OPS[op]
    assert definition.name == op
    for declared in declarations(definition.attributes):
        assert declared.meaning, f"attribute `{declared.name}` of {op} has no meaning"
        assert words(type_hints(definition.attributes)[declared.name])
    on_codes = definition.integer is not None
    assert (definition.scale is not Scale.FLOAT) == on_codes, f"{op}: integer rule without `scale`"
    assert (definition.reach is not None) == on_codes, f"{op}: integer rule without `reach`"
    assert definition.evaluate or op == "input", f"{op}: no float reference"
    assert not (definition.pointwise and not definition.elementwise)


@pytest.mark.parametrize("op", COMPUTING)
def test_every_op_has_an_example_that_fits(op: str) -> None:
    graph = Graph()
    kinds = ["bool" if x.dtype == bool else "float32" for x in floats(op)]
    values = [
        graph.input(f"x{i}", kind, shape)
        for i, (kind, shape) in enumerate(zip(kinds, example(op).shapes, strict=True))
    ]
    made = graph.nodes[graph.add(op, *values, attrs=example(op).attrs)]
    assert made.attributes == attributes(op)
    assert made.typed(OPS[op].attributes) is made.attributes
    result = evaluate(op, floats(op))
    assert graph.types[made.name].shape == result.shape


# -- true of what is computed -------------------------------------------------------------------


def codes(op: str, low: int, high: int) -> list[Fixed]:
    rng = np.random.default_rng(0)
    exponents = [3] * len(example(op).shapes)
    return [
        Fixed(rng.integers(low, high + 1, shape), e)
        for shape, e in zip(example(op).shapes, exponents, strict=True)
    ]


@pytest.mark.parametrize("ends", [(-20, 20), (0, 30), (4, 9), (-9, -4)])
@pytest.mark.parametrize("op", INTEGER)
def test_codes_are_in_the_range_of_the_definition(op: str, ends: tuple[int, int]) -> None:
    definition, (low, high) = OPS[op], ends
    inputs = codes(op, low, high)
    assert definition.integer is not None and definition.reach is not None
    made = definition.integer(attributes(op), inputs).codes
    known = Reach(low, high, max(-low, high))
    shapes = [x.codes.shape for x in inputs]
    reach = definition.reach(attributes(op), [known] * len(inputs), shapes)
    assert reach.low <= made.min() and made.max() <= reach.high
    assert np.abs(made).max() <= reach.magnitude


@pytest.mark.parametrize("op", INTEGER)
def test_the_scale_of_codes_is_that_of_the_definition(op: str) -> None:
    definition = OPS[op]
    assert definition.integer is not None
    made = definition.integer(attributes(op), codes(op, -20, 20)).exponent
    wanted = {Scale.KEPT: 3, Scale.SHARED: 3, Scale.PRODUCT: 6, Scale.OWN: SPEC.exponent}
    assert made == wanted[definition.scale]


@pytest.mark.parametrize("op", COMPUTING)
def test_values_declared_nonnegative_are_never_negative(op: str) -> None:
    definition, count = OPS[op], len(example(op).shapes)
    for positive in (False, True):
        if definition.nonnegative(attributes(op), [positive] * count):
            for seed in range(3):
                made = evaluate(op, floats(op, 0.0 if positive else -2.0, seed))
                assert not (made < 0).any()


@pytest.mark.parametrize("low", [-20, 0])
@pytest.mark.parametrize("op", INTEGER)
def test_values_that_cannot_be_negative_are_known_as_such(op: str, low: int) -> None:
    definition, shapes = OPS[op], example(op).shapes
    assert definition.reach is not None
    reach = definition.reach(attributes(op), [Reach(low, 20, 20)] * len(shapes), shapes)
    said = definition.nonnegative(attributes(op), [low == 0] * len(shapes))
    exempt = definition.layer or definition.scale is Scale.OWN  # by weights; by the quantizer
    assert said or reach.low < 0 or exempt, f"{op}: `nonnegative` is missing"


def test_marks_of_pools_say_something_of_the_sign() -> None:
    rule = OPS["depthwise_conv2d"].nonnegative
    window = attributes_of(ConvAttrs, {**WINDOW, "pool": True})
    assert rule(window, [True, True]) and not rule(window, [True, False])
    assert not rule(attributes_of(ConvAttrs, WINDOW), [True, True])


@pytest.mark.parametrize("op", [op for op in COMPUTING if OPS[op].elementwise])
def test_elementwise_ops_look_at_one_place(op: str) -> None:
    inputs = floats(op)
    whole, place = evaluate(op, inputs), (1, 2, 3, 1)
    full = [np.broadcast_to(x, whole.shape)[place] for x in inputs]
    alone = evaluate(op, [np.asarray(x).reshape(1) for x in full])
    np.testing.assert_array_equal(alone[0], whole[place])


@pytest.mark.parametrize("op", [op for op in COMPUTING if OPS[op].scale is not Scale.OWN])
def test_layers_with_one_place_are_recognized(op: str) -> None:
    inputs = floats(op)
    if len(inputs) > 1 or evaluate(op, inputs).shape != inputs[0].shape:
        return
    order = np.random.default_rng(1).permutation(inputs[0].size)
    turned = inputs[0].ravel()[order].reshape(inputs[0].shape)
    same = np.array_equal(evaluate(op, inputs).ravel()[order], evaluate(op, [turned]).ravel())
    assert OPS[op].elementwise or not same, f"{op}: `elementwise` is missing"


@pytest.mark.parametrize("op", [op for op in COMPUTING if OPS[op].moves])
def test_movers_only_move(op: str) -> None:
    inputs = floats(op)
    there = np.concatenate([np.zeros(1), *(x.ravel() for x in inputs)])
    assert np.isin(evaluate(op, inputs), there).all()


def keeps_samples(definition: OpDef[Any], op: str) -> bool:
    return definition.keeps_samples(attributes(op), example(op).shapes[0])


def by_sample(op: str, inputs: list[Any]) -> list[list[Any]]:
    """The inputs of the first sample, and those of the others."""
    if op == "embedding":
        table, indices = inputs
        return [[table, indices[:1]], [table, indices[1:]]]
    shape, rank = inputs[0].shape, inputs[0].ndim
    of_samples = [x.shape[:1] == shape[:1] and x.ndim == rank for x in inputs]
    return [
        [x[part] if split else x for x, split in zip(inputs, of_samples, strict=True)]
        for part in (slice(1), slice(1, None))
    ]


@pytest.mark.parametrize("op", [op for op in COMPUTING if keeps_samples(OPS[op], op)])
def test_ops_declared_separate_keep_samples_separate(op: str) -> None:
    inputs = floats(op)
    parts = [evaluate(op, part) for part in by_sample(op, inputs)]
    np.testing.assert_allclose(np.concatenate(parts), evaluate(op, inputs), rtol=1e-12)


# -- attributes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "attrs", "says"),
    [
        ("relu", {"slope": 1}, "y: relu: unknown attribute `slope`"),
        ("leaky_relu", {}, "y: leaky_relu: attribute `alpha` is missing"),
        ("leaky_relu", {"alpha": "steep"}, "y: leaky_relu: attribute `alpha` is 'steep'"),
        ("leaky_relu", {"alpha": True}, "y: leaky_relu: attribute `alpha` is True"),
        ("max_pool", {**POOL, "strides": (0, 1)}, "y: max_pool: attribute `strides` is"),
        ("max_pool", {**POOL, "strides": 2}, "y: max_pool: attribute `strides` is 2"),
        ("max_pool", {**POOL, "strides": (1, 1, 1)}, "y: max_pool: attribute `strides` is"),
        ("max_pool", {**POOL, "padding": "full"}, "y: max_pool: attribute `padding` is 'full'"),
        ("composed", {"steps": (("softmax", (0,), ()),)}, "has `softmax`, which is not"),
        ("composed", {"steps": (("add", (0,), ()),)}, "gives `add` 1 arguments"),
        ("composed", {"steps": (("elu", (0,), (("beta", 1.0),)),)}, "unknown attribute `beta`"),
        ("log_softmax", {"axis": 1}, "y: log_softmax: attribute `axis` is 1"),
        ("pad", {"paddings": ((0, 0), (-1, 0), (0, 0), (0, 0))}, "y: pad: attribute `paddings`"),
    ],
)
def test_attributes_that_make_no_sense_are_refused_by_name(
    op: str, attrs: dict[str, Any], says: str
) -> None:
    graph = Graph()
    x = graph.input("x", "float32", IMAGE)
    with pytest.raises(GraphError) as caught:
        graph.add(op, x, name="y", attrs=attrs)
    assert says in str(caught.value)


def test_lists_and_numbers_of_numpy_are_read_as_python_has_them() -> None:
    attrs = {"ksize": [np.int64(2), 2], "strides": (1, 1), "padding": [[0, 0], [0, 1]]}
    found = Node("y", "max_pool", ("x",), attrs).typed(PoolAttrs)
    assert found == PoolAttrs(ksize=(2, 2), strides=(1, 1), padding=((0, 0), (0, 1)))
    assert type(found.ksize[0]) is int


def test_attributes_of_another_class_are_refused() -> None:
    node = Node("y", "relu", ("x",))
    with pytest.raises(GraphError, match="y: relu: attributes are MarkedAttrs, not PoolAttrs"):
        node.typed(PoolAttrs)
    assert node.typed(MarkedAttrs) == MarkedAttrs()


def test_a_node_with_other_attributes_is_read_again() -> None:
    from dataclasses import replace

    node = Node("y", "leaky_relu", ("x",), {"alpha": 0.1})
    kept = node.attributes
    assert replace(node, inputs=("z",)).attributes is kept
    assert replace(node, attrs={"alpha": 0.2}).attributes != kept
    assert type(replace(node, op="elu").attributes) is OPS["elu"].attributes


def test_types_of_results_are_as_wide_as_those_of_the_inputs() -> None:
    wide = [TensorType("float64", shape) for shape in example("conv2d").shapes]
    assert OPS["conv2d"].types(attributes("conv2d"), wide)[0].dtype == "float64"
