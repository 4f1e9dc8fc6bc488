"""`qgraph rl deploy`: the files, the environment in which C acts, and what is refused."""

import json
from functools import cache

import numpy as np
import pytest

from qgraph.errors import LoadError, UnsupportedError, UsageError
from qgraph.ir.graph import Graph
from qgraph.rl.deploy import deploy, example_source, policy_source, roll_out
from qgraph.rl.head import Head
from qgraph.rl.policy import load_policy, pack, read_policy
from tests.helpers.c_programs import needs_compiler
from tests.helpers.cli import run
from tests.helpers.deployed import HEADS, SIZE, network, observed, policy_of, with_head
from tests.helpers.playing import Chase, chaser

FILES = {
    "policy.h", "policy.c", "policy_network.h", "policy_network.c", "policy_example.c",
    "README.md", "deployment.json",
}  # fmt: skip


def packed(tmp_path, head="argmax", form="static"):
    return _packed(head, form).write(tmp_path / "p.qpol")


@cache
def _packed(head, form):
    seen = np.random.default_rng(0).normal(0, 2, (300, 2)).astype(np.float32)
    heads = {"argmax": Head("argmax"), "clip": Head("clip", (-1.0,), (1.0,)), "none": None}
    about = {"environment": "Chase" if head == "argmax" else "Pull"}
    return pack(read_policy(chaser(head == "argmax")), heads[head], 8, form, seen, about)


def test_a_policy_is_written_and_the_next_command_compares_it(tmp_path):
    file = packed(tmp_path)
    done = run("rl", "deploy", file, "-o", tmp_path / "c")
    assert done.code == 0, done.err
    assert {path.name for path in (tmp_path / "c").iterdir()} == FILES
    assert f"rl deploy {file} --env Chase --force -o {tmp_path / 'c'}" in done.out
    facts = json.loads((tmp_path / "c" / "deployment.json").read_text())
    assert facts["head"]["kind"] == "argmax" and facts["shape"] == [2] and facts["format"] == "c"
    assert facts["files"].keys() == FILES - {"deployment.json"}


@needs_compiler
@pytest.mark.parametrize(("head", "environment"), [("argmax", "Chase"), ("clip", "Pull")])
def test_the_compiled_c_acts_in_the_environment(made, tmp_path, head, environment):
    file = packed(tmp_path, head)
    words = ("rl", "deploy", file, "-o", tmp_path / "c", "--env", environment, "--episodes", 3)
    done = run(*words, "--seed", 5, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)["rollout"]
    assert found["steps"] == 60 and found["different"] == 0 and found["episodes"] == 3
    assert found["return_in_c"] == found["return_in_python"] < 0
    assert all(one.closed for one in made)
    done = run(*words, "--force")
    assert done.code == 0 and "actions compared" in done.out and "60" in done.out


@needs_compiler
@pytest.mark.parametrize(
    ("part", "right", "wrong"),
    [
        ("HEAD", "{body}", "{body}\n    *action = 0;"),
        ("CODE_OF", "    return code;", "    return code / 2;"),
    ],
)
def test_another_action_is_reported(made, tmp_path, monkeypatch, part, right, wrong):
    text = getattr(policy_source, part)
    assert right in text
    monkeypatch.setattr(policy_source, part, text.replace(right, wrong))
    words = ("rl", "deploy", packed(tmp_path), "-o", tmp_path / "c", "--env", "Chase")
    done = run(*words, "--episodes", 2)
    assert done.code == 9 and "actions differ; the first in episode 0, step" in done.err, done.err
    assert "different" in done.out


@needs_compiler
def test_an_observation_that_c_refuses_is_a_difference(made, tmp_path, monkeypatch):
    text = policy_source.FINITE.replace("<= FLT_MAX", "<= 1.0f")
    monkeypatch.setattr(policy_source, "FINITE", text)
    policy = load_policy(packed(tmp_path))
    found = roll_out(policy, deploy(policy, tmp_path / "c"), "Chase", episodes=2)
    assert found.first is not None and found.first.in_c is None
    assert 0 < found.different <= found.compared and not found.equal


@needs_compiler
def test_a_program_that_ends_is_reported(made, tmp_path, monkeypatch):
    text = example_source.EXAMPLE.replace("count = 0;\n        if", "return 3;\n        if")
    monkeypatch.setattr(example_source, "EXAMPLE", text)
    done = run("rl", "deploy", packed(tmp_path), "-o", tmp_path / "c", "--env", "Chase")
    assert done.code == 12 and "the compiled policy ended with code 3" in done.err


@needs_compiler
def test_an_environment_that_differs_between_runs_is_a_warning(made, tmp_path, monkeypatch):
    step, random = Chase.step, np.random.default_rng(0)

    def drifting(self, action):
        outcome = step(self, action)
        outcome.reward += random.normal()
        return outcome

    monkeypatch.setattr(Chase, "step", drifting)
    words = ("rl", "deploy", packed(tmp_path), "-o", tmp_path / "c", "--env", "Chase")
    done = run(*words, "--episodes", 1)
    assert done.code == 0 and "Chase is not reproducible" in done.out, done.out


@needs_compiler
def test_each_episode_has_a_new_environment(made, tmp_path):
    policy = load_policy(packed(tmp_path))
    found = roll_out(policy, deploy(policy, tmp_path / "c"), "Chase", episodes=3)
    assert found.equal and found.reproducible
    assert len(made) == 1 + 3 + 3 and all(one.closed for one in made)


