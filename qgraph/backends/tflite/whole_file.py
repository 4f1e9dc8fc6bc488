"""A `.tflite` file of a program: quantizers of float inputs, operators, float outputs, metadata."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from qgraph.archives import JsonObject
from qgraph.backends.io_names import io_names_of
from qgraph.backends.network_forms import Network
from qgraph.backends.tflite.arithmetic import TfliteArithmetic
from qgraph.backends.tflite.emission import TfliteEmission
from qgraph.backends.tflite.model_builder import TfliteModelBuilder
from qgraph.backends.tflite.pending import LayerOutput, PendingLayer
from qgraph.backends.tflite.writer import ANOTHER_PROFILE
from qgraph.errors import UnsupportedError
from qgraph.ir.types import Overflow, rounding_of_numbers
from qgraph.names import Namespace, onnx_name
from qgraph.program import Entry


class TfliteFile:
    """Writes the file of a network for one arithmetic."""

    def __init__(self, network: Network, arithmetic: TfliteArithmetic) -> None:
        self.network, self.program, self.arithmetic = network, network.program, arithmetic
        names = self.names
        self.model = TfliteModelBuilder(
            self.program.name, [*names["inputs"].values(), *names["outputs"].values()]
        )
        self.emission = TfliteEmission(self.program, arithmetic, self.model)

    @cached_property
    def names(self) -> Mapping[str, Mapping[str, str]]:
        """Names of inputs by entry, and of outputs by exit: those of the user where possible."""
        graph, program = self.network.graph, self.program
        known = io_names_of(graph, onnx_name)
        sources = [entry.source for entry in program.entries]
        publics = {value: known.outputs[name] for name, value in reversed(graph.outputs.items())}
        taken = Namespace(onnx_name)
        inputs = {
            entry.tensor: taken.fresh(
                known.inputs.get(entry.source, entry.source)
                if sources.count(entry.source) == 1
                else f"{entry.tensor}/float"
            )
            for entry in program.entries
        }
        outputs = {name: taken.fresh(publics.get(name, f"{name}/float")) for name in program.exits}
        return {"inputs": inputs, "outputs": outputs}

    def data(self) -> bytes:
        """The file. Raises UnsupportedError that names what TFLite or its executors lack."""
        entries = {entry.tensor: self._enter(entry) for entry in self.program.entries}
        self.emission.emit_steps()
        exits = {name: self._leave(name) for name in dict.fromkeys(self.program.exits)}
        meta: JsonObject = {
            "form": "tflite",
            "arithmetic": self.arithmetic.name,
            "executors": [*self.arithmetic.executors],
            "batch_free": self.program.batch_free,
            "entries": entries,
            "exits": exits,
            "tensors": {
                name: {"index": index, "name": self.model.name_of(index), **self._scale(name)}
                for name, index in self.emission.held.items()
                if name not in self.program.constants
            },
            "lowest_weights": self.emission.lowest_weights,
        }
        return self.model.model(meta)

    def _scale(self, name: str) -> JsonObject:
        scale = self.emission.scale_of(name)
        return {"exponent": scale.exponent, "zero": scale.zero}

    def _enter(self, entry: Entry) -> JsonObject:
        """Add an input, and QUANTIZE to the codes of an entry."""
        name, spec, model = entry.tensor, entry.spec, self.model
        scale = self._scale(name)
        if spec.overflow != Overflow.SATURATE:
            raise UnsupportedError(
                "wraps around, but TFLite only saturates", node=name, hint=ANOTHER_PROFILE
            )
        if rounding_of_numbers(spec.rounding) != self.arithmetic.inputs:
            raise UnsupportedError(
                f"rounds {spec.rounding}, but {self.arithmetic.described} "
                f"{self.arithmetic.inputs} here",
                node=name,
                hint=ANOTHER_PROFILE,
            )
        given = model.tensor(
            self.names["inputs"][name], self.program.tensors[name].shape, "float32", own=True
        )
        model.inputs[self.names["inputs"][name]] = given
        low, high = np.asarray(spec.lo), np.asarray(spec.hi)
        out = LayerOutput(name, PendingLayer(name), 0, spec.rounding, low, high)
        made = self.emission.result(out, False)
        model.operator("QUANTIZE", [given], made, "QuantizeOptions")
        self.emission.finish(made, out, False)
        return {"name": self.names["inputs"][name], "type": "float32", "index": given, **scale}

    def _leave(self, name: str) -> JsonObject:
        """Add an output, DEQUANTIZE of the codes of an exit."""
        codes, public = self.emission.get(name), self.names["outputs"][name]
        shape = self.program.tensors[name].shape
        made = self.model.tensor(public, shape, "float32", own=True)
        self.model.operator("DEQUANTIZE", [codes], made, "DequantizeOptions", 2)
        self.model.outputs[public] = made
        return {"name": public, "type": "float32", "index": made, **self._scale(name)}
