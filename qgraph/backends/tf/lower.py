"""How each op is written in TensorFlow. A new op is a new entry in `LOWER`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from qgraph.backends.tf.builder import DType
from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Node
from qgraph.ir.ops.activation import six_code
from qgraph.ir.ops.structure import table
from qgraph.ir.ops.windows import explicit_pads
from qgraph.ir.types import QuantSpec
from qgraph.numerics import dequantize, quantize
from qgraph.ir.types import Fixed

if TYPE_CHECKING:
    from qgraph.backends.tf.emit import Emission

Lower = Callable[["Emission", Node], str]


def _simple(op: str, dtype_attr: str = "T") -> Lower:
    """An op with the same inputs in TensorFlow."""

    def lower(e: Emission, node: Node) -> str:
        dtype = e.dtypes[node.name]
        inputs = [e.tensor(v, dtype) for v in node.inputs]
        return e.builder.add(op, node.name, inputs, **{dtype_attr: DType(dtype)})

    return lower


# -- convolutions and pools -----------------------------------------------------------------


def _pad_spatial(e: Emission, node: Node, x: str, pads: Any, dtype: str, fill: float | None = None) -> str:
    paddings = e.builder.const(np.array([(0, 0), *pads, (0, 0)], np.int32), f"{node.name}/paddings")
    types = {"T": DType(dtype), "Tpaddings": DType("int32")}
    if fill is None:
        return e.builder.add("Pad", f"{node.name}/pad", [x, paddings], **types)
    return e.builder.add("PadV2", f"{node.name}/pad", [x, paddings, e.builder.scalar(fill, dtype)], **types)


def _padding(node: Node) -> tuple[str, Any]:
    padding = node.attrs["padding"]
    if isinstance(padding, str):
        return padding.upper(), None
    return "VALID", padding if padding != ((0, 0), (0, 0)) else None


def _conv2d(e: Emission, node: Node) -> str:
    dtype = e.dtypes[node.name]
    x, w = (e.tensor(v, dtype) for v in node.inputs)
    mode, pads = _padding(node)
    attrs = {
        "T": DType(dtype),
        "strides": (1, *node.attrs["strides"], 1),
        "dilations": (1, *node.attrs["dilations"], 1),
        "padding": mode,
    }
    if pads is not None:
        x = _pad_spatial(e, node, x, pads, dtype)
    filters = e.constants.get(node.inputs[1])
    channels = (e.graph.types[node.inputs[0]].shape or (None,))[-1]
    groups = 1 if channels is None or filters is None else channels // filters.shape[2]
    if groups == 1:
        return e.builder.add("Conv2D", node.name, [x, w], **attrs)
    return _grouped(e, node, x, w, groups, attrs)


def _grouped(e: Emission, node: Node, x: str, w: str, groups: int, attrs: Mapping[str, Any]) -> str:
    """TensorFlow's CPU kernels have no groups: split, convolve, join."""
    axis = e.builder.scalar(3, "int32")
    split = {"T": attrs["T"], "num_split": groups}
    xs = e.builder.add("Split", f"{node.name}/split", [axis, x], **split)
    ws = e.builder.add("Split", f"{node.name}/filters", [axis, w], **split)
    parts = [
        e.builder.add("Conv2D", f"{node.name}/group", [f"{xs}:{i}" if i else xs, f"{ws}:{i}" if i else ws], **attrs)
        for i in range(groups)
    ]
    return e.builder.add(
        "ConcatV2", node.name, [*parts, axis], T=attrs["T"], Tidx=DType("int32"), N=groups
    )


def _depthwise(e: Emission, node: Node) -> str:
    """TensorFlow's depthwise kernel knows neither dilation, nor unequal strides, nor own padding.

    A dilated filter is the same filter with zeros between its taps, an unequal stride is stride 1
    of which some results are taken: both exact.
    """
    dtype = e.dtypes[node.name]
    x = e.tensor(node.inputs[0], dtype)
    w = e.tensor(node.inputs[1], dtype)
    strides, dilations = node.attrs["strides"], node.attrs["dilations"]
    mode, pads = _padding(node)
    filters = e.constants.get(node.inputs[1])
    even = strides[0] == strides[1]
    if dilations != (1, 1):
        if filters is None:
            raise UnsupportedError("a dilated depthwise filter must be constant", node=node.name)
        w = e.builder.const(_dilated(filters, dilations).astype(dtype), f"{node.name}/dilated")
    if not even and mode == "SAME":
        shape = e.graph.types[node.inputs[0]].shape
        if shape is None or None in shape[1:3] or filters is None:
            raise UnsupportedError("unequal strides need a known image size", node=node.name)
        sizes = tuple(int(d or 0) for d in shape[1:3])
        mode, pads = "VALID", explicit_pads(sizes, filters.shape[:2], strides, dilations, "same")
    if pads is not None:
        x = _pad_spatial(e, node, x, pads, dtype)
    step = strides[0] if even else 1
    name = node.name if even else f"{node.name}/every"
    y = e.builder.add(
        "DepthwiseConv2dNative", name, [x, w], T=DType(dtype), strides=(1, step, step, 1), padding=mode
    )
    return y if even else _strided(e, node.name, y, [None, None, None, None], [None] * 4, [1, *strides, 1], dtype)


