"""The trainable quantizer: both forms give the kernels' bits, in every way TensorFlow has."""

from __future__ import annotations

import gc
import json

import numpy as np
import pytest
import tensorflow as tf

from qgraph import kernels
from qgraph.errors import UsageError
from qgraph.ir.types import ROUNDINGS
from qgraph.train import fused, quantizer
from qgraph.train.quantizer import form_in_use, quantize
from tests.helpers.exponents import exponent_of
from tests.helpers.vectors import vector_file

FUSED = pytest.param(
    "fused",
    marks=pytest.mark.skipif(fused.library_path() is None, reason="the fused ops are not built"),
)
FORMS = [FUSED, "native"]
LOW, HIGH, EXPONENT, LOG2_T = -8, 7, 4, -1.4  # 4 bits, signed


def same_bits(a, b) -> bool:
    a, b = (np.asarray(v, np.float32) for v in (a, b))
    # Any NaN is as good as another.
    a, b = (np.where(np.isnan(v), np.float32(np.nan), v).view(np.uint32) for v in (a, b))
    return a.shape == b.shape and bool(np.all(a == b))


def samples(*shape):
    """Some inside, some beyond, ties, infinities, a zero of each sign; and gradients."""
    rng = np.random.default_rng(0)
    x, g = rng.normal(0, 0.2, (2, *shape)).astype(np.float32)
    flat = x.reshape(-1)
    flat[3::7] = np.rint(flat[3::7] * 64) / 64
    if x.size:
        flat[:4] = [np.inf, -np.inf, -0.0, 0]
    return x, g


