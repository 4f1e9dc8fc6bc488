"""Compile time: GraphDef -> IR -> passes -> GraphDef, without the import of TensorFlow.

    python -m benchmarks.compile_time [--resnet] [--json FILE]

Graphs are chains of residual blocks (conv, batch norm, ReLU, add) with 50 to 50,000 nodes;
`--resnet` adds ResNet-152 with random weights. Calibration is not measured: activations get a fixed
exponent, weights their real one. Each size is compiled several times, and the table has medians.
Seconds are processor time, which other programs disturb less than wall time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.result import add_json_option, report
from benchmarks.tables import Table
from qgraph.backends.tf.builder import Dims, DType, GraphDefBuilder
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.frontends import load_graph_def
from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_of
from qgraph.passes import PassManager
from qgraph.quant.constant_scales import constant_exponent
from qgraph.quant.profile import load_profile
from qgraph.recipes import static

SIZES = (50, 500, 5_000, 50_000)
CHANNELS = 4
T = {"T": DType("float32")}


def chain(nodes: int) -> Any:
    """A GraphDef of about `nodes` nodes: residual blocks as frozen TF1 graphs have them."""
    rng = np.random.default_rng(0)
    builder = GraphDefBuilder()
    shape = Dims((None, 8, 8, CHANNELS))
    x = builder.add("Placeholder", "x", dtype=DType("float32"), shape=shape)
    count = 0
    while len(builder.graph_def.node) < nodes:
        x = _block(builder, x, f"block{count}", rng)
        count += 1
    builder.add("Identity", "y", [x], **T)
    return builder.graph_def


def _block(builder: GraphDefBuilder, x: str, name: str, rng: np.random.Generator) -> str:
    def const(stem: str, *shape: int) -> str:
        value = rng.uniform(0.5, 1.0, shape).astype(np.float32)
        made = builder.const(value, f"{name}/{stem}")
        return builder.add("Identity", f"{made}/read", [made], **T)

    w = const("weights", 3, 3, CHANNELS, CHANNELS)
    conv: dict[str, Any] = {"strides": (1, 1, 1, 1), "dilations": (1, 1, 1, 1), "padding": "SAME"}
    y = builder.add("Conv2D", f"{name}/conv", [x, w], **T, **conv)
    statistics_ = [const(s, CHANNELS) for s in ("gamma", "beta", "mean", "variance")]
    y = builder.add(
        "FusedBatchNormV3", f"{name}/bn", [y, *statistics_],
        U=DType("float32"), epsilon=1e-3, is_training=False, **T,
    )  # fmt: skip
    y = builder.add("Relu", f"{name}/relu", [y], **T)
    return builder.add("AddV2", f"{name}/add", [x, y], **T)


def resnet152() -> Any:
    """ResNet-152 with random weights, frozen."""
    import tensorflow as tf
    import tf_keras
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    model = tf_keras.applications.ResNet152(weights=None)
    function = tf.function(lambda x: model(x, training=False))
    spec = tf.TensorSpec([None, 224, 224, 3], tf.float32, name="image")
    frozen = convert_variables_to_constants_v2(function.get_concrete_function(spec))
    return frozen.graph.as_graph_def()


def assume_exponents(graph: Graph) -> None:
    """Set exponents without calibration, which is not part of compilation."""
    for node in graph.topological():
        if node.op not in ("quantize", "lookup"):
            continue
        spec = spec_of(node)
        value = graph.constant(node.inputs[0])
        if value is not None and spec.group is None:
            exponent = constant_exponent(value, spec)
        else:
            exponent = 10 if spec.bits > 8 else 4
        graph.set_attrs(node.name, spec=spec.with_exponent(exponent))
    graph.facts.add("calibrated")


def compile_once(graph_def: Any) -> tuple[dict[str, float], int]:
    """Seconds of each stage, and the number of nodes of the graph that was read."""
    start = time.process_time()
    graph = load_graph_def(graph_def)
    loaded = time.process_time()
    nodes = len(graph.nodes)
    PassManager(static(load_profile("graffitist-int8"))).run(graph)
    rewritten = time.process_time()
    assume_exponents(graph)
    assumed = time.process_time()
    emit_graph_def(graph)
    emitted = time.process_time()
    stages = {
        "import": loaded - start,
        "passes": rewritten - loaded,
        "exponents": assumed - rewritten,
        "emit": emitted - assumed,
        "total": emitted - start,
    }
    return stages, nodes


def measure(graph_def: Any, repeats: int) -> dict[str, float]:
    """Median seconds of each stage, and those of the slowest run."""
    runs = [compile_once(graph_def) for _ in range(repeats)]
    medians = {key: statistics.median(r[key] for r, _ in runs) for key in runs[0][0]}
    return {"nodes": runs[0][1], **medians, "slowest": max(r["total"] for r, _ in runs)}


def tables(graph_defs: dict[str, Any], repeats: int) -> Iterator[Table]:
    """One table with a row for each graph."""
    stages = ("import", "passes", "exponents", "emit", "total", "slowest")
    columns = {"graph": "", "nodes": ",d", **{f"{stage} s": ".3f" for stage in stages}}
    table = Table("Compile time", {**columns, "ms a node": ".2f"})
    for name, graph_def in graph_defs.items():
        found = measure(graph_def, repeats)
        seconds = [round(found[stage], 4) for stage in stages]
        table.add(name, found["nodes"], *seconds, 1e3 * found["total"] / found["nodes"])
    table.notes = [f"processor time; medians of {repeats} runs, and the slowest of them"]
    yield table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--resnet", action="store_true", help="add ResNet-152 (builds it with Keras)"
    )
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--repeats", type=int, default=3)
    add_json_option(parser)
    options = parser.parse_args()
    networks = {f"chain {n:,}": chain(n) for n in options.sizes}
    if options.resnet:
        networks["ResNet-152"] = resnet152()
    made = tables(networks, options.repeats)
    report("benchmarks.compile_time", made, options.json, seeds=(0,))


if __name__ == "__main__":
    main()
