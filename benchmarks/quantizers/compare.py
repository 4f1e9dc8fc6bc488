"""Kinds of quantizers side by side: ``python -m benchmarks.quantizers.compare [--network NAME]``.

The tables have the shape of tables 1 and 3 of the TQT paper (Jain et al., 2019), on small networks.
One trainer trains all kinds from the same network, with the same rates and the same orders of
batches. The best checkpoint by validation runs on the test images. Finished runs are kept in the
cache folder; a run that was killed starts again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.families.data import Split, fashion_mnist
from benchmarks.families.networks import FAMILIES
from benchmarks.families.train import path_of
from benchmarks.quantizers.affine import multipliers_table
from benchmarks.quantizers.kinds import BY_NAME, FIXED, FLOAT, KINDS, PER_TENSOR, Compared
from benchmarks.quantizers.runs import (
    LAST,
    VALIDATIONS,
    Case,
    Facts,
    file_of,
    mean_of_last,
    measured,
    read,
)
from benchmarks.quantizers.tfmot import is_installed
from benchmarks.registry import cache
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table
from qgraph.quiet import import_tensorflow_quietly
from qgraph.retrain import make_deterministic
from qgraph.train.options import Options

FOUR, EIGHT = "graffitist-int4", "graffitist-int8"
PROFILES = {FOUR: "INT4", EIGHT: "INT8"}
OPTIONS = Options(epochs=1, batch_size=64, weight_rate=1e-4, threshold_rate=1e-2, norm_epochs=0)
TRAINING, VALIDATION = 12_800, 2_000
NETWORKS = ("mobilenet_v1", "resnet", "mobilenet_v2")
NOTES = (
    "mean and standard error over orders of the batches, in percent",
    "INT4: weights of 4 bits, those of the first and the last layer of 8; activations of 8",
    f"{TRAINING:,} Fashion-MNIST images seen once in batches of {OPTIONS.batch_size}; rates "
    f"{OPTIONS.weight_rate:g} (weights) and {OPTIONS.threshold_rate:g} (thresholds); batch norms "
    f"are frozen; the best of {VALIDATIONS + 1} validations on {VALIDATION:,} images sees 10,000 "
    "test images",
)
PACKAGES = ("tensorflow", "tf-keras", "tensorflow-model-optimization")
Key = tuple[str, str, str, int]  # network, profile, kind, seed
Rows = dict[Key, Facts]


def subset(data: Split) -> Split:
    """The first images for training and validation, and all test images."""
    training, validation = data.training.first(TRAINING), data.validation.first(VALIDATION)
    return replace(data, training=training, validation=validation)


def tables(rows: Rows) -> list[Table]:
    """All tables of the finished runs."""
    ours = [accuracies(rows), tqt_advantage(rows), table_1(rows), table_3(rows), best(rows)]
    return [kinds_table(), *(table for table in ours if table.rows), multipliers_table()]


def kinds_table() -> Table:
    """The description of each kind."""
    headings = ("name", "scale", "gradient of what it trains", "start", "source", "ends in")
    table = Table("Kinds of quantizers", {"quantizer": "", **dict.fromkeys(headings, "")})
    for compared in KINDS[1:]:
        kind = compared.kind
        ends = "integers" if kind.integers else "real numbers: for comparison only"
        table.add(kind.title, kind.name, kind.scale, kind.gradient, kind.start, kind.source, ends)
    return table


def accuracies(rows: Rows) -> Table:
    """Test accuracy of each kind on each network."""
    columns = _columns(rows)
    table = Table(
        "Test accuracy by kind of quantizers",
        {"quantizer": "", "ends in integers": "", **{_heading(c): ".2f" for c in columns}},
        notes=[*NOTES, _runs(rows)],
    )
    for compared in KINDS:
        cells = [_shown(_tests(rows, *column, compared)) for column in columns]
        if any(cells):
            ends = "yes" if compared.kind.integers else "no"
            table.add(compared.kind.title, ends if compared.quantized else "-", *cells)
    return table


def tqt_advantage(rows: Rows) -> Table:
    """The accuracy of TQT per tensor minus that of each kind, with the same orders of batches."""
    columns = _columns(rows)
    table = Table(
        "TQT per tensor over other kinds",
        {"TQT over": "", **{_heading(c): "+.2f" for c in columns}},
        notes=["difference in points and its standard error, over equal orders of the batches"],
    )
    for compared in KINDS:
        if compared is PER_TENSOR:
            continue
        cells = []
        for network, profile in columns:
            seeds = _seeds(rows, network, profile, compared)
            both = sorted(seeds & _seeds(rows, network, profile, PER_TENSOR))
            ours, theirs = (
                np.array([rows[network, profile, kind.name, seed]["test"] for seed in both])
                for kind in (PER_TENSOR, compared)
            )
            cells.append(_shown(100 * (ours - theirs)))
        if any(cells):
            table.add(compared.kind.title, *cells)
    return table


def table_1(rows: Rows) -> Table:
    """MobileNets with 8 bits, as in table 1 of the paper."""
    networks = [n for n in _networks(rows) if n.startswith("mobilenet")]
    table = Table(
        "MobileNets at 8 bits (table 1 of the paper)",
        {"method": "", "scheme": "", **dict.fromkeys(networks, ".2f")},
    )
    for name in ("float", "tfmot", "qat-channel", "qat-tensor", "fakequant", "tqt-channel", "tqt"):
        kind = BY_NAME[name]
        cells = [_shown(_tests(rows, network, EIGHT, kind)) for network in networks]
        if any(cells):
            table.add(kind.kind.title, kind.kind.scale, *cells)
    return table


def table_3(rows: Rows) -> Table:
    """Static, weights only, and weights with thresholds, as in table 3 of the paper."""
    columns = ("wt FP32", "static INT8", "wt INT8", "wt+th INT8", "wt INT4", "wt+th INT4")
    table = Table(
        "Static and retrained (table 3 of the paper)",
        {"network": "", **dict.fromkeys(columns, ".2f")},
        notes=["static: calibrated, not trained; wt: weights are trained; wt+th: thresholds too"],
    )  # fmt: skip
    for network in _networks(rows):
        fixed = [rows[key] for key in rows if key[:3] == (network, EIGHT, FIXED.name)]
        cells = [
            _shown(
                _tests(rows, network, next(p for n, p in _columns(rows) if n == network), FLOAT)
            ),
            100 * fixed[0]["untrained"] if fixed else None,
            _shown(_tests(rows, network, EIGHT, FIXED)),
            _shown(_tests(rows, network, EIGHT, PER_TENSOR)),
            _shown(_tests(rows, network, FOUR, FIXED)),
            _shown(_tests(rows, network, FOUR, PER_TENSOR)),
        ]
        table.add(network, *cells)
    return table


def best(rows: Rows) -> Table:
    """Best and mean validation, as in table 5 of the paper."""
    table = Table(
        "Best and mean validation",
        {"network": "", "bits": "", "quantizer": "", "untrained test": ".2f", "best": ".2f",
         f"mean of the last {LAST}": ".2f", "test": ".2f", "different codes": ""},
        notes=["different codes: of the inference graph against the integer reference, on 16 "
               "images of each run that ends in integers"],
    )  # fmt: skip
    for network, profile in _columns(rows):
        for kind in KINDS:
            found = [rows[k] for k in rows if k[:3] == (network, profile, kind.name)]
            if not found:
                continue
            different = sum(facts["different"] for facts in found) if kind.kind.integers else None
            table.add(
                network, PROFILES[profile], kind.kind.title, 100 * found[0]["untrained"],
                _shown(100 * np.array([f["best"]["accuracy"] for f in found])),
                _shown(100 * np.array([mean_of_last(f) for f in found])),
                _shown(100 * np.array([f["test"] for f in found])),
                "-" if different is None else str(different),
            )  # fmt: skip
    return table


def _networks(rows: Rows) -> list[str]:
    return list(dict.fromkeys(key[0] for key in rows))


def _columns(rows: Rows) -> list[tuple[str, str]]:
    found = {key[:2] for key in rows if BY_NAME[key[2]].quantized}
    return sorted(found, key=lambda c: (_networks(rows).index(c[0]), c[1]))


def _heading(column: tuple[str, str]) -> str:
    return f"{column[0]} {PROFILES[column[1]]}"


def _runs(rows: Rows) -> str:
    counts = {len(_seeds(rows, *key[:2], BY_NAME[key[2]])) for key in rows}
    least, most = min(counts, default=0), max(counts, default=0)
    done = {(network, seed, kind, BY_NAME[kind].quantized and p) for network, p, kind, seed in rows}
    return f"{len(done)} runs, {least if least == most else f'{least} to {most}'} orders of each"


def _seeds(rows: Rows, network: str, profile: str, compared: Compared) -> set[int]:
    return {key[3] for key in rows if key[:3] == (network, profile, compared.name)}


def _tests(rows: Rows, network: str, profile: str, compared: Compared) -> np.ndarray:
    seeds = sorted(_seeds(rows, network, profile, compared))
    return 100 * np.array([rows[network, profile, compared.name, s]["test"] for s in seeds])


def _shown(values: Sequence[float] | np.ndarray) -> list[float] | None:
    """Mean and standard error. None without values; a single value has no error."""
    found = np.asarray(values, float)
    if not found.size:
        return None
    error = found.std(ddof=1) / np.sqrt(found.size) if found.size > 1 else 0.0
    return [float(found.mean()), float(error)]


def main(
    network: Annotated[list[str] | None, typer.Option(help="A family; may be repeated.")] = None,
    profile: Annotated[list[str] | None, typer.Option(help="May be repeated.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="A kind; may be repeated.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Orders of the batches.")] = 3,
    train: Annotated[bool, typer.Option(help="Train what is not done yet.")] = True,
    json_file: JsonFile = None,
) -> None:
    """Train what is missing, order by order, and print the tables."""
    folder = cache() / "quantizers"
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [BY_NAME[name] for name in kind or BY_NAME]
    orders = range(1, seeds + 1)
    if train:
        _train(network or NETWORKS, profile or [*PROFILES], chosen, orders, folder)
    rows: Rows = {}
    for name, target, compared, seed in product(FAMILIES, profile or PROFILES, KINDS, orders):
        facts = read(file_of(name, compared, target, seed, folder))
        if facts is not None:
            rows[name, target, compared.name, seed] = facts
    report("benchmarks.quantizers.compare", tables(rows), json_file, orders, PACKAGES)


def _train(
    networks: Sequence[str],
    profiles: Sequence[str],
    chosen: Sequence[Compared],
    orders: Sequence[int],
    folder: Path,
) -> None:
    import_tensorflow_quietly()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    make_deterministic()
    data = subset(fashion_mnist())
    for name in networks:
        case = Case(name, path_of(name), data, OPTIONS)
        for target, compared in product(profiles, chosen):
            if compared.by_tfmot and not (target == EIGHT and is_installed()):
                continue
            for seed, facts in measured(case, compared, target, orders, folder):
                print(
                    f"{name}, {PROFILES[target]}, {compared.name}, seed {seed}: "
                    f"{facts['untrained']:.2%} -> {facts['test']:.2%}, {facts['seconds']} s",
                    flush=True,
                )


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    typer.run(main)
