"""Warnings about inputs that were prepared differently from the calibration samples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph.ir.types import Array

# Samples that are prepared in the same way differ less in their largest value than this factor.
USUAL_FACTOR = 8


def other_scale(inputs: Mapping[str, Array], calibration: Mapping[str, Array]) -> list[str]:
    """A warning for each input whose largest magnitude is far from that of the calibration samples.

    Args:
        inputs: Arrays of any dtype and shape, by input name.
        calibration: A few calibration samples, by input name; an input without any is not judged.
    """
    return [
        f"input `{name}` reaches {given:.4g}, the calibration samples reached {known:.4g}: "
        "prepare both in the same way, or calibrate on such inputs"
        for name, array in inputs.items()
        if name in calibration
        and (given := _reach(array))
        and (known := _reach(calibration[name]))
        and not known / USUAL_FACTOR <= given <= known * USUAL_FACTOR
    ]


def _reach(array: Array) -> float:
    """The largest magnitude; 0 if there is no number."""
    return float(np.max(np.abs(array.astype(np.float64)), initial=0.0))
