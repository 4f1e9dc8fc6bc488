"""States of streamed networks: carried as codes, so that steps equal the network of all steps."""

import json

import numpy as np
import onnx
import pytest
from onnx import helper

import qgraph
from qgraph.errors import CalibrationError, UnsupportedError, UsageError
from qgraph.exact.reference import Reference
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_of
from qgraph.ir.states import states_of
from qgraph.quant.samples.sequences import steps_of
from qgraph.quant.step_states import ends_of
from qgraph.stored import load_graph
from tests.helpers.cli import run
from tests.helpers.onnx_graphs import f, info, model_of

STEPS, SEQUENCES, FEATURES, HIDDEN = 7, 3, 5, 6
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
PAIRS = {"LSTM": {"h": "hn", "c": "cn"}, "GRU": {"h": "hn"}, "RNN": {"h": "hn"}}


def cell(op, batch=1):
    """One step of a recurrent layer, with its states as inputs and outputs, and a dense layer."""
    rows, names = GATES[op] * HIDDEN, [*PAIRS[op]]
    constants = {
        "w": 0.5 * f(1, rows, FEATURES), "r": 0.5 * f(1, rows, HIDDEN), "b": f(1, 2 * rows),
        "v": f(HIDDEN, 2), "shape": np.array([-1, HIDDEN], np.int64),
    }  # fmt: skip
    layer = helper.make_node(
        op, ["x", "w", "r", "b", "", *names], ["y", *PAIRS[op].values()], hidden_size=HIDDEN
    )
    rest = [
        helper.make_node("Reshape", ["hn", "shape"], ["rows"]),
        helper.make_node("MatMul", ["rows", "v"], ["scores"]),
    ]
    states = {name: [1, batch, HIDDEN] for name in names}
    outputs = ("scores", *PAIRS[op].values())
    return model_of([layer, *rest], {"x": [1, batch, FEATURES], **states}, outputs, constants)


def shift_register():
    """A streamed convolution: the last frames are a state."""
    nodes = [
        helper.make_node("Concat", ["old", "x"], ["window"], axis=1),
        helper.make_node("Slice", ["window", "one", "all", "axis"], ["new"]),
        helper.make_node("Conv", ["window", "w"], ["y"]),
    ]
    constants = {
        "w": f(3, 4, 2),
        "one": np.array([1], np.int64),
        "all": np.array([9], np.int64),
        "axis": np.array([1], np.int64),
    }
    return model_of(nodes, {"old": [None, 3, 2], "x": [None, 1, 2]}, ("y", "new"), constants)


def packed_cell():
    """One step of an LSTM whose two states are one tensor."""
    constants = {
        "w": 0.5 * f(1, 4 * HIDDEN, FEATURES), "r": 0.5 * f(1, 4 * HIDDEN, HIDDEN),
        "b": f(1, 8 * HIDDEN), "v": f(HIDDEN, 2), "rows": np.array([1, HIDDEN], np.int64),
        "one": np.array([1, 1, HIDDEN], np.int64), "halves": np.array([HIDDEN, HIDDEN], np.int64),
        "time": np.array([1, 1, FEATURES], np.int64),
    }  # fmt: skip
    nodes = [
        helper.make_node("Split", ["old", "halves"], ["h2", "c2"], axis=1),
        *(helper.make_node("Reshape", [n + "2", "one"], [n]) for n in "hc"),
        helper.make_node("Reshape", ["x", "time"], ["x3"]),
        helper.make_node(
            "LSTM", ["x3", "w", "r", "b", "", "h", "c"], ["", "hn", "cn"], hidden_size=HIDDEN
        ),
        *(helper.make_node("Reshape", [n, "rows"], [n + "2"]) for n in ("hn", "cn")),
        helper.make_node("Concat", ["hn2", "cn2"], ["new"], axis=1),
        helper.make_node("MatMul", ["hn2", "v"], ["scores"]),
    ]
    return model_of(
        nodes, {"old": [1, 2 * HIDDEN], "x": [1, FEATURES]}, ("scores", "new"), constants
    )


def made(model, pairs, tmp_path, **options):
    path = tmp_path / "step.onnx"
    onnx.save(model, path)
    (kind,) = [i.type.tensor_type for i in model.graph.input if i.name == "x"]
    shape = [d.dim_value for d in kind.shape.dim][1:]
    data = np.random.default_rng(1).normal(size=(SEQUENCES, STEPS, *shape)).astype(np.float32)
    options = {"effort": "plain"} | options
    return qgraph.quantize(path, {"x": data}, states=pairs, **options), data


