"""Variables and layers that keep states from run to run: each step gives what LiteRT gives."""

import numpy as np
import pytest

pytest.importorskip("tflite", reason="pip install tflite")
pytest.importorskip("ai_edge_litert", reason="pip install ai-edge-litert")

import tensorflow as tf

import qgraph
from qgraph.backends.tflite.executors import LiteRTSession, MicroSession
from qgraph.backends.tflite.model_builder import QuantizedScale, TfliteModelBuilder
from qgraph.errors import GraphError, UnsupportedError
from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.ir.states import states_of
from qgraph.quant.samples.sequences import first_states
from qgraph.stored import load_network
from qgraph.tflite_schema import schema
from qgraph.verification.verify import verify
from tests.helpers.tflite_files import TOLERANCE

STEPS, WIDTH, UNITS, MEMORY = 7, 5, 4, 3
RELU = 1
FRAMES = np.random.default_rng(1).normal(size=(STEPS, 1, WIDTH)).astype("f4")


class Cell(tf.Module):
    """A step of a recurrent layer, whose state is a variable."""

    def __init__(self, first=0.0):
        rng = np.random.default_rng(0)
        self.h = tf.Variable(tf.fill((1, UNITS), first), name="h")
        self.w = tf.constant(rng.normal(size=(WIDTH, UNITS)).astype("f4"))
        self.r = tf.constant(rng.normal(size=(UNITS, UNITS)).astype("f4"))
        self.out = tf.constant(rng.normal(size=(UNITS, 2)).astype("f4"))

    @tf.function
    def __call__(self, x):
        self.h.assign(tf.tanh(x @ self.w + self.h @ self.r))
        return {"y": self.h @ self.out}


class Variables(tf.Module):
    """A step with variables: states, one through another, and one that never changes."""

    def __init__(self):
        rng = np.random.default_rng(0)

        def variable(name):
            return tf.Variable(tf.zeros((1, UNITS)), name=name)

        self.h, self.old, self.unused = variable("h"), variable("old"), variable("unused")
        self.scale = tf.Variable(rng.normal(size=UNITS).astype("f4"), name="scale")
        self.w = tf.constant(rng.normal(size=(WIDTH, UNITS)).astype("f4"))
        self.r = tf.constant(rng.normal(size=(UNITS, UNITS)).astype("f4"))

    @tf.function
    def __call__(self, x):
        previous = tf.identity(self.h)
        self.h.assign(tf.tanh(x @ self.w + previous @ self.r))
        made = {"y": self.h.read_value() * self.scale + self.old, "z": x * 2.0}
        self.old.assign(previous)
        self.unused.assign(previous)
        return made


def file_of(module):
    spec = tf.TensorSpec((1, WIDTH), tf.float32, name="x")
    function = module.__call__.get_concrete_function(spec)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], module)
    converter.experimental_enable_resource_variables = True
    return converter.convert()


def svdf(rank=1, memory=MEMORY, bias=True, **fields):
    """A file with one SVDF of floats."""
    builder, rng = TfliteModelBuilder("m"), np.random.default_rng(0)

    def weights(*shape):
        array = rng.normal(size=shape).astype("f4")
        return builder.tensor("w", shape, "float32", data=array.tobytes())

    filters = UNITS * rank
    builder.inputs["x"] = builder.tensor("x", (1, WIDTH), "float32")
    state = builder.tensor("state", (1, memory * filters), "float32")
    builder._tensors[state].fields["IsVariable"] = True
    inputs = [builder.inputs["x"], weights(filters, WIDTH), weights(filters, memory)]
    inputs += [weights(UNITS) if bias else -1, state]
    made = builder.tensor("y", (1, UNITS), "float32")
    fields = {"Rank": rank, **fields}
    builder.outputs["y"] = builder.operator("SVDF", inputs, made, "SVDFOptions", **fields)
    return builder.model({})


