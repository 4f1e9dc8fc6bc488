"""Networks of learners as actor programs: one description for the learner and the actor.

The actor runs the network that the learner trains, since `tensors.run` and the actor engine read
the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qgraph.choices import CellKind
from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.actor.program import step_with_weights
from qgraph.rl.actor.program_state import ProgramState
from qgraph.rl.actor.recurrent_cells import RecurrentCell

Shape = tuple[int, ...]
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, kernel, stride (Mnih et al., 2015)
NATURE_SIZE = 36  # the smallest height and width for those layers
MINATAR = ((16, 3, 1),)  # for smaller images (Young and Tian, 2019)
SELECTED = "select_"  # in front of the names of the parts of recurrent observations
OBSERVED = f"{SELECTED}observed"
TINY = 1e-2  # scale of the last layer's initial weights in a policy of means


class _NetworkBuilder:
    """Adds steps one after another; `value` is the newest value, of `shape`."""

    def __init__(self, shape: Shape) -> None:
        self.steps: list[ActorStep] = []
        self.weight_shapes: dict[str, Shape] = {}
        self.value, self.shape = "observation", shape

    def add(self, op: str, name: str, weights: Mapping[str, Shape], **attrs: object) -> str:
        step, shapes = step_with_weights(op, (self.value,), name, weights, attrs)
        self.steps.append(step)
        self.weight_shapes.update(shapes)
        self.value = name
        return name

    def dense(self, name: str, units: int, activation: str = "linear") -> str:
        weights = {"kernel": (self.shape[0], units), "bias": (units,)}
        self.shape = (units,)
        return self.add("dense", name, weights, activation=activation)

    def torso(self, hidden: Sequence[int], activation: str, layer_norm: bool) -> None:
        """Add dense layers, after convolutions for images.

        The convolutions are those of the Nature network, or MinAtar's for smaller images.
        """
        if len(self.shape) == 3:
            self._frames()
        for i, units in enumerate(hidden):
            if layer_norm and i == 0:
                self.dense("hidden_0", units)
                scales = {"gamma": (units,), "beta": (units,)}
                self.add("layer_norm", "norm", scales, epsilon=1e-6)
                self.add("activate", "squashed", {}, activation="tanh")
            else:
                self.dense(f"hidden_{i}", units, activation)

    def _frames(self) -> None:
        height, width, channels = self.shape
        self.add("affine", "scaled", {"scale": (channels,), "offset": (channels,)})
        layers = NATURE if min(height, width) >= NATURE_SIZE else MINATAR
        for i, (units, size, stride) in enumerate(layers):
            weights = {"kernel": (size, size, channels, units), "bias": (units,)}
            self.add("conv", f"conv_{i}", weights, activation="relu", strides=(stride, stride))
            height, width = (height - size) // stride + 1, (width - size) // stride + 1
            channels = units
        self.add("flatten", "flat", {})
        self.shape = (height * width * channels,)

    def program(self, shape: Shape, output: str) -> ActorProgram:
        return ActorProgram(shape, tuple(self.steps), (output,), dict(self.weight_shapes))


def network(
    shape: Shape,
    hidden: Sequence[int],
    outputs: int,
    *,
    activation: str = "relu",
    last: str = "linear",
    dueling: bool = False,
    layer_norm: bool = False,
) -> ActorProgram:
    """Dense layers of `hidden` units on an observation of `shape`; convolutions before for images.

    dueling     separate values and advantages (Wang et al., 2016)
    layer_norm  the first layer is normalised and goes through tanh, as in Acme's networks
    """
    build = _NetworkBuilder(shape)
    build.torso(hidden, activation, layer_norm)
    if not dueling:
        return build.program(shape, build.dense("output", outputs, last))
    torso, width = build.value, build.shape
    value = build.dense("value", 1)
    build.value, build.shape = torso, width
    build.dense("advantage", outputs)
    advantage = build.add("center", "centered", {})
    build.steps.append(ActorStep("add", (advantage, value), "output"))
    return build.program(shape, "output")


def with_log_std(policy: ActorProgram) -> ActorProgram:
    """A policy of means [a] as a program whose output is [means, log deviations], [2 a].

    The deviations do not depend on the observation: they are the offsets of 0 * means, so that they
    are float32 in blocks of any bits. `log_std/scale` must be 0.
    """
    means, *others = policy.outputs
    count = (policy.size(means),)
    weights = {"log_std/scale": count, "log_std/offset": count}
    steps = (
        *policy.steps,
        ActorStep("affine", (means,), "log_std", tuple(weights)),
        ActorStep("concat", (means, "log_std"), "distribution"),
    )
    return replace(
        policy,
        steps=steps,
        outputs=("distribution", *others),
        weight_shapes={**policy.weight_shapes, **weights},
    )


def actor_critic(
    shape: Shape, hidden: Sequence[int], outputs: int, values: int, *, layer_norm: bool = False
) -> tuple[ActorProgram, ActorProgram]:
    """A policy for actors, and the same network with `value` [values] beside its `output`.

    Both heads share one torso.
    """
    build = _NetworkBuilder(shape)
    build.torso(hidden, "relu", layer_norm)
    torso, width = build.value, build.shape
    policy = build.program(shape, build.dense("output", outputs))
    build.value, build.shape = torso, width
    whole = build.program(shape, build.dense("value", values))
    return policy, replace(whole, outputs=("output", "value"))


@dataclass(frozen=True)
class RecurrentNetworks:
    """A recurrent policy for actors, and the same network with `value` [1] beside its `output`.

    Both have the states of one layer of cells. Slices of their observation have the name SELECTED
    and the name of a state; OBSERVED is the slice without states.
    """

    policy: ActorProgram
    network: ActorProgram
    cell: RecurrentCell

    @property
    def fixed(self) -> dict[str, Array]:
        """Weights that are not trained."""
        return self.cell.fixed_weights()


def recurrent_actor_critic(
    shape: Shape, hidden: Sequence[int], outputs: int, kind: CellKind, units: int
) -> RecurrentNetworks:
    """Dense layers of `hidden` units, one layer of cells, and heads for policy and value."""
    states = ("hidden", "cell") if kind is CellKind.LSTM else ("hidden",)
    total = shape[0] + units * len(states)
    build = _NetworkBuilder((total,))
    for name, size, first in [
        (OBSERVED, shape[0], 0),
        *((f"{SELECTED}{s}", units, shape[0] + i * units) for i, s in enumerate(states)),
    ]:
        build.value, build.shape = "observation", (total,)
        build.add("slice", name, {}, columns=(first, size))
    build.value, build.shape = OBSERVED, shape
    build.torso(hidden, "tanh", layer_norm=False)
    cell = RecurrentCell(kind, "recurrent", build.shape[0], units)
    build.steps += cell.steps(build.value, *(f"{SELECTED}{state}" for state in states))
    build.weight_shapes.update(cell.weight_shapes())
    last = cell.next("hidden")
    after = tuple(ProgramState(state, units, cell.next(state)) for state in states)
    found = list[ActorProgram]()
    for name, size in (("output", outputs), ("value", 1)):
        build.value, build.shape = last, (units,)
        build.dense(name, size)
        names = ("output", "value")[: len(found) + 1]
        found.append(
            ActorProgram(
                (total,), tuple(build.steps), (*names, *(state.output for state in after)),
                dict(build.weight_shapes), states=after,
            )
        )  # fmt: skip
    return RecurrentNetworks(found[0], found[1], cell)


def initial_weights(
    program: ActorProgram, rng: np.random.Generator, last: float = 1.0
) -> dict[str, Array]:
    """Kernels uniform with variance 1 / fan-in, `last` times that for `output`; biases 0.

    Frames are scaled from 0..255 to 0..1.
    """
    fixed = {"gamma": 1.0, "scale": 1.0 / 255}
    found: dict[str, Array] = {}
    for name, shape in program.weight_shapes.items():
        layer, _, part = name.rpartition("/")
        if part == "kernel":
            bound = math.sqrt(3 / math.prod(shape[:-1])) * (last if layer == "output" else 1.0)
            found[name] = rng.uniform(-bound, bound, shape).astype(np.float32)
        else:
            found[name] = np.full(shape, fixed.get(part, 0.0), np.float32)
    return found


def orthogonal_weights(
    program: ActorProgram, rng: np.random.Generator, last: float
) -> dict[str, Array]:
    """Kernels with orthogonal columns or rows (Saxe et al., 2014), of norm sqrt(2); those of
    `output` and `value` of norm `last` and 1. Other weights as in `initial_weights`.
    """
    gains = {"output": last, "value": 1.0}
    found = initial_weights(program, rng)
    for name, weights in found.items():
        layer, _, part = name.rpartition("/")
        if part == "kernel":
            rows, columns = math.prod(weights.shape[:-1]), weights.shape[-1]
            tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
            q, r = np.linalg.qr(tall)
            q *= np.sign(np.diag(r))  # else not uniform
            q = q if rows >= columns else q.T
            gain = gains.get(layer, math.sqrt(2))
            found[name] = (gain * q).reshape(weights.shape).astype(np.float32)
    return found


def is_trained(name: str) -> bool:
    """Whether a weight is trained; the scale of frames and 1 - z are not."""
    return not name.startswith("scaled/") and "/rest/" not in name
