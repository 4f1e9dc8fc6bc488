"""Model -> Graph: operators as nodes of TensorFlow ops, imported like those of a GraphDef."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from qgraph.archives import most_unpacked
from qgraph.errors import GraphError, LoadError, UnsupportedError, first_line
from qgraph.foreign import AttrValue
from qgraph.frontends.importing import import_nodes
from qgraph.frontends.site import Ref
from qgraph.frontends.tflite.builder import LiteGraphBuilder
from qgraph.frontends.tflite.lite_node import LiteNode
from qgraph.frontends.tflite.model import DAMAGED, HINT, LiteModel, LiteOperator, decoded
from qgraph.frontends.tflite.operators import OPERATORS
from qgraph.frontends.tflite.quantizers import LiteQuantizers
from qgraph.frontends.tflite.tensors import LiteTensor, dtype_of
from qgraph.frontends.tflite.translation import TensorNames, Translation
from qgraph.ir.graph import Graph
from qgraph.ir.narrow_floats import NARROW, WIDE, widened_array, widened_dtype
from qgraph.ir.types import Array, Shape

CAST, QUANTIZE = "DEQUANTIZE", "QUANTIZE"
STATES = ("ASSIGN_VARIABLE", "CALL_ONCE")
UNKNOWN = "Unknown"  # the op of a node for an operator that is not read


def import_tflite(
    model: LiteModel,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    name: str = "graph",
    keep_scales: bool = False,
) -> Graph:
    """A model as a verified Graph.

    `inputs` and `outputs` name tensors, as the file or as the graph calls them; without them they
    are the model's, less the inputs that no output needs. Images are in NHWC, as in the file.
    Raises UsageError for names that do not exist, GraphError, LoadError or UnsupportedError naming
    the node.
    """
    quantizers = LiteQuantizers(keep_scales, _converted(model))
    writer = _Nodes(model, quantizers)
    nodes, refs = writer.written()
    texts = {t.name: _text(refs[i]) for i, t in enumerate(model.tensors) if i in refs and t.name}
    narrow = {t.kind.lower() for t in model.tensors} & set(NARROW)
    builder = LiteGraphBuilder(name, nodes, quantizers.grids)
    graph = import_nodes(
        nodes,
        builder,
        inputs=None if inputs is None else [texts.get(i, i) for i in inputs],
        outputs=None if outputs is None else [texts.get(o, o) for o in outputs],
        input_shapes={texts.get(key, key): shape for key, shape in (input_shapes or {}).items()},
        signature={public: _text(refs[index]) for public, index in model.outputs.items()},
        narrow=narrow,
    )
    builder.check()
    graph.notes += [*quantizers.notes(), *dict.fromkeys(writer.remarks)]
    return graph


def _converted(model: LiteModel) -> frozenset[int]:
    """The tensors that only QUANTIZE reads."""
    read = {i for operator in model.operators for i in operator.inputs if operator.op == QUANTIZE}
    others = {i for operator in model.operators for i in operator.inputs if operator.op != QUANTIZE}
    return frozenset(read - others - set(model.outputs.values()))


def _text(ref: Ref) -> str:
    return ref[0] if not ref[1] else f"{ref[0]}:{ref[1]}"


class _Nodes:
    """The nodes of a model, and where the value of each of its tensors is."""

    def __init__(self, model: LiteModel, quantizers: LiteQuantizers) -> None:
        self.model = model
        self.quantizers = quantizers
        self.refs: dict[int, Ref] = {}
        self.names = TensorNames(set(), self.refs)
        self.constants: dict[int, partial[Array]] = {}
        self.unpacked = 0
        self.remarks: list[str] = []

    def written(self) -> tuple[dict[str, LiteNode], Mapping[int, Ref]]:
        nodes = [*self._ends()]
        for operator in self.model.operators:
            self._claim(operator)
        nodes += self._constant_nodes()
        for operator in self._without_casts():
            nodes += self._of(operator)
        return {node.name: node for node in nodes}, self.refs

    def _ends(self) -> Iterator[LiteNode]:
        for index in self.model.inputs:
            if index not in self.refs:
                tensor = self.model.tensors[index]
                name = self._named(index)
                dtype = widened_dtype(dtype_of(tensor.kind, name))
                step = self.quantizers.step(tensor)
                attrs = {"dtype": dtype if step is None else WIDE, "shape": tensor.dims}
                yield LiteNode(name, "Placeholder", (), (), None, attrs, "input")
                if step is not None:
                    made = self.names.free(f"{name}/quantized")
                    self.refs[index] = (made, 0)
                    yield LiteNode(made, step[0], ((name, 0),), (), None, step[1], "input")

    def _named(self, index: int, output: int = 0) -> str:
        tensor = self.model.tensors[index]
        name = self.names.free(tensor.short or f"tensor{index}")
        self.refs[index] = (name, output)
        return name

    def _claim(self, operator: LiteOperator) -> None:
        """Name the outputs of an operator."""
        if operator.op in STATES:
            raise UnsupportedError(
                f"operator `{operator.op}`: the network keeps variables from run to run",
                hint="convert one step with its states as inputs and outputs (docs/streaming.md)",
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
        used = dict.fromkeys(i for o in self.model.operators for i in o.inputs if i >= 0)
        for index in (*used, *self.model.outputs.values()):
            if index in self.refs:
                continue
            tensor = self.model.tensors[index]
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
        for operator in self.model.operators:
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
        t = Translation(name, operator, self.model.tensors, self.names, self.constants, grids)
        write = OPERATORS.get(operator.op)
        if write is None:
            return [self._unknown(operator, name, {})]
        try:
            nodes = t.finished(self.quantizers.after(t, write(t)))
            if unread := t.unread():
                raise UnsupportedError(f"`{operator.op}` with {', '.join(unread)}", node=name)
        except LoadError:
            raise
        except (GraphError, UnsupportedError) as error:
            return [self._unknown(operator, name, {"error": error})]
        except Exception as error:  # the schema's functions may raise anything on a damaged file
            raise LoadError(f"{DAMAGED}: {first_line(error)}", node=name, hint=HINT) from None
        self.remarks += t.remarks
        return nodes

    def _unknown(
        self, operator: LiteOperator, name: str, attrs: Mapping[str, AttrValue]
    ) -> LiteNode:
        tensors = self.model.tensors
        given = [i for i in operator.inputs if i >= 0 and tensors[i].state != "variable"]
        inputs = tuple(self.refs[i] for i in given)
        return LiteNode(name, UNKNOWN, inputs, (), None, attrs, operator.op)

    def _constant(self, tensor: LiteTensor, name: str) -> Array:
        """The numbers of a constant. Codes and float16 take more memory than the file."""
        array = widened_array(decoded(tensor, name))
        self.quantizers.check(tensor, name, array)
        if array.base is None:
            self.unpacked += array.nbytes
            if self.unpacked > most_unpacked(self.model.size):
                raise LoadError(f"{DAMAGED}: its constants need {self.unpacked:,} bytes")
        return array
