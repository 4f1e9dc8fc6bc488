"""Import ONNX's own node tests: ``python -m benchmarks.onnx_nodes [--only Resize]``.

The wheel of `onnx` has some 1,900 models of one or a few nodes, each with inputs and expected
outputs. Each is loaded with its weights as constants, as in networks, and run by the float
reference.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.onnx_node_integers import has_integer_form
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table
from qgraph.errors import QGraphError
from qgraph.ir.ops.structure import OpaqueAttrs
from qgraph.ir.types import Array

ARRAYS = np.ndarray | np.generic
INTEGER = "has an integer form"
HALF = 2.0**-6  # two units in the last place of bfloat16


class Verdict(str, Enum):
    """`equal`: read, with equal results; `opaque`: equal, but a node is computed by ONNX's
    reference.
    """

    EQUAL = "equal"
    OPAQUE = "opaque"
    REFUSED = "refused"
    WRONG = "wrong"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Outcome:
    case: str
    op: str
    verdict: Verdict
    reason: str = ""
    integer: bool = False


@cache
def node_cases() -> tuple[Any, ...]:
    """Every node test of `onnx`: a model, its inputs and its outputs."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the expected outputs are computed, some from infinities
        return tuple(load_model_tests(kind="node"))


def op_of(case: Any) -> str:
    """The op of most nodes, since a test of a function contains the function's body."""
    kinds = Counter(node.op_type for node in case.model.graph.node)
    return str(kinds.most_common(1)[0][0]) if kinds else "none"


def with_constants(model: Any, feeds: list[Any]) -> tuple[Any, dict[str, Array]]:
    """The model with all inputs except one as constants, and the data of that input.

    The first input of floats stays an input, or the first one if none has floats.
    """
    import onnx

    inputs = list(model.graph.input)[: len(feeds)]
    kinds = [np.asarray(f).dtype.kind if isinstance(f, ARRAYS) else "" for f in feeds]
    first = kinds.index("f") if "f" in kinds else 0
    frozen = onnx.ModelProto()
    frozen.CopyFrom(model)
    kept, fed = [], {}
    for i, (value, array) in enumerate(zip(inputs, feeds, strict=True)):
        if i == first or not isinstance(array, ARRAYS):
            kept.append(value)
            fed[value.name] = array
        else:
            frozen.graph.initializer.append(
                onnx.numpy_helper.from_array(np.asarray(array), value.name)
            )
    del frozen.graph.input[:]
    frozen.graph.input.extend(kept)
    return frozen, fed


def outcome_of(case: Any, integers: bool = False) -> Outcome:
    """Load, run and compare one test; `integers` looks for its integer form, too."""
    try:
        return _tried(case, integers)
    except QGraphError as error:
        return Outcome(case.name, op_of(case), Verdict.REFUSED, str(error))
    except Exception as error:  # the benchmark looks for exceptions that are not in the error tree
        detail = f"{type(error).__name__}: {error}"
        return Outcome(case.name, op_of(case), Verdict.CRASHED, detail)


def _tried(case: Any, integers: bool) -> Outcome:
    from qgraph.frontends.onnx import import_model, read
    from qgraph.frontends.onnx.node import ir_name
    from qgraph.interpret import evaluate

    verdict, reason, integer = Verdict.EQUAL, "", integers
    for feeds, expected in case.data_sets:
        model, fed = with_constants(case.model, list(feeds))
        graph = import_model(read(model))
        left = sorted({n.typed(OpaqueAttrs).kind for n in graph.nodes.values() if n.op == "opaque"})
        if left:
            verdict, reason = Verdict.OPAQUE, ", ".join(left)
        run = {ir_name(name): whole(array) for name, array in fed.items()}
        results = evaluate(graph, {k: v for k, v in run.items() if k in graph.inputs})
        for value, want in zip(case.model.graph.output, expected, strict=True):
            detail = difference(results[ir_name(value.name)], want, case.rtol, case.atol)
            if detail:
                return Outcome(case.name, op_of(case), Verdict.WRONG, f"{value.name}: {detail}")
        integer = integer and has_integer_form(graph, {k: run[k] for k in graph.inputs})
    return Outcome(case.name, op_of(case), verdict, reason, integer and not reason)


def difference(found: Array, want: Any, rtol: float, atol: float) -> str:
    """The difference between the arrays, or "" if they agree within the tolerance of the ONNX test.

    Networks in half precision are read as float32, which rounds less.
    """
    wide = whole(want)
    if isinstance(wide, np.ndarray) and wide is not want:
        rtol = max(rtol, HALF)
    want = np.asarray(wide)
    if (found.shape, _kind(found)) != (want.shape, _kind(want)):
        return f"{found.dtype}{list(found.shape)}, expected {want.dtype}{list(want.shape)}"
    if want.dtype.kind not in "fc":
        return f"{int((found != want).sum())} elements" if (found != want).any() else ""
    close = np.isclose(found, want, rtol, atol, equal_nan=True)
    return "" if close.all() else f"{int((~close).sum())} of {close.size} elements"


def whole(value: Any) -> Any:
    """Half precision as float32; other types unchanged."""
    from onnx import TensorProto, numpy_helper

    if isinstance(value, TensorProto):
        value = numpy_helper.to_array(value)
    half = isinstance(value, np.ndarray | np.generic) and value.dtype.name in (
        "float16",
        "bfloat16",
    )
    return np.asarray(value, np.float32) if half else value


def _kind(array: Array) -> str:
    return "text" if array.dtype.kind in "OSU" else array.dtype.name


def outcomes(only: Iterable[str] = (), integers: bool = False) -> Iterator[Outcome]:
    """The verdict on every node test, or on those of some ops; see `outcome_of`."""
    wanted = set(only)
    for case in node_cases():
        if not wanted or op_of(case) in wanted:
            yield outcome_of(case, integers)


def table(found: Iterable[Outcome]) -> Table:
    """Counts of verdicts in total and by op."""
    ops: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in found:
        for counts in (ops["all"], ops[outcome.op]):
            counts[outcome.verdict.value] += 1
            counts[INTEGER] += int(outcome.integer)
    first, *others = (verdict.value for verdict in Verdict)
    columns = (first, INTEGER, *others)
    made = Table("ONNX's node tests", {"op": "", **dict.fromkeys(columns, "d")})
    for op in sorted(ops, key=lambda op: (op != "all", op)):
        made.add(op, *(ops[op][column] or None for column in columns))
    return made


def main(
    only: Annotated[list[str] | None, typer.Option(help="An op; may be repeated.")] = None,
    show: Annotated[
        list[Verdict] | None, typer.Option(help="List tests of this verdict, and why.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Count the verdicts on ONNX's node tests, by op."""
    found = list(outcomes(only or (), integers=True))
    for outcome in found:
        if outcome.verdict in (show or ()):
            print(f"{outcome.verdict.value} {outcome.case} ({outcome.op}): {outcome.reason}")
    report("benchmarks.onnx_nodes", [table(found)], json_file)


if __name__ == "__main__":
    typer.run(main)
