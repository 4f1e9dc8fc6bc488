"""The text form: what is printed parses back to the same graph."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.errors import TextError, UnsupportedError
from qgraph.ir.graph import Graph, Node, node_of
from qgraph.ir.parsing import LostSource, parse_graph, parse_node
from qgraph.ir.printing import print_graph, print_node
from qgraph.ir.types import OVERFLOWS, ROUNDINGS, QuantSpec, TensorType
from qgraph.ir.verify import constants_of, verify

EXPONENTS = st.integers(-126, 126)
NAMES = st.one_of(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_./-]{0,8}", fullmatch=True),
    st.sampled_from(
        ['a "b"', "a\\", '\\"', "(a, b)", "} : x", "a after (%b)", "7", "a#2", "new\nline", "x = y"]
    ),
    st.text(min_size=1, max_size=6),
).filter(lambda name: node_of(name) == name)
SPECS = st.builds(
    QuantSpec,
    bits=st.integers(1, 32),
    signed=st.booleans(),
    role=st.sampled_from(["input", "activation", "internal", "weight", "bias"]),
    exponent=st.one_of(st.none(), EXPONENTS, st.lists(EXPONENTS, min_size=1).map(tuple)),
    rounding=st.sampled_from(ROUNDINGS),
    overflow=st.sampled_from(OVERFLOWS),
    group=st.sampled_from([None, "g0", "g17"]),
    per_channel=st.booleans(),
)
TYPES = st.builds(
    TensorType,
    st.sampled_from(["float32", "int64", "bool", "string"]),
    st.one_of(st.none(), st.lists(st.none() | st.integers(0, 9), max_size=4).map(tuple)),
)
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), SPECS, TYPES
)
ATTRS = st.dictionaries(
    st.from_regex(r"[a-z_]{1,6}", fullmatch=True).filter(lambda key: key != "types"),
    st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4),
    max_size=3,
)
SPECIAL = [np.inf, -np.inf, np.nan, -0.0, 0.1, 1e-45, 3.4e38]
CONSTANTS = st.one_of(
    st.lists(st.floats(width=32), max_size=5).map(lambda v: np.array(v, np.float32)),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3).map(lambda v: np.array(v, np.int64)),
    st.lists(st.booleans(), max_size=3).map(lambda v: np.array(v, bool)),
    st.sampled_from(
        [
            np.array(0.1, np.float16),
            np.array(SPECIAL, np.float32).reshape(1, 7),
            np.zeros((0, 3), np.float32),
            np.arange(40.0),
            np.array([b"text"], object),
        ]
    ),
)


@st.composite
def graphs(draw):
    """Names, types, constants and specs that text has to carry; opaque ops have any arity."""
    graph = Graph(draw(NAMES))
    names = iter(draw(st.lists(NAMES, min_size=12, max_size=12, unique=True)))
    values = [graph.input(next(names), "float32", draw(TYPES).shape)]
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["const", "quantize", "opaque", "opaque"]))
        if kind == "const":
            graph.const(draw(CONSTANTS), next(names))
        elif kind == "quantize":
            graph.add(kind, values[0], name=next(names), attrs={"spec": draw(SPECS)})
        else:
            types = tuple(draw(st.lists(TYPES, min_size=1, max_size=3)))
            attrs = {"kind": draw(st.text(max_size=4)), "types": types}
            inputs = draw(st.lists(st.sampled_from(values), max_size=3))
            control = draw(st.lists(st.sampled_from(list(graph.nodes)), max_size=2, unique=True))
            attrs["source"] = None
            made = graph.add(
                "opaque",
                *inputs,
                name=next(names),
                attrs=attrs,
                control=control,
                outputs=len(types),
            )
            values += graph.nodes[made].values
    for public in draw(st.lists(NAMES, max_size=2, unique=True)):
        graph.outputs[public] = draw(st.sampled_from(values))
    return graph


def shown(node):
    """All of a node as text, because NaN is not equal to itself but its repr is."""
    return repr((node.name, node.op, node.inputs, sorted(node.attrs.items()), node.control))


@settings(max_examples=200)
@given(graphs())
def test_round_trip(graph):
    verify(graph)
    text = print_graph(graph)
    back = parse_graph(text, constants_of(graph))
    verify(back)
    assert print_graph(back) == text
    assert (back.name, back.inputs, back.outputs) == (graph.name, graph.inputs, graph.outputs)
    assert back.types == graph.types
    for node, twin in zip(graph.topological(), back.topological(), strict=True):
        assert shown(node) == shown(twin)


@given(NAMES, ATTRS)
def test_attributes_of_any_kind_are_read_as_they_are_printed(name, attrs):
    node = Node(name, "opaque", attrs=attrs)
    assert shown(parse_node(print_node(node))) == shown(node)


@pytest.mark.parametrize("value", SPECIAL)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_inline_constants_are_exact(value, dtype):
    graph = Graph()
    with np.errstate(over="ignore"):
        graph.const(np.full((2, 1), value).astype(dtype), "c")
    back = parse_graph(print_graph(graph)).nodes["c"].attrs["value"]
    assert back.dtype == dtype and back.shape == (2, 1)
    np.testing.assert_array_equal(back, graph.nodes["c"].attrs["value"])
    assert np.signbit(back).tolist() == np.signbit(graph.nodes["c"].attrs["value"]).tolist()


GOOD = """graph "g" {

  %x = input {type=float32[?,4]}
  %w = const {value=float32[4,8]:sha256:0123456789abcdef}
  %y = relu(%x) : float32[?,4]
  return "y" = %y
}
"""


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("%y = relu(%x)", "%y = relu %x", "line 5: this is neither"),
        ("%y = relu(%x)", "%y = rolu(%x)", "line 5: unknown op `rolu`"),
        ("relu(%x)", "relu(%z)", "line 5: input `z` does not exist"),
        ("relu(%x)", "relu(x)", "line 5: expected a %value, found `x`"),
        (
            "relu(%x) : float32[?,4]",
            "relu(%x) : float32[?,5]",
            "line 5: the declared type is float32[?,5]",
        ),
        ("relu(%x)", "quantize(%x) {spec=<s8 input wobble>}", "line 5: unknown word `wobble`"),
        ("relu(%x)", "quantize(%x) {spec=<seven input>}", "line 5: invalid literal"),
        ("relu(%x)", "squeeze(%x) {axes=5}", "line 5: "),
        ("relu(%x)", "squeeze(%x) {axes}", "line 5: expected key=value, found `axes`"),
        ("relu(%x)", "squeeze(%x) {axes=oops}", "line 5: `oops` is not an attribute value"),
        ("%y = relu(%x)", "%x = relu(%x)", "line 5: a node of this name already exists"),
        ("relu(%x)", "relu(%x) after (%n)", "line 5: control input `n` does not exist"),
        ('"y" = %y', '"y" = %z', "line 6: `z` does not exist"),
        ('graph "g"', "graph g", "line 1: expected `graph"),
        ("}\n", "", "expected `graph"),
    ],
)
def test_errors_name_the_line(old, new, complaint):
    text = re.sub(r"  %w.*\n", "  %w = const {value=int32[]:[1]}\n", GOOD)
    parse_graph(text)
    with pytest.raises(TextError, match=re.escape(complaint)):
        parse_graph(text.replace(old, new))


def test_large_constants_need_their_array():
    with pytest.raises(TextError, match="line 4: constant `w` is printed as a hash"):
        parse_graph(GOOD)
    with pytest.raises(TextError, match="line 4: constant `w` does not have the hash"):
        parse_graph(GOOD, {"w": np.zeros((4, 8), np.float32)})


def test_an_opaque_op_from_text_cannot_run():
    graph = Graph()
    attrs = {"kind": "Fancy", "types": (TensorType("float32", None),), "source": object()}
    graph.add("opaque", name="o", attrs=attrs)
    source = parse_graph(print_graph(graph)).nodes["o"].attrs["source"]
    assert source == LostSource("o")
    with pytest.raises(UnsupportedError, match="o: an opaque op that was read from text"):
        source.run([])
