"""Compare codes of a user with the integer reference, and find the first difference."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.backends.network_forms import Network
from qgraph.errors import UsageError
from qgraph.exact.reference import Reference
from qgraph.ir.types import Array, Codes
from qgraph.names import from_entry_name
from qgraph.numerics import aligned
from qgraph.program import Program
from qgraph.verification.cases import from_samples
from qgraph.verification.compare import Difference, DifferenceTally, expected_codes, in_order
from qgraph.verification.explain import Line, explain

PREFIXES = ("codes/", "tensors/")
INPUTS = "dump the float inputs, or the codes of the quantized inputs"


@dataclass(frozen=True)
class Checked:
    """Comparison of a dump with the reference.

    tensors      names of the network's tensors, by the names of the dump
    elements     number of elements that were compared
    unknown      arrays of the dump that are not tensors of the network
    differences  the first difference of each tensor, in the order of computation
    computation  how the reference computes the first wrong element, from correct tensors
    """

    tensors: Mapping[str, str]
    elements: int
    unknown: tuple[str, ...]
    differences: tuple[Difference, ...]
    computation: tuple[Line, ...]


def against(network: Network, dump: Mapping[str, Array]) -> Checked:
    """Compare a dump, arrays by name, with the integer reference.

    Names are those of the graph. `_` may replace other characters such as `/` and `:`, and a name
    may begin with `codes/`, as in tensors.npz. Integers are codes, floats the values of codes. The
    dump may contain the network's inputs: codes of its entries, or float inputs as `input/<name>`.
    Without them, the calibration sample is used. Raises UsageError.
    """
    program = network.program
    tensors = _names(program, dump)
    entries = _entries(network, dump, {ours: theirs for theirs, ours in tensors.items()})
    constants = {n: np.asarray(c, np.int64) for n, c in program.constants.items()}
    expected = {**constants, **expected_codes(network, Reference(network.graph), entries)}
    tally = DifferenceTally()
    for theirs, ours in tensors.items():
        if ours in expected:
            found = codes_of(dump[theirs], program, ours)
            wanted = expected[ours]
            if found.size != wanted.size:
                raise UsageError(
                    f"`{theirs}` has shape {found.shape}, the network {wanted.shape}",
                    hint="batch first, channels last; as many samples as the inputs have",
                )
            tally.add(ours, found.reshape(wanted.shape), wanted, theirs)
    if not tally.tensors:
        raise UsageError(
            "no array in the file has the name of a tensor",
            hint=f"names are those of tensors.npz, like {program.exits[0]}",
        )
    wrong = tuple(in_order(network, tally.differences))
    computation: list[Line] = []
    if wrong:
        right = tally.tensors - tally.differences.keys()
        known = {*constants, *right, *(e.tensor for e in program.entries)}
        every = {**constants, **_every(network, entries)}
        computation = explain(program, every, wrong[0].tensor, wrong[0].index, known)
    inputs = {*network.graph.inputs, *(f"input/{name}" for name in network.graph.inputs)}
    ignored = {*tensors, *inputs, *(name for name in dump if name.startswith("exponent/"))}
    unknown = tuple(name for name in dump if name not in ignored)
    return Checked(tensors, tally.elements, unknown, wrong, tuple(computation))


def _every(network: Network, entries: Mapping[str, Codes]) -> dict[str, Codes]:
    """Codes of every tensor, including those that lowering added."""
    from qgraph.program import run

    names = [n for n in network.program.tensors if n not in network.program.constants]
    return run(network.program, entries, names)


def _names(program: Program, dump: Mapping[str, Array]) -> dict[str, str]:
    """Names of tensors by the names of arrays in the dump."""
    plain: dict[str, list[str]] = {}
    for name in program.tensors:
        plain.setdefault(_plain(name), []).append(name)
    found = {}
    for theirs in dump:
        bare = next((theirs[len(p) :] for p in PREFIXES if theirs.startswith(p)), theirs)
        exact = (bare, from_entry_name(bare), theirs)
        ours = next((name for name in exact if name in program.tensors), None)
        alike = plain.get(_plain(bare), [])
        if ours is None and len(alike) > 1:
            raise UsageError(
                f"`{theirs}` may be {' or '.join(f'`{name}`' for name in alike)}",
                hint="rename the array to the full name of the tensor",
            )
        ours = ours or next(iter(alike), None)
        if ours is not None:
            found[theirs] = ours
    return found


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name)


def codes_of(array: Array, program: Program, name: str) -> Codes:
    """Integers as codes, and floats on the tensor's grid converted to codes. Raises UsageError."""
    if array.dtype.kind in "iu":
        return np.asarray(array, np.int64)
    if array.dtype.kind not in "bf":
        raise UsageError(f"`{name}` is of dtype {array.dtype}, not numbers", hint="dump codes")
    exponent = aligned(np.asarray(program.tensors[name].exponent), array.shape)
    steps = np.ldexp(np.asarray(array, np.float64), exponent)
    if not np.isfinite(steps).all() or not np.array_equal(steps, np.rint(steps)):
        raise UsageError(
            f"`{name}` is float and not on its grid, steps of 2^-{exponent}",
            hint="dump the integer codes",
        )
    return np.asarray(steps, np.int64)


def _entries(
    network: Network, dump: Mapping[str, Array], theirs: Mapping[str, str]
) -> dict[str, Codes]:
    names = [e.tensor for e in network.program.entries]
    if all(name in theirs for name in names):
        return {
            name: _shaped(codes_of(dump[theirs[name]], network.program, name), network, name)
            for name in names
        }
    floats = {
        name: dump.get(f"input/{name}", dump.get(name, network.sample.get(name)))
        for name in network.graph.inputs
    }
    for name, array in floats.items():
        if array is not None and array.dtype.kind not in "biuf":
            label = next(n for n in (f"input/{name}", name) if n in dump)
            raise UsageError(f"`{label}` is of dtype {array.dtype}, not numbers", hint=INPUTS)
    cases = list(from_samples(network, {n: a for n, a in floats.items() if a is not None}))
    if len(cases) > 1 and not network.program.batch_free:
        raise UsageError("a dump of several batches", hint="give one batch")
    return {name: np.concatenate([c.entries[name] for c in cases]) for name in names}


def _shaped(codes: Codes, network: Network, name: str) -> Codes:
    """Codes of an entry in the shape of the network. Raises UsageError if they do not fit."""
    shape = network.program.tensors[name].shape
    samples = codes.size // max(math.prod(shape[1:]), 1) if network.program.batch_free else None
    wanted = shape if samples is None else (samples, *shape[1:])
    if codes.size != math.prod(wanted) or not codes.size:
        raise UsageError(
            f"`{name}` has shape {list(codes.shape)}, the network takes "
            f"{list(shape) if samples is None else ['samples', *shape[1:]]}".replace("'", ""),
            hint="batch first, channels last",
        )
    return codes.reshape(wanted)
