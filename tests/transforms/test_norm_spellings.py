"""Layer norms and RMS norms in every spelling that exporters write."""

from importlib import import_module

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from qgraph import load, quantize
from qgraph.frontends import load_graph_def
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.recipes import FLOAT
from qgraph.stored import load_network
from qgraph.transforms.recognize_layer_norm import RecognizeLayerNorm
from tests.helpers.evaluate import assert_same_function, run_pass
from tests.helpers.layers import WINDOW
from tests.helpers.op_writer import OpWriter
from tests.helpers.tf_graphs import graph_def_of, v1

CHANNELS, EPSILON = 8, 1e-5


class Writer(OpWriter):
    """Arithmetic on values of a graph; means are over channels, numbers become constants."""

    def __init__(self, graph: Graph, rank: int) -> None:
        self.graph, self.rank = graph, rank
        rng = np.random.default_rng(5)
        self.gamma, self.beta = (
            graph.const(rng.normal(size=CHANNELS).astype(np.float32), n) for n in ("gamma", "beta")
        )

    def number(self, value: float) -> str:
        return self.graph.const(np.float32(value), "c")

    def over(self, x: str, op: str = "mean", keep: bool = True) -> str:
        return self.graph.add(op, x, attrs={"axes": (self.rank - 1,), "keepdims": keep})

    def flat(self, x: str, op: str = "mean") -> str:
        """Reduced without its axis, which is put back by another op."""
        shape = self.graph.types[x].shape or ()
        kept = (*(-1 if d is None else d for d in shape[:-1]), 1)
        return self.graph.add("reshape", self.over(x, op, keep=False), attrs={"shape": kept})


def centred(w, x):
    return w.sub(x, w.over(x))


VARIANCES = {
    "mul": lambda w, x: w.over(w.mul(centred(w, x), centred(w, x))),
    "pow": lambda w, x: w.over(w.pow(centred(w, x), 2.0)),
    "square": lambda w, x: w.over(w.square(centred(w, x))),
    "squared difference": lambda w, x: w.over(w.squared_difference(x, w.over(x))),
    "E[x2]-E[x]2": lambda w, x: w.sub(w.over(w.mul(x, x)), w.square(w.over(x))),
    "Flax": lambda w, x: w.maximum(0.0, w.sub(w.over(w.square(x)), w.square(w.over(x)))),
    "relu": lambda w, x: w.relu(w.sub(w.over(w.square(x)), w.square(w.over(x)))),
    "sum/c": lambda w, x: w.div(w.over(w.square(centred(w, x)), "sum"), float(CHANNELS)),
    "without its axis": lambda w, x: w.flat(w.square(w.sub(x, w.flat(x)))),
}
DIVIDED = {
    "div sqrt": lambda w, d, v: w.div(d, w.sqrt(w.add(v, EPSILON))),
    "mul rsqrt": lambda w, d, v: w.mul(d, w.rsqrt(w.add(EPSILON, v))),
    "mul reciprocal": lambda w, d, v: w.mul(d, w.reciprocal(w.sqrt(w.add(v, EPSILON)))),
    "mul 1/sqrt": lambda w, d, v: w.mul(w.div(1.0, w.sqrt(w.add(v, EPSILON))), d),
    "pow -0.5": lambda w, d, v: w.mul(d, w.pow(w.add(v, EPSILON), -0.5)),
    "div pow": lambda w, d, v: w.div(d, w.pow(w.add(v, EPSILON), 0.5)),
}
ENDS = {
    "gamma, beta": lambda w, n: w.add(w.mul(n, w.gamma), w.beta),
    "beta + gamma": lambda w, n: w.add(w.beta, w.mul(w.gamma, n)),
    "gamma": lambda w, n: w.mul(w.gamma, n),
    "beta": lambda w, n: w.add(n, w.beta),
    "nothing": lambda w, n: n,
}


def whole(variance, divided, end):
    return lambda w, x: end(w, divided(w, centred(w, x), variance(w, x)))