def test_options_that_need_an_environment_say_so(tmp_path):
    for option in ("--episodes", "--seed"):
        done = run("rl", "deploy", packed(tmp_path), "-o", tmp_path / "c", option, 3)
        assert done.code == 2 and f"{option} needs --env" in done.err
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--env", "Nowhere"), 2, "Nowhere"),
        (("--env", "Pull"), 2, "chooses one of several, but the environment takes numbers"),
        (("--format", "onnx-qdq", "--name", "pilot"), 2, "--name needs --format c"),
        (("--format", "onnx-qdq", "--env", "Chase"), 2, "--env needs --format c"),
        (("--format", "cobol"), 2, "unknown format `cobol`"),
        (("--head", "argmax"), 2, "--head is for a directory"),
        (("--name", "Pilot"), 2, "cannot begin names of C"),
        (("--name", "int"), 2, "cannot begin names of C"),
        (("--name", "a__b"), 2, "cannot begin names of C"),
    ],
)
def test_what_does_not_fit_is_reported(made, tmp_path, options, code, told):
    done = run("rl", "deploy", packed(tmp_path), "-o", tmp_path / "c", *options)
    assert done.code == code and told in done.err


def test_dynamic_policies_and_other_files_are_refused(tmp_path):
    done = run("rl", "deploy", packed(tmp_path, form="dynamic"), "-o", tmp_path / "c")
    assert done.code == 2 and "quantize it with form static" in done.err
    (tmp_path / "p.pb").write_bytes(b"graph")
    done = run("rl", "deploy", tmp_path / "p.pb", "-o", tmp_path / "c")
    assert done.code == 3 and "not a quantized policy" in done.err
    assert not (tmp_path / "c").exists()
    with pytest.raises(LoadError):
        load_policy(tmp_path / "p.pb")


@needs_compiler
def test_a_policy_without_a_head_acts_in_no_environment(made, tmp_path):
    done = run("rl", "deploy", packed(tmp_path, "none"), "-o", tmp_path / "c", "--env", "Pull")
    assert done.code == 2 and "has no head" in done.err


def test_only_own_files_are_replaced(tmp_path):
    policy = with_head("argmax")
    deploy(policy, tmp_path / "c")
    (tmp_path / "c" / "mine.txt").write_text("keep")
    for force in (True, False):
        with pytest.raises(Exception, match=r"mine\.txt|not empty"):
            deploy(policy, tmp_path / "c", force=force)
    (tmp_path / "c" / "mine.txt").unlink()
    made = deploy(policy, tmp_path / "c", force=True, name="pilot")
    assert (made.folder / "pilot.c").exists() and not (made.folder / "policy.c").exists()


def test_other_formats_come_with_what_surrounds_the_network(tmp_path):
    import onnxruntime

    policy = policy_of(network(), HEADS["scale"], observed())
    made = deploy(policy, tmp_path / "q", form="onnx-qdq")
    assert made.facts is None and "network.onnx" in made.files
    facts = json.loads((made.folder / "deployment.json").read_text())
    assert facts["head"] == HEADS["scale"].as_json() and facts["format"] == "onnx-qdq"
    known = {op["name"]: op for op in facts["normalization"]}
    kinds = [op["op"] for op in facts["normalization"] if op["op"] != "const"]
    assert {"add", "mul", "minimum", "maximum"} >= set(kinds) and len(kinds) >= 4
    assert any(np.shape(op.get("value")) == (SIZE,) for op in known.values())
    (entry,) = facts["entries"]
    assert entry["spec"]["bits"] == 16 and entry["source"] in known
    assert facts["behind"] == [] and facts["output"] in facts["exits"]
    session = onnxruntime.InferenceSession(made.folder / "network.onnx")
    seen = observed(40, 1)
    (outputs,) = session.run(None, {session.get_inputs()[0].name: seen})
    np.testing.assert_array_equal(HEADS["scale"].actions(outputs), policy(seen))


def test_a_format_that_lacks_the_policy_names_the_reason(tmp_path):
    done = run("rl", "deploy", packed(tmp_path), "-o", tmp_path / "t", "--format", "tosa", "--json")
    assert done.code == 5 and "tosa does not support this policy" in done.err
    assert not (tmp_path / "t").exists()


def test_float_ops_that_c_lacks_are_refused_by_name(tmp_path):
    graph = Graph("probable")
    x = graph.input("seen", "float32", (None, SIZE))
    logits = graph.add("matmul", x, graph.const(np.eye(SIZE, 3, dtype=np.float32)))
    graph.outputs = {"out": graph.add("softmax", logits, attrs={"axis": -1}, name="probabilities")}
    policy = policy_of(graph, HEADS["argmax"], observed())
    with pytest.raises(UnsupportedError, match="`softmax` is computed in float") as error:
        deploy(policy, tmp_path / "c")
    assert error.value.node == "probabilities" and not (tmp_path / "c").exists()


def test_bounds_that_cannot_scale_are_refused(tmp_path):
    head = Head("scale", (-np.inf,) * 4, (np.inf,) * 4)
    policy = policy_of(network(), head, observed())
    with pytest.raises(UnsupportedError, match="bounds that are not finite"):
        deploy(policy, tmp_path / "c")


@pytest.mark.parametrize("kind", ["scale", "squashed_gaussian"])
def test_a_head_that_takes_other_outputs_is_refused(tmp_path, kind):
    policy = policy_of(network(), Head(kind, (-1.0,) * 3, (1.0,) * 3), observed())
    with pytest.raises(UsageError, match=f"4 outputs, but its `{kind}` head takes"):
        deploy(policy, tmp_path / "c")


def test_an_environment_with_other_observations_is_refused(made, tmp_path):
    policy = with_head("argmax")
    with pytest.raises(UsageError, match=r"`Chase` gives observations \[2\]"):
        roll_out(policy, deploy(policy, tmp_path / "c"), "Chase")
