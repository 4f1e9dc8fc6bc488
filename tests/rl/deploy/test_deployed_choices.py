"""Policies of several choices, with masks and with dictionaries, act in environments in C."""

import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from qgraph.errors import UsageError
from qgraph.ir.graph import Graph
from qgraph.rl.deploy import deploy, roll_out
from qgraph.rl.deploy.float_loop import _subscript
from qgraph.rl.environments import make
from qgraph.rl.head import Head
from qgraph.rl.policy import Policy, pack, read_policy
from qgraph.rl.policy.play import play, watch
from tests.helpers.c_programs import SANITIZED, needs_compiler
from tests.helpers.deployed import actions_in_c, assert_same_actions, network, observed, policy_of

HEADS = {
    "multi_categorical": Head("multi_categorical", choices=(1, 3)),
    "bernoulli": Head("bernoulli", choices=(2,) * 4),
    "argmax with masks": Head("argmax", masks=True),
    "multi_categorical with masks": Head("multi_categorical", choices=(2, 2), masks=True),
}


class Choosing(gymnasium.Env):
    """Parts of an observation, and several choices, some of which are not valid now."""

    observation_space = spaces.Dict(near=spaces.Box(-2, 2, (3,)), place=spaces.Discrete(2))
    action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action):
        assert action.shape == (2,) and self.valid[action[0]] and self.valid[2 + action[1]]
        self.steps += 1
        return self._seen(), float(action.sum()), self.steps == 15, False, {}

    def action_masks(self):
        return self.valid

    def _seen(self):
        self.valid = np.array([True, self.np_random.random() < 0.5, *[True] * 3])
        self.valid[2 + self.np_random.integers(3)] = False
        near = self.np_random.uniform(-2, 2, 3).astype(np.float32)
        return {"near": near, "place": int(self.np_random.integers(2))}


gymnasium.register("Choosing-v0", entry_point=Choosing)


def masks_for(head, count):
    masks = np.random.default_rng(1).random((count, 4)) < 0.5
    for part in head.parts(masks):
        part[~part.any(1), -1] = True
    return masks


@needs_compiler
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("flags", [("-O2",), SANITIZED], ids=" ".join)
def test_choices_in_c_are_those_in_python(name, flags, tmp_path):
    head = HEADS[name]
    policy = policy_of(network(), head, observed())
    made, seen = deploy(policy, tmp_path / "c"), observed(150, 1)
    if not head.masks:
        assert_same_actions(policy, made, seen, flags=flags)
        assert "mask" not in (made.folder / "policy.c").read_text()
        return
    masks = masks_for(head, 150)
    found = actions_in_c(made, seen, flags, masks=masks)
    wanted = [policy(x, masks=mask) for x, mask in zip(seen, masks, strict=True)]
    assert [a.tobytes() for a in found] == [a.tobytes() for a in wanted]
    assert [a.tobytes() for a in found] != [policy(x).tobytes() for x in seen]
    assert "POLICY_MASK_SIZE 4" in (made.folder / "policy.h").read_text()
    assert "POLICY_MASK_SIZE" in (made.folder / "policy_example.c").read_text()
    assert "- Mask: 4 bytes" in (made.folder / "README.md").read_text()


@needs_compiler
def test_a_mask_without_a_valid_option_is_refused(tmp_path):
    head = HEADS["multi_categorical with masks"]
    policy = policy_of(network(), head, observed())
    made, seen = deploy(policy, tmp_path / "c"), observed(3, 1)
    masks = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]], bool)
    found = actions_in_c(made, seen, masks=masks)
    assert found[1] is None and found[0] is not None and found[2] is not None
    with pytest.raises(UsageError, match="no valid action"):
        policy(seen[1], masks=masks[1])


def chooser():
    """A policy of two layers for `Choosing`."""
    rng, graph = np.random.default_rng(0), Graph("chooser")
    x = graph.input("seen", "float32", (None, 5))
    hidden = graph.add("matmul", x, graph.const(rng.normal(size=(5, 8)).astype("f")))
    hidden = graph.add("tanh", hidden)
    last = graph.const(rng.normal(size=(8, 5)).astype("f"))
    graph.outputs = {"out": graph.add("matmul", hidden, last)}
    return graph


@needs_compiler
def test_a_masked_policy_of_choices_acts_in_its_environment(tmp_path):
    head = Head("multi_categorical", choices=(2, 3), masks=True)
    with_parts = make("Choosing-v0")
    assert with_parts.shape == (5,) and with_parts.actions.choices == (2, 3)
    assert with_parts.reset(0)[3:].sum() == 1  # the place is one of two
    assert with_parts.mask().shape == (5,)
    from qgraph.interpret import evaluate

    graph = chooser()
    seen = watch("Choosing-v0", lambda x: evaluate(graph, {"seen": x})["out"], head, 120)
    policy = Policy(pack(read_policy(graph), head, 8, "static", seen, effort="plain"))
    found = roll_out(policy, deploy(policy, tmp_path / "c"), "Choosing-v0", episodes=4)
    assert found.equal and found.compared == 60 and found.reproducible
    assert play("Choosing-v0", policy.played, head, range(3)).steps.tolist() == [15] * 3


@needs_compiler
@pytest.mark.parametrize("normalized", [("a", "b", "c"), ("b",), ()])
def test_parts_of_an_observation_have_their_own_normalizers(normalized, tmp_path):
    rng, graph = np.random.default_rng(0), Graph("parts")
    sizes, values = {"a": 2, "b": 4, "c": 1}, []
    for name, size in sizes.items():
        x = graph.input(name, "float32", (None, size))
        if name in normalized:
            x = graph.add("sub", x, graph.const(rng.normal(size=size).astype("f")))
            x = graph.add("mul", x, graph.const(rng.uniform(0.1, 9, size).astype("f")))
        values.append(x)
    x = graph.add("concat", *values, attrs={"axis": -1})
    x = graph.add("matmul", x, graph.const(rng.normal(size=(7, 5)).astype("f")))
    graph.outputs = {"out": graph.add("tanh", x)}
    seen = rng.normal(size=(150, 7)).astype(np.float32)
    network, head = read_policy(graph, inputs=list(sizes)), Head("clip", (-1.0,) * 5, (1.0,) * 5)
    policy = Policy(pack(network, head, 8, "static", seen, effort="plain"))
    assert_same_actions(policy, deploy(policy, tmp_path / "c"), seen, flags=SANITIZED)


@pytest.mark.parametrize("count", range(2, 7))
def test_places_between_two_ends_are_chosen_as_they_are(count):
    for shift, low, high in itertools.product(range(-4, 5), range(4), range(4)):
        index = np.clip(np.arange(count) + shift, low, low + high)
        text = _subscript(index, "x")
        # C's a ? b : c as Python's b if a else c, from the last one on.
        found = [_value(text, i) for i in range(count)]
        assert found == index.tolist(), text


def _value(text, i):
    text = text.strip("()")
    if "?" not in text:
        return eval(text.replace("/", "//"), {"i": i})
    condition, rest = text.split("?", 1)
    chosen, other = rest.split(":", 1)
    return _value(chosen.strip() if eval(condition, {"i": i}) else other.strip(), i)


def test_an_environment_without_masks_is_refused(made):
    with pytest.raises(UsageError, match="action_masks"):
        play("Chase", lambda x: np.zeros((len(x), 3)), Head("argmax", masks=True), range(1))
