"""The policy that links of a compressor pass on, and the context of a link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from qgraph.errors import CalibrationError, UnsupportedError
from qgraph.ir.types import Array
from qgraph.rl.actor import Actor, ActorProgram, ActorStep, Packer, end_bits
from qgraph.rl.head import Head

if TYPE_CHECKING:
    from qgraph.rl.policy import Packed

VALUES = Head("argmax")
FLOAT = 32  # bits of weights that are not quantized
LinkMemory: TypeAlias = dict[object, object]  # values that a link keeps, by its own keys
Memory: TypeAlias = dict[str, LinkMemory]  # the memory of each link, by its text


def silent() -> None:
    """Do nothing."""


def read_only(array: Array) -> Array:
    """A read-only view."""
    view = np.asarray(array).view()
    view.setflags(write=False)
    return view


@dataclass(frozen=True, eq=False)
class ChainPolicy:
    """A policy between two links of a chain: its program, float32 weights and bits.

    Attributes:
        program: The program.
        weights: Float32 arrays by name. They are read-only, since several policies may share them.
        head: The head, which turns outputs into actions.
        bits: Bits of packed weights: of most layers, of the first and of the last; None stands for
            the defaults of actors in training (`end_bits`).
        block: The block for actors, set by the link `pack`.
        file: The file, set by the link `static`.
        critic: Name of an output V(x) that only learners use, or an empty string. Links keep it,
            since students learn it too; blocks do not contain it.

    Raises:
        GraphError: The weights do not fit the program.

    Examples:
        `program` and `weights` are those of the example of `qgraph.rl.actor.ActorProgram`.

        >>> from qgraph.rl.compress import ChainPolicy
        >>> policy = ChainPolicy(program, weights)
        >>> policy.numbers, policy.bits
        (10, (32, None, None))
    """

    program: ActorProgram
    weights: Mapping[str, Array]
    head: Head = VALUES
    bits: tuple[int, int | None, int | None] = (FLOAT, None, None)
    block: Array | None = None
    file: Packed | None = None
    critic: str = ""

    def __post_init__(self) -> None:
        self.program.check(self.weights)
        weights = {name: read_only(weight) for name, weight in self.weights.items()}
        object.__setattr__(self, "weights", MappingProxyType(weights))

    @property
    def actor_program(self) -> ActorProgram:
        """The program that actors run, without the critic."""
        return without_output(self.program, self.critic) if self.critic else self.program

    @property
    def numbers(self) -> int:
        """The number of elements of all weights."""
        return sum(int(weight.size) for weight in self.weights.values())

    def pack(self, version: int = 0) -> Array:
        """Pack the weights with the bits of this policy.

        Args:
            version: Version to write into the block.

        Returns:
            The block, uint8 [size].

        Raises:
            UsageError: The bits are not supported.
            TrainingError: A weight is not finite.
        """
        bits, *ends = self.bits
        packer = Packer(self.actor_program, bits, *end_bits(self.actor_program, bits, *ends))
        return packer.pack(self.weights, version)

    def actor(self) -> Actor:
        """Create an actor for this policy.

        Returns:
            The actor.
        """
        return Actor(self.pack() if self.block is None else self.block)


@dataclass(frozen=True)
class PolicySpec:
    """A learner's policy without its weights.

    critic  as in `ChainPolicy`; its output comes after those of actors
    """

    program: ActorProgram
    head: Head
    critic: str = ""

    def policy(self, weights: Mapping[str, Array]) -> ChainPolicy:
        """The policy with its weights; others, such as a learner's target, are left out."""
        own = {name: weights[name] for name in self.program.weight_shapes}
        return ChainPolicy(self.program, own, self.head, critic=self.critic)


def _no_refusal(step: str, reason: str) -> None:
    """Do nothing."""


@dataclass
class Task:
    """The context of a link.

    Attributes:
        original: The policy at the start of the chain. Distillation learns from it.
        observations: Array [n, *shape], read-only; None if there are none yet.
        memory: Values that this link keeps from one call of its compressor to the next.
        heartbeat: Call this from time to time in long work. A process without a heartbeat for
            minutes counts as hung.
        refuse: Call this with the output of a step that is not changed, and the reason.

    Examples:
        `program` and `weights` are those of the example of `qgraph.rl.actor.ActorProgram`.

        >>> import numpy as np
        >>> from qgraph.rl.compress import ChainPolicy, Task
        >>> task = Task(ChainPolicy(program, weights), np.zeros((3, 4), np.float32))
        >>> task.checked_observations().shape
        (3, 4)
    """

    original: ChainPolicy
    observations: Array | None = None
    memory: LinkMemory = field(default_factory=dict)
    heartbeat: Callable[[], object] = silent
    refuse: Callable[[str, str], None] = _no_refusal

    def checked_observations(self) -> Array:
        """Get the observations.

        Returns:
            Array [n, *shape].

        Raises:
            CalibrationError: There are no observations, or they have another shape.
        """
        shape = self.original.program.shape
        observations = self.observations
        if observations is None or not len(observations):
            raise CalibrationError("needs observations, but none were collected yet")
        if observations.shape[1:] != shape:
            raise CalibrationError(f"observations are [n, *{shape}], found {observations.shape}")
        return observations


def without_output(program: ActorProgram, name: str) -> ActorProgram:
    """The program without an output, and without the steps that only this output needs."""
    outputs = tuple(output for output in program.outputs if output != name)
    needed, steps = set(outputs), list[ActorStep]()
    for step in reversed(program.steps):
        if step.output in needed:
            needed.update(step.inputs)
            steps.insert(0, step)
    used = {weight for step in steps for weight in step.weights}
    shapes = {weight: shape for weight, shape in program.weight_shapes.items() if weight in used}
    return replace(program, steps=tuple(steps), outputs=outputs, weight_shapes=shapes)


def rebuilt(
    policy: ChainPolicy, steps: Sequence[ActorStep], weights: Mapping[str, Array]
) -> ChainPolicy:
    """The policy with other steps, and the weights that these use."""
    used = [name for step in steps for name in step.weights]
    left = {name: np.asarray(weights[name], np.float32) for name in dict.fromkeys(used)}
    shapes = {name: weight.shape for name, weight in left.items()}
    program = replace(policy.program, steps=tuple(steps), weight_shapes=shapes)
    return replace(policy, program=program, weights=left)


def shared(program: ActorProgram) -> set[str]:
    """The weights that several steps use."""
    uses = Counter(name for step in program.steps for name in step.weights)
    return {name for name, count in uses.items() if count > 1}


def check_outputs(
    student: ActorProgram, teacher: ActorProgram, called: str = "the student"
) -> None:
    """Raise UnsupportedError for a student with other observations or outputs."""
    if student.shape != teacher.shape:
        raise UnsupportedError(
            f"{called} takes observations {list(student.shape)}, the policy {list(teacher.shape)}"
        )
    found, wanted = (
        {name: list(program.shapes()[name]) for name in program.outputs}
        for program in (student, teacher)
    )
    if list(found.items()) != list(wanted.items()):
        raise UnsupportedError(f"{called} has outputs {found}, the policy {wanted}")
