"""Four networks with the layers and sizes of MLPerf Tiny's, with random weights, without softmax.

Sizes are those that MLPerf Tiny publishes: the number of instructions depends on them, not on what
a network has learnt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Tensor = Any
Network = Any


def resnet8() -> Network:
    """Image classification: 32x32x3, three stacks of a residual block, 10 classes."""
    image = _input(32, 32, 3)
    x = _conv(image, 16, 3)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        inner = _conv(_conv(x, channels, 3, stride), channels, 3, relu=False)
        if stride > 1:
            x = _conv(x, channels, 1, stride, relu=False)
        x = _layers().ReLU()(_layers().Add()([x, inner]))
    return _network("resnet8", image, _layers().Dense(10)(_pooled(x)))


def ds_cnn() -> Network:
    """Keyword spotting: 49x10 MFCC features, four separable convolutions, 12 classes."""
    image = _input(49, 10, 1)
    x = _conv(image, 64, (10, 4), 2)
    for _ in range(4):
        x = _conv(_depthwise(x, 1), 64, 1)
    return _network("ds_cnn", image, _layers().Dense(12)(_pooled(x)))


def mobilenet() -> Network:
    """Visual wake words: MobileNetV1 of width 0.25, 96x96x3, 2 classes."""
    image = _input(96, 96, 3)
    x = _conv(image, 8, 3, 2)
    blocks = (16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2)
    for channels, stride in (*blocks, (256, 1)):
        x = _conv(_depthwise(x, stride), channels, 1)
    return _network("mobilenet", image, _layers().Dense(2)(_pooled(x)))


def autoencoder() -> Network:
    """Anomaly detection: 640 features, nine hidden layers, 640 outputs."""
    image = _input(640)
    x = image
    for width in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = _layers().ReLU()(_layers().BatchNormalization()(_layers().Dense(width)(x)))
    return _network("autoencoder", image, _layers().Dense(640)(x))


TINY_NETWORKS: dict[str, Callable[[], Network]] = {
    made.__name__: made for made in (resnet8, ds_cnn, mobilenet, autoencoder)
}


def _layers() -> Any:
    import keras

    return keras.layers


def _input(*shape: int) -> Tensor:
    return _layers().Input(shape, name="image")


def _conv(
    x: Tensor, channels: int, size: int | tuple[int, int], stride: int = 1, relu: bool = True
) -> Tensor:
    layer = _layers().Conv2D(channels, size, strides=stride, padding="same", use_bias=False)
    x = _layers().BatchNormalization()(layer(x))
    return _layers().ReLU()(x) if relu else x


def _depthwise(x: Tensor, stride: int) -> Tensor:
    layer = _layers().DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False)
    return _layers().ReLU()(_layers().BatchNormalization()(layer(x)))


def _pooled(x: Tensor) -> Tensor:
    return _layers().GlobalAveragePooling2D()(x)


def _network(name: str, image: Tensor, result: Tensor) -> Network:
    import keras

    return keras.Model(image, result, name=name)
