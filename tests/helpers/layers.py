"""Small networks before quantizers are inserted, and the text of the result."""

import re
from types import MappingProxyType

import numpy as np

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.passes import PassManager
from qgraph.rewrite.trace import Trace
from qgraph.transforms.insert_quantizers import InsertQuantizers
from qgraph.transforms.lower_batch_norm import LowerBatchNorm
from tests.helpers.evaluate import reasons as refused
from tests.helpers.quantized import INT8

WINDOW = MappingProxyType({"strides": (1, 1), "dilations": (1, 1), "padding": "same"})


class Net:
    """Layers on `x`. Constants are signed unless a test sets them unsigned."""

    def __init__(self, *shape: int | None) -> None:
        self.graph = Graph("net")
        self.x = self.graph.input("x", "float32", (None, *(shape or (4,))))

    def const(self, name: str, *shape: int, low: float = -1.0) -> str:
        size = int(np.prod(shape))
        return self.graph.const(np.linspace(low, 1, size, dtype=np.float32).reshape(shape), name)

    def op(self, op: str, *inputs: str, name: str | None = None, **attrs) -> str:
        return self.graph.add(op, *inputs, name=name, attrs=attrs)

    def fc(self, x: str, name: str) -> str:
        return self.op("matmul", x, self.const(f"{name}/w", 4, 4), name=name)

    def leaky(self, x: str) -> str:
        alpha = self.graph.const(np.float32(0.1), "alpha")
        return self.op("maximum", x, self.op("mul", x, alpha, name="v"), name="m")

    def conv(self, x: str, name: str, op: str = "conv2d", **attrs) -> str:
        w = self.const(f"{name}/w", 1, 1, 4, 1 if op == "depthwise_conv2d" else 4)
        return self.op(op, x, w, name=name, **{**WINDOW, **attrs})


def inserted(net: Net, y: str, profile=INT8) -> tuple[str, Trace]:
    """The graph as text, without inputs, constants, types and windows, and the log of the pass."""
    graph, trace = net.graph, Trace()
    graph.outputs["y"] = y
    graph.facts |= LowerBatchNorm.ensures
    PassManager([InsertQuantizers(profile)]).run(graph, trace)
    lines = [
        line.strip()
        for line in print_graph(graph).splitlines()[1:-1]
        if not re.search(" = (const|input)", line)
    ]
    text = "\n".join(line.rpartition(" : ")[0] or line for line in lines)
    text = re.sub(r"dilations=.*?, padding=\"\w+\",? ?|strides=\(1, 1\)", "", text)
    return text.replace(" {}", "").replace(" f=None", "").replace(", }", "}"), trace


def check_inserted(net: Net, y: str, golden: str, profile=INT8, reasons=()) -> None:
    """Assert that quantizers are inserted as in `golden`, with these refusals."""
    text, trace = inserted(net, y, profile)
    assert text == "\n".join(line.strip() for line in golden.strip().splitlines())
    assert refused(trace) == [*reasons]
