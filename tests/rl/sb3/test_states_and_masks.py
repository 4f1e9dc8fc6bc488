"""RecurrentPPO, MaskablePPO, dictionaries and choices: in float, packed, in files and in C."""

import json

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="pip install 'qgraph-compiler[sb3]'")
pytest.importorskip("sb3_contrib", reason="pip install sb3-contrib")

import sb3_contrib as contrib
import stable_baselines3 as sb3
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from qgraph.errors import UnsupportedError
from qgraph.exact.reference import Reference
from qgraph.rl.actor.actor import levels
from qgraph.rl.deploy import deploy
from qgraph.rl.policy import Policy, floats, pack, read_policy
from qgraph.rl.policy.about import about
from qgraph.rl.policy.build import float_outputs
from qgraph.rl.sb3 import QuantizationAware, QuantizedCollection, export_onnx, read
from qgraph.rl.sb3.check import random_masks, random_observations
from tests.helpers.c_programs import needs_compiler
from tests.helpers.deployed import actions_in_c, assert_same_actions
from tests.rl.sb3.test_algorithms import Task, model_of

torch.set_num_threads(1)

SMALL = {"lstm_hidden_size": 6}
MEMORY = {
    "one layer": SMALL,
    "two layers": {**SMALL, "n_lstm_layers": 2},
    "shared": {**SMALL, "shared_lstm": True, "enable_critic_lstm": False},
    "critic without": {**SMALL, "enable_critic_lstm": False},
    "no bias": {**SMALL, "lstm_kwargs": {"bias": False}},
}


def recurrent(actions="numbers", seen="vector", environment=None, **kwargs):
    policy = {"net_arch": [8], **(kwargs or SMALL)}
    return model_of(contrib.RecurrentPPO, seen, actions, environment, policy_kwargs=policy)


def balanced(model):
    """The model with outputs around 0 on `sequences`, so that its actions differ."""
    found, (seen, starts) = read(model), sequences(model)
    outputs, states, values = float_outputs(found), None, []
    for x, start in zip(seen, starts, strict=True):
        states = outputs.first_states(len(start)) if states is None else states
        states[start] = 0
        y, states = outputs.step(found.to_program_layout(x), states)
        values.append(y)
    with torch.no_grad():
        model.policy.action_net.bias -= torch.tensor(np.concatenate(values).mean(0))
    return model


def sequences(model, n=6, steps=10, seed=0):
    """Observations [steps] of n environments, and where episodes start."""
    rng = np.random.default_rng(seed)
    seen = [random_observations(model.observation_space, rng) for _ in range(steps)]
    seen = [x[:n] if isinstance(x, np.ndarray) else {k: v[:n] for k, v in x.items()} for x in seen]
    starts = [np.ones(n, bool), *(rng.random(n) < 0.2 for _ in range(steps - 1))]
    return seen, starts


def predicted(model, seen, starts):
    """The actions of the model, which carries its states."""
    states, found = None, []
    for x, start in zip(seen, starts, strict=True):
        actions, states = model.predict(x, state=states, episode_start=start, deterministic=True)
        found.append(actions)
    return np.stack(found)


def remembered(outputs, head, layout, seen, starts):
    """The same by `RecurrentOutputs`."""
    states, found = outputs.first_states(len(starts[0])), []
    for x, start in zip(seen, starts, strict=True):
        states[start] = 0
        values, states = outputs.step(layout(x), states)
        found.append(head.actions(values))
    return np.stack(found)


def close(found, wanted):
    if wanted.dtype.kind == "i":
        assert (found == wanted).mean() > 0.995  # float32 in another order
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("actions", ["one of 3", "numbers", "several choices", "switches"])
def test_a_recurrent_policy_acts_as_the_model_predicts(memory, actions, tmp_path):
    model = balanced(recurrent(actions, **MEMORY[memory]))
    found, (seen, starts) = read(model), sequences(model)
    wanted = predicted(model, seen, starts)
    assert len(np.unique(wanted.reshape(-1, *wanted.shape[2:]), axis=0)) > 1
    layout = found.to_program_layout
    close(remembered(float_outputs(found), found.head, layout, seen, starts), wanted)
    path = export_onnx(model, tmp_path / "p.onnx")
    known = about(path)
    network = read_policy(path, states=known.states, inputs=known.inputs or None)
    assert known.exported_head == found.head
    close(remembered(float_outputs(network), found.head, layout, seen, starts), wanted)
    forgotten = predicted(model, seen, [np.ones(6, bool)] * len(seen))
    assert (forgotten != wanted).any()  # the states matter


