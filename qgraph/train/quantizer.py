"""The trainable quantizer in TensorFlow, as a fused op or in TensorFlow's own ops (native).

Source: TQT (Jain et al., 2019), equations 4 to 8. Both forms keep only `x` for the backward pass.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass

from qgraph import choices
from qgraph.choices import QuantizerForm
from qgraph.errors import UsageError
from qgraph.foreign import Tensor
from qgraph.ir.types import ROUNDINGS, Rounding, rounding_of_numbers
from qgraph.kernels.plain import BLOCKS, LANES, LEAF_ROWS, LEAVES
from qgraph.numerics import MAX_EXPONENT
from qgraph.train.fused import FusedOps, fused_ops
from qgraph.train.gpu import gpu_ops

MAX_BITS = 32  # past 24, codes are rounded to what float32 holds
FLOATS = ("float32", "bfloat16", "float16")
WRAP_LIMIT = 2.0**62  # where left shifts of integers end, before codes wrap

Forward = Callable[[Tensor, Tensor], Tensor]
Backward = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def quantize(
    x: Tensor,
    log2_t: Tensor,
    bits: int,
    signed: bool,
    rounding: str = "half_even",
    *,
    offset: int = 0,
    form: str = QuantizerForm.AUTO,
) -> Tensor:
    """`clip(round(x * 2^f), n, p) * 2^-f` with `f = bits - signed + offset - ceil(log2_t)`.

    x: float32, bfloat16 or float16; narrow types are computed in float32, and the result is
    rounded to their bits. log2_t: float32, a scalar or with the shape of the last axes of x. It is
    differentiable in both, as a fake quantizer with trained thresholds. offset: lets tensors of one
    scale group that differ in bits and sign share a threshold and an exponent.

    The fused form is used on CPUs if it loads, and on GPUs if it is built for them; otherwise, and
    under `jit_compile=True`, the native form. Alone, both give the same bits in results and
    gradients, except for subnormal numbers. In a network, results are equal too, but gradients of
    weights, biases and batch norms may differ in the last bits.

    |f| > 126 or a NaN in log2_t is an InvalidArgumentError; on GPUs and under `jit_compile=True`
    the result is NaN. Raises UsageError for other arguments that are out of range.
    """
    import tensorflow as tf

    spec = Spec(bits, bool(signed), rounding, offset)
    # AutoGraph is off: it would rewrite each line of the function.
    run = tf.autograph.experimental.do_not_convert(_quantize)
    return run(tf.convert_to_tensor(x), tf.convert_to_tensor(log2_t, tf.float32), spec, form)


def _quantize(x: Tensor, log2_t: Tensor, spec: Spec, form: str) -> Tensor:
    if x.dtype.name not in FLOATS:
        raise UsageError(f"cannot quantize {x.dtype.name}: only {', '.join(FLOATS)}")
    _check_shapes(x.shape, log2_t.shape)
    ops = chosen(form).ops
    if ops is None:
        return _keeping_only_x(spec.forward, spec.backward)(x, log2_t)
    return ops.qgraph_quantize(x, log2_t, **spec.attributes)


def _check_shapes(x: Tensor, log2_t: Tensor) -> None:
    if not log2_t.is_fully_defined():
        raise UsageError(f"the shape of log2_t must be known when the graph is built: {log2_t}")
    if x.rank is None:
        return
    if log2_t.rank > x.rank or not log2_t.is_compatible_with(x[x.rank - log2_t.rank :]):
        raise UsageError(f"log2_t {log2_t} must have the shape of the last axes of x {x}, or none")


def form_in_use() -> tuple[QuantizerForm, str]:
    """The form that `auto` selects, and the reason."""
    now = chosen()
    return (QuantizerForm.NATIVE if now.ops is None else QuantizerForm.FUSED), now.why


def chosen(form: str = QuantizerForm.AUTO) -> FusedOps:
    """The fused ops for a form and the current device; without them, the reason.

    Raises UsageError for an unknown form, and if `fused` is not available.
    """
    wanted = choices.chosen(QuantizerForm, form, "form")
    if wanted is QuantizerForm.NATIVE:
        return FusedOps(None, "asked for")
    if wanted is QuantizerForm.AUTO and _compiles_with_xla():
        return FusedOps(None, "XLA compiles TensorFlow's own ops only")
    fused = gpu_ops() if places_on_gpu() else fused_ops()
    if wanted is QuantizerForm.FUSED and fused.ops is None:
        raise UsageError(f"the fused quantizer is not available: {fused.why}")
    return fused


def places_on_gpu() -> bool:
    """Whether new ops are placed on a GPU: by the scope of `tf.device`, else if there is one."""
    import tensorflow as tf

    # TensorFlow has no public way to ask. A function that is traced has the scope around it.
    context = importlib.import_module("tensorflow.python.eager.context").context()
    scopes = [context.device_name or ""]
    if not tf.executing_eagerly():
        scopes.insert(0, tf.no_op(name="qgraph_device").device)
    kinds = [tf.DeviceSpec.from_string(scope).device_type for scope in scopes]
    default = "GPU" if tf.config.get_visible_devices("GPU") else "CPU"
    return next((kind for kind in kinds if kind is not None), default) == "GPU"


def _compiles_with_xla() -> bool:
    """Whether a function is traced with `jit_compile=True`. XLA does not support custom ops."""
    import tensorflow as tf

    if tf.executing_eagerly():
        return False
    # TensorFlow has no public way to ask.
    util = importlib.import_module("tensorflow.python.ops.control_flow_util")
    return bool(util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def _keeping_only_x(forward: Forward, backward: Backward) -> Forward:
    import tensorflow as tf

    def run(x: Tensor, log2_t: Tensor) -> Tensor:
        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            # Waits for the upstream gradient; otherwise the graph optimizer would keep results of
            # the forward pass instead of computing them again.
            with tf.control_dependencies([upstream]):
                again = tf.identity(x)
            g = tf.cast(upstream, tf.float32)
            grad_x, grad_t = backward(g, tf.cast(again, tf.float32), log2_t)
            return tf.cast(grad_x, x.dtype), grad_t

        # Without stop_gradient, a tape would also keep every tensor in between.
        y = forward(tf.cast(tf.stop_gradient(x), tf.float32), tf.stop_gradient(log2_t))
        return tf.cast(y, x.dtype), gradient

    made: Forward = tf.custom_gradient(run)
    return made


@dataclass(frozen=True)
class Spec:
    """Bits, sign, rounding and offset of a quantizer, and the quantizer in TensorFlow's own ops.

    wraps: whether codes outside the range wrap instead of saturating; the gradient is the same.
    Raises UsageError for values out of range.
    """

    bits: int
    signed: bool
    rounding: str
    offset: int
    wraps: bool = False

    def __post_init__(self) -> None:
        if not 1 + self.signed <= self.bits <= MAX_BITS:
            raise UsageError(f"bits must be {1 + self.signed} to {MAX_BITS}, not {self.bits}")
        if self.rounding not in ROUNDINGS:
            raise UsageError(f"rounding must be one of {', '.join(ROUNDINGS)}, not {self.rounding}")

    @property
    def attributes(self) -> dict[str, object]:
        """Attributes of the fused op."""
        return {
            "bits": self.bits,
            "signed": self.signed,
            "rounding": rounding_of_numbers(self.rounding),
            "offset": self.offset,
        }

    @property
    def low(self) -> float:
        """The lowest code."""
        return -(2.0 ** (self.bits - 1)) if self.signed else 0.0

    @property
    def high(self) -> float:
        """The highest code."""
        return 2.0 ** (self.bits - self.signed) - 1.0

    def forward(self, x: Tensor, log2_t: Tensor) -> Tensor:
        """The quantized x, in its type: float32 or float64."""
        import tensorflow as tf

        scale, step = (tf.cast(power, x.dtype) for power in self._scales(log2_t))
        whole = self._rounded(x * scale, x)
        low, high, zero = (tf.constant(v, x.dtype) for v in (self.low, self.high, 0.0))
        if self.wraps:
            code = _wrapped(whole, low, high)
        else:
            code = tf.where(whole < low, low, tf.where(whole > high, high, whole))
        return tf.where(tf.equal(code, zero), zero, code * step)  # no -0

    def backward(self, upstream: Tensor, x: Tensor, log2_t: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of x and log2_t; sums are added in the order of fused_ops/core/quantize.h."""
        import tensorflow as tf

        scale, step = self._scales(log2_t)
        scaled = x * scale
        whole = self._rounded(scaled, x)
        below, above = whole < self.low, whole > self.high
        slope = tf.where(below, self.low, tf.where(above, self.high, whole - scaled))
        products = tf.cast(upstream, tf.float64) * tf.cast(slope, tf.float64)
        sums = _ordered_sum(products, log2_t)
        grad_t = tf.cast(step, tf.float64) * tf.constant(math.log(2.0), tf.float64) * sums
        grad_x = tf.where(below | above, tf.zeros_like(upstream), upstream)
        return grad_x, tf.cast(grad_t, tf.float32)

    def _scales(self, log2_t: Tensor) -> tuple[Tensor, Tensor]:
        """2^f and 2^-f, built from bits, because `pow` is not exact on every device."""
        import tensorflow as tf

        f = float(self.bits - self.signed + self.offset) - tf.math.ceil(log2_t)
        fits = tf.abs(f) <= MAX_EXPONENT
        text = "a threshold gives a scale that float32 does not hold: log2 t ="
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(fits), [text, log2_t])]):
            whole = tf.where(fits, f, 0.0)
        nan = tf.constant(math.nan, tf.float32)
        scale, step = (tf.where(fits, power, nan) for power in _powers(whole))
        return scale, step

    def _rounded(self, scaled: Tensor, x: Tensor) -> Tensor:
        import tensorflow as tf

        match rounding_of_numbers(self.rounding):
            case Rounding.HALF_EVEN:
                return tf.round(scaled)
            case Rounding.HALF_UP:
                return _half_up(scaled)
            case Rounding.HALF_AWAY | Rounding.DOUBLE:
                size = _half_up(tf.abs(scaled))
                return tf.where(scaled < 0.0, -size, size)
            case Rounding.FLOOR:
                vanished = tf.equal(scaled, 0.0) & (x < 0.0)
                return tf.where(vanished, tf.constant(-1.0, x.dtype), tf.floor(scaled))


