import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.ir.types import QuantSpec
from qgraph.passes import PassManager
from qgraph.rewrite.trace import Trace
from qgraph.transforms.hoist_quantizers import HoistQuantizers
from tests.helpers.evaluate import reasons

SPEC = QuantSpec(8, True, "input")


def graph_of(*moves: tuple, spec: QuantSpec = SPEC) -> Graph:
    graph = Graph()
    value = graph.input("x", "float32", (1, 4, 4, 2))
    for op, attrs in moves:
        value = graph.add(op, value, name=op, attrs=attrs)
    graph.outputs["y"] = graph.add("quantize", value, name="q", attrs={"spec": spec})
    graph.facts.add("quantized")
    return graph


PAD = ("pad", {"paddings": ((0, 0), (1, 0), (0, 1), (0, 0)), "mode": "constant", "value": 0})
RESHAPE = ("reshape", {"shape": (1, 50)})


GOLDEN = """\
graph "graph" {
  %x = input {type=float32[1,4,4,2]}
  %x/q8 = quantize(%x) {spec=<s8 input f=None>} : float32[1,4,4,2]
  %pad = pad(%x/q8) {mode="constant", paddings=((0, 0), (1, 0), (0, 1), (0, 0)), value=0} : float32[1,5,5,2]
  %reshape = reshape(%pad) {shape=(1, 50)} : float32[1,50]
  return "y" = %reshape
}
"""  # noqa: E501


def hoist(graph: Graph) -> Trace:
    trace = Trace()
    PassManager([HoistQuantizers()]).run(graph, trace)
    return trace


def test_quantizer_goes_before_all_that_moves():
    graph = graph_of(PAD, RESHAPE)
    hoist(graph)
    assert print_graph(graph) == GOLDEN


def test_one_quantizer_serves_all_branches():
    graph = graph_of(PAD)
    other = graph.add("reshape", "x", name="flat", attrs={"shape": (1, 32)})
    graph.outputs["z"] = graph.add("quantize", other, name="q2", attrs={"spec": SPEC})
    hoist(graph)
    assert [n.name for n in graph.nodes.values() if n.op == "quantize"] == ["x/q8"]
    assert graph.outputs == {"y": "pad", "z": "flat"}


@pytest.mark.parametrize(
    ("moves", "spec"),
    [((), SPEC), ((("relu", {}),), SPEC), ((PAD,), QuantSpec(8, True, "activation"))],
    ids=["nothing-moves", "not-a-move", "inside-a-layer"],
)
def test_left_alone(moves, spec):
    graph = graph_of(*moves, spec=spec)
    before = print_graph(graph)
    assert not hoist(graph).refusals
    assert print_graph(graph) == before


def test_refused_where_others_see_the_floats():
    graph = graph_of(PAD)
    graph.outputs["floats"] = "pad"
    assert reasons(hoist(graph)) == [("q", "the floats of `pad` have other users")]
    assert graph.outputs["y"] == "q"


def test_refused_for_padding_off_the_grid():
    graph = graph_of(("pad", {**PAD[1], "value": 0.3}))
    assert reasons(hoist(graph)) == [("q", "`pad` pads with 0.3")]
    assert graph.outputs["y"] == "q"
