"""A `.tflite` file of a whole network: its program, and the float ops before, between and behind.

Float values become codes by QUANTIZE where a segment of the program begins, and codes become floats
by DEQUANTIZE where one ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from qgraph.archives import JsonObject
from qgraph.backends.io_names import io_names_of, is_program_alone
from qgraph.backends.network_forms import Network
from qgraph.backends.sized_graphs import sized_graph
from qgraph.backends.tflite.arithmetic import TfliteArithmetic
from qgraph.backends.tflite.floats.float_lowerings import write_float
from qgraph.backends.tflite.floats.float_writer import FloatWriter
from qgraph.backends.tflite.whole_file import TfliteFile, input_of_indices
from qgraph.errors import UnsupportedError
from qgraph.names import onnx_name
from qgraph.program import Entry
from qgraph.program.islands import last_exits, needed


def tflite_data(network: Network, arithmetic: TfliteArithmetic, codes: bool) -> bytes:
    """The file of a network, with its float ops if TFLite and the executors have all of them.

    codes: whether inputs and outputs are codes; it then has the ops between segments only. Raises
    UnsupportedError for steps of the program.
    """
    plain = TfliteFile(network, arithmetic, codes).data()
    graph, program = network.graph, network.program
    if not graph.outputs or (not program.has_islands if codes else is_program_alone(network)):
        return plain
    try:
        kind = NetworkFileOfCodes if codes else NetworkFile
        return kind(network, arithmetic, codes).data()
    except UnsupportedError as error:
        return TfliteFile(network, arithmetic, codes, error).data()


class NetworkFile(TfliteFile):
    """A file from the network's own inputs to its outputs."""

    def __init__(self, network: Network, arithmetic: TfliteArithmetic, codes: bool) -> None:
        super().__init__(network, arithmetic, codes)
        self.floats = FloatWriter(sized_graph(network, 1), self.model, arithmetic)

    def _names(self) -> Mapping[str, Mapping[str, str]]:
        names = io_names_of(self.network.graph, onnx_name)
        return {"inputs": names.inputs, "outputs": names.outputs}

    def begin(self) -> None:
        graph, floats = self.network.graph, self.floats
        of_indices = {
            input_of_indices(graph, entry.source): entry
            for entry in self.program.entries
            if entry.tensor in self.emission.indices
        }
        for name in graph.inputs:
            public = self.names["inputs"][name]
            if name in of_indices:
                self.enter(of_indices[name], public)
                continue
            made = self.model.tensor(public, floats.shape(name), floats.dtype(name), own=True)
            self.model.inputs[public] = made
            floats.put(name, made)
        for entry in self.program.entries:
            if entry.tensor not in self.entries:
                self.emission.waiting[entry.tensor] = partial(self.feed, entry)

    def feed(self, entry: Entry) -> None:
        """Write an entry from its float value; where the file is cut, its codes are given."""
        name = entry.tensor
        if name in self.emission.indices:
            raise UnsupportedError("float ops compute its indices", node=name)
        value = self.value(entry.source)
        self.quantized(entry, value)
        codes = self.emission.held[name]
        given: JsonObject = {"type": self.arithmetic.stored.type, "index": codes}
        if value in self.model.inputs.values() and not self.is_shared(entry.source):
            given = {"type": "float32", "index": value}
        held_name = self.model.name_of(int(given["index"]))
        self.entries[name] = {"name": held_name, **given, **self._scale(name)}

    def is_shared(self, source: str) -> bool:
        """Whether more than one entry, or a float op, reads an input."""
        graph, entries = self.network.graph, {e.tensor for e in self.program.entries}
        users = [user.name for user in graph.users(source)]
        return len(users) != 1 or not entries.issuperset(users) or graph.is_output(source)

    def value(self, name: str) -> int:
        """The tensor of a float value, which is written now if it is not yet."""
        graph, floats = self.floats.graph, self.floats
        for node in needed(graph, [name], {*floats.held, *self.program.exits}):
            for source in node.inputs:
                self._dequantize(source)
            if node.op not in ("const", "quantize"):
                write_float(floats, node)
        self._dequantize(name)
        return floats.get(name)

    def _dequantize(self, name: str) -> None:
        if name in self.program.exits and name not in self.floats.held:
            self.floats.put(name, self.values_of(name, self.model.names.fresh(f"{name}/float")))

    def end(self) -> None:
        for entry in self.program.entries:
            self.emission.enter(entry.tensor)
        for name in dict.fromkeys(self.program.exits):
            self.inner_exit(name)
        for public, value in self.network.graph.outputs.items():
            self._output(self.names["outputs"][public], value)

    def inner_exit(self, name: str) -> None:
        """An exit whose codes are read where they are made."""
        codes, kind = self.emission.get(name), self.arithmetic.stored.type
        about = {"name": self.model.name_of(codes), "type": kind, "index": codes}
        self.exits[name] = {**about, **self._scale(name)}

    def _output(self, public: str, value: str) -> None:
        made = self.value(value)
        if made in (*self.model.inputs.values(), *self.model.outputs.values()):
            made = self.floats.copied(made, value)
        self.model.rename(made, public)
        self.model.outputs[public] = made

    @property
    def is_complete(self) -> bool:
        return True

    def completeness(self) -> JsonObject:
        """Inputs and outputs by the network's names, with their tensors."""
        names, model = self.names, self.model
        inputs = {name: model.inputs[public] for name, public in names["inputs"].items()}
        outputs = {name: model.outputs[public] for name, public in names["outputs"].items()}
        return {"complete": True, "missing": None, "inputs": inputs, "outputs": outputs}


class NetworkFileOfCodes(NetworkFile):
    """A file from codes of the first segment to codes of exits that outputs are computed from."""

    def _names(self) -> Mapping[str, Mapping[str, str]]:
        return TfliteFile._names(self)

    def begin(self) -> None:
        for entry in self.program.entries:
            if entry.segment:
                self.emission.waiting[entry.tensor] = partial(self.feed, entry)
            else:
                self.enter(entry, self.names["inputs"][entry.tensor])

    def end(self) -> None:
        for entry in self.program.entries:
            self.emission.enter(entry.tensor)
        last = last_exits(self.network.graph, self.program)
        for name in dict.fromkeys(self.program.exits):
            if name in last:
                public = self.names["outputs"][name]
                self.model.outputs[public] = self.leave(name, public)
            else:
                self.inner_exit(name)

    @property
    def is_complete(self) -> bool:
        """Whether no float op is left before the first segment or behind the last one."""
        return self.covers_the_network()

    def given(self) -> Sequence[Entry]:
        return [entry for entry in self.program.entries if not entry.segment]

    def completeness(self) -> JsonObject:
        return {"complete": self.is_complete, "missing": None, "inputs": {}, "outputs": {}}
