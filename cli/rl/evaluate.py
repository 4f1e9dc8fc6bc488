"""`qgraph rl evaluate`: measure the returns of a policy with fewer bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qgraph.choices import chosen
from qgraph.cli.option_groups import with_groups
from qgraph.cli.options import Json, Model, check_model, names
from qgraph.cli.rl.options import (
    EnvironmentOption,
    HeadOption,
    HighOption,
    PolicyOptions,
    bits_of,
    environment_of,
    head_in,
    known_facts,
)
from qgraph.errors import UsageError

if TYPE_CHECKING:
    from qgraph.rl.policy import Policy
    from qgraph.rl.policy.study import PolicyForm, Study

LEGEND = (
    "change: change of the mean return relative to float on the same seeds, and the standard error "
    "of the paired differences; same action: share of the float policy's observations on which "
    "both take the same action (continuous actions: within 1 % of their range); KL actions: "
    "divergence of the frequencies of actions, in nats; KL policy: divergence of the distributions "
    "that actions are drawn from\n"
    "papers: weights and activations are simulated; weights: only weights are quantized; actor: "
    "packed as actors run it in training; dynamic, static: as `qgraph rl quantize --env` packs\n"
)


BITS, USUAL_WAYS = "32,16,8,6,5,4,3,2", "papers,weights,actor"


@with_groups
def evaluate(
    model: Model,
    environment: EnvironmentOption = None,
    bits: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Bits of weights: 32, 16, 15 to 2; for packed forms, 8 to 2.",
            show_default=BITS,
        ),
    ] = None,
    ways: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            show_default=USUAL_WAYS,
            help="Ways to quantize. papers: simulate weights and activations of the same bits. "
            "weights: simulate weights only. actor: pack as in training. dynamic, static: pack as "
            "`qgraph rl quantize --env` does.",
        ),
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, metavar="N", help="Episodes of each form.")] = 100,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Seed of the first episode.",
            show_default="that of the .json, or 0",
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(min=1, metavar="N", help="Observations on which actions are compared.")
    ] = 5000,
    against: Annotated[
        Path | None,
        typer.Option(metavar="MODEL", help="Float policy that a .qpol file was made from."),
    ] = None,
    head: HeadOption = None,
    high: HighOption = None,
    plots: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory to write figures to, as PNG files."),
    ] = None,
    *,
    loading: PolicyOptions,
    as_json: Json = False,
) -> None:
    """Play a policy in float and with fewer bits, on the same seeds.

    Every form plays the same episodes. Actions are also compared on the observations of the float
    policy. A .qpol file is compared with the float policy of --against.
    """
    from qgraph.cli.console import at_work, console, print_next
    from qgraph.rl.policy import load_policy, read_policy
    from qgraph.rl.policy.affine import Simulated
    from qgraph.rl.policy.file import is_packed
    from qgraph.rl.policy.plots import check_figures, plot
    from qgraph.rl.policy.recurrent_outputs import played
    from qgraph.rl.policy.study import PACKED_FORMS, WAYS, forms, study

    packed = is_packed(model)
    for option, value in (("--bits", bits), ("--ways", ways)):
        if packed and value is not None:
            raise UsageError(
                f"{option} is for a float policy: a .qpol file is already packed",
                node=str(model),
                hint=f"leave {option} out",
            )
    wanted = bits_of(BITS if bits is None else bits)
    listed = names(USUAL_WAYS if ways is None else ways) or [""]
    wanted_ways = [chosen((*WAYS, *PACKED_FORMS), way, "way") for way in listed]
    if packed and against is None:
        raise UsageError(
            "a .qpol file is compared with its float policy",
            node=str(model),
            hint="give the policy that it was packed from: --against policy.pb",
        )
    if against is not None and not packed:
        raise UsageError(
            "--against needs a .qpol file", node=str(model), hint="leave --against out"
        )
    source = against or model
    check_model(source)
    if plots is not None:
        check_figures(plots)
    known = known_facts(source, environment, head, high)
    environment_name = environment_of(known)
    with at_work(as_json) as progress:
        network = read_policy(source, **loading.completed(known).keywords())
        program, weights = network.program, network.weights
        policy_head = head_in(environment_name, network, known)
        policy = load_policy(model) if packed else None
        compared = (
            forms(network, wanted, wanted_ways, policy_head, environment_name)
            if policy is None
            else [_packed_form(policy)]
        )
        found = study(
            played(program, Simulated(program, weights)), compared, policy_head, environment_name,
            episodes=episodes,
            first_seed=known.first_seed if seed is None else seed, steps=steps, progress=progress,
        )  # fmt: skip
    written = plot(found, plots) if plots is not None else []
    if as_json:
        figures = [str(path) for path in written]
        counts = {} if policy is None else {"counts": policy.counts}
        print(json.dumps({"policy": str(model), **found.as_json(), **counts, "figures": figures}))
        return
    _print(model, found)
    if policy is not None and policy.about["range"] is not None:
        met = policy.counts
        console().print(
            f"{met['observations']:,} observations: {met['outside']:,} outside the range of "
            f"the calibration, {met['saturated']:,} clipped to the range of the policy"
        )
    for path in written:
        console().print(f"written: {path}", soft_wrap=True)
    if policy is None:
        words = ["rl", "quantize", str(model), "--bits", "8", "--env", environment_name]
        print_next([*words, "-o", model.with_suffix(".qpol").name])


def _packed_form(policy: Policy) -> PolicyForm:
    from qgraph.rl.policy.study import PolicyForm

    return PolicyForm(policy.form, policy.bits, policy.played)


def _print(model: Path, study: Study) -> None:
    from qgraph.cli.console import console, print_table

    returned = f"{study.floating.mean:.2f} +- {study.floating.error:.2f}"
    rows = [("float", "32", returned, "", "", "", "")]
    for row in study.rows:
        rows.append(
            (
                row.way,
                str(row.bits),
                f"{row.returns.mean:.2f} +- {row.returns.error:.2f}",
                f"{row.change:+.2%} +- {row.change_error:.2%}",
                f"{row.shift.same_action:.1%}",
                f"{row.shift.kl_actions:.4f}",
                "" if row.shift.kl_policy is None else f"{row.shift.kl_policy:.4f}",
            )
        )
    print_table(
        f"{model.name} in {study.environment}: {study.episodes} episodes, seeds from "
        f"{study.first_seed}, {study.steps} observations, head {study.head.kind}",
        ("way", ">bits", ">return", ">change", ">same\naction", ">KL\nactions", ">KL\npolicy"),
        rows,
    )
    console().print(LEGEND, style="dim")