def normalization(w, x):
    """tf.nn.batch_normalization on moments: x * m + (beta - mean * m)."""
    m = w.mul(w.rsqrt(w.add(VARIANCES["squared difference"](w, x), EPSILON)), w.gamma)
    return w.add(w.mul(x, m), w.sub(w.beta, w.mul(w.over(x), m)))


def keras_3(w, x):
    """x * m + (-mean * m + beta)"""
    m = w.mul(w.rsqrt(w.add(VARIANCES["square"](w, x), EPSILON)), w.gamma)
    return w.add(w.mul(x, m), w.add(w.mul(w.neg(w.over(x)), m), w.beta))


def flax(w, x):
    """(x - mean) * (rsqrt(variance + epsilon) * gamma) + beta"""
    factor = w.mul(w.rsqrt(w.add(VARIANCES["Flax"](w, x), EPSILON)), w.gamma)
    return w.add(w.mul(centred(w, x), factor), w.beta)


SPELLINGS = {
    **{f"variance {n}": whole(v, DIVIDED["div sqrt"], ENDS["gamma, beta"])
       for n, v in VARIANCES.items()},
    **{f"{n}": whole(VARIANCES["mul"], d, ENDS["gamma, beta"]) for n, d in DIVIDED.items()},
    **{f"with {n}": whole(VARIANCES["mul"], DIVIDED["div sqrt"], e) for n, e in ENDS.items()},
    "batch_normalization": normalization,
    "Keras 3": keras_3,
    "Flax": flax,
}  # fmt: skip
MEAN_SQUARES = {
    "mul": lambda w, x: w.over(w.mul(x, x)),
    "pow": lambda w, x: w.over(w.pow(x, 2.0)),
    "square": lambda w, x: w.over(w.square(x)),
    "sum/c": lambda w, x: w.mul(w.over(w.square(x), "sum"), 1 / CHANNELS),
}
RMS = {
    f"{n}, {m}, with {e}": lambda w, x, v=v, d=d, end=end: end(w, d(w, x, v(w, x)))
    for n, v in MEAN_SQUARES.items()
    for m, d in DIVIDED.items()
    for e, end in list(ENDS.items())[2:]
}


def network(write, rank: int = 2) -> Graph:
    """A norm over the last of so many axes, and ReLU."""
    g = Graph("net")
    w = Writer(g, rank)
    x = g.input("x", "float32", (None, *((5,) * (rank - 2)), CHANNELS))
    g.outputs["y"] = g.add("relu", write(w, x))
    return g


def ops(g: Graph) -> list[str]:
    return [n.op for n in g.topological() if n.op not in ("input", "const", "relu")]


@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_is_one_layer_norm(name, rank) -> None:
    g = network(SPELLINGS[name], rank)
    run_pass(RecognizeLayerNorm(), g, tolerance=1e-5)
    assert ops(g) == ["layer_norm"]
    (norm,) = (n for n in g.topological() if n.op == "layer_norm")
    assert norm.attrs["epsilon"] == pytest.approx(EPSILON, rel=1e-6)


@pytest.mark.parametrize("name", RMS)
def test_every_rms_norm_is_one_of_a_tensor_and_its_mirror(name) -> None:
    g = network(RMS[name])
    run_pass(RecognizeLayerNorm(), g, tolerance=1e-5)
    assert ops(g) == ["mul", "concat", "layer_norm", "slice"]


def test_constants_come_out_as_they_went_in() -> None:
    g = network(SPELLINGS["Flax"])
    gamma, beta = (g.constant(v).copy() for v in ("gamma", "beta"))
    run_pass(RecognizeLayerNorm(), g, tolerance=1e-5)
    (norm,) = (n for n in g.topological() if n.op == "layer_norm")
    np.testing.assert_array_equal(g.constant(norm.inputs[1]), gamma)
    np.testing.assert_array_equal(g.constant(norm.inputs[2]), beta)


def without_epsilon(w, x):
    return w.div(centred(w, x), w.sqrt(VARIANCES["mul"](w, x)))


def by_deviation(w, x):
    """Epsilon beside the deviation, not in it: another function."""
    return w.div(centred(w, x), w.add(w.sqrt(VARIANCES["mul"](w, x)), EPSILON))


