"""Compile time: GraphDef -> IR -> passes -> GraphDef, without TensorFlow's import.

    python -m benchmarks.compile_time [--resnet] [--json FILE]

Graphs are chains of residual blocks (conv, batch norm, ReLU, add) from 50 to 50,000 nodes;
`--resnet` adds ResNet-152 with random weights. Calibration is left out: activations get a made-up
exponent, weights their real one. Each size is compiled several times; the median counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

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
    """Stand in for calibration, which is not compilation."""
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
    """Seconds for each stage, and the nodes of the graph that was read."""
    start = time.perf_counter()
    graph = load_graph_def(graph_def)
    loaded = time.perf_counter()
    nodes = len(graph.nodes)
    PassManager(static(load_profile("graffitist-int8"))).run(graph)
    rewritten = time.perf_counter()
    assume_exponents(graph)
    assumed = time.perf_counter()
    emit_graph_def(graph)
    emitted = time.perf_counter()
    stages = {
        "import": loaded - start,
        "passes": rewritten - loaded,
        "exponents": assumed - rewritten,
        "emit": emitted - assumed,
        "total": emitted - start,
    }
    return stages, nodes


def measure(graph_def: Any, repeats: int) -> dict[str, float]:
    runs = [compile_once(graph_def) for _ in range(repeats)]
    medians = {key: statistics.median(r[key] for r, _ in runs) for key in runs[0][0]}
    return {"nodes": runs[0][1], **medians, "slowest": max(r["total"] for r, _ in runs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--resnet", action="store_true", help="add ResNet-152 (builds it with Keras)"
    )
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    networks = {f"chain {n:,}": chain(n) for n in options.sizes}
    if options.resnet:
        networks["ResNet-152"] = resnet152()
    results = {name: measure(graph_def, options.repeats) for name, graph_def in networks.items()}
    columns = ("nodes", "import", "passes", "exponents", "emit", "total", "slowest")
    table = Table("graph", *columns, "ms per node", title="compile time, seconds (median)")
    for name, result in results.items():
        cells = [f"{result['nodes']:,}", *(f"{result[c]:.3f}" for c in columns[1:])]
        table.add_row(name, *cells, f"{1e3 * result['total'] / result['nodes']:.3f}")
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
