"""A list of correctors, as a value and as text: `vtrace,is`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from qgraph.errors import QGraphError, UnsupportedError, UsageError, reason_of
from qgraph.foreign import Namespace, Tensor
from qgraph.rl.correct.correctors import NAMES, TARGETS, WEIGHTS, name_of
from qgraph.rl.correct.trajectories import Corrector, Trajectories

NONE = "none"
LINK = re.compile(r"\s*([\w.]+)\s*(?:\(([^()]*)\)\s*)?(?:,(?=.)|$)")


@dataclass(frozen=True)
class Corrected:
    """Targets, advantages and weights for an actor-critic learner, each [n, b].

    Attributes:
        targets: Targets of the critic: of V(x_t), or of Q(x_t, a_t).
        advantages: Advantages of the actions by these targets.
        weights: Weights of the steps in the gradient of the policy.

    Examples:
        `steps` is that of the example of `Trajectories`.

        >>> from qgraph.rl.correct import Correction
        >>> corrected = Correction.parse("vtrace,is")(steps)
        >>> corrected.targets.shape, corrected.weights.tolist()
        ((2, 1), [[1.0], [1.0]])
    """

    targets: Tensor
    advantages: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Correction:
    """Off-policy correction: at most one corrector of targets and one of weights.

    Without a corrector of targets, targets are n-step returns. Without one of weights, weights are
    1.

    Attributes:
        links: The correctors, in any order.

    Raises:
        UsageError: Two correctors correct the same thing.

    Examples:
        >>> from qgraph.rl.correct import Correction
        >>> Correction.parse("vtrace(rho=1, c=0.9),is").links
        (VTrace(rho=1.0, c=0.9), ImportanceSampling(rho=1.0))
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
        """Read a correction from text.

        Args:
            text: Names between commas, with optional constants: `vtrace(rho=1, c=0.9),is`. `none`
                stands for no correction, and `package.module.Class(0.5)` for a custom corrector.

        Returns:
            The correction.

        Raises:
            UsageError: The text is not a list of correctors.
        """
        if text.strip() == NONE:
            return Correction()
        links, at = list[Corrector](), 0
        while at < len(text) or not links:
            link = LINK.match(text, at)
            if link is None:
                raise UsageError(
                    f"`{text}` is not a list of correctors",
                    hint="like vtrace,is or vtrace(1, c=0.9)",
                )
            links.append(_corrector(link[1], link[2] or ""))
            at = link.end()
        return Correction(tuple(links))

    @property
    def of_actions(self) -> bool:
        """Whether the critic must compute values of actions."""
        return any(link.of_actions for link in self.links if link.corrects == TARGETS)

    def __call__(self, steps: Trajectories, xp: Namespace = np) -> Corrected:
        """Correct trajectories.

        Args:
            steps: The trajectories, as arrays or tensors.
            xp: The module of array functions: `numpy`, or `tensorflow` for tensors.

        Returns:
            Targets, advantages and weights.

        Raises:
            UsageError: A corrector lacks log probabilities or values of actions.
            UnsupportedError: A custom corrector failed, or its result does not have shape [n, b].
        """
        results = {link.corrects: _given(link, steps, xp) for link in self.links}
        targets = results[TARGETS] if TARGETS in results else n_step(steps, xp)
        weights = results[WEIGHTS] if WEIGHTS in results else xp.ones_like(steps.rewards)
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
    except Exception as error:  # of a custom corrector
        raise UnsupportedError(f"`{name}` failed: {reason_of(error)}") from error
    # A tensor in a graph may have unknown dimensions.
    same = found.shape == wanted.shape
    if not (same if xp is np else found.shape.is_compatible_with(wanted.shape)):
        raise UnsupportedError(
            f"`{name}` gives {link.corrects} of shape {list(found.shape)}, but steps have "
            f"{list(wanted.shape)}"
        )
    return found


def n_step(steps: Trajectories, xp: Namespace) -> Tensor:
    """Rewards to the end of each trajectory, and V from there on."""
    every = xp.ones_like(steps.rewards)
    return steps.values + steps.summed(steps.errors(steps.values), every, xp)


def _corrector(name: str, arguments: str) -> Corrector:
    kind = _imported(name) if "." in name else NAMES.get(name)
    if kind is None:
        raise UsageError(
            f"unknown corrector `{name}`",
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
        corrector = kind(*places, **named)
    except TypeError as error:
        raise UsageError(f"{name} does not take ({arguments}): {error}") from None
    except QGraphError:
        raise
    except Exception as error:  # of a custom corrector
        raise UsageError(f"`{name}` failed: {reason_of(error)}") from error
    corrects = getattr(corrector, "corrects", None)
    if not callable(corrector) or corrects not in (TARGETS, WEIGHTS):
        raise UsageError(
            f"`{name}` is not a corrector: it corrects {corrects}",
            hint=f"`corrects` is {TARGETS!r} or {WEIGHTS!r}, and a call makes them of trajectories",
        )
    if corrects == TARGETS and not isinstance(getattr(corrector, "of_actions", None), bool):
        raise UsageError(
            f"`{name}` does not define `of_actions`",
            hint="set it to True if targets are values of actions, False for values of states",
        )
    return cast("Corrector", corrector)


def _imported(name: str) -> Callable[..., object]:
    module, _, inside = name.rpartition(".")
    try:
        kind: Callable[..., object] = getattr(importlib.import_module(module), inside)
        return kind
    except Exception as error:  # of a custom module, too
        raise UsageError(f"the corrector `{name}` cannot be imported: {error}") from error
