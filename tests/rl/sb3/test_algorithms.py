"""Each algorithm of stable-baselines3 and sb3_contrib acts as its model predicts, or is refused."""

import json

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="pip install 'qgraph-compiler[sb3]'")
pytest.importorskip("sb3_contrib", reason="pip install sb3-contrib")

import gymnasium
import sb3_contrib as contrib
import stable_baselines3 as sb3
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecMonitor, VecNormalize

from qgraph.errors import UnsupportedError
from qgraph.rl.environments import Actions
from qgraph.rl.head import Head
from qgraph.rl.policy import floats, read_policy
from qgraph.rl.policy.about import about, head_for
from qgraph.rl.sb3 import QuantizationAware, QuantizedCollection, export_onnx, read

torch.set_num_threads(1)

ACTIONS = {
    "one of 3": spaces.Discrete(3),
    "numbers": spaces.Box(np.float32([-2, -1]), np.float32([2, 3])),
    "several choices": spaces.MultiDiscrete([3, 2]),
    "switches": spaces.MultiBinary(3),
    "one of 3 from 5": spaces.Discrete(3, start=5),
    "a matrix": spaces.Box(-1, 1, (2, 2)),
}
SEEN = {
    "vector": spaces.Box(-3, 3, (5,)),
    "unbounded": spaces.Box(-np.inf, np.inf, (5,)),
    "matrix": spaces.Box(-1, 1, (2, 3)),
    "image": spaces.Box(0, 255, (3, 40, 44), np.uint8),
    "bytes": spaces.Box(0, 255, (6,), np.uint8),
    "dictionary": spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Box(-1, 1, (3,))),
    "one of 4": spaces.Discrete(4),
}


class Task(gymnasium.Env):
    def __init__(self, seen, actions):
        self.observation_space, self.action_space = SEEN[seen], ACTIONS[actions]

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, True, {}


ON_POLICY = (sb3.PPO, sb3.A2C, contrib.TRPO, contrib.MaskablePPO, contrib.RecurrentPPO)
NUMBERS, CHOICES = (
    (sb3.SAC, sb3.TD3, sb3.DDPG, contrib.TQC, contrib.CrossQ),
    (
        sb3.DQN,
        contrib.QRDQN,
    ),
)
KINDS = (*ON_POLICY, *NUMBERS, *CHOICES, contrib.ARS)
ELSEWHERE = (contrib.MaskablePPO, contrib.RecurrentPPO)  # test_states_and_masks.py
READ = [kind for kind in KINDS if kind not in ELSEWHERE]


def policy_for(kind, seen):
    lstm = "Lstm" if kind is contrib.RecurrentPPO else ""
    name = {"image": "Cnn", "dictionary": "MultiInput"}.get(seen, "Mlp")
    return f"{name}{lstm}Policy"


def model_of(kind, seen="vector", actions=None, environment=None, **options):
    actions = actions or ("numbers" if kind in NUMBERS else "one of 3")
    settings = {"seed": 3, "device": "cpu", "policy_kwargs": {"net_arch": [12, 8]}, **options}
    if kind in (*NUMBERS, *CHOICES):
        settings["buffer_size"] = 50
    policy = settings.pop("policy", policy_for(kind, seen))
    model = kind(policy, environment or Task(seen, actions), **settings)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # actions are small and alike before training, those of ARS 0
        for parameter in model.policy.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.mul_(3).add_(0.1 * noise)
    if kind is contrib.CrossQ:
        for module in model.policy.actor.latent_pi:
            if hasattr(module, "ra_mean"):
                module.ra_mean += torch.linspace(-1, 1, module.num_features)
                module.ra_var *= torch.linspace(0.5, 2, module.num_features)
    return model


