"""Names of the variables of a training graph in TensorFlow checkpoints."""

from __future__ import annotations

from collections.abc import Iterable

from qgraph.names import Namespace, tensorflow_name

NETWORK = "network"  # a string: the identity of the network


def state_names(variables: Iterable[str]) -> dict[str, str]:
    """Unique names without slashes, by the names of `TrainingGraph.named_variables`."""
    return Namespace(_flat, [NETWORK]).fresh_all(variables)


def _flat(name: str) -> str:
    return tensorflow_name(name).replace("/", "_")