def unrolled(step: Graph, steps: int) -> Graph:
    """Copies of a quantized step, each of which takes the states of the one before."""
    whole, states, before = Graph("unrolled"), states_of(step), dict[str, str]()
    for t in range(steps):
        values = {}
        for node in step.topological():
            if node.name in before:
                values[node.name] = before[node.name]
                continue
            name = f"{node.name}@{t}" if node.op != "const" else f"{node.name}@"
            if node.op == "input":
                kind = step.types[node.name]
                values[node.name] = whole.input(name, kind.dtype, kind.shape)
            elif node.op == "const" and name in whole.nodes:
                values[node.name] = name
            else:
                inputs = [values[v] for v in node.inputs]
                added = whole.add(
                    node.op, *inputs, name=name, attrs=node.attrs, outputs=node.outputs
                )
                values.update(zip(node.values, whole.nodes[added].values, strict=True))
        before = {name: values[step.outputs[output]] for name, output in states.items()}
        for public, value in step.outputs.items():
            whole.outputs[f"{public}@{t}"] = values[value]
    whole.facts |= step.facts
    return whole


NETWORKS = {op: (lambda op=op: (cell(op), PAIRS[op])) for op in GATES}
NETWORKS["packed"] = lambda: (packed_cell(), {"old": "new"})
NETWORKS["shift register"] = lambda: (shift_register(), {"old": "new"})


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("profile", ["graffitist-int8", "int32-bias", "policy-int8"])
def test_steps_equal_the_network_of_all_steps(name, profile, tmp_path) -> None:
    model, pairs = NETWORKS[name]()
    result, data = made(model, pairs, tmp_path, profile=profile)
    result.save(tmp_path / "out")
    session = qgraph.Session.open(tmp_path / "out")
    whole = unrolled(result.graph, STEPS)
    for sequence in data:
        stream, feeds = session.stream(), {}
        streamed = stream.run({"x": sequence[None]})
        for t, frame in enumerate(sequence):
            feeds[f"x@{t}"] = frame[None]
            if t == 0:
                feeds |= {f"{n}@0": np.zeros_like(s) for n, s in stream.states.items()}
        wanted = Reference(whole).outputs(feeds)
        for public, found in streamed.items():
            for t in range(STEPS):
                np.testing.assert_array_equal(found[0, t], wanted[f"{public}@{t}"][0])
        for state, output in pairs.items():
            np.testing.assert_array_equal(stream.states[state], wanted[f"{output}@{STEPS - 1}"])
            assert np.any(stream.states[state])


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("effort", ["plain", "fast"])
def test_both_ends_of_a_state_have_one_format(name, effort, tmp_path) -> None:
    model, pairs = NETWORKS[name]()
    result, _ = made(model, pairs, tmp_path, effort=effort)
    for state in pairs:
        entering, leaving = ends_of(result.graph, state)
        assert entering and leaving
        specs = [spec_of(result.graph.nodes[n]) for n in (*entering, *leaving)]
        assert len({(s.bits, s.signed, s.exponent) for s in specs}) == 1, specs
    wide = {"LSTM": {"c"}, "GRU": {"h"}, "packed": {"old"}}.get(name, set())
    for state in pairs:
        bits = spec_of(result.graph.nodes[ends_of(result.graph, state)[0][0]]).bits
        assert bits == (16 if state in wide else 8), state


def test_calibration_carries_the_states_of_the_float_network(tmp_path) -> None:
    result, data = made(cell("LSTM"), PAIRS["LSTM"], tmp_path)
    graph = qgraph.load(tmp_path / "step.onnx")
    for name, output in PAIRS["LSTM"].items():
        graph.set_attrs(name, state=output)
    steps = steps_of(graph, {"x": data})
    assert {n: a.shape for n, a in steps.items()} == {
        "x": (SEQUENCES * STEPS, 1, FEATURES),
        "h": (SEQUENCES * STEPS, 1, HIDDEN),
        "c": (SEQUENCES * STEPS, 1, HIDDEN),
    }
    for i in range(SEQUENCES * STEPS):
        state = {name: steps[name][i : i + 1] for name in ("h", "c")}
        if i % STEPS == 0:
            assert not any(np.any(array) for array in state.values())
            continue
        before = {name: array[i - 1 : i] for name, array in steps.items()}
        found = evaluate(graph, before)
        np.testing.assert_array_equal(found["hn"], state["h"])
        np.testing.assert_array_equal(found["cn"], state["c"])
    assert result.facts.agreement is not None


def test_several_sequences_run_side_by_side(tmp_path) -> None:
    result, data = made(shift_register(), {"old": "new"}, tmp_path)
    result.save(tmp_path / "out")
    session = qgraph.Session.open(tmp_path / "out")
    together = session.stream(SEQUENCES).run({"x": data})
    assert [*together] == ["y"]
    for i in range(SEQUENCES):
        alone = session.stream().run({"x": data[i : i + 1]})
        np.testing.assert_array_equal(together["y"][i], alone["y"][0])
    stream = session.stream()
    first = stream.step({"x": data[:1, 0]})["y"]
    stream.step({"x": data[:1, 1]})
    stream.reset()
    np.testing.assert_array_equal(stream.step({"x": data[:1, 0]})["y"], first)


