"""Runs a frozen GraphDef with TensorFlow's default session options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from qgraph.foreign import Proto
from qgraph.ir.types import Array


class TFProgram:
    """A GraphDef, or a file of one, ready to run.

    program = TFProgram("out/inference.pb")
    (probabilities,) = program.run({"image": x}, ["probabilities"])
    """

    def __init__(self, graph_def: Proto) -> None:
        import tensorflow as tf

        if isinstance(graph_def, str | Path):
            graph_def = tf.compat.v1.GraphDef.FromString(Path(graph_def).read_bytes())
        graph = tf.Graph()
        with graph.as_default():
            tf.import_graph_def(as_tensorflow(graph_def), name="")
        self._session = tf.compat.v1.Session(graph=graph)

    def run(self, feeds: Mapping[str, Array], fetch: Sequence[str]) -> list[Array]:
        """Arrays of the tensors named in `fetch` (`node` or `node:1`)."""
        results = self._session.run(
            [_tensor(n) for n in fetch], {_tensor(name): value for name, value in feeds.items()}
        )
        return [np.asarray(r) for r in results]

    def predict(self, name: str, images: Array, output: str, batch: int = 64) -> Array:
        """One output over many samples of one input, batch by batch."""
        parts = [
            self.run({name: images[i : i + batch]}, [output])[0]
            for i in range(0, len(images), batch)
        ]
        return np.concatenate(parts)


def as_tensorflow(graph_def: Proto) -> Proto:
    """A GraphDef of TensorFlow's own class, which its functions need."""
    import tensorflow as tf

    kind = tf.compat.v1.GraphDef
    if isinstance(graph_def, kind):
        return graph_def
    return kind.FromString(graph_def.SerializeToString())


def _tensor(name: str) -> str:
    return name if name.rpartition(":")[2].isdigit() and ":" in name else f"{name}:0"
