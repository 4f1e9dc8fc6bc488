"""Lower a calibrated graph to a program: shapes, pads and shifts become numbers, in few ops."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from qgraph.errors import GraphError, UnsupportedError
from qgraph.exact.bounds import bounds
from qgraph.exact.float_parts import integer_values
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.order import inputs_first
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Fixed, Shape, TensorType
from qgraph.numerics import quantize
from qgraph.program.batch import blocks_are_separate, samples_are_separate
from qgraph.program.moves import MOVES
from qgraph.program.program import Entry, Program
from qgraph.program.rules import RULES
from qgraph.program.writer import ProgramWriter
from qgraph.quant.topology import (
    QUANTIZERS,
    ValueExponents,
    known_exponent,
    size_advice,
    value_exponent,
)


def lower(graph: Graph, shapes: Mapping[str, Shape] | None = None) -> Program:
    """The integer program of a calibrated graph.

    shapes: of inputs, if the graph leaves more than the batch open. Codes that are computed from
    float ops between integer layers are entries of a later segment. Raises UnsupportedError for
    sizes that remain unknown.
    """
    if "calibrated" not in graph.facts:
        raise GraphError("only a calibrated graph has an integer program", node=graph.name)
    shapes = shapes or {}
    try:
        lowering = _Lowering(_sized(graph, shapes))
        program = lowering.program()
    except UnsupportedError as error:
        node = graph.nodes.get(error.node or "")
        error.hint = (size_advice(graph, node) if node else "") or error.hint
        raise
    opened = [_is_open(shapes.get(name, graph.types[name].shape)) for name in graph.inputs]
    if samples_are_separate(program) and (not any(opened) or lowering.keeps_samples()):
        return replace(program, batch_free=True)
    free = all(opened) and _blocks_free(graph, shapes, lowering, program)
    return replace(program, blocks_free=free)


def _is_open(shape: Shape | None) -> bool:
    """Whether the batch size is open."""
    return shape is not None and shape[:1] == (None,)


def _blocks_free(
    graph: Graph, shapes: Mapping[str, Shape], lowering: _Lowering, program: Program
) -> bool:
    """Whether samples stay separate although each has several rows (`Program.blocks_free`)."""
    if not lowering.keeps_samples(but=("reshape",)):
        return False
    try:
        of_two = _Lowering(_sized(graph, shapes, batch=2)).program()
    except (GraphError, UnsupportedError):  # sizes that are correct for one sample only
        return False
    return blocks_are_separate(program, of_two)


def _sized(graph: Graph, shapes: Mapping[str, Shape], batch: int = 1) -> Graph:
    """The graph with inputs of known size; `batch` replaces an open batch size."""
    sized, nodes = graph.copy(), []
    for name in graph.inputs:
        known = graph.types[name]
        shape = shapes.get(name, known.shape)
        if shape is None or None in shape[1:]:
            raise UnsupportedError(
                f"its size is unknown: {known}", node=name, hint="give --input-shape"
            )
        whole = tuple(batch if d is None else d for d in shape)
        node = sized.nodes[name]
        nodes.append(replace(node, attrs={**node.attrs, "type": TensorType(known.dtype, whole)}))
    sized.replace_all(nodes)
    return sized


class _Lowering:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.writer = ProgramWriter(graph, bounds(graph))
        self.fixed: dict[str, Fixed] = {}  # constants
        self.exponents: ValueExponents = {}  # of every integer value
        self.entries: list[Entry] = []
        self.segment: dict[str, int] = {}  # of integer values; of float values, of the next one

    def program(self) -> Program:
        exits = self._exits()
        for node in self.graph.topological():
            if node.name in self.wanted:
                self._lower(node)
        used = {v for step in self.writer.steps for v in step.inputs}
        constants = {n: c for n, c in self.writer.constants.items() if n in used}
        tensors = {
            name: tensor
            for name, tensor in self.writer.tensors.items()
            if name in constants or name not in self.writer.constants
        }
        return Program(
            self.graph.name,
            tensors,
            constants,
            tuple(e for e in self.entries if e.tensor in self.wanted),
            tuple(exits),
            tuple(self.writer.steps),
            batch_free=False,
        )

    def keeps_samples(self, but: Collection[str] = ()) -> bool:
        """Whether ops keep the samples of an open batch separate, by the definitions in the graph.

        A program is for one sample: the slice `[0:1]` keeps all of it, but not all of two. but: ops
        that are not checked.
        """
        return all(
            self._keeps_samples(node)
            for node in self.graph.topological()
            if node.name in self.wanted and node.op not in but
        )

    def _keeps_samples(self, node: Node) -> bool:
        definition = op_definition(node.op)
        varying = [v for v in node.inputs if v not in self.fixed]
        if definition.separate is None or not varying or node.op in QUANTIZERS:
            return True
        return definition.keeps_samples(node.attributes, self.graph.types[varying[0]].shape or ())

    def _exits(self) -> list[str]:
        """Integer values that float ops or outputs use; sets `wanted`, the nodes they need."""
        integer, exits = integer_values(self.graph), dict[str, None]()
        self._fold_and_enter(integer)
        for node in self.graph.topological():
            if node.name not in integer:
                exits.update(dict.fromkeys(v for v in node.inputs if v in integer))
        exits.update(dict.fromkeys(v for v in self.graph.outputs.values() if v in integer))
        made = [v for v in exits if v not in self.fixed]
        if not made:
            raise UnsupportedError("nothing is computed in integers", node=self.graph.name)
        nodes = self.graph.nodes
        self.wanted = set(
            inputs_first(made, lambda value: [v for v in nodes[value].inputs if v in integer])
        )
        return made

    def _fold_and_enter(self, integer: set[str]) -> None:
        """Find constants and entries, and the segment of each value."""
        for node in self.graph.topological():
            constant = self.graph.constant(node.inputs[0]) if node.op == "quantize" else None
            if constant is not None:
                self.fixed[node.name] = quantize(constant, spec_of(node))
            elif node.name in integer and node.inputs and set(node.inputs) <= self.fixed.keys():
                self.fixed[node.name] = _folded(node, [self.fixed[v] for v in node.inputs])
            segment = self._segment(node, integer)
            self.segment.update(dict.fromkeys(node.values, segment))
            if node.op == "quantize" and node.inputs[0] not in integer and constant is None:
                self.entries.append(Entry(node.name, node.inputs[0], spec_of(node), segment))

    def _segment(self, node: Node, integer: set[str]) -> int:
        """The segment of an integer value, or the one that codes of a float value begin."""
        varying = [v for v in node.inputs if v not in self.fixed]
        leaves = node.name not in integer
        return max((self.segment[v] + (leaves and v in integer) for v in varying), default=0)

    def _lower(self, node: Node) -> None:
        exponents, writer = self.exponents, self.writer
        if node.name in self.fixed:
            fixed = self.fixed[node.name]
            exponents[node.name] = fixed.exponent
            writer.constant(node.name, fixed.codes, fixed.exponent)
            return
        exponents[node.name] = value_exponent(node, exponents)
        writer.declare(node.name, known_exponent(exponents, node.name))
        if node.op in QUANTIZERS and any(e.tensor == node.name for e in self.entries):
            return
        rule = RULES.get(node.op) or MOVES.get(node.op)
        if rule is None:
            raise UnsupportedError(f"`{node.op}` has no step", node=node.name)
        rule(node, writer)


def _folded(node: Node, inputs: list[Fixed]) -> Fixed:
    integer = op_definition(node.op).integer
    assert integer is not None
    return integer(node.attributes, inputs)
