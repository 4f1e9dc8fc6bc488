"""Requantizations, layer norms and softmaxes of codes in ONNX's integer ops, for every form.

Integer division is exact in each executor, so these ops are the same in forms of float values.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from qgraph.backends.onnx.builder import OnnxModelBuilder
from qgraph.backends.onnx.emission import ProgramEmission
from qgraph.backends.onnx.requantize import Operate, Requantize
from qgraph.foreign import AttrValue
from qgraph.program import Step
from qgraph.program.ops import RequantizeAttrs, SoftmaxProgramAttrs, StandardizeAttrs


def operate(model: OnnxModelBuilder, op: str, a: str, b: str, dtype: str, stem: str) -> str:
    """A node with two inputs of an integer type."""
    if dtype == "int64" and op in ("Max", "Min"):
        # On x86, ONNX Runtime's own kernels compare the low 32 bits only.
        other = model.add("Less" if op == "Max" else "Greater", [a, b], f"{stem}/is_b")
        return model.add("Where", [other, b, a], stem)
    return model.add(op, [a, b], stem)


def with_numbers(model: OnnxModelBuilder, dtype: str, stem: str) -> Operate:
    """A function that adds a node whose second input is a constant."""

    def add(op: str, value: str, numbers: npt.ArrayLike) -> str:
        constant = model.constant(np.asarray(numbers).astype(dtype), f"{stem}/number")
        return model.add(op, [value, constant], stem)

    return add


def requantization(emission: ProgramEmission, step: Step) -> Requantize:
    """The rule of a step, whose `dtype` is the type of its codes."""
    attrs, tensor = step.attrs_as(RequantizeAttrs), emission.tensors[step.inputs[0]]
    return Requantize(
        tensor.low,
        tensor.high,
        np.asarray(attrs.shift, np.int64),
        attrs.rounding,
        attrs.wraps,
        attrs.low,
        attrs.high,
    )


def requantized_codes(emission: ProgramEmission, step: Step, codes: str, nchw: bool) -> str:
    """Codes of the rule's type on the grid of the step's result, in the same type."""
    rule, model = requantization(emission, step), emission.model

    def add(op: str, value: str, other: npt.ArrayLike) -> str:
        if not isinstance(other, str):
            array = np.asarray(other).astype(rule.dtype)
            array = array.reshape(-1, 1, 1) if nchw and array.ndim else array
            other = model.constant(array, f"{step.output}/number")
        return operate(model, op, value, other, rule.dtype, step.output)

    return rule.emit(codes, add)


def standardized_codes(emission: ProgramEmission, step: Step, codes: str) -> str:
    """A layer norm of int64 codes. The root is computed in float64 and then corrected."""
    model, numbers, stem = emission.model, step.attrs_as(StandardizeAttrs), step.output
    number, tensor = with_numbers(model, "int64", stem), emission.tensors[stem]
    channels = tensor.shape[-1]
    axis = model.constant(np.array([-1], np.int64), f"{stem}/axis")

    def add(op: str, *values: str, **attrs: AttrValue) -> str:
        return model.add(op, [*values], stem, **attrs)

    def square_is(op: str, root: str) -> str:
        return emission.cast(add(op, add("Mul", root, root), square), "int64", stem)

    total = add("ReduceSum", codes, axis, keepdims=1)
    squares = add("ReduceSum", add("Mul", codes, codes), axis, keepdims=1)
    squares = number("Mul", squares, channels)
    spread = number("Mul", add("Sub", squares, add("Mul", total, total)), 4**numbers.guard)
    square = number("Add", spread, numbers.epsilon)
    root = emission.cast(add("Sqrt", emission.cast(square, "double", stem)), "int64", stem)
    root = add("Sub", root, square_is("Greater", root))
    root = add("Add", root, square_is("LessOrEqual", number("Add", root, 1)))
    root = number("Add", root, 1)
    deviation = add("Sub", number("Mul", codes, channels), total)
    # Div rounds towards 0, which is rounding down for a number that is large enough.
    far = max(-tensor.low, tensor.high) + 1
    above = number("Mul", root, 2 * far + 1)
    doubled = add("Add", number("Mul", deviation, 2 << numbers.shift), above)
    whole = add("Div", doubled, number("Mul", root, 2))
    return number("Sub", whole, far)


def softmax_codes(emission: ProgramEmission, step: Step, codes: str, dtype: str, table: str) -> str:
    """A softmax of codes of an integer `dtype`, in int64; `table` has int64 entries."""
    (x, entries), attrs, stem = step.inputs, step.attrs_as(SoftmaxProgramAttrs), step.output
    model, tensors = emission.model, emission.tensors
    number = with_numbers(model, "int64", stem)
    last = model.constant(np.array([-1], np.int64), f"{stem}/axis")
    most = model.add("ReduceMax", [codes, last], f"{stem}/most", keepdims=1)
    distance = model.add("Sub", [most, codes], f"{stem}/distance")
    count = tensors[entries].shape[0]
    if tensors[x].high - tensors[x].low >= count:
        farthest = model.constant(np.asarray(count - 1, dtype), f"{stem}/farthest")
        distance = operate(model, "Min", distance, farthest, dtype, f"{stem}/nearer")
    found = model.add("Gather", [table, distance], f"{stem}/e")
    total = model.add("ReduceSum", [found, last], f"{stem}/total", keepdims=1)
    half = number("Div", total, 2)
    raised = model.add("Add", [number("Mul", found, 1 << attrs.bits), half], stem)
    shares = model.add("Div", [raised, total], f"{stem}/shares")
    highest = model.constant(np.int64(attrs.high), f"{stem}/highest")
    return operate(model, "Min", shares, highest, "int64", stem)
