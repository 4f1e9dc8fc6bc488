"""The epilogue's CUDA kernels give the bits of a reference, and so does the CPU op."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gpu import Gpu
from qgraph.ir.types import ROUNDINGS
from qgraph.train import cuda
from tests.helpers.bits import same_bits
from tests.helpers.epilogue import Case, case, forward, gradients

SHAPES = [
    (0, 12),
    (1, 1),
    (3000, 12),
    (70_000, 1),
    (9000, 31),
    (1100, 64),
    (70, 1100),
    (99_999, 11),
]


def run(device: Gpu, c: Case, lead: int = 0):
    """y and all gradients, from memory `lead` elements behind what is aligned."""
    padding, shift = np.zeros(lead, np.float32), 4 * lead
    px, pg = (device.put(np.concatenate([padding, a.ravel()])) + shift for a in (c.x, c.g))
    py, pgx = (device.empty(c.x.nbytes + shift) + shift for _ in range(2))
    t = device.put(np.array([2, 0.75], np.float32))
    bias, high = device.put(c.bias), device.put(c.high)
    inner, outer = cuda.CudaCodes(t, 8, -128, 127), cuda.CudaCodes(t + 4, 4, *c.outer_range)
    channels = c.bias.size
    epilogue = cuda.CudaEpilogue(inner, outer, bias, high, channels, c.activation, c.rounding)
    sums = [np.empty(()), np.empty(()), np.empty(channels), np.empty(channels if c.clips else 0)]
    to = cuda.EpilogueGradients(pgx, *(device.empty(a.nbytes) for a in sums))
    work = device.empty(cuda.epilogue_workspace_bytes(c.x.size, epilogue))
    cuda.epilogue(px, py, c.x.size, epilogue)
    cuda.epilogue_gradients(px, pg, to, c.x.size, epilogue, work)
    pointers = (to.inner_log2_t, to.log2_t, to.bias, to.high)
    found = device.get(py, c.x), device.get(pgx, c.x)
    found += tuple(device.get(p, a) for p, a in zip(pointers, sums, strict=True))
    for pointer in (
        px - shift,
        pg - shift,
        py - shift,
        pgx - shift,
        t,
        bias,
        high,
        work,
        *pointers,
    ):
        device.free(pointer)
    return found


def agrees(found, c: Case) -> bool:
    expected = (forward(c), *gradients(c))
    return all(same_bits(a, np.asarray(b)) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("activation", cuda.ACTIVATIONS)
def test_every_form(device, activation, rounding) -> None:
    c = case(3000, 12, activation, rounding)
    assert agrees(run(device, c), c)


@pytest.mark.parametrize("activation", ["relu", "clip"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape(device, shape, activation) -> None:
    c = case(*shape, activation)
    assert agrees(run(device, c), c)


@pytest.mark.parametrize("lead", [1, 2, 3])
def test_unaligned_memory(device, lead) -> None:
    c = case(3000, 12, "clip")
    assert agrees(run(device, c, lead), c)


@pytest.mark.parametrize("activation", cuda.ACTIVATIONS)
@pytest.mark.parametrize("shape", [(3000, 12), (9000, 31), (33_000, 33)])
def test_the_reference_is_the_cpu_op(shape, activation) -> None:
    from qgraph.train.fused import fused_ops

    ops = fused_ops().ops
    if ops is None:
        pytest.skip("the fused ops are not built")
    c = case(*shape, activation)
    kind = {"inner_bits": 8, "inner_signed": True, "bits": 4, "signed": activation == "none"}
    kind |= {"rounding": c.rounding, "activation": activation}
    # Exponents 6 and 3 are bits - signed - ceil(log2_t).
    inner, outer = np.float32(0.5), np.float32(-0.5 if kind["signed"] else 0.5)
    inputs = (c.x, c.bias, c.high if c.clips else c.high[:0], inner, outer)
    y = ops.qgraph_epilogue(*inputs, **kind)
    found = ops.qgraph_epilogue_grad(c.g, *inputs, **kind)
    gx, inner, outer, bias, high = gradients(c)
    assert same_bits(y.numpy(), forward(c))
    for a, b in zip(found, (gx, bias, high, inner, outer), strict=True):
        assert same_bits(a.numpy(), np.asarray(b).astype(np.float32))
