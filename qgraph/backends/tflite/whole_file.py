"""A `.tflite` file of a program: quantizers of float inputs, operators, float outputs, metadata.

`network_file` adds the float ops of a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qgraph.archives import JsonObject
from qgraph.backends.io_names import io_names_of
from qgraph.backends.network_forms import Network
from qgraph.backends.pending_layers import LayerOutput, PendingLayer
from qgraph.backends.tflite.arithmetic import TfliteArithmetic, TfliteExecutor
from qgraph.backends.tflite.emission import TfliteEmission
from qgraph.backends.tflite.model_builder import TfliteModelBuilder
from qgraph.backends.tflite.writer import ANOTHER_PROFILE
from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_of
from qgraph.ir.states import states_of
from qgraph.ir.types import Overflow, Role, rounding_of_numbers
from qgraph.names import Namespace, onnx_name
from qgraph.program import Entry


class TfliteFile:
    """Writes the file of a network's program for one arithmetic.

    codes: whether inputs and outputs are codes, not float values. missing: why the file lacks float
    ops of the network.
    """

    def __init__(
        self,
        network: Network,
        arithmetic: TfliteArithmetic,
        codes: bool,
        missing: UnsupportedError | None = None,
    ) -> None:
        self.network, self.program, self.arithmetic = network, network.program, arithmetic
        self.missing = missing
        self.io_type = arithmetic.stored.type if codes else "float32"
        self.names = self._names()
        self.model = TfliteModelBuilder(
            self.program.name, [*self.names["inputs"].values(), *self.names["outputs"].values()]
        )
        self.emission = TfliteEmission(self.program, arithmetic, self.model)
        self.entries: dict[str, JsonObject] = {}
        self.exits: dict[str, JsonObject] = {}

    def _names(self) -> Mapping[str, Mapping[str, str]]:
        """Names of inputs by entry, and of outputs by value: those of the user where possible."""
        graph, program = self.network.graph, self.program
        known = io_names_of(graph, onnx_name)
        found = {entry.tensor: input_of_indices(graph, entry.source) for entry in program.entries}
        sources = [*found.values()]
        publics = {value: known.outputs[name] for name, value in reversed(graph.outputs.items())}
        taken = Namespace(onnx_name)
        inputs = {
            entry.tensor: taken.fresh(
                known.inputs.get(found[entry.tensor], entry.source)
                if sources.count(found[entry.tensor]) == 1
                else f"{entry.tensor}/float"
            )
            for entry in program.entries
        }
        kind = "float" if self.io_type == "float32" else "codes"
        ends = dict.fromkeys(program.exits)
        outputs = {name: taken.fresh(publics.get(name, f"{name}/{kind}")) for name in ends}
        return {"inputs": inputs, "outputs": outputs}

    def data(self) -> bytes:
        """The file. Raises UnsupportedError that names what TFLite or its executors lack."""
        self.begin()
        self.emission.emit_steps()
        self.end()
        meta: JsonObject = {
            "form": "tflite",
            "arithmetic": self.arithmetic.name,
            "executors": self._executors(),
            "batch_free": self.program.batch_free,
            **self.completeness(),
            "entries": self.entries,
            "exits": self.exits,
            "ends": [*self.model.outputs],
            "states": self._states(),
            "tensors": {
                name: {"index": index, "name": self.model.name_of(index), **self._scale(name)}
                for name, index in self.emission.held.items()
                if name not in self.program.constants
            },
            "lowest_weights": self.emission.lowest_weights,
        }
        return self.model.model(meta)

    def _states(self) -> JsonObject:
        """The outputs with the next values of states, by input, as the file names them."""
        graph, known = self.network.graph, io_names_of(self.network.graph, onnx_name)
        found: JsonObject = {}
        for state, output in states_of(graph).items():
            same = [name for name, value in graph.outputs.items() if value == graph.outputs[output]]
            ends = [known.outputs[name] for name in (output, *same)]
            end = next((name for name in ends if name in self.model.outputs), None)
            if end is not None and known.inputs[state] in self.model.inputs:
                found[known.inputs[state]] = end
        return found

    def begin(self) -> None:
        """Add inputs of the file."""
        for entry in self.program.entries:
            self.enter(entry, self.names["inputs"][entry.tensor])

    def end(self) -> None:
        """Add outputs of the file: those of the network if it computes all, otherwise all exits."""
        for name in dict.fromkeys(self.program.exits):
            self.leave(name, self.names["outputs"][name])
        outputs = self.network.graph.outputs.values() if self.is_complete else ()
        for name in dict.fromkeys(outputs or self.program.exits):
            self.model.outputs[self.names["outputs"][name]] = int(self.exits[name]["index"])

    @property
    def is_complete(self) -> bool:
        """Whether the file computes the network's outputs from its inputs."""
        return self.covers_the_network()

    def covers_the_network(self) -> bool:
        """Whether inputs of the file are inputs of the network, and its outputs are exits."""
        graph, program = self.network.graph, self.program
        sources = {input_of_indices(graph, entry.source) for entry in self.given()}
        inside = {*graph.outputs.values()} <= {*program.exits} and sources <= {*graph.inputs}
        return inside or not graph.outputs

    def given(self) -> Sequence[Entry]:
        """The entries that are inputs of the file."""
        return self.program.entries

    def completeness(self) -> JsonObject:
        """The parts of the network that the file contains."""
        missing = None if self.missing is None else [self.missing.node, self.missing.message]
        return {"complete": self.is_complete, "missing": missing, "inputs": None, "outputs": {}}

    def _executors(self) -> list[TfliteExecutor]:
        """The executors that compute the same from the inputs of the file."""
        floats = self.io_type == "float32"
        return [*self.arithmetic.executors, *(() if floats else self.arithmetic.on_codes)]

    def _scale(self, name: str) -> JsonObject:
        scale = self.emission.scale_of(name)
        return {"exponent": scale.exponent, "zero": scale.zero}

    # -- inputs ------------------------------------------------------------------------------

    def enter(self, entry: Entry, public: str) -> None:
        """Add an input: the codes of an entry, or floats that QUANTIZE converts to them."""
        name = entry.tensor
        shape, scale = self.program.tensors[name].shape, self.emission.scale_of(name)
        kind = "int32" if name in self.emission.indices else self.io_type
        if kind == "float32":
            given = self.model.tensor(public, shape, kind, own=True)
            self.quantized(entry, given)
        else:
            held = None if kind == "int32" else scale
            given = self.model.tensor(public, shape, kind, held, own=True)
            self.emission.held[name] = given
        self.model.inputs[public] = given
        self.entries[name] = {"name": public, "type": kind, "index": given, **self._scale(name)}

    def quantized(self, entry: Entry, value: int) -> None:
        """Write the codes of an entry. value: the tensor of its float values."""
        self._check_quantizer(entry)
        low, high = np.asarray(entry.spec.lo), np.asarray(entry.spec.hi)
        name = entry.tensor
        out = LayerOutput(name, PendingLayer(name), 0, entry.spec.rounding, low, high)
        made = self.emission.result(out, False)
        self.model.operator("QUANTIZE", [value], made, "QuantizeOptions")
        self.emission.finish(made, out, False)

    def _check_quantizer(self, entry: Entry) -> None:
        if entry.spec.overflow != Overflow.SATURATE:
            raise UnsupportedError(
                "wraps around, but TFLite only saturates", node=entry.tensor, hint=ANOTHER_PROFILE
            )
        if rounding_of_numbers(entry.spec.rounding) != self.arithmetic.inputs:
            raise UnsupportedError(
                f"rounds {entry.spec.rounding}, but {self.arithmetic.described} "
                f"{self.arithmetic.inputs} here",
                node=entry.tensor,
                hint=ANOTHER_PROFILE,
            )

    # -- outputs -----------------------------------------------------------------------------

    def leave(self, name: str, public: str) -> int:
        """Add the codes of an exit in a tensor of its own, or their values."""
        made = self.values_of(name, public) if self.io_type == "float32" else self._copied(
            name, public
        )  # fmt: skip
        self.exits[name] = {
            "name": public, "type": self.io_type, "index": made, **self._scale(name)
        }  # fmt: skip
        return made

    def values_of(self, name: str, public: str) -> int:
        """The float values of a tensor of codes."""
        codes, shape = self.emission.get(name), self.program.tensors[name].shape
        made = self.model.tensor(public, shape, "float32", own=True)
        return self.model.operator("DEQUANTIZE", [codes], made, "DequantizeOptions", 2)

    def _copied(self, name: str, public: str) -> int:
        codes, scale = self.emission.get(name), self.emission.scale_of(name)
        shape = self.program.tensors[name].shape
        made = self.model.tensor(public, shape, self.io_type, scale, own=True)
        return self.model.operator("QUANTIZE", [codes], made, "QuantizeOptions", 2)


def input_of_indices(graph: Graph, source: str) -> str:
    """The integer input of the network before indices of rows; other sources as they are."""
    node = graph.nodes.get(source)
    users = {spec_of(user).role for user in graph.users(source) if user.op == "quantize"}
    cast = node is not None and node.op == "cast" and users == {Role.INDEX}
    return node.inputs[0] if cast and node is not None else source
