"""Warnings about a quantized network.

docs/static.md ("Warnings") lists them with their thresholds, which are defined here and in
`qgraph.static.agreement` (`LEVELS`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qgraph.exact.compare import Measured
from qgraph.exact.float_parts import float_between
from qgraph.frontends.tf.opaque import foreign_ops
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import kind_of, spec_of
from qgraph.static.agreement import LEVELS, Agreement, level_of
from qgraph.words import counted, percent

# With fewer samples, neither ranges nor measurements are reliable.
FEW_SAMPLES = 16
# The largest share of clipped values without a warning.
CLIPPED = 0.01
NAMED = 3

TRAINING_WITHOUT_DATA = (
    "--mode retrain without calibration data: training starts from thresholds of generated "
    "samples; give typical inputs with --calibration"
)


def of_evidence(samples: int) -> list[str]:
    """A warning if the number of samples is too small for reliable results."""
    if samples >= FEW_SAMPLES:
        return []
    return [
        f"only {counted(samples, 'sample')} given: with fewer than {FEW_SAMPLES}, ranges and the "
        "figures above may not hold for other inputs; a few hundred are better"
    ]


def of_result(
    graph: Graph, agreement: Agreement | None, measured: Measured, *, trained: bool = False
) -> list[str]:
    """Warnings if outputs are far from float, many values are clipped, or layers run in float.

    trained: training changed the outputs on purpose, so only the share of equal answers counts.
    """
    far = _moved_outputs(agreement) if trained else _far_outputs(agreement)
    clips = _clipping(graph, measured.clipped)
    return [*far, *clips, *_float_between(graph), *_not_in_tensorflow(graph)]


SEE_LAYERS = "; `qgraph analyze` shows which layers cost accuracy, and why"


def _far_outputs(found: Agreement | None) -> list[str]:
    if found is None or level_of(found.sqnr, found.top1, found.samples) < len(LEVELS):
        return []
    return [f"the result is far from the float network: {_distance(found)}{SEE_LAYERS}"]


def _moved_outputs(found: Agreement | None) -> list[str]:
    if found is None or level_of(found.sqnr, found.top1, found.samples) < len(LEVELS):
        return []
    *_, (_, least, _) = LEVELS
    if found.top1 is not None and found.top1 >= least:
        return []
    return [
        f"the trained network is far from the float network: {_distance(found)}; `qgraph evaluate` "
        "with labels shows whether training moved it to better answers or to worse ones"
    ]


def _distance(found: Agreement) -> str:
    parts = [f"SQNR of the outputs {found.sqnr:.1f} dB"]
    if found.top1 is not None:
        parts.append(f"{percent(found.top1)} get the same class as from the float network")
    return f"{', '.join(parts)} on {counted(found.samples, 'sample')}"


def _clipping(graph: Graph, clipped: Mapping[str, float]) -> list[str]:
    much = sorted((n for n, share in clipped.items() if share > CLIPPED), key=lambda n: -clipped[n])
    if not much:
        return []
    texts = [f"`{n}` clips {percent(clipped[n])}{_range(graph, n)}" for n in much[:NAMED]]
    more = f"; {len(much) - NAMED} more clip over {percent(CLIPPED)}" if len(much) > NAMED else ""
    return [f"many values are clipped on the samples: {'; '.join(texts)}{more}"]


def _range(graph: Graph, name: str) -> str:
    spec = spec_of(graph.nodes[name])
    if not isinstance(spec.exponent, int):
        return ""
    low, high = (float(np.ldexp(float(code), -spec.exponent)) for code in (spec.lo, spec.hi))
    return f" (it holds {low:.4g} to {high:.4g})"


def _float_between(graph: Graph) -> list[str]:
    between = float_between(graph)
    if not between:
        return []
    verb = "is" if len(between) == 1 else "are"
    return [
        f"{_named(between)} {verb} computed in float between integer layers: C, Verilog and the "
        "fixed-point hardware compute the integer segments, and the host computes what lies "
        "between; `qgraph inspect` shows what each op needs to become integers"
    ]


def _not_in_tensorflow(graph: Graph) -> list[str]:
    found = foreign_ops(graph)
    if not found:
        return []
    return [
        f"TensorFlow does not have {_named(found)}, so inference.pb is left out; "
        "`qgraph run` and the ONNX exports run the network"
    ]


def _named(nodes: Sequence[Node]) -> str:
    named = ", ".join(f"`{kind_of(node)}` at {node.name}" for node in nodes[:NAMED])
    return named + (f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else "")
