"""`qgraph rl quantize` and `qgraph rl evaluate`."""

import json

import numpy as np
import pytest

from qgraph.rl.policy import load_policy
from tests.helpers.cli import run


def test_evaluate_prints_a_table_and_writes_figures(made, model, tmp_path):
    pytest.importorskip("matplotlib")
    done = run(
        "rl", "evaluate", model, "--env", "Chase", "--bits", "8,3", "--episodes", 3, "--steps", 30,
        "--plots", tmp_path / "figures",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "3 episodes" in done.out and "actor" in done.out and "qgraph rl quantize" in done.out
    names = {p.name for p in (tmp_path / "figures").iterdir()}
    assert names == {
        "returns.png", "actions_papers.png", "actions_weights.png", "actions_actor.png"
    }  # fmt: skip


def test_evaluate_prints_json(made, model):
    done = run(
        "rl", "evaluate", model, "--env", "Chase", "--bits", "4", "--ways", "weights",
        "--episodes", 2, "--steps", 10, "--json",
    )  # fmt: skip
    found = json.loads(done.out)
    assert found["environment"] == "Chase" and [r["bits"] for r in found["rows"]] == [4]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "give --env"),
        (("--env", "Nowhere"), "Nowhere"),
        (("--env", "Pull"), "3 outputs"),
        (("--env", "Chase", "--head", "clip"), "clip"),
        (("--env", "Chase", "--bits", "17"), "list of bits"),
        (("--env", "Chase", "--ways", "mine"), "unknown way `mine`"),
        (("--env", "Chase", "--against", "other.pb"), ".qpol"),
    ],
)
def test_evaluate_reports_what_does_not_fit(made, model, options, told):
    done = run("rl", "evaluate", model, *options, "--episodes", 1)
    assert done.code == 2 and told in done.err


def test_the_commands_after_a_static_policy_compare_and_deploy_it(made, model, tmp_path):
    words = ("rl", "quantize", model, "--form", "static", "--env", "Chase", "--samples", 100)
    done = run(*words, "-o", tmp_path / "p.qpol")
    assert done.code == 0, done.err
    assert f"qgraph rl deploy {tmp_path / 'p.qpol'} --env Chase -o device" in done.out


@pytest.mark.parametrize("form", ["dynamic", "static"])
def test_a_policy_is_packed_where_it_acts_and_played(made, model, tmp_path, form):
    file = tmp_path / "p.qpol"
    done = run(
        "rl", "quantize", model, "--bits", 8, "--form", form, "--env", "Chase", "--samples", 300,
        "-o", file, "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert facts["form"] == form and facts["compared_on"] == 75 and facts["same_action"] > 0.9
    policy = load_policy(file)
    assert policy.about["environment"] == "Chase" and policy.about["range"] is not None
    done = run(
        "rl", "evaluate", file, "--against", model, "--env", "Chase", "--episodes", 3,
        "--steps", 20, "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    played = json.loads(done.out)
    assert played["counts"]["observations"] == 3 * 20 + 20
    for option, value in (("--bits", "4"), ("--ways", "papers")):
        done = run(
            "rl", "evaluate", file, "--against", model, "--env", "Chase", option, value
        )  # fmt: skip
        assert done.code == 2 and f"{option} is for a float policy" in done.err
    (row,) = played["rows"]
    assert (row["way"], row["bits"]) == (form, 8) and row["same_action"] > 0.8


def test_a_policy_is_packed_without_an_environment(model, tmp_path):
    np.save(tmp_path / "seen.npy", np.random.default_rng(0).normal(size=(40, 2)).astype("f"))
    file = tmp_path / "p.qpol"
    done = run("rl", "quantize", model, "--observations", tmp_path / "seen.npy", "-o", file)
    assert done.code == 0, done.err
    assert (
        "dynamic" in done.out
        and "none, outputs only" in done.out
        and "qgraph rl evaluate" in done.out
    )
    assert load_policy(file)(np.zeros(2, "f")) == pytest.approx([0, 0.5, 0], abs=1e-5)
    again = run("rl", "quantize", model, "-o", file, "--head", "argmax")
    assert again.code == 8 and "--force" in again.err
    assert run("rl", "quantize", model, "-o", file, "--head", "argmax", "--force").code == 0
    assert load_policy(file)(np.zeros(2, "f")) == 1


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--form", "static"), 2, "give --env"),
        (("--head", "clip"), 2, "give --high"),
        (("--head", "best"), 2, "unknown head"),
        (("--head", "clip", "--high", "-1"), 2, "cannot range from 1 to -1"),
        (("--head", "gaussian", "--high", "1"), 2, "needs its deviations"),
        (("--head", "squashed_gaussian", "--high", "1"), 2, "has 3 outputs, but its"),
        (("--bits", 9), 2, "9"),
        (("--observations", "a.npy", "--env", "Chase"), 2, "not from both"),
        (("--observations", "missing.npy"), 6, "missing.npy"),
        (("--env", "Nowhere"), 2, "Nowhere"),
        (("-o", "missing/p.qpol"), 8, "directory"),
    ],
)
def test_quantize_reports_what_does_not_fit_and_leaves_no_file(
    made, model, tmp_path, monkeypatch, options, code, told
):
    monkeypatch.chdir(tmp_path)
    done = run("rl", "quantize", model, "-o", "p.qpol", *options)
    assert done.code == code and told in done.err
    assert {p.name for p in tmp_path.iterdir()} == {"chaser.onnx"}


