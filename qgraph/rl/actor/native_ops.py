"""The actor's op list in C++, generated from the definitions: fused_ops/actor/ops.h."""

from __future__ import annotations

from collections.abc import Iterator

from qgraph.ops.native_enums import enumeration, header
from qgraph.rl.actor.ops import ACTIVATIONS, OPS, AnyActorOp


def ops_header() -> str:
    """The text of ops.h: enumerations of ops and activations, and facts by op."""
    return header("qgraph/rl/actor/ops", "qgraph::actor", ".qga", _lines())


def _lines() -> Iterator[str]:
    yield from enumeration("Op", [(op.name, op.code) for op in OPS.values()])
    yield f"constexpr uint32_t kOps = {len(OPS)};"
    yield ""
    yield from enumeration("Activation", [(name, i) for i, name in enumerate(ACTIVATIONS)])
    yield f"constexpr uint32_t kActivations = {len(ACTIVATIONS)};"
    yield ""
    yield "struct OpFacts {"
    yield "    const char* name;"
    yield "    uint32_t inputs;"
    yield "    bool more_inputs;  // `inputs` or more"
    yield "    uint32_t weights;"
    yield "    bool layer;  // the first weight is a kernel"
    yield "};"
    yield "constexpr OpFacts kOpFacts[kOps] = {"
    rows = [_facts(op) for op in OPS.values()]
    width = max(map(len, rows))
    for row, op in zip(rows, OPS.values(), strict=True):
        names = "; ".join(", ".join(part) for part in (op.operands, op.weights) if part)
        yield f"    {row.ljust(width)}  // {names}"
    yield "};"
    yield ""
    yield "constexpr const OpFacts& facts_of(Op op) { return kOpFacts[static_cast<uint32_t>(op)]; }"
    yield "constexpr const char* name_of(Op op) { return facts_of(op).name; }"


def _facts(op: AnyActorOp) -> str:
    more, layer = (str(fact).lower() for fact in (op.variadic, op.layer))
    return f'{{"{op.name}", {len(op.operands)}, {more}, {len(op.weights)}, {layer}}},'
