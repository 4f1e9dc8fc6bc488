"""Settings of learning that every algorithm has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qgraph.errors import UsageError
from qgraph.rl.agents.actor_settings import ActorSettings
from qgraph.rl.agents.precision import LearnerPrecision
from qgraph.rl.agents.setting import AT_LEAST_ONE, NOT_NEGATIVE, POSITIVE, POSITIVE_SHARE, Panel
from qgraph.rl.setting_text import SettingText

LEARNING = Panel.LEARNING


@dataclass(frozen=True)
class LearningSettings(ActorSettings):
    """The policy's network, its optimizer, and the number format of the learner.

    title       the algorithm's name in texts
    precisions  number formats that its learner computes in
    """

    title: ClassVar[str]
    precisions: ClassVar[tuple[LearnerPrecision, ...]] = (
        LearnerPrecision.FLOAT32,
        LearnerPrecision.MIXED_BFLOAT16,
    )

    learning_rate: float = LEARNING.setting(
        1e-4, "Adam learning rate.", POSITIVE, former_name="rate"
    )
    batch_size: int = LEARNING.number_of(
        "transitions", 256, "Transitions in a batch.", former_name="batch"
    )
    discount: float = LEARNING.setting(
        0.99, "Discount factor per step.", POSITIVE_SHARE, former_name="gamma"
    )
    reward_clip: float = LEARNING.setting(
        0.0,
        "Clip rewards for the learner to [-x, x]; 0 disables clipping. Reported returns are not "
        "clipped.",
        NOT_NEGATIVE,
    )
    hidden_sizes: tuple[int, ...] = LEARNING.setting(
        (256, 256),
        "Units of the policy's hidden layers.",
        AT_LEAST_ONE,
        unit="units",
        former_name="hidden",
    )
    precision: LearnerPrecision = LEARNING.setting(  # noqa: RUF009
        LearnerPrecision.FLOAT32,
        "Number format of the learner: float32, mixed_bfloat16, float16, mixed_float16 or "
        "float64, as the algorithm supports.",
        unit="format",
    )

    @classmethod
    def check_precision(cls, precision: object) -> None:
        """Raise UsageError for a number format that the learner does not compute in."""
        chosen = cls.fields()["precision"].read(precision)
        if chosen not in cls.precisions:
            raise UsageError(
                SettingText(
                    "{precision} {value} is not supported by {title}",
                    value=chosen,
                    title=cls.title,
                ),
                hint=f"choose {' or '.join(map(str, cls.precisions))}",
            )

    def check_batch_of(self, part: int, parts: str) -> None:
        """Raise UsageError unless a batch consists of parts of this size, which `parts` names."""
        if self.batch_size % part:
            raise UsageError(
                SettingText(
                    "{batch_size} {value} is not a multiple of {parts}",
                    value=self.batch_size, parts=parts,
                ),
                hint=SettingText(
                    "{batch_size} {value}", value=self.batch_size // part * part or part
                ),
            )  # fmt: skip

    def check(self) -> None:
        super().check()
        self.check_precision(self.precision)