def integer_svdf(state_type, exponents, zero):
    """A file with one SVDF of int8, whose state may have another type. zero: of the output."""
    x, w, over_time, kept, y = exponents
    builder, rng = TfliteModelBuilder("m"), np.random.default_rng(0)

    def codes(name, shape, dtype, exponent, limit):
        array = rng.integers(-limit, limit, shape).astype(dtype)
        return builder.constant(name, array, QuantizedScale(exponent))

    builder.inputs["x"] = builder.tensor("x", (1, WIDTH), "int8", QuantizedScale(x))
    state = builder.tensor("s", (1, MEMORY * UNITS), state_type, QuantizedScale(kept))
    builder._tensors[state].fields["IsVariable"] = True
    time_type = "int16" if state_type == "int16" else "int8"
    inputs = [
        builder.inputs["x"],
        codes("w", (UNITS, WIDTH), "int8", w, 128),
        codes("t", (UNITS, MEMORY), time_type, over_time, 128),
        codes("b", (UNITS,), "int32", over_time + kept, 256),
        state,
    ]
    made = builder.tensor("y", (1, UNITS), "int8", QuantizedScale(y, zero))
    fields = {"Rank": 1, "FusedActivationFunction": RELU}
    builder.outputs["y"] = builder.operator("SVDF", inputs, made, "SVDFOptions", **fields)
    return builder.model({})


FILES = {
    "variables": file_of(Variables()),
    "cell": file_of(Cell()),
    "svdf": svdf(),
    "svdf of one frame": svdf(memory=1),
    "svdf of two filters": svdf(rank=2, FusedActivationFunction=RELU),
    "svdf without bias": svdf(rank=3, bias=False),
}


def stepped(graph, frames):
    """The outputs of each step that are not states, by name."""
    states, (name,) = states_of(graph), [i for i in graph.inputs if i not in states_of(graph)]
    held, steps = first_states(graph, 1), []
    for frame in frames:
        found = evaluate(graph, {name: frame, **held})
        held = {state: found[public] for state, public in states.items()}
        steps.append([found[public] for public in found if public not in states.values()])
    return steps


def stepped_in_executor(data, frames, *, tflm=False):
    """The outputs of each step, in the order of the file."""
    if tflm:
        pytest.importorskip("tflite_micro", reason="pip install tflite-micro")
    session = MicroSession(data, True) if tflm else LiteRTSession(data, True, True)
    outputs = schema().Model.GetRootAs(data, 0).Subgraphs(0).OutputsAsNumpy()
    steps = []
    for frame in frames:
        session.run([frame])
        steps.append([session.tensor(int(i)).copy() for i in outputs])
    return steps


@pytest.mark.parametrize("name", FILES)
def test_every_step_is_that_of_litert(name, tmp_path):
    (tmp_path / "m.tflite").write_bytes(FILES[name])
    graph = load(tmp_path / "m.tflite")
    wanted = stepped_in_executor(FILES[name], FRAMES)
    assert len({array.tobytes() for array in wanted[-1]} | {wanted[0][0].tobytes()}) > 1
    for found, expected in zip(stepped(graph, FRAMES), wanted, strict=True):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=TOLERANCE * 10)


def test_variables_become_states_or_constants(tmp_path):
    (tmp_path / "m.tflite").write_bytes(FILES["variables"])
    graph = load(tmp_path / "m.tflite")
    assert states_of(graph) == {"h": "h_next", "old": "old_next"}
    assert set(graph.outputs) == {"y", "z", "h_next", "old_next"}
    assert any("`h` is kept from run to run" in note for note in graph.notes)


def test_outputs_without_states_have_none(tmp_path):
    (tmp_path / "m.tflite").write_bytes(FILES["variables"])
    graph = load(tmp_path / "m.tflite", outputs=["z"])
    assert not states_of(graph) and list(graph.outputs) == ["z"]
    graph = load(tmp_path / "m.tflite", outputs=["y"], inputs=list(graph.inputs))
    assert set(states_of(graph)) == {"h", "old"}


def test_a_first_value_other_than_zero_is_refused(tmp_path):
    (tmp_path / "m.tflite").write_bytes(file_of(Cell(0.5)))
    with pytest.raises(UnsupportedError, match="h: the first value of this variable is not zero"):
        load(tmp_path / "m.tflite")


