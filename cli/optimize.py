"""`qgraph optimize`: write the rewritten float network to a file."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from qgraph.cli.network_options import LoadOptions, PassOptions
from qgraph.cli.option_groups import with_groups
from qgraph.cli.options import Json, Model, check_model
from qgraph.errors import OutputError


@with_groups
def optimize(
    model: Model,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Output file: .pb for a frozen TensorFlow graph, .onnx for ONNX.",
        ),
    ],
    *,
    listed: PassOptions,
    loading: LoadOptions,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: Json = False,
) -> None:
    """Apply the float rewrites of quantization to a network, and write it as a float network.

    The result computes the same function. Batch norms and constants are folded, and transposes are
    removed where possible. Inputs and outputs keep their names.
    """
    from qgraph.cli.console import at_work, console, print_last
    from qgraph.cli.rewrites import print_passes_run, print_refusals
    from qgraph.optimized import float_format
    from qgraph.optimized import optimize as rewritten
    from qgraph.records import to_object

    float_format(output)
    check_model(model)
    if output.exists() and (model.exists() and output.samefile(model)):
        raise OutputError(
            "the output is the model itself", node=str(output), hint="choose another name"
        )
    if output.exists() and not force:
        raise OutputError(
            "exists", node=str(output), hint="choose another name, or replace it: --force"
        )
    pipeline = listed.pipeline()
    with at_work(as_json) as progress:
        made = rewritten(
            model,
            passes=pipeline.passes,
            without=pipeline.without,
            progress=progress,
            **loading.keywords(),
        )
        progress("writing", 0, 1)
        made.save(output)
    changed = {kind: found for kind, found in made.io_names(output).changed.items() if found}
    facts = {
        "output": str(output),
        "inputs": {name: str(made.graph.types[name]) for name in made.graph.inputs},
        "outputs": {n: str(made.graph.types[v]) for n, v in made.graph.outputs.items()},
        "renamed": changed,
        "passes": [asdict(result) for result in made.results],
    }
    if as_json:
        print(json.dumps({**facts, **to_object(made.trace.stored)}))
        return
    ran = [step for step in made.results if step.changes or step.refusals]
    print_passes_run(ran, "what the passes did")
    print_refusals(made.trace.refusals)
    out = console()
    for kind, found in changed.items():
        for own, name in found.items():
            out.print(f"note: {kind[:-1]} `{own}` is called `{name}` in the file", soft_wrap=True)
    print_last(output, ["quantize", str(output), "-c", "samples.npz", "-o", "out"])
