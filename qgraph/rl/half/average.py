"""A network that follows another as its exponential average (Kahan-momentum).

Imports TensorFlow: import it late.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from qgraph.errors import TrainingError
from qgraph.foreign import Tensor, Variable
from qgraph.rl.half.kahan import kahan_add
from qgraph.rl.half.precision import Rounding, exact
from qgraph.rl.setting_text import SettingText

SCALE = 2.0**12  # float16 then holds weights up to 16, and changes of 1e-11


class Average:
    """average <- (1 - share) average + share source, in the type of `source`.

    With `kahan`, `scale` times the average is stored, and updated by Kahan summation (section 3,
    method 4): otherwise an addition of less than half a unit in the last place changes nothing.
    Raises TrainingError if the scaled source overflows its type.
    """

    def __init__(
        self,
        source: Mapping[str, Tensor],
        share: float,
        *,
        kahan: bool = False,
        scale: float = SCALE,
        rounded: Rounding = exact,
    ) -> None:
        self.source, self.share, self.rounded = source, share, rounded
        self.kahan, self.scale = kahan, scale if kahan else 1.0
        self.kept = {name: _variable(v * self.scale, name) for name, v in source.items()}
        self.check()
        self.compensation = {
            name: _variable(tf.zeros_like(v), f"lost/{name}")
            for name, v in (source if kahan else {}).items()
        }

    @property
    def state(self) -> dict[str, Variable]:
        """The variables that a resumed run needs, by name."""
        return {**self.kept, **{f"lost/{name}": v for name, v in self.compensation.items()}}

    def check(self) -> None:
        """Raise TrainingError for a number that is no longer finite."""
        for name, kept in self.kept.items():
            if not np.isfinite(kept.numpy()).all():
                times = f", scaled by {self.scale:g}," if self.kahan else ""
                raise TrainingError(
                    f"the average of weights{times} exceeds the range of its type",
                    node=name,
                    hint=SettingText(
                        "weights grow where gradients are too small for float16: it needs more of "
                        "its {float16_methods}"
                    )
                    if self.kahan
                    else None,
                )

    def read(self) -> dict[str, Tensor]:
        """The average of each variable."""
        if not self.kahan:
            return dict(self.kept)
        return {name: self.rounded(kept / self.scale) for name, kept in self.kept.items()}

    def update(self) -> None:
        """Follow `source` by one step."""
        for name, average in self.read().items():
            kept, source = self.kept[name], self.source[name]
            if self.kahan:
                change = self.rounded(self.share * self.scale * self.rounded(source - average))
                kahan_add(kept, self.compensation[name], change, self.rounded)
            else:
                old = self.rounded((1 - self.share) * kept)
                kept.assign(self.rounded(old + self.rounded(self.share * source)))


def _variable(value: Tensor, name: str) -> Tensor:
    return tf.Variable(value, trainable=False, name=f"average/{name}")
