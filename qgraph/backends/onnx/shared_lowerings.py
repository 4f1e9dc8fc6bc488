"""Steps that all ONNX forms write in the same way: moves, and ops with an ONNX equivalent."""

from __future__ import annotations

from collections.abc import Mapping

from qgraph.backends.onnx.builder import element_type
from qgraph.backends.onnx.emission import Lower, ProgramEmission
from qgraph.ir.ops import OPS as GRAPH_OPS
from qgraph.program import Step
from qgraph.program.ops import OPS, OpClass
from qgraph.program.ops.base import AnyProgramOp


def _named(op: AnyProgramOp, name: str) -> Lower:
    if op.family is OpClass.UNARY:
        return lambda emission, step: emission._unary(step, name)
    return lambda emission, step: emission._binary(step, name)


def _embedding(emission: ProgramEmission, step: Step) -> None:
    x, table = step.inputs
    model, dtype = emission.model, emission.working(table)
    held = emission.get(x, emission.made_as(x)[0])
    index = model.add("Cast", [held], f"{step.output}/index", to=element_type("int64"))
    value = model.add("Gather", [emission.get(table, dtype), index], step.output, axis=0)
    emission.put(step.output, value, dtype)


# Plain ops of the program are ops of the graph, whose definitions have ONNX's name.
NAMED = {name: op.formats.onnx for name, op in GRAPH_OPS.items() if op.formats.onnx}
SHARED: Mapping[str, Lower] = {
    **{
        op.name: _named(op, NAMED[op.name])
        for op in OPS.values()
        if op.plain and op.family.pointwise and op.name in NAMED
    },
    "clip": ProgramEmission._clip,
    "reduce_max": ProgramEmission._reduce_max,
    "reshape": ProgramEmission._reshape,
    "transpose": ProgramEmission._transpose,
    "slice": ProgramEmission._slice,
    "concat": ProgramEmission._concat,
    "pad": ProgramEmission._pad,
    "take": ProgramEmission._take,
    "embedding": _embedding,
}