def _dilated(filters: Any, dilations: tuple[int, int]) -> Any:
    kh, kw, c, m = filters.shape
    spread = np.zeros(((kh - 1) * dilations[0] + 1, (kw - 1) * dilations[1] + 1, c, m), filters.dtype)
    spread[:: dilations[0], :: dilations[1]] = filters
    return spread


def _pool(op: str) -> Lower:
    def lower(e: Emission, node: Node) -> str:
        dtype = e.dtypes[node.name]
        x = e.tensor(node.inputs[0], dtype)
        mode, pads = _padding(node)
        if pads is not None:
            if op == "AvgPool":
                raise UnsupportedError("an average pool with its own padding stays unsupported", node=node.name)
            x = _pad_spatial(e, node, x, pads, dtype, float(np.finfo(dtype).min))
        ksize, strides = (1, *node.attrs["ksize"], 1), (1, *node.attrs["strides"], 1)
        return e.builder.add(op, node.name, [x], T=DType(dtype), ksize=ksize, strides=strides, padding=mode)

    return lower


def _reduce(op: str) -> Lower:
    def lower(e: Emission, node: Node) -> str:
        dtype = e.dtypes[node.name]
        axes = e.builder.const(np.array(node.attrs["axes"], np.int32), f"{node.name}/axes")
        return e.builder.add(
            op, node.name, [e.tensor(node.inputs[0], dtype), axes],
            T=DType(dtype), Tidx=DType("int32"), keep_dims=node.attrs["keepdims"],
        )  # fmt: skip

    return lower


# -- quantizers -----------------------------------------------------------------------------


def _quantize(e: Emission, node: Node) -> str:
    """Scale, round, clip, scale back: each step exact in the input's float type."""
    spec: QuantSpec = node.attrs["spec"]
    dtype = e.type_name(node.inputs[0])
    up = np.ldexp(1.0, np.asarray(spec.exponent)).astype(dtype)
    down = np.ldexp(1.0, -np.asarray(spec.exponent)).astype(dtype)
    name, t = node.name, DType(dtype)
    x = e.builder.add("Mul", f"{name}/scale", [e.tensor(node.inputs[0]), _factor(e, name, up)], T=t)
    x = _round(e, name, x, spec.rounding, dtype)
    if spec.overflow == "wrap":
        low, span = e.builder.scalar(spec.lo, dtype), e.builder.scalar(1 << spec.bits, dtype)
        x = e.builder.add("Sub", f"{name}/from_low", [x, low], T=t)
        x = e.builder.add("FloorMod", f"{name}/wrap", [x, span], T=t)
        x = e.builder.add("AddV2", f"{name}/to_low", [x, low], T=t)
    else:
        x = e.builder.add("Minimum", f"{name}/clip_high", [x, e.builder.scalar(spec.hi, dtype)], T=t)
        x = e.builder.add("Maximum", f"{name}/clip_low", [x, e.builder.scalar(spec.lo, dtype)], T=t)
    if dtype == "float32":
        return e.builder.add("Mul", name, [x, _factor(e, name, down)], T=t)
    x = e.builder.add("Mul", f"{name}/unscale", [x, _factor(e, name, down)], T=t)
    return e.builder.add("Cast", name, [x], SrcT=t, DstT=DType("float32"))


def _factor(e: Emission, name: str, factor: Any) -> str:
    if factor.ndim == 0:
        return e.builder.scalar(float(factor), factor.dtype.name)
    return e.builder.const(factor, f"{name}/factors")