def with_even_codes(x: Tensor, exponent: Tensor, drops: Tensor) -> Tensor:
    """x with odd codes rounded up to even ones if `drops`: the first step of rounding `double`.

    Codes are `x * 2^exponent`. The gradient passes unchanged.
    """
    import tensorflow as tf

    limited = tf.clip_by_value(exponent, -MAX_EXPONENT, MAX_EXPONENT)
    scale, step = (tf.cast(power, x.dtype) for power in _powers(limited))

    def run(x: Tensor) -> Tensor:
        return tf.where(drops, tf.math.ceil(x * scale * 0.5) * 2.0 * step, x)

    made: Tensor = tf.grad_pass_through(run)(x)
    return made


def _wrapped(codes: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Codes in the range from low to high, after whole turns; exact in float64."""
    import tensorflow as tf

    turn = high - low + 1.0
    held = tf.clip_by_value(codes, -WRAP_LIMIT, WRAP_LIMIT)
    return tf.math.floormod(tf.math.floormod(held, turn) - low, turn) + low


def _powers(exponent: Tensor) -> tuple[Tensor, Tensor]:
    """2^e and 2^-e as float32 for integral e in float32, |e| <= 126."""
    import tensorflow as tf

    whole = tf.cast(exponent, tf.int32)
    up, down = (tf.bitcast((127 + e) * (1 << 23), tf.float32) for e in (whole, -whole))
    return up, down


def _half_up(v: Tensor) -> Tensor:
    import tensorflow as tf

    whole = tf.floor(v)
    return tf.where(v - whole >= 0.5, whole + 1.0, whole)


def _ordered_sum(products: Tensor, log2_t: Tensor) -> Tensor:
    """Sums over all axes except those of log2_t, in a fixed order of additions."""
    import tensorflow as tf

    count = log2_t.shape.num_elements()
    if count == 0:
        return tf.zeros(log2_t.shape, tf.float64)
    columns = LANES if count == 1 else count
    blocks = _padded(products, LEAVES * LEAF_ROWS * columns)
    leaves = _added_up(tf.reshape(blocks, [-1, LEAVES, LEAF_ROWS, columns]), axis=2)
    spans = _padded(_added_up(leaves, axis=1), BLOCKS * columns)
    of_spans = _added_up(tf.reshape(spans, [-1, BLOCKS, columns]), axis=1)
    sums = _added_in_turn(of_spans, tf.zeros([columns], tf.float64))
    while count == 1 and sums.shape[0] > 1:
        half = sums.shape[0] // 2
        sums = sums[:half] + sums[half:]
    return tf.reshape(sums, log2_t.shape)


def _padded(values: Tensor, size: int) -> Tensor:
    """The values as one axis, padded with zeros to a multiple of `size`."""
    import tensorflow as tf

    flat = tf.reshape(values, [-1])
    return tf.pad(flat, [[0, tf.math.floormod(-tf.size(flat), size)]])


def _added_up(values: Tensor, axis: int) -> Tensor:
    import tensorflow as tf

    first, *rest = tf.unstack(values, axis=axis)
    for value in rest:
        first = first + value
    return first


def _added_in_turn(values: Tensor, start: Tensor) -> Tensor:
    """The sum along the first axis, whose size may be unknown."""
    import tensorflow as tf

    count = tf.shape(values)[0]
    _, total = tf.while_loop(
        lambda i, _: i < count,
        lambda i, total: (i + 1, total + values[i]),
        (tf.constant(0), start),
    )
    return total
