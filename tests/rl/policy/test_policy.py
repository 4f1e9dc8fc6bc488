"""Packed policies: what they compute, their file, what they refuse."""

import json
import subprocess
import sys

import numpy as np
import pytest

from qgraph.errors import CalibrationError, LoadError, OutputError, UnsupportedError, UsageError
from qgraph.exact.reference import Reference
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.rl.actor import Actor, Packer
from qgraph.rl.actor.actor import LEVELS, levels
from qgraph.rl.head import Head
from qgraph.rl.policy import Policy, load_policy, pack, read_policy
from qgraph.rl.policy.file import HEADER, Packed, is_packed, read
from qgraph.rl.policy.static import StaticRunner
from tests.helpers.playing import chaser
from tests.helpers.policy_ops import MIDDLES, SmallPolicy


def seen(n=400, seed=0):
    return np.random.default_rng(seed).normal(0, 2, (n, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def network():
    return read_policy(chaser())


@pytest.fixture(scope="module", params=["dynamic", "static"])
def packed(request, network):
    return pack(network, Head("argmax"), 8, request.param, seen(), {"environment": "Chase"})


@pytest.fixture
def file(packed, tmp_path):
    return packed.write(tmp_path / "p.qpol")


def test_a_file_holds_what_was_packed(packed, file):
    found = read(file)
    assert found.manifest == json.loads(json.dumps(packed.manifest))
    assert found.sections.keys() == packed.sections.keys()
    for name, data in packed.sections.items():
        assert found.sections[name].ctypes.data % 64 == 0
        assert found.sections[name].tobytes() == data.tobytes()
    assert is_packed(file) and not is_packed(file.parent)


def test_actions_are_those_of_the_float_policy_nearly_always(packed, file):
    policy, x = load_policy(file), seen(500, 5)
    wanted = np.where(x[:, 0] > 0.2, 0, np.where(x[:, 0] < -0.2, 2, policy(x)))
    assert (policy(x) == wanted).mean() > 0.97
    assert policy.about["environment"] == "Chase" and policy.head == Head("argmax")
    one = policy(x[3])
    assert one.shape == () and one == policy(x[3:4])[0]
    assert policy.outputs(x[3]).shape == (3,)


def test_the_dynamic_form_is_the_actor(network, tmp_path):
    policy = load_policy(pack(network, Head("argmax"), 4).write(tmp_path / "p.qpol"))
    actor, x = Actor(Packer(network.program, 4, 16, 16).pack(network.weights)), seen(50, 1)
    np.testing.assert_array_equal(policy.outputs(x), actor(x))


def test_the_static_form_is_the_integer_reference_bit_for_bit(network, tmp_path):
    packed = pack(network, Head("argmax"), 8, "static", seen())
    policy, x = load_policy(packed.write(tmp_path / "p.qpol")), seen(300, 2)
    wanted = Reference(StaticRunner(packed).session.graph).outputs({"seen": x})["out"]
    np.testing.assert_array_equal(policy.outputs(x), wanted)
    known = {k: v for k, v in packed.manifest.items() if k not in ("entry", "exits")}
    by_graph = Policy(Packed(known, packed.sections))
    np.testing.assert_array_equal(by_graph.outputs(x), wanted)
    assert policy.program.exits == by_graph.program.exits


def test_observations_beyond_calibration_are_counted(packed):
    policy = Policy(packed)
    low, high = seen().min(0), seen().max(0)
    far, power = [low[0], -1e6], 2.0 ** np.ceil(np.log2(np.abs([low[1], high[1]]).max()))
    x = np.stack([low, high, high + np.float32([0.01, 0]), far, [0, 0]]).astype(np.float32)
    policy(x)
    assert policy.counts == {"observations": 5, "outside": 2, "saturated": 1}
    held = policy.outputs(np.array([low[0], -power], np.float32))
    np.testing.assert_array_equal(policy.outputs(x)[3], held)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(packed, wrong):
    policy, x = Policy(packed), seen(3)
    x[1, 1] = wrong
    with pytest.raises(UsageError, match=r"observation 1 .* at \[1\]|observations\[1, 1\]"):
        policy(x)
    with pytest.raises(UsageError, match="found"):
        policy(np.zeros((3, 4), np.float32))
    with pytest.raises(UsageError, match="found"):
        policy(np.zeros((0, 2), np.float32))


def test_drawn_actions_follow_the_head(network):
    policy = Policy(pack(network, Head("categorical")))
    x = np.zeros((4000, 2), np.float32)
    taken = np.bincount(policy(x, np.random.default_rng(0)), minlength=3) / 4000
    logits = policy.outputs(x[0])
    np.testing.assert_allclose(taken, np.exp(logits) / np.exp(logits).sum(), atol=0.03)
    assert set(policy(x)) == {1}


@pytest.mark.parametrize("at", [0, 9, 13, 20, 30, 70, -3])
def test_damage_is_seen(file, at):
    data = bytearray(file.read_bytes())
    data[at] ^= 0x41
    file.write_bytes(data)
    with pytest.raises(LoadError, match=r"p\.qpol"):
        load_policy(file)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 100, -1])
def test_a_file_that_ends_early_is_refused(file, size):
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(LoadError):
        load_policy(file)


