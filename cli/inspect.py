"""`qgraph inspect`: what is in a model, what is understood, what each pass would do."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qgraph.cli.options import Inputs, InputShapes, Json, Model, Outputs, names, shapes

if TYPE_CHECKING:
    from qgraph.ir.graph import Graph
    from qgraph.rewrite.trace import Trace


def inspect(
    model: Model,
    inputs: Inputs = None,
    outputs: Outputs = None,
    input_shape: InputShapes = None,
    profile: Annotated[
        str, typer.Option(help="Target profile to quantize for.")
    ] = "graffitist-int8",
    trace: Annotated[
        bool, typer.Option("--trace", help="Show every rewrite, before and after.")
    ] = False,
    text: Annotated[
        bool, typer.Option("--text", help="Print the graph as text, as it was read.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show inputs, outputs, ops and shapes, and what each pass would do and why not."""
    from qgraph.recipes import static

    from qgraph.cli.console import import_tensorflow_quietly
    from qgraph.frontends import load
    from qgraph.ir.text import print_graph
    from qgraph.passes import PassManager
    from qgraph.quant.profile import load_profile
    from qgraph.rewrite.trace import Trace

    target = load_profile(profile)
    import_tensorflow_quietly()
    graph = load(
        model, inputs=names(inputs), outputs=names(outputs), input_shapes=shapes(input_shape)
    )
    if text:
        print(print_graph(graph), end="")
        return
    facts = _facts(graph)
    log = Trace()
    results = PassManager(static(target)).run(graph.copy(), log)
    facts["passes"] = [
        {"name": r.name, "changes": r.changes, "refusals": r.refusals} for r in results
    ]
    if as_json:
        print(json.dumps({**facts, **log.to_json()}, indent=1))
        return
    _print_graph(facts)
    _print_passes(facts["passes"], log, trace)


def _facts(graph: Graph) -> dict[str, Any]:
    opaque = [n for n in graph.nodes.values() if n.op == "opaque"]
    ops = Counter(n.op for n in graph.nodes.values() if n.op not in ("const", "input", "opaque"))
    weights = [n.attrs["value"] for n in graph.nodes.values() if n.op == "const"]
    return {
        "inputs": {name: str(graph.types[name]) for name in graph.inputs},
        "outputs": {public: str(graph.types[value]) for public, value in graph.outputs.items()},
        "ops": dict(ops.most_common()),
        "not_understood": [{"name": n.name, "op": n.attrs["kind"]} for n in opaque],
        "parameters": int(sum(w.size for w in weights)),
    }


def _print_graph(facts: dict[str, Any]) -> None:
    from qgraph.cli.console import console, table

    ends = table("inputs and outputs", "", "name", "type")
    for kind in ("inputs", "outputs"):
        for name, tensor in facts[kind].items():
            ends.add_row(kind[:-1], name, tensor)
    console().print(ends, "")
    ops = table(f"ops ({facts['parameters']:,} parameters)", "op", ">count")
    for op, count in facts["ops"].items():
        ops.add_row(op, str(count))
    console().print(ops, "")
    unknown = Counter(op["op"] for op in facts["not_understood"])
    if unknown:
        kinds = ", ".join(f"{op} ({count})" for op, count in unknown.most_common())
        console().print(f"[bold]not understood, kept as float:[/] {kinds}\n")


def _print_passes(results: list[dict[str, Any]], log: Trace, trace: bool) -> None:
    from qgraph.cli.console import console, table

    listing = table("what each pass would do", "pass", ">changes", ">refusals")
    for result in results:
        listing.add_row(
            result["name"], str(result["changes"] or "-"), str(result["refusals"] or "-")
        )
    console().print(listing, "")
    if trace:
        for rewrite in log.rewrites:
            console().print(
                f"[bold]{rewrite.pass_name}[/] {rewrite.rule} at {rewrite.node}", markup=True
            )
            console().print(f"  - {rewrite.before}\n  + {rewrite.after}", markup=False)
    if log.refusals:
        refusals = table("refused, and why", "pass", "node", "reason")
        for refusal in log.refusals:
            refusals.add_row(refusal.pass_name, refusal.node, refusal.reason)
        console().print(refusals, "")
    if not trace:
        console().print("every rewrite, before and after: --trace")
