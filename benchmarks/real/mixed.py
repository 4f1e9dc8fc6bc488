"""Mixed precision on `cifar_10_model`: bits by layer beside the same bits everywhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.real.cifar import CALIBRATION, COMPARED, network_and_images
from benchmarks.real.measure import batches, exactness, same_class
from benchmarks.tables import Table, merged
from qgraph.backends.tf.agreement import Checker
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.compiler import quantize
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quant.bits import Budget
from qgraph.quant.plan import Plan
from qgraph.quant.profile import load_profile
from qgraph.static.mixed import Mixed, Point, search_bits
from qgraph.static.sample_parts import split
from qgraph.static.search import SAFE
from qgraph.static.units import overridden

BUDGETS = (3, 4, 5, 6, 8)
UNIFORM = (4, 8)
COLUMNS = {
    "budget": "",
    "mean bits": ".2f",
    "weight bytes": ",",
    "bits by layer": "",
    "SQNR dB": ".1f",
    "accuracy": ".2%",
    "as float": ".2%",
    "differ from reference": "",
}


def tables() -> Iterator[Table]:
    model, data, test, labels = network_and_images()
    (name,), (output,) = model.inputs, list(model.outputs)
    wanted = TFProgram(emit_graph_def(model)).predict(name, test, output, 256)
    plain = replace(SAFE, reconstruct=False)
    parts = []
    ways = {
        "biases corrected": plain,
        "weights reconstructed, biases corrected": replace(plain, reconstruct=True),
    }
    for steps, plan in ways.items():
        found, seconds = _searched(model, data, plan)
        table = Table(
            f"cifar_10_model, {plan}",
            COLUMNS,
            notes=[
                f"{CALIBRATION} training images; bits are chosen by SQNR at the logits on "
                f"{found.points[0].agreement.samples} of them, which the column shows",
                f"accuracy and answers on {len(test):,} test images; activations have 8 bits",
                f"{steps}: {plan}; the search took {seconds:.0f} s",
            ],
        )
        for label, point in _rows(found):
            profile = overridden(load_profile("graffitist-int8"), found.units, point.bits)
            checker = Checker(quantize(model, data, profile=profile, plan=plan).graph)
            scores = checker.program.predict(name, test, output, 256)
            same = exactness(checker, batches(name, test[:COMPARED], COMPARED))
            table.add(
                label,
                point.mean_bits,
                point.weight_bytes,
                _shown(point),
                point.agreement.sqnr,
                float((scores.argmax(1) == labels).mean()),
                same_class(scores, wanted),
                str(same),
            )
        parts.append((steps, table))
    yield merged("cifar_10_model: bits of weights by layer under a budget", "steps", parts)


def _searched(model: Graph, data: Array, plan: Plan) -> tuple[Mixed, float]:
    start = time.perf_counter()
    parts = split(model, {model.inputs[0]: data})
    budgets = [Budget(mean_bits=bits) for bits in BUDGETS]
    found = search_bits(model, load_profile("graffitist-int8"), plan, parts, budgets)
    return found, time.perf_counter() - start


def _rows(found: Mixed) -> Iterator[tuple[str, Point]]:
    """Rows in the order of mean bits; uniform bits come before those chosen by layer."""
    alike = [(f"{p.bits[0]} everywhere", p) for p in found.points if p.uniform]
    rows = [row for row in alike if row[1].bits[0] in UNIFORM]
    rows += [(f"{b.mean_bits:g} on average", p) for b, p in found.chosen.items()]
    yield from sorted(rows, key=lambda row: row[1].mean_bits)


def _shown(point: Point) -> str:
    """Bits in the order of the network; for many layers, the number of layers with each bit
    width.
    """
    if len(point.bits) <= 12:
        return " ".join(map(str, point.bits))
    return ", ".join(f"{count} of {bits}" for bits, count in sorted(Counter(point.bits).items()))