def gradients(x, log2_t, g, *arguments, **options):
    """The quantized x, and gradients for x and log2_t."""
    x, log2_t = tf.convert_to_tensor(x), tf.convert_to_tensor(log2_t, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch([x, log2_t])
        y = quantize(x, log2_t, *arguments, **options)
    return y, *tape.gradient(y, [x, log2_t], tf.convert_to_tensor(g))


def agrees(found, x, g, f, rounding="half_even", bounds=(LOW, HIGH)) -> bool:
    gx, gt = kernels.quantize_gradients(x, g, f, *bounds, rounding)
    expected = kernels.quantize(x, f, *bounds, rounding), gx, gt.astype(np.float32)
    return all(same_bits(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("form", FORMS)
def test_every_rounding(form, rounding) -> None:
    x, g = samples(50_000)
    found = gradients(x, LOG2_T, g, 4, True, rounding, form=form)
    assert agrees(found, x, g, EXPONENT, rounding)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (33, 32), (3, 400_000)])
@pytest.mark.parametrize("form", FORMS)
def test_every_size(form, shape) -> None:
    x, g = samples(60_000)
    x, g = (np.resize(a[4:], shape) for a in (x, g))
    assert agrees(gradients(x, LOG2_T, g, 4, True, form=form), x, g, EXPONENT)


@pytest.mark.parametrize("form", FORMS)
def test_nothing_at_all(form) -> None:
    x = np.zeros((0, 3), np.float32)
    y, gx, gt = gradients(x, LOG2_T, x, 4, True, form=form)
    assert y.shape == gx.shape == (0, 3)
    assert gt == 0


@pytest.mark.parametrize(
    ("rows", "shape"),
    [(2100, (1,)), (2100, (5,)), (40_000, (2,)), (2100, (0,)), (2100, (4, 3)), (2100, (1, 1))],
)
@pytest.mark.parametrize("form", FORMS)
def test_per_channel(form, rows, shape) -> None:
    x, g = samples(rows, *shape)
    log2_t = np.linspace(-3, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    found = gradients(x, log2_t, g, 4, True, form=form)
    assert agrees(found, x, g, exponent_of(log2_t, 4, True))


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_in_a_function_of_unknown_shape(form, xla) -> None:
    x, g = samples(1100, 37)
    form = "auto" if xla else form

    @tf.function(
        jit_compile=xla, input_signature=[tf.TensorSpec([None, 37]), tf.TensorSpec([None, 37])]
    )
    def step(x, g):
        y, gx, gt = gradients(x, LOG2_T, g, 4, True, form=form)
        assert gx.shape.as_list() == y.shape.as_list() == [None, 37]
        assert gt.shape.as_list() == []
        return y, gx, gt

    for rows in (1100, 3):
        assert agrees(step(x[:rows], g[:rows]), x[:rows], g[:rows], EXPONENT)


@pytest.mark.parametrize("form", FORMS)
def test_memory_of_inputs_is_reused_without_harm(form) -> None:
    x, g = samples(30_000)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed_x, fed_g = (tf.compat.v1.placeholder(tf.float32, [None]) for _ in range(2))
        # Intermediate values, which are not read again: TensorFlow gives their memory away.
        y = quantize(fed_x * 2.0, LOG2_T, 4, True, form=form)
        (gx,) = tf.gradients(y, fed_x, fed_g * 1.0)
        found_y, found_gx = session.run([y, gx], {fed_x: x, fed_g: g})
    expected = kernels.quantize_gradients(2 * x, g, EXPONENT, LOW, HIGH)[0]
    assert same_bits(found_y, kernels.quantize(2 * x, EXPONENT, LOW, HIGH))
    assert same_bits(found_gx, 2 * expected)


@pytest.mark.parametrize("bits", [4, 16])  # 16: results are rounded once more
@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
@pytest.mark.parametrize("form", FORMS)
def test_narrow_types(form, dtype, bits) -> None:
    every = tf.bitcast(np.arange(1 << 16, dtype=np.uint16), dtype)
    x = every[tf.math.is_finite(every) & (abs(every) > 1e-4)]
    g = tf.reverse(x, [0])
    y, gx, gt = gradients(x, LOG2_T, g, bits, True, form=form)
    assert y.dtype == gx.dtype == dtype
    wide = [tf.cast(a, tf.float32).numpy() for a in (x, g)]
    f, bounds = exponent_of(LOG2_T, bits, True), (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    expected_gx, expected_gt = kernels.quantize_gradients(*wide, f, *bounds)
    expected_y = tf.cast(kernels.quantize(wide[0], f, *bounds), dtype)
    assert same_bits(tf.cast(y, tf.float32), tf.cast(expected_y, tf.float32))
    assert same_bits(tf.cast(gx, tf.float32), expected_gx)
    assert same_bits(gt, expected_gt)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
@pytest.mark.parametrize("form", FORMS)
def test_narrow_types_per_channel(form, dtype) -> None:
    x, g = (tf.cast(a, dtype) for a in samples(1100, 37))
    log2_t = np.linspace(-3, 1, 37, dtype=np.float32)
    found = gradients(x, log2_t, g, 4, True, form=form)
    wide = (tf.cast(a, tf.float32).numpy() for a in (x, g))
    assert agrees([tf.cast(a, tf.float32) for a in found], *wide, exponent_of(log2_t, 4, True))


@pytest.mark.parametrize("form", FORMS)
def test_members_of_a_group_share_an_exponent(form) -> None:
    x = np.array([0.3, 0.9], np.float32)
    signed = quantize(x, LOG2_T, 8, True, form=form)
    unsigned = quantize(x, LOG2_T, 8, False, offset=-1, form=form)
    f = exponent_of(LOG2_T, 8, True)
    assert same_bits(signed, kernels.quantize(x, f, -128, 127))
    assert same_bits(unsigned, kernels.quantize(x, f, 0, 255))


@pytest.mark.parametrize("form", FORMS)
def test_vectors(form) -> None:
    for case in json.loads(vector_file("quantizer.json").read_text()):
        x, g = np.array(case["x"], np.float32), np.array(case["g"], np.float32)
        y, gx, gt = gradients(x, case["log2_t"], g, case["bits"], case["signed"], form=form)
        assert y.numpy().tolist() == case["value"]
        assert gx.numpy().tolist() == case["grad_x"]
        assert float(gt) == pytest.approx(case["grad_log2_t"], rel=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_only_x_is_kept(form) -> None:
    @tf.function
    def step(x, log2_t):
        return gradients(x, log2_t, tf.ones_like(x), 4, True, form=form)

    graph = step.get_concrete_function(tf.TensorSpec([64]), tf.TensorSpec([])).graph
    x = graph.inputs[0]
    assert {op.type for op in x.consumers()} <= {
        "Mul", "Less", "Identity", "QgraphQuantize", "QgraphQuantizeGrad", "OnesLike", "IdentityN",
        "Shape", "StopGradient", "ZerosLike", "Cast",
    }  # fmt: skip
    # What the backward pass computes from x, it computes after the upstream gradient is there.
    again = [op for op in x.consumers() if op.type == "Identity" and op.control_inputs]
    assert bool(again) == (form == "native")


@pytest.mark.parametrize("form", FORMS)
def test_a_tape_keeps_only_x_too(form) -> None:
    def alive() -> int:
        """Buffers of a size that nothing else has."""
        gc.collect()
        eager = type(tf.constant(0))
        tensors = [o for o in gc.get_objects() if isinstance(o, eager)]
        return len({np.asarray(memoryview(t)).ctypes.data for t in tensors if t.shape == [12_345]})

    x, log2_t = tf.ones([12_345]), tf.constant(0.0)
    with tf.GradientTape() as tape:
        tape.watch([x, log2_t])
        y = quantize(x, log2_t, 4, True, form=form)
        assert alive() == 2
    assert tape.gradient(y, log2_t) is not None


@pytest.mark.parametrize("form", FORMS)
def test_a_saved_model_comes_back(form, tmp_path) -> None:
    class Net(tf.Module):
        def __init__(self) -> None:
            self.log2_t = tf.Variable(LOG2_T)

        @tf.function(input_signature=[tf.TensorSpec([None])])
        def __call__(self, x):
            return quantize(x, self.log2_t, 4, True, form=form)

    tf.saved_model.save(Net(), str(tmp_path))
    x = samples(100)[0]
    assert same_bits(
        tf.saved_model.load(str(tmp_path))(x), kernels.quantize(x, EXPONENT, LOW, HIGH)
    )


@pytest.mark.parametrize("log2_t", [-200.0, 140.0, np.nan])
@pytest.mark.parametrize("form", FORMS)
def test_a_threshold_without_a_scale(form, log2_t) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="a scale that float32 does not hold"):
        quantize([1.0], log2_t, 8, True, form=form)


def test_a_threshold_without_a_scale_under_xla() -> None:
    run = tf.function(lambda x: quantize(x, -200.0, 8, True), jit_compile=True)
    assert np.isnan(run(tf.constant([1.0])))


@pytest.mark.parametrize("shape", [(2,), (3, 1), (1, 1, 3)])
@pytest.mark.parametrize("form", FORMS)
def test_thresholds_of_another_shape(form, shape) -> None:
    with pytest.raises(UsageError, match="last axes"):
        gradients(np.ones((4, 3), np.float32), np.zeros(shape), np.ones((4, 3)), 8, True, form=form)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((1, True), "bits"), ((33, False), "bits"), ((8, True, "up"), "rounding")],
)
def test_refusals(arguments, message) -> None:
    with pytest.raises(UsageError, match=message):
        quantize([1.0], 0.0, *arguments)


def test_other_types_are_refused() -> None:
    with pytest.raises(UsageError, match="float64"):
        quantize(tf.constant([1.0], tf.float64), 0.0, 8, True)


def test_threads_refuse_none() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        fused.set_threads(0)


def test_which_form_and_why() -> None:
    form, why = form_in_use()
    assert (form == "fused") == (fused.library_path() is not None)
    assert why


@pytest.fixture
def without_gpu_ops(monkeypatch) -> None:
    """The fused ops as if they were not built for GPUs."""
    monkeypatch.setattr(quantizer, "gpu_ops", lambda: fused.FusedOps(None, "not built for GPUs"))


@pytest.mark.usefixtures("without_gpu_ops")
@pytest.mark.skipif(fused.library_path() is None, reason="the fused ops are not built")
@pytest.mark.parametrize(
    ("device", "ops"), [("/CPU:0", 1), ("/GPU:0", 0), ("/job:localhost/device:GPU:1", 0), (None, 1)]
)
def test_the_device_chooses_the_form(device, ops) -> None:
    if device is None and tf.config.get_visible_devices("GPU"):
        pytest.skip("ops are placed on the GPU")

    @tf.function
    def run(x):
        with tf.device(device):
            return quantize(x, LOG2_T, 4, True)

    graph = run.get_concrete_function(tf.TensorSpec([None], tf.float32)).graph
    assert [op.type for op in graph.get_operations()].count("QgraphQuantize") == ops


@pytest.mark.usefixtures("without_gpu_ops")
@pytest.mark.parametrize(("device", "form"), [("/GPU:0", "native"), ("/CPU:0", "fused")])
def test_the_device_of_eager_ops(device, form) -> None:
    with tf.device(device):
        found, why = form_in_use()
    if form == "fused" and fused.library_path() is None:
        form = "native"
    assert found == form
    assert ("GPU" in why) == (device == "/GPU:0")


@pytest.mark.usefixtures("without_gpu_ops")
def test_the_device_around_a_function() -> None:
    run = tf.function(lambda x: quantize(x, LOG2_T, 4, True))
    with tf.device("/GPU:0"):
        graph = run.get_concrete_function(tf.TensorSpec([None], tf.float32)).graph
    assert "QgraphQuantize" not in {op.type for op in graph.get_operations()}
