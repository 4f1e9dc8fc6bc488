"""Optional steps of static mode, as a value and as text."""

from __future__ import annotations

from dataclasses import dataclass

from qgraph.choices import CalibrationMethod, Equalization, WeightMethod
from qgraph.errors import UsageError
from qgraph.quant.key_types import ChoiceType, KeyMisfit, NumberType, SwitchType
from qgraph.quant.keys import Declared, declared, documented, key, made_of

PLAIN_TEXT = "plain"
NO, YES = "no", "yes"


@documented
@dataclass(frozen=True)
class Plan:
    """The steps of static mode; by default, the network is only calibrated.

    Each field is a step of the text that `spec` writes and `parse_plan` reads.

    Raises:
        UsageError: A step does not accept its value.

    Examples:
        >>> Plan(reconstruct=True).spec()
        'reconstruct'
    """

    constant_channels: float = key(
        0.0,
        NumberType(0),
        "batch-norm channels that vary by less than this ratio become constants, and are pruned",
    )
    equalize: Equalization = key(
        Equalization.OFF,
        ChoiceType(tuple(Equalization)),
        "channels are scaled between layers until the ranges on both sides meet; `biases` counts "
        "biases into the ranges; `noise` minimizes the noise of activations and weights instead, "
        "from the statistics of batch norms and of samples; `measured` does this with the largest "
        "values of samples as ranges of channels",
    )
    powers_of_two: bool = key(
        False, SwitchType(), "factors of equalized channels are rounded to powers of two"
    )
    absorb: bool = key(
        False,
        SwitchType(),
        "the part of a bias that nearly always passes ReLU moves to the next bias",
    )
    method: CalibrationMethod = key(
        CalibrationMethod.KL_J,
        ChoiceType(tuple(CalibrationMethod)),
        "method for thresholds of activations",
    )
    weights: WeightMethod = key(
        WeightMethod.MAX, ChoiceType(tuple(WeightMethod)), "method for thresholds of weights"
    )
    reconstruct: bool = key(
        False,
        SwitchType(),
        "weights are rounded layer by layer to match the float output; biases take mean errors",
    )
    correct_bias: bool = key(
        False, SwitchType(), "the mean error of each layer is added to its bias"
    )
    scale_inputs: bool = key(False, SwitchType(), "each feature of an input gets its own scale")

    def __post_init__(self) -> None:
        for step in plan_steps():
            value = getattr(self, step.name)
            try:
                object.__setattr__(self, step.name, step.key.type.checked(value))
            except KeyMisfit:
                raise UsageError(
                    f"plan: `{step_name(step)}` cannot be `{value}`", hint=f"like {usage(step)}"
                ) from None

    def __str__(self) -> str:
        steps = [f"thresholds by {self.method}"]
        if self.weights != WeightMethod.MAX:
            steps.append(f"of weights by {self.weights}")
        if self.scale_inputs:
            steps.append("a scale for each input feature")
        if self.constant_channels:
            steps.append(f"constant channels folded (below {self.constant_channels:g})")
        if self.equalize:
            factors = ", powers of two" if self.powers_of_two else ""
            steps.append(f"channels equalized ({self.equalize}{factors})")
        if self.absorb:
            steps.append("high biases absorbed")
        if self.reconstruct:
            steps.append("weights reconstructed")
        if self.correct_bias:
            steps.append("biases corrected")
        return ", ".join(steps)

    def spec(self) -> str:
        """The plan as text for `--plan`.

        Returns:
            The steps that differ from the default; `plain` if none does.
        """
        written = [
            _written(step, getattr(self, step.name))
            for step in plan_steps()
            if getattr(self, step.name) != step.default
        ]
        return ",".join(written) or PLAIN_TEXT


def plan_steps() -> tuple[Declared, ...]:
    """The declared steps of a plan.

    Returns:
        The steps in their order.

    Examples:
        >>> plan_steps()[0].name
        'constant_channels'
    """
    return declared(Plan)


def parse_plan(text: str) -> Plan:
    """Read a plan from text.

    Args:
        text: Steps with their values, as `equalize=biases,reconstruct`, or `plain`.

    Returns:
        The plan.

    Raises:
        UsageError: A step is unknown, occurs twice, or does not accept its value.

    Examples:
        >>> parse_plan("equalize=biases,reconstruct").reconstruct
        True
    """
    if text.strip() == PLAIN_TEXT:
        return Plan()
    steps = {step_name(step): step for step in plan_steps()}
    found: dict[str, object] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        step = steps.get(name)
        if step is None:
            wrong = f"plan: unknown step `{name}`" if name else f"plan: `{text}` lacks a step"
            listed = ", ".join(map(usage, steps.values()))
            raise UsageError(wrong, hint=f"steps: {listed}; or {PLAIN_TEXT} alone")
        if step.name in found:
            raise UsageError(f"plan: `{name}` occurs twice")
        found[step.name] = _read(step, value if equals else None)
    return made_of(Plan, found)


def step_name(step: Declared) -> str:
    """Name of a step in text.

    Args:
        step: The step.

    Returns:
        The name, with hyphens.

    Examples:
        >>> step_name(plan_steps()[0])
        'constant-channels'
    """
    return step.name.replace("_", "-")


def usage(step: Declared) -> str:
    """How a step is written.

    Args:
        step: The step.

    Returns:
        Its name, with legal values if it has several.

    Examples:
        >>> usage(plan_steps()[0])
        'constant-channels=NUMBER'
    """
    if isinstance(step.key.type, SwitchType):
        return step_name(step) + (f"={NO}" if step.default else "")
    choices = [choice or NO for choice in getattr(step.key.type, "choices", ())]
    return f"{step_name(step)}={'|'.join(choices) or 'NUMBER'}"


def _written(step: Declared, value: object) -> str:
    if value is True:
        return step_name(step)
    return f"{step_name(step)}={NO if value is False else value or NO}"


def _read(step: Declared, value: str | None) -> object:
    kind = step.key.type
    if isinstance(kind, SwitchType) and value in (None, NO, YES):
        return value != NO
    if isinstance(kind, ChoiceType) and value:
        return "" if value == NO and "" in kind.choices else value
    try:
        if isinstance(kind, NumberType) and value:
            return 0.0 if value == NO else float(value)
    except ValueError:
        pass
    wrong = f"cannot be `{value}`" if value else "needs a value"
    raise UsageError(f"plan: `{step_name(step)}` {wrong}", hint=f"like {usage(step)}")


def everything() -> Plan:
    """A plan with every step. It lists the steps and is not a recommendation.

    Returns:
        The plan.

    Examples:
        >>> everything().correct_bias
        True
    """
    return made_of(Plan, {step.name: _strongest_value(step) for step in plan_steps()})


def _strongest_value(step: Declared) -> object:
    if isinstance(step.key.type, ChoiceType):
        return step.key.type.choices[-1]
    return True if isinstance(step.key.type, SwitchType) else 1.0


PLAIN = Plan()
