"""SAC (Haarnoja et al., 2018), in float32 or in float16 (Bjorck et al., 2021).

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from qgraph.errors import TrainingError
from qgraph.foreign import Tensor, Variable
from qgraph.ir.types import Array
from qgraph.rl.actor.program import ActorProgram
from qgraph.rl.agents.critic_learner import CriticLearner
from qgraph.rl.agents.replay_learner import Weights
from qgraph.rl.agents.sac.config import SacConfig
from qgraph.rl.agents.sac.pixels import FEATURES, composed, encoder, encoder_weights, shifted
from qgraph.rl.environments import Environment
from qgraph.rl.half.average import SCALE, Average
from qgraph.rl.half.descent import Descent
from qgraph.rl.half.hadam import HAdam, LowPrecisionAdam
from qgraph.rl.half.methods import LOSS_SCALING
from qgraph.rl.half.normal import log_density
from qgraph.rl.half.precision import precision_of
from qgraph.rl.half.scaling import LossScale
from qgraph.rl.half.softplus import log_slope
from qgraph.rl.head import Head
from qgraph.rl.learn.adam import Adam
from qgraph.rl.learn.exploration import LOG_STD
from qgraph.rl.learn.networks import TINY, initial_weights, is_trained, network
from qgraph.rl.learn.replay import Batch
from qgraph.rl.learn.tensors import Transitions, by_name, run, transitions_of, variables
from qgraph.rl.setting_text import SettingText
from qgraph.stored import part

ALPHA = 0.1  # initial value
IMAGE_SCALE = 2.0**7  # of averages with an encoder, whose weights are larger
OVERFLOW_HINT = SettingText("float16 may need more {float16_methods}, or a smaller {reward_scale}")


class SacLearner(CriticLearner):
    """A policy that draws its actions, two critics, and alpha, the weight of its entropy.

    Critics and policy share an encoder of images, which the critics train. Actions are in -1..1
    except in the environment. `policy` is float32, the rest has config.precision.
    """

    def __init__(self, config: SacConfig, environment: Environment) -> None:
        super().__init__(config)
        self.config, self.methods = config, frozenset(config.float16_methods)
        self.precision = precision_of(config.precision, config.significand)
        self.rounded = self.precision.rounded
        actions = environment.actions
        self.head = Head("squashed_gaussian", actions.low, actions.high)
        self.width = len(actions.low)
        self.encoder = encoder(environment.shape) if len(environment.shape) == 3 else None
        features = (FEATURES,) if self.encoder else environment.shape
        self.actor_program = network(features, config.hidden_sizes, 2 * self.width)
        self.critic_program = network((features[0] + self.width,), config.critic_hidden_sizes, 1)
        self.program = self.actor_program
        if self.encoder:
            self.program = composed(self.encoder, self.actor_program)
        self._make_variables(np.random.default_rng(config.seed))
        self.descents = {
            "critic": self._descent(self.critic, kahan=True),
            "actor": self._descent(self.actor, kahan=False),  # which does not need it
            "alpha": self._descent({"log_alpha": self.log_alpha}, kahan=True),
        }
        self.loss = 0.0  # the last finite loss

    def _make_variables(self, rng: np.random.Generator) -> None:
        actor = initial_weights(self.actor_program, rng, TINY)
        critic = self._two_critics(rng)
        images = initial_weights(self.encoder, rng) if self.encoder else {}
        encoder = by_name({"encoder": {k: v for k, v in images.items() if is_trained(k)}})
        self.fixed = {k: v for k, v in images.items() if not is_trained(k)}
        self.actor = self._variables(actor, "actor")
        self.critic = self._variables({**critic, **encoder}, "critic")
        start = tf.constant(math.log(ALPHA), self.precision.stored)
        self.log_alpha = tf.Variable(self.rounded(start))
        self.average = Average(
            self.critic,
            self.config.tau,
            kahan="kahan-momentum" in self.methods,
            scale=IMAGE_SCALE if self.encoder else SCALE,
            rounded=self.rounded,
        )
        self.policy = variables({**images, **actor}, "policy")
        self._copy_policy()

    def _variables(self, weights: Mapping[str, Array], prefix: str) -> dict[str, Variable]:
        found = variables(weights, prefix, self.precision.stored)
        for variable in found.values():
            variable.assign(self.rounded(variable.read_value()))
        return found

    def _descent(self, moved: Weights, *, kahan: bool) -> Descent:
        kind = HAdam if "hadam" in self.methods else LowPrecisionAdam
        kahan = kahan and "kahan-gradients" in self.methods
        optimizer = kind(self.config.learning_rate, kahan=kahan, rounded=self.rounded)
        compound = "compound-scaling" in self.methods
        scale = LossScale() if compound or LOSS_SCALING in self.methods else None
        return Descent(moved, optimizer, scale, compound=compound)

    def _train_beside(self, thresholds: Adam) -> None:
        self.descents["actor"].beside = thresholds

    @property
    def parts(self) -> dict[str, Weights]:
        return {
            "policy": self.policy,
            "actor": self.actor,
            "critic": self.critic,
            "average": self.average.state,
            **{f"{name}_descent": descent.state for name, descent in self.descents.items()},
        }

    @property
    def state(self) -> dict[str, Variable]:
        return {**super().state, "log_alpha": self.log_alpha}

    def step(self, batch: Batch) -> tuple[Array, float]:
        """Learn from a batch: the critics' error of each transition, and their loss.

        With loss scaling, a step whose loss is not finite is skipped, and the last loss is returned
        for it. Raises TrainingError for a batch that the number format cannot hold, for weights
        that are no longer finite, and if gradients overflow at every scale.
        """
        self.precision.check("observations", batch.records["observation"])
        self.precision.check("next observations", batch.records["next_observation"])
        self.precision.check("rewards", self.config.reward_scale * batch.records["reward"])
        errors, loss, sound = self._compiled(transitions_of(batch))
        if not (sound and np.isfinite(loss)):
            self._check_weights()
        if np.isfinite(loss):
            self.loss = float(loss)
        scales = [d.scale for d in self.descents.values() if d.scale is not None]
        for name, descent in self.descents.items():
            if descent.scale is not None and descent.scale.exhausted:
                raise TrainingError(
                    f"gradients overflow at every loss scale after {int(self.taken)} steps",
                    node=name,
                    hint=OVERFLOW_HINT,
                )
        if not scales:
            self.loss = float(loss)
        return np.nan_to_num(errors.numpy()), self.loss

    def _check_weights(self) -> None:
        for name, weights in (("critic", self.critic), ("actor", self.actor)):
            if not all(np.isfinite(v.numpy()).all() for v in weights.values()):
                raise TrainingError(
                    f"weights are no longer finite after {int(self.taken)} steps",
                    node=name,
                    hint=None if self.precision.computed == tf.float32 else OVERFLOW_HINT,
                )
        self.average.check()

    def _step(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        x, action, reward, discount, following, importance = batch
        if self.encoder:
            x, following = shifted(x, self._seed(2)), shifted(following, self._seed(3))
        reward = self._number(self.config.reward_scale * reward)
        discount, importance = self._number(discount), self._number(importance)
        alpha = self._number(tf.exp(self.log_alpha))
        wanted = tf.stop_gradient(reward + discount * self._next_value(following, alpha))
        with tf.GradientTape() as tape:
            values = self.pair_values(self.critic, self.features(self.critic, x), action)
            errors = [value - self.rounded(wanted) for value in values]
            loss = tf.add_n([mean(importance * tf.square(error)) for error in errors])
        self.descents["critic"].minimize(tape, loss)
        features = tf.stop_gradient(self.features(self.critic, x))
        with tf.GradientTape() as tape:
            chosen, log_probability = self._draw(features, 1)
            value = tf.minimum(*self.pair_values(self.critic, features, chosen))
            policy_loss = mean(alpha * log_probability - value)
        self.descents["actor"].minimize(tape, policy_loss)
        with tf.GradientTape() as tape:
            # The entropy above its target, -1 for each number of an action; it lowers alpha.
            surplus = tf.stop_gradient(self.width - log_probability)
            alpha_loss = mean(self._number(tf.exp(self.log_alpha)) * surplus)
        self.descents["alpha"].minimize(tape, alpha_loss)
        self._count_step(self.config.target_update_period, self.average.update)
        self._copy_policy()
        whole = [tf.cast(error, tf.float32) for error in errors]  # squares may be infinite
        return (
            tf.abs(whole[0]) + tf.abs(whole[1]),
            tf.reduce_mean(tf.square(whole)) * 2,
            self._all_finite(),
        )

    def _all_finite(self) -> Tensor:
        """Whether all numbers are finite, so that the first NaN or infinity is reported.

        Those of critics show in their average.
        """
        if self.precision.computed != tf.float16:
            return tf.constant(True)
        kept = [*self.actor.values(), *self.average.kept.values()]
        return tf.reduce_all([tf.reduce_all(tf.math.is_finite(v)) for v in kept])

    def _next_value(self, following: Tensor, alpha: Tensor) -> Tensor:
        """The value of the next state: the smaller of both averaged critics, and the entropy."""
        average = self.average.read()
        chosen, log_probability = self._draw(self.features(self.critic, following), 0)
        values = self.pair_values(average, self.features(average, following), chosen)
        return tf.minimum(*values) - alpha * log_probability

    def _draw(self, features: Tensor, stream: int) -> tuple[Tensor, Tensor]:
        """Actions [n, a] of the policy, and the log-probability [n] of each (equation 1)."""
        outputs = self._run(self.actor_program, self.actor, features)
        center, log_std = tf.split(outputs, 2, -1)
        std = self.rounded(tf.exp(tf.clip_by_value(log_std, *LOG_STD)))
        # Drawn in float32, so that it is the same in all precisions.
        noise = tf.random.stateless_normal(tf.shape(center), self._seed(stream))
        u = self.rounded(center + std * self._number(noise))
        density = log_density(u, center, std, fix="normal-fix" in self.methods)
        slope = log_slope(u, fix="softplus-fix" in self.methods)
        log_probability = tf.reduce_sum(self.rounded(density - slope), -1)
        return self.rounded(tf.tanh(u)), log_probability

    def _criticize(self, weights: Weights, x: Tensor, action: Tensor) -> Tensor:
        return super()._criticize(weights, x, self._number(action))

    def features(self, critic: Weights, x: Tensor) -> Tensor:
        if self.encoder is None:
            return self._number(x)
        return self._run(self.encoder, self._encoding(critic), x)

    def _encoding(self, critic: Weights) -> dict[str, Tensor]:
        """The weights that the encoder runs with."""
        weights = {**self.fixed, **part(critic, "encoder")}
        return encoder_weights(self._computed(weights), self.rounded)

    def _run_float(self, program: ActorProgram, weights: Weights, x: Tensor) -> Tensor:
        dtype = self.precision.computed
        return run(program, self._computed(weights), x, dtype=dtype, through=self.rounded)

    def _computed(self, weights: Weights) -> dict[str, Tensor]:
        return {name: tf.cast(v, self.precision.computed) for name, v in weights.items()}

    def _number(self, x: Tensor) -> Tensor:
        return self.rounded(tf.cast(x, self.precision.computed))

    def _seed(self, stream: int) -> Tensor:
        return tf.stack([self.config.seed, 4 * self.taken + stream])

    def _copy_policy(self) -> None:
        """Copy the current weights to `policy`."""
        weights = dict(self.actor)
        if self.encoder:
            weights |= self._encoding(self.critic)
        for name, shown in self.policy.items():
            shown.assign(tf.cast(weights[name], tf.float32))


def mean(x: Tensor) -> Tensor:
    """The mean of numbers [n], divided before the sum, which may overflow float16."""
    return tf.reduce_sum(x * tf.cast(1 / tf.shape(x)[0], x.dtype))  # n itself may be infinite
