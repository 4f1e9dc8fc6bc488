"""Control flow: `IF` and `WHILE`, whose bodies are other subgraphs of the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from qgraph.errors import GraphError, UnsupportedError
from qgraph.frontends.site import Ref
from qgraph.frontends.tflite.operators.translator import Translator
from qgraph.frontends.tflite.tensors import LiteTensor, same_scale
from qgraph.frontends.tflite.translation import Translation


def _if(t: Translation) -> Ref:
    """Inputs: condition, then the inputs of both subgraphs."""
    given, made = _given(t, 1), _made(t)
    for key in ("ThenSubgraphIndex", "ElseSubgraphIndex"):
        body = t.subgraph(key)
        _check(t, given, (body.tensors[i] for i in body.inputs))
        _check(t, made, (body.tensors[i] for i in body.outputs))
    numbers = {"then": t.option("ThenSubgraphIndex"), "else": t.option("ElseSubgraphIndex")}
    return t.emit("If", *t.inputs(), **numbers)


def _while(t: Translation) -> Ref:
    """Both subgraphs take the inputs; those of the next step are the outputs of the body."""
    given = _given(t, 0)
    condition, body = (t.subgraph(key) for key in ("CondSubgraphIndex", "BodySubgraphIndex"))
    _check(t, given, (condition.tensors[i] for i in condition.inputs))
    _check(t, given, (body.tensors[i] for i in body.inputs))
    _check(t, given, (body.tensors[i] for i in body.outputs))
    _check(t, given, _made(t))
    numbers = {"cond": t.option("CondSubgraphIndex"), "body": t.option("BodySubgraphIndex")}
    return t.emit("While", *t.inputs(), **numbers)


def _given(t: Translation, first: int) -> list[LiteTensor]:
    return [t.tensor(i) for i in range(first, len(t))]


def _made(t: Translation) -> list[LiteTensor]:
    return [t.output(i) for i in range(len(t.operator.outputs))]


def _check(t: Translation, outer: Iterable[LiteTensor], inner: Iterable[LiteTensor]) -> None:
    """Codes pass into a body and out of it as they are, so they must have one scale there."""
    several, others = list(outer), list(inner)
    if len(several) != len(others):
        raise GraphError(
            f"a subgraph of `{t.operator.op}` has {len(others)} values instead of {len(several)}",
            node=t.name,
        )
    for one, other in zip(several, others, strict=True):
        if one.kind != other.kind or not same_scale(one.scale, other.scale):
            raise UnsupportedError(
                f"`{one.name}` and `{other.name}`, inside and outside of `{t.operator.op}`, "
                "differ in type or scale",
                node=t.name,
                hint="convert the model again, with float tensors around it",
            )


OPERATORS: Mapping[str, Translator] = MappingProxyType({"IF": _if, "WHILE": _while})
CONTROL = frozenset(OPERATORS)