@pytest.fixture(scope="module")
def two_policies(tmp_path_factory):
    """A SavedModel with two policies for `Chase`: they choose opposite actions."""
    import tensorflow as tf

    class Policies(tf.Module):
        def __init__(self):
            self.kernel = tf.Variable([[1.0, 0.0, -1.0], [-1.0, 0.0, 1.0]])

        @tf.function(input_signature=[tf.TensorSpec([None, 2])])
        def chase(self, seen):
            return {"scores": tf.matmul(seen, self.kernel)}

        @tf.function(input_signature=[tf.TensorSpec([None, 2])])
        def flee(self, seen):
            return {"scores": tf.matmul(seen, -self.kernel)}

    module, folder = Policies(), tmp_path_factory.mktemp("policies")
    tf.saved_model.save(module, str(folder), {"chase": module.chase, "flee": module.flee})
    return folder


def test_signature_picks_a_policy_of_a_saved_model(made, two_policies, tmp_path):
    seen = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    actions, returns = {}, {}
    for name in ("chase", "flee"):
        file = tmp_path / f"{name}.qpol"
        where = ("--signature", name, "--env", "Chase")
        done = run("rl", "quantize", two_policies, "-o", file, *where, "--samples", 40)
        assert done.code == 0, done.err
        actions[name] = load_policy(file).outputs(seen).argmax(-1)
        done = run(
            "rl", "evaluate", file, "--against", two_policies, *where, "--episodes", 2,
            "--steps", 20, "--json",
        )  # fmt: skip
        assert done.code == 0, done.err
        found = json.loads(done.out)
        assert found["rows"][0]["same_action"] > 0.8
        returns[name] = found["float"]["return"]
    assert (actions["chase"] + actions["flee"] == 2).all()
    assert returns["chase"] > returns["flee"]


@pytest.mark.parametrize("verb", ["quantize", "evaluate"])
def test_signatures_that_do_not_exist_are_refused(made, model, two_policies, tmp_path, verb):
    where = ("-o", tmp_path / "p.qpol") if verb == "quantize" else ("--env", "Chase")
    done = run("rl", verb, two_policies, *where)
    assert done.code == 2 and "several signatures" in done.err and "`flee`" in done.err
    done = run("rl", verb, two_policies, *where, "--signature", "rest")
    assert done.code != 0 and "no signature `rest`" in done.err
    done = run("rl", verb, model, *where, "--signature", "chase")
    assert done.code == 2 and "only a SavedModel has signatures" in done.err


def warnings_of(done):
    assert done.code == 0, done.err
    return json.loads(done.out)["warnings"]


def test_actions_that_are_not_those_of_float_are_warned_of_last(made, model, tmp_path, monkeypatch):
    quantize = ("rl", "quantize", model, "-o", tmp_path / "p.qpol", "--force")
    where = ("--env", "Chase", "--samples", 200)
    assert warnings_of(run(*quantize, *where, "--json")) == []
    (found,) = warnings_of(run(*quantize, "--head", "argmax", "--json"))
    assert "not compared" in found
    monkeypatch.setattr("qgraph.rl.policy.shift.MIN_SAME", 1.1)
    done = run(*quantize, *where)
    assert done.out.splitlines()[-1].startswith("warning: only ")


def test_the_environment_beside_the_policy_is_watched(made, model, tmp_path):
    model.with_suffix(".json").write_text(json.dumps({"env": "Chase", "action": "argmax"}))
    done = run("rl", "quantize", model, "-o", tmp_path / "p.qpol", "--samples", 40, "--json")
    assert warnings_of(done) == [] and json.loads(done.out)["compared_on"] == 10
    model.with_suffix(".json").write_text(json.dumps({"env": "Nowhere", "action": "argmax"}))
    done = run("rl", "quantize", model, "-o", tmp_path / "q.qpol", "--json")
    assert "not compared" in warnings_of(done)[0]


def test_ways_are_packed_as_training_and_as_quantize_do(made, model):
    from qgraph.rl.actor import Actor, Packer
    from qgraph.rl.agents import config_for
    from qgraph.rl.learn.sources import packed_bits
    from qgraph.rl.policy import read_policy
    from qgraph.rl.policy.study import forms

    network = read_policy(model)
    options = config_for("dqn", "CartPole-v1", actor_bits=4)
    packer = Packer(network.program, *packed_bits(options, network.program))
    x = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    (form,) = forms(network, [4], ["actor"])
    np.testing.assert_array_equal(form.policy(x), Actor(packer.pack(network.weights))(x))
    done = run(
        "rl", "evaluate", model, "--env", "Chase", "--bits", "8,4", "--ways", "dynamic,static",
        "--episodes", 2, "--steps", 10, "--json",
    )  # fmt: skip
    rows = json.loads(done.out)["rows"]
    assert [(r["way"], r["bits"]) for r in rows] == [
        ("dynamic", 8), ("dynamic", 4), ("static", 8), ("static", 4)
    ]  # fmt: skip
