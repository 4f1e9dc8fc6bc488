"""The linear mix: the more the policies differ, the fewer actors get the compressed one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qgraph.rl.compress.chain import Compressor
from qgraph.rl.monitor.strategy import Decision, Measurement, check_reachable, stays


@dataclass(frozen=True)
class Mix:
    """The share of compressed policies falls linearly with KL mean, from 1 at 0 to 0 at `limit`.

    (AcceRL, section 3.2, figure 9.)
    """

    limit: float

    def check(self, initial: Compressor) -> None:
        check_reachable("KL mean", self.limit)

    def decide(self, initial: Compressor, measurements: Sequence[Measurement]) -> Decision:
        if not measurements:
            return Decision(initial, reason="begins")
        value = measurements[-1].indicators.kl_mean
        if math.isnan(value):
            return stays(measurements)
        share = max(0.0, 1 - value / self.limit)
        return Decision(initial, share, f"KL mean {value:.4g} of {self.limit:g}: alpha {share:.3g}")
