"""Write the rewritten float graph, before quantization, to a file.

import qgraph
qgraph.optimize("model.pb").save("float.onnx")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qgraph.backends.io_names import IONames, io_names_of
from qgraph.errors import UnsupportedError, UsageError
from qgraph.files import write_whole
from qgraph.foreign import KerasModel
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.ir.types import Shape
from qgraph.names import onnx_name, tensorflow_name
from qgraph.notebook import table_html
from qgraph.passes import Pass, PassManager, PassResult
from qgraph.pipelines import QUANTIZED, check_facts, pipeline_of
from qgraph.progress import Progress, silent
from qgraph.quant.plan import PLAIN
from qgraph.quiet import quiet_tensorflow
from qgraph.rewrite.trace import Trace
from qgraph.words import counted


def _tensorflow_bytes(graph: Graph) -> bytes:
    from qgraph.backends.tf.emit import emit_graph_def

    graph_def = emit_graph_def(graph)
    try:
        content: bytes = graph_def.SerializeToString(deterministic=True)
    except ValueError as error:  # too large for protobuf
        raise UnsupportedError(f"cannot be written as one file: {error}", node=graph.name) from None
    return content


def _onnx_bytes(graph: Graph) -> bytes:
    from qgraph.backends.onnx.floats.write import float_model

    content: bytes = float_model(graph).SerializeToString(deterministic=True)
    return content


@dataclass(frozen=True)
class FloatFormat:
    """A kind of file: the bytes of a graph, and how it names inputs and outputs."""

    content: Callable[[Graph], bytes]
    spelling: Callable[[str], str]


# By suffix.
FLOAT_FORMATS: Mapping[str, FloatFormat] = {
    ".pb": FloatFormat(_tensorflow_bytes, tensorflow_name),
    ".onnx": FloatFormat(_onnx_bytes, onnx_name),
}


def float_format(path: str | Path) -> FloatFormat:
    """The format of a file by its suffix. Raises UsageError for an unknown one."""
    suffix = Path(path).suffix
    if suffix not in FLOAT_FORMATS:
        raise UsageError(
            f"`{path}` ends neither in .pb nor in .onnx",
            hint="the suffix selects the format: .pb is a frozen TensorFlow graph, .onnx ONNX",
        )
    return FLOAT_FORMATS[suffix]


@dataclass(frozen=True, repr=False)
class Optimized:
    """A float graph that passes have rewritten, with the log of what they did.

    Attributes:
        graph: The graph; `print` shows its text.
        trace: The rewrites and refusals of each pass, with reasons.
        results: For each pass, in order, its name and the number of changes and refusals.

    Examples:
        >>> qgraph.optimize("model.pb")
        Optimized(Graph(model: 59 nodes, image float32[?,8,8,1] -> ...), 70 changes)
    """

    graph: Graph
    trace: Trace
    results: Sequence[PassResult]

    def __repr__(self) -> str:
        changes = sum(result.changes for result in self.results)
        return f"Optimized({self.graph!r}, {counted(changes, 'change')})"

    def _repr_html_(self) -> str:
        rows = [(result.name, result.changes, result.refusals) for result in self.results]
        return table_html(repr(self), ("pass", "changes", "refusals"), rows)

    def save(self, path: str | Path) -> Path:
        """Write a frozen TensorFlow graph (`.pb`) or an ONNX model (`.onnx`), whole or not at all.

        Args:
            path: A file; its suffix is the format.

        Returns:
            The path.

        Raises:
            UsageError: The suffix is neither .pb nor .onnx.
            UnsupportedError: The format does not support a part of the network.
            OutputError: The file cannot be written.

        Examples:
            >>> print(qgraph.optimize("model.pb").save("float.onnx"))
            float.onnx
        """
        path = Path(path)
        write_whole(path, float_format(path).content(self.graph))
        return path

    def io_names(self, path: str | Path) -> IONames:
        """Get the names of inputs and outputs in such a file, by their names in the graph.

        Args:
            path: A file that `save` would write; its suffix is the format.

        Returns:
            The names in the file by names in the graph, in `inputs` and in `outputs`.

        Raises:
            UsageError: The suffix is neither .pb nor .onnx.

        Examples:
            >>> qgraph.optimize("model.pb").io_names("float.onnx").outputs
            {'probabilities': 'probabilities'}
        """
        return io_names_of(self.graph, float_format(path).spelling)


@quiet_tensorflow()
def optimize(
    model: str | Path | Graph | KerasModel,
    *,
    passes: str | Sequence[Pass] | None = None,
    without: str | Iterable[str] = (),
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    signature: str | None = None,
    trust: bool = False,
    progress: Progress = silent,
) -> Optimized:
    """Rewrite a float network by the recipe `float`, which does not change its function.

    Args:
        model: As in `load`, or a graph, which does not change.
        passes: Passes to run instead of the recipe, as text (`qgraph.pipelines`) or as values. They
            must not quantize.
        without: Names of passes to skip.
        inputs: Names of nodes that are inputs, needed if they cannot be detected.
        outputs: Names of nodes that are outputs, needed if they cannot be detected.
        input_shapes: Shapes of inputs by name, instead of those of the model.
        signature: One of several signatures of a SavedModel.
        trust: Whether a Keras file may run code, as in `load`.
        progress: Called with stage, done and total.

    Returns:
        The graph and the log of the passes. Its `save` writes a `.pb` or `.onnx` file.

    Raises:
        LoadError: The model cannot be read.
        UnsupportedError: A part of the model is not supported.
        UsageError: The list of passes is invalid.
        PassError: A pass requires another pass before it.

    Examples:
        >>> optimized = qgraph.optimize("model.pb")
        >>> len(optimized.graph.nodes)
        59
        >>> print(optimized.save("float.onnx"))
        float.onnx
    """
    names = without if isinstance(without, str) else tuple(without)
    pipeline = pipeline_of(passes, names)
    if pipeline.passes is not None:
        _check_float(pipeline.passes)
    steps = pipeline.floating(PLAIN)
    progress("loading", 0, 1)
    graph = load(
        model,
        inputs=inputs,
        outputs=outputs,
        input_shapes=input_shapes,
        signature=signature,
        trust=trust,
    )
    check_facts(steps, facts=graph.facts)
    trace, done = Trace(), list[PassResult]()

    def ran(result: PassResult) -> None:
        done.append(result)
        progress("rewriting", len(done), len(steps))

    PassManager(steps).run(graph, trace, ran)
    return Optimized(graph, trace, done)


def _check_float(passes: Sequence[Pass]) -> None:
    for step in passes:
        if QUANTIZED in step.ensures:
            raise UsageError(
                f"pass `{step.title}` quantizes, but the result of optimize is a float network",
                hint="remove it and the passes after it from the list, or use qgraph quantize",
            )
