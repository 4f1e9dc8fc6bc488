"""Run written `.tflite` files in LiteRT and in TFLM's interpreter."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from qgraph.archives import JsonObject
from qgraph.backends.network_forms import Runner
from qgraph.backends.tflite.arithmetic import TfliteExecutor
from qgraph.backends.tflite.cut_files import cut
from qgraph.backends.tflite.model_builder import metadata_of
from qgraph.distribution import install_hint, version_of
from qgraph.errors import ExactnessError, UnsupportedError
from qgraph.foreign import FlatObject
from qgraph.ir.types import Array
from qgraph.quiet import silenced
from qgraph.tflite_schema import EXTRA, schema

LITERT_PACKAGE, MICRO_PACKAGE = "ai-edge-litert", "tflite-micro"
BYTES = {"FLOAT32": 4, "INT64": 8, "INT32": 4, "INT16": 2, "INT8": 1, "BOOL": 1}
ARENA_OF_TENSOR = 1 << 10  # bytes for the records of a tensor
ARENA_BASE = 1 << 22
MOST_PRESERVED = 1000  # TFLM preserves 1,024 tensors, inputs and scratch memory among them


class TfliteSession(ABC):
    """An interpreter of one file, for its fixed shapes.

    Attributes:
        outputs: Numbers of the only tensors that can be read; None if all can be read.
        results: Numbers of the outputs of the file.
    """

    outputs: tuple[int, ...] | None = None
    results: tuple[int, ...] = ()

    @abstractmethod
    def run(self, inputs: Sequence[Array]) -> None:
        """Compute all tensors from the inputs, in the order of the file."""

    @abstractmethod
    def tensor(self, index: int) -> Array:
        """A tensor by its number."""


class LiteRTSession(TfliteSession):
    """LiteRT as users run it, with XNNPACK where that has kernels, or with its reference kernels.

    preserve: whether all tensors can be read, not only outputs.
    """

    def __init__(self, data: bytes, reference: bool, preserve: bool) -> None:
        try:
            with silenced():
                from ai_edge_litert.interpreter import Interpreter, OpResolverType
        except ImportError:
            raise UnsupportedError(
                "LiteRT is not installed", hint=install_hint(LITERT_PACKAGE, extra=EXTRA)
            ) from None
        kind = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
        with warnings.catch_warnings(), silenced():
            warnings.simplefilter("ignore")
            self._interpreter = Interpreter(
                model_content=data,
                num_threads=1,
                experimental_op_resolver_type=kind,
                experimental_preserve_all_tensors=preserve,
            )
            self._interpreter.allocate_tensors()
        self._places = [held["index"] for held in self._interpreter.get_input_details()]
        self.results = _results_of(data)

    def run(self, inputs: Sequence[Array]) -> None:
        for place, array in zip(self._places, inputs, strict=True):
            self._interpreter.set_tensor(place, array)
        self._interpreter.invoke()

    def tensor(self, index: int) -> Array:
        found: Array = self._interpreter.get_tensor(index)
        return found


class MicroSession(TfliteSession):
    """TFLM's interpreter.

    preserve: whether all tensors can be read, not only outputs. It preserves `MOST_PRESERVED`.
    """

    def __init__(self, data: bytes, preserve: bool) -> None:
        try:
            from tflite_micro.python.tflite_micro import runtime
        except ImportError:
            raise UnsupportedError(
                "TFLM is not installed", hint=install_hint(MICRO_PACKAGE, extra=EXTRA)
            ) from None
        kinds = runtime.InterpreterConfig
        self.results = _results_of(data)
        self.outputs = None if preserve else self.results
        self._interpreter = runtime.Interpreter.from_bytes(
            data,
            arena_size=arena_bytes(data),
            intrepreter_config=(
                kinds.kPreserveAllTensors if preserve else kinds.kAllocationRecording
            ),
        )

    def run(self, inputs: Sequence[Array]) -> None:
        for place, array in enumerate(inputs):
            self._interpreter.set_input(array, place)
        self._interpreter.invoke()

    def tensor(self, index: int) -> Array:
        if self.outputs is not None:
            held: Array = self._interpreter.get_output(self.outputs.index(index))
            return held
        found: Array = self._interpreter.GetTensor(index, 0)["tensor_data"]
        return found


def arena_bytes(data: bytes) -> int:
    """Memory for all tensors of a file at once."""
    package, graph = schema(), _graph(data)
    names = {getattr(package.TensorType, name): size for name, size in BYTES.items()}
    total = ARENA_BASE
    for i in range(graph.TensorsLength()):
        tensor = graph.Tensors(i)
        count = int(np.prod(tensor.ShapeAsNumpy(), dtype=np.int64)) if tensor.ShapeLength() else 1
        total += count * names[tensor.Type()] + ARENA_OF_TENSOR
    return total


def _graph(data: bytes) -> FlatObject:
    """The operators and tensors of a file."""
    return schema().Model.GetRootAsModel(data, 0).Subgraphs(0)


def inputs_of(data: bytes) -> list[int]:
    """The numbers of the inputs of a file."""
    return [int(number) for number in _graph(data).InputsAsNumpy()]


def _results_of(data: bytes) -> tuple[int, ...]:
    """The numbers of the outputs of a file."""
    return tuple(int(number) for number in _graph(data).OutputsAsNumpy())


def _computed_tensors(data: bytes) -> int:
    """The number of tensors that the operators of a file give."""
    graph = _graph(data)
    return sum(graph.Operators(i).OutputsLength() for i in range(graph.OperatorsLength()))


def sessions_of(executor: TfliteExecutor, data: bytes) -> list[TfliteSession]:
    """Sessions that must agree; the first one gives all tensors."""
    if executor in (TfliteExecutor.XNNPACK, TfliteExecutor.DEFAULT):
        return [LiteRTSession(data, False, True), LiteRTSession(data, False, False)]
    if executor == TfliteExecutor.REFERENCE:
        return [LiteRTSession(data, True, True)]
    if _computed_tensors(data) <= MOST_PRESERVED:
        return [MicroSession(data, True)]
    return [MicroSession(_with_codes_as_outputs(data), False), MicroSession(data, False)]


def _with_codes_as_outputs(data: bytes) -> bytes:
    """A copy of a file that gives all tensors of codes as outputs."""
    meta, inputs = metadata_of(data), inputs_of(data)
    codes = [
        int(about["index"])
        for part in ("exits", "entries", "tensors")
        for about in meta[part].values()
    ]
    inner = [number for number in codes if number not in inputs]
    return cut(data, inputs, [*_results_of(data), *inner], [])


def titled(executor: TfliteExecutor) -> str:
    """An executor with the version of its package."""
    package = MICRO_PACKAGE if executor == TfliteExecutor.MICRO else LITERT_PACKAGE
    return f"{executor} {version_of(package)}"


def runner_in(executor: TfliteExecutor, path: Path) -> Runner:
    """Run a file in one executor from codes of all entries, with every tensor that it holds.

    Entries that the file computes from float ops are given to a copy that begins with them. Raises
    UnsupportedError if the executor is not installed.
    """
    data = path.read_bytes()
    meta = metadata_of(data)
    given = [int(about["index"]) for about in meta["entries"].values()]
    exits = [int(about["index"]) for about in meta["exits"].values()]
    if sorted(given) != sorted(inputs_of(data)):
        data = cut(data, given, exits, [int(about["index"]) for about in meta["tensors"].values()])
    sessions = sessions_of(executor, data)
    order = [given.index(place) for place in inputs_of(data)]

    def run(codes: Mapping[str, Array]) -> dict[str, Array]:
        feeds = [fed(about, codes[name]) for name, about in meta["entries"].items()]
        found = codes_of_runs(meta, sessions, [feeds[i] for i in order])
        return {str(name): array for name, array in found.items()}

    return run


def codes_of_runs(
    meta: JsonObject,
    sessions: Sequence[TfliteSession],
    inputs: Sequence[Array],
    values: Sequence[int] = (),
) -> dict[str | int, Array]:
    """Codes of all tensors by name, of one run for each sample if samples are separate.

    values: numbers of further tensors, whose values are returned as they are.
    """
    count = len(inputs[0]) if meta["batch_free"] else 1
    runs = []
    for i in range(count):
        sample = [array[i : i + 1] for array in inputs] if meta["batch_free"] else inputs
        codes = dict[str | int, Array]()
        codes.update(_codes_of_one_run(meta, sessions, sample).items())
        codes |= {number: np.array(sessions[0].tensor(number)) for number in values}
        runs.append(codes)
    return {name: np.concatenate([one[name] for one in runs]) for name in runs[0]}


def fed(entry: JsonObject, codes: Array) -> Array:
    """Codes of an entry as the input of the file."""
    if entry["type"] == "float32":
        values: Array = np.ldexp(codes.astype(np.float32), -int(entry["exponent"]))
        return values
    stored: Array = (codes + int(entry["zero"])).astype(str(entry["type"]))
    return stored


def _codes_of_one_run(
    meta: JsonObject, sessions: Sequence[TfliteSession], inputs: Sequence[Array]
) -> dict[str, Array]:
    for session in sessions:
        session.run(inputs)
    first, *others = sessions
    found = {
        name: first.tensor(about["index"]).astype(np.int64) - about["zero"]
        for name, about in meta["tensors"].items()
        if first.outputs is None or about["index"] in first.outputs
    }
    for name, about in meta["exits"].items():
        values = first.tensor(about["index"])
        for other in others:
            if about["index"] in other.results and not np.array_equal(
                other.tensor(about["index"]), values
            ):
                raise ExactnessError(
                    "the executor gives other codes if not all tensors are kept", node=name
                )
        found[name] = _codes(name, about, values)
    return found


def _codes(name: str, about: JsonObject, values: Array) -> Array:
    """Codes of an output of the file. Raises ExactnessError for a value that is not on the grid."""
    if about["type"] != "float32":
        return values.astype(np.int64) - int(about["zero"])
    scaled = np.ldexp(values.astype(np.float64), about["exponent"])
    codes: Array = scaled.astype(np.int64)
    if not np.array_equal(codes, scaled):
        raise ExactnessError("its values are not on its grid", node=name)
    return codes


def same_in_all(runners: Mapping[str, Runner]) -> Runner:
    """One runner of several, which have to agree. Raises ExactnessError where they differ."""

    def run(codes: Mapping[str, Array]) -> Mapping[str, Array]:
        (first, found), *others = [(name, one(codes)) for name, one in runners.items()]
        for other, held in others:
            for name, array in found.items():
                if name in held and not np.array_equal(array, held[name]):
                    raise ExactnessError(f"{other} gives other codes than {first}", node=name)
        return found

    return run