def _round(e: Emission, name: str, x: str, rounding: str, dtype: str) -> str:
    t = DType(dtype)
    if rounding == "half_even":
        return e.builder.add("Round", f"{name}/round", [x], T=t)
    if rounding == "floor":
        return e.builder.add("Floor", f"{name}/round", [x], T=t)
    if rounding == "half_up":
        return _half_up(e, name, x, dtype)
    sign = e.builder.add("Sign", f"{name}/sign", [x], T=t)
    size = _half_up(e, name, e.builder.add("Abs", f"{name}/abs", [x], T=t), dtype)
    return e.builder.add("Mul", f"{name}/signed", [size, sign], T=t)


def _half_up(e: Emission, name: str, x: str, dtype: str) -> str:
    """floor(x) + (x - floor(x) >= 1/2): `floor(x + 1/2)` is wrong just below a half."""
    t = DType(dtype)
    whole = e.builder.add("Floor", f"{name}/whole", [x], T=t)
    rest = e.builder.add("Sub", f"{name}/rest", [x, whole], T=t)
    up = e.builder.add("GreaterEqual", f"{name}/up", [rest, e.builder.scalar(0.5, dtype)], T=t)
    step = e.builder.add("Cast", f"{name}/step", [up], SrcT=DType("bool"), DstT=t)
    return e.builder.add("AddV2", f"{name}/round", [whole, step], T=t)


def _lookup(e: Emission, node: Node) -> str:
    spec: QuantSpec = node.attrs["spec"]
    exponent = int(e.exponents[node.inputs[0]])
    dtype = e.type_name(node.inputs[0])
    values = dequantize(Fixed(table(node.attrs, exponent), spec.exponent)).astype(np.float32)  # type: ignore[arg-type]
    entries = e.builder.const(values, f"{node.name}/table")
    scale = e.builder.scalar(float(np.ldexp(1.0, exponent)), dtype)
    code = e.builder.add("Mul", f"{node.name}/code", [e.tensor(node.inputs[0]), scale], T=DType(dtype))
    index = e.builder.add("Cast", f"{node.name}/as_index", [code], SrcT=DType(dtype), DstT=DType("int32"))
    low = e.builder.scalar(node.attrs["domain"].lo, "int32")
    index = e.builder.add("Sub", f"{node.name}/index", [index, low], T=DType("int32"))
    return e.builder.add(
        "GatherV2", node.name, [entries, index, e.builder.scalar(0, "int32")],
        Tparams=DType("float32"), Tindices=DType("int32"), Taxis=DType("int32"), batch_dims=0,
    )  # fmt: skip


# -- activations and arithmetic -------------------------------------------------------------


def _relu6(e: Emission, node: Node) -> str:
    """On a grid, the clip is the grid point nearest to 6, as in the integer reference."""
    dtype = e.dtypes[node.name]
    x = e.tensor(node.inputs[0], dtype)
    if node.inputs[0] not in e.bounds:
        return e.builder.add("Relu6", node.name, [x], T=DType(dtype))
    exponent = e.exponents[node.inputs[0]]
    six = np.ldexp(six_code(exponent).astype(np.float64), -np.asarray(exponent)).astype(dtype)
    x = e.builder.add("Relu", f"{node.name}/relu", [x], T=DType(dtype))
    return e.builder.add("Minimum", node.name, [x, _factor(e, node.name, six)], T=DType(dtype))


def _via(*steps: tuple[str, float | None]) -> Lower:
    """A chain of ops on x, each with one scalar where it has two inputs: (op, scalar)."""

    def lower(e: Emission, node: Node) -> str:
        dtype = e.dtypes[node.name]
        x = start = e.tensor(node.inputs[0], dtype)
        for index, (op, scalar) in enumerate(steps):
            name = node.name if index == len(steps) - 1 else f"{node.name}/{op.lower()}"
            inputs = [x] if scalar is None else [x, start if np.isnan(scalar) else e.builder.scalar(scalar, dtype)]
            x = e.builder.add(op, name, inputs, T=DType(dtype))
        return x

    return lower


ITSELF = float("nan")  # in `_via`: the second input is x itself


def _leaky_relu(e: Emission, node: Node) -> str:
    dtype = e.dtypes[node.name]
    return e.builder.add(
        "LeakyRelu", node.name, [e.tensor(node.inputs[0], dtype)], T=DType(dtype), alpha=float(node.attrs["alpha"])
    )


def _batch_norm(e: Emission, node: Node) -> str:
    dtype = e.dtypes[node.name]
    return e.builder.add(
        "FusedBatchNormV3", node.name, [e.tensor(v, dtype) for v in node.inputs],
        T=DType(dtype), U=DType(dtype), epsilon=float(node.attrs["epsilon"]), is_training=False,
    )  # fmt: skip


