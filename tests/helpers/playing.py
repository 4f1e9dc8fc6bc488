"""An environment that needs no package, and a good policy for it."""

from types import SimpleNamespace

import numpy as np

from qgraph.ir.graph import Graph

LENGTH = 20


class Chase:
    """A number that actions should bring to 0; 20 steps; `discrete` actions are down, stay, up."""

    shape, dtype = (2,), np.float32

    def __init__(self, discrete=True):
        low = () if discrete else (-1.0,)
        self.actions = _actions(count=3 if discrete else 0, low=low, high=tuple(-x for x in low))
        self.closed = False

    def reset(self, seed=None):
        if seed is not None:  # without one, the generator continues, as in Gymnasium
            self.rng = np.random.default_rng(seed)
        self.at, self.steps = self.rng.uniform(-3, 3), 0
        return self._seen()

    def step(self, action):
        move = (action - 1) * 0.5 if self.actions.discrete else float(action[0])
        self.at, self.steps = self.at + move, self.steps + 1
        over = self.steps == LENGTH
        return SimpleNamespace(
            observation=self._seen(), reward=-abs(self.at), discount=1.0, over=over
        )

    def close(self):
        self.closed = True

    def _seen(self):
        return np.array([self.at, self.rng.normal()], np.float32)


def _actions(**how):
    from qgraph.rl.environments import Actions

    return Actions(**how)


def chaser(discrete=True):
    """A graph of two layers that computes scores of three moves, or a move."""
    graph = Graph("chaser")
    x = graph.input("seen", "float32", (None, 2))
    hidden = graph.add("matmul", x, graph.const(np.array([[1, -1], [0, 0]], np.float32)))
    hidden = graph.add("bias_add", hidden, graph.const(np.zeros(2, np.float32)))
    hidden = graph.add("tanh", hidden)
    last = [[2, 0, -2], [-2, 0, 2]] if discrete else [[-0.5], [0.5]]
    made = graph.add("matmul", hidden, graph.const(np.array(last, np.float32)))
    bias = [0, 0.5, 0] if discrete else [0]
    graph.outputs = {"out": graph.add("bias_add", made, graph.const(np.array(bias, np.float32)))}
    return graph


def chaser_file(path):
    """The discrete `chaser` as an ONNX model, which needs no TensorFlow to be read."""
    import onnx
    from onnx import helper, numpy_helper

    weights = {
        "first": np.array([[1, -1], [0, 0]], np.float32),
        "second": np.array([[2, 0, -2], [-2, 0, 2]], np.float32),
        "bias": np.array([0, 0.5, 0], np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["seen", "first"], ["hidden"]),
        helper.make_node("Tanh", ["hidden"], ["moved"]),
        helper.make_node("MatMul", ["moved", "second"], ["scores"]),
        helper.make_node("Add", ["scores", "bias"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes,
        "chaser",
        [helper.make_tensor_value_info("seen", onnx.TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path
