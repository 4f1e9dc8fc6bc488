"""What static mode does to a network beside inserting quantizers, as a value and as text."""

from __future__ import annotations

import math
from dataclasses import Field, dataclass, field, fields
from typing import Any

from qgraph.errors import UsageError
from qgraph.quant.constant_scales import WEIGHT_METHODS
from qgraph.quant.thresholds import NAMES

NOTHING = "plain"
NO, YES = "no", "yes"


def _one_of(*choices: str) -> Any:
    """A field of a plan that takes one of `choices`; the first is the default."""
    return field(default=choices[0], metadata={"choices": choices})


@dataclass(frozen=True)
class Plan:
    """The choices of static mode; the default is to do nothing but calibrate.

    `constant_channels`: ratio of `fold-constant-channels`, 0 leaves them; what is constant is then
    pruned. `equalize`: "" for no, `weights`, or `biases` to count biases into the ranges.
    `powers_of_two`: factors of equalized channels are rounded to these. `absorb`: what ReLU nearly
    always lets through goes around it, from bias to bias. `method`: how activation thresholds are
    found; `weights`: those of weights. `reconstruct`: weights are rounded layer by layer against
    the float output. `correct_bias`: the mean error of each layer goes into its bias.
    `scale_inputs`: each feature of an input gets a scale of its own.

    Each field is a step of the text form that `spec` writes and `parse_plan` reads. Raises
    UsageError for a value that a step does not take.
    """

    constant_channels: float = 0.0
    equalize: str = _one_of("", "weights", "biases")
    powers_of_two: bool = False
    absorb: bool = False
    method: str = _one_of("kl_j", *(name for name in NAMES if name != "kl_j"))
    weights: str = _one_of(*WEIGHT_METHODS)
    reconstruct: bool = False
    correct_bias: bool = False
    scale_inputs: bool = False

    def __post_init__(self) -> None:
        for step in fields(self):
            value = getattr(self, step.name)
            choices = step.metadata.get("choices")
            bad = value not in choices if choices else not _is_sound(value)
            if bad:
                raise UsageError(
                    f"plan: `{step_name(step)}` cannot be `{value}`", hint=f"like {_usage(step)}"
                )

    def __str__(self) -> str:
        steps = [f"thresholds by {self.method}"]
        if self.weights != "max":
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
        """The plan as `--plan` takes it: what differs from the default, or `plain`."""
        said = [
            _said(step, getattr(self, step.name))
            for step in fields(self)
            if getattr(self, step.name) != step.default
        ]
        return ",".join(said) or NOTHING


def parse_plan(text: str) -> Plan:
    """The plan that `text` names: `equalize=biases,reconstruct`, or `plain`. Raises UsageError."""
    if text.strip() == NOTHING:
        return Plan()
    steps = {step_name(step): step for step in fields(Plan)}
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        step = steps.get(name)
        if step is None:
            wrong = f"plan: there is no step `{name}`" if name else f"plan: `{text}` lacks a step"
            listed = ", ".join(map(_usage, steps.values()))
            raise UsageError(wrong, hint=f"steps: {listed}; or {NOTHING} alone")
        if step.name in found:
            raise UsageError(f"plan: `{name}` is there twice")
        found[step.name] = _read(step, value if equals else None)
    return Plan(**found)


def step_name(step: Field[Any]) -> str:
    return step.name.replace("_", "-")


def _is_sound(value: object) -> bool:
    return not isinstance(value, int | float) or (math.isfinite(value) and value >= 0)


def _usage(step: Field[Any]) -> str:
    """How a step is written: `reconstruct`, `equalize=weights|biases|no`."""
    if isinstance(step.default, bool):
        return step_name(step) + (f"={NO}" if step.default else "")
    choices = [choice or NO for choice in step.metadata.get("choices", ())]
    return f"{step_name(step)}={'|'.join(choices) or 'NUMBER'}"


def _said(step: Field[Any], value: Any) -> str:
    if value is True:
        return step_name(step)
    return f"{step_name(step)}={NO if value is False else value or NO}"


def _read(step: Field[Any], value: str | None) -> Any:
    kind = type(step.default)
    if kind is bool and value in (None, NO, YES):
        return value != NO
    if kind is str and value:
        return "" if value == NO and "" in step.metadata["choices"] else value
    try:
        if kind in (int, float) and value:
            return 0 if value == NO else kind(value)
    except ValueError:
        pass
    wrong = f"cannot be `{value}`" if value else "needs a value"
    raise UsageError(f"plan: `{step_name(step)}` {wrong}", hint=f"like {_usage(step)}")


def everything() -> Plan:
    """A plan with every step in it: what there is, not what is wise."""
    values: dict[str, Any] = {
        step.name: True if step.default is False else step.metadata.get("choices", (1.0,))[-1]
        for step in fields(Plan)
    }
    return Plan(**values)


PLAIN = Plan()
