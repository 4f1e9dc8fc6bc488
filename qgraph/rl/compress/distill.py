"""Knowledge distillation: a smaller network learns to act as the original one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from qgraph.errors import UsageError
from qgraph.rl.actor import ActorProgram
from qgraph.rl.compress.action_distributions import outputs_of
from qgraph.rl.compress.chain_policy import ChainPolicy, Task, check_outputs
from qgraph.rl.compress.link import Link
from qgraph.rl.compress.students import StudentNetwork, initial, program_of

if TYPE_CHECKING:
    from qgraph.rl.compress.distiller import Distiller


class StudentPlace(Enum):
    """Of students in a link's memory, where links of one's own have all texts to themselves."""

    STUDENT = "a student at work"
    KEPT = "what one had learnt"
    OTHER = "what teaches any other policy"


@dataclass(frozen=True)
class Distill(Link):
    """Train a student on what the compressor was given (AcceRL, equation 1).

    The loss is KL(original || student) of the actions, `value` times half the squared difference of
    values where the policy has an output for them, less `entropy` times the student's entropy.
    Values are in units of their deviation over what was seen, where a linear layer makes them: else
    the rewards of a task would say how much they count.
    `original` is the policy in front of the whole chain, so that no link before adds its error to
    what is learnt. Imports TensorFlow when it is called.

    student     a network's name (`students.NETWORKS`), layers like `64-64`, or an actor program.
                It takes the place of what came in, and goes on learning with the next policy.
                Without one, what came in learns, such as a pruned policy
    steps       of Adam in which a network begins, of `batch` observations, with step size `rate`
    follow      such steps in each later call of a student, which is as late as they take
    temperature logits are divided by it

    Raises UsageError for settings that are none; UnsupportedError for a student of other
    observations or outputs, CalibrationError without observations, when it is called.
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
            raise UsageError("steps, follow and batch of a distillation are at least 1")
        for name in ("rate", "temperature", "value", "entropy", "seed"):
            found, positive = getattr(self, name), name in ("rate", "temperature")
            if not 0 <= found < math.inf or (positive and not found):
                wanted = "above 0" if positive else "0 or more"
                raise UsageError(f"{name} of a distillation is {found}; it is {wanted}")

    def __call__(self, policy: ChainPolicy, task: Task) -> ChainPolicy:
        original, seen = task.original, task.seen()
        program = self.program(policy, original)
        distiller = self._distiller(policy, program, task)
        teacher = replace(original, bits=(32, None, None), block=None, critic="").actor()
        wanted = outputs_of(teacher.run(seen))
        steps = self.steps if distiller.fresh else self.follow
        distiller.learn(seen, wanted, steps, self.batch, task.beat)
        return replace(policy, program=program, weights=distiller.weights())

    def program(self, policy: ChainPolicy, original: ChainPolicy) -> ActorProgram:
        """The student's, which fits the original's observations and outputs."""
        if isinstance(self.student, ActorProgram):
            found = self.student
        elif self.student:
            found = program_of(StudentNetwork.parse(self.student), original.program)
        else:
            return policy.program
        check_outputs(found, original.program)
        return found

    def _distiller(self, policy: ChainPolicy, program: ActorProgram, task: Task) -> Distiller:
        """A student goes on from where it was; what came in begins from its own weights."""
        from qgraph.rl.compress.distiller import Distiller

        place = StudentPlace.STUDENT if self.student else StudentPlace.OTHER
        found: Distiller | None = task.memory.get(place)
        known = found is not None and found.program == program
        if found is None or not known:
            head = task.original.head
            found = Distiller(program, head, self.rate, self.value, self.entropy, self.temperature)
            task.memory[place] = found
        if not self.student:
            found.begin(policy.weights, self.seed)
        elif not known:
            found.begin(initial(program, task.original, self.seed), self.seed, random=True)
            if StudentPlace.KEPT in task.memory:
                found.resume(task.memory.pop(StudentPlace.KEPT))
        return found
