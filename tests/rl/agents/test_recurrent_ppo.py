"""Recurrent PPO: sequences are steps, resets are fresh states, and gradients pass through time."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph.choices import CellKind
from qgraph.errors import UsageError
from qgraph.rl.actor import Actor, Packer
from qgraph.rl.actor.recurrent_cells import RecurrentCell
from qgraph.rl.agents import config_for
from qgraph.rl.agents.ppo.learner import LOG_STD, PpoLearner
from qgraph.rl.learn.networks import SELECTED, recurrent_actor_critic
from qgraph.rl.learn.records import record_type
from qgraph.rl.policy import floats
from qgraph.rl.policy.recurrent_outputs import RecurrentOutputs
from tests.helpers.ppo import SMALL, WORLDS
from tests.helpers.rl_records import batch_of

UNITS, LENGTH, COUNT = 5, 6, 60
KINDS = [CellKind.LSTM, CellKind.GRU]


def learner(kind="lstm", discrete=True, **more):
    own = {"recurrent": kind, "recurrent_units": UNITS, "sequence_length": LENGTH,
           "minibatch_size": 30}  # fmt: skip
    made = PpoLearner(config_for("ppo", "Any-v0", **{**SMALL, **own, **more}), WORLDS[discrete])
    rng = np.random.default_rng(5)
    for name, weights in made.weights.items():  # biases are 0 and the head is tiny at first
        if SELECTED not in name and "/rest/" not in name and "scale" not in name:
            weights.assign_add(rng.normal(0, 0.3, weights.shape).astype(np.float32))
    return made


def plain(made, rows):
    """The outputs of the network by numpy."""
    weights = {n.removeprefix("policy/"): v.numpy() for n, v in made.weights.items()}
    return floats.run(made.network, weights, rows)


def rolled(made, x, following, first):
    """Outputs and values of steps one after the other; `following`: whether the next continues."""
    policy = RecurrentOutputs(lambda rows: plain(made, rows), made.program.states, "output")
    state, outputs, values, states = first[0], [], [], []
    for t, seen in enumerate(x):
        if t and not following[t - 1]:
            state = first[t]
        row = np.concatenate([seen, state])[None]
        found = plain(made, row)
        outputs.append(found["output"][0])
        values.append(found["value"][0, 0])
        states.append(state)
        state = policy.step(seen[None], state[None])[1][0]
    return np.stack(outputs), np.stack(values), np.stack(states)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_is_its_steps_and_a_reset_is_a_fresh_state(kind):
    made, rng = learner(kind), np.random.default_rng(0)
    x = rng.normal(size=(2 * LENGTH, 4)).astype(np.float32)
    first = rng.normal(size=(2 * LENGTH, made.config.state_size)).astype(np.float32)
    following = np.ones(2 * LENGTH, np.float32)
    following[[2, LENGTH - 1]] = 0  # an episode ends inside of the first sequence
    first[3] = 0
    outputs, values = made._unrolled(*map(tf.constant, (x, first, following)))
    wanted = rolled(made, x, following, first)
    np.testing.assert_allclose(outputs, wanted[0], atol=1e-5)
    np.testing.assert_allclose(values, wanted[1], atol=1e-5)
    fresh = made._unrolled(*map(tf.constant, (np.roll(x, -3, 0), 0 * first, following)))[0]
    np.testing.assert_allclose(outputs[3], fresh[0], atol=1e-6)
    apart = first.copy()
    apart[1:3] += 1  # states of steps that continue are not read
    again, _ = made._unrolled(*map(tf.constant, (x, apart, following)))
    np.testing.assert_array_equal(again, outputs)
    apart[3] += 1
    again, _ = made._unrolled(*map(tf.constant, (x, apart, following)))
    assert (np.abs(again - outputs).max(1) > 0)[3:LENGTH].all()
    np.testing.assert_array_equal(again[LENGTH:], outputs[LENGTH:])


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_finite_differences(kind):
    """Through all steps of a sequence, from float64 sums of numpy."""
    made, rng = learner(kind), np.random.default_rng(1)
    x = rng.normal(size=(LENGTH, 4)).astype(np.float32)
    first = rng.normal(size=(LENGTH, made.config.state_size)).astype(np.float32)
    following = np.ones(LENGTH, np.float32)
    wish = rng.normal(size=(LENGTH, 3)).astype(np.float32)
    trained = {n: v for n, v in made.weights.items() if n in made.adam.state or "kernel" in n}
    trained = {n: v for n, v in trained.items() if SELECTED not in n and "/rest/" not in n}

    def loss():
        outputs, values = made._unrolled(*map(tf.constant, (x, first, following)))
        return tf.reduce_sum(outputs * wish) + tf.reduce_sum(values)

    with tf.GradientTape() as tape:
        value = loss()
    gradients = dict(zip(trained, tape.gradient(value, list(trained.values())), strict=True))
    checked = 0
    for name, variable in trained.items():
        place = tuple(int(rng.integers(size)) for size in variable.shape)
        kept, step = variable.numpy(), 1e-2
        ends = []
        for sign in (1, -1):
            moved = kept.copy()
            moved[place] += sign * step
            variable.assign(moved)
            outputs, values, _ = rolled(made, x, following, first)
            ends.append(float((outputs.astype(float) * wish).sum() + values.sum(dtype=float)))
        variable.assign(kept)
        slope = (ends[0] - ends[1]) / (2 * step)
        assert float(gradients[name][place]) == pytest.approx(slope, rel=0.02, abs=2e-3), name
        checked += 1
    assert checked >= 9
    recurrent = gradients[next(n for n in trained if n.endswith("_recurrent/kernel"))]
    assert np.abs(recurrent).max() > 1e-3


def torch_layer(torch, kind, cell, weights):
    """PyTorch's layer with the weights of a cell."""
    gates = {"lstm": "ifgo", "gru": "rzn"}[kind]
    layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](cell.inputs, cell.units)
    with torch.no_grad():
        for part, name in (("input", "ih"), ("recurrent", "hh")):
            rows = [weights[f"{cell.layer(gate, part)}/kernel"].T for gate in gates]
            bias = [weights[f"{cell.layer(gate, part)}/bias"] for gate in gates]
            getattr(layer, f"weight_{name}_l0").copy_(torch.tensor(np.concatenate(rows)))
            getattr(layer, f"bias_{name}_l0").copy_(torch.tensor(np.concatenate(bias)))
    return layer


