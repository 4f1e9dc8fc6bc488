"""Run the fused ops' code for GPUs on the CPU: ``python -m tests.helpers.gpu_ops_on_cpu LIBRARY``.

LIBRARY has the functions of `_cuda.so` and a stream, like cuda_on_cpu.cpp of
fused_ops/tests/emulated. The program stops at the first number that differs from the CPU kernels in
any bit.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from qgraph import kernels
from qgraph.compiler import quantize as quantize_network
from qgraph.ir.types import ROUNDINGS
from qgraph.train import cuda, gpu
from qgraph.train.folded import norms_of
from qgraph.train.model import TrainingGraph
from qgraph.train.module import learn
from qgraph.train.quantizer import quantize
from qgraph.train.saved_graph.ops import stock_ops
from qgraph.train.tqt import ScaledOps, tqt_with
from tests.helpers.bits import same_bits
from tests.helpers.epilogue import Case, case, forward, gradients
from tests.helpers.trained import images, trained


def check_epilogue(c: Case) -> None:
    """Check the op with exponents 6 and 3: bits - signed - ceil(log2_t)."""
    ops = gpu.fused_ops().ops
    signed = c.activation == "none"
    attributes = {"inner_bits": 8, "inner_signed": True, "bits": 4, "signed": signed}
    attributes |= {"rounding": c.rounding, "activation": c.activation}
    thresholds = np.float32(0.5), np.float32(-0.5 if signed else 0.5)
    inputs = (c.x, c.bias, c.high if c.clips else c.high[:0], *thresholds)
    y = ops.qgraph_epilogue(*inputs, **attributes)
    assert same_bits(y.numpy(), forward(c)), c
    found = ops.qgraph_epilogue_grad(c.g, *inputs, **attributes)
    gx, inner, outer, bias, high = gradients(c)
    for a, b in zip(found, (gx, bias, high, inner, outer), strict=True):
        assert same_bits(a.numpy(), np.asarray(b).astype(np.float32)), c


def check_quantizer(rounding: str, channels: int) -> None:
    """Check the op with its gradient, per tensor or per channel."""
    c = case(2000, 12, "none")
    log2_t = np.resize(np.float32([0.5, -1.5, 2]), channels) if channels else np.float32(0.5)
    x, t = tf.constant(c.x), tf.constant(log2_t)
    with tf.GradientTape() as tape:
        tape.watch([x, t])
        y = quantize(x, t, 4, True, rounding, form="fused")
    gx, gt = tape.gradient(y, [x, t], tf.constant(c.g))
    f = (3 - np.ceil(log2_t)).astype(np.int32)
    wanted_gx, wanted_gt = kernels.quantize_gradients(c.x, c.g, f, -8, 7, rounding)
    assert same_bits(y.numpy(), kernels.quantize(c.x, f, -8, 7, rounding)), (rounding, channels)
    assert same_bits(gx.numpy(), wanted_gx), (rounding, channels)
    assert same_bits(gt.numpy(), np.asarray(wanted_gt).astype(np.float32)), (rounding, channels)


def check_threshold() -> None:
    """A threshold whose scale float32 does not hold gives NaN, where the CPU's op raises an
    error.
    """
    assert np.isnan(quantize(tf.ones(4), 200.0, 4, True, form="fused")).all()


def check_shapes() -> None:
    """Shapes that do not match are errors, as on the CPU."""
    ops = gpu.fused_ops().ops
    x, one = np.ones((2, 3), np.float32), np.float32(1)
    attributes = {"inner_bits": 8, "inner_signed": True, "bits": 4, "signed": True}
    for bias, high in ((one, x[0, :0]), (x[0, :2], x[0, :0]), (x[0], x[0])):
        try:
            ops.qgraph_epilogue(x, bias, high, one, one, **attributes, activation="relu")
        except tf.errors.InvalidArgumentError:
            continue
        raise AssertionError((bias, high))


def main() -> None:
    """Register the library for the CPU, with a priority above its kernels, and compare."""
    path = Path(sys.argv[1])
    found = gpu.register(path, cuda.load(path), "CPU", 1)
    assert found.ops is not None, found.why
    check_ops()
    check_training()
    print("ok")


def check_ops() -> None:
    """Run every check of single ops, on the device of the scope."""
    check_threshold()
    check_shapes()
    for rounding in ROUNDINGS:
        for channels in (0, 12):
            check_quantizer(rounding, channels)
    for activation in cuda.ACTIVATIONS:
        for shape in ((0, 4), (3000, 12), (2000, 31)):
            check_epilogue(case(*shape, activation))


def check_training() -> None:
    """A network with these ops gives the outputs of TensorFlow's ops, and nearly their
    gradients. GPUs have no ops for the epilogue behind a batch norm.
    """
    source = quantize_network(trained(), images(16), mode="retrain")
    norms = norms_of(source.floating)
    found = []
    for kind in (tqt_with(ScaledOps(normed=lambda: None)), tqt_with(stock_ops())):
        graph = TrainingGraph(source.graph, norms, kind=kind)
        variables = [*graph.kernels, *graph.gammas, *graph.thresholds]
        found.append(tf.function(_step)(graph, variables, tf.constant(images(16))))
    (ours, *gradients), (theirs, *wanted) = found
    assert np.isfinite(ours).all() and same_bits(ours.numpy(), theirs.numpy())
    for a, b in zip(gradients, wanted, strict=True):
        scale = np.abs(b).max(initial=0) + 1e-9
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * scale)


def _step(graph: TrainingGraph, variables: list, x: tf.Tensor) -> list:
    """The outputs of a forward pass, and the gradients of the sum of their squares."""
    with tf.GradientTape() as tape:
        y = learn(graph, {"image": x}, batch_statistics=True)["scores"]
        loss = tf.reduce_sum(y * y)
    return [y, *tape.gradient(loss, variables)]


if __name__ == "__main__":
    main()
