"""Two small models for `onnx-integer`: from floats to input codes, and from output codes to floats.

They use float64, in which every step on a float32 input is exact (docs/numerics.md, 1).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from qgraph.backends.onnx.builder import OnnxModelBuilder, element_type
from qgraph.ir.types import Exponent, Overflow, QuantSpec, Rounding
from qgraph.program import Program

OPSET = 18


def quantize_model(program: Program) -> onnx.ModelProto:
    """From float values, by their names in the graph, to codes of the entries of segment 0."""
    entries = [entry for entry in program.entries if not entry.segment]
    sources = dict.fromkeys(entry.source for entry in entries)
    model = OnnxModelBuilder(f"{program.name}/quantize", OPSET, (*sources, *program.tensors))
    wide: dict[str, str] = {}
    for entry in entries:
        name, tensor = entry.tensor, program.tensors[entry.tensor]
        if entry.source not in wide:
            model.input(entry.source, "float32", _shape(program, name))
            wide[entry.source] = _cast(model, entry.source, "float64")
        codes = codes_of_values(model, wide[entry.source], entry.spec, tensor.exponent)
        model.append("Cast", [codes], name, to=element_type(tensor.storage))
        model.output(name, tensor.storage, _shape(program, name))
    return model.model({"form": "quantize"})


def dequantize_model(program: Program, outputs: Mapping[str, str]) -> onnx.ModelProto:
    """From codes of every exit to `NAME/float`: `code * 2^-exponent`, rounded once to float32.

    outputs: the name of each exit in the network's model.
    """
    model = OnnxModelBuilder(f"{program.name}/dequantize", OPSET, tuple(outputs.values()))
    for exit_, name in outputs.items():
        tensor = program.tensors[exit_]
        model.input(name, tensor.storage, _shape(program, exit_))
        output = values_of_codes(model, name, tensor.exponent, f"{name}/float")
        model.output(output, "float32", _shape(program, exit_))
    return model.model({"form": "dequantize"})


def _shape(program: Program, name: str) -> tuple[int | str, ...]:
    shape = program.tensors[name].shape
    return ("N", *shape[1:]) if program.batch_free else shape


def _cast(model: OnnxModelBuilder, value: str, dtype: str) -> str:
    return model.add("Cast", [value], f"{value}/{dtype}", to=element_type(dtype))


def values_of_codes(model: OnnxModelBuilder, codes: str, exponent: Exponent, stem: str) -> str:
    """`code * 2^-exponent`, rounded once to float32."""
    scale = model.constant(np.ldexp(1.0, -np.asarray(exponent)), f"{codes}/scale")
    values = model.add("Mul", [_cast(model, codes, "float64"), scale], f"{codes}/value")
    return model.add("Cast", [values], stem, to=element_type("float32"))


def codes_of_values(
    model: OnnxModelBuilder, value: str, spec: QuantSpec, exponent: Exponent
) -> str:
    """Codes of a float64 value, in float64: `clip(round(value * 2^exponent))`, or wrapped."""

    def operate(op: str, x: str, number: float | None = None) -> str:
        constant = [] if number is None else [model.constant(np.float64(number), "number")]
        return model.add(op, [x, *constant], f"{value}/{op}")

    scale = model.constant(np.ldexp(1.0, np.asarray(exponent)), f"{value}/scale")

    def rounded(x: str) -> str:
        match Rounding(spec.rounding):
            case Rounding.HALF_EVEN:
                return operate("Round", x)
            case Rounding.HALF_UP:
                return operate("Floor", operate("Add", x, 0.5))
            case Rounding.HALF_AWAY | Rounding.DOUBLE:
                size = operate("Floor", operate("Add", operate("Abs", x), 0.5))
                return model.add("Mul", [operate("Sign", x), size], f"{value}/rounded")
            case Rounding.FLOOR:
                return operate("Floor", x)

    x = rounded(model.add("Mul", [value, scale], f"{value}/steps"))
    if spec.overflow == Overflow.SATURATE:
        return operate("Min", operate("Max", x, spec.lo), spec.hi)

    def remainder(x: str) -> str:
        whole = float(1 << spec.bits)
        turns = operate("Mul", operate("Floor", operate("Mul", x, 1 / whole)), whole)
        return model.add("Sub", [x, turns], f"{value}/remainder")

    # Whole turns first, because a subtraction beyond 2^53 is not exact.
    return operate("Add", remainder(operate("Sub", remainder(x), spec.lo)), spec.lo)
