"""The linear mix: the more the policies differ, the fewer actors get the compressed one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qgraph.rl.compress.chain import Compressor
from qgraph.rl.monitor.strategy import Decision, Look, check_reachable, stays


@dataclass(frozen=True)
class Mix:
    """The share of compressed policies falls linearly with KL mean, from 1 at 0 to 0 at `limit`.

    (AcceRL, section 3.2, figure 9.)
    """

    limit: float

    def check(self, begun: Compressor) -> None:
        check_reachable("KL mean", self.limit)

    def decide(self, begun: Compressor, looks: Sequence[Look]) -> Decision:
        if not looks:
            return Decision(begun, reason="begins")
        value = looks[-1].seen.kl_mean
        if math.isnan(value):
            return stays(looks)
        share = max(0.0, 1 - value / self.limit)
        return Decision(begun, share, f"KL mean {value:.4g} of {self.limit:g}: alpha {share:.3g}")
