"""Former names and values of settings, which scripts and run directories may still have."""

from __future__ import annotations

from qgraph.errors import UsageError
from qgraph.rl.agents.config import RunConfig
from qgraph.rl.agents.precision import LearnerPrecision
from qgraph.rl.agents.setting import SettingValues
from qgraph.rl.half.methods import LOSS_SCALING, METHODS, check_methods
from qgraph.rl.setting_text import SettingText

BFLOAT16 = "half"  # a former setting: true for products in bfloat16
MIXED = "mixed"  # a former precision: float16 with float32


def renamed(kind: type[RunConfig], given: SettingValues) -> SettingValues:
    """Settings of an algorithm by their current names; names that it does not have stay.

    Raises UsageError for a setting that is given by two names.
    """
    names = {each.setting.former_name: name for name, each in kind.fields().items()}
    names.pop("", None)
    found: dict[str, object] = {}
    for name, value in _with_precision(given).items():
        today = names.get(name, name)
        if today in found:
            raise UsageError(
                SettingText(f"{{{today}}} is given twice, also as `{{name}}`", name=name)
            )
        found[today] = value
    return found


def _with_precision(given: SettingValues) -> dict[str, object]:
    """The settings with one setting for the number format, which two settings were before."""
    found = {name: value for name, value in given.items() if name != BFLOAT16}
    if found.get("precision") == MIXED:
        found["precision"] = LearnerPrecision.MIXED_FLOAT16
    if given.get(BFLOAT16):
        if found.get("precision") not in (None, LearnerPrecision.FLOAT32):
            raise UsageError(
                SettingText(
                    "{precision} is {value}, but bfloat16 was requested too",
                    value=found["precision"],
                )
            )
        found["precision"] = LearnerPrecision.MIXED_BFLOAT16
    return found


def half_settings(text: str) -> dict[str, object]:
    """The settings of the former option `--half`: `all`, `none`, or methods between commas.

    `mixed`, alone or before methods, is mixed_float16 with loss scaling (Micikevicius et al.,
    2017). Raises UsageError for an unknown method.
    """
    whole = {"all": METHODS, "none": ()}
    if text in whole:
        return {"precision": LearnerPrecision.FLOAT16, "float16_methods": whole[text]}
    names = tuple(part.strip() for part in text.split(","))
    mixed = names[0] == MIXED
    methods = (LOSS_SCALING, *names[1:]) if mixed else names
    for name in methods:
        if name in whole:
            raise UsageError(
                f"`{name}` must be the only method", hint=SettingText("{half} {name}", name=name)
            )
        if name == MIXED:
            raise UsageError(
                "`mixed` must be in front of the methods",
                hint=SettingText("{half} mixed,softplus-fix"),
            )
    check_methods(methods)
    precision = LearnerPrecision.MIXED_FLOAT16 if mixed else LearnerPrecision.FLOAT16
    return {"precision": precision, "float16_methods": methods}
