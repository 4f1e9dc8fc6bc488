"""ONNX policies as exporters of RL libraries write them have the same actions."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto

import qgraph
from qgraph.errors import UnsupportedError
from qgraph.exact.reference import Reference
from qgraph.rl.policy import floats, load_policy, pack, read_policy
from qgraph.stored import load_network
from tests.helpers.cli import run
from tests.helpers.exported_policies import (
    brax,
    cleanrl,
    lerobot,
    ml_agents,
    rl_games,
    rsl_rl,
    stable_baselines,
    torchrl,
)
from tests.helpers.exported_policies.float_actions import float_outputs
from tests.helpers.forms import assert_forms, random_codes
from tests.helpers.onnx_graphs import runtime

ACTIONS = "deterministic_continuous_actions"
FORMS = ("engine", "c", "onnx-integer")
NEAR = 0.15  # mean error of an output with 8 bits, in deviations of this output

# By name: the file, the options that its reader needs, and the steps of the program.
DENSE = ["dense"] * 3
IMAGES = ["affine", "conv", "conv", "flatten", "dense", "dense"]
POLICIES = {
    "rsl_rl": (rsl_rl.feed_forward, None, ["affine", *DENSE]),
    "rsl_rl, not folded": (lambda: rsl_rl.feed_forward(18, folded=False), None, ["affine", *DENSE]),
    "rl_games": (rl_games.continuous, "mu", ["affine", "clip", *DENSE]),
    "rl_games, deviations": (lambda: rl_games.continuous(False), "mu", ["affine", "clip", *DENSE]),
    "rl_games, discrete": (rl_games.discrete, "logits", ["affine", "clip", "dense", "dense"]),
    "brax": (brax.swish_network, None, ["affine", *DENSE, "activate"]),
    "brax, layer norms": (
        brax.normed_network,
        "mean",
        ["affine", "dense", "layer_norm", "dense", "layer_norm", "dense", "activate"],
    ),
    "cleanrl, dqn": (cleanrl.q_network, None, IMAGES),
    "cleanrl, dqn of floats": (lambda: cleanrl.q_network(dtype=TensorProto.FLOAT), None, IMAGES),
    "cleanrl, ppo": (cleanrl.gaussian_actor, None, DENSE),
    "cleanrl, sac": (cleanrl.soft_actor, "mean_action", [*DENSE, "affine"]),
    "ml_agents": (ml_agents.continuous, ACTIONS, ["affine", "clip", *DENSE, "clip", "affine"]),
    "stable_baselines3": (stable_baselines.actor_and_critic, "27", ["dense", "dense"]),
    "godot": (stable_baselines.godot, "output", ["dense", "dense"]),
}


def observed(model, n=256, seed=0):
    """Observations as the file takes them; vectors reach beyond the clips of normalizers."""
    rng = np.random.default_rng(seed)
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim][1:]
    if len(shape) == 3:
        return rng.integers(0, 256, (n, *shape)).astype(np.float32)
    return rng.normal(0, 2, (n, *(shape or [6]))).astype(np.float32)


def taken(x):
    """The same observations as the policy takes them: images are [h, w, c]."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if x.ndim == 4 else x


