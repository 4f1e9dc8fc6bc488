"""Facts of a policy beside its graph: its environment, and how outputs become actions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qgraph.errors import LoadError, UsageError
from qgraph.rl.environments import Actions
from qgraph.rl.head import KINDS, Head

# What the policies of rl-baselines-zoo say of their actions.
WORDS = {
    "argmax over the outputs": "argmax",
    "clip to [-high, high]": "clip",
    "times high": "scale",
}
LOGITS = ("a2c", "ppo", "ppo2", "acktr", "trpo")  # algorithms whose discrete outputs are logits


@dataclass(frozen=True)
class About:
    """Facts that the file beside the policy or the user gives; None for unknown ones.

    whole: the head with its bounds and deviations, as an exporter wrote it.
    """

    environment: str | None = None
    head: str | None = None
    high: float | None = None
    first_seed: int = 0
    whole: Head | None = None


def about(path: Path) -> About:
    """The facts in `NAME.json` beside a policy `NAME.pb`. Raises LoadError if it is damaged."""
    file = path.with_suffix(".json")
    if path.is_dir() or not file.is_file():
        return About()
    try:
        found = json.loads(file.read_text("utf-8"))
        return _about(found) if isinstance(found, Mapping) else About()
    except (OSError, ValueError, TypeError, KeyError, UsageError, RecursionError) as error:
        raise LoadError(f"cannot be read: {error}", node=str(file)) from None


def _about(found: Mapping[str, Any]) -> About:
    words, high = found.get("action"), found.get("action_high")
    head = WORDS.get(str(words), str(words) if words in KINDS else None)
    if head == "argmax" and found.get("algorithm") in LOGITS:
        head = "categorical"
    environment = found.get("env")
    whole = Head.from_json(found["head"]) if isinstance(found.get("head"), Mapping) else None
    return About(
        None if environment is None else str(environment),
        head,
        None if high is None else float(high),
        int(found.get("first_seed") or 0),
        whole,
    )


def head_for(
    actions: Actions,
    outputs: int,
    kind: str | None,
    high: float | None = None,
    whole: Head | None = None,
) -> Head:
    """The head that makes `actions` from so many outputs; argmax or clip by default.

    `high` replaces the bounds of the environment; `whole` is a head that is known already, unless
    `kind` or `high` differ from it. Raises UsageError where it does not fit.
    """
    kind = kind or (whole.kind if whole is not None else None)
    kind = kind or ("argmax" if actions.discrete else "clip")
    if whole is not None and whole.kind == kind and high is None:
        head = whole
    elif high is not None and not actions.discrete:
        head = Head(kind, (-high,) * len(actions.low), (high,) * len(actions.high))
    else:
        head = Head(kind, actions.low, actions.high)
    actions.check(head, outputs)
    if kind == "gaussian" and not head.log_std:
        raise UsageError("a `gaussian` head needs its deviations", hint="`clip` acts by the means")
    return head
