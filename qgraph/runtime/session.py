"""A whole quantized network: float inputs, integers in the engine, float outputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from qgraph import kernels
from qgraph.backends.engine.engine import Engine
from qgraph.backends.engine.floats import fits_float32
from qgraph.errors import ExactnessError, UsageError
from qgraph.exact.reference import Reference, Value, as_float
from qgraph.ir.graph import Graph, Node
from qgraph.ir.narrow_floats import in_float32
from qgraph.ir.types import Array, Fixed, QuantSpec, type_of
from qgraph.notebook import table_html
from qgraph.numerics import quantize
from qgraph.program import Program, segments
from qgraph.program.islands import needed
from qgraph.runtime.stream import Stream


class Session:
    """Runs a quantized network, with the bits of its integer reference.

    The integer engine runs all integer layers. Float ops before, between and after them are run
    in numpy.

    Args:
        graph: A quantized, calibrated graph.
        program: Its integer program.
        engines: An engine for each segment of the program; `Session.open` makes them all.

    Attributes:
        graph: The graph, with the names and types of inputs and outputs.
        program: The integer program.
        level: Instructions that the engines use.

    Examples:
        >>> qgraph.Session.open("out", level="plain")
        Session(Graph(model: ... nodes, image float32[?,8,8,1] -> ...), plain)
    """

    def __init__(self, graph: Graph, program: Program, *engines: Engine) -> None:
        self.graph, self.program = graph, program
        self.level = engines[0].level
        self._reference = Reference(graph)
        known = {*self._reference.constants}
        self.stages: list[EngineStage] = []
        for part, engine in zip(segments(program), engines, strict=True):
            before = needed(graph, [e.source for e in part.entries], known)
            self.stages.append(EngineStage(before, part, engine))
            known |= {v for node in before for v in node.values} | {*part.exits}
        self.behind = needed(graph, graph.outputs.values(), known)

    @staticmethod
    def open(
        folder: str | Path, threads: int = 1, level: str = "auto", fuse: bool = True
    ) -> Session:
        """Open a directory that `qgraph quantize` wrote.

        Args:
            folder: An output directory, or a training directory with `inference/` inside.
            threads: Threads for one run.
            level: Instructions: `auto` takes the best of this machine, or one of
                `qgraph.runtime.levels()`.
            fuse: Run chains of ops as one.

        Returns:
            A session, ready to run.

        Raises:
            LoadError: The folder is not what qgraph wrote.
            UnsupportedError: The network has no integer program.
            UsageError: The processor does not have these instructions.

        Examples:
            >>> session = qgraph.Session.open("out", threads=2)
        """
        from qgraph.stored import load_network

        network = load_network(folder)
        parts = segments(network.program)
        engines = [Engine.of(part, threads, level, fuse) for part in parts]
        return Session(network.graph, network.program, *engines)

    def run(self, feeds: Mapping[str, Array], batch: int | None = None) -> dict[str, Array]:
        """Run the network on samples.

        Args:
            feeds: One array for each input, by name, of any number of samples where the batch is
                free. Other float types are cast to float32.
            batch: Samples that the engine runs at once, where the batch is free; None runs all of
                them at once.

        Returns:
            The outputs by name, as float32.

        Raises:
            UsageError: The feeds do not fit, or `batch` is below 1.
            ExactnessError: A feed holds NaN.

        Examples:
            >>> import numpy as np
            >>> images = np.load("test.npz")["image"]
            >>> outputs = qgraph.Session.open("out").run({"image": images}, batch=32)
            >>> outputs["probabilities"].shape
            (450, 10)
        """
        if batch is not None and batch < 1:
            raise UsageError(
                f"the number of samples to run at once must be at least 1, not {batch}"
            )
        return self._run(feeds, batch, lambda: None)

    def _run(
        self, feeds: Mapping[str, Array], batch: int | None, part_ends: Callable[[], None]
    ) -> dict[str, Array]:
        """`run`, with a call of `part_ends` before the first part and after each."""
        feeds = {name: in_float32(np.asarray(array)) for name, array in feeds.items()}
        _check_feeds(self.graph, feeds)
        values: dict[str, Value] = {**self._reference.constants, **feeds}
        codes: dict[str, Array] = {}
        part_ends()
        for stage in self.stages:
            self._compute(stage.before, values)
            part_ends()
            for entry in stage.part.entries:
                if entry.tensor not in codes:
                    value = values[entry.source]
                    codes[entry.tensor] = self._entry(value, entry.tensor, entry.spec)
            for name, found in self._run_engine(stage, codes, batch).items():
                exponent = self.program.tensors[name].exponent
                held = exponent if isinstance(exponent, int) else np.asarray(exponent, np.int64)
                codes[name], values[name] = found, Fixed(found.astype(np.int64), held)
            part_ends()
        self._compute(self.behind, values)
        part_ends()
        return {public: as_float(values[name]) for public, name in self.graph.outputs.items()}

    def seconds_of_parts(self, feeds: Mapping[str, Array]) -> list[float]:
        """Run the network once, and measure its parts.

        Args:
            feeds: As for `run`.

        Returns:
            Seconds of each part: by turns float ops before a segment and the segment, then the
            float ops behind the last segment. A segment's seconds include those of making codes of
            its entries.

        Raises:
            UsageError: The feeds do not fit.
            ExactnessError: A feed holds NaN.

        Examples:
            >>> import numpy as np
            >>> images = np.load("test.npz")["image"]
            >>> session = qgraph.Session.open("out")
            >>> before, segment, behind = session.seconds_of_parts({"image": images})
        """
        ends: list[float] = []
        self._run(feeds, None, lambda: ends.append(time.perf_counter()))
        return [end - begin for begin, end in pairwise(ends)]

    def stream(self, count: int = 1) -> Stream:
        """Run sequences step by step, on a network with states.

        Args:
            count: Number of sequences that run side by side.

        Returns:
            A stream, whose states are zeros.

        Raises:
            UsageError: The network has no states.

        Examples:
            >>> qgraph.Session.open("out").stream()  # of a network that was made without states
            Traceback (most recent call last):
            ...
            qgraph.errors.UsageError: the network has no states...
        """
        return Stream(self, count)

    def __repr__(self) -> str:
        return f"Session({self.graph!r}, {self.level})"

    def _repr_html_(self) -> str:
        inputs = [("input", name, self.graph.types[name]) for name in self.graph.inputs]
        outputs = [("output", n, self.graph.types[v]) for n, v in self.graph.outputs.items()]
        title = f"Session of {self.graph.name}, {self.level}"
        return table_html(title, ("end", "name", "type"), [*inputs, *outputs])

    def _run_engine(
        self, stage: EngineStage, codes: Mapping[str, Array], batch: int | None
    ) -> dict[str, Array]:
        given = {entry.tensor: codes[entry.tensor] for entry in stage.part.entries}
        found = [stage.engine.run_codes(each) for each in self._batches(given, batch)]
        if len(found) == 1:
            return dict(found[0])
        return {name: np.concatenate([each[name] for each in found]) for name in found[0]}

    def _batches(self, codes: Mapping[str, Array], batch: int | None) -> list[Mapping[str, Array]]:
        """The codes for each run of the engine, in order.

        Raises UsageError for several samples if the network computes across samples.
        """
        rows = {name: (*self.program.tensors[name].shape, 1)[0] for name in codes}
        first = next(iter(codes))
        count = len(codes[first]) // max(rows[first], 1) if codes[first].ndim else 1
        size = count if batch is None else batch
        if not self.program.batch_free:
            size = 1
            if count > 1 and not self.program.blocks_free:
                raise UsageError(
                    f"the network computes across samples: it cannot be run on {count} of them",
                    hint="give it one sample at a time",
                )
        if count <= size:
            return [codes]
        return [
            {n: array[i * rows[n] : (i + size) * rows[n]] for n, array in codes.items()}
            for i in range(0, count, size)
        ]

    def _compute(self, nodes: Iterable[Node], values: dict[str, Value]) -> None:
        for node in nodes:
            results = self._reference.step(node, [values[v] for v in node.inputs])
            values.update(zip(node.values, results, strict=True))

    def _entry(self, value: Value, name: str, spec: QuantSpec) -> Array:
        x = as_float(value)
        codes = _quick_codes(x, spec, self.program.tensors[name].storage)
        if codes is not None:
            return codes
        try:
            return quantize(x, spec).codes
        except ExactnessError as error:
            raise ExactnessError(error.message, node=name, hint=error.hint) from None


@dataclass(frozen=True)
class EngineStage:
    """A segment of the program, and the float ops that compute its entries from what is known."""

    before: Sequence[Node]
    part: Program
    engine: Engine


def _quick_codes(x: Array, spec: QuantSpec, dtype: str) -> Array | None:
    """Same result as `quantize`, by the native kernel; None where it does not support `spec`."""
    exponent = spec.exponent
    if x.dtype != np.float32 or not isinstance(exponent, int) or not fits_float32(spec):
        return None
    values = kernels.quantize(x, exponent, spec.lo, spec.hi, spec.rounding)
    if values.size and np.isnan(values.min()):
        return None
    values *= np.float32(2.0**exponent)
    return values.astype(dtype)


def _check_feeds(graph: Graph, feeds: Mapping[str, Array]) -> None:
    listed = ", ".join(f"`{name}` {graph.types[name]}" for name in graph.inputs)
    for name in feeds:
        if name not in graph.inputs:
            raise UsageError(f"`{name}` is not an input of the network", hint=f"inputs: {listed}")
    for name in graph.inputs:
        if name not in feeds:
            raise UsageError(f"input `{name}` has no data", hint=f"inputs: {listed}")
        found, promised = type_of(np.asarray(feeds[name])), graph.types[name]
        if not promised.accepts(found):
            raise UsageError(f"input `{name}` is {promised}, but the data is {found}")
        if not np.size(feeds[name]):
            raise UsageError(f"the data of input `{name}` has no samples")
