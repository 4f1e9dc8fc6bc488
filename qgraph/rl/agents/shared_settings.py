"""Settings that some algorithms share, with their own defaults."""

from __future__ import annotations

from qgraph.rl.agents.setting import (
    AT_LEAST_ONE,
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_SHARE,
    SHARE,
    Panel,
    Setting,
)

CRITIC_HIDDEN_SIZES = Setting(
    "Units of the critic's hidden layers.", AT_LEAST_ONE, unit="units", panel=Panel.LEARNING,
    former_name="critic",
)  # fmt: skip
LAYER_NORM = Setting("Normalize after the first layer.", panel=Panel.LEARNING)
REWARD_SCALE = Setting("Factor of rewards in learning.", POSITIVE, panel=Panel.LEARNING)
ENTROPY_COST = Setting(
    "Weight of the entropy bonus in the loss.", NOT_NEGATIVE, former_name="entropy"
)
VALUE_COST = Setting("Weight of the critic's loss.", NOT_NEGATIVE, former_name="value")
TAU = Setting(
    "Share of the new weights in an update of target networks.", POSITIVE_SHARE,
    panel=Panel.LEARNING,
)  # fmt: skip
SIGMA = Setting(
    "Largest standard deviation of the noise on actions; actors have even steps up to it.",
    SHARE, panel=Panel.EXPLORATION, former_name="explore",
)  # fmt: skip
TARGET_UPDATE_PERIOD = Setting(
    "Learner steps between updates of target networks.", AT_LEAST_ONE, unit="learner steps",
    panel=Panel.LEARNING, former_name="target_period",
)  # fmt: skip
