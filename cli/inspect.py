"""`qgraph inspect`: show the ops of a model and what each pass would do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qgraph.choices import DEFAULT_PROFILE
from qgraph.cli.network_options import LoadOptions, PassOptions
from qgraph.cli.option_groups import with_groups
from qgraph.cli.options import Json, Model, Profile, check_model
from qgraph.words import percent

if TYPE_CHECKING:
    from qgraph.ir.graph import Graph
    from qgraph.runtime.part_times import PartTime
    from qgraph.stored.manifest import Manifest

PARTS_LEGEND = (
    "integer: the engine; float: numpy; ms: median of several runs of one calibration sample with "
    "one thread; closed by: ops that need an integer form for the island to close\n"
)


@with_groups
def inspect(
    model: Model,
    profile: Profile = DEFAULT_PROFILE,
    *,
    loading: LoadOptions,
    listed: PassOptions,
    trace: Annotated[
        bool, typer.Option("--trace", help="Show the nodes before and after each rewrite.")
    ] = False,
    text: Annotated[
        bool, typer.Option("--text", help="Print the graph as text, before any pass.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show inputs, outputs, ops and shapes, what each pass would do, and what it refuses.

    For a directory that `qgraph quantize` wrote, show the layers and their bits instead.
    """
    from qgraph.cli.console import console
    from qgraph.cli.rewrites import print_passes_run, print_refusals, print_rewrites
    from qgraph.cli.tables import print_quantized
    from qgraph.frontends import load
    from qgraph.ir.printing import print_graph
    from qgraph.passes import PassManager
    from qgraph.quant.profile import load_profile
    from qgraph.records import to_json, to_object
    from qgraph.rewrite.trace import Trace
    from qgraph.stored.manifest import manifest_of

    written = None if text or trace or listed.passes or listed.without else manifest_of(model)
    if written is None:
        check_model(model)
    target = load_profile(profile)
    pipeline = listed.pipeline(target)
    if written is not None:
        from qgraph.runtime.part_times import part_times

        parts = part_times(model if model.is_dir() else model.parent, written)
        if as_json:
            print(json.dumps({**to_object(written), "parts": to_json(parts)}))
        else:
            _print_ends(written.inputs, written.outputs)
            print_quantized(written)
            _print_parts(written, parts)
        return
    graph = load(model, **loading.keywords())
    if text:
        print(print_graph(graph), end="")
        return
    facts = _facts(graph)
    log = Trace()
    pipeline.check(target)
    results = PassManager(pipeline.static(target)).run(graph, log)
    facts = replace(facts, unsupported=_left_opaque(graph))
    if as_json:
        ran = [{"name": r.name, "changes": r.changes, "refusals": r.refusals} for r in results]
        print(json.dumps({**to_object(facts), "passes": ran, **to_object(log.stored)}))
        return
    _print_ends(facts.inputs, facts.outputs)
    _print_ops(facts)
    for note in (*facts.notes, *pipeline.notes()):
        console().print(f"note: {note}\n", soft_wrap=True)
    print_passes_run(results)
    if trace:
        print_rewrites(log.rewrites)
    print_refusals(log.refusals)
    _print_next(model, trace)


def _print_parts(written: Manifest, parts: Sequence[PartTime]) -> None:
    """Print where float ops interrupt the integer program, and how long each part takes."""
    from qgraph.cli.console import Names, console, print_table

    if not written.has_islands:
        console().print("No float islands: no float op lies between integer layers.\n")
    elif not parts:
        console().print("Without an integer program, the cost of float islands is not measured.\n")
    if not parts:
        return
    rows = [
        (
            part.kind,
            Names(*(f"{count} {op}" for op, count in part.ops.items())),
            Names(*part.reads),
            Names(*part.feeds),
            f"{part.milliseconds:.2f}",
            percent(part.share),
            Names(*part.closed_by),
        )
        for part in parts
    ]
    columns = ("=part", "ops", "from", "to", ">ms", ">share", "closed by")
    print_table("float islands between integer segments, and the time of each part", columns, rows)
    console().print(PARTS_LEGEND, style="dim")


@dataclass(frozen=True)
class GraphFacts:
    """A graph before any pass: its inputs, outputs, ops and size."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    ops: Mapping[str, int]
    unsupported: Sequence[UnsupportedOp]
    notes: Sequence[str]
    parameters: int


@dataclass(frozen=True)
class UnsupportedOp:
    """An op that is kept as float, and why. The reason is empty for an unsupported op."""

    name: str
    op: str
    reason: str


def _facts(graph: Graph) -> GraphFacts:
    from qgraph.ir.reading import value_of

    ops = Counter(n.op for n in graph.nodes.values() if n.op not in ("const", "input", "opaque"))
    weights = [value_of(n) for n in graph.nodes.values() if n.op == "const"]
    return GraphFacts(
        inputs={name: str(graph.types[name]) for name in graph.inputs},
        outputs={public: str(graph.types[value]) for public, value in graph.outputs.items()},
        ops=dict(ops.most_common()),
        unsupported=_left_opaque(graph),
        notes=list(graph.notes),
        parameters=int(sum(w.size for w in weights)),
    )


def _left_opaque(graph: Graph) -> list[UnsupportedOp]:
    """Ops that neither importers nor passes could read."""
    from qgraph.ir.reading import kind_of

    opaque = [n for n in graph.nodes.values() if n.op == "opaque"]
    return [
        UnsupportedOp(
            n.name,
            kind_of(n),
            f"not supported: {graph.unread[n.name]}" if n.name in graph.unread else "",
        )
        for n in opaque
    ]


def _print_ends(inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    from qgraph.cli.console import Names, print_table

    rows = [
        (kind, Names(name), tensor)
        for kind, ends in (("input", inputs), ("output", outputs))
        for name, tensor in ends.items()
    ]
    print_table("inputs and outputs", ("=", "name", "=type"), rows)


def _print_ops(facts: GraphFacts) -> None:
    from qgraph.cli.console import Names, print_table
    from qgraph.cli.rewrites import first_names

    counts = [(op, str(count)) for op, count in facts.ops.items()]
    print_table(f"ops, {facts.parameters:,} parameters", ("=op", ">count"), counts)
    unknown: dict[tuple[str, str], list[str]] = {}
    for found in facts.unsupported:
        unknown.setdefault((found.op, found.reason), []).append(found.name)
    if unknown:
        print_table(
            "not supported, kept as float",
            ("=op", ">count", "nodes", "reason"),
            [
                (op, str(len(nodes)), Names(*first_names(nodes)), reason or "-")
                for (op, reason), nodes in unknown.items()
            ],
        )


def _print_next(model: Path, trace: bool) -> None:
    from qgraph.cli.console import print_command, print_next

    if not trace:
        print_command("nodes before and after each rewrite:", ["inspect", str(model), "--trace"])
    print_next(["quantize", str(model), "-c", "samples.npz", "-o", "out"])
