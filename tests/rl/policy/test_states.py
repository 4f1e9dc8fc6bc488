"""Recurrent policies in files: ONNX of exporters, dynamic and static, with states in and out."""

from functools import cache

import numpy as np
import pytest

from qgraph.errors import CalibrationError, LoadError, UnsupportedError, UsageError
from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from qgraph.rl.actor.actor import levels
from qgraph.rl.head import Head
from qgraph.rl.policy import Policy, load_policy, pack, read_policy
from qgraph.rl.policy.build import float_outputs, rows_with_states
from qgraph.rl.policy.recurrent_outputs import RecurrentOutputs
from tests.helpers.exported_policies import ml_agents, rsl_rl

BOTH = {"h_in": "h_out", "c_in": "c_out"}
ACTIONS = "deterministic_continuous_actions"
KINDS = {
    "lstm": (lambda: rsl_rl.recurrent("LSTM"), "obs", "actions", BOTH),
    "gru": (lambda: rsl_rl.recurrent("GRU"), "obs", "actions", {"h_in": "h_out"}),
    "two lstm": (lambda: rsl_rl.recurrent("LSTM", 2), "obs", "actions", BOTH),
    "two gru": (lambda: rsl_rl.recurrent("GRU", 2), "obs", "actions", {"h_in": "h_out"}),
    "memory": (
        lambda: ml_agents.continuous(recurrent=True),
        "obs_0",
        ACTIONS,
        {"recurrent_in": "recurrent_out"},
    ),
}
HEAD = Head("clip", (-0.8,) * 3, (0.9,) * 3)


def sequences(n=8, steps=12, seed=1):
    return np.random.default_rng(seed).normal(0, 1.5, (n, steps, 6)).astype(np.float32)


@cache
def file_of(name, folder):
    import onnx

    path = folder / f"{name.replace(' ', '_')}.onnx"
    onnx.save(KINDS[name][0](), path)
    return path


@cache
def network_of(name, folder):
    _, _, output, states = KINDS[name]
    return read_policy(file_of(name, folder), outputs=[output], states=states)


@pytest.fixture
def network(request, tmp_path_factory):
    return network_of(request.param, tmp_path_factory.getbasetemp())


def with_onnxruntime(name, path, seen):
    """The actions of a sequence [steps, n] by ONNX Runtime, which feeds states back."""
    onnxruntime = pytest.importorskip("onnxruntime")
    _, observation, output, states = KINDS[name]
    session = onnxruntime.InferenceSession(str(path))
    names = [each.name for each in session.get_outputs()]
    sizes = {each.name: each.shape for each in session.get_inputs()}
    given = {
        name: np.zeros([size if isinstance(size, int) else 1 for size in shape], "f")
        for name, shape in sizes.items()
    }
    found = []
    for x in seen:
        outputs = session.run(None, given | {observation: x[None]})
        after = dict(zip(names, outputs, strict=True))
        found.append(after[output][0])
        given |= {name: after[follows] for name, follows in states.items()}
    return np.stack(found)


@cache
def packed_of(name, folder, form):
    effort = "plain" if form == "static" else None
    return pack(network_of(name, folder), HEAD, 8, form, sequences(), effort=effort)


