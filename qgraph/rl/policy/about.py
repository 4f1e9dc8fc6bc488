"""Facts of a policy beside its graph: its environment and its head."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from qgraph.choices import HeadKind
from qgraph.errors import LoadError, UsageError
from qgraph.records import from_json
from qgraph.rl.environments import Actions
from qgraph.rl.head import COMPOSITE, Head

# Descriptions of actions in the policies of rl-baselines-zoo.
WORDS = {
    "argmax over the outputs": "argmax",
    "clip to [-high, high]": "clip",
    "times high": "scale",
}
LOGITS = ("a2c", "ppo", "ppo2", "acktr", "trpo")  # algorithms whose discrete outputs are logits


@dataclass(frozen=True)
class About:
    """Facts from the file beside the policy or from the user; None for unknown ones.

    exported_head: the head with its bounds and deviations, if an exporter wrote it. inputs, states:
    the parts of observations, and the output that each state follows, by input.
    """

    environment: str | None = None
    head: str | None = None
    high: float | None = None
    first_seed: int = 0
    exported_head: Head | None = None
    inputs: tuple[str, ...] = ()
    states: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _AboutFile:
    """The keys that are read from the file; other programs write it too."""

    env: object = None
    algorithm: object = None
    action: object = None
    action_high: float | None = None
    head: object = None
    first_seed: int | None = None
    inputs: tuple[str, ...] = ()
    states: Mapping[str, str] = field(default_factory=dict)


def about(path: Path) -> About:
    """The facts in `NAME.json` beside a policy `NAME.pb`. Raises LoadError if it is damaged."""
    file = path.with_suffix(".json")
    if path.is_dir() or not file.is_file():
        return About()
    try:
        data = json.loads(file.read_text("utf-8"))
        return _about(from_json(_AboutFile, data)) if isinstance(data, Mapping) else About()
    except (OSError, ValueError, TypeError, KeyError, UsageError, RecursionError) as error:
        raise LoadError(f"cannot be read: {error}", node=str(file)) from None


def _about(file: _AboutFile) -> About:
    words = file.action
    head = WORDS.get(str(words), str(words) if words in tuple(HeadKind) else None)
    if head == "argmax" and file.algorithm in LOGITS:
        head = "categorical"
    exported_head = Head.from_json(file.head) if isinstance(file.head, Mapping) else None
    environment = None if file.env is None else str(file.env)
    seed = file.first_seed or 0
    if seed < 0:
        raise ValueError(f"first_seed is {seed}, but seeds are 0 or more")
    return About(environment, head, file.action_high, seed, exported_head, file.inputs, file.states)


def head_for(
    actions: Actions,
    outputs: int,
    kind: str | None,
    high: float | None = None,
    exported_head: Head | None = None,
) -> Head:
    """The head that turns `outputs` numbers into `actions`; argmax, several choices or clip by
    default.

    high: replaces the bounds of the environment. exported_head: the head that an exporter wrote,
    used unless `kind` or `high` differ from it. Raises UsageError if the head does not fit.
    """
    kind = kind or (exported_head.kind if exported_head is not None else None)
    kind = kind or _usual_kind(actions, outputs)
    if exported_head is not None and exported_head.kind == kind and high is None:
        bounded = exported_head.composite or bool(
            np.isfinite([exported_head.low, exported_head.high]).all()
        )
        head = exported_head
        if not bounded:
            head = replace(head, low=actions.low, high=actions.high)
    elif high is not None and actions.low:
        head = symmetric_head(kind, high, len(actions.low))
    else:
        choices = actions.choices if kind in COMPOSITE else ()
        head = Head(kind, actions.low, actions.high, choices=choices)
    actions.check(head, outputs)
    check_deviations(head)
    return head


def _usual_kind(actions: Actions, outputs: int) -> HeadKind:
    if actions.discrete:
        return HeadKind.ARGMAX
    if not actions.composite:
        return HeadKind.CLIP
    switches = outputs == len(actions.choices) and set(actions.choices) == {2}
    return HeadKind.BERNOULLI if switches else HeadKind.MULTI_CATEGORICAL


def symmetric_head(kind: str, high: float, count: int) -> Head:
    """A head whose actions are `count` numbers from -high to high. Raises UsageError."""
    if not 0 < high < math.inf:
        raise UsageError(
            f"actions cannot range from {-high:g} to {high:g}", hint="give a number above 0"
        )
    return Head(kind, (-high,) * count, (high,) * count)


def check_deviations(head: Head) -> None:
    """Raise UsageError for a `gaussian` head without deviations."""
    if head.kind == HeadKind.GAUSSIAN and not head.log_std:
        raise UsageError(
            "a `gaussian` head needs its deviations", hint="`clip` uses the means alone"
        )
