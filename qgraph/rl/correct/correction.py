"""Correctors together, as a value and as text: `vtrace,is`."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass

import numpy as np

from qgraph.errors import QGraphError, UnsupportedError, UsageError, reason_of
from qgraph.foreign import Namespace, Tensor
from qgraph.rl.correct.correctors import NAMES, TARGETS, WEIGHTS, name_of
from qgraph.rl.correct.trajectories import Corrector, Trajectories

NONE = "none"
LINK = re.compile(r"\s*([\w.]+)\s*(?:\(([^()]*)\)\s*)?(?:,(?=.)|$)")


@dataclass(frozen=True)
class Corrected:
    """The targets, weights and advantages of an actor-critic learner, [n, b].

    targets     of its critic: of V(x_t), or of Q(x_t, a_t)
    advantages  of the actions, by these targets
    weights     of the steps in the policy's gradient
    """

    targets: Tensor
    advantages: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Correction:
    """Correctors of different things, so that their order does not matter.

    Without one of targets these are returns of n steps; without one of weights all are 1. Raises
    UsageError where two correct the same.
    """

    links: tuple[Corrector, ...] = ()

    def __post_init__(self) -> None:
        for thing in (TARGETS, WEIGHTS):
            names = [type(link).__name__ for link in self.links if link.corrects == thing]
            if len(names) > 1:
                raise UsageError(
                    f"{' and '.join(names)} both correct {thing}", hint="one of them is enough"
                )

    @staticmethod
    def parse(text: str) -> Correction:
        """`vtrace(rho=1, c=0.9),is`; `none`. One of your own is `package.module.Class(0.5)`.

        Raises UsageError.
        """
        if text.strip() == NONE:
            return Correction()
        found, at = list[Corrector](), 0
        while at < len(text) or not found:
            link = LINK.match(text, at)
            if link is None:
                raise UsageError(
                    f"`{text}` is not a list of correctors",
                    hint="like vtrace,is or vtrace(1, c=0.9)",
                )
            found.append(_made(link[1], link[2] or ""))
            at = link.end()
        return Correction(tuple(found))

    @property
    def of_actions(self) -> bool:
        """True if the critic has to know values of actions."""
        return any(link.of_actions for link in self.links if link.corrects == TARGETS)

    def __call__(self, steps: Trajectories, xp: Namespace = np) -> Corrected:
        """xp: `numpy`, or `tensorflow` for tensors.

        Raises what correctors raise, such as UsageError for what steps lack, with the name of the
        corrector in front; UnsupportedError for any exception that is not qgraph's, and for another
        shape than [n, b].
        """
        made = {link.corrects: _given(link, steps, xp) for link in self.links}
        targets = made[TARGETS] if TARGETS in made else n_step(steps, xp)
        weights = made[WEIGHTS] if WEIGHTS in made else xp.ones_like(steps.rewards)
        if self.of_actions:
            advantages = targets - steps.values
        else:
            ahead = steps.ahead(targets, xp)
            advantages = steps.rewards + steps.discounts * ahead - steps.values
        return Corrected(targets, advantages, weights)


def _given(link: Corrector, steps: Trajectories, xp: Namespace) -> Tensor:
    name, wanted = name_of(link), steps.rewards
    try:
        as_array = np.asarray if xp is np else xp.convert_to_tensor
        found: Tensor = as_array(link(steps, xp), wanted.dtype)
    except QGraphError as error:
        error.message = f"`{name}`: {error.message}"
        raise
    except Exception as error:  # of a corrector of one's own
        raise UnsupportedError(f"`{name}` failed: {reason_of(error)}") from error
    # Of a tensor in a graph not every dimension need be known.
    same = found.shape == wanted.shape
    if not (same if xp is np else found.shape.is_compatible_with(wanted.shape)):
        raise UnsupportedError(
            f"`{name}` gives {link.corrects} of shape {list(found.shape)}, but steps have "
            f"{list(wanted.shape)}"
        )
    return found


def n_step(steps: Trajectories, xp: Namespace) -> Tensor:
    """Returns as they were, to the end of each trajectory and V from there on."""
    every = xp.ones_like(steps.rewards)
    return steps.values + steps.summed(steps.errors(steps.values), every, xp)


def _made(name: str, arguments: str) -> Corrector:
    kind = _imported(name) if "." in name else NAMES.get(name)
    if kind is None:
        raise UsageError(
            f"no corrector is called `{name}`",
            hint=f"one of {', '.join(NAMES)}, or one of your own: package.module.Class",
        )
    places, named = [], {}
    for part in filter(None, map(str.strip, arguments.split(","))):
        key, equals, value = part.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            raise UsageError(f"{name}: `{part}` is not a number") from None
        if equals:
            key = key.strip()
            named["lambda_" if key == "lambda" else key] = number
        else:
            places.append(number)
    try:
        corrector: Corrector = kind(*places, **named)
    except TypeError as error:
        raise UsageError(f"{name} does not take ({arguments}): {error}") from None
    except QGraphError:
        raise
    except Exception as error:  # of a corrector of one's own
        raise UsageError(f"`{name}` failed: {reason_of(error)}") from error
    corrects = getattr(corrector, "corrects", None)
    if not callable(corrector) or corrects not in (TARGETS, WEIGHTS):
        raise UsageError(
            f"`{name}` is not a corrector: it corrects {corrects}",
            hint=f"`corrects` is {TARGETS!r} or {WEIGHTS!r}, and a call makes them of trajectories",
        )
    if corrects == TARGETS and not isinstance(getattr(corrector, "of_actions", None), bool):
        raise UsageError(
            f"`{name}` does not say what its targets are of",
            hint="`of_actions` is True for values of actions, False for those of states",
        )
    return corrector


def _imported(name: str) -> Tensor:
    module, _, inside = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), inside)
    except Exception as error:  # of a module of one's own, too
        raise UsageError(f"the corrector `{name}` cannot be imported: {error}") from error
