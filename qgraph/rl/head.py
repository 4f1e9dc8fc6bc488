"""Heads: they turn the output of a policy into an action."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qgraph.choices import HeadKind, chosen
from qgraph.errors import UsageError
from qgraph.ir.types import Array
from qgraph.records import Object, from_json

DISCRETE = (HeadKind.ARGMAX, HeadKind.CATEGORICAL)
COMPOSITE = (HeadKind.MULTI_CATEGORICAL, HeadKind.BERNOULLI)
DRAWN = (HeadKind.CATEGORICAL, HeadKind.GAUSSIAN, HeadKind.SQUASHED_GAUSSIAN, *COMPOSITE)
MASKABLE = (*DISCRETE, HeadKind.MULTI_CATEGORICAL)
LOG_STD = (-20.0, 2.0)  # log deviations of a squashed Gaussian are clipped to this, as in SAC


@dataclass(frozen=True)
class Head:
    """The head of a policy with outputs [n, m].

        kind                output                      action
        argmax              values of actions, logits   the largest
        categorical         logits                      drawn by softmax; greedy: the largest
        clip                actions                     clipped to low..high
        scale               actions in -1..1            scaled to low..high
        gaussian            means                       drawn with deviations exp(log_std), clipped
        squashed_gaussian   means, log deviations       drawn, then tanh, scaled to low..high
        multi_categorical   logits of each choice       one categorical for each choice
        bernoulli           logits of switches          1 by sigmoid; greedy: 1 above 0

    Attributes:
        kind: One of the kinds above.
        low: Lower bound of each number of a continuous action.
        high: Upper bound of each number.
        log_std: Logarithm of the deviation of each number, for `gaussian` only.
        choices: Number of options of each choice, for `multi_categorical`; 2 for each switch, for
            `bernoulli`.
        masks: Whether each observation comes with a mask of valid actions.

    Raises:
        UsageError: The kind is unknown, or the bounds do not fit together.

    Examples:
        >>> import numpy as np
        >>> from qgraph.rl.head import Head
        >>> Head("argmax").actions(np.array([[0.1, 0.7], [0.5, 0.2]])).tolist()
        [1, 0]
        >>> Head("clip", low=(-1.0,), high=(1.0,)).actions(np.array([[3.0]])).tolist()
        [[1.0]]
        >>> head = Head("multi_categorical", choices=(2, 3))
        >>> head.actions(np.array([[0.1, 0.7, 0.5, 0.2, 0.9]])).tolist()
        [[1, 2]]
    """

    kind: str
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    log_std: tuple[float, ...] = ()
    choices: tuple[int, ...] = ()
    masks: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", chosen(HeadKind, self.kind, "head"))
        sizes = {len(self.low), len(self.high), len(self.log_std) or len(self.low)}
        if len(sizes) > 1:
            raise UsageError("a head needs as many low as high bounds, and as many deviations")
        for low, high in zip(self.low, self.high, strict=True):
            if not low <= high:  # NaN too
                raise UsageError(f"a range of actions from {low:g} to {high:g} is empty")
        self._check_choices()

    def _check_choices(self) -> None:
        if bool(self.choices) != self.composite:
            wanted = "needs the number of options of each choice"
            raise UsageError(
                f"a `{self.kind}` head {wanted if self.composite else 'has no choices'}",
                hint=f"heads with several choices: {', '.join(COMPOSITE)}",
            )
        least = 1 if self.kind == HeadKind.MULTI_CATEGORICAL else 2
        if any(count < least for count in self.choices) or (
            self.kind == HeadKind.BERNOULLI and set(self.choices) != {2}
        ):
            raise UsageError(f"a `{self.kind}` head cannot have choices of {self.choices}")
        if self.masks and self.kind not in MASKABLE:
            raise UsageError(
                f"a `{self.kind}` head cannot have masks",
                hint=f"heads with masks: {', '.join(MASKABLE)}",
            )

    @property
    def discrete(self) -> bool:
        """Whether an action is the number of one of several."""
        return self.kind in DISCRETE

    @property
    def composite(self) -> bool:
        """Whether an action is several numbers, each of one of several options."""
        return self.kind in COMPOSITE

    @property
    def integers(self) -> bool:
        """Whether actions are int64."""
        return self.discrete or self.composite

    def outputs_for(self, numbers: int) -> int:
        """Compute the number of outputs that the head takes.

        Args:
            numbers: How many numbers an action has, or the number of discrete actions.

        Returns:
            The number of outputs of the policy.
        """
        if self.composite:
            return len(self.choices) if self.kind == HeadKind.BERNOULLI else sum(self.choices)
        return numbers * (2 if self.kind == HeadKind.SQUASHED_GAUSSIAN else 1)

    @property
    def draws(self) -> bool:
        """True if actors draw their actions from the policy's distribution."""
        return self.kind in DRAWN

    def actions(
        self,
        outputs: Array,
        rng: np.random.Generator | None = None,
        masks: Array | None = None,
    ) -> Array:
        """Choose actions.

        Args:
            outputs: Outputs of the policy, [n, m].
            rng: Random numbers; None chooses the most likely actions.
            masks: Which options are valid, bool [n, m]; None if all are.

        Returns:
            Actions, int64 [n] if they are discrete, int64 [n, a] for several choices, else float32
            [n, a].

        Raises:
            UsageError: The masks do not fit, or leave no valid option.
        """
        if masks is not None:
            outputs = self._masked(outputs, masks)
        if self.discrete:
            if rng is None or self.kind == "argmax":
                return np.asarray(outputs.argmax(-1))
            # The largest of logits with Gumbel noise is a draw from their softmax.
            return np.asarray((outputs + rng.gumbel(size=outputs.shape)).argmax(-1))
        if self.composite:
            return self._several(outputs, rng)
        low, high = (np.asarray(end, np.float32) for end in (self.low, self.high))
        if self.kind == "squashed_gaussian":
            mean, log_std = np.split(outputs, 2, -1)
            if rng is not None:
                mean = mean + np.exp(np.clip(log_std, *LOG_STD)) * rng.normal(size=mean.shape)
            # The tanh of float32 differs between processors, in its last bit.
            outputs = np.tanh(mean, dtype=np.float64).astype(mean.dtype)
        if self.kind == "gaussian" and rng is not None:
            outputs = outputs + np.exp(self.log_std) * rng.normal(size=outputs.shape)
        if self.kind in ("scale", "squashed_gaussian"):
            outputs = low + (np.clip(outputs, -1, 1) + 1) * (high - low) / 2
        return np.clip(outputs, low, high).astype(np.float32)

    def parts(self, outputs: Array) -> list[Array]:
        """Split outputs, or masks, by choice.

        Args:
            outputs: Array [n, m].

        Returns:
            One array [n, options] for each choice; [n, m] alone without several choices.
        """
        if self.kind != HeadKind.MULTI_CATEGORICAL:
            return [outputs]
        return np.split(outputs, np.cumsum(self.choices)[:-1], -1)

    def _several(self, outputs: Array, rng: np.random.Generator | None) -> Array:
        if outputs.shape[-1] != self.outputs_for(0):
            raise UsageError(
                f"the policy has {outputs.shape[-1]} outputs, but its `{self.kind}` head takes "
                f"{self.outputs_for(0)}"
            )
        if self.kind == HeadKind.BERNOULLI:
            noise = 0.0 if rng is None else rng.logistic(size=outputs.shape)
            return np.asarray(outputs + noise > 0).astype(np.int64)
        noisy = outputs if rng is None else outputs + rng.gumbel(size=outputs.shape)
        return np.stack([part.argmax(-1) for part in self.parts(noisy)], -1)

    def _masked(self, outputs: Array, masks: Array) -> Array:
        """Outputs [n, m] with -infinity for options that are not valid."""
        given = np.asarray(masks)
        if self.kind not in MASKABLE or given.shape != outputs.shape:
            raise UsageError(
                f"masks of shape {list(given.shape)} do not fit a `{self.kind}` head with outputs "
                f"of shape {list(outputs.shape)}",
                hint=f"masks are bool [n, outputs]; heads with masks: {', '.join(MASKABLE)}",
            )
        valid = given.astype(bool)
        if not all(part.any(-1).all() for part in self.parts(valid)):
            raise UsageError("a mask leaves no valid action", hint="check the environment's masks")
        return np.where(valid, outputs, -np.inf)

    def as_json(self) -> Object:
        """Convert the head to JSON.

        Returns:
            An object that `from_json` reads.
        """
        found: Object = {
            "kind": self.kind,
            "low": list(self.low),
            "high": list(self.high),
            "log_std": list(self.log_std),
        }
        if self.choices:
            found["choices"] = list(self.choices)
        if self.masks:
            found["masks"] = True
        return found

    @staticmethod
    def from_json(data: object) -> Head:
        """Read a head that `as_json` wrote.

        Args:
            data: The JSON object.

        Returns:
            The head.

        Raises:
            ValueError: The object has other fields.
            UsageError: The kind is unknown, or the bounds do not fit together.
        """
        return from_json(Head, data)
