"""Each setting reaches what it is for: another value gives another actor, memory or learner."""

import ast
import hashlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from qgraph import rl
from qgraph.rl.actor import Actor, Packer
from qgraph.rl.agents import AGENTS, config_class
from qgraph.rl.agents.registry import config_classes, learner_for
from qgraph.rl.agents.setting import Panel
from qgraph.rl.learn import worker
from qgraph.rl.learn.records import record_type
from tests.helpers.rl_records import Episodes, FixedPolicy

RL = Path(rl.__file__).parent
LEARNING = (Panel.LEARNING, Panel.ALGORITHM, Panel.EXPLORATION, Panel.REPLAY)
SMALL = {
    "actors": 2, "hidden_sizes": (4,), "critic_hidden_sizes": (4,), "batch_size": 20,
    "min_replay_size": 8, "epsilon_steps": 0, "learning_rate": 0.1, "minibatch_size": 10,
    "sequence_length": 5,
}  # fmt: skip
# The other value, where that is neither half a number, the next one, nor the other truth value.
OTHER = {
    "correction": "tree_backup", "float16_methods": "loss-scaling", "significand": 9,
    "replay_capacity": 16, "target_update_period": 1, "policy_delay": 1, "epsilon_steps": 400,
    "unroll_length": 10, "batch_size": 40, "minibatch_size": 20, "target_kl": 1e-6,
    "recurrent": "gru", "sequence_length": 2,
}  # fmt: skip
# Settings without which one has no effect.
BESIDE = {
    "float16_methods": {"precision": "mixed_float16"},
    "epsilon_hold": {"epsilon": 0.5},
    "significand": {"float16_methods": "all"},
    "recurrent_units": {"recurrent": "gru"},
    "sequence_length": {"recurrent": "gru"},
}
ELSEWHERE = {"replicas"}  # needs processors to divide: tests/rl/learn/test_replicas.py


REWARDS = tuple((-1.0) ** step for step in range(1, 10))


@pytest.fixture
def eager():
    """TensorFlow without graphs, which take longer to make than two small steps."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def short_run(monkeypatch, discrete, config):
    """A digest of what two actors, their memory and two steps of a learner come to."""
    place = Episodes(REWARDS, count=3 if discrete else 0)
    monkeypatch.setattr(worker, "make", lambda name: place)
    learner, memory = (
        learner_for(config, place),
        config.memory(record_type(place, config.state_size)),
    )
    acting = learner.acting.spec.program
    size = acting.size(acting.outputs[0])
    policy = FixedPolicy(np.linspace(0, 0.5, size))
    if config.state_size:
        weights = {name: np.asarray(v) for name, v in learner.acting.weights.items()}
        policy = Actor(Packer(acting, 32).pack(weights))
    for index in range(config.actors):
        actor = worker.ActorWorker(config, index, learner.head, lambda taken: policy)
        for _ in range(60):
            memory.add(actor.step())
    found = [repr(config.limiter()), *(memory.state()[name] for name in sorted(memory.state()))]
    rng = np.random.default_rng(0)
    for _ in range(2):
        batch = memory.sample(config.batch_size, rng)
        errors, loss = learner.step(batch)
        memory.update(batch.places, errors)
        found += [errors, loss]
    for name, variable in sorted(learner.state.items()):
        found += [name, variable.numpy()]
    digest = hashlib.sha256()
    for each in found:
        digest.update(each.tobytes() if isinstance(each, np.ndarray) else repr(each).encode())
    return digest.hexdigest()


def other(kind, each):
    """A legal value that is not the default."""
    default = SMALL.get(each.name, each.default)
    if each.name == "precision":
        return kind.precisions[-2] if len(kind.precisions) > 2 else kind.precisions[-1]
    if each.name in OTHER:
        return OTHER[each.name]
    if isinstance(default, bool):
        return not default
    if isinstance(default, tuple):
        return (*default, 3)
    return default + 1 if isinstance(default, int) else default / 2 or 0.5


@pytest.mark.parametrize("algorithm", AGENTS)
def test_each_setting_of_learning_changes_a_run(algorithm, eager, monkeypatch):
    kind = config_class(algorithm)
    each_kind = {True: kind.discrete_actions, False: kind.continuous_actions}
    found = [
        without_effect(kind, partial(short_run, monkeypatch, discrete))
        for discrete, chooses in each_kind.items()
        if chooses
    ]
    assert not set.intersection(*found)


def without_effect(kind, run):
    """The settings whose other value changes nothing."""
    fields = kind.fields()
    config = partial(kind, "fixed")
    usual = {name: value for name, value in SMALL.items() if name in fields}
    before = run(config(**usual))
    assert run(config(**usual)) == before
    without = set()
    for name, each in fields.items():
        if each.setting.panel not in LEARNING or name in ELSEWHERE:
            continue
        given = {**usual, **BESIDE.get(name, {})}
        plain = before if given == usual else run(config(**given))
        if run(config(**{**given, name: other(kind, each)})) == plain:
            without.add(name)
    return without


def test_each_other_setting_is_read_where_runs_are_made():
    """Settings of runs, actors and compression are the same in all algorithms."""
    read = set()
    for path in (*RL.glob("learn/*.py"), *RL.glob("compress/*.py"), *RL.glob("monitor/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                owner = node.value
                named = getattr(owner, "attr", getattr(owner, "id", ""))
                read |= {node.attr} if named == "config" else set()
    for kind in config_classes():
        fields = kind.fields().values()
        assert {each.name for each in fields if each.setting.panel not in LEARNING} <= read


def test_each_setting_has_a_range_and_a_unit():
    for kind in config_classes():
        for name, each in kind.fields().items():
            declared = each.setting
            assert declared.help[0].isupper() and declared.help.endswith("."), name
            if each.kind in (int, float):
                assert declared.interval or declared.choices, name
            if each.kind is not bool and each.kind is not float and name != "seed":
                assert declared.unit, name  # the other numbers are pure, or in the task's units
