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
LinkMemory: TypeAlias = dict[object, object]  # of whatever a link keeps
Memory: TypeAlias = dict[str, LinkMemory]  # of each link, by its text


def silent() -> None:
    """Do nothing."""


def read_only(array: Array) -> Array:
    """A read-only view."""
    view = np.asarray(array).view()
    view.setflags(write=False)
    return view


@dataclass(frozen=True, eq=False)
class ChainPolicy:
    """A policy between two links: its program, its float32 weights and their bits.

    weights are read-only, since several policies, such as the original, may share them.

    bits    of packed weights: of most layers, of the first, of the last; None for the defaults of
            actors in training (`end_bits`)
    block   the block for actors, set by the link `pack`
    file    the file, set by the link `static`
    critic  the name of an output V(x) that only learners use, "" without: links keep it, since
            students learn it too, and blocks do not have it

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
        """The number of elements of all weights."""
        return sum(int(weight.size) for weight in self.weights.values())

    def pack(self, version: int = 0) -> Array:
        """The block for actors. Raises the errors of `Packer`."""
        bits, *ends = self.bits
        packer = Packer(self.acted, bits, *end_bits(self.acted, bits, *ends))
        return packer.pack(self.weights, version)

    def actor(self) -> Actor:
        return Actor(self.pack() if self.block is None else self.block)


@dataclass(frozen=True)
class PolicySpec:
    """A learner's policy without its weights.

    critic  as in `ChainPolicy`; its output is behind those of actors
    """

    program: ActorProgram
    head: Head
    critic: str = ""

    def policy(self, weights: Mapping[str, Array]) -> ChainPolicy:
        """The policy with its weights; others, such as a learner's target, are left out."""
        own = {name: weights[name] for name in self.program.weight_shapes}
        return ChainPolicy(self.program, own, self.head, critic=self.critic)


def _unheard(step: str, reason: str) -> None:
    """Do nothing."""


@dataclass
class Task:
    """The context of a link beside the policy.

    original        the policy that the compressor got; distillation learns from it
    observations    [n, *shape], read-only; None if there are none (yet)
    memory          of this link alone, kept from one call of its compressor to the next
    beat            to be called from time to time in long work; a process without a heartbeat for
                    minutes counts as hung
    refuse          to be called with the output of a step that is not changed, and the reason
    """

    original: ChainPolicy
    observations: Array | None = None
    memory: LinkMemory = field(default_factory=dict)
    beat: Callable[[], object] = silent
    refuse: Callable[[str, str], None] = _unheard

    def seen(self) -> Array:
        """The observations. Raises CalibrationError if they are missing or have another shape."""
        shape = self.original.program.shape
        seen = self.observations
        if seen is None or not len(seen):
            raise CalibrationError("needs observations, and there are none yet")
        if seen.shape[1:] != shape:
            raise CalibrationError(f"observations are [n, *{shape}], found {seen.shape}")
        return seen


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
