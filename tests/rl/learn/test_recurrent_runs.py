"""Runs of recurrent PPO: int8 actors remember a cue; the policy is packed, played and deployed."""

import json

import numpy as np
import pytest

from qgraph.rl.actor import Actor, Packer, end_bits
from qgraph.rl.deploy import deploy, roll_out
from qgraph.rl.learn.records import record_type
from qgraph.rl.learn.runs import train
from qgraph.rl.policy import Policy, load_policy, read_policy
from qgraph.rl.policy.about import about
from qgraph.rl.policy.play import play
from tests.helpers.c_programs import needs_compiler
from tests.helpers.cli import run
from tests.helpers.memory_task import LENGTH, NAME

SETTINGS = {
    "in_process": True,
    "actors": 2,
    "actor_bits": 8,
    "hidden_sizes": (16,),
    "batch_size": 512,
    "minibatch_size": 128,
    "epochs": 6,
    "evaluate_every": 10,
    "episodes": 20,
    "learning_rate": 3e-3,
    "entropy_cost": 0.01,
    "recurrent_units": 16,
    "sequence_length": 8,
    "steps": 5120,
    "seed": 1,
}


@pytest.fixture(scope="module", params=["lstm", "gru"])
def trained(request, tmp_path_factory):
    """The directory of a run."""
    folder = tmp_path_factory.mktemp(request.param) / "run"
    train(folder, "ppo", NAME, {**SETTINGS, "recurrent": request.param})
    return folder


def states_of(folder):
    return about(folder / "policy.pb").states


def test_int8_actors_learn_to_remember(trained):
    """Without memory the mean return is 0 at best."""
    facts = json.loads((trained / "policy.json").read_text())
    assert facts["fp32_return_mean"] == 1.0 and facts["episodes"] == 20
    names = ["hidden", "cell"] if "lstm" in str(trained) else ["hidden"]
    assert facts["states"] == {name: f"{name}_next" for name in names}


def test_the_written_policy_plays_as_the_learner(trained):
    network = read_policy(trained / "policy.pb", states=states_of(trained))
    assert network.shape == (3,) and len(network.states) == len(states_of(trained))
    head = about(trained / "policy.pb").exported_head
    policy = Policy(_packed(network, head, 8))
    returns = play(NAME, policy.played, head, range(50))
    assert returns.mean == 1.0 and (returns.steps == LENGTH).all()
    forgets = Policy(_packed(network, head, 8))
    forgets.columns = None  # each observation with states of zeros

    def without_memory(seen):
        rows = np.concatenate([seen, np.zeros((len(seen), network.program.shape[0] - 3))], 1)
        return forgets._run(rows.astype(np.float32))[policy.names[0]]

    assert abs(play(NAME, without_memory, head, range(50)).mean) < 0.5


def _packed(network, head, bits):
    from qgraph.rl.policy import pack

    return pack(network, head, bits)


@needs_compiler
def test_commands_pack_play_and_deploy_it(trained, tmp_path):
    model, static = trained / "policy.pb", tmp_path / "static.qpol"
    done = run("rl", "quantize", model, "-o", tmp_path / "p.qpol", "--env", NAME, "--samples", 256)
    assert done.code == 0, done.err
    words = ("rl", "evaluate", tmp_path / "p.qpol", "--against", model, "--env", NAME)
    done = run(*words, "--episodes", 20, "--steps", 60, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["float"]["return"] == found["rows"][0]["return"] == 1.0
    ways = ("--bits", "8", "--ways", "papers,actor", "--episodes", 20, "--steps", 60, "--json")
    done = run("rl", "evaluate", model, "--env", NAME, *ways)
    assert done.code == 0, done.err
    assert [row["return"] for row in json.loads(done.out)["rows"]] == [1.0, 1.0]
    network = read_policy(model, states=states_of(trained))
    head = about(model).exported_head
    from qgraph.rl.policy import pack
    from qgraph.rl.policy.study import calibration

    seen = calibration(network, head, NAME, 256, 0)
    assert seen.shape[1:] == (LENGTH, 3)
    pack(network, head, 8, "static", seen, effort="plain").write(static)
    policy = load_policy(static)
    made = deploy(policy, tmp_path / "c")
    assert made.facts.states == tuple(states_of(trained))
    found = roll_out(policy, made, NAME, episodes=10)
    assert found.equal and found.compared == 10 * LENGTH and found.in_c.mean == 1.0
    done = run("rl", "deploy", tmp_path / "p.qpol", "-o", tmp_path / "d")
    assert done.code == 2 and "form static" in done.err


def test_actors_in_processes_carry_their_states(tmp_path):
    settings = {**SETTINGS, "recurrent": "gru", "in_process": False, "steps": 1024}
    train(tmp_path / "run", "ppo", NAME, settings)
    assert (tmp_path / "run" / "policy.pb").exists()


def test_a_worker_records_the_states_in_front_of_actions(tmp_path):
    from qgraph.rl.agents import config_for
    from qgraph.rl.agents.registry import learner_for
    from qgraph.rl.environments import make
    from qgraph.rl.learn.worker import ActorWorker

    config = config_for("ppo", NAME, **{**SETTINGS, "recurrent": "lstm"})
    world = make(NAME)
    learner = learner_for(config, world)
    program = learner.acting.spec.program
    packer = Packer(program, 8, *end_bits(program, 8))
    block = packer.pack({name: v.numpy() for name, v in learner.acting.weights.items()})
    worker = ActorWorker(config, 0, learner.head, lambda taken: Actor(block))
    records = np.concatenate([worker.step() for _ in range(3 * LENGTH)])
    assert records.dtype == record_type(world, 32)
    actor, state = Actor(block), np.zeros(32, np.float32)
    for t, record in enumerate(records):
        state = np.zeros_like(state) if t % LENGTH == 0 else state
        np.testing.assert_array_equal(record["state"], state)
        found = actor.run(np.concatenate([record["observation"], state])[None])
        state = np.concatenate([found[name][0] for name in actor.outputs[1:]])
    world.close()
