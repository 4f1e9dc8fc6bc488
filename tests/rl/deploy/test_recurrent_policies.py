"""Policies with states in C: they act as streamed networks do, bit for bit."""

from functools import cache

import numpy as np
import pytest

import qgraph
from qgraph.errors import UnsupportedError, UsageError
from qgraph.ir.graph import Graph
from qgraph.rl.deploy import NetworkPolicy, deploy, roll_out
from qgraph.rl.head import Head
from tests.helpers.c_programs import SANITIZED, needs_compiler
from tests.helpers.cli import run
from tests.helpers.deployed import actions_in_c
from tests.helpers.exported_policies import ml_agents, rsl_rl

ACTIONS = "deterministic_continuous_actions"
EXPORTED = {
    "lstm": (rsl_rl.recurrent, "obs", "actions", {"h_in": "h_out", "c_in": "c_out"}),
    "gru": (lambda: rsl_rl.recurrent("GRU"), "obs", "actions", {"h_in": "h_out"}),
    "memory": (
        lambda: ml_agents.continuous(recurrent=True),
        "obs_0",
        ACTIONS,
        {"recurrent_in": "recurrent_out"},
    ),
}


def stepper(inputs: int = 2, outputs: int = 1) -> Graph:
    """state' = tanh(x w + state u), output = state' v; names of nodes are those of C."""
    graph, rng = Graph("stepper"), np.random.default_rng(0)
    x = graph.input("outputs", "float32", (None, inputs))
    state = graph.input("value", "float32", (None, 4))
    weights = [
        graph.const(rng.normal(size=size).astype("f"))
        for size in ((inputs, 4), (4, 4), (4, outputs))
    ]
    both = graph.add(
        "add", graph.add("matmul", x, weights[0]), graph.add("matmul", state, weights[1])
    )
    after = graph.add("tanh", both, name="larger")
    graph.outputs = {"memory": graph.add("matmul", after, weights[2], name="codes"), "next": after}
    return graph


@cache
def quantized(inputs: int = 2, outputs: int = 1):
    seen = np.random.default_rng(1).normal(size=(12, 10, inputs)).astype(np.float32)
    return qgraph.quantize(
        stepper(inputs, outputs), {"outputs": seen}, states={"value": "next"}, effort="plain",
        profile="policy-int8",
    )  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("name", EXPORTED)
def test_exported_policies_remember(name, saved, tmp_path):
    build, observation, output, states = EXPORTED[name]
    sequences = np.random.default_rng(1).normal(0, 1.5, (8, 12, 6)).astype(np.float32)
    made = qgraph.quantize(
        saved(build()), {observation: sequences}, states=states,
        outputs=[output, *states.values()], effort="plain", profile="policy-int8",
    )  # fmt: skip
    made.save(tmp_path / "out")
    policy = NetworkPolicy(tmp_path / "out", Head("clip", (-0.8,) * 3, (0.9,) * 3))
    assert policy.states == states
    written = deploy(policy, tmp_path / "c")
    seen = np.random.default_rng(2).normal(0, 2, (80, 6)).astype(np.float32)
    found = actions_in_c(written, seen, SANITIZED)
    wanted = [policy(one) for one in seen]
    assert [a.tobytes() for a in found] == [b.tobytes() for b in wanted]
    policy.reset()
    assert [policy(one).tobytes() for one in seen[::-1]][-1] != wanted[0].tobytes()


@needs_compiler
def test_a_refused_observation_leaves_the_states(tmp_path):
    quantized().save(tmp_path / "out")
    policy = NetworkPolicy(tmp_path / "out", Head("clip", (-1.0,), (1.0,)))
    written = deploy(policy, tmp_path / "c")
    seen = np.random.default_rng(2).normal(size=(20, 2)).astype(np.float32)
    seen[7, 1] = np.nan
    found = actions_in_c(written, seen)
    assert found.pop(7) is None
    with pytest.raises(UsageError, match="NaN or infinity"):
        policy(seen[7])
    wanted = [policy(one) for one in np.delete(seen, 7, 0)]
    assert [a.tobytes() for a in found] == [b.tobytes() for b in wanted]


@needs_compiler
def test_each_episode_begins_with_zeros(made, tmp_path):
    quantized().save(tmp_path / "out")
    done = run(
        "rl", "deploy", tmp_path / "out", "-o", tmp_path / "c", "--env", "Pull", "--episodes", 3
    )
    assert done.code == 0, done.err
    assert "states" in done.out and "value" in done.out
    header = (tmp_path / "c" / "policy.h").read_text()
    assert "void policy_reset_in(policy_memory *memory);" in header
    policy = NetworkPolicy(tmp_path / "out", Head("clip", (-1.0,), (1.0,)))
    found = roll_out(policy, deploy(policy, tmp_path / "d"), "Pull", episodes=3)
    assert found.equal and found.compared == 60


@needs_compiler
def test_states_that_are_not_reset_are_found(made, tmp_path, monkeypatch):
    from qgraph.rl.deploy.example_process import ExampleProcess

    quantized().save(tmp_path / "out")
    policy = NetworkPolicy(tmp_path / "out", Head("clip", (-1.0,), (1.0,)))
    monkeypatch.setattr(ExampleProcess, "restart", lambda self: None)
    found = roll_out(policy, deploy(policy, tmp_path / "c"), "Pull", episodes=3)
    assert found.first.episode == 1 and not found.equal


def test_a_head_is_chosen_as_for_other_policies(tmp_path):
    quantized().save(tmp_path / "out")
    words = ("rl", "deploy", tmp_path / "out", "-o", tmp_path / "c")
    done = run(*words, "--head", "clip")
    assert done.code == 2 and "--high" in done.err
    done = run(*words, "--head", "clip", "--high", 2)
    assert done.code == 0 and "--head clip --high 2 --force" in done.out, done.err
    assert NetworkPolicy(tmp_path / "out")(np.zeros(2)).shape == (1,)


def test_networks_with_several_outputs_are_refused(tmp_path):
    graph = stepper()
    graph.outputs = {**graph.outputs, "other": graph.outputs["memory"]}
    seen = np.random.default_rng(1).normal(size=(12, 10, 2)).astype(np.float32)
    made = qgraph.quantize(graph, {"outputs": seen}, states={"value": "next"}, effort="plain")
    made.save(tmp_path / "out")
    with pytest.raises(UnsupportedError, match="one output besides its states"):
        NetworkPolicy(tmp_path / "out")
