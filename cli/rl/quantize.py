"""`qgraph rl quantize`: pack a policy into a file that runs without a framework."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qgraph.choices import PackedForm
from qgraph.cli.choice import choice
from qgraph.cli.option_groups import with_groups
from qgraph.cli.options import Json, Model, check_model
from qgraph.cli.rl.options import (
    EnvironmentOption,
    HeadOption,
    HighOption,
    PolicyOptions,
    environment_of,
    head_alone,
    head_in,
    known_facts,
)
from qgraph.errors import CalibrationError, OutputError, UsageError

if TYPE_CHECKING:
    from qgraph.ir.types import Array
    from qgraph.rl.policy import PolicyNetwork
    from qgraph.rl.policy.about import About

COMPARED_EVERY = 4  # every fourth observation is kept to compare actions
NOT_COMPARED = (
    "actions were not compared with those of the float policy, and biases were not corrected: "
    "give --env or --observations"
)
NO_HEAD = "actions were not compared with those of the float policy: give --head or --env"
REMEDIES = "try --bits 16 or --form static, and play it: qgraph rl evaluate"


@with_groups
def quantize(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="Output file, .qpol.")],
    bits: Annotated[
        int,
        typer.Option(metavar="N", help="Bits of weights: 8 to 2; for dynamic also 16 and 32."),
    ] = 8,
    form: Annotated[
        PackedForm,
        choice(
            PackedForm,
            "form",
            metavar="FORM",
            help="dynamic: ranges of activations are computed in each step. static: ranges are "
            "calibrated, scales are powers of two, and results are exact to the bit.",
        ),
    ] = PackedForm.DYNAMIC,
    observations: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Typical observations, as a .npy or .npz file."),
    ] = None,
    environment: EnvironmentOption = None,
    samples: Annotated[
        int, typer.Option(min=8, metavar="N", help="With --env: number of observations to collect.")
    ] = 4096,
    head: HeadOption = None,
    high: HighOption = None,
    first_bits: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Bits of the first layer.",
            show_default="16 if --bits is 8 or less and observations are vectors",
        ),
    ] = None,
    last_bits: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Bits of the last layer.",
            show_default="16 if --bits is 8 or less",
        ),
    ] = None,
    *,
    loading: PolicyOptions,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: Json = False,
) -> None:
    """Quantize a policy and write it as one standalone file.

    With --observations or --env, biases are corrected and actions are compared with those of the
    float policy. The file also stores the range of observations, so that a policy counts the
    observations outside of it when it runs.
    """
    from qgraph.cli.console import at_work
    from qgraph.files import sha256_of
    from qgraph.rl.policy import Policy, pack, read_policy

    check_model(model)
    _check_output(output, force)
    if observations is not None and environment is not None:
        raise UsageError("observations come from --observations or --env, not from both")
    known = known_facts(model, environment, head, high)
    with at_work(as_json) as progress:
        network = read_policy(model, **loading.completed(known).keywords())
        environment_name = environment or _environment_beside(network, known)
        count = network.program.size(network.program.outputs[0])
        if environment_name is None or observations is not None:
            policy_head = head_alone(count, known)
        else:
            policy_head = head_in(environment_name, network, known)
        seen = _read(observations, network)
        if seen is None and (environment_name is not None or form is PackedForm.STATIC):
            progress("watching", 0, 1)
            seen = _collected(network, known, samples)
        used, compared = _split(seen)
        about = {"source": model.name, "environment": known.environment}
        if model.is_file():
            about["source_sha256"] = sha256_of(model)
        packed = pack(
            network, policy_head, bits, form, used, about, first_bits, last_bits, progress
        )
        packed.write(output)
    facts = _facts(network, Policy(packed), used if compared is None else compared, output)
    if as_json:
        print(json.dumps(facts))
        return
    _print(facts, model, known, [*(loading.states or [])])


def _check_output(output: Path, force: bool) -> None:
    if output.is_dir() or (output.exists() and not force):
        hint = "choose another path" + ("" if output.is_dir() else ", or replace it: --force")
        raise OutputError("exists already", node=str(output), hint=hint)
    if not output.resolve().parent.is_dir():
        raise OutputError("its directory does not exist", node=str(output))


def _read(file: Path | None, network: PolicyNetwork) -> Array | None:
    """Observations [n, *shape]; sequences [n, steps, *shape] for a recurrent policy."""
    from qgraph.ir.graph import Graph
    from qgraph.quant.samples.data import load_data

    if file is None:
        return None
    name, shape = network.program.observation, network.shape
    graph = Graph("observations")
    graph.input(name, "float32", (None, *((None,) if network.states else ()), *shape))
    try:
        return load_data(file, graph, what="the observation data")[name]
    except CalibrationError as error:
        error.hint = _layout(file, shape) or error.hint
        raise


def _layout(file: Path, shape: tuple[int, ...]) -> str | None:
    """A hint for images of a .npy file with another layout; None for other errors."""
    import numpy as np

    from qgraph.rl.actor.observations import layout_hint

    try:
        return layout_hint(np.load(file, mmap_mode="r", allow_pickle=False).shape, shape)
    except (OSError, ValueError, AttributeError):  # an archive, or something else
        return None


def _environment_beside(network: PolicyNetwork, known: About) -> str | None:
    """The environment in the file beside the policy, if it can be created and fits."""
    from qgraph.rl.environments import make

    if known.environment is None:
        return None
    try:
        instance = make(known.environment)
    except UsageError:  # it needs another package, or is registered elsewhere
        return None
    instance.close()
    return known.environment if tuple(instance.shape) == network.shape else None


def _collected(network: PolicyNetwork, known: About, steps: int) -> Array:
    """The observations of the float policy in its environment."""
    from qgraph.rl.policy.study import CALIBRATION_SEED, calibration

    environment_name = environment_of(known)
    policy_head = head_in(environment_name, network, known)
    return calibration(network, policy_head, environment_name, steps, CALIBRATION_SEED)


def _split(seen: Array | None) -> tuple[Array | None, Array | None]:
    """Observations for calibration, and others for the comparison of actions."""
    import numpy as np

    if seen is None or len(seen) < COMPARED_EVERY:
        return seen, None
    apart = np.arange(len(seen)) % COMPARED_EVERY == COMPARED_EVERY - 1
    return seen[~apart], seen[apart]


def _facts(
    network: PolicyNetwork, policy: Any, apart: Array | None, output: Path
) -> dict[str, Any]:
    from qgraph.rl.policy.affine import Simulated
    from qgraph.rl.policy.build import rows_with_states
    from qgraph.rl.policy.shift import difference_warning, shift

    float_bytes = sum(array.size * 4 for array in network.weights.values())
    facts = {
        "output": str(output),
        "form": policy.form,
        "bits": policy.bits,
        "bytes": output.stat().st_size,
        "float_bytes": float_bytes,
        "shape": list(policy.shape),
        "outputs": list(policy.names),
        "head": policy.about["head"],
        "images_first": network.images_first,
        "steps": [step.op for step in network.program.steps],
    }
    if apart is not None and policy.head is not None:
        rows = rows_with_states(network, apart)
        wanted = Simulated(network.program, network.weights)(rows)
        outputs = policy.played(rows)
        found = shift(policy.head, wanted, outputs)
        facts.update(compared_on=len(rows), same_action=found.same_action)
        low = difference_warning(policy.head, wanted, outputs)
        facts["warnings"] = [f"{low}; {REMEDIES}"] if low else []
    else:
        facts["warnings"] = [NOT_COMPARED if apart is None else NO_HEAD]
    return facts


def _print(facts: dict[str, Any], model: Path, known: About, states: Sequence[str]) -> None:
    from qgraph.cli.console import console, print_next, print_table

    head = facts["head"]["kind"] if facts["head"] else "none, outputs only"
    rows = [
        ("form", facts["form"]),
        ("weights", f"{facts['bits']} bits"),
        ("observation", " x ".join(map(str, facts["shape"]))),
        ("steps", ", ".join(facts["steps"])),
        ("head", head),
        ("size", f"{facts['bytes']:,} bytes, weights in float32 {facts['float_bytes']:,}"),
    ]
    if "same_action" in facts:
        kept = f"{facts['same_action']:.1%} on {facts['compared_on']} observations"
        rows.append(("same action", kept))
    print_table(f"{facts['output']}, from {model.name}", ("", ""), rows)
    out = console()
    if facts["images_first"]:
        out.print("images were [c, h, w] in training: the policy takes [h, w, c]\n")
    there = [facts["output"], "--env", known.environment or "NAME"]
    named = [word for state in states for word in ("--state", state)]
    commands = [["rl", "evaluate", *there, "--against", str(model), *named]]
    if facts["form"] == PackedForm.STATIC:
        commands.append(["rl", "deploy", *there, "-o", "device"])
    print_next(*commands)
    for warning in facts["warnings"]:
        out.print(f"warning: {warning}", style="bold yellow", soft_wrap=True, markup=False)
