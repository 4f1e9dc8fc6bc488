"""Static and retrained networks of six families: ``python -m benchmarks.families.table3``.

The tables have the shape of tables 3 and 5 of the TQT paper (Jain et al., 2019). Every run starts
from the float network. All runs have the same learning rates, which were chosen on validation
images. The best checkpoint by validation is finalized, and its inference graph runs on the test
images. Finished runs are kept in the cache folder and not repeated; a run that was killed
continues.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.families.data import CALIBRATION, Split, cifar10, fashion_mnist
from benchmarks.families.networks import FAMILIES
from benchmarks.families.train import path_of
from benchmarks.families.ways import (
    ANNEALED,
    ANNEALED_RATE,
    COMPARISONS,
    INT4_TRAINED,
    INT4_UNEQUALIZED,
    INT8_TRAINED,
    INT8_UNEQUALIZED,
    REFERENCE,
    WAYS,
    Way,
)
from benchmarks.real.measure import batches, exactness
from benchmarks.registry import cache
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table
from qgraph.backends.tf.agreement import Checker
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.choices import Effort, Learning
from qgraph.compiler import quantize
from qgraph.files import sha256_of
from qgraph.ir.graph import Graph
from qgraph.quiet import import_tensorflow_quietly
from qgraph.retrain import make_deterministic
from qgraph.train.checkpoint import restore
from qgraph.train.data import training_data
from qgraph.train.folded import norms_of
from qgraph.train.loop import Trainer
from qgraph.train.options import Options
from qgraph.train.score import Score, TrainingStatus

OPTIONS = Options(epochs=5, batch_size=128, weight_rate=1e-4, threshold_rate=1e-2, seed=1)
VALIDATIONS = 5  # in an epoch
COMPARED = 16
# A larger network, whose whole epochs would take too long.
CIFAR_OPTIONS = replace(OPTIONS, epochs=1, batch_size=32, norm_epochs=0.5)
CIFAR_TRAINING, CIFAR_VALIDATION = 16_000, 2_000
BEST_AND_MEAN = ("mobilenet_v1", "vgg")
BOTH_WAYS = ("mobilenet_v1", "mobilenet_v2", "cifar_10_model")
# Networks that are trained with several orders of the batches.
BOTH_STARTS = ("mobilenet_v1", "inception")
NOTES = (
    "wt: weights are trained; wt+th: weights and thresholds. INT4: weights of 4 bits, those of the "
    "first and the last layer of 8; activations of 8. INT4/4: activations of 4 too",
    "before thresholds learn, channels are equalized and weights clipped at three deviations; "
    "INT4 from static begins as static INT4, which is what the default effort finds",
    f"wt FP32 annealed, INT4 from static: the rate of weights falls from {ANNEALED_RATE:g} to a "
    "twentieth, along a cosine",
    f"{CALIBRATION} training images to calibrate; rates {OPTIONS.weight_rate:g} (weights) and "
    f"{OPTIONS.threshold_rate:g} (thresholds), batches of {OPTIONS.batch_size}, no augmentation, "
    f"{OPTIONS.epochs} epochs; batch norms are frozen after one",
    "test accuracy of the best checkpoint by validation, in brackets its epoch (0: as it began); "
    "10,000 test images: a standard error of about 0.3 points",
    f"cifar_10_model: {CIFAR_TRAINING:,} training images seen once, in batches of "
    f"{CIFAR_OPTIONS.batch_size}; validation on {CIFAR_VALIDATION:,}, which its makers may have "
    "trained it on",
)
Facts = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A network and its images."""

    name: str
    path: Path
    data: Split
    options: Options = OPTIONS


