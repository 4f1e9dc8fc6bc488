"""A static policy at work: codes in, the engine, codes out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from qgraph.archives import read_arrays
from qgraph.backends.engine import LEVELS, Engine, FloatEngine
from qgraph.exact.reference import as_float
from qgraph.ir.graph import Graph
from qgraph.ir.parsing import parse_graph
from qgraph.ir.types import Array, Fixed, QuantSpec
from qgraph.numerics import quantize
from qgraph.program import Program, lower
from qgraph.rl.policy.file import Packed
from qgraph.runtime import Session
from qgraph.stored import part


def ends(graph: Graph, program: Program, name: str) -> dict[str, Any]:
    """An entry of the manifest: where integers begin and end, if all between them is integer.

    Such a policy needs nothing but its engine to run.
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
    """Runs the engine's program of a file, parsed at once; raises whatever parsing does."""

    def __init__(self, packed: Packed, level: str = "auto") -> None:
        about = packed.manifest
        self._packed, self._level = packed, level
        self._name = str(about["input"])
        self.reach: tuple[Array, Array] | None = None
        self.session = self._parsed()
        if "entry" not in about:
            self.run: Callable[[Array], Mapping[str, Array]] = self._whole
            graph = self.session.graph
            self._dtype, self.outputs = np.dtype(graph.types[self._name].dtype), set(graph.outputs)
            return
        spec = dict(about["entry"]["spec"])
        spec["exponent"] = _exponent(spec["exponent"])
        self._tensor, self._spec = str(about["entry"]["tensor"]), QuantSpec(**spec)
        self._exits = {k: (str(v), _exponent(e)) for k, (v, e) in about["exits"].items()}
        self._engine, self.outputs = self._open(), set(self._exits)
        if self._engine.entries != (self._tensor,):
            raise ValueError("the engine's program is of another policy")
        if not {value for value, _ in self._exits.values()} <= set(self._engine.exits):
            raise ValueError("the engine's program is of another policy")
        unit = np.ldexp(1.0, -np.asarray(self._spec.exponent))
        # The least and the largest number that codes hold.
        self.reach = ((self._spec.lo - 0.5) * unit, (self._spec.hi + 0.5) * unit)
        self._floats = FloatEngine.of(self._engine, self._spec, dict(self._exits.values()))
        self.run = self._integers if self._floats is None else self._at_once

    def _parsed(self) -> Session:
        """The calibrated graph, its program, and the engine."""
        sections = self._packed.sections
        constants = part(read_arrays(sections["constants"].tobytes(), "its constants"), "constant")
        graph = parse_graph(sections["graph"].tobytes().decode(), constants)
        graph.facts.update(str(fact) for fact in self._packed.manifest["facts"])
        engine, program = self._open(), lower(graph)
        entries = tuple(entry.tensor for entry in program.entries)
        if engine.entries != entries or engine.exits != program.exits:
            raise ValueError("the engine's program is of another policy")
        return Session(graph, program, engine)

    def _open(self) -> Engine:
        with tempfile.NamedTemporaryFile(suffix=".qgi") as file:
            file.write(self._packed.sections["engine"].tobytes())
            file.flush()
            return Engine.open(file.name, level=self._level if self._level in LEVELS else "auto")

    def _whole(self, observations: Array) -> Mapping[str, Array]:
        return self.session.run({self._name: np.ascontiguousarray(observations, self._dtype)})

    def _at_once(self, observations: Array) -> Mapping[str, Array]:
        assert self._floats is not None
        found = self._floats.run(observations)
        return {public: found[value] for public, (value, _) in self._exits.items()}

    def _integers(self, observations: Array) -> Mapping[str, Array]:
        codes = quantize(observations, self._spec).codes
        found = self._engine.run_codes({self._tensor: codes})
        return {
            public: as_float(Fixed(found[value].astype(np.int64), exponent))
            for public, (value, exponent) in self._exits.items()
        }


def _exponent(found: Any) -> Any:
    return tuple(int(e) for e in found) if isinstance(found, list | tuple) else int(found)
