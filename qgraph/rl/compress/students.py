"""Networks of students: by name, by layers, or any actor program."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qgraph.errors import UnsupportedError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.actor.program import step_with_weights
from qgraph.rl.compress.chain_policy import ChainPolicy
from qgraph.rl.learn.networks import NATURE, initial_weights

FIXED = ("affine", "clip")  # the normalisation of observations, which is not trained


@dataclass(frozen=True)
class StudentNetwork:
    """Convolutions, as channels, kernel, stride, and the units of the dense layers after them."""

    convolutions: tuple[tuple[int, int, int], ...]
    units: tuple[int, ...]

    @staticmethod
    def parse(name: str) -> StudentNetwork:
        """One of NETWORKS, or layers: `64-64`, `8x3x1-64` with a convolution of 8 channels, a
        kernel of 3 x 3 and stride 1 in front. Raises UsageError.
        """
        if name in NETWORKS:
            return NETWORKS[name]
        found = _LAYERS.fullmatch(name)
        if found is None:
            known = ", ".join(NETWORKS)
            hint = f"{known}, or layers like 64-64, 8x3x1-64 for images"
            raise UsageError(f"unknown network `{name}`", hint=hint)
        layers = [tuple(map(int, layer.split("x"))) for layer in name.split("-")]
        convolutions = [(layer[0], layer[1], layer[2]) for layer in layers if len(layer) == 3]
        return StudentNetwork(
            tuple(convolutions), tuple(layer[0] for layer in layers if len(layer) == 1)
        )


_NUMBER = "[1-9][0-9]{0,5}"
_LAYERS = re.compile(rf"({_NUMBER}x{_NUMBER}x{_NUMBER}-)*{_NUMBER}(-{_NUMBER})*")

# AcceRL, table 6, with the strides of the Nature network, since the table has none.
NETWORKS: Mapping[str, StudentNetwork] = MappingProxyType(
    {
        "original": StudentNetwork(NATURE, (2048,)),
        "net1": StudentNetwork(((16, 8, 4), (32, 4, 2)), (256,)),
        "net2": StudentNetwork(((8, 8, 4), (16, 4, 2)), (128,)),
        "net3": StudentNetwork(((4, 8, 4), (4, 4, 2)), (32,)),
    }
)


def program_of(network: StudentNetwork, teacher: ActorProgram) -> ActorProgram:
    """The network on the observations of `teacher`, with its normalisation and its outputs.

    Raises UnsupportedError if they do not fit together.
    """
    if (len(teacher.shape) == 3) != bool(network.convolutions):
        kind = "images" if network.convolutions else "rows of numbers"
        raise UnsupportedError(
            f"the student is for {kind}, but observations are {list(teacher.shape)}",
            hint="net1 to net3 or 8x3x1-64 for images, 64-64 for rows",
        )
    build = _StudentBuilder(teacher)
    for i, (units, size, stride) in enumerate(network.convolutions):
        build.conv(f"conv_{i}", units, size, stride)
    if network.convolutions:
        build.flatten()
    for i, units in enumerate(network.units):
        build.value = build.dense(f"hidden_{i}", units, "relu")
    for name in teacher.outputs:
        build.dense(name, teacher.size(name), _last(teacher, name))
    return build.program()


class _StudentBuilder:
    """Adds steps after `value`, with other names than those of the teacher's outputs."""

    def __init__(self, teacher: ActorProgram) -> None:
        self.teacher, self.steps = teacher, _normalisation(teacher)
        self.shapes = {n: teacher.weight_shapes[n] for step in self.steps for n in step.weights}
        self.value = self.steps[-1].output if self.steps else teacher.observation
        self.taken = {teacher.observation, *teacher.outputs, *(s.output for s in self.steps)}

    def program(self) -> ActorProgram:
        teacher = self.teacher
        return ActorProgram(
            teacher.shape, tuple(self.steps), teacher.outputs, self.shapes, teacher.observation
        )

    def conv(self, name: str, units: int, size: int, stride: int) -> None:
        height, width, channels = self._shape()
        if min(height, width) < size:
            whole = " x ".join(map(str, self.teacher.shape[:2]))
            raise UnsupportedError(
                f"images of {whole} are too small for the student: its layer `{name}` has a "
                f"kernel of {size} x {size}, but its input is {height} x {width}"
            )
        weights = {"kernel": (size, size, channels, units), "bias": (units,)}
        strides = (stride, stride)
        self.value = self._add("conv", name, weights, activation="relu", strides=strides)

    def flatten(self) -> None:
        self.value = self._add("flatten", "flat", {})

    def dense(self, name: str, units: int, activation: str) -> str:
        weights = {"kernel": (self._shape()[0], units), "bias": (units,)}
        return self._add("dense", name, weights, activation=activation)

    def _shape(self) -> tuple[int, ...]:
        student = ActorProgram(
            self.teacher.shape, tuple(self.steps), (), self.shapes, self.teacher.observation
        )
        return student.shapes()[self.value]

    def _add(
        self, op: str, name: str, weights: Mapping[str, tuple[int, ...]], **attrs: object
    ) -> str:
        if name not in self.teacher.outputs:
            while name in self.taken:
                name = f"student_{name}"
            self.taken.add(name)
        step, shapes = step_with_weights(op, (self.value,), name, weights, attrs)
        self.steps.append(step)
        self.shapes.update(shapes)
        return name


def initial(student: ActorProgram, teacher: ChainPolicy, seed: int) -> dict[str, Array]:
    """Initial weights; those of the normalisation are the teacher's, by the same names."""
    weights = initial_weights(student, np.random.default_rng(seed))
    fixed = [name for name in weights if name not in trained_weights(student)]
    return {**weights, **{n: teacher.weights[n] for n in fixed if n in teacher.weights}}


def trained_weights(program: ActorProgram) -> list[str]:
    """The names of trained weights: all except those of the normalisation."""
    return [name for step in program.steps if step.op not in FIXED for name in step.weights]


def _normalisation(teacher: ActorProgram) -> list[ActorStep]:
    """The steps on observations before any layer."""
    steps, value = list[ActorStep](), teacher.observation
    for step in teacher.steps:
        if step.op in FIXED and step.inputs == (value,):
            steps.append(step)
            value = step.output
    return steps


def _last(teacher: ActorProgram, output: str) -> str:
    (step,) = (s for s in teacher.steps if s.output == output)
    if step.op == "softmax":
        raise UnsupportedError("an output of probabilities; a student learns logits", node=output)
    return step.activation