def measured(case: Case, way: Way, folder: Path, again: bool, seed: int = OPTIONS.seed) -> Facts:
    """The row of `case` and `way`, from its file if it exists; else it is measured and written
    there.

    The seed orders the batches; calibration and the float network are the same for all seeds.
    """
    steps = len(case.data.training.labels) // case.options.batch_size
    options = replace(
        case.options,
        learn=Learning(way.learn or "all"),
        weight_rate=way.weight_rate or case.options.weight_rate,
        validate_every=max(steps // VALIDATIONS, 1),
        seed=seed,
        anneal_steps=steps * case.options.epochs if way.annealed else None,
    )
    asked = {
        "network": sha256_of(case.path),
        "options": _set_options(asdict(options)) if way.learn else None,
        "plan": way.plan.spec() if way.plan else Effort.DEFAULT.value,
    }
    place = folder / f"{case.name}-{way.key}{f'-seed{seed}' if seed != OPTIONS.seed else ''}"
    file = place.with_name(f"{place.name}.json")  # the name may contain a point
    if file.exists() and not again:
        known: Facts = json.loads(file.read_text("utf-8"))
        if {**known["asked"], "options": _set_options(known["asked"]["options"])} == asked:
            return known
    made = {"asked": asked, **_made(case, way, options, place)}
    file.write_text(json.dumps(made, indent=1) + "\n", "utf-8")
    return made


def _set_options(options: Facts | None) -> Facts | None:
    """The options that are set, because versions may differ in the others."""
    return options and {name: value for name, value in options.items() if value is not None}


def _made(case: Case, way: Way, options: Options, checkpoints: Path) -> Facts:
    start = time.perf_counter()
    mode = "retrain" if way.learn else "static"
    target = way.profile or "graffitist-int8"
    result = quantize(
        case.path,
        case.data.calibration,
        profile=target,
        mode=mode,
        plan=way.plan,
        effort=Effort.DEFAULT if way.searched else None,
    )
    graph = result.graph if way.profile else result.floating
    facts: Facts = {}
    if way.learn:
        data, validation = (
            training_data((part.images, part.labels), graph, options.batch_size, options.seed)
            for part in (case.data.training, case.data.validation)
        )
        checkpoints.mkdir(parents=True, exist_ok=True)
        trainer = Trainer(
            graph, result.floating, norms_of(result.floating), data, validation, options,
            folder=checkpoints, watch=_ProgressPrinter(f"{case.name}, {way.title}"),
        )  # fmt: skip
        trainer.run()
        assert trainer.best is not None and data.steps
        restore(trainer.model.named_variables(), trainer.best)
        graph = trainer.model.finalized()
        facts["steps_per_epoch"] = data.steps
        facts["history"] = [asdict(score) for score in trainer.history]
        facts["best"] = asdict(trainer.best_score) if trainer.best_score else None
    facts["different"] = str(_exact(graph, case)) if way.profile else None
    facts["test"] = _accuracy(graph, case)
    facts["seconds"] = round(time.perf_counter() - start, 1)
    return facts


def _accuracy(graph: Graph, case: Case) -> float:
    program = TFProgram(emit_graph_def(graph))
    (output,) = graph.outputs
    scores = program.predict(graph.inputs[0], case.data.test.images, output, 500)
    return float((scores.argmax(1) == case.data.test.labels).mean())


def _exact(graph: Graph, case: Case) -> Any:
    images = case.data.test.images[:COMPARED]
    return exactness(Checker(graph), batches(graph.inputs[0], images, COMPARED))


class _ProgressPrinter:
    """Prints the state of a run once per epoch."""

    def __init__(self, title: str) -> None:
        self.title = title

    def __call__(self, status: TrainingStatus) -> None:
        if status.done == status.steps and status.best:
            best = status.best.accuracy or 0.0
            print(f"{self.title}: epoch {status.epoch + 1}, validation {best:.2%}", flush=True)


# -- tables -------------------------------------------------------------------------------------


def table_3(
    rows: dict[str, dict[Way, Facts]], notes: Iterable[str], ways: Sequence[Way] = WAYS
) -> Table:
    """Test accuracy by network and way; for retrained networks also the epoch of the best
    checkpoint.
    """
    columns: dict[str, str] = {}
    for way in ways:
        columns[way.title] = ".2%"
        if any(found[way].get("best") for found in rows.values()):
            columns[f"{way.title}, epoch"] = ".1f"
    compared = {title: both for title, both in COMPARISONS.items() if {*both} <= {*ways}}
    over = dict.fromkeys(compared, "+.2f")
    table = Table(
        "Test accuracy, static and retrained", {"network": "", **columns, **over}, notes=list(notes)
    )
    for name, found in rows.items():
        cells: dict[str, float | None] = {}
        for way in ways:
            cells |= {way.title: found[way]["test"], f"{way.title}, epoch": _epoch(found[way])}
        above = [
            100 * (found[way]["test"] - found[reference]["test"])
            for way, reference in compared.values()
        ]
        table.add(name, *(cells[heading] for heading in columns), *above)
    return table


def _epoch(facts: Facts) -> float | None:
    best = facts.get("best")
    return best["step"] / facts["steps_per_epoch"] if best else None


def _cell(facts: Facts) -> str:
    epoch = _epoch(facts)
    return f"{facts['test']:.2%}" + (f" ({epoch:.1f})" if epoch is not None else "")


def table_5(rows: dict[str, dict[Way, Facts]]) -> Table:
    """The best validation of a run, and the mean of the validations of its last epoch."""
    shares = [f"{(i + 1) / VALIDATIONS:.0%}" for i in range(VALIDATIONS)]
    table = Table(
        f"Validation accuracy in the last epoch, {INT8_TRAINED.title}",
        {"network": "", **dict.fromkeys(shares, ".2%"), "mean": ".2%", "best": ".2%",
         "best minus mean": "+.2%", "epoch of the best": ".1f"},
    )  # fmt: skip
    for name in (n for n in BEST_AND_MEAN if n in rows):
        facts = rows[name][INT8_TRAINED]
        last = [Score(**score).accuracy or 0.0 for score in facts["history"]][-VALIDATIONS:]
        mean, best = float(np.mean(last)), facts["best"]["accuracy"]
        epoch = facts["best"]["step"] / facts["steps_per_epoch"]
        table.add(name, *last, mean, best, best - mean, epoch)
    return table


def table_equalized(rows: dict[str, dict[Way, Facts]]) -> Table:
    """Effect of equalizing channels before training, which does not change the float network."""
    ways = (INT4_UNEQUALIZED, INT4_TRAINED)
    table = Table(
        "4 bits, channels equalized before training",
        {"network": "", REFERENCE.title: ".2%",
         **{f"{way.title}{part}": ".2%" for way in ways for part in (", untrained", "")}},
        notes=["untrained: validation accuracy as calibrated; the rest: test accuracy"],
    )  # fmt: skip
    for name in (n for n in BOTH_WAYS if n in rows):
        found = rows[name]
        cells = [c for w in ways for c in (found[w]["history"][0]["accuracy"], found[w]["test"])]
        table.add(name, found[REFERENCE]["test"], *cells)
    return table


def table_annealed(seeds: dict[str, dict[Way, list[Facts]]]) -> Table:
    """Effect of annealing the learning rate of weights, for float and for 8 bits."""
    float_ways, int8_ways = (REFERENCE, ANNEALED[0]), (INT8_TRAINED, ANNEALED[1])
    table = Table(
        "The rate of weights annealed",
        {"network": "", "orders of batches": "d",
         **{way.title: ".2f" for way in (*float_ways, *int8_ways)},
         "annealed INT8 over the better FP32": "+.2f", "standard error": ".2f"},
        notes=["mean over orders of the batches; the standard error is that of the difference of "
               "the means, by these runs"],
    )  # fmt: skip
    for name, found in seeds.items():
        if ANNEALED[1] not in found:
            continue
        means = {way: _tests(found[way]).mean() for way in (*float_ways, *int8_ways)}
        better, int8 = max(float_ways, key=means.__getitem__), ANNEALED[1]
        count = len(found[int8])
        spread = sum(_tests(found[way]).var(ddof=1) for way in (better, int8)) if count > 1 else 0
        error = float(np.sqrt(spread / count)) if count > 1 else None
        shown = (float(mean) for mean in means.values())
        table.add(name, count, *shown, float(means[int8] - means[better]), error)
    return table


def table_seeds(seeds: dict[str, dict[Way, list[Facts]]], count: int) -> Table:
    """Retrained in float and with 8 bits, with several orders of the batches."""
    table = Table(
        f"Test accuracy over {count} orders of the batches, mean and standard deviation",
        {"network": "", "8 bits": "", REFERENCE.title: ".2f", INT8_TRAINED.title: ".2f",
         "INT8 over FP32": "+.2f", "standard error": ".2f"},
        notes=["the float network, its calibration and the test images are the same for all; "
               "the standard error is that of the difference of the means, by these runs"],
    )  # fmt: skip
    for name, found in seeds.items():
        float_tests = _tests(found[REFERENCE])
        for way in (
            w for w in (INT8_TRAINED, INT8_UNEQUALIZED) if w in found and len(float_tests) > 1
        ):
            tests = _tests(found[way])
            over = tests.mean() - float_tests.mean()
            error = np.sqrt((float_tests.var(ddof=1) + tests.var(ddof=1)) / count)
            shown = [[float(t.mean()), float(t.std(ddof=1))] for t in (float_tests, tests)]
            start = "equalized" if way.equalized else "not equalized"
            table.add(name, start, *shown, float(over), float(error))
    return table


def _tests(rows: list[Facts]) -> Any:
    return 100 * np.array([facts["test"] for facts in rows])


def _cases() -> dict[str, Callable[[], Case]]:
    from benchmarks import assets

    def family(name: str) -> Callable[[], Case]:
        return lambda: Case(name, path_of(name), fashion_mnist())

    def cifar() -> Case:
        data = cifar10()
        data = replace(
            data,
            training=data.training.first(CIFAR_TRAINING),
            validation=data.validation.first(CIFAR_VALIDATION),
        )
        return Case("cifar_10_model", assets.cifar10_network(), data, CIFAR_OPTIONS)

    return {**{name: family(name) for name in FAMILIES}, "cifar_10_model": cifar}


def main(
    only: Annotated[list[str] | None, typer.Option(help="A network; may be repeated.")] = None,
    way: Annotated[
        list[str] | None,
        typer.Option(help=f"A column besides {REFERENCE.title}, for the first table alone."),
    ] = None,
    again: Annotated[bool, typer.Option(help="Begin again, also finished runs.")] = False,
    seeds: Annotated[
        int, typer.Option(min=1, help="Orders of the batches, for retrained float and 8 bits.")
    ] = 1,
    json_file: JsonFile = None,
) -> None:
    """Train what is missing, and print the tables."""
    ways = _chosen(way)
    import_tensorflow_quietly()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    make_deterministic()
    folder = cache() / "families" / "table3"
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[Way, Facts]] = {}
    repeated: dict[str, dict[Way, list[Facts]]] = {}
    for name, made in _cases().items():
        if only and name not in only:
            continue
        case = made()
        rows[name] = {}
        both = not way and name in BOTH_WAYS
        for each in (*ways, INT4_UNEQUALIZED) if both else ways:
            rows[name][each] = facts = measured(case, each, folder, again)
            print(f"{name}, {each.title}: {_cell(facts)}, {facts['seconds']} s", flush=True)
        if name in FAMILIES and not way:
            more = (INT8_UNEQUALIZED,) if seeds > 1 and name in BOTH_STARTS else ()
            repeated[name] = {way: [] for way in (REFERENCE, INT8_TRAINED, *ANNEALED, *more)}
            for seed, each in product(range(1, seeds + 1), repeated[name]):
                facts = measured(case, each, folder, again and seed > 1, seed)
                repeated[name][each].append(facts)
                print(f"{name}, {each.title}, seed {seed}: {facts['test']:.2%}", flush=True)
    tables = [table_3(rows, NOTES, ways)]
    if not way:
        tables += [table_equalized(rows), table_5(rows), table_annealed(repeated)]
        tables += [table_seeds(repeated, seeds)] if seeds > 1 else []
    report("benchmarks.families.table3", tables, json_file, range(1, seeds + 1))


def _chosen(titles: list[str] | None) -> tuple[Way, ...]:
    """The ways with these titles, and the one that others are compared with; all for None."""
    known = [way.title for way in WAYS]
    unknown = set(titles or ()) - set(known)
    if unknown:
        raise typer.BadParameter(f"unknown way {sorted(unknown)[0]}; choose {', '.join(known)}")
    return tuple(w for w in WAYS if not titles or w.title in (*titles, REFERENCE.title))


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    typer.run(main)