def _comparison(e: Emission, node: Node) -> str:
    dtype = e.type_name(node.inputs[0])
    return e.builder.add("GreaterEqual", node.name, [e.tensor(v, dtype) for v in node.inputs], T=DType(dtype))


def _cast(e: Emission, node: Node) -> str:
    source = e.type_name(node.inputs[0])
    return e.builder.add(
        "Cast", node.name, [e.tensor(node.inputs[0])], SrcT=DType(source), DstT=DType(node.attrs["dtype"])
    )


def _argmax(e: Emission, node: Node) -> str:
    axis = e.builder.scalar(node.attrs["axis"], "int32")
    return e.builder.add(
        "ArgMax", node.name, [e.tensor(node.inputs[0]), axis],
        T=DType(e.type_name(node.inputs[0])), Tidx=DType("int32"), output_type=DType(node.attrs["dtype"]),
    )  # fmt: skip


# -- movement -------------------------------------------------------------------------------


def _with_const(op: str, values: Callable[[Node], Any], dtype_attr: str) -> Lower:
    """An op whose second input is a constant int32 array."""

    def lower(e: Emission, node: Node) -> str:
        dtype = e.dtypes[node.name]
        second = e.builder.const(np.asarray(values(node), np.int32), f"{node.name}/{dtype_attr.lower()}")
        attrs = {"T": DType(dtype), dtype_attr: DType("int32")}
        return e.builder.add(op, node.name, [e.tensor(node.inputs[0], dtype), second], **attrs)

    return lower


def _pad(e: Emission, node: Node) -> str:
    dtype = e.dtypes[node.name]
    mode, value = node.attrs.get("mode", "constant"), node.attrs.get("value", 0)
    paddings = e.builder.const(np.array(node.attrs["paddings"], np.int32), f"{node.name}/paddings")
    inputs, types = [e.tensor(node.inputs[0], dtype), paddings], {"T": DType(dtype), "Tpaddings": DType("int32")}
    if mode != "constant":
        return e.builder.add("MirrorPad", node.name, inputs, mode=mode.upper(), **types)
    if not value:
        return e.builder.add("Pad", node.name, inputs, **types)
    return e.builder.add("PadV2", node.name, [*inputs, e.builder.scalar(value, dtype)], **types)


def _concat(e: Emission, node: Node) -> str:
    dtype = e.dtypes[node.name]
    axis = e.builder.scalar(node.attrs["axis"], "int32")
    inputs = [e.tensor(v, dtype) for v in node.inputs]
    if len(inputs) == 1:
        return e.builder.add("Identity", node.name, inputs, T=DType(dtype))
    return e.builder.add(
        "ConcatV2", node.name, [*inputs, axis], T=DType(dtype), Tidx=DType("int32"), N=len(inputs)
    )


def _slice(e: Emission, node: Node) -> str:
    dtype = e.dtypes[node.name]
    parts = (list(node.attrs[key]) for key in ("begin", "end", "strides"))
    return _strided(e, node.name, e.tensor(node.inputs[0], dtype), *parts, dtype)


def _strided(e: Emission, name: str, x: str, begin: Any, end: Any, strides: Any, dtype: str) -> str:
    consts = [
        e.builder.const(np.array([0 if v is None else v for v in values], np.int32), f"{name}/{what}")
        for what, values in (("begin", begin), ("end", end))
    ]
    steps = e.builder.const(np.array([1 if s is None else s for s in strides], np.int32), f"{name}/strides")
    return e.builder.add(
        "StridedSlice", name, [x, *consts, steps], T=DType(dtype), Index=DType("int32"),
        begin_mask=sum(1 << i for i, v in enumerate(begin) if v is None),
        end_mask=sum(1 << i for i, v in enumerate(end) if v is None),
    )  # fmt: skip


def _squeeze(e: Emission, node: Node) -> str:
    dtype = e.dtypes[node.name]
    x = e.tensor(node.inputs[0], dtype)
    return e.builder.add("Squeeze", node.name, [x], T=DType(dtype), squeeze_dims=node.attrs["axes"])


def _resize(e: Emission, node: Node) -> str:
    dtype = e.dtypes[node.name]
    size = e.builder.const(np.array(node.attrs["size"], np.int32), f"{node.name}/size")
    return e.builder.add(
        "ResizeNearestNeighbor", node.name, [e.tensor(node.inputs[0], dtype), size], T=DType(dtype),
        align_corners=bool(node.attrs.get("align_corners", False)),
        half_pixel_centers=bool(node.attrs.get("half_pixel", False)),
    )  # fmt: skip