def test_manifests_that_do_not_hold_are_refused(packed, tmp_path):
    for change in (
        {"shape": [3]}, {"head": {"kind": "argmax", "low": 3}}, {"form": "other"},
        {"outputs": ["x"]}, {"range": 3}, {"head": {"kind": "best"}},
    ):  # fmt: skip
        wrong = Packed({**packed.manifest, **change}, packed.sections)
        with pytest.raises((LoadError, UsageError)):
            load_policy(wrong.write(tmp_path / "p.qpol"))(seen(2))
    fewer = Packed(packed.manifest, {"other": packed.sections[next(iter(packed.sections))]})
    with pytest.raises(LoadError):
        load_policy(fewer.write(tmp_path / "p.qpol"))


def test_sections_stay_inside(packed, tmp_path):
    data = packed.as_bytes()
    length = HEADER.unpack(data[: HEADER.size])[2]
    manifest = json.loads(data[HEADER.size : HEADER.size + length])
    manifest["sections"] = dict.fromkeys(manifest["sections"], 10**9)
    import hashlib

    text = json.dumps(manifest).encode()
    body = text.ljust(-(-len(text) // 64) * 64, b"\0") + bytes(640)
    magic, version, *_ = HEADER.unpack(data[: HEADER.size])
    digest = hashlib.sha256(body).digest()
    head = HEADER.pack(magic, version, len(text), HEADER.size + len(body), digest)
    (tmp_path / "p.qpol").write_bytes(head + body)
    with pytest.raises(LoadError, match="ends after the end of the file"):
        load_policy(tmp_path / "p.qpol")


def test_what_cannot_be_packed_is_reported(network, tmp_path):
    head = Head("argmax")
    with pytest.raises(UsageError, match="unknown form `other`"):
        pack(network, head, form="other")
    with pytest.raises(CalibrationError, match="must be calibrated on observations"):
        pack(network, head, form="static")
    with pytest.raises(UsageError, match="2 to 8"):
        pack(network, head, 16, "static", seen())
    with pytest.raises(CalibrationError, match=r"found \[4, 3\]"):
        pack(network, head, observations=np.zeros((4, 3)))
    with pytest.raises(CalibrationError, match="NaN"):
        pack(network, head, observations=np.full((4, 2), np.nan))
    with pytest.raises(OutputError):
        pack(network, head).write(tmp_path / "missing" / "p.qpol")


def test_a_layer_norm_between_layers_is_integer(tmp_path):
    graph = Graph("normed")
    x = graph.input("seen", "float32", (None, 2))
    rng = np.random.default_rng(0)
    weights = [graph.const(rng.normal(size=s).astype("f")) for s in ((2, 8), (8, 3))]
    scales = [graph.const((rng.normal(size=8) + v).astype("f")) for v in (1, 0)]
    hidden = graph.add("matmul", x, weights[0])
    hidden = graph.add("layer_norm", hidden, *scales, name="norm", attrs={"epsilon": 1e-5})
    graph.outputs = {"out": graph.add("matmul", graph.add("relu", hidden), weights[1])}
    packed = pack(read_policy(graph), Head("argmax"), 8, "static", seen())
    policy, x = load_policy(packed.write(tmp_path / "p.qpol")), seen(300, 2)
    assert packed.manifest["entry"] and {"standardize"} <= {s.op for s in policy.program.steps}
    wanted = Reference(StaticRunner(packed).session.graph).outputs({"seen": x})["out"]
    np.testing.assert_array_equal(policy.outputs(x), wanted)
    exact = evaluate(graph, {"seen": x})["out"]
    assert np.abs(wanted - exact).std() < exact.std() / 40


def test_a_static_policy_with_float_ops_inside_is_refused() -> None:
    graph, rng = Graph("masked"), np.random.default_rng(0)
    x = graph.input("seen", "float32", (None, 2))
    weights = [graph.const(rng.normal(size=s).astype("f")) for s in ((2, 8), (8, 3))]
    mask = graph.const(np.float32([0, -1e9] * 4))
    hidden = graph.add("add", graph.add("matmul", x, weights[0]), mask, name="masked")
    both = graph.add("add", graph.add("softmax", hidden), graph.add("relu", hidden))
    graph.outputs = {"out": graph.add("matmul", both, weights[1])}
    with pytest.raises(UnsupportedError, match=r"between integer layers(.|\n)*as dynamic") as error:
        pack(read_policy(graph), Head("argmax"), 8, "static", seen())
    assert error.value.node == "masked"


def test_policies_run_without_tensorflow(packed, file):
    script = (
        "import sys, numpy as np; from qgraph.rl.policy import load_policy;"
        f"load_policy({str(file)!r})(np.zeros((2, 2), 'f'));"
        "assert not {'tensorflow', 'onnx', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("form", ["dynamic", "static"])
def test_a_level_that_this_machine_lacks_is_not_a_fault_of_the_file(form, tmp_path):
    missing = [level for level in LEVELS if level not in (*levels(), "auto")]
    seen = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    network = read_policy(SmallPolicy(MIDDLES["tanh"]).graph)
    path = pack(network, None, 8, form, seen, effort="plain").write(tmp_path / "p.qpol")
    with pytest.raises(UsageError, match="unknown level `fast`"):
        load_policy(path, level="fast")
    for level in missing:
        with pytest.raises(UnsupportedError, match=f"does not support {level}"):
            load_policy(path, level=level)
