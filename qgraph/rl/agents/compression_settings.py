"""Settings of compression on the way from learner to actors."""

from __future__ import annotations

from dataclasses import dataclass

from qgraph.errors import UsageError
from qgraph.rl.agents.bits_settings import BitsSettings
from qgraph.rl.agents.setting import Panel
from qgraph.rl.setting_text import SettingText

COMPRESSION = Panel.COMPRESSION


@dataclass(frozen=True)
class CompressionSettings(BitsSettings):
    """Links that compress policies, and the strategy that steers them."""

    compress: str = COMPRESSION.setting(
        "",
        "Links that compress policies before they are sent, such as 'prune(0.5)|quantize(8)'.",
        unit="links",
        default_text="none",
    )
    monitor: str = COMPRESSION.setting(
        "",
        "Strategy that controls compression: kl_max:14, reward_gap:10, mix:0.5, growth or watch.",
        unit="strategy",
        default_text="none",
    )
    monitor_every: int = COMPRESSION.number_of(
        "policies", 10, "Published policies between two measurements of the monitor."
    )

    def check(self) -> None:
        super().check()
        example = SettingText("{compress} 'quantize(8)'")
        if not self.compress:
            if self.monitor or self.monitor_every != CompressionSettings.monitor_every:
                raise UsageError(
                    SettingText("{monitor} and {monitor_every} need compression"), hint=example
                )
            return
        if not self.compress.strip():
            raise UsageError(SettingText("{compress} is empty"), hint=example)
        if self.train_bits is not None:
            raise self.excluded("compress")
        if not self.quantizer:
            raise UsageError(
                SettingText("{compress} needs a quantizer"),
                hint=SettingText("leave {quantizer} on"),
            )
        own = (self.actor_bits, self.broadcast_bits, self.first_bits, self.last_bits)
        if own != (32, 32, None, None):
            raise UsageError(
                SettingText("with {compress}, bits are set by the link `quantize`"),
                hint=SettingText("{compress} 'prune(0.5)|quantize(8)'"),
            )
        if self.synchronous or self.ray:
            other = "{synchronous}" if self.synchronous else "{ray}"
            raise UsageError(SettingText("{compress} cannot be combined with " + other))
        from qgraph.rl.compress.settings import Settings

        Settings(self.compress, self.monitor or "watch", self.monitor_every)
