"""The policy that the links of a compressor pass on, and the context of a link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from qgraph.errors import CalibrationError, UnsupportedError
from qgraph.ir.types import Array
from qgraph.rl.actor import Actor, ActorProgram, ActorStep, Packer, end_bits
from qgraph.rl.head import Head

if TYPE_CHECKING:
    from qgraph.rl.policy import Packed

VALUES = Head("argmax")
FLOAT = 32  # bits of weights that nobody quantized
Memory = dict[str, dict[Any, Any]]  # of each link, by its text


def silent() -> None:
    """Does nothing."""


def read_only(array: Array) -> Array:
    """A view that nobody writes to."""
    view = np.asarray(array).view()
    view.setflags(write=False)
    return view


@dataclass(frozen=True, eq=False)
class ChainPolicy:
    """A policy between two links: what is computed, by which float32 weights, in which bits.

    weights can be read and no more: several policies, the original among them, may have the same.

    bits    of the weights once they are packed: of most layers, of the first, of the last; None for
            those that actors in training have by default (`end_bits`)
    block   what actors run, behind the link `pack`
    file    behind the link `static`
    critic  the name of an output that learners use and actors do not, V(x), "" without: links keep
            it, since students learn it too, and what is packed has it no more

    Raises GraphError for weights that do not fit the program.
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
    def acted(self) -> ActorProgram:
        """The program that actors run, without the critic."""
        return without_output(self.program, self.critic) if self.critic else self.program

    @property
    def numbers(self) -> int:
        """How many numbers the weights are."""
        return sum(int(weight.size) for weight in self.weights.values())

    def pack(self, version: int = 0) -> Array:
        """The block that actors run. Raises as `Packer` does."""
        bits, *ends = self.bits
        packer = Packer(self.acted, bits, *end_bits(self.acted, bits, *ends))
        return packer.pack(self.weights, version)

    def actor(self) -> Actor:
        return Actor(self.pack() if self.block is None else self.block)


@dataclass(frozen=True)
class PolicySpec:
    """A policy without its weights, as a learner has it.

    critic  as `ChainPolicy` has it; its output is behind those of actors
    """

    program: ActorProgram
    head: Head
    critic: str = ""

    def policy(self, weights: Mapping[str, Array]) -> ChainPolicy:
        """With weights of the program; others, such as a learner's target, are left out."""
        own = {name: weights[name] for name in self.program.weight_shapes}
        return ChainPolicy(self.program, own, self.head, critic=self.critic)

    def as_json(self) -> dict[str, Any]:
        program, head = self.program.as_json(), self.head.as_json()
        return {"program": program, "head": head, "critic": self.critic}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> PolicySpec:
        """From `as_json`, or settings of a process that it is part of."""
        program, head = ActorProgram.from_json(found["program"]), Head.from_json(found["head"])
        return PolicySpec(program, head, found["critic"])


def _unheard(step: str, reason: str) -> None:
    """Does nothing."""


@dataclass
class Task:
    """The context of a link beside the policy.

    original        what the compressor was given; distillation learns from it
    observations    [n, *shape], to be read; None where there are none (yet)
    memory          of this link alone, from one call of its compressor to the next
    beat            to be called now and then by what takes long: who hears nothing for minutes
                    takes it as hung
    refuse          to be called with the output of a step that stays as it is, and why
    """

    original: ChainPolicy
    observations: Array | None = None
    memory: dict[Any, Any] = field(default_factory=dict)
    beat: Callable[[], object] = silent
    refuse: Callable[[str, str], None] = _unheard

    def seen(self) -> Array:
        """The observations. Raises CalibrationError where there are none of the right shape."""
        shape = self.original.program.shape
        found = self.observations
        if found is None or not len(found):
            raise CalibrationError("needs observations, and there are none yet")
        if found.shape[1:] != shape:
            raise CalibrationError(f"observations are [n, *{shape}], found {found.shape}")
        return found


def without_output(program: ActorProgram, name: str) -> ActorProgram:
    """The program without that output, and without steps that were there for it alone."""
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
    """The policy with other steps, and of these weights those that they use."""
    used = [name for step in steps for name in step.weights]
    left = {name: np.asarray(weights[name], np.float32) for name in dict.fromkeys(used)}
    shapes = {name: weight.shape for name, weight in left.items()}
    program = replace(policy.program, steps=tuple(steps), weight_shapes=shapes)
    return replace(policy, program=program, weights=left)


def shared(program: ActorProgram) -> set[str]:
    """Weights that several steps use."""
    uses = Counter(name for step in program.steps for name in step.weights)
    return {name for name, count in uses.items() if count > 1}


def check_outputs(
    student: ActorProgram, teacher: ActorProgram, called: str = "the student"
) -> None:
    """Raises UnsupportedError for a student of other observations or outputs."""
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