@pytest.mark.parametrize(
    ("data", "error", "reason"),
    [
        (svdf(rank=2, Rank=3), GraphError, "`SVDF` of rank 3"),
        (svdf(AsymmetricQuantizeInputs=True, FusedActivationFunction=9), UnsupportedError, "9"),
    ],
)
def test_an_svdf_that_is_not_read_is_refused_by_name(data, error, reason, tmp_path):
    (tmp_path / "m.tflite").write_bytes(data)
    with pytest.raises(error, match=f"y: .*{reason}"):
        load(tmp_path / "m.tflite")


@pytest.mark.parametrize(
    ("state_type", "executor"), [("int16", "litert"), ("int16", "tflm"), ("int8", "tflm")]
)
@pytest.mark.parametrize("zero", [-128, 0])
def test_an_svdf_of_codes_gives_the_numbers_of_its_codes(state_type, executor, zero, tmp_path):
    """Within two steps of the output. Kernels of codes only saturate, whatever the activation."""
    kept, y = (0, -1) if state_type == "int8" else (8, 0)
    data = integer_svdf(state_type, (4, 6, 6, kept, y), zero)
    (tmp_path / "m.tflite").write_bytes(data)
    codes = np.random.default_rng(0).integers(-128, 128, (STEPS, 1, WIDTH)).astype(np.int8)
    steps = stepped_in_executor(data, codes, tflm=executor == "tflm")
    wanted = [expected.astype(int) for (expected,) in steps]
    assert len(np.unique(wanted)) > UNITS
    frames = np.ldexp(codes.astype("f4"), -4)
    for keep in (False, True):
        graph = load(tmp_path / "m.tflite", keep_scales=keep)
        for (found,), expected in zip(stepped(graph, frames), wanted, strict=True):
            nearest = np.clip(np.ldexp(found, y) + zero, -128, 127)
            assert np.abs(nearest - expected).max() <= 2
        quantizers = [node.op for node in graph.nodes.values()].count("quantize")
        assert quantizers == (4 if keep else 0)


@pytest.mark.parametrize("name", ["cell", "svdf", "svdf of two filters"])
def test_a_file_with_states_is_quantized_and_streamed(name, tmp_path):
    """As with `--state`: samples are sequences, and every form equals the reference."""
    (tmp_path / "m.tflite").write_bytes(FILES[name])
    sequences = np.random.default_rng(0).normal(size=(8, STEPS, WIDTH)).astype("f4")
    made = qgraph.quantize(tmp_path / "m.tflite", sequences, effort="plain", profile="tflm")
    found = verify(made.save(tmp_path / "out"), forms=["tflite", "c"])
    assert found.equal and not found.refused
    assert not load_network(tmp_path / "out").program.has_islands
    session = qgraph.Session.open(tmp_path / "out")
    (given,) = [i for i in made.graph.inputs if i not in states_of(made.graph)]
    first = session.stream(len(sequences)).run({given: sequences})
    float_first = np.stack([s[0][0] for s in stepped(load(tmp_path / "m.tflite"),
                                                     sequences[0][:, None])])  # fmt: skip
    assert np.abs(first["y"][0] - float_first).max() < 0.2


@pytest.mark.parametrize("codes", [False, True])
def test_an_export_with_states_is_read_again(codes, tmp_path):
    """Its states are named in the file; the network has the same codes again."""
    (tmp_path / "m.tflite").write_bytes(FILES["cell"])
    sequences = np.random.default_rng(0).normal(size=(8, STEPS, WIDTH)).astype("f4")
    made = qgraph.quantize(tmp_path / "m.tflite", sequences, effort="plain", profile="tflm")
    made.save(tmp_path / "out")
    qgraph.export(tmp_path / "out", "tflite", tmp_path / "file", options={"codes": codes})
    path = tmp_path / "file" / "network.tflite"
    assert states_of(load(path)) == {"h": "h_next"}
    again = qgraph.quantize(path, sequences, profile="tflm")
    again.save(tmp_path / "again")
    first, second = (
        qgraph.Session.open(tmp_path / name).stream(len(sequences)) for name in ("out", "again")
    )
    (given,) = [i for i in made.graph.inputs if i != "h"]
    (other,) = [i for i in again.graph.inputs if i != "h"]
    found = second.run({other: sequences})["y"]
    np.testing.assert_array_equal(first.run({given: sequences})["y"], found)