@pytest.mark.parametrize("name", KINDS)
def test_the_float_program_remembers_as_onnx_runtime(name, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    path, network = file_of(name, folder), network_of(name, folder)
    seen = sequences(3)
    rows = rows_with_states(network, seen)
    found = float_outputs(network)(rows).reshape(*seen.shape[:2], -1)
    for ours, one in zip(found, seen, strict=True):
        np.testing.assert_allclose(ours, with_onnxruntime(name, path, one), atol=2e-6)
    forgetful = float_outputs(network)(rows * (np.arange(rows.shape[1]) < 6))
    assert np.abs(forgetful.reshape(found.shape) - found).max() > 0.05


@pytest.mark.parametrize("name", KINDS)
def test_dynamic_policies_have_the_same_bits_at_every_level(name, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    network, packed = network_of(name, folder), packed_of(name, folder, "dynamic")
    seen = sequences(5, 15, 2)
    found = {}
    for level in levels():
        policy = Policy(packed, level)
        found[level] = [policy(seen[:, t]).tobytes() for t in range(15)]
    assert len({tuple(each) for each in found.values()}) == 1 and len(found) > 1
    wanted = float_outputs(network)(rows_with_states(network, seen)).reshape(5, 15, -1)
    policy = Policy(packed)
    apart = [policy(seen[:, t]) - np.clip(wanted[:, t], -0.8, 0.9) for t in range(15)]
    assert np.abs(apart).max() < 0.1 and np.abs(apart).mean() < 0.02


@pytest.mark.parametrize("name", KINDS)
def test_static_policies_are_the_integer_reference_bit_for_bit(name, tmp_path_factory):
    policy = Policy(packed_of(name, tmp_path_factory.getbasetemp(), "static"))
    seen = sequences(1, 15, 2)[0]
    reference = Reference(policy.network.graph)
    columns = policy.columns
    given = {s.name: np.zeros((1, s.size), np.float32) for s in columns.states}
    types = policy.network.graph.types
    for x in seen:
        feeds = {columns.parts[0].name: x[None], **given}
        shaped = {
            name: value.reshape([size or 1 for size in types[name].shape])
            for name, value in feeds.items()
        }
        exact = reference.outputs(shaped)
        given = {s.name: exact[s.output].reshape(1, -1) for s in columns.states}
        assert policy.run(x)[policy.names[0]].tobytes() == exact[policy.names[0]][0].tobytes()
        assert policy._states.tobytes() == np.concatenate([*given.values()], 1).tobytes()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("form", ["dynamic", "static"])
def test_a_reset_begins_with_fresh_states(name, form, tmp_path_factory, tmp_path):
    packed = packed_of(name, tmp_path_factory.getbasetemp(), form)
    policy, seen = load_policy(packed.write(tmp_path / "p.qpol")), sequences(2, 6, 3)
    first = [policy(seen[:, t]) for t in range(6)]
    again = [policy(seen[:, t]) for t in range(6)]
    assert any((a != b).any() for a, b in zip(first, again, strict=True))
    policy.reset()
    assert [policy(seen[:, t]).tobytes() for t in range(6)] == [a.tobytes() for a in first]
    policy.reset()  # side by side or alone: no sample sees another one
    alone = [policy(seen[1, t]) for t in range(6)]
    assert [a.tobytes() for a in alone] == [a[1].tobytes() for a in first]
    with pytest.raises(UsageError, match="2 observations follow 1"):
        policy(seen[:, 0])


@pytest.mark.parametrize("name", ["lstm", "two gru"])
def test_given_states_are_carried_states(name, tmp_path_factory):
    """`played`, for episodes side by side, is the policy that carries its own states."""
    policy = Policy(packed_of(name, tmp_path_factory.getbasetemp(), "dynamic"))
    other, seen = policy.played, sequences(3, 9, 4)
    assert isinstance(other, RecurrentOutputs)
    states = other.first_states(3)
    for t in range(9):
        found, states = other.step(seen[:, t], states)
        assert found.tobytes() == policy.outputs(seen[:, t]).tobytes()


@pytest.mark.parametrize("network", ["lstm"], indirect=True)
def test_recurrent_kernels_have_few_bits_and_parts_are_slices(network):
    from qgraph.rl.actor import read_block

    packed = pack(network, HEAD, 4)
    kernels = read_block(packed.sections["block"]).layout.kernels
    bits = {}
    for step in network.program.steps:
        if step.definition.layer:
            kind = step.output
            bits.setdefault("recurrent" if "recurrent" in kind else kind, set()).add(
                kernels[step.weights[0]].bits
            )
    assert bits["recurrent"] == {4} and bits["actions"] == {16}
    taken = [step.attrs.columns[0] for step in network.program.steps if step.op == "slice"]
    assert 0 in taken and 6 in taken


@pytest.mark.parametrize("network", ["gru"], indirect=True)
def test_observations_of_recurrent_policies_are_sequences(network):
    for form in ("dynamic", "static"):
        with pytest.raises(CalibrationError, match="sequences"):
            pack(network, HEAD, 8, form, sequences()[:, 0])


@pytest.mark.parametrize("network", ["gru"], indirect=True)
def test_a_block_of_another_policy_is_refused(network):
    packed = pack(network, HEAD, 8, "dynamic", sequences())
    columns = dict(packed.manifest["columns"])
    columns["states"] = [{**columns["states"][0], "output": "other"}]
    with pytest.raises(LoadError, match="manifest is damaged"):
        Policy(type(packed)({**packed.manifest, "columns": columns}, packed.sections))


def test_states_that_do_not_fit_are_refused(tmp_path_factory):
    path = file_of("lstm", tmp_path_factory.getbasetemp())
    with pytest.raises(UsageError, match="no input `x`"):
        read_policy(path, outputs=["actions"], states={"x": "h_out"})
    with pytest.raises(UnsupportedError, match="`obs`, `c_in`"):
        read_policy(path, outputs=["actions"], states={"h_in": "h_out"})
    graph = Graph("all")
    x = graph.input("x", "float32", (None, 3))
    graph.outputs = {"y": graph.add("tanh", x)}
    with pytest.raises(UsageError, match="every input"):
        read_policy(graph, states={"x": "y"})


def test_parts_of_an_observation():
    rng, graph = np.random.default_rng(0), Graph("parts")
    near, far = graph.input("near", "float32", (None, 3)), graph.input("far", "float32", (None, 2))
    one = graph.add("matmul", near, graph.const(rng.normal(size=(3, 4)).astype("f")))
    two = graph.add("matmul", far, graph.const(rng.normal(size=(2, 4)).astype("f")))
    both = graph.add("tanh", graph.add("add", one, two))
    last = graph.const(rng.normal(size=(4, 3)).astype("f"))
    graph.outputs = {"out": graph.add("matmul", both, last)}
    with pytest.raises(UnsupportedError, match="several inputs"):
        read_policy(graph)
    network = read_policy(graph, inputs=["near", "far"])
    assert network.shape == (5,) and not network.states
    seen = rng.normal(size=(64, 5)).astype(np.float32)
    efforts = {"dynamic": None, "static": "plain"}
    for form in efforts:
        policy = Policy(pack(network, Head("argmax"), 8, form, seen, effort=efforts[form]))
        parts = {"far": seen[:, 3:], "near": seen[:, :3]}
        np.testing.assert_array_equal(policy(parts), policy(seen))
        one = {name: x[0] for name, x in parts.items()}
        assert policy(one) == policy(seen[0])
        with pytest.raises(UsageError, match="near"):
            policy({"near": seen[:, :3]})
        exact = Reference(policy.network.graph).outputs(parts) if form == "static" else None
        assert exact is None or exact["out"].tobytes() == policy.outputs(seen).tobytes()


@pytest.mark.parametrize("order", [("h", "c"), ("c", "h")])
@pytest.mark.parametrize("after", [("h", "c"), ("c", "h")])
def test_states_may_be_in_another_order_than_their_outputs(order, after):
    graph = Graph("orders")
    graph.input("x", "float32", (None, 3))
    for name in order:
        graph.input(name, "float32", (None, 3))
    h = graph.add("tanh", graph.add("add", "x", "c"), name="next_h")
    c = graph.add("sigmoid", graph.add("mul", "x", "h"), name="next_c")
    kernel = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    out = graph.add("matmul", h, graph.const(kernel))
    values = {"h": h, "c": c}
    graph.outputs = {**{f"{name}_out": values[name] for name in after}, "out": out}
    network = read_policy(graph, states={"c": "c_out", "h": "h_out"})
    assert network.program.outputs == ("out", *(f"{name}_out" for name in order))
    seen = sequences(2, 5)[..., :3]
    policy = Policy(pack(network, None, 32))
    states = {name: np.zeros((2, 3)) for name in "hc"}
    for t in range(5):
        h = np.tanh(seen[:, t] + states["c"])
        states = {"h": h, "c": 1 / (1 + np.exp(-seen[:, t] * states["h"]))}
        np.testing.assert_allclose(policy(seen[:, t]), h @ kernel, atol=1e-5)
