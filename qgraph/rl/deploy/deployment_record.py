"""`deployment.json`: what a program needs to run a deployed policy, and the hashes of its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.reading import kind_of, value_of
from qgraph.ir.types import Exponent, QuantSpec
from qgraph.program.islands import needed
from qgraph.records import JSON, OMITTED, Object
from qgraph.rl.deploy.network_policy import PolicyParts
from qgraph.stored.write import versions

INDEX = "deployment.json"


@dataclass(frozen=True)
class FloatOpRecord:
    """A float op before or behind the integer layers; `value` has the elements of a constant."""

    name: str
    op: str
    inputs: Sequence[str] = ()
    value: JSON = field(default=None, metadata=OMITTED)


@dataclass(frozen=True)
class EntryRecord:
    """An entry of the integer layers: its tensor, and the float value that is quantized by spec."""

    tensor: str
    source: str
    spec: QuantSpec


@dataclass(frozen=True)
class DeploymentRecord:
    """The content of `deployment.json`.

    observation: the inputs that take it, one after the other. normalization: float ops from the
    observation to the sources of entries. behind: float ops from exits to the output. entries,
    exits: the ends of the integer layers; a code of an exit is value * 2^exponent. head: turns
    the output into the action. states: the value that each state has in the next step, by
    input.
    """

    format: str
    shape: Sequence[int]
    observation: str
    output: str
    head: Object | None
    states: Mapping[str, str]
    normalization: Sequence[FloatOpRecord]
    entries: Sequence[EntryRecord]
    exits: Mapping[str, Exponent]
    behind: Sequence[FloatOpRecord]
    warnings: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=versions)
    files: Mapping[str, str] = field(default_factory=dict)


def record_of(parts: PolicyParts, form: str, warnings: Sequence[str] = ()) -> DeploymentRecord:
    """The facts of a policy; without files."""
    graph, program = parts.graph, parts.program
    before = needed(graph, [entry.source for entry in program.entries], ())
    return DeploymentRecord(
        form,
        parts.shape,
        ", ".join(part.name for part in parts.inputs),
        parts.output,
        None if parts.head is None else parts.head.as_json(),
        parts.states,
        [_op(node) for node in before],
        [EntryRecord(entry.tensor, entry.source, entry.spec) for entry in program.entries],
        {name: program.tensors[name].exponent for name in program.exits},
        [_op(node) for node in needed(graph, [parts.output], {*program.exits})],
        warnings,
    )


def _op(node: Node) -> FloatOpRecord:
    if node.op == "const":
        return FloatOpRecord(node.name, node.op, (), np.asarray(value_of(node)).tolist())
    return FloatOpRecord(node.name, kind_of(node), node.inputs)
