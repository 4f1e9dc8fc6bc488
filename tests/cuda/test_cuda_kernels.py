"""The CUDA kernels give the CPU kernels' bits. Without a GPU, they say so."""

from __future__ import annotations

import json

import numpy as np
import pytest

from qgraph import kernels
from qgraph.errors import UsageError
from qgraph.ir.types import ROUNDINGS
from qgraph.train import cuda
from tests.helpers.bits import same_bits
from tests.helpers.exponents import exponent_of
from tests.helpers.vectors import vector_file

CODES = cuda.CudaCodes(0, 4, -8, 7)
BIG = 1_100_003  # more than a span of the sum, and no multiple of anything

built = pytest.mark.skipif(
    cuda.cuda_kernels().library is None, reason=f"no CUDA kernels: {cuda.cuda_kernels().why}"
)


def samples(*shape):
    """Values inside and outside the range, ties and special numbers; and gradients."""
    x, g = np.random.default_rng(0).normal(0, 0.4, (2, *shape)).astype(np.float32)
    flat = x.reshape(-1)
    flat[3::7] = np.rint(flat[3::7] * 64) / 64
    special = [np.inf, -np.inf, -0.0, 0.0, 1e-42, -1e-42, 3e38]
    flat[: len(special)] = special[: len(flat)]
    return x, g


def run(device, x, g, f, low, high, rounding="half_even", dtype="float32", lead=0):
    """y, gx and the thresholds' gradient, from memory `lead` elements behind what is aligned."""
    f = np.asarray(f, np.int32)
    given = device.put(-f.astype(np.float32))
    quantizer = cuda.CudaQuantizer(
        cuda.CudaCodes(given, 0, low, high), max(f.size, 1), rounding, dtype
    )
    shift = lead * x.itemsize
    padding = np.zeros(lead, x.dtype)
    px, pg = (device.put(np.concatenate([padding, a.ravel()])) + shift for a in (x, g))
    py, pgx = (device.empty(x.nbytes + shift) + shift for _ in range(2))
    sums = np.empty(f.shape)
    psums = device.empty(sums.nbytes)
    work = device.empty(cuda.workspace_bytes(x.size, quantizer.channels))
    cuda.quantize(px, py, x.size, quantizer)
    cuda.quantize_gradients(px, pg, pgx, psums, x.size, quantizer, work)
    found = device.get(py, x), device.get(pgx, x), device.get(psums, sums)
    # In place, from here on.
    cuda.quantize_gradients(px, pg, pg, psums, x.size, quantizer, work)
    cuda.quantize(px, px, x.size, quantizer)
    again = device.get(px, x), device.get(pg, x), device.get(psums, sums)
    assert all(same_bits(a, b) for a, b in zip(found, again, strict=True))
    for pointer in (given, px - shift, pg - shift, py - shift, pgx - shift, psums, work):
        device.free(pointer)
    return found


def agrees(found, x, g, f, low, high, rounding="half_even") -> bool:
    y = kernels.quantize(x, f, low, high, rounding)
    gx, sums = kernels.quantize_gradients(x, g, f, low, high, rounding)
    return all(same_bits(a, b) for a, b in zip(found, (y, gx, sums), strict=True))


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("count", [0, 1, 31, 33, 1024, 40_001, BIG])
def test_per_tensor(device, count, rounding) -> None:
    x, g = samples(count)
    assert agrees(run(device, x, g, 5, -8, 7, rounding), x, g, 5, -8, 7, rounding)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("channels", [2, 3, 8, 33, 64, 1100])
