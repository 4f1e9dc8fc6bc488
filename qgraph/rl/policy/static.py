"""Running a static policy: codes in, the engine, codes out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict

import numpy as np

from qgraph.archives import read_arrays
from qgraph.backends.engine import LEVELS, Engine, FloatEngine
from qgraph.exact.reference import as_float
from qgraph.ir.graph import Graph
from qgraph.ir.parsing import parse_graph
from qgraph.ir.types import Array, Codes, Exponent, Fixed
from qgraph.numerics import quantize
from qgraph.program import Program, lower
from qgraph.quant.samples.sequences import takes_one_sample
from qgraph.records import from_json
from qgraph.rl.policy.file import Packed, PolicyManifest
from qgraph.runtime import Session
from qgraph.stored import part


def ends(graph: Graph, program: Program, name: str) -> dict[str, object]:
    """The manifest's `entry` and `exits`, if everything between them is integer; else empty.

    Such a policy needs only its engine to run.
    """
    if [entry.source for entry in program.entries] != [name]:
        return {}
    if not set(graph.outputs.values()) <= set(program.exits):
        return {}
    (entry,) = program.entries
    exits = {
        public: [value, program.tensors[value].exponent] for public, value in graph.outputs.items()
    }
    return {"entry": {"tensor": entry.tensor, "spec": asdict(entry.spec)}, "exits": exits}


class StaticRunner:
    """Runs the program in a file with the engine. Raises the errors of parsing."""

    def __init__(self, packed: Packed, level: str = "auto") -> None:
        facts = from_json(PolicyManifest, packed.manifest)
        self._packed, self._level = packed, level
        self._name, self._columns = facts.input or "", facts.columns
        self.reach: tuple[Array, Array] | None = None
        self.session = self._parsed(facts.facts)
        program = self.session.program
        self._alone = takes_one_sample(self.session.graph) or not program.batch_free
        if facts.columns is not None:
            self._run: Callable[[Array], Mapping[str, Array]] = self._run_rows
            self.outputs = set(self.session.graph.outputs)
            return
        if facts.entry is None:
            self._run = self._run_session
            graph = self.session.graph
            self._dtype, self.outputs = np.dtype(graph.types[self._name].dtype), set(graph.outputs)
            return
        self._tensor, self._spec = facts.entry.tensor, facts.entry.spec
        self._exits = facts.exits or {}
        self._engine, self.outputs = self._open(), set(self._exits)
        if self._engine.entries != (self._tensor,):
            raise ValueError("the engine's program belongs to another policy")
        if not {value for value, _ in self._exits.values()} <= set(self._engine.exits):
            raise ValueError("the engine's program belongs to another policy")
        unit = np.ldexp(1.0, -np.asarray(self._spec.exponent))
        # The smallest and the largest number that codes represent.
        self.reach = ((self._spec.lo - 0.5) * unit, (self._spec.hi + 0.5) * unit)
        self._floats = FloatEngine.of(self._engine, self._spec, dict(self._exits.values()))
        self._run = self._run_codes if self._floats is None else self._run_floats

    def run(self, observations: Array) -> Mapping[str, Array]:
        """Outputs by name, [n, ...]; one after another where the program takes one sample."""
        if not self._alone or len(observations) < 2:
            return self._run(observations)
        parts = [self._run(one[None]) for one in observations]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _parsed(self, facts: Iterable[str]) -> Session:
        """The calibrated graph with its facts, its program, and the engine."""
        sections = self._packed.sections
        constants = part(read_arrays(sections["constants"].tobytes(), "its constants"), "constant")
        graph = parse_graph(sections["graph"].tobytes().decode(), constants)
        graph.facts.update(facts)
        engine, program = self._open(), lower(graph)
        entries = tuple(entry.tensor for entry in program.entries)
        if engine.entries != entries or engine.exits != program.exits:
            raise ValueError("the engine's program belongs to another policy")
        return Session(graph, program, engine)

    def _open(self) -> Engine:
        with tempfile.NamedTemporaryFile(suffix=".qgi") as file:
            file.write(self._packed.sections["engine"].tobytes())
            file.flush()
            return Engine.open(file.name, level=self._level if self._level in LEVELS else "auto")

    def _run_session(self, observations: Array) -> Mapping[str, Array]:
        return self.session.run({self._name: np.ascontiguousarray(observations, self._dtype)})

    def _run_rows(self, rows: Array) -> Mapping[str, Array]:
        """Outputs and next states of rows: observations with states, which are exact in float32."""
        assert self._columns is not None
        types, feeds = self.session.graph.types, self._columns.feeds(rows)
        for state in self._columns.states:
            shape = [size or 1 for size in (types[state.name].shape or ())[1:]]
            feeds[state.name] = feeds[state.name].reshape(-1, *shape)
        outputs = self.session.run(
            {name: np.ascontiguousarray(x, types[name].dtype) for name, x in feeds.items()}
        )
        return {name: y.reshape(len(rows), -1) for name, y in outputs.items()}

    def _run_floats(self, observations: Array) -> Mapping[str, Array]:
        assert self._floats is not None
        outputs = self._floats.run(observations)
        return {public: outputs[value] for public, (value, _) in self._exits.items()}

    def _run_codes(self, observations: Array) -> Mapping[str, Array]:
        codes = quantize(observations, self._spec).codes
        outputs = self._engine.run_codes({self._tensor: codes})
        return {
            public: as_float(Fixed(outputs[value].astype(np.int64), _of_codes(exponent)))
            for public, (value, exponent) in self._exits.items()
        }


def _of_codes(exponent: Exponent) -> int | Codes:
    return exponent if isinstance(exponent, int) else np.asarray(exponent, np.int64)