def test_a_streamed_convolution_is_integer_from_its_state_on(tmp_path) -> None:
    result, _ = made(shift_register(), {"old": "new"}, tmp_path)
    assert not result.facts.warnings or "float" not in " ".join(result.facts.warnings)
    assert {n.op for n in result.graph.topological() if n.op in ("concat", "slice")}
    entering, leaving = ends_of(result.graph, "old")
    assert {*entering} <= {*leaving}  # the same codes move from one end to the other


def test_the_mark_of_a_state_is_part_of_the_text_form(tmp_path) -> None:
    result, _ = made(cell("GRU"), PAIRS["GRU"], tmp_path)
    assert 'state="hn"' in str(result.graph)
    stored = load_graph(result.save(tmp_path / "out"))
    assert states_of(stored) == {"h": "hn"} and str(stored) == str(result.graph)


@pytest.mark.parametrize(
    ("pairs", "wanted"),
    [
        ({"g": "hn"}, "no input `g`"),
        ({"h": "gn"}, "no output `gn`"),
        ({"h": "scores"}, "the input is float32"),
        ({"h": "hn", "c": "cn", "x": "hn"}, "the input is float32"),
    ],
)
def test_pairs_that_do_not_fit_are_refused(pairs, wanted, tmp_path) -> None:
    with pytest.raises(UsageError, match=wanted):
        made(cell("LSTM"), pairs, tmp_path)


def test_sequences_are_needed(tmp_path) -> None:
    path = tmp_path / "step.onnx"
    onnx.save(cell("GRU"), path)
    with pytest.raises(CalibrationError, match="calibration data is missing"):
        qgraph.quantize(path, states={"h": "hn"})
    with pytest.raises(CalibrationError, match="sequences has shape"):
        qgraph.quantize(path, {"x": f(4, 1, FEATURES)}, states={"h": "hn"})
    with pytest.raises(UsageError, match="has no states"):
        result = qgraph.quantize(path, {"x": f(4, 1, FEATURES), "h": f(4, 1, HIDDEN)})
        result.save(tmp_path / "out")
        qgraph.Session.open(tmp_path / "out").stream()


def test_a_state_that_is_computed_in_float_is_refused(tmp_path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Add", ["y", "h"], ["sum"]),
        helper.make_node("CumSum", ["sum", "axis"], ["hn"]),
        helper.make_node("Mod", ["hn", "wrap"], ["z"], fmod=1),
    ]
    model = model_of(
        nodes,
        {"x": info("x", [None, 4]), "h": info("h", [None, 4])},
        ("y", "z"),
        {"w": f(4, 4), "wrap": np.float32(1.5), "axis": np.array(1, np.int64)},
    )
    with pytest.raises(UnsupportedError, match=r"state `h`, output `z`, is computed in float"):
        made(model, {"h": "z"}, tmp_path)


def test_the_command_line_quantizes_and_runs_sequences(tmp_path) -> None:
    onnx.save(cell("LSTM"), tmp_path / "step.onnx")
    data = np.random.default_rng(1).normal(size=(SEQUENCES, STEPS, 1, FEATURES))
    np.savez(tmp_path / "s.npz", x=data.astype(np.float32))
    words = ["quantize", tmp_path / "step.onnx", "-c", tmp_path / "s.npz", "-o", tmp_path / "out"]
    words += ["--state", "h=hn", "--state", "c=cn", "--effort", "plain"]
    found = run(*words)
    assert found.code == 0, found.err
    words = ["run", tmp_path / "out", "-i", tmp_path / "s.npz", "--json", "-o", tmp_path / "y.npz"]
    found = run(*words)
    assert found.code == 0, found.err
    assert json.loads(found.out)["outputs"] == {"scores": [SEQUENCES, STEPS, 2]}
    stream = qgraph.Session.open(tmp_path / "out").stream(SEQUENCES)
    wanted = stream.run({"x": data.astype(np.float32)})["scores"]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["scores"], wanted)
    found = run("verify", tmp_path / "out")
    assert found.code == 0, found.err


@pytest.mark.parametrize("text", ["h", "h=", "=hn"])
def test_a_pair_that_is_not_one_is_refused(text, tmp_path) -> None:
    onnx.save(cell("GRU"), tmp_path / "step.onnx")
    words = ["quantize", str(tmp_path / "step.onnx"), "--state", text, "-o", str(tmp_path / "o")]
    found = run(*words)
    assert found.code == 2 and "is not INPUT=OUTPUT" in found.err
