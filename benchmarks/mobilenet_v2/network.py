"""MobileNetV2 (Sandler et al., 2018, table 2) for images of 32x32: all 17 blocks, any width."""

from __future__ import annotations

from benchmarks.families.networks import (
    Network,
    conv,
    depthwise,
    inverted_residual,
    logits,
    mean,
    network,
)

SIDE = 32
# Expansion, channels, blocks, stride of the first one. The paper halves 224 five times; here the
# stem and the first of these strides are 1, so that the last feature map is 4x4.
STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip
STEM, HEAD = 32, 1280


def mobilenet_v2(width: float = 1.0) -> Network:
    """The network. `width` multiplies all channels; those of the last layer only if it is above
    1.
    """
    from tf_keras import layers

    image = layers.Input([SIDE, SIDE, 3], name="image")
    x = conv(image, channels_of(STEM, width), 3, activation="relu6")
    for expansion, channels, blocks, first in STAGES:
        count = channels_of(channels, width)
        for stride in (first, *[1] * (blocks - 1)):
            if expansion == 1:
                x = conv(depthwise(x, stride), count, 1, activation=None)
            else:
                x = inverted_residual(x, count, stride, expansion)
    x = conv(x, channels_of(HEAD, max(width, 1.0)), 1, activation="relu6")
    return network("mobilenet_v2", image, logits(mean(x)))


def channels_of(channels: int, width: float) -> int:
    """The multiple of 8 nearest to `channels * width`, not below 90 % of it, as in the paper."""
    scaled = channels * width
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * scaled else rounded
