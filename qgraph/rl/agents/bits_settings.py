"""Settings of training a policy in few bits."""

from __future__ import annotations

from dataclasses import dataclass

from qgraph.errors import UsageError
from qgraph.rl.agents.learning_settings import LearningSettings
from qgraph.rl.agents.precision import LearnerPrecision
from qgraph.rl.agents.setting import NOT_NEGATIVE, POSITIVE, Panel, Setting
from qgraph.rl.setting_text import SettingText

BITS = Panel.BITS
TRAINED_BITS = tuple(range(8, 1, -1))


@dataclass(frozen=True)
class BitsSettings(LearningSettings):
    """The bits that a policy is trained in, and when they begin."""

    train_bits: int | None = Setting(
        "Train the policy with weights of 8 to 2 bits, and write it as a static policy.",
        choices=TRAINED_BITS, unit="bits", panel=BITS, default_text="float",
    ).field(None)  # fmt: skip
    train_bits_delay: int | None = BITS.setting(
        None,
        "Environment steps before the policy is trained in few bits.",
        NOT_NEGATIVE,
        unit="steps",
        default_text="half of all steps",
    )
    threshold_rate: float = BITS.setting(
        1e-3, "Adam learning rate of thresholds, as base-2 logarithms.", POSITIVE
    )

    def check(self) -> None:
        super().check()
        if self.train_bits is None:
            if self.train_bits_delay is not None:
                raise UsageError(SettingText("{train_bits_delay} needs {train_bits}"))
            return
        if self.train_bits_delay is None:
            object.__setattr__(self, "train_bits_delay", self.steps // 2)
        if (self.train_bits_delay or 0) >= self.steps:
            raise UsageError(
                SettingText(
                    "{train_bits_delay} is {delay}, but {steps} is only {most}",
                    delay=self.train_bits_delay, most=self.steps,
                ),
                hint=SettingText("a smaller {train_bits_delay}: the rest is trained in few bits"),
            )  # fmt: skip
        if self.precision is not LearnerPrecision.FLOAT32:
            raise self.excluded("precision")

    def excluded(self, name: str) -> UsageError:
        """The error for a setting that training in few bits cannot be combined with."""
        return UsageError(
            SettingText(f"{{train_bits}} and {{{name}}} {{value}} exclude each other",
                        value=getattr(self, name)),
            hint=SettingText(f"leave {{{name}}} out"),
        )  # fmt: skip
