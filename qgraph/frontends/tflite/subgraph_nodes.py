"""Subgraphs as nodes of TensorFlow ops: names, ends, constants, operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from qgraph.archives import most_unpacked
from qgraph.errors import GraphError, LoadError, UnsupportedError, first_line
from qgraph.foreign import AttrValue
from qgraph.frontends.site import Ref
from qgraph.frontends.tflite.builder import LiteBody
from qgraph.frontends.tflite.lite_node import LiteNode
from qgraph.frontends.tflite.model import (
    DAMAGED,
    HINT,
    LiteModel,
    LiteOperator,
    LiteSubgraph,
    decoded,
)
from qgraph.frontends.tflite.operators import OPERATORS
from qgraph.frontends.tflite.quantizers import LiteQuantizers
from qgraph.frontends.tflite.tensors import LiteTensor, dtype_of
from qgraph.frontends.tflite.translation import TensorNames, Translation
from qgraph.frontends.tflite.variable_states import STATE_HINT, VARIABLES
from qgraph.ir.narrow_floats import WIDE, widened_array, widened_dtype
from qgraph.ir.types import Array

CAST, QUANTIZE = "DEQUANTIZE", "QUANTIZE"
UNKNOWN = "Unknown"  # the op of a node for an operator that is not read


@dataclass
class LiteFile:
    """Everything that the subgraphs of a file share: scales, names, notes for the user."""

    model: LiteModel
    quantizers: LiteQuantizers
    taken: set[str] = field(default_factory=set)
    unpacked: int = 0  # bytes of constants
    remarks: list[str] = field(default_factory=list)

    def body(self, number: int) -> LiteBody:
        """A subgraph that control flow runs. Raises UnsupportedError where it keeps states."""
        written = SubgraphNodes(self, self.model.subgraphs[number], is_body=True)
        nodes = written.written()
        if written.states:
            raise UnsupportedError(
                "an operator that keeps a state runs inside control flow",
                node=next(iter(written.states)),
                hint=STATE_HINT,
            )
        graph, refs = written.graph, written.refs
        arguments = tuple(refs[index][0] for index in graph.inputs)
        return LiteBody(nodes, arguments, tuple(refs[index] for index in graph.outputs))


class SubgraphNodes:
    """The nodes of a subgraph, and where the value of each of its tensors is.

    Its inputs get the quantizers of their tensors, except in a body, which is called with codes.
    `states` has the next values of inputs that are states.
    """

    def __init__(self, file: LiteFile, graph: LiteSubgraph, is_body: bool = False) -> None:
        self.file = file
        self.graph = graph
        self.is_body = is_body
        self.quantizers = file.quantizers
        self.refs: dict[int, Ref] = {}
        self.names = TensorNames(file.taken, self.refs)
        self.inputs: dict[int, str] = {}
        self.constants: dict[int, partial[Array]] = {}
        self.converted = _converted(graph)
        self.states: dict[str, Ref] = {}

    def written(self) -> dict[str, LiteNode]:
        nodes = [*self._ends()]
        for operator in self.graph.operators:
            self._claim(operator)
        nodes += self._constant_nodes()
        for operator in self._without_casts():
            nodes += self._of(operator)
        return {node.name: node for node in nodes}

    def _ends(self) -> Iterator[LiteNode]:
        for index in self.graph.inputs:
            if index not in self.refs:
                tensor = self.graph.tensors[index]
                name = self.inputs[index] = self._named(index)
                dtype = widened_dtype(dtype_of(tensor.kind, name))
                step = None if self.is_body else self.quantizers.step(tensor)
                if self.is_body and tensor.scale is not None:
                    dtype = WIDE
                attrs = {"dtype": dtype if step is None else WIDE, "shape": tensor.dims}
                yield LiteNode(name, "Placeholder", (), (), None, attrs, "input")
                if step is not None:
                    made = self.names.free(f"{name}/quantized")
                    self.refs[index] = (made, 0)
                    yield LiteNode(made, step[0], ((name, 0),), (), None, step[1], "input")

    def _named(self, index: int, output: int = 0) -> str:
        tensor = self.graph.tensors[index]
        name = self.names.free(tensor.short or f"tensor{index}")
        self.refs[index] = (name, output)
        return name

    def _claim(self, operator: LiteOperator) -> None:
        """Name the outputs of an operator."""
        if operator.op in VARIABLES:
            raise UnsupportedError(
                f"operator `{operator.op}`: a variable inside control flow", hint=STATE_HINT
            )
        if not operator.outputs or operator.outputs[0] < 0:
            raise GraphError(f"`{operator.op}` has no outputs")
        name = ""
        for i, index in enumerate(operator.outputs):
            if index in self.refs:
                raise GraphError("two operators compute this tensor", node=self.refs[index][0])
            if not i:
                name = self._named(index)
            elif index >= 0:
                self.refs[index] = (name, i)

    def _constant_nodes(self) -> Iterator[LiteNode]:
        """Constants, decoded where they are needed, and tensors without a value."""
        used = dict.fromkeys(i for o in self.graph.operators for i in o.inputs if i >= 0)
        for index in (*used, *self.graph.outputs):
            if index in self.refs:
                continue
            tensor = self.graph.tensors[index]
            name = self._named(index)
            if not tensor.is_constant:
                yield LiteNode(name, UNKNOWN, (), (), None, {}, f"{tensor.state} tensor".strip())
                continue
            self.constants[index] = partial(self._constant, tensor, name)
            self.quantizers.constant(tensor, name)
            attrs = {"value": self.constants[index]}
            yield LiteNode(name, "Const", (), (), None, attrs, "constant")

    def _without_casts(self) -> list[LiteOperator]:
        """The operators, less those that only turn a constant into float32, which it is."""
        left = []
        for operator in self.graph.operators:
            known = self.constants.get(operator.inputs[0]) if operator.inputs else None
            if operator.op != CAST or known is None:
                left.append(operator)
                continue
            self.constants[operator.outputs[0]] = known
            self.refs[operator.outputs[0]] = self.refs[operator.inputs[0]]
        return left

    def _of(self, operator: LiteOperator) -> list[LiteNode]:
        """The nodes of an operator; one that cannot be written is an error where it is needed."""
        name = self.refs[operator.outputs[0]][0]
        grids = self.quantizers.grids
        t = Translation(
            name,
            operator,
            self.graph.tensors,
            self.names,
            self.constants,
            grids,
            self.file.model.subgraphs,
            self.quantizers.at,
        )
        write = OPERATORS.get(operator.op)
        if write is None:
            return [self._unknown(operator, name, {})]
        try:
            nodes = t.finished(self.quantizers.after(t, write(t), self.converted))
            if unread := t.unread():
                raise UnsupportedError(f"`{operator.op}` with {', '.join(unread)}", node=name)
        except LoadError:
            raise
        except (GraphError, UnsupportedError) as error:
            return [self._unknown(operator, name, {"error": error})]
        except Exception as error:  # the schema's functions may raise anything on a damaged file
            raise LoadError(f"{DAMAGED}: {first_line(error)}", node=name, hint=HINT) from None
        self.file.remarks += t.remarks
        self.states |= t.states
        return nodes

    def _unknown(
        self, operator: LiteOperator, name: str, attrs: Mapping[str, AttrValue]
    ) -> LiteNode:
        tensors = self.graph.tensors
        given = [i for i in operator.inputs if i >= 0 and tensors[i].state != "variable"]
        inputs = tuple(self.refs[i] for i in given)
        return LiteNode(name, UNKNOWN, inputs, (), None, attrs, operator.op)

    def _constant(self, tensor: LiteTensor, name: str) -> Array:
        """The numbers of a constant. Codes and float16 take more memory than the file."""
        array = widened_array(decoded(tensor, name))
        self.quantizers.check(tensor, name, array)
        if array.base is None:
            self.file.unpacked += array.nbytes
            if self.file.unpacked > most_unpacked(self.file.model.size):
                raise LoadError(f"{DAMAGED}: its constants need {self.file.unpacked:,} bytes")
        return array


def _converted(graph: LiteSubgraph) -> frozenset[int]:
    """The tensors that only QUANTIZE reads."""
    read = {i for operator in graph.operators for i in operator.inputs if operator.op == QUANTIZE}
    others = {i for operator in graph.operators for i in operator.inputs if operator.op != QUANTIZE}
    return frozenset(read - others - {*graph.outputs})
