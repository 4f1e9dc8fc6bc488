"""Options that verbs of `qgraph rl` share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from qgraph.choices import HeadKind, chosen
from qgraph.cli.choice import choice
from qgraph.cli.completion import complete_environment
from qgraph.cli.network_options import LoadOptions
from qgraph.cli.option_groups import ReadBy
from qgraph.cli.options import pairs
from qgraph.errors import UsageError
from qgraph.words import alternatives, counted

if TYPE_CHECKING:
    from pathlib import Path

    from qgraph.rl.head import Head
    from qgraph.rl.policy import PolicyNetwork
    from qgraph.rl.policy.about import About

EnvironmentOption = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="NAME",
        help="Environment, such as CartPole-v1, dm_control:cartpole-balance or ALE/Pong-v5.",
        autocompletion=complete_environment,
        show_default="that of the .json beside the policy",
    ),
]
HeadOption = Annotated[
    HeadKind | None,
    choice(
        HeadKind,
        "head",
        "--head",
        metavar="KIND",
        help=f"How outputs become actions: {alternatives(HeadKind)}.",
        show_default="that of the .json; otherwise argmax or clip, by the environment",
    ),
]
HighOption = Annotated[
    float | None,
    typer.Option(
        "--high", metavar="NUMBER", help="Range of actions: from -NUMBER to NUMBER.",
        show_default="the environment's bounds",
    ),
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PolicyOptions(LoadOptions):
    """Options that read a policy, as for `qgraph.rl.policy.read_policy`."""

    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="INPUT=OUTPUT",
            help="State of a recurrent policy: its input, and the output with its next value. "
            "Repeatable.",
            show_default="those of the .json beside the policy",
        ),
        ReadBy(pairs),
    ] = None

    def completed(self, known: About) -> PolicyOptions:
        """The options; inputs and states that are left out are those beside the policy."""
        states = [f"{name}={output}" for name, output in known.states.items()]
        return replace(
            self,
            inputs=self.inputs or ",".join(known.inputs) or None,
            states=self.states or states or None,
        )


def known_facts(path: Path, environment: str | None, head: str | None, high: float | None) -> About:
    """Facts from the options. Those that are left out come from the file beside the policy."""
    from qgraph.rl.policy.about import about

    found = about(path)
    return replace(
        found,
        environment=environment or found.environment,
        head=head or found.head,
        high=found.high if high is None else high,
    )


def head_in(environment: str, network: PolicyNetwork, known: About) -> Head:
    """The head for the environment. Raises UsageError if actions or observations do not fit."""
    from qgraph.rl.actor.observations import wrong_shape
    from qgraph.rl.environments import make
    from qgraph.rl.policy.about import head_for

    instance = make(environment)
    try:
        if tuple(instance.shape) != network.shape:
            raise wrong_shape(tuple(instance.shape), network.shape, environment)
        program = network.program
        outputs = program.size(program.outputs[0])
        return head_for(instance.actions, outputs, known.head, known.high, known.exported_head)
    finally:
        instance.close()


def head_alone(outputs: int, known: About) -> Head | None:
    """The head without an environment; None if it is unknown."""
    from qgraph.rl.head import COMPOSITE, Head
    from qgraph.rl.policy.about import check_deviations, symmetric_head

    exported = known.exported_head
    if exported is not None and known.high is None and known.head in (None, exported.kind):
        return _checked(exported, outputs)
    if known.head is None:
        return None
    kind = chosen(HeadKind, known.head, "head")
    if kind in COMPOSITE:
        if kind == HeadKind.BERNOULLI:
            return Head(kind, choices=(2,) * outputs)
        raise UsageError(
            f"the choices of a `{kind}` head are unknown", hint="give --env, or export the head"
        )
    head = Head(kind)
    if head.discrete:
        return head
    check_deviations(head)
    if known.high is None:
        raise UsageError(
            f"the range of actions of a `{known.head}` head is unknown",
            hint="give --high, or --env",
        )
    count = outputs // head.outputs_for(1)
    return _checked(symmetric_head(head.kind, known.high, count), outputs)


def _checked(head: Head, outputs: int) -> Head:
    """The head. Raises UsageError if it takes another number of outputs."""
    wanted = head.outputs_for(len(head.low))
    if not head.discrete and outputs != wanted:
        raise UsageError(
            f"the policy has {outputs} outputs, but its `{head.kind}` head takes {wanted}, for "
            f"actions of {counted(len(head.low), 'number')}",
            hint="choose another head: --head",
        )
    return head


def environment_of(known: About) -> str:
    """The name of the environment. Raises UsageError if it is unknown."""
    if known.environment is None:
        raise UsageError("the policy's environment is unknown", hint="give --env, like CartPole-v1")
    return known.environment


def bits_of(text: str) -> list[int]:
    """Parse `32,16,8` as numbers of bits."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = [0]
    if not all(2 <= bits <= 16 or bits == 32 for bits in found):
        raise UsageError(f"`{text}` is not a list of bits", hint="use 32, 16 (float16), or 15 to 2")
    return list(dict.fromkeys(found))