OTHERS = {
    "another mean": lambda w, x: w.div(
        w.add(x, w.over(x)), w.sqrt(w.add(VARIANCES["mul"](w, x), EPSILON))
    ),
    "no epsilon": without_epsilon,
    "epsilon beside the deviation": by_deviation,
    "L1": lambda w, x: w.div(x, w.add(w.over(w.abs(x)), EPSILON)),
    "mean only": lambda w, x: w.mul(centred(w, x), w.gamma),
    "variance by channels": lambda w, x: w.mul(
        w.over(x), w.rsqrt(w.add(VARIANCES["mul"](w, x), EPSILON))
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_another_function_stays(name) -> None:
    g = network(OTHERS[name])
    before = ops(g)
    RecognizeLayerNorm().run(g)
    assert ops(g) == before


# -- as frameworks write them -----------------------------------------------------------------


def over_axes(axes, centred=True, shape=(5, 6, 4), gamma=(4,), beta=None):
    """A norm over some axes of an image, with parameters of these shapes."""
    rng, g = np.random.default_rng(0), Graph("net")
    w = Writer(g, 4)
    x = g.input("x", "float32", (None, *shape))
    over = {"axes": axes, "keepdims": True}
    d = w.sub(x, w.mean(x, **over)) if centred else x
    y = w.div(d, w.sqrt(w.add(w.mean(w.mul(d, d), **over), EPSILON)))
    if gamma is not None:
        y = w.mul(y, g.const(rng.normal(size=gamma).astype(np.float32), "g"))
    if beta is not None:
        y = w.add(y, g.const(rng.normal(size=beta).astype(np.float32), "b"))
    g.outputs["y"] = g.add("relu", y)
    return g


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(
    ("axes", "gamma", "beta", "after"),
    [
        ((1, 2), (4,), (4,), ["mul", "bias_add"]),
        ((1, 2), None, None, []),
        ((1, 2), (5, 1, 1), None, []),
        ((2, 1), (1, 1, 1, 4), (5, 6, 4), ["mul", "bias_add"]),
        ((1, 2, 3), (5, 6, 4), (4,), []),
        ((-1, -3), None, (6, 1), ["mul", "bias_add"]),
        ((3,), (6, 4), None, ["mul", "bias_add"]),
    ],
)
def test_norms_over_several_axes(axes, gamma, beta, after, centred) -> None:
    g = over_axes(axes, centred, gamma=gamma, beta=beta)
    run_pass(RecognizeLayerNorm(), g, tolerance=1e-5)
    found = [op for op in ops(g) if op not in ("reshape", "transpose")]
    assert found == [*(["layer_norm"] if centred else MIRRORED), *after]


MIRRORED = ["mul", "concat", "layer_norm", "slice"]


@pytest.mark.parametrize("least", ["maximum", "add"])
def test_a_quotient_by_the_length_is_an_rms_norm(least) -> None:
    """As L2 normalization is written, with a smallest square."""

    def write(w, x):
        square = w.over(w.square(x), "sum")
        return w.mul(x, w.rsqrt(getattr(w, least)(square, 1e-12)))

    g = network(write)
    run_pass(RecognizeLayerNorm(), g, tolerance=1e-5)
    assert ops(g) == MIRRORED


def test_images_of_unknown_size_stay() -> None:
    g = over_axes((1, 2), shape=(None, None, 4))
    before = ops(g)
    RecognizeLayerNorm().run(g)
    assert ops(g) == before


@pytest.mark.parametrize("axis", [-1, 1])
def test_norms_of_channels_first_images(axis) -> None:
    """Means over axis 1 of NCHW, between convolutions: over the last axis once it is NHWC."""
    rng = np.random.default_rng(0)
    g = Graph("net")
    x = g.input("x", "float32", (None, 5, 5, 3))
    attrs = WINDOW
    first, last = (
        g.const(rng.normal(size=(1, 1, a, b)).astype(np.float32), "w")
        for a, b in ((3, CHANNELS), (CHANNELS, 2))
    )
    h = g.add("conv2d", x, first, attrs=attrs)
    h = g.add("transpose", h, attrs={"perm": (0, 3, 1, 2)}) if axis == 1 else h
    over = {"axes": (axis % 4,), "keepdims": True}
    d = g.add("sub", h, g.add("mean", h, attrs=over))
    v = g.add("mean", g.add("mul", d, d), attrs=over)
    n = g.add("div", d, g.add("sqrt", g.add("add", v, g.const(np.float32(EPSILON)))))
    shape = (CHANNELS, 1, 1) if axis == 1 else (CHANNELS,)
    n = g.add("mul", n, g.const(rng.normal(size=shape).astype(np.float32), "gamma"))
    n = g.add("transpose", n, attrs={"perm": (0, 2, 3, 1)}) if axis == 1 else n
    g.outputs["y"] = g.add("conv2d", n, last, attrs=attrs)
    before = g.copy()
    PassManager(FLOAT).run(g)
    assert_same_function(before, g, tolerance=1e-5)
    assert ops(g) == ["conv2d", "layer_norm", "conv2d"]


def test_layer_normalization_of_keras(tmp_path) -> None:
    x = keras.layers.Input((4, CHANNELS), name="x")
    h = keras.layers.LayerNormalization(epsilon=1e-3)(keras.layers.Dense(CHANNELS)(x))
    keras.Model(x, keras.layers.Dense(2)(h)).save(tmp_path / "m.h5")
    g = load(tmp_path / "m.h5")
    PassManager(FLOAT).run(g)
    assert ops(g).count("layer_norm") == 1 and "mean" not in ops(g)


def test_moments_of_tensorflow() -> None:
    gamma = np.random.default_rng(0).normal(size=CHANNELS).astype(np.float32)

    def build():
        x = v1.placeholder("float32", (None, CHANNELS), "x")
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return tf.nn.relu(tf.nn.batch_normalization(x, mean, variance, gamma / 2, gamma, 1e-3))

    g = load_graph_def(graph_def_of(build))
    PassManager(FLOAT).run(g)
    assert ops(g) == ["layer_norm"]


@pytest.mark.parametrize("write", [SPELLINGS["Flax"], RMS["mul, mul rsqrt, with gamma"]])
def test_norms_between_layers_are_integers(write) -> None:
    rng = np.random.default_rng(0)
    g = Graph("net")
    w = Writer(g, 2)
    x = g.input("x", "float32", (None, 6))
    h = g.add("matmul", x, g.const(rng.normal(size=(6, CHANNELS)).astype(np.float32), "first"))
    last = g.const(rng.normal(size=(CHANNELS, 3)).astype(np.float32), "last")
    g.outputs["y"] = g.add("matmul", write(w, h), last)
    made = quantize(g, {"x": rng.normal(size=(64, 6)).astype(np.float32)}, effort="plain")
    assert [n.op for n in made.graph.topological()].count("standardize") == 1
    assert not [r for r in made.trace.refusals if r.reason.startswith("stays float")]
    assert made.facts.agreement.sqnr > 28


@pytest.mark.parametrize(
    "shape", [(6,), (4, 6), (3, 4, 6)], ids=lambda shape: f"rank {len(shape) + 1}"
)
@pytest.mark.parametrize(
    ("version", "policy"),
    [("keras", "float32"), ("keras", "mixed_float16"), ("tf_keras", "mixed_float16")],
)
def test_layer_normalization_of_any_keras_is_an_integer_program(tmp_path, version, policy, shape):
    library = import_module(version)
    make = library.layers
    x = library.Input(shape, name="x")
    h = make.Dense(CHANNELS, dtype=policy)(x)
    h = make.ReLU(dtype=policy)(make.LayerNormalization(dtype=policy)(h))
    library.Model(x, make.Dense(3, dtype=policy)(h)).export(tmp_path / "model")
    samples = np.random.default_rng(0).normal(size=(16, *shape)).astype(np.float32)
    out = quantize(tmp_path / "model", samples, effort="plain").save(tmp_path / "out")
    program = load_network(out).program
    assert sum(step.op == "standardize" for step in program.steps) == 1
    assert len(program.entries) == len(program.exits) == 1
