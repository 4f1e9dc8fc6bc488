"""The settings of D4PG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qgraph.rl.agents.deterministic_config import DeterministicConfig
from qgraph.rl.agents.setting import POSITIVE, Interval, Panel
from qgraph.rl.agents.shared_settings import LAYER_NORM, TARGET_UPDATE_PERIOD


@dataclass(frozen=True)
class D4pgConfig(DeterministicConfig):
    """D4PG chooses numbers, from vectors."""

    algorithm: ClassVar[str] = "d4pg"
    title: ClassVar[str] = "D4PG"

    episodes: int = 5
    hidden_sizes: tuple[int, ...] = (256, 256, 256)
    critic_hidden_sizes: tuple[int, ...] = (512, 512, 256)
    target_update_period: int = TARGET_UPDATE_PERIOD.field(100)
    layer_norm: bool = LAYER_NORM.field(False)
    atoms: int = Panel.ALGORITHM.setting(
        51, "Number of atoms of the critic's distribution.", Interval(2), unit="atoms"
    )
    v_max: float = Panel.ALGORITHM.setting(
        150.0, "Range of the critic's distribution: from -v_max to v_max.", POSITIVE,
        former_name="value_limit",
    )  # fmt: skip