@pytest.mark.parametrize("seen", ["dictionary", "matrix", "bytes"])
def test_a_recurrent_policy_on_other_observations(seen):
    model = balanced(recurrent("one of 3", seen))
    found, (given, starts) = read(model), sequences(model)
    wanted = predicted(model, given, starts)
    ours = remembered(float_outputs(found), found.head, found.to_program_layout, given, starts)
    close(ours, wanted)


def test_a_recurrent_policy_on_images_is_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="recurrent policy on images"):
        export_onnx(recurrent("one of 3", "image"), tmp_path / "p.onnx")
    assert not list(tmp_path.iterdir())


@needs_compiler
@pytest.mark.parametrize("actions", ["one of 3", "numbers"])
def test_a_recurrent_policy_in_files_at_all_levels_and_in_c(actions, tmp_path):
    model = recurrent(actions)
    path = export_onnx(model, tmp_path / "p.onnx")
    known = about(path)
    network = read_policy(path, states=known.states)
    seen = np.random.default_rng(1).uniform(-2, 2, (8, 12, 5)).astype(np.float32)
    dynamic = pack(network, known.exported_head, 8, "dynamic", seen)
    bits = set()
    for level in levels():
        policy = Policy(dynamic, level)
        bits.add(b"".join(policy(seen[:, t]).tobytes() for t in range(12)))
    assert len(bits) == 1
    file = pack(network, known.exported_head, 8, "static", seen, effort="plain")
    policy = Policy(file.write(tmp_path / "p.qpol") and file)
    made = deploy(policy, tmp_path / "c")
    assert_same_actions(policy, made, seen[0])
    policy.reset()
    reference, types = Reference(policy.network.graph), policy.network.graph.types
    given = {s.name: np.zeros((1, s.size), np.float32) for s in policy.columns.states}
    assert all(types[name].shape == (None, 6) for name in given)
    for x in seen[1]:
        exact = reference.outputs({"observation": x[None], **given})
        assert policy.outputs(x).tobytes() == exact["action"][0].tobytes()
        given = {s.name: exact[s.output] for s in policy.columns.states}


