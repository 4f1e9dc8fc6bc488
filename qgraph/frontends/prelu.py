"""A ReLU with a slope for each channel, of ONNX and of TensorFlow Lite."""

from __future__ import annotations

from qgraph.frontends.site import AnySite


def prelu(site: AnySite, x: str) -> str:
    """A leaky ReLU; with slopes up to 1 max(x, slope * x); else relu(x) - slope * relu(-x).

    x: the first input of the node, as float. The second input has the slopes.
    """
    slopes = site.constant(1)
    if slopes is not None and slopes.size and (slopes == slopes.flat[0]).all():
        return site.emit("leaky_relu", x, alpha=float(slopes.flat[0]))
    if slopes is not None and slopes.size and (slopes <= 1).all():
        return site.emit("maximum", x, site.helper("sloped", "mul", x, site.inputs[1]))
    below = site.helper("below", "relu", site.helper("negated", "neg", x))
    lost = site.helper("sloped", "mul", below, site.inputs[1])
    return site.emit("sub", site.helper("above", "relu", x), lost)
