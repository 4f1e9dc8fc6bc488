"""The part of a run in which the policy is trained in few bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.foreign import Variable
from qgraph.ir.parsing import parse_graph
from qgraph.ir.printing import print_graph
from qgraph.ir.types import Array
from qgraph.rl.agents.config import RunConfig
from qgraph.rl.agents.learner import Learner
from qgraph.rl.compress.learner_messages import Sample
from qgraph.rl.policy.build import pack_calibrated
from qgraph.rl.policy.file import Packed
from qgraph.rl.trained_bits.policy_graph import calibrated, check_steps
from qgraph.train.checkpoint import Checkpoint

SEEN = "seen/observations"


@dataclass(frozen=True)
class BitsPhase:
    """Begins to train `learner` in few bits, and packs what it learned.

    sample: observations of actors, for the first thresholds; None for a run without few bits.
    Raises UnsupportedError for a policy with a step that is not trained in few bits.
    """

    config: RunConfig
    learner: Learner
    sample: Sample | None

    def __post_init__(self) -> None:
        if self.config.train_bits is not None:  # not as late as it begins
            check_steps(self.learner.program)

    @property
    def begun(self) -> bool:
        return self.learner.bits is not None

    def begin_if_due(self, actor_steps: int) -> bool:
        """Begin to train in few bits if `actor_steps` reach the delay; returns whether it began."""
        config, delay = self.config, self.config.train_bits_delay
        if config.train_bits is None or delay is None or self.begun or actor_steps < delay:
            return False
        seen = self._seen()
        if seen is None:
            return False
        learner = self.learner
        weights = {name: v.numpy() for name, v in learner.policy.items()}
        graph = calibrated(learner.program, weights, seen, config.train_bits)
        learner.begin_bits(graph, config.threshold_rate)
        return True

    def weights(self) -> Mapping[str, Variable | Array]:
        """The weights that actors get: as codes, once they are trained as codes."""
        learner = self.learner
        return learner.policy if learner.bits is None else learner.bits.rounded(learner.policy)

    def packed(self, about: Mapping[str, object]) -> Packed:
        """The static policy of the current weights and thresholds."""
        learner, bits = self.learner, self.config.train_bits
        assert learner.bits is not None and bits is not None
        graph = learner.bits.finalized(learner.policy)
        return pack_calibrated(graph, learner.program, learner.head, bits, self._seen(), about)

    def _seen(self) -> Array | None:
        return None if self.sample is None else self.sample.observations()

    def facts(self) -> dict[str, object]:
        """The facts of a checkpoint beside its variables: the text of the graph, and its facts."""
        learner = self.learner
        if learner.bits is None:
            return {}
        graph = learner.bits.finalized(learner.policy)
        return {"graph": print_graph(graph), "established": sorted(graph.facts)}

    def arrays(self) -> dict[str, Array]:
        """The arrays of a checkpoint beside its variables: observations of a run in few bits."""
        seen = self._seen()
        return {} if self.config.train_bits is None or seen is None else {SEEN: seen}

    def restore(self, found: Checkpoint) -> None:
        """Begin with the network of a checkpoint, whose weights the learner has already."""
        if self.sample is not None and SEEN in found.variables:
            self.sample.add(found.variables[SEEN])
        facts = found.facts.get("bits")
        if not facts:
            return
        weights = {name: np.asarray(v.numpy()) for name, v in self.learner.policy.items()}
        graph = parse_graph(str(facts["graph"]), weights)
        graph.facts.update(map(str, facts["established"]))
        self.learner.begin_bits(graph, self.config.threshold_rate)
