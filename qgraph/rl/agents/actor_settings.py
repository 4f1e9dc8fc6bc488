"""Settings of actors: how many there are, where they run, and how policies reach them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from qgraph.errors import UsageError
from qgraph.rl.agents.run_settings import RunSettings
from qgraph.rl.agents.setting import Panel, Setting
from qgraph.rl.setting_text import SettingText

BITS = (32, 16, *range(8, 1, -1))
ACTORS = Panel.ACTORS
T = TypeVar("T")


def _bits(default: T, help: str, default_text: str = "") -> T:
    declared = Setting(help, choices=BITS, unit="bits", panel=ACTORS, default_text=default_text)
    return declared.field(default)


@dataclass(frozen=True)
class ActorSettings(RunSettings):
    """The bits of actors, the place where they run, and how often they get a policy."""

    actors: int = ACTORS.number_of("actors", 1, "Number of actors.")
    actor_bits: int = _bits(32, "Bits of the weights that actors compute with: 32, 16, 8 to 2.")
    broadcast_bits: int | None = _bits(
        None, "Bits of the weights that are sent to actors.", "those of the actors"
    )
    first_bits: int | None = _bits(
        None, "Bits of the first layer.", "16 for vectors if actors use 8 or fewer"
    )
    last_bits: int | None = _bits(None, "Bits of the last layer.", "16 if actors use 8 or fewer")
    actor_update_period: int = ACTORS.number_of(
        "steps", 100, "Steps of an actor between checks for a new policy."
    )
    publish_every: int = ACTORS.number_of(
        "learner steps", 10, "Learner steps between two published policies."
    )
    synchronous: bool = ACTORS.setting(
        False, "Let actors wait for the newest policy.", flags="--sync/--async"
    )
    on_demand: bool = ACTORS.setting(
        False, "Pack a policy only when an actor requests it.", flags="--pull/--push"
    )
    quantizer: bool = ACTORS.setting(
        True, "Pack policies in a separate process instead of in the learner."
    )
    in_process: bool = ACTORS.setting(
        False,
        "Run all actors in this process, in turns. Results then depend only on the seed.",
        flags="--in-process/--processes",
    )
    ray: str = ACTORS.setting(
        "",
        "Address of the Ray cluster to run actors on; `auto` finds a local cluster.",
        unit="address",
        default_text="this machine",
    )
    nodes: int = ACTORS.number_of("nodes", 1, "Number of cluster nodes to spread actors over.")

    def __post_init__(self) -> None:
        if self.broadcast_bits is None:
            object.__setattr__(self, "broadcast_bits", self.actor_bits)
        super().__post_init__()

    def check(self) -> None:
        super().check()
        if self.actor_bits != self.broadcast_bits and (self.first_bits or self.last_bits):
            raise UsageError(
                SettingText(
                    "{first_bits} and {last_bits} need actors that compute with as many bits as "
                    "they receive"
                ),
                hint=SettingText("leave {broadcast_bits} out"),
            )
        if self.nodes > 1 and not self.ray:
            raise UsageError(SettingText("{nodes} {value} needs {ray}", value=self.nodes))
        if self.nodes > self.actors:
            raise UsageError(
                SettingText("{nodes} is {n}, but {actors} is only {m}", n=self.nodes, m=self.actors)
            )
        if not self.quantizer and (self.ray or self.on_demand):
            other = "{ray}" if self.ray else "{on_demand}"
            raise UsageError(
                SettingText(other + " needs a quantizer"), hint=SettingText("leave {quantizer} on")
            )
        if self.ray and self.in_process:
            raise UsageError(
                SettingText(
                    "{ray} and {in_process} exclude each other: actors run on a cluster "
                    "or in this process"
                )
            )
