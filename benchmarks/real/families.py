"""Six small networks of six families (`benchmarks/families`), static, on Fashion-MNIST."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.families.data import CALIBRATION, Split, fashion_mnist
from benchmarks.families.networks import FAMILIES
from benchmarks.families.train import INPUT, OUTPUT, facts_of, path_of
from benchmarks.real.measure import batches, exactness, same_class
from benchmarks.real.steps import FLOAT_RUNS, built, seconds_of
from benchmarks.tables import Table
from qgraph.backends.tf.agreement import Checker
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.quant.plan import parse_plan
from qgraph.quant.profile import load_profile

WAYS = (
    ("graffitist-int8", "plain"),
    ("graffitist-int8", "default"),
    ("graffitist-int4", "plain"),
    ("graffitist-int4", "default"),
)
COMPARED = 16
EXACT = "differ from reference"


def tables() -> Iterator[Table]:
    data = fashion_mnist()
    table = Table(
        f"Six families, static, {len(data.test.labels):,} Fashion-MNIST test images",
        {"network": "", "parameters": ",", "profile": "", "effort": "", "accuracy": ".2%",
         "as float": ".2%", EXACT: "", "quantize s": ".1f", "float runs": ".0f"},
        notes=[f"calibrated on {CALIBRATION} training images",
               f"compared with the integer reference on {COMPARED} test images",
               "graffitist-int4: weights of 4 bits, those of the first and the last layer of 8",
               "float runs: the time in runs of the float network over the calibration images "
               f"(in TensorFlow, median of {FLOAT_RUNS})"],
    )  # fmt: skip
    steps = Table(
        "Six families, static, what each step brings",
        {"network": "", "profile": "", "what": "", "accuracy": ".2%", "as float": ".2%", EXACT: "",
         "seconds": ".1f"},
        notes=["each row adds to the one before, up to the plan that the search found"],
    )  # fmt: skip
    for name in FAMILIES:
        _family(name, data, table, steps)
    yield from (table, steps)


def _family(name: str, data: Split, table: Table, steps: Table) -> None:
    model, test = load(path_of(name)), data.test
    plain = TFProgram(emit_graph_def(model))
    wanted = plain.predict(INPUT, test.images, OUTPUT, 500)
    once = seconds_of(lambda: plain.predict(INPUT, data.calibration, OUTPUT, 500))
    size = int(facts_of(name)["parameters"])

    def measured(graph: Graph) -> tuple[float, float, str]:
        checker = Checker(graph)
        found = checker.program.predict(INPUT, test.images, OUTPUT, 500)
        same = exactness(checker, batches(INPUT, test.images[:COMPARED], COMPARED))
        right = float((found.argmax(1) == test.labels).mean())
        return right, same_class(found, wanted), str(same)

    right = float((wanted.argmax(1) == test.labels).mean())
    table.add(name, size, "float32", None, right, 1.0, None, None, None)
    for profile, effort in WAYS:
        start = time.perf_counter()
        result = quantize(model, data.calibration, profile=profile, effort=effort)
        seconds = time.perf_counter() - start
        found = measured(result.graph)
        table.add(name, size, profile, effort, *found, seconds, seconds / once)
        if effort == "plain":
            continue
        plan = parse_plan(result.facts.choice.plan_spec)
        table.notes.append(f"{name}, {profile}: {plan.spec()}")
        for what, graph, seconds in built(
            model, load_profile(profile), plan, {INPUT: data.calibration}
        ):
            steps.add(name, profile, what, *measured(graph), seconds)
