"""Float ops on elements: activations, arithmetic, comparisons."""

from __future__ import annotations

from collections.abc import Mapping

from qgraph.backends.tflite.floats.float_writer import FloatLower, FloatWriter
from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Node
from qgraph.ir.ops.activation import (
    SELU_ALPHA,
    SELU_SCALE,
    EluAttrs,
    GeluAttrs,
    HardSigmoidAttrs,
    LeakyReluAttrs,
)
from qgraph.ir.ops.composed import Argument, steps_of

OF_FLOATS = ("DIV", "POW")  # of integers they are other functions


def _unary(op: str, options: str | None = None) -> FloatLower:
    def lower(w: FloatWriter, node: Node) -> int:
        w.check_float(node.inputs[0], node)
        return w.unary(op, w.get(node.inputs[0]), node, options)

    return lower


def _binary(op: str, options: str) -> FloatLower:
    def lower(w: FloatWriter, node: Node) -> int:
        if op in OF_FLOATS:
            w.check_float(node.inputs[0], node)
        inputs = [w.get(value) for value in node.inputs]
        return w.operator(op, inputs, node, options, dtype=w.dtype(node.name))

    return lower


def _leaky_relu(w: FloatWriter, node: Node) -> int:
    alpha = node.typed(LeakyReluAttrs).alpha
    x = w.get(node.inputs[0])
    return w.operator("LEAKY_RELU", [x], node, "LeakyReluOptions", Alpha=float(alpha))


def _elu(w: FloatWriter, node: Node) -> int:
    alpha = node.typed(EluAttrs).alpha
    if alpha != 1:
        raise UnsupportedError(f"TFLite's ELU has no alpha, such as {alpha:g}", node=node.name)
    return w.unary("ELU", w.get(node.inputs[0]), node)


def _swish(w: FloatWriter, node: Node) -> int:
    x = w.get(node.inputs[0])
    return w.binary("MUL", x, w.unary("LOGISTIC", x, node), node)


def _hard_sigmoid(w: FloatWriter, node: Node) -> int:
    attrs, x = node.typed(HardSigmoidAttrs), w.get(node.inputs[0])
    if attrs.alpha is None or attrs.beta is None:
        x = w.unary("RELU6", w.binary("ADD", x, w.number(3, node.name), node), node)
        return w.binary("DIV", x, w.number(6, node.name), node)
    x = w.binary("MUL", x, w.number(attrs.alpha, node.name), node)
    x = w.binary("ADD", x, w.number(attrs.beta, node.name), node)
    for op, limit in (("MAXIMUM", 0), ("MINIMUM", 1)):
        x = w.operator(op, [x, w.number(limit, node.name)], node, "MaximumMinimumOptions")
    return x


def _hard_swish(w: FloatWriter, node: Node) -> int:
    x = w.get(node.inputs[0])
    return w.binary("MUL", x, _hard_sigmoid(w, node), node)


def _gelu(w: FloatWriter, node: Node) -> int:
    """TFLM has no GELU; that by tanh is written in steps."""
    approximate = node.typed(GeluAttrs).approximate
    if w.micro and approximate:
        return _steps(w, node)
    x = w.get(node.inputs[0])
    return w.operator("GELU", [x], node, "GeluOptions", Approximate=approximate)


def _reciprocal(w: FloatWriter, node: Node) -> int:
    return w.binary("DIV", w.number(1, node.name), w.get(node.inputs[0]), node)


def _softsign(w: FloatWriter, node: Node) -> int:
    x = w.get(node.inputs[0])
    divisor = w.binary("ADD", w.unary("ABS", x, node), w.number(1, node.name), node)
    return w.binary("DIV", x, divisor, node)


def _softplus(w: FloatWriter, node: Node) -> int:
    """`max(x, 0) + log(1 + exp(-|x|))`, which does not overflow."""
    x = w.get(node.inputs[0])
    small = w.unary("EXP", w.unary("NEG", w.unary("ABS", x, node), node), node)
    small = w.unary("LOG", w.binary("ADD", small, w.number(1, node.name), node), node)
    return w.binary("ADD", w.unary("RELU", x, node), small, node)


def _selu(w: FloatWriter, node: Node) -> int:
    """`scale * (max(x, 0) + alpha * (exp(min(x, 0)) - 1))`."""
    x, zero, one = w.get(node.inputs[0]), w.number(0, node.name), w.number(1, node.name)
    below = w.operator("MINIMUM", [x, zero], node, "MaximumMinimumOptions")
    below = w.binary("SUB", w.unary("EXP", below, node), one, node)
    below = w.binary("MUL", below, w.number(SELU_ALPHA, node.name), node)
    made = w.binary("ADD", w.unary("RELU", x, node), below, node)
    return w.binary("MUL", made, w.number(SELU_SCALE, node.name), node)