def test_per_channel(device, channels, rounding) -> None:
    x, g = samples(BIG // channels // 10, channels)
    f = np.arange(channels, dtype=np.int32) % 5 + 2
    assert agrees(run(device, x, g, f, 0, 15, rounding), x, g, f, 0, 15, rounding)


@pytest.mark.parametrize("f", [-126, -5, 0, 126])
def test_exponents(device, f) -> None:
    x, g = samples(5000)
    assert agrees(run(device, x, g, f, -128, 127), x, g, f, -128, 127)


@pytest.mark.parametrize("lead", [1, 2, 3])
def test_unaligned_memory(device, lead) -> None:
    x, g = samples(40_003)
    assert agrees(run(device, x, g, 5, -8, 7, lead=lead), x, g, 5, -8, 7)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_types(device, dtype, bits) -> None:
    types = np if dtype == "float16" else pytest.importorskip("ml_dtypes")
    narrow = np.dtype(getattr(types, dtype))
    x = np.arange(1 << 16, dtype=np.uint16).view(narrow)
    x = np.where(np.isnan(x), narrow.type(1), x)  # or the sum would be NaN
    g = np.where(np.isinf(x), narrow.type(1), x)[::-1].copy()
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for f in (2, -10, 30):
        found = run(device, x, g, f, low, high, dtype=dtype)
        wide = [a.astype(np.float32) for a in (x, g)]
        gx, sums = kernels.quantize_gradients(*wide, f, low, high)
        with np.errstate(over="ignore", invalid="ignore"):
            y, gx = (a.astype(narrow) for a in (kernels.quantize(wide[0], f, low, high), gx))
        for a, b in zip(found, (y, gx, sums), strict=True):
            assert same_bits(np.asarray(a, np.float64), np.asarray(b, np.float64))


def test_a_nan_shows(device) -> None:
    x, g = samples(5000)
    x[77] = np.nan
    found = run(device, x, g, 5, -8, 7)
    assert agrees(found, x, g, 5, -8, 7)
    assert np.isnan(found[2])


def test_the_same_again(device) -> None:
    x, g = samples(BIG)
    first = run(device, x, g, 5, -8, 7)
    assert all(same_bits(a, b) for a, b in zip(first, run(device, x, g, 5, -8, 7), strict=True))


def test_vectors(device) -> None:
    for case in json.loads(vector_file("quantizer.json").read_text()):
        b, signed = case["bits"], case["signed"]
        f = exponent_of(np.float32(case["log2_t"]), b, signed)
        low, high = (-(2 ** (b - 1)), 2 ** (b - 1) - 1) if signed else (0, 2**b - 1)
        x, g = np.array(case["x"], np.float32), np.array(case["g"], np.float32)
        y, gx, sums = run(device, x, g, f, low, high)
        assert y.tolist() == case["value"]
        assert gx.tolist() == case["grad_x"]
        assert float(sums) == pytest.approx(case["grad_log2_t"], rel=1e-6)


@built
def test_without_a_gpu() -> None:
    use, why = cuda.cuda_kernels().status()
    if use == "ready":
        pytest.skip("there is a GPU")
    assert use == "no GPU"
    assert "CUDA" in why
    with pytest.raises(UsageError, match="CUDA"):
        cuda.quantize(0, 0, 64, cuda.CudaQuantizer(CODES))
    with pytest.raises(UsageError, match="CUDA"):
        cuda.quantize_gradients(0, 0, 0, 0, 64, cuda.CudaQuantizer(CODES), 0)
    epilogue = cuda.CudaEpilogue(CODES, CODES, 0, 0, 4)
    with pytest.raises(UsageError, match="CUDA"):
        cuda.epilogue(0, 0, 64, epilogue)
    with pytest.raises(UsageError, match="CUDA"):
        cuda.epilogue_gradients(0, 0, cuda.EpilogueGradients(0, 0, 0, 0, 0), 64, epilogue, 0)


@built
@pytest.mark.parametrize(
    ("count", "quantizer", "message"),
    [
        (7, cuda.CudaQuantizer(CODES, 2), "multiple of channels"),
        (7, cuda.CudaQuantizer(CODES, 0), "channels must be at least 1"),
        (7, cuda.CudaQuantizer(CODES, rounding="up"), "rounding must be"),
        (7, cuda.CudaQuantizer(CODES, dtype="float64"), "dtype must be"),
    ],
)
def test_refusals(count, quantizer, message) -> None:
    with pytest.raises(UsageError, match=message):
        cuda.quantize(0, 0, count, quantizer)
    with pytest.raises(UsageError, match=message):
        cuda.quantize_gradients(0, 0, 0, 0, count, quantizer, 0)


@built
@pytest.mark.parametrize(
    ("epilogue", "message"),
    [
        (cuda.CudaEpilogue(CODES, CODES, 0, 0, 2), "multiple of channels"),
        (cuda.CudaEpilogue(CODES, CODES, 0, 0, 7, activation="tanh"), "activation must be"),
        (cuda.CudaEpilogue(CODES, CODES, 0, 0, 7, rounding="up"), "rounding must be"),
    ],
)
def test_refusals_of_the_epilogue(epilogue, message) -> None:
    with pytest.raises(UsageError, match=message):
        cuda.epilogue(0, 0, 7, epilogue)


@built
def test_room_for_the_sums_of_blocks() -> None:
    clip = cuda.CudaEpilogue(CODES, CODES, 0, 0, 64, activation="clip")
    relu = cuda.CudaEpilogue(CODES, CODES, 0, 0, 64, activation="relu")
    assert cuda.epilogue_workspace_bytes(1 << 24, clip) == 512 * (2 * 32 + 2 * (64 + 31)) * 8
    assert cuda.epilogue_workspace_bytes(1 << 24, relu) == 512 * (2 * 32 + 64 + 31) * 8
    assert cuda.workspace_bytes(1 << 24, 1) == 512 * 32 * 8
    assert cuda.workspace_bytes(1025 * 10, 10) == 2 * 10 * 8


def test_why_the_kernels_are_missing(tmp_path) -> None:
    assert cuda.load(None).status()[0] == "not built"
    broken = tmp_path / "_cuda.so"
    broken.write_bytes(b"not a library")
    assert "cannot load" in cuda.load(broken).status()[1]
