"""The policies of a run: the current one, and the files of the best one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qgraph.rl.actor import Actor, Packer
from qgraph.rl.learn.bits_phase import BitsPhase
from qgraph.rl.learn.directory import POLICY, STATIC_POLICY
from qgraph.rl.policy.file import Packed
from qgraph.rl.policy.play import Outputs, Returns
from qgraph.rl.policy.policy import Policy
from qgraph.rl.policy.recurrent_outputs import played


@dataclass(frozen=True)
class CurrentPolicy:
    """The policy that a learner has now: in float, or the static one that is written.

    about: facts beside the policy.
    """

    outputs: Outputs
    about: Mapping[str, object]
    packed: Packed | None = None


@dataclass(frozen=True)
class PolicyFiles:
    """Writes policies of a learner to `folder`."""

    folder: Path
    bits: BitsPhase

    @property
    def _return_key(self) -> str:
        """The name of an evaluation's return in the file beside the policy."""
        return "return_mean" if self.bits.begun else "fp32_return_mean"

    def current(self, learner_steps: int) -> CurrentPolicy:
        """The policy after so many learner steps: float32, or static once it is of few bits."""
        config, learner = self.bits.config, self.bits.learner
        about = {
            "algorithm": config.algorithm,
            "env": config.environment,
            "action": learner.head.kind,
            "head": learner.head.as_json(),
            "learner_steps": learner_steps,
        }
        if self.bits.begun:
            packed = self.bits.packed(about)
            return CurrentPolicy(Policy(packed).outputs, about, packed)
        weights = {name: v.numpy() for name, v in learner.policy.items()}
        actor = Actor(Packer(learner.program, bits=32).pack(weights))
        return CurrentPolicy(played(learner.program, actor), about)

    def write(self, policy: CurrentPolicy, found: Returns) -> None:
        """Write the current policy, with the returns of its evaluation. Raises OutputError."""
        from qgraph.rl.learn.frozen import write_policy

        if policy.packed is not None:
            policy.packed.write(self.folder / STATIC_POLICY)
        about = {**policy.about, self._return_key: found.mean, "episodes": len(found.each)}
        write_policy(self.folder / POLICY, self.bits.learner.program, self.bits.weights(), about)

    def best(self, checkpointed: float | None) -> float | None:
        """The return of the written policy, which may be newer than the checkpoint."""
        about = (self.folder / POLICY).with_suffix(".json")
        try:
            return float(json.loads(about.read_text("utf-8"))[self._return_key])
        except (OSError, ValueError, KeyError, TypeError):  # it is missing, or another file
            return checkpointed