def _block(op: str) -> Lower:
    def lower(e: Emission, node: Node) -> str:
        dtype = e.dtypes[node.name]
        x = e.tensor(node.inputs[0], dtype)
        return e.builder.add(op, node.name, [x], T=DType(dtype), block_size=node.attrs["block"])

    return lower


def _batch_block(op: str, pads: str) -> Lower:
    def lower(e: Emission, node: Node) -> str:
        dtype = e.dtypes[node.name]
        block = e.builder.const(np.array(node.attrs["block"], np.int32), f"{node.name}/block")
        edges = e.builder.const(np.array(node.attrs[pads], np.int32), f"{node.name}/{pads}")
        types = {"T": DType(dtype), "Tblock_shape": DType("int32"), f"T{pads}": DType("int32")}
        return e.builder.add(op, node.name, [e.tensor(node.inputs[0], dtype), block, edges], **types)

    return lower


def _opaque(e: Emission, node: Node) -> str:
    source = node.attrs["source"]
    if not hasattr(source, "node_def"):
        raise UnsupportedError(f"`{node.attrs['kind']}` comes from another framework", node=node.name)
    made = e.builder.graph_def.node.add()
    made.CopyFrom(source.node_def())
    made.name = e.builder.unique(node.name)
    del made.input[:]
    made.input.extend(e.tensor(v, e.graph.types[v].dtype) for v in node.inputs)
    name: str = made.name
    return name


LOWER: Mapping[str, Lower] = {
    "conv2d": _conv2d,
    "depthwise_conv2d": _depthwise,
    "matmul": _simple("MatMul"),
    "bias_add": _simple("BiasAdd"),
    "batch_norm": _batch_norm,
    "quantize": _quantize,
    "lookup": _lookup,
    "add": _simple("AddV2"),
    "sub": _simple("Sub"),
    "mul": _simple("Mul"),
    "div": _simple("RealDiv"),
    "maximum": _simple("Maximum"),
    "minimum": _simple("Minimum"),
    "squared_difference": _simple("SquaredDifference"),
    "pow": _simple("Pow"),
    "neg": _simple("Neg"),
    "abs": _simple("Abs"),
    "exp": _simple("Exp"),
    "log": _simple("Log"),
    "sqrt": _simple("Sqrt"),
    "rsqrt": _simple("Rsqrt"),
    "square": _simple("Square"),
    "reciprocal": _simple("Reciprocal"),
    "floor": _simple("Floor"),
    "greater_equal": _comparison,
    "cast": _cast,
    "relu": _simple("Relu"),
    "relu6": _relu6,
    "leaky_relu": _leaky_relu,
    "sigmoid": _simple("Sigmoid"),
    "tanh": _simple("Tanh"),
    "elu": _simple("Elu"),
    "selu": _simple("Selu"),
    "softplus": _simple("Softplus"),
    "softsign": _simple("Softsign"),
    "swish": _via(("Sigmoid", None), ("Mul", ITSELF)),
    "hard_sigmoid": _via(("AddV2", 3.0), ("Relu6", None), ("RealDiv", 6.0)),
    "hard_swish": _via(("AddV2", 3.0), ("Relu6", None), ("Mul", ITSELF), ("RealDiv", 6.0)),
    "softmax": _simple("Softmax"),
    "log_softmax": _simple("LogSoftmax"),
    "max_pool": _pool("MaxPool"),
    "avg_pool": _pool("AvgPool"),
    "mean": _reduce("Mean"),
    "sum": _reduce("Sum"),
    "reduce_max": _reduce("Max"),
    "argmax": _argmax,
    "identity": _simple("Identity"),
    "concat": _concat,
    "pad": _pad,
    "reshape": _with_const("Reshape", lambda node: node.attrs["shape"], "Tshape"),
    "transpose": _with_const("Transpose", lambda node: node.attrs["perm"], "Tperm"),
    "expand_dims": _with_const("ExpandDims", lambda node: node.attrs["axis"], "Tdim"),
    "squeeze": _squeeze,
    "slice": _slice,
    "resize_nearest": _resize,
    "space_to_depth": _block("SpaceToDepth"),
    "depth_to_space": _block("DepthToSpace"),
    "space_to_batch": _batch_block("SpaceToBatchND", "paddings"),
    "batch_to_space": _batch_block("BatchToSpaceND", "crops"),
    "opaque": _opaque,
}
