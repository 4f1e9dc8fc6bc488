"""Knowledge distillation: a smaller network learns to act as the original one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from qgraph.errors import UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram
from qgraph.rl.compress.action_distributions import outputs_of
from qgraph.rl.compress.chain_policy import ChainPolicy, Task, check_outputs
from qgraph.rl.compress.link import Link
from qgraph.rl.compress.students import StudentNetwork, initial, program_of

if TYPE_CHECKING:
    from qgraph.rl.compress.distiller import Distiller


class StudentPlace(Enum):
    """The keys of students in a link's memory; custom links can use any text as key."""

    STUDENT = "a student that learns"
    KEPT = "the state of a student from an earlier process"
    OTHER = "the distiller of the policy that came in"


@runtime_checkable
class Stateful(Protocol):
    """A student whose state can be kept in a file."""

    def state(self) -> dict[str, Array]: ...


@dataclass(frozen=True)
class Distill(Link):
    """Train a student to act as the original policy (AcceRL, equation 1).

    The loss is KL(original || student) of the actions, plus `value` times half the squared
    difference of values if the policy has an output for them, minus `entropy` times the student's
    entropy. If a linear layer computes the values, they are in units of their deviation over the
    observations; otherwise the scale of a task's rewards would set their weight.
    The original is the policy in front of the whole chain, so errors of earlier links are not
    learned. Imports TensorFlow when it is called.

    student     a network's name (`students.NETWORKS`), layers like `64-64`, or an actor program. It
                replaces the policy that comes in, and continues to learn with the next one.
                Without a student, the policy that comes in learns, such as a pruned one
    steps       steps of Adam at first, each with `batch` observations and step size `rate`
    follow      steps of Adam in each later call of a student
    temperature logits are divided by it

    Raises UsageError for settings out of range. A call raises UnsupportedError for a student with
    other observations or outputs, and CalibrationError without observations.
    """

    name: ClassVar[str] = "distill"

    student: str | ActorProgram = ""
    steps: int = 200
    follow: int = 40
    batch: int = 128
    rate: float = 1e-3
    value: float = 0.01
    entropy: float = 1e-3
    temperature: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.student, str) and self.student:
            StudentNetwork.parse(self.student)
        if min(self.steps, self.follow, self.batch) < 1:
            raise UsageError("steps, follow and batch of a distillation must be at least 1")
        for name in ("rate", "temperature", "value", "entropy", "seed"):
            value, positive = getattr(self, name), name in ("rate", "temperature")
            if not 0 <= value < math.inf or (positive and not value):
                wanted = "above 0" if positive else "at least 0"
                raise UsageError(f"{name} of a distillation is {value}; it must be {wanted}")

    def __call__(self, policy: ChainPolicy, task: Task) -> ChainPolicy:
        original, observations = task.original, task.checked_observations()
        program = self.program(policy, original)
        distiller = self._distiller(policy, program, task)
        teacher = replace(original, bits=(32, None, None), block=None, critic="").actor()
        wanted = outputs_of(teacher.run(observations))
        steps = self.steps if distiller.fresh else self.follow
        distiller.learn(observations, wanted, steps, self.batch, task.heartbeat)
        return replace(policy, program=program, weights=distiller.weights())

    def program(self, policy: ChainPolicy, original: ChainPolicy) -> ActorProgram:
        """The student's program, with the original's observations and outputs."""
        if isinstance(self.student, ActorProgram):
            program = self.student
        elif self.student:
            program = program_of(StudentNetwork.parse(self.student), original.program)
        else:
            return policy.program
        check_outputs(program, original.program)
        return program

    def _distiller(self, policy: ChainPolicy, program: ActorProgram, task: Task) -> Distiller:
        """A student continues from its state; the policy that came in begins from its weights."""
        from qgraph.rl.compress.distiller import Distiller

        place = StudentPlace.STUDENT if self.student else StudentPlace.OTHER
        distiller, known = task.memory.get(place), True
        if not isinstance(distiller, Distiller) or distiller.program != program:
            head, known = task.original.head, False
            distiller = Distiller(
                program, head, self.rate, self.value, self.entropy, self.temperature
            )
            task.memory[place] = distiller
        if not self.student:
            distiller.begin(policy.weights, self.seed)
        elif not known:
            distiller.begin(initial(program, task.original, self.seed), self.seed, random=True)
            kept = task.memory.pop(StudentPlace.KEPT, None)
            if isinstance(kept, Mapping):
                distiller.resume(kept)
        return distiller