@pytest.mark.parametrize("kind", KINDS)
def test_cells_are_those_of_pytorch(kind):
    torch = pytest.importorskip("torch")
    networks = recurrent_actor_critic((4,), (), 3, kind, UNITS)
    rng = np.random.default_rng(2)
    weights = {
        name: rng.normal(0, 0.5, shape).astype(np.float32)
        for name, shape in networks.network.weight_shapes.items()
    } | networks.fixed
    layer = torch_layer(torch, str(kind), networks.cell, weights)
    x = rng.normal(size=(9, 2, 4)).astype(np.float32)
    states = np.zeros((2, UNITS * len(networks.cell.states)), np.float32)
    with torch.no_grad():
        wanted = layer(torch.tensor(x))[0].numpy()
    policy = RecurrentOutputs(
        lambda rows: floats.run(networks.policy, weights, rows), networks.policy.states, "output"
    )
    for t in range(9):
        _, states = policy.step(x[t], states)
        np.testing.assert_allclose(states[:, :UNITS], wanted[t], atol=1e-6)


def rollout(made, discrete=True):
    """Steps of two actors by the policy itself, with states as an actor in float records them."""
    world, rng = WORLDS[discrete], np.random.default_rng(3)
    found = np.zeros(COUNT, record_type(world, made.config.state_size))
    found["observation"] = rng.normal(size=(COUNT, 4))
    found["next_observation"][:-1] = found["observation"][1:]
    found["actor"][COUNT // 2 :] = 1
    found["length"][[9, 20]] = 5
    found["discount"] = 0.9
    found["discount"][9] = 0
    found["reward"] = rng.normal(size=COUNT)
    found["action"] = rng.integers(3, size=COUNT) if discrete else rng.normal(size=(COUNT, 2))
    going = np.ones(COUNT)
    going[[9, 20, COUNT // 2 - 1]] = 0
    zeros = np.zeros((COUNT, made.config.state_size), np.float32)
    outputs, _, found["state"] = rolled(made, found["observation"], going, zeros)
    if discrete:
        logs = outputs - np.log(np.exp(outputs).sum(-1, keepdims=True))
        found["log_probability"] = np.take_along_axis(logs, found["action"][:, None], 1)[:, 0]
    else:
        log_std = made.weights[LOG_STD].numpy()
        away = (found["action"] - outputs) / np.exp(log_std)
        found["log_probability"] = -(away**2 / 2 + log_std + np.log(2 * np.pi) / 2).sum(-1)
    return batch_of(found)


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_that_acted_has_ratios_of_one(kind, discrete):
    """Before the first step of Adam; states that were not the actor's would change them."""
    made = learner(kind, discrete, epochs=1, minibatch_size=60)
    batch = rollout(made, discrete)
    _, loss = made.step(batch)
    assert np.isfinite(loss) and abs(made.measures.kl) < 1e-6 and made.measures.clipped == 0
    other = learner(kind, discrete, epochs=1, minibatch_size=60)
    batch.records["state"] += 0.5
    other.step(batch)
    assert other.measures.kl > 1e-4


def test_what_is_fixed_stays_fixed_and_the_rest_is_trained():
    made = learner("gru")
    before = {name: v.numpy() for name, v in made.weights.items()}
    made.step(rollout(made))
    for name, weights in made.weights.items():
        fixed = "/rest/" in name
        assert np.array_equal(weights, before[name]) == fixed, name
    assert not [name for name in made.weights if SELECTED in name]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("discrete", [True, False])
def test_an_actor_in_float32_computes_what_the_learner_computes(kind, discrete):
    made, rng = learner(kind, discrete), np.random.default_rng(4)
    acting = made.acting
    weights = {name: np.asarray(v) for name, v in acting.weights.items()}
    actor = Actor(Packer(acting.spec.program, bits=32).pack(weights))
    rows = rng.normal(size=(7, 4 + made.config.state_size)).astype(np.float32)
    found = actor.run(rows)
    outputs, _, after = made._next(*map(tf.constant, (rows[:, :4], rows[:, 4:])))
    count = outputs.shape[1]
    np.testing.assert_allclose(found[actor.outputs[0]][:, :count], outputs, atol=1e-5)
    states = np.concatenate([found[name] for name in actor.outputs[1:]], -1)
    np.testing.assert_allclose(states, after, atol=1e-5)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"sequence_length": 7}, "not a multiple"),
        ({"train_bits": 4}, "train_bits is not for a recurrent policy"),
        ({"actor_bits": 8, "broadcast_bits": 4}, "must equal"),
    ],
)
def test_settings_that_recurrent_policies_lack_are_refused(more, told):
    with pytest.raises(UsageError, match=told):
        config_for("ppo", "Any-v0", **{**SMALL, "recurrent": "lstm", "sequence_length": 5, **more})


def test_a_cell_names_its_weights_once():
    for kind in KINDS:
        cell = RecurrentCell(kind, "layer", 3, 4)
        states = [f"in_{name}" for name in cell.states]
        used = [name for step in cell.steps("x", *states) for name in step.weights]
        assert sorted(used) == sorted(cell.weight_shapes())