def balance_choices(model, observations):
    """Shift the last bias so that every action is the largest now and then."""
    policy = model.policy
    networks = [
        getattr(getattr(policy, "q_net", None), "q_net", None),
        getattr(getattr(policy, "quantile_net", None), "quantile_net", None),
        getattr(policy, "action_net", None),
    ]
    last = next(network for network in networks if network is not None)
    last = last[-1] if isinstance(last, torch.nn.Sequential) else last
    found = read(model)
    (outputs,) = floats.run(
        found.program, found.weights, found.to_program_layout(observations)
    ).values()
    with torch.no_grad():
        if last.bias is None:
            return
        shift = torch.tensor(outputs.mean(0))
        last.bias -= shift.repeat(len(last.bias) // len(shift))


def some(model, n=40):
    rng, space = np.random.default_rng(1), model.observation_space
    if space.dtype == np.uint8:
        return rng.integers(0, 256, (n if len(space.shape) == 1 else 3, *space.shape), np.uint8)
    return rng.uniform(-1, 1, (n, *space.shape)).astype(np.float32)


def acted(found, observations):
    outputs = floats.run(found.program, found.weights, found.to_program_layout(observations))
    return found.head.actions(outputs[found.program.outputs[0]])


def assert_acts(model, observations, seen=None, tmp_path=None):
    """Both the program and the file act as the model."""
    if isinstance(model.action_space, spaces.Discrete):
        balance_choices(model, observations)
    wanted, _ = model.predict(observations if seen is None else seen, deterministic=True)
    found = read(model)
    close(acted(found, observations), wanted)
    assert len(np.unique(np.round(wanted, 3))) > 1  # or everything would be equal
    if tmp_path is None:
        return
    path = export_onnx(model, tmp_path / "walker.onnx")
    network, known = read_policy(path), about(path)
    assert known.exported_head == found.head
    (outputs,) = floats.run(
        network.program, network.weights, found.to_program_layout(observations)
    ).values()
    close(known.exported_head.actions(outputs), wanted)


def close(found, wanted):
    if wanted.dtype.kind == "i":
        np.testing.assert_array_equal(found, wanted)
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


ACTING = [
    (kind, seen, actions)
    for kind in READ
    for seen in ("vector", "image")
    for actions in ("one of 3", "numbers")
    if not (kind in NUMBERS and actions != "numbers")
    and not (kind in CHOICES and actions == "numbers")
    and not (seen == "image" and kind in (contrib.ARS, contrib.CrossQ))
]


@pytest.mark.parametrize(
    ("kind", "seen", "actions"), ACTING, ids=lambda v: getattr(v, "__name__", v)
)
def test_programs_and_files_act_as_the_model_predicts(kind, seen, actions, tmp_path):
    pytest.importorskip("onnxscript")
    model = model_of(kind, seen, actions, policy_kwargs={})
    assert_acts(model, some(model), tmp_path=tmp_path)


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seen", ["unbounded", "matrix", "bytes"])
def test_other_arrays_are_observations_too(kind, seen):
    model = model_of(kind, seen)
    assert_acts(model, some(model))


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
def test_images_without_convolutions_give_the_same_actions(kind):
    policy = "MlpPolicy"
    model = model_of(kind, "image", policy=policy, policy_kwargs={"net_arch": [6]})
    assert_acts(model, some(model))


@pytest.mark.parametrize("policy", ["MlpPolicy", "LinearPolicy"])
@pytest.mark.parametrize("squash", [True, False])
def test_ars_squashes_or_clips(policy, squash):
    options = {"policy_kwargs": {"squash_output": squash}, "policy": policy}
    model = model_of(contrib.ARS, actions="numbers", **options)
    assert read(model).head.kind == ("scale" if squash else "clip")
    assert_acts(model, some(model))


def refusal_of(tmp_path, model):
    """Refusal of `read`; that of `export_onnx` is the same, and it writes nothing."""
    with pytest.raises(UnsupportedError) as first:
        read(model)
    with pytest.raises(UnsupportedError) as second:
        export_onnx(model, tmp_path / "p.onnx")
    assert str(first.value) == str(second.value)
    assert not list(tmp_path.iterdir())
    return str(first.value)


@pytest.mark.parametrize(
    ("kind", "actions"),
    [
        (sb3.SAC, "a matrix"),
        (sb3.TD3, "a matrix"),
        (sb3.PPO, "a matrix"),
        (contrib.RecurrentPPO, "a matrix"),
    ],
)
def test_actions_without_a_head_are_refused(kind, actions, tmp_path):
    assert "no head fits" in refusal_of(tmp_path, model_of(kind, actions=actions))


@pytest.mark.parametrize("kind", [sb3.PPO, sb3.SAC, contrib.TQC, contrib.CrossQ])
@pytest.mark.parametrize("squash", [False, True])
def test_state_dependent_exploration_is_refused(kind, squash, tmp_path):
    options = {"squash_output": True} if squash and kind is sb3.PPO else {}
    model = model_of(kind, actions="numbers", use_sde=True, policy_kwargs=options)
    assert "use_sde" in refusal_of(tmp_path, model)


class Doubled(torch.nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Upside(sb3.dqn.policies.QNetwork):
    def forward(self, observation):
        return -super().forward(observation)


def _subclass_of_a_layer(model):
    last = model.policy.action_net
    model.policy.action_net = Doubled(last.in_features, last.out_features)


def _hook(model):
    model.policy.action_net.register_forward_hook(lambda layer, x, y: y.flip(-1))


def _overridden(model):
    kind = type(model.policy)
    model.policy.__class__ = type("Mine", (kind,), {})


def _patched(model):
    policy = model.policy
    before = type(policy).get_distribution
    policy.get_distribution = lambda observation: before(policy, -observation)


@pytest.mark.parametrize("change", [_subclass_of_a_layer, _hook, _overridden, _patched])
def test_a_model_that_computes_something_else_is_refused(change, tmp_path):
    model = model_of(sb3.PPO)
    change(model)
    refusal_of(tmp_path, model)


def test_another_network_of_action_values_is_refused(tmp_path):
    model = model_of(sb3.DQN)
    model.policy.q_net.__class__ = Upside
    assert "something else changes them" in refusal_of(tmp_path, model)


def normalized(seen="vector", actions="numbers", wrap=lambda e: e, **options):
    inner = DummyVecEnv([lambda: Task(seen, actions)])
    found = VecNormalize(inner, clip_obs=1.5, **options)
    shape = found.observation_space.shape
    found.obs_rms.mean = np.linspace(-1, 1, int(np.prod(shape))).reshape(shape)
    found.obs_rms.var = np.linspace(0.1, 3, int(np.prod(shape))).reshape(shape)
    return found, wrap(found)


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seen", ["vector", "matrix"])
def test_a_normalizer_is_part_of_the_program_and_of_the_file(kind, seen, tmp_path):
    pytest.importorskip("onnxscript")
    actions = "one of 3" if kind in CHOICES else "numbers"
    statistics, environment = normalized(seen, actions, VecMonitor)
    model = model_of(kind, seen, actions, environment)
    observations = 3 * some(model)
    where = tmp_path if seen == "vector" else None
    assert_acts(model, observations, statistics.normalize_obs(observations), where)
    before = read(model).weights
    statistics.obs_rms.mean += 1  # weights are read as they are at the time
    after = read(model).weights
    assert any((after[name] != before[name]).any() for name in before)


def test_a_normalizer_of_rewards_alone_changes_nothing():
    inner = DummyVecEnv([lambda: Task("vector", "numbers")])
    model = model_of(sb3.PPO, environment=VecNormalize(inner, norm_obs=False))
    assert read(model).normalizer is None
    assert_acts(model, some(model))


def test_a_normalizer_that_was_saved_apart_can_be_given():
    statistics, _ = normalized()
    model = model_of(sb3.PPO, actions="numbers")
    observations = some(model)
    wanted, _ = model.predict(statistics.normalize_obs(observations), deterministic=True)
    close(acted(read(model, statistics), observations), wanted)


def test_normalizers_that_no_program_carries_are_refused(tmp_path):
    _, stacked = normalized(wrap=lambda e: VecFrameStack(e, 2))
    found = refusal_of(tmp_path, model_of(sb3.PPO, environment=stacked))
    assert "VecFrameStack" in found
    twice, _ = normalized()
    model = model_of(sb3.PPO, environment=VecNormalize(twice))
    assert "more than one" in refusal_of(tmp_path, model)
    inner = DummyVecEnv(
        [lambda: gymnasium.wrappers.NormalizeObservation(Task("vector", "numbers"))]
    )
    assert "NormalizeObservation" in refusal_of(tmp_path, model_of(sb3.PPO, environment=inner))


@pytest.mark.parametrize("kind", [contrib.TQC, contrib.CrossQ, contrib.QRDQN, contrib.TRPO])
def test_algorithms_of_sb3_contrib_collect_on_quantized_actors(kind):
    short = {"n_steps": 16} if kind is contrib.TRPO else {"learning_starts": 8, "batch_size": 8}
    model, hook = model_of(kind, **short), QuantizedCollection(bits=8)
    model.learn(30, callback=hook)
    assert hook.steps >= 16


def test_ars_perturbs_weights_itself_and_is_not_collected_for():
    with pytest.raises(UnsupportedError, match="ARS"):
        model_of(contrib.ARS).learn(10, callback=QuantizedCollection(bits=8))


def test_a_file_is_written_with_its_environment_and_head(tmp_path):
    pytest.importorskip("onnxscript")
    model = sb3.TD3("MlpPolicy", "Pendulum-v1", device="cpu", policy_kwargs={"net_arch": [4]})
    export_onnx(model, tmp_path / "p.onnx")
    found = json.loads((tmp_path / "p.json").read_text())
    assert (found["env"], found["action"]) == ("Pendulum-v1", "scale")
    known = about(tmp_path / "p.onnx")
    head = head_for(Actions(low=(-2.0,), high=(2.0,)), 1, known.head, None, known.exported_head)
    assert head == Head("scale", (-2.0,), (2.0,))
    other = gymnasium.make("Pendulum-v1", g=2.0)  # another task than that of this name
    export_onnx(sb3.TD3("MlpPolicy", other, device="cpu"), tmp_path / "q.onnx")
    assert json.loads((tmp_path / "q.json").read_text())["env"] is None


def test_models_are_read_in_float_while_training_is_aware():
    model, hook = model_of(sb3.PPO), QuantizationAware(bits=2)
    hook.init_callback(model)
    wanted = acted(read(model), some(model))
    hook._begin()
    np.testing.assert_array_equal(acted(read(model), some(model)), wanted)
    assert "forward" in vars(model.policy.action_net)
