"""Bytes that SAC keeps in float32 and in float16, computed from variables and shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.result import JsonFile, report
from benchmarks.tables import Table
from qgraph.rl.environments import Actions

# As in the paper: states of cheetah run and layers of 1024; images of 84 x 84, 3 frames.
OBSERVATIONS: Mapping[str, tuple[tuple[int, ...], int]] = {
    "states": ((17,), 1024),
    "images": ((84, 84, 9), 512),
}
ACTIONS = Actions(low=(-1.0,) * 6, high=(1.0,) * 6)
PARTS = ("parameters", "average", "optimizer", "activations", "for actors")


@dataclass(frozen=True)
class World:
    """The properties of an environment that a learner needs, without the environment."""

    shape: tuple[int, ...]
    actions: Actions = ACTIONS

    @property
    def dtype(self) -> Any:
        return np.dtype(np.uint8 if len(self.shape) == 3 else np.float32)


def memory(json_file: JsonFile = None) -> None:
    """Count the bytes of parameters, target network, optimizer, and activations of the critics."""
    from qgraph.quiet import import_tensorflow_quietly

    import_tensorflow_quietly()
    facts = {}
    for name, (shape, batch) in OBSERVATIONS.items():
        for how in ("float32", "none", "all"):
            facts[f"{name}, {how}"] = bytes_of(World(shape), batch, how)
    columns = {"learner": "", **dict.fromkeys(PARTS, ",.2f"), "in all": ",.2f", "less": ".2f"}
    made = Table("MB that SAC keeps", columns, notes=[NOTE])
    for learner, parts in facts.items():
        total = sum(parts.values())
        whole = sum(facts[f"{learner.partition(',')[0]}, float32"].values())
        made.add(learner, *(parts[part] / 1e6 for part in PARTS), total / 1e6, whole / total)
    report("benchmarks.low_precision", [made], json_file)


NOTE = (
    "activations: results of all layers of both critics for one batch (states 1024, images 512) "
    "and standardized weights, kept for the backward pass; for actors: the policy in float32, as "
    "they act; less: memory of float32 divided by that of the format"
)


def bytes_of(world: World, batch: int, how: str) -> dict[str, int]:
    """Bytes of each of PARTS."""
    import tensorflow as tf

    from qgraph.rl.agents.former_names import half_settings
    from qgraph.rl.agents.sac.config import SacConfig
    from qgraph.rl.agents.sac.learner import SacLearner

    settings: dict[str, Any] = {"hidden_sizes": (1024, 1024), "critic_hidden_sizes": (1024, 1024)}
    settings |= {} if how == "float32" else half_settings(how)
    environment: Any = world
    learner = SacLearner(SacConfig("memory", **settings), environment)
    slots = [v for descent in learner.descents.values() for v in descent.state.values()]
    kept: list[Any] = []

    def noted(x: Any) -> Any:
        kept.append(x)
        return x

    def critics(x: Any, action: Any) -> Any:
        return learner.pair_values(learner.critic, learner.features(learner.critic, x), action)

    learner.precision = replace(learner.precision, rounded=noted)
    learner.rounded = noted
    inputs = [(batch, *world.shape), (batch, len(world.actions.low))]
    # The step is traced but not run, because shapes are enough.
    tf.function(critics).get_concrete_function(*(tf.TensorSpec(s, tf.float32) for s in inputs))
    return {
        "parameters": _bytes([*learner.actor.values(), *learner.critic.values()]),
        "average": _bytes(learner.average.state.values()),
        "optimizer": _bytes(slots),
        "activations": _bytes(kept),
        "for actors": _bytes(learner.policy.values()),
    }


def _bytes(tensors: Any) -> int:
    return sum(int(np.prod(t.shape)) * t.dtype.size for t in tensors)
