"""Create the inference graph of a trained network, or of the network before training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from qgraph.errors import LoadError, UnsupportedError
from qgraph.ir.graph import Graph
from qgraph.quant.shifts import check_shifts
from qgraph.quantized import Quantized, finished
from qgraph.quiet import quiet_tensorflow
from qgraph.retrain.directory import TrainingDirectory, load
from qgraph.static.agreement import agreement
from qgraph.static.facts import AgreementFacts, Facts
from qgraph.train.checkpoint import read_checkpoint, record_of, restore
from qgraph.train.loop import BEST, CHECKPOINTS, LAST, network_of
from qgraph.train.record import TrainingRecord
from qgraph.train.saved_graph.checkpoint import read_tensorflow_checkpoint


@quiet_tensorflow()
def finalize(
    path: str | Path, *, last: bool = False, checkpoint: str | Path | None = None
) -> Quantized:
    """Create the quantized network from the training in a directory.

    Before any training, it is the network that training starts from, and `facts.training` is None.
    The noise of each layer is measured against float layers with the trained weights, the agreement
    of the outputs against the original float network.

    Args:
        path: A directory that `save` or `qgraph quantize --mode retrain` wrote.
        last: Whether to use the last checkpoint instead of the best one.
        checkpoint: Prefix of a TensorFlow checkpoint of the training graph that
            `save_training_graph` wrote, to use instead.

    Returns:
        The quantized network; its `save` writes an output directory.

    Raises:
        LoadError: The directory is not a training directory, or the checkpoint is missing or
            damaged.
        ExactnessError: Training led to scales that the profile does not support.

    Examples:
        >>> qgraph.retrain.finalize("tuned")
        Quantized(model, graffitist-int8, 12 layers, ... dB at the outputs)
    """
    path = Path(path)
    found = load(path)
    trained = any((path / CHECKPOINTS / name).exists() for name in (BEST, LAST))
    untrained = checkpoint is None and not last and not trained
    if untrained:
        graph, facts = found.graph, found.facts
    else:
        graph, facts = _trained(found, path, last, checkpoint)
    made = finished(
        graph,
        with_trained_constants(found.floating, graph),
        found.profile,
        found.method,
        found.trace,
        found.sample,
        found.measured_samples,
        facts,
    )
    return replace(made, original=found.floating)


def _written(path: Path, last: bool) -> Path:
    """The path of the last or the best checkpoint. Raises LoadError before any training.

    A missing best checkpoint beside a last one is an error of `read_checkpoint`.
    """
    file = path / CHECKPOINTS / (LAST if last else BEST)
    if last and not file.exists():
        raise LoadError(
            "no checkpoint was written yet", node=str(file), hint=f"qgraph train {path} --data DATA"
        )
    return file


def _trained(
    found: TrainingDirectory, path: Path, last: bool, checkpoint: str | Path | None
) -> tuple[Graph, Facts]:
    """The graph with the values of a checkpoint, and its facts."""
    network = network_of(found.graph)
    if checkpoint is None:  # read first: a missing file is an error before TensorFlow is imported
        learned = read_checkpoint(_written(path, last), network)
        _check_ends_in_integers(record_of(learned), path)
        model = found.model()
    else:
        model = found.model()
        learned = read_tensorflow_checkpoint(Path(checkpoint), network, model.arrays())
    restore(model.named_variables(), learned)
    graph = model.finalized()
    check_shifts(graph, found.profile.shift)
    near = None
    if found.measured_samples:
        near = AgreementFacts.of(agreement(found.floating, graph, found.measured_samples), False)
    return graph, replace(found.facts, agreement=near, training=record_of(learned))


def _check_ends_in_integers(record: TrainingRecord, path: Path) -> None:
    """Raise UnsupportedError for a checkpoint of quantizers that are only for comparison."""
    if not record.integers:
        raise UnsupportedError(
            f"it was trained with quantizers `{record.kind}`, which do not end in integers",
            node=str(path / CHECKPOINTS),
            hint=f"they are for comparison; train again: qgraph train {path} --restart",
        )


def with_trained_constants(floating: Graph, trained: Graph) -> Graph:
    """A copy of the float graph with the constants of `trained`, the trained quantized graph."""
    made = floating.copy()
    for node in floating.topological():
        value = trained.constant(node.name) if node.name in trained.nodes else None
        if node.op == "const" and value is not None:
            made.set_attrs(node.name, value=value)
    return made
