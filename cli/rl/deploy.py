"""`qgraph rl deploy`: write a policy for a device, and let it act."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qgraph.choices import ExportFormat, HeadKind
from qgraph.cli.choice import choice
from qgraph.cli.completion import complete_environment
from qgraph.cli.options import ForceDirectory, Json
from qgraph.cli.rl.options import head_alone
from qgraph.errors import ExactnessError, UsageError
from qgraph.words import alternatives, counted

if TYPE_CHECKING:
    from qgraph.rl.deploy import Deployment, NetworkPolicy, Rollout
    from qgraph.rl.policy import Policy


def deploy(
    policy: Annotated[
        Path,
        typer.Argument(
            help="Static policy (.qpol), or a directory that `qgraph quantize` wrote, such as that "
            "of a recurrent policy with its states."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Output directory, new or empty.")],
    target: Annotated[
        ExportFormat,
        choice(
            ExportFormat,
            "format",
            "--format",
            "-f",
            metavar="FORMAT",
            help="c: with normalization, states and head. Others as `qgraph export` writes them: "
            f"{alternatives(f for f in ExportFormat if f != ExportFormat.C)}; deployment.json "
            "describes the rest.",
        ),
    ] = ExportFormat.C,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --format c: beginning of the names of files, functions and macros.",
            show_default="policy",
        ),
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(
            "--env",
            metavar="NAME",
            help="Environment in which the compiled C acts, such as CartPole-v1. Each of its "
            "actions is compared with that of the policy in Python, bit for bit.",
            autocompletion=complete_environment,
            show_default="not compared",
        ),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="With --env: number of episodes.", show_default="10"),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="With --env: seed of the first episode.", show_default="0"
        ),
    ] = None,
    head: Annotated[
        HeadKind | None,
        choice(
            HeadKind,
            "head",
            "--head",
            metavar="KIND",
            help=f"With a directory: how outputs become actions: {alternatives(HeadKind)}.",
            show_default="by the environment; without one, outputs are written",
        ),
    ] = None,
    high: Annotated[
        float | None,
        typer.Option(
            "--high",
            metavar="NUMBER",
            help="With a directory: range of actions, from -NUMBER to NUMBER.",
            show_default="the environment's bounds",
        ),
    ] = None,
    force: ForceDirectory = False,
    as_json: Json = False,
) -> None:
    """Write a policy as C99 that takes raw observations and returns actions.

    Normalization, states and head are inside. With --env, the C is compiled and acts in the
    environment. If an action differs from that of the policy in Python, the command ends with
    code 9.
    """
    from qgraph.cli.console import at_work, print_next
    from qgraph.rl.deploy import deploy as write
    from qgraph.rl.deploy import roll_out

    for option, value in (("--episodes", episodes), ("--seed", seed)):
        if environment is None and value is not None:
            raise UsageError(f"{option} needs --env", hint="name the environment, or leave it out")
    for option, given in (("--env", environment), ("--name", name)):
        if target != ExportFormat.C and given is not None:
            raise UsageError(f"{option} needs --format c", hint=f"leave {option} out")
    with at_work(as_json) as progress:
        loaded = _loaded(policy, environment, head, high)
        made = write(loaded, output, form=target, name=name or "policy", force=force)
        rollout = None
        if environment is not None:
            rollout = roll_out(
                loaded, made, environment, episodes=episodes or 10, first_seed=seed or 0,
                progress=progress,
            )  # fmt: skip
    if as_json:
        print(json.dumps(_as_json(made, rollout)))
    else:
        _print(made, policy)
        if rollout is not None:
            _print_rollout(rollout)
        elif made.facts is not None:
            print_next([*_again(policy, loaded, head, high), "--force", "-o", str(output)])
    if rollout is not None and not rollout.equal:
        raise ExactnessError(_difference(rollout), node=str(output))


def _loaded(
    path: Path, environment: str | None, head: HeadKind | None, high: float | None
) -> Policy | NetworkPolicy:
    """The policy at a path. Raises UsageError for a head that a file has already."""
    from qgraph.rl.deploy import NetworkPolicy
    from qgraph.rl.environments import make
    from qgraph.rl.policy import load_policy
    from qgraph.rl.policy.about import About, head_for

    if not path.is_dir():
        for option, value in (("--head", head), ("--high", high)):
            if value is not None:
                raise UsageError(
                    f"{option} is for a directory: a .qpol file has its head",
                    node=str(path),
                    hint=f"leave {option} out, or quantize the policy with it",
                )
        return load_policy(path)
    policy = NetworkPolicy(path)
    if environment is None:
        policy.head = head_alone(policy.size, About(head=head, high=high))
        return policy
    world = make(environment)
    try:
        policy.head = head_for(world.actions, policy.size, head, high)
    finally:
        world.close()
    return policy


def _again(
    path: Path, policy: Policy | NetworkPolicy, head: HeadKind | None, high: float | None
) -> list[str]:
    """The same command with an environment."""
    from qgraph.rl.policy import Policy

    known = policy.about.get("environment") if isinstance(policy, Policy) else None
    words = ["rl", "deploy", str(path), "--env", str(known or "NAME")]
    words += [] if head is None else ["--head", head]
    return words + ([] if high is None else ["--high", f"{high:g}"])


def _as_json(made: Deployment, rollout: Rollout | None) -> dict[str, object]:
    from qgraph.records import to_json

    found: dict[str, object] = {
        "output": str(made.folder),
        "files": dict(made.files),
        "warnings": [*made.warnings],
        "policy": None if made.facts is None else to_json(made.facts),
    }
    if rollout is not None:
        found["rollout"] = {
            "environment": rollout.environment,
            "first_seed": rollout.first_seed,
            "episodes": len(rollout.in_c.each),
            "steps": rollout.compared,
            "different": rollout.different,
            "return_in_c": rollout.in_c.mean,
            "return_in_python": rollout.in_python.mean,
        }
    return found


def _print(made: Deployment, policy: Path) -> None:
    from qgraph.cli.console import print_table, print_warnings

    facts = made.facts
    print_table(
        f"written to {made.folder}, from {policy.name}",
        ("=file", ">bytes"),
        [(file, f"{size:,}") for file, size in made.files.items()],
    )
    print_warnings(made.warnings)
    if facts is None:
        return
    action = f"one of {facts.outputs}" if facts.discrete else counted(facts.action_size, "number")
    if facts.integers and not facts.discrete and facts.head is not None:
        action = f"choices of {', '.join(map(str, facts.head.choices))} options"
    rows = [
        ("observation", f"{facts.observation_size} x {facts.observed}"),
        ("action", action),
        ("head", facts.head.kind if facts.head else "none, outputs only"),
        *([("states", ", ".join(facts.states))] if facts.states else []),
        ("constants", f"{facts.constants:,} bytes of flash, without code"),
        ("memory", f"{facts.memory:,} bytes of RAM"),
    ]
    print_table("policy in C", ("", ""), rows)


def _print_rollout(found: Rollout) -> None:
    from qgraph.cli.console import print_table, print_warnings

    rows = [
        ("episodes", f"{len(found.in_c.each)}, seeds from {found.first_seed}"),
        ("actions compared", f"{found.compared:,}"),
        ("different", f"{found.different:,}"),
        ("return of C", f"{found.in_c.mean:.2f} +- {found.in_c.error:.2f}"),
        ("return of Python", f"{found.in_python.mean:.2f} +- {found.in_python.error:.2f}"),
    ]
    print_table(f"the C program in {found.environment}", ("", ">"), rows)
    if not found.reproducible:
        print_warnings(
            [f"{found.environment} is not reproducible: with equal actions, returns differ"]
        )


def _difference(found: Rollout) -> str:
    first = found.first
    assert first is not None
    in_c = "refuses the observation" if first.in_c is None else f"chooses {first.in_c.tolist()}"
    return (
        f"{found.different} of {found.compared} actions differ; the first in episode "
        f"{first.episode}, step {first.step}: C {in_c}, Python {first.in_python.tolist()}"
    )