@pytest.mark.parametrize("name", POLICIES)
def test_actions_are_those_of_onnx_runtime(name, saved):
    build, output, steps = POLICIES[name]
    model = build()
    network = read_policy(saved(model), outputs=output and [output])
    x = observed(model, 64)
    (public,) = network.program.outputs
    assert public == (output or model.graph.output[0].name)
    assert [step.op for step in network.program.steps] == steps
    found = floats.run(network.program, network.weights, taken(x))[public]
    np.testing.assert_allclose(found, float_outputs(model, x)[public], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("form", ["dynamic", "static"])
def test_quantized_actions_are_near_and_equal_in_every_executor(name, form, saved, tmp_path):
    build, output, _ = POLICIES[name]
    model = build()
    network = read_policy(saved(model), outputs=output and [output])
    packed = pack(network, None, 8, form, taken(observed(model)))
    policy = load_policy(packed.write(tmp_path / "p.qpol"))
    x = observed(model, 128, seed=1)
    found, wanted = policy.outputs(taken(x)), float_outputs(model, x)[policy.names[0]]
    errors = np.abs(found - wanted).mean(0) / wanted.std(0)
    assert errors.max() < NEAR, errors
    if form == "static":
        feeds = {network.program.observation: taken(x)}
        exact = Reference(policy.network.graph).outputs(feeds)[policy.names[0]]
        np.testing.assert_array_equal(found, exact)
        compared = assert_forms(replace(policy.network, samples=feeds), forms=FORMS)
        assert {"numpy", "engine"} <= compared.keys()


def test_a_greedy_action_is_chosen_by_the_head(saved):
    model = cleanrl.q_network(greedy=True)
    network, x = read_policy(saved(model)), observed(model, 64)
    found = floats.run(network.program, network.weights, taken(x))["actions"]
    wanted = float_outputs(model, x)["actions"][:, 0]
    np.testing.assert_array_equal(found.argmax(-1), wanted)
    assert len(set(wanted)) > 1


def test_a_policy_of_one_unbatched_step_is_read_with_an_axis_of_samples(saved, tmp_path):
    model, output = torchrl.unbatched(), tmp_path / "p.qpol"
    file, x = saved(model), observed(model, 64)
    done = run("rl", "quantize", file, "-o", output)
    assert done.code == 5 and "no axis of samples: float32[6]" in done.err
    options = ("--input-shape", "observation=?,6")
    assert " ".join(options) in done.err
    assert run("rl", "quantize", file, "-o", output, "--bits", 32, *options).code == 0
    found, wanted = load_policy(output).outputs(x), float_outputs(model, x, batch=False)["action"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)


RECURRENT = {
    "rsl_rl, lstm": (rsl_rl.recurrent, "obs", "actions", {"h_in": "h_out", "c_in": "c_out"}),
    "rsl_rl, gru": (lambda: rsl_rl.recurrent("GRU"), "obs", "actions", {"h_in": "h_out"}),
    "ml_agents": (
        lambda: ml_agents.continuous(recurrent=True),
        "obs_0",
        ACTIONS,
        {"recurrent_in": "recurrent_out"},
    ),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_policies_carry_their_states_as_codes(name, saved, tmp_path):
    build, observation, output, states = RECURRENT[name]
    model, steps = build(), 12
    sequences = np.random.default_rng(1).normal(0, 1.5, (16, steps, 6)).astype(np.float32)
    chosen = [output, *states.values()]
    feeds = {observation: sequences}
    made = qgraph.quantize(
        saved(model), feeds, states=states, outputs=chosen, effort="plain", profile="policy-int8"
    )
    made.save(tmp_path / "out")
    stream = qgraph.Session.open(tmp_path / "out").stream()
    carried = {name: np.zeros_like(state) for name, state in stream.states.items()}
    reference, found = Reference(made.graph), []
    for frame in sequences[0]:
        exact = reference.outputs({observation: frame[None], **carried})
        carried = {state: exact[end] for state, end in states.items()}
        found.append(stream.step({observation: frame[None]})[output][0])
        np.testing.assert_array_equal(found[-1], exact[output][0])
    assert all(np.any(state) for state in carried.values())
    wanted = float_outputs(model, sequences[0], states)[output]
    assert np.abs(found - wanted).mean() < 0.15 * wanted.std()
    without = float_outputs(model, sequences[0])[output]  # each step from zeros
    assert np.abs(found - wanted).mean() < 0.3 * np.abs(without - wanted).mean()
    network = load_network(tmp_path / "out")
    assert_forms(network, random_codes(network.program, samples=1), forms=FORMS)


def test_attention_over_two_observations_is_a_network_but_not_a_policy(saved, tmp_path):
    model = lerobot.action_chunk()
    file, feeds = saved(model), lerobot.samples(48)
    with pytest.raises(UnsupportedError, match=r"`observation\.state`, `observation\.images\.top`"):
        read_policy(file)
    made = qgraph.quantize(file, feeds, effort="plain")
    made.save(tmp_path / "out")
    seen = lerobot.samples(32, seed=1)
    found = qgraph.Session.open(tmp_path / "out").run(seen)["action_chunk"]
    np.testing.assert_array_equal(found, Reference(made.graph).outputs(seen)["action_chunk"])
    wanted = runtime(model, seen)["action_chunk"]
    assert (np.abs(found - wanted).mean((0, 1)) < NEAR * wanted.std((0, 1))).all()
    assert_forms(load_network(tmp_path / "out"), forms=FORMS)


def test_the_command_line_asks_for_the_output_and_takes_it(saved, tmp_path):
    file = saved(rl_games.continuous())
    done = run("rl", "quantize", file, "-o", tmp_path / "p.qpol")
    assert done.code == 2 and "`mu`, `log_std`, `value`" in done.err and "--outputs" in done.err
    assert not (tmp_path / "p.qpol").exists()
    options = ("--outputs", "mu", "--head", "clip", "--high", 1)
    done = run("rl", "quantize", file, "-o", tmp_path / "p.qpol", *options)
    assert done.code == 0, done.err
    policy = load_policy(tmp_path / "p.qpol")
    assert policy.names == ("mu",) and policy(np.zeros(6, np.float32)).shape == (3,)
