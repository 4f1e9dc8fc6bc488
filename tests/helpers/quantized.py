"""Quantize networks completely, and compare the TensorFlow graph with the integer reference."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from hypothesis import event, note, reject
from hypothesis import strategies as st

from qgraph.backends.network_forms import Network
from qgraph.backends.tf.emit import emit_graph_def, tensor_names
from qgraph.backends.tf.program import as_tensorflow
from qgraph.errors import ExactnessError, UnsupportedError
from qgraph.exact.bounds import bounds
from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.ir.types import Fixed
from qgraph.numerics import dequantize
from qgraph.passes import PassManager
from qgraph.program import Program, lower
from qgraph.quant.calibrate import Calibration, calibrate
from qgraph.quant.profile import Profile, load_profile
from qgraph.quant.topology import keeps_scale
from qgraph.recipes import FLOAT, static
from qgraph.rewrite.trace import Trace
from qgraph.transforms.lower_batch_norm import LowerBatchNorm
from qgraph.transforms.wrap_accumulators import WrapAccumulators
from tests.helpers.evaluate import random_feeds
from tests.helpers.generators.graphs import random_graph

INT8, INT4, INT32_BIAS = map(load_profile, ("graffitist-int8", "graffitist-int4", "int32-bias"))
PROFILES = {
    "int8": INT8,
    "int4": INT4,
    "int32-bias": INT32_BIAS,
    "per-channel": replace(INT8, per_channel=True),
    "per-channel-int32": replace(INT32_BIAS, per_channel=True),
    "half_up": replace(INT8, rounding="half_up"),
    "half_away": replace(INT32_BIAS, rounding="half_away"),
    "floor": replace(INT8, rounding="floor"),
    "double": replace(INT8, rounding="double"),
    "wrap": replace(INT8, overflow="wrap"),
    "narrow": replace(INT32_BIAS, accumulator_bits=14, accumulator_wraps=True),
}


def insert(graph: Graph, profile: Profile = INT8) -> Trace:
    """Run the passes behind the float recipe: quantizers and scale groups, without exponents."""
    trace = Trace()
    graph.facts |= LowerBatchNorm.ensures
    PassManager(static(profile)[len(FLOAT) :]).run(graph, trace)
    return trace


def quantize(graph: Graph, profile: Profile = INT8, data=None, method: str = "max") -> Graph:
    """Quantize `graph` itself; it is calibrated on `data`, or on 8 random samples."""
    insert(graph, profile)
    data = random_feeds(graph, batch=8) if data is None else data
    calibrate(graph, data, Calibration(method, profile.shift))
    if profile.accumulator_wraps:
        PassManager((WrapAccumulators(profile.accumulator_bits),)).run(graph)
    return graph


def random_network(seed: int, profile: str, layers: int = 6) -> Graph:
    """A random network, quantized for a profile of `PROFILES`."""
    graph = random_graph(seed, layers, dtype="float32")
    PassManager(FLOAT).run(graph)
    return quantize(graph, PROFILES[profile])


@st.composite
def network_programs(draw: Callable, profiles: Sequence[str] = tuple(PROFILES)) -> Program:
    """The program of a random network that is quantized for one of the profiles."""
    graph = random_network(draw(st.integers(0, 10**6)), draw(st.sampled_from(profiles)))
    try:
        return lower(graph)
    except UnsupportedError as error:
        assert "float" in error.message or "nothing" in error.message
        reject()


def quantized_network(graph: Graph, profile: Profile, seed: int) -> Network:
    """The network after the whole recipe, calibrated on a few random samples.

    Rejects the example of hypothesis if the network cannot be quantized for the profile.
    """
    data = random_feeds(graph, seed, batch=4)
    note(print_graph(graph))
    note(profile)
    try:
        PassManager(FLOAT).run(graph)
        quantize(graph, profile, data)
        program = lower(graph)
    except (UnsupportedError, ExactnessError) as error:
        event(f"not quantized: {error.message.split(':')[0][:40]}")
        reject()
    note(program)
    return Network(graph, program, profile, data, data)


def exact(value) -> np.ndarray:
    """A value of the reference in float64, which holds every code."""
    return dequantize(value) if isinstance(value, Fixed) else np.asarray(value, np.float64)


def integer_values(graph: Graph) -> set[str]:
    """Values that are defined to the last bit: integers without a rounding float op before them."""
    found = set(bounds(graph))
    defined: set[str] = set()
    for node in graph.topological():
        rounds_not = node.op in ("input", "const", "relu", "relu6") or keeps_scale(node)
        if defined.issuperset(node.inputs) and (node.name in found or rounds_not):
            defined.update(node.values)
    return defined & found


def assert_tf_equals_reference(graph: Graph, feeds, known=None) -> int:
    """Compare every quantized tensor, and each output fetched alone; return the number of tensors.

    `known`: bounds to emit with, if they are not the correct ones.
    """
    import tensorflow as tf

    expected = Reference(graph).run(feeds)
    same = integer_values(graph)
    names = {v: t for v, t in tensor_names(graph, known).items() if v in same and v in expected}
    with tf.Graph().as_default() as emitted:
        tf.graph_util.import_graph_def(as_tensorflow(emit_graph_def(graph, known)), name="")
        fed = {f"{name}:0": array for name, array in feeds.items()}
        with tf.compat.v1.Session(graph=emitted) as session:
            found = session.run([f"{t}:0" for t in names.values()], fed)
            for value, array in zip(names, found, strict=True):
                assert_equal(value, array, expected[value])
            for public, value in graph.outputs.items():
                (alone,) = session.run([f"{public}:0"], fed)
                if value in same or value in graph.inputs:
                    assert_equal(public, alone, expected[value])
                else:
                    np.testing.assert_allclose(alone, exact(expected[value]), 1e-4, 1e-5)
    return len(names)


def assert_equal(name: str, found, value) -> None:
    wanted = exact(value)
    assert found.shape == wanted.shape, name
    wrong = np.flatnonzero(found.astype(np.float64).ravel() != wanted.ravel())
    assert not wrong.size, f"{name}: {wrong.size} of {wanted.size} differ from the reference"
