"""Frozen graphs, whose weights are constants, and conversion of functions to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qgraph.foreign import Proto, TFModule
from qgraph.frontends.tf.refused import check_inference, nodes_run


@dataclass(frozen=True)
class Frozen:
    """A frozen GraphDef. `outputs` maps public names to tensors if a signature names them."""

    graph_def: Proto
    inputs: tuple[str, ...] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)


def freeze_function(function: TFModule, output_names: Sequence[str]) -> Frozen:
    """A tf.function's concrete function with its variables as constants, calls inlined.

    Raises UnsupportedError for a function that updates variables.
    """
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    check_inference(nodes_run(function.graph.as_graph_def()))
    frozen = convert_variables_to_constants_v2(function, lower_control_flow=False)
    inputs = tuple(t.op.name for t in frozen.inputs if t.dtype.name != "resource")
    outputs = dict(zip(output_names, (t.name for t in frozen.outputs), strict=True))
    return Frozen(frozen.graph.as_graph_def(), inputs, outputs)
