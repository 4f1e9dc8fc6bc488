"""PPO (Schulman et al., 2017): several epochs over each rollout, with a clipped objective.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from qgraph.errors import UsageError
from qgraph.foreign import Tensor, Variable
from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram
from qgraph.rl.agents.bits_learner import BitsLearner
from qgraph.rl.agents.learner import Teacher
from qgraph.rl.agents.ppo.advantages import advantages
from qgraph.rl.agents.ppo.config import PpoConfig
from qgraph.rl.agents.ppo.densities import of_logits, of_means
from qgraph.rl.agents.ppo.objective import Measures, Minibatch, objective
from qgraph.rl.agents.precision import LearnerPrecision
from qgraph.rl.compress.chain_policy import PolicySpec
from qgraph.rl.environments import Environment
from qgraph.rl.head import Head
from qgraph.rl.learn.adam import Adam
from qgraph.rl.learn.networks import (
    OBSERVED,
    SELECTED,
    TINY,
    RecurrentNetworks,
    actor_critic,
    is_trained,
    network,
    orthogonal_weights,
    recurrent_actor_critic,
    with_log_std,
)
from qgraph.rl.learn.queue import follows
from qgraph.rl.learn.replay import Batch
from qgraph.rl.learn.tensors import TRANSITION, by_name, run, run_all, variables
from qgraph.rl.setting_text import SettingText
from qgraph.stored import part

EPSILON = 1e-5  # of Adam, as in OpenAI's baselines
KL_MARGIN = 1.5  # how far the divergence may exceed its target, as in OpenAI's spinningup
LOG_STD = "policy/log_std/offset"


class PpoLearner(BitsLearner):
    """A policy and a critic: two networks for vectors, one with a common torso for images.

    Discrete actions are drawn from logits; continuous ones from normal distributions whose
    deviations are variables that do not depend on the observation.
    """

    teacher = None

    def __init__(self, config: PpoConfig, environment: Environment) -> None:
        self.config, self.actions = config, environment.actions
        self.bfloat16 = config.precision is LearnerPrecision.MIXED_BFLOAT16
        self._make_variables(environment.shape)
        self.policy = self._policy_weights(self.program)
        trained = {name: v for name, v in self.weights.items() if _is_trained(name)}
        self.adam = Adam(trained, config.learning_rate, config.gradient_norm, EPSILON)
        self.taken = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.measures = Measures(0.0, 0.0, 0.0, 0.0)  # of the last rollout
        self._compile()

    def _compile(self) -> None:
        self._compiled = tf.function(self._step, autograph=False)

    def _train_beside(self, thresholds: Adam) -> None:
        self.adam.beside = [thresholds]

    def _make_variables(self, shape: tuple[int, ...]) -> None:
        config, actions = self.config, self.actions
        rng = np.random.default_rng(config.seed)
        outputs = actions.count or len(actions.low)
        self.critic = None
        self.recurrent: RecurrentNetworks | None = None
        if config.recurrent is not None:
            self.recurrent = recurrent_actor_critic(
                shape, config.hidden_sizes, outputs, config.recurrent, config.recurrent_units
            )
            self.program, self.network = self.recurrent.policy, self.recurrent.network
        elif len(shape) > 1:
            self.program, self.network = actor_critic(shape, config.hidden_sizes, outputs, 1)
        else:
            self.program = network(shape, config.hidden_sizes, outputs, activation="tanh")
            self.network = self.program
            self.critic = network(shape, config.critic_hidden_sizes, 1, activation="tanh")
        parts = {"policy": orthogonal_weights(self.network, rng, TINY)}
        if self.recurrent is not None:
            parts["policy"] |= self.recurrent.fixed
        if self.critic is not None:
            parts["critic"] = orthogonal_weights(self.critic, rng, 1.0)
        if not actions.discrete:
            if config.compress:
                raise UsageError(
                    SettingText(
                        "{compress} is for policies whose deviations are fixed or an output of the "
                        "network; those of continuous {title} are neither",
                        title=config.title,
                    ),
                    hint=SettingText("{actor_bits} 8 packs the policy in few bits"),
                )
            parts["policy"]["log_std/scale"] = np.zeros(outputs, np.float32)
            parts["policy"]["log_std/offset"] = np.full(outputs, config.initial_log_std, np.float32)
        self.weights = variables(by_name(parts), "ppo")

    @property
    def head(self) -> Head:
        """The head, with the current deviations."""
        if self.actions.discrete:
            return Head("categorical")
        log_std = tuple(map(float, self.weights[LOG_STD].numpy()))
        return Head("gaussian", self.actions.low, self.actions.high, log_std)

    @property
    def acting(self) -> Teacher:
        """The policy, as actors get it: with the deviations of continuous actions."""
        program = self.program if self.actions.discrete else with_log_std(self.program)
        return Teacher(PolicySpec(program, self.head), self._policy_weights(program))

    @property
    def state(self) -> dict[str, Variable]:
        """Every variable that a resumed run needs, by name."""
        return {
            **by_name({"network": self.weights, "adam": self.adam.state}),
            **self.bits_state,
            "taken": self.taken,
        }

    def _policy_weights(self, program: ActorProgram) -> dict[str, Variable]:
        """The variables of a program, by name."""
        return {name: self.weights[f"policy/{name}"] for name in program.weight_shapes}

    def step(self, batch: Batch) -> tuple[Array, float]:
        """Learn from a rollout [n]: the critic's error of each step, and the mean loss."""
        records = batch.records
        columns = [*(records[name] for name in TRANSITION), follows(records)]
        states = [records["state"]] if self.recurrent is not None else []
        errors, measures = self._compiled(*columns, records["log_probability"], *states)
        self.measures = Measures(*(float(measure) for measure in measures))
        return errors.numpy(), self.measures.loss

    def _step(
        self, x: Tensor, action: Tensor, reward: Tensor, discount: Tensor, following: Tensor,
        same_episode: Tensor, log_mu: Tensor, states: Tensor | None = None,
    ) -> tuple[Tensor, Measures]:  # fmt: skip
        config, after = self.config, None
        if states is None:
            (_, value), (_, next_value) = self._outputs(x), self._outputs(following)
        else:  # by the states of the actor, so all steps at once
            _, value, after = self._next(x, states)
            _, next_value, _ = self._next(following, after)
        errors = config.reward_scale * reward + discount * next_value - value
        advantage = advantages(errors, config.gae_lambda * discount * same_episode)
        rollout = Minibatch(x, action, log_mu, advantage, advantage + value, value)
        memory = () if states is None else (states, same_episode)
        places, share = self._places(), self._share_of_rate()
        count = places.shape[0]
        self.taken.assign_add(1)

        def learn(at: Tensor, sums: Measures) -> tuple[Tensor, Measures]:
            drawn = Minibatch(*(tf.gather(column, places[at]) for column in rollout))
            measures = self._learn(
                drawn, share, *(tf.gather(column, places[at]) for column in memory)
            )
            sums = Measures(*(a + b for a, b in zip(sums, measures, strict=True)))
            return tf.where(self._is_near(measures.kl), at + 1, count), sums

        zero = tf.constant(0.0)
        start = (tf.constant(0), Measures(zero, zero, zero, zero))
        _, sums = tf.while_loop(lambda at, _: at < count, learn, start, parallel_iterations=1)
        n = sums.minibatches
        return tf.abs(advantage), Measures(sums.loss / n, sums.kl / n, sums.clipped / n, n)

    def _learn(self, minibatch: Minibatch, share: Tensor, *memory: Tensor) -> Measures:
        """A step of Adam, unless the policy is too far from the one that acted.

        memory: for a recurrent policy, states of the actor [n, s], and 1 where the next step is of
        the same episode [n].
        """
        with tf.GradientTape() as tape:
            if memory:
                outputs, value = self._unrolled(minibatch.observation, *memory)
            else:
                outputs, value = self._outputs(minibatch.observation)
            log_pi, entropy = self._density(outputs, minibatch.action)
            measures = objective(self.config, minibatch, log_pi, entropy, value)
        gradients = self.adam.gradients(tape, measures.loss)
        if not self.config.target_kl:
            self.adam.apply_all(gradients, share)
            return measures

        def descend() -> Tensor:
            self.adam.apply_all(gradients, share)
            return tf.constant(0)

        tf.cond(self._is_near(measures.kl), descend, lambda: tf.constant(0))
        return measures

    def _outputs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The policy's output [n, m], and values [n], of observations [n, *shape]."""
        weights = part(self.weights, "policy")
        outputs, *values = run_all(self.network, weights, x, bfloat16=self.bfloat16)
        if self.bits is not None:  # values stay float
            outputs = self.bits(self.policy, x)
        if self.critic is not None:
            critic = part(self.weights, "critic")
            values = [run(self.critic, critic, x, bfloat16=self.bfloat16)]
        return outputs, values[0][:, 0]

    def _next(self, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The policy's output [n, m], values [n] and the next states, of a recurrent network."""
        assert self.recurrent is not None
        sizes = [state.size for state in self.program.states]
        given = {OBSERVED: tf.cast(x, tf.float32)}
        for state, value in zip(self.program.states, tf.split(states, sizes, -1), strict=True):
            given[f"{SELECTED}{state.name}"] = value
        weights = part(self.weights, "policy")
        outputs, values, *after = run_all(
            self.network, weights, None, bfloat16=self.bfloat16, given=given
        )
        return outputs, values[:, 0], tf.concat(after, -1)

    def _unrolled(self, x: Tensor, states: Tensor, same_episode: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [n, m] and values [n] of sequences, one behind the other in n steps.

        The first step of a sequence, and of an episode, begins with the actor's state, from which
        no gradient flows; others with the state that the network has after the step before.
        """
        length = self.config.sequence_length
        x, states, going = (
            tf.reshape(column, [-1, length, *column.shape[1:]])
            for column in (x, states, same_episode)
        )
        state, found = states[:, 0], []
        for t in range(length):
            outputs, value, after = self._next(x[:, t], state)
            found.append((outputs, value))
            if t + 1 < length:
                state = tf.where(going[:, t, None] > 0, after, states[:, t + 1])
        outputs, values = (tf.stack(column, 1) for column in zip(*found, strict=True))
        return tf.reshape(outputs, [-1, outputs.shape[-1]]), tf.reshape(values, [-1])

    def _density(self, outputs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The log probability [n] of actions, and the entropy [n] of their distributions."""
        if self.actions.discrete:
            return of_logits(outputs, action)
        return of_means(outputs, self.weights[LOG_STD], action)

    def _is_near(self, kl: Tensor) -> Tensor:
        """Whether the rollout is still learned from at this divergence."""
        target = self.config.target_kl
        return kl <= KL_MARGIN * target if target else tf.constant(True)

    def _places(self) -> Tensor:
        """The steps of each minibatch [epochs * minibatches, n], by the seed and the rollout.

        Those of a recurrent policy are whole sequences.
        """
        config = self.config
        length = 1 if self.recurrent is None else config.sequence_length
        shape = [config.epochs, config.batch_size // length]
        drawn = tf.random.stateless_uniform(shape, tf.stack([config.seed, self.taken]))
        first = length * tf.argsort(drawn)
        places = first if length == 1 else first[..., None] + tf.range(length)
        return tf.reshape(places, [-1, config.minibatch_size])

    def _share_of_rate(self) -> Tensor:
        """The share of the learning rate, which is 1 in the first rollout."""
        if not self.config.anneal_learning_rate:
            return tf.constant(1.0)
        left = 1 - tf.cast(self.taken, tf.float32) / self.config.learner_steps
        return tf.maximum(left, 0.0)


def _is_trained(name: str) -> bool:
    """Whether a variable is trained; the scales of frames and of deviations are not."""
    _, _, own = name.partition("/")
    return is_trained(own) and own != "log_std/scale"