def _square(w: FloatWriter, node: Node) -> int:
    x = w.get(node.inputs[0])
    return w.binary("MUL", x, x, node)


def _squared_difference(w: FloatWriter, node: Node) -> int:
    a, b = (w.get(value) for value in node.inputs)
    difference = w.binary("SUB", a, b, node)
    return w.binary("MUL", difference, difference, node)


def _compared(op: str) -> FloatLower:
    options = f"{''.join(word.capitalize() for word in op.split('_'))}Options"

    def lower(w: FloatWriter, node: Node) -> int:
        inputs = [w.get(value) for value in node.inputs]
        return w.operator(op, inputs, node, options, dtype="bool")

    return lower


def _select(w: FloatWriter, node: Node) -> int:
    inputs = [w.get(value) for value in node.inputs]
    kind = w.dtype(node.name)
    return w.operator("SELECT_V2", inputs, node, "SelectV2Options", dtype=kind)


def _cast(w: FloatWriter, node: Node) -> int:
    (x,), kind = node.inputs, w.dtype(node.name)
    w.dtype(x)
    return w.operator("CAST", [w.get(x)], node, dtype=kind)


def _steps(w: FloatWriter, node: Node) -> int:
    """A function in steps, each an op of this table on one tensor."""
    values = [node.inputs[0]]

    def argument(value: Argument) -> str:
        if isinstance(value, int):
            return values[value]
        name = f"{node.name}/{float(value)!r}"
        w.held.setdefault(name, w.number(value, node.name))
        return name

    for i, (op, arguments, extra) in enumerate(steps_of(node.attributes) or ()):
        if op not in ELEMENTWISE:
            raise UnsupportedError(f"TFLite has no operator for its step `{op}`", node=node.name)
        step = Node(f"{node.name}/step {i}", op, tuple(map(argument, arguments)), dict(extra))
        w.types[step.name] = w.types[node.inputs[0]]
        w.held[step.name] = ELEMENTWISE[op](w, step)
        values.append(step.name)
    return w.held[values[-1]]


def _bias_add(w: FloatWriter, node: Node) -> int:
    a, b = (w.get(value) for value in node.inputs)
    return w.binary("ADD", a, b, node)


NUMBERS = "MaximumMinimumOptions"
ELEMENTWISE: Mapping[str, FloatLower] = {
    "relu": _unary("RELU"),
    "relu6": _unary("RELU6"),
    "leaky_relu": _leaky_relu,
    "sigmoid": _unary("LOGISTIC"),
    "tanh": _unary("TANH"),
    "swish": _swish,
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": _hard_swish,
    "elu": _elu,
    "gelu": _gelu,
    "selu": _selu,
    "softplus": _softplus,
    "softsign": _softsign,
    "composed": _steps,
    "add": _binary("ADD", "AddOptions"),
    "sub": _binary("SUB", "SubOptions"),
    "mul": _binary("MUL", "MulOptions"),
    "div": _binary("DIV", "DivOptions"),
    "maximum": _binary("MAXIMUM", NUMBERS),
    "minimum": _binary("MINIMUM", NUMBERS),
    "pow": _binary("POW", "PowOptions"),
    "bias_add": _bias_add,
    "squared_difference": _squared_difference,
    "neg": _unary("NEG", "NegOptions"),
    "abs": _unary("ABS", "AbsOptions"),
    "exp": _unary("EXP", "ExpOptions"),
    "log": _unary("LOG"),
    "sqrt": _unary("SQRT"),
    "rsqrt": _unary("RSQRT"),
    "square": _square,
    "reciprocal": _reciprocal,
    "floor": _unary("FLOOR"),
    "ceil": _unary("CEIL"),
    "round": _unary("ROUND"),
    "sign": _unary("SIGN", "SignOptions"),
    "sin": _unary("SIN"),
    "cos": _unary("COS", "CosOptions"),
    "greater": _compared("GREATER"),
    "greater_equal": _compared("GREATER_EQUAL"),
    "equal": _compared("EQUAL"),
    "not_equal": _compared("NOT_EQUAL"),
    "logical_and": _compared("LOGICAL_AND"),
    "logical_or": _compared("LOGICAL_OR"),
    "logical_not": _compared("LOGICAL_NOT"),
    "select": _select,
    "cast": _cast,
}
