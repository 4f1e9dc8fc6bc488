"""A `.tflite` file of a program: quantizers of float inputs, operators, float outputs, metadata."""

from __future__ import annotations

from collections.abc import Mapping

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
from qgraph.ir.types import Overflow, Role, rounding_of_numbers
from qgraph.names import Namespace, onnx_name
from qgraph.program import Entry


class TfliteFile:
    """Writes the file of a network for one arithmetic.

    codes: whether inputs and outputs are codes, not float values. A softmax of an output is in
    files with float outputs.
    """

    def __init__(self, network: Network, arithmetic: TfliteArithmetic, codes: bool) -> None:
        self.network, self.program, self.arithmetic = network, network.program, arithmetic
        self.made_softmaxes: dict[str, int] = {}
        self.io_type = arithmetic.stored.type if codes else "float32"
        self.softmaxes = {} if codes else _softmaxes(network)
        self.names = self._names()
        self.model = TfliteModelBuilder(
            self.program.name, [*self.names["inputs"].values(), *self.names["outputs"].values()]
        )
        self.emission = TfliteEmission(self.program, arithmetic, self.model)

    def _names(self) -> Mapping[str, Mapping[str, str]]:
        """Names of inputs by entry, and of outputs by value: those of the user where possible."""
        graph, program = self.network.graph, self.program
        known = io_names_of(graph, onnx_name)
        found = {entry.tensor: _input_of_indices(graph, entry.source) for entry in program.entries}
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
        ends = dict.fromkeys([*program.exits, *self.softmaxes])
        kind = "float" if self.io_type == "float32" else "codes"
        outputs = {name: taken.fresh(publics.get(name, f"{name}/{kind}")) for name in ends}
        return {"inputs": inputs, "outputs": outputs}

    def data(self) -> bytes:
        """The file. Raises UnsupportedError that names what TFLite or its executors lack."""
        entries = {entry.tensor: self._enter(entry) for entry in self.program.entries}
        self.emission.emit_steps()
        exits = {name: self._leave(name) for name in dict.fromkeys(self.program.exits)}
        for value, exit_name in self.softmaxes.items():
            self._softmax(value, exits[exit_name])
        complete = self._choose_outputs(exits)
        meta: JsonObject = {
            "form": "tflite",
            "arithmetic": self.arithmetic.name,
            "executors": self._executors(),
            "batch_free": self.program.batch_free,
            "complete": complete,
            "entries": entries,
            "exits": exits,
            "outputs": [*self.model.outputs],
            "tensors": {
                name: {"index": index, "name": self.model.name_of(index), **self._scale(name)}
                for name, index in self.emission.held.items()
                if name not in self.program.constants
            },
            "lowest_weights": self.emission.lowest_weights,
        }
        return self.model.model(meta)

    def _executors(self) -> list[TfliteExecutor]:
        """The executors that compute the same from the inputs of the file."""
        floats = self.io_type == "float32"
        return [*self.arithmetic.executors, *(() if floats else self.arithmetic.on_codes)]

    def _scale(self, name: str) -> JsonObject:
        scale = self.emission.scale_of(name)
        return {"exponent": scale.exponent, "zero": scale.zero}

    # -- inputs ------------------------------------------------------------------------------

    def _enter(self, entry: Entry) -> JsonObject:
        """Add an input: the codes of an entry, or floats that QUANTIZE converts to them."""
        name, public = entry.tensor, self.names["inputs"][entry.tensor]
        shape, scale = self.program.tensors[name].shape, self.emission.scale_of(name)
        kind = "int32" if name in self.emission.indices else self.io_type
        if kind == "int32":
            self.emission.held[name] = given = self.model.tensor(public, shape, kind, own=True)
        elif kind != "float32":
            given = self.model.tensor(public, shape, kind, scale, own=True)
            self.emission.held[name] = given
        else:
            self._check_quantizer(entry)
            given = self.model.tensor(public, shape, "float32", own=True)
            low, high = np.asarray(entry.spec.lo), np.asarray(entry.spec.hi)
            out = LayerOutput(name, PendingLayer(name), 0, entry.spec.rounding, low, high)
            made = self.emission.result(out, False)
            self.model.operator("QUANTIZE", [given], made, "QuantizeOptions")
            self.emission.finish(made, out, False)
        self.model.inputs[public] = given
        return {"name": public, "type": kind, "index": given, **self._scale(name)}

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

    def _leave(self, name: str) -> JsonObject:
        """Add the codes of an exit in a tensor of its own, or their values."""
        codes, public = self.emission.get(name), self.names["outputs"][name]
        shape = self.program.tensors[name].shape
        scale = None if self.io_type == "float32" else self.emission.scale_of(name)
        made = self.model.tensor(public, shape, self.io_type, scale, own=True)
        if scale is None:
            self.model.operator("DEQUANTIZE", [codes], made, "DequantizeOptions", 2)
        else:  # the same scale
            self.model.operator("QUANTIZE", [codes], made, "QuantizeOptions", 2)
        return {"name": public, "type": self.io_type, "index": made, **self._scale(name)}

    def _softmax(self, value: str, held: JsonObject) -> None:
        source = self.softmaxes[value]
        public, shape = self.names["outputs"][value], self.program.tensors[source].shape
        made = self.model.tensor(public, shape, "float32", own=True)
        self.model.operator("SOFTMAX", [held["index"]], made, "SoftmaxOptions", Beta=1.0)
        self.made_softmaxes[value] = made

    def _choose_outputs(self, exits: Mapping[str, JsonObject]) -> bool:
        """The network's outputs, if the file computes all of them from its inputs; else all exits.

        Returns whether it does.
        """
        values = {name: int(about["index"]) for name, about in exits.items()}
        values |= self.made_softmaxes
        graph = self.network.graph
        wanted = dict.fromkeys(graph.outputs.values())
        sources = {_input_of_indices(graph, entry.source) for entry in self.program.entries}
        complete = bool(wanted) and values.keys() >= wanted.keys() and sources <= {*graph.inputs}
        for name in wanted if complete else exits:
            self.model.outputs[self.names["outputs"][name]] = values[name]
        return complete or not wanted


def _input_of_indices(graph: Graph, source: str) -> str:
    """The integer input of the network before indices of rows; other sources as they are."""
    node = graph.nodes.get(source)
    users = {spec_of(user).role for user in graph.users(source) if user.op == "quantize"}
    cast = node is not None and node.op == "cast" and users == {Role.INDEX}
    return node.inputs[0] if cast and node is not None else source


def _softmaxes(network: Network) -> Mapping[str, str]:
    """Outputs that are softmaxes of exits along their last axis, with these exits."""
    graph, program = network.graph, network.program
    found = {}
    for value in graph.outputs.values():
        node = graph.producer(value) if value not in program.exits else None
        if node is not None and node.op == "softmax" and node.inputs[0] in program.exits:
            rank = len(program.tensors[node.inputs[0]].shape)
            if node.attrs.get("axis", -1) in (-1, rank - 1):
                found[value] = node.inputs[0]
    return found