@pytest.mark.parametrize("kwargs", [SMALL, MEMORY["shared"]])
def test_a_recurrent_model_collects_with_a_quantized_actor(kwargs):
    settings = {"n_steps": 16, "batch_size": 16, "n_epochs": 1}
    policy = {"net_arch": [8], **kwargs}
    model = model_of(contrib.RecurrentPPO, "vector", "numbers", policy_kwargs=policy, **settings)
    hook = QuantizedCollection(bits=32)
    hook.init_callback(model)
    hook._on_training_start()
    hook._on_rollout_start()
    rng, count = np.random.default_rng(0), 4
    shape = (model.policy.lstm_hidden_state_shape[0], count, 6)
    states = contrib.common.recurrent.type_aliases.RNNStates(
        *[tuple(torch.tensor(rng.normal(size=shape), dtype=torch.float32) for _ in range(2))
          for _ in range(2)]
    )  # fmt: skip
    x = torch.tensor(rng.normal(size=(count, 5)), dtype=torch.float32)
    starts = torch.tensor([1.0, 0.0, 0.0, 1.0])
    with torch.no_grad():
        found = model.policy.forward(x, states, starts, deterministic=True)
        wanted = type(model.policy).forward(model.policy, x, states, starts, deterministic=True)
    for ours, theirs in zip(found[:3], wanted[:3], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    for part in ("pi", "vf"):
        for ours, theirs in zip(getattr(found[3], part), getattr(wanted[3], part), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
    hook.release()
    model.learn(40, callback=QuantizedCollection(bits=8))


def test_aware_training_of_an_lstm_is_refused():
    with pytest.raises(UnsupportedError, match="LSTM"):
        recurrent().learn(10, callback=QuantizationAware(bits=8))


class Masked(Task):
    def action_masks(self):
        options = getattr(self.action_space, "n", 0)
        if isinstance(self.action_space, spaces.MultiDiscrete):
            options = int(self.action_space.nvec.sum())
        if isinstance(self.action_space, spaces.MultiBinary):
            options = 2 * int(self.action_space.n)
        masks = self.np_random.random(int(options)) < 0.6
        masks[0::2] = True
        return masks


@needs_compiler
@pytest.mark.parametrize("actions", ["one of 3", "several choices", "switches"])
def test_masked_policies_in_float_packed_and_in_c(actions, tmp_path):
    model = model_of(contrib.MaskablePPO, actions=actions, environment=Masked("vector", actions))
    found, rng = read(model), np.random.default_rng(2)
    head, seen = found.head, rng.uniform(-2, 2, (80, 5)).astype(np.float32)
    outputs = floats.run(found.program, found.weights, seen)[found.program.outputs[0]]
    masks = random_masks(head, 80, outputs.shape[1], rng)
    wanted, _ = model.predict(seen, action_masks=masks, deterministic=True)
    unmasked, _ = model.predict(seen, deterministic=True)
    assert head.masks and (unmasked != wanted).any()
    np.testing.assert_array_equal(head.actions(outputs, None, masks), wanted)
    np.testing.assert_array_equal(head.actions(outputs), unmasked)
    path = export_onnx(model, tmp_path / "p.onnx")
    network, known = read_policy(path), about(path)
    assert known.exported_head == head
    dynamic = Policy(pack(network, head, 16))
    assert (dynamic(seen, masks=masks) == wanted).mean() > 0.97
    policy = Policy(pack(network, head, 8, "static", seen, effort="plain"))
    made = deploy(policy, tmp_path / "c")
    ours = [policy(x, masks=m) for x, m in zip(seen, masks, strict=True)]
    in_c = actions_in_c(made, seen, masks=masks)
    assert [a.tobytes() for a in in_c] == [a.tobytes() for a in ours]
    assert len({a.tobytes() for a in in_c}) > 1
    blocked = masks.copy()
    blocked[3] = False
    assert actions_in_c(made, seen, masks=blocked)[3] is None


@needs_compiler
@pytest.mark.parametrize(
    ("kind", "actions"),
    [(sb3.PPO, "several choices"), (sb3.A2C, "switches"), (contrib.TRPO, "several choices"),
     (sb3.PPO, "switches")],
)  # fmt: skip
def test_policies_of_several_choices_act_as_the_model(kind, actions, tmp_path):
    model = model_of(kind, actions=actions)
    found, rng = read(model), np.random.default_rng(3)
    seen = rng.uniform(-2, 2, (80, 5)).astype(np.float32)
    wanted, _ = model.predict(seen, deterministic=True)
    outputs = floats.run(found.program, found.weights, seen)[found.program.outputs[0]]
    np.testing.assert_array_equal(found.head.actions(outputs), wanted)
    assert len(np.unique(wanted, axis=0)) > 1
    path = export_onnx(model, tmp_path / "p.onnx")
    assert about(path).exported_head == found.head
    policy = Policy(pack(read_policy(path), found.head, 8, "static", seen, effort="plain"))
    assert_same_actions(policy, deploy(policy, tmp_path / "c"), seen)


DICTIONARIES = [(sb3.PPO, "one of 3"), (sb3.DQN, "one of 3"), (sb3.TD3, "numbers"),
                (sb3.SAC, "numbers"), (contrib.TQC, "numbers"), (contrib.QRDQN, "one of 3"),
                (contrib.MaskablePPO, "one of 3")]  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(("kind", "actions"), DICTIONARIES, ids=lambda v: getattr(v, "__name__", v))
def test_dictionaries_of_observations(kind, actions, tmp_path):
    model = model_of(kind, "dictionary", actions)
    found, rng = read(model), np.random.default_rng(4)
    seen = {name: rng.uniform(-1, 1, (60, size)).astype(np.float32)
            for name, size in (("a", 2), ("b", 3))}  # fmt: skip
    wanted, _ = model.predict(seen, deterministic=True)
    rows = found.to_program_layout(seen)
    np.testing.assert_array_equal(rows, np.concatenate([seen["a"], seen["b"]], 1))
    outputs = floats.run(found.program, found.weights, rows)[found.program.outputs[0]]
    close(found.head.actions(outputs), wanted)
    path = export_onnx(model, tmp_path / "p.onnx")
    known = about(path)
    assert known.inputs == ("a", "b")
    network = read_policy(path, inputs=known.inputs)
    assert "slice" not in {s.op for s in network.program.steps}  # the parts are one after the other
    policy = Policy(pack(network, found.head, 8, "static", rows, effort="plain"))
    assert_same_actions(policy, deploy(policy, tmp_path / "c"), rows)
    np.testing.assert_array_equal(policy(seen), policy(rows))


def test_observations_of_choices_are_one_hot():
    space = spaces.Dict(
        place=spaces.Discrete(4), near=spaces.Box(-1, 1, (2,)), on=spaces.MultiBinary(2),
        kinds=spaces.MultiDiscrete([2, 3]),
    )  # fmt: skip
    for seen in ("one of 4", space):
        task = Task("one of 4", "one of 3")
        task.observation_space = space if seen is space else task.observation_space
        policy = "MultiInputPolicy" if seen is space else "MlpPolicy"
        model = model_of(sb3.PPO, actions="one of 3", environment=task, policy=policy)
        found = read(model)
        given = random_observations(task.observation_space, np.random.default_rng(0))
        wanted, _ = model.predict(given, deterministic=True)
        rows = found.to_program_layout(given)
        assert rows.shape[1] == (13 if seen is space else 4)
        outputs = floats.run(found.program, found.weights, rows)[found.program.outputs[0]]
        np.testing.assert_array_equal(found.head.actions(outputs), wanted)
        packed = Policy(pack(found, found.head, 8))
        assert (packed(rows) == wanted).mean() > 0.9


@pytest.mark.parametrize("kind", [sb3.PPO, contrib.RecurrentPPO])
def test_a_normalizer_of_dictionaries_is_part_of_the_policy(kind, tmp_path):
    inner = DummyVecEnv([lambda: Task("dictionary", "numbers")])
    statistics = VecNormalize(inner, clip_obs=1.5, norm_obs_keys=["b"])
    statistics.obs_rms["b"].mean = np.float64([1, -1, 0.5])
    statistics.obs_rms["b"].var = np.float64([0.1, 2, 0.5])
    options = {"policy_kwargs": SMALL} if kind is contrib.RecurrentPPO else {}
    model = model_of(kind, "dictionary", "numbers", statistics, **options)
    rng = np.random.default_rng(5)
    seen = {"a": 3 * rng.normal(size=(40, 2)), "b": 3 * rng.normal(size=(40, 3))}
    wanted, _ = model.predict(statistics.normalize_obs(seen), deterministic=True)
    found, path = read(model), export_onnx(model, tmp_path / "p.onnx")
    known = about(path)
    network = read_policy(path, inputs=known.inputs, states=known.states)
    for one in (found, network):
        rows = found.to_program_layout(seen)
        if one.states:
            outputs, _ = float_outputs(one).step(rows, float_outputs(one).first_states(40))
        else:
            outputs = floats.run(one.program, one.weights, rows)[one.program.outputs[0]]
        close(found.head.actions(outputs), wanted)


def test_images_in_dictionaries_are_refused_by_name():
    task = Task("vector", "one of 3")
    image = spaces.Box(0, 255, (3, 40, 40), np.uint8)
    task.observation_space = spaces.Dict(view=image, near=spaces.Box(-1, 1, (2,)))
    with pytest.raises(UnsupportedError, match="`view` is an image"):
        read(model_of(sb3.PPO, environment=task, policy="MultiInputPolicy"))


def test_a_mask_that_no_model_gives_is_found():
    """A patched model whose masks have no effect is refused."""
    model = model_of(contrib.MaskablePPO)
    predict = model.predict
    model.predict = lambda seen, action_masks=None, **how: predict(seen, **how)
    with pytest.raises(UnsupportedError, match="something else changes"):
        read(model)


def test_the_file_names_parts_and_states(tmp_path):
    export_onnx(recurrent("one of 3", "dictionary"), tmp_path / "p.onnx")
    found = json.loads((tmp_path / "p.json").read_text())
    assert found["inputs"] == ["a", "b"]
    assert found["states"] == {
        f"lstm_actor_{name}_0": f"lstm_actor_{name}_0_next" for name in ("hidden", "cell")
    }
