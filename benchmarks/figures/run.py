"""Changes of thresholds and of clipped values in a training run, read from its directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures.gradients import Floats
from qgraph import retrain
from qgraph.ir.graph import Node
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array, QuantSpec
from qgraph.quant.topology import QUANTIZERS
from qgraph.train.checkpoint import Checkpoint, read_checkpoint, restore
from qgraph.train.data import Source, training_data
from qgraph.train.loop import CHECKPOINTS, LAST, Trainer, network_of
from qgraph.train.model import TrainingGraph
from qgraph.train.options import Options
from qgraph.train.score import TrainingStatus
from qgraph.train.state import scale_of
from qgraph.train.tqt import TqtQuantizers


@dataclass(frozen=True)
class Scale:
    """A trained scale, with the first quantizer that has it; `log2_t` are that quantizer's
    thresholds.
    """

    node: Node
    before: float
    after: float

    @property
    def deviation(self) -> int:
        """The change in powers of two: above 0 for more range, below 0 for more precision."""
        return int(np.ceil(self.after) - np.ceil(self.before))

    @property
    def spec(self) -> QuantSpec:
        spec = spec_of(self.node)
        return spec


@dataclass(frozen=True)
class Run:
    """A training directory and its newest checkpoint."""

    path: Path
    found: retrain.TrainingDirectory
    last: Checkpoint

    @property
    def name(self) -> str:
        return self.path.name

    def scales(self) -> list[Scale]:
        """All scales that are trained, in the order of the network."""
        before, after = (self._log2_t(model) for model in self.models())
        return [Scale(node, before[node.name], after[node.name]) for node in self._first().values()]

    def models(self) -> tuple[TrainingGraph, TrainingGraph]:
        """The model after calibration, and after training."""
        before, after = self.found.model(), self.found.model()
        restore(after.named_variables(), self.last)
        return before, after

    def inputs_of(self, scales: list[Scale]) -> Iterator[tuple[Scale, Array, Array]]:
        """The inputs of each scale's quantizer, before and after training, on calibration
        samples.
        """
        import tensorflow as tf

        samples = {name: tf.constant(array) for name, array in self.found.measured_samples.items()}
        before, after = (model.values(samples)[0] for model in self.models())
        for scale in scales:
            value = scale.node.inputs[0]
            yield scale, np.ravel(before[value]), np.ravel(after[value])

    def first_steps(self, data: Source, steps: int) -> Floats:
        """`log2_t[steps + 1, scales]` of the first steps of the run, which are repeated.

        data: all data of the run. A run without validation data holds some of its data out, and
        does not train on that.
        """
        options = Options(**self.last.facts["options"])
        batches = training_data(data, self.found.graph, options.batch_size, options.seed)
        history: list[Floats] = []

        def watch(status: TrainingStatus) -> None:
            history.append(self._in_order(trainer.model))
            if len(history) > steps:
                raise _EnoughError

        found = self.found
        trainer = Trainer(
            found.graph, found.floating, found.norms, batches, None, options, watch=watch
        )
        history.append(self._in_order(trainer.model))
        with suppress(_EnoughError):
            trainer.run()
        return np.array(history)

    def _in_order(self, model: TrainingGraph) -> Floats:
        log2_t = self._log2_t(model)
        return np.array([log2_t[node.name] for node in self._first().values()])

    def _first(self) -> dict[str, Node]:
        """The first quantizer of each trained scale."""
        graph, learning = self.found.graph, set(self.found.model().quantizers.names)
        first: dict[str, Node] = {}
        for node in graph.topological():
            if node.op in QUANTIZERS and scale_of(node) in learning:
                first.setdefault(scale_of(node), node)
        return first

    def _log2_t(self, model: TrainingGraph) -> Mapping[str, float]:
        assert isinstance(model.quantizers, TqtQuantizers)
        scales = model.quantizers.scales
        ranges: dict[str, Any] = scales.unstacked()
        return {node.name: float(scales.log2_t(node, ranges)) for node in self._first().values()}


class _EnoughError(Exception):
    """Ends the repeated run after its first steps."""


def load_run(path: Path) -> Run:
    """Read a directory of `qgraph quantize --mode retrain` and `qgraph train`. Raises LoadError."""
    found = retrain.load(path)
    last = read_checkpoint(path / CHECKPOINTS / LAST, network_of(found.graph))
    return Run(path, found, last)
