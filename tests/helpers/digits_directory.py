"""The digits network of the examples, calibrated on noise, as an output directory."""

from pathlib import Path

import numpy as np

from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.quant.profile import load_profile
from qgraph.stored.write import save

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.pb"


def digits_directory(folder: Path, profile: str = "graffitist-int8") -> Path:
    """Quantize the network for a profile, by its name, and save it in `folder/out`."""
    images = np.random.default_rng(0).uniform(0, 16, (4, 8, 8, 1)).astype(np.float32)
    made = quantize(load(DIGITS), images, plan="method=max", profile=load_profile(profile))
    return save(made, folder / "out")
