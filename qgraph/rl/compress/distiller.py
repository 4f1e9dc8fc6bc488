"""The training of a student.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import tensorflow as tf

from qgraph.errors import TrainingError
from qgraph.foreign import Tensor, Variable
from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.compress.action_distributions import Outputs, outputs_of, soft
from qgraph.rl.compress.chain_policy import shared, silent
from qgraph.rl.compress.losses import divergence, entropy
from qgraph.rl.compress.students import trained_weights
from qgraph.rl.head import Head
from qgraph.rl.learn.adam import Adam
from qgraph.rl.learn.tensors import run, variables

NORM = 10.0  # gradients are scaled down to this norm
RANDOM, UNIT = "random numbers", "unit of values"
MIN_DEVIATION = 1e-3  # the smallest deviation of values, absolute and relative to their mean


class Distiller:
    """Learns the weights of `program`, whose outputs `head` turns into actions.

    rate: of Adam. value, beta: the weights of values and of the entropy in the loss. temperature:
    logits are divided by it. `begin` resets everything.

    Inside, values are (V - mean) / deviation over the values to learn; a linear layer that
    computes them is rescaled accordingly, so that its function stays (van Hasselt et al., 2016).
    """

    def __init__(
        self,
        program: ActorProgram,
        head: Head,
        rate: float,
        value: float,
        beta: float,
        temperature: float,
    ) -> None:
        self.program, self.head = program, head
        self.value, self.beta, self.temperature = value, beta, temperature
        shapes = program.weight_shapes.items()
        self.policy = variables({n: np.zeros(s, np.float32) for n, s in shapes}, "student")
        self.adam = Adam({name: self.policy[name] for name in trained_weights(program)}, rate, NORM)
        self.value_layer = _linear_values(program)
        self.unit = tf.Variable([0.0, 1.0], trainable=False, name="unit")  # mean, deviation
        self.rng = np.random.default_rng(0)
        self.fresh = True  # has not learned since `begin`
        self.unknown = False  # whether the unit of its values is unknown
        self._compiled = tf.function(self._step, reduce_retracing=True)

    def begin(self, weights: Mapping[str, Array], seed: int, *, random: bool = False) -> None:
        """Reset to these weights. random: they are untrained, and values have no unit yet."""
        for name, variable in self.policy.items():
            variable.assign(weights[name])
        for name, state in self.adam.state.items():
            state.assign([0.9, 0.999] if name == "powers" else tf.zeros_like(state))
        self.unit.assign([0.0, 1.0])
        self.unknown = random
        self.rng, self.fresh = np.random.default_rng(seed), True

    def state(self) -> dict[str, Array]:
        """Weights, the optimizer's state, and the state of random numbers, by name."""
        draws = np.array(json.dumps(self.rng.bit_generator.state))
        return {RANDOM: draws, **{name: v.numpy() for name, v in self._variables().items()}}

    def resume(self, state: Mapping[str, Array]) -> None:
        """Continue from a `state`."""
        for name, variable in self._variables().items():
            variable.assign(state[name])
        self.rng.bit_generator.state, self.fresh = json.loads(str(state[RANDOM])), False
        self.unknown = False

    def _variables(self) -> dict[str, Variable]:
        adam = {f"adam/{name}": v for name, v in self.adam.state.items()}
        return {**self.policy, **adam, UNIT: self.unit}

    def weights(self) -> dict[str, Array]:
        weights = {name: variable.numpy() for name, variable in self.policy.items()}
        return weights | self._value_weights((0.0, 1.0))

    def _value_weights(self, unit: tuple[float, float]) -> dict[str, Array]:
        """The weights of the layer for values, with values in a unit (mean, deviation)."""
        if self.value_layer is None:
            return {}
        kernel, bias = self.value_layer.weights
        (mean, deviation), (shift, scale) = self.unit.numpy().astype(np.float64), unit
        moved = self.policy[bias].numpy() * deviation + mean - shift
        return {
            kernel: np.asarray(self.policy[kernel].numpy() * (deviation / scale), np.float32),
            bias: np.asarray(moved / scale, np.float32),
        }

    def _rescale(self, values: Array) -> Array:
        """Change to the unit of these values; returns the values in it."""
        if self.value_layer is None:
            return values
        mean, deviation = float(values.mean()), float(values.std())
        unit = mean, max(deviation, MIN_DEVIATION * abs(mean), MIN_DEVIATION)
        if not self.unknown:
            for name, weight in self._value_weights(unit).items():
                self.policy[name].assign(weight)
        self.unit.assign(unit)
        self.unknown = False
        return np.asarray((values - unit[0]) / unit[1], np.float32)

    def learn(
        self,
        observations: Array,
        wanted: Outputs,
        steps: int,
        batch: int,
        heartbeat: Callable[[], object] = silent,
    ) -> float:
        """Learn from observations [n, *shape] and the original's outputs; returns the last loss.

        Raises TrainingError if outputs, loss or weights are not finite; the state before then
        stays.
        """
        values = np.zeros(len(observations), np.float32) if wanted.values is None else wanted.values
        if not (np.isfinite(wanted.actions).all() and np.isfinite(values).all()):
            raise TrainingError("the original policy has outputs that are not finite")
        loss, before, previous = 0.0, self.state(), (self.fresh, self.unknown)
        if wanted.values is not None:
            values = self._rescale(values)
        for _ in range(steps):
            heartbeat()
            rows = self.rng.integers(len(observations), size=batch)
            x = tf.constant(np.asarray(observations[rows], np.float32))
            actions, value = tf.constant(wanted.actions[rows]), tf.constant(values[rows])
            loss = self._compiled(x, actions, value)
        if not (np.isfinite(loss) and self._finite()):
            self.resume(before)
            self.fresh, self.unknown = previous
            why = f"the student's loss is {float(loss)}, or its weights are not finite"
            raise TrainingError(why, hint="use a lower rate")
        self.fresh = False
        return float(loss)

    def _finite(self) -> bool:
        return all(np.isfinite(v.numpy()).all() for v in self._variables().values())

    def _step(self, x: Tensor, actions: Tensor, values: Tensor) -> Tensor:
        with tf.GradientTape() as tape:
            loss = self._loss(x, actions, values)
        self.adam.descend(tape, loss)
        return loss

    def _loss(self, x: Tensor, actions: Tensor, values: Tensor) -> Tensor:
        outputs = outputs_of(self._run(x))
        head, logits = soft(self.head), outputs.actions
        if head.kind == "categorical":
            logits, actions = logits / self.temperature, actions / self.temperature
        loss = divergence(head, actions, logits) - self.beta * entropy(head, logits)
        if outputs.values is not None:
            loss += self.value * (values - outputs.values) ** 2 / 2
        return tf.reduce_mean(loss)

    def _run(self, x: Tensor) -> dict[str, Tensor]:
        """Every output by name; TensorFlow computes common parts once."""
        return {
            name: run(replace(self.program, outputs=(name,)), self.policy, x)
            for name in self.program.outputs
        }


def _linear_values(program: ActorProgram) -> ActorStep | None:
    """The linear layer of values, an output after the first; None without one."""
    common = shared(program)
    for name in program.outputs[1:]:
        if program.shapes()[name] == (1,):
            (step,) = (s for s in program.steps if s.output == name)
            used = any(name in other.inputs for other in program.steps)
            plain = step.op == "dense" and step.activation == "linear"
            return step if plain and not used and not common.intersection(step.weights) else None
    return None
