"""Small networks of six families, from 28x28 gray images in [0, 1] to the logits of 10 classes.

Each has the characteristic layers of its family, with 0.5 to 1.6 million multiplications. Every
stem has a stride of 2, so that an epoch takes seconds on one core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Tensor = Any
Network = Any

SIDE, CLASSES = 28, 10
MOMENTUM = 0.95  # of batch-norm statistics, small because there are few steps
LEAK = 0.1


def vgg() -> Network:
    """Plain 3x3 convolutions, max pools and a hidden dense layer."""
    x = image = _image()
    for channels, stride in ((16, 2), (24, 1)):
        x = conv(x, channels, 3, stride=stride)
    x = _max_pool(x)
    for channels in (32, 32):
        x = conv(x, channels, 3)
    x = _dense(_flat(_max_pool(x)), 64)
    return network("vgg", image, logits(x))


def resnet() -> Network:
    """Basic blocks with a ReLU after each sum."""
    image = _image()
    x = conv(image, 12, 3, stride=2)
    for channels, stride in ((12, 1), (24, 2), (48, 2)):
        x = _residual(x, channels, stride)
    return network("resnet", image, logits(mean(x)))


def mobilenet_v1() -> Network:
    """Alternating depthwise and pointwise convolutions, each with batch norm and ReLU6."""
    image = _image()
    x = conv(image, 16, 3, stride=2, activation="relu6")
    for channels, stride in ((32, 1), (48, 2), (48, 1), (96, 2), (96, 1)):
        x = depthwise(x, stride)
        x = conv(x, channels, 1, activation="relu6")
    return network("mobilenet_v1", image, logits(mean(x)))


def mobilenet_v2() -> Network:
    """Inverted residuals with linear bottlenecks."""
    image = _image()
    x = conv(image, 12, 3, stride=2, activation="relu6")
    x = conv(depthwise(x, 1), 12, 1, activation=None)
    for channels, stride in ((20, 2), (20, 1), (36, 2), (36, 1)):
        x = inverted_residual(x, channels, stride, expansion=4)
    x = conv(x, 96, 1, activation="relu6")
    return network("mobilenet_v2", image, logits(mean(x)))


def inception() -> Network:
    """Parallel branches: 1x1, 3x3, two 3x3 or 1x3 and 3x1, and an average pool."""
    image = _image()
    x = conv(conv(image, 12, 3, stride=2), 16, 3)
    x = _max_pool(x)
    x = _concat(
        conv(x, 16, 1),
        conv(conv(x, 12, 1), 16, 3),
        conv(conv(conv(x, 12, 1), 16, 3), 16, 3),
        conv(_average_pool(x), 16, 1),
    )
    x = _concat(
        conv(x, 24, 3, stride=2),
        conv(conv(conv(x, 12, 1), 16, 3), 24, 3, stride=2),
        _max_pool(x),
    )
    x = _concat(
        conv(x, 32, 1),
        conv(conv(conv(x, 24, 1), 28, (1, 3)), 32, (3, 1)),
        conv(_average_pool(x), 32, 1),
    )
    return network("inception", image, logits(mean(x)))


def darknet() -> Network:
    """Leaky ReLU; 1x1 convolutions between 3x3 ones; classes by a convolution, then a mean."""
    image = _image()
    x = conv(image, 12, 3, stride=2, activation="leaky")
    x = _max_pool(conv(x, 20, 3, activation="leaky"))
    for channels, size in ((40, 3), (20, 1), (40, 3)):
        x = conv(x, channels, size, activation="leaky")
    x = _max_pool(x)
    for channels, size in ((64, 3), (32, 1), (64, 3)):
        x = conv(x, channels, size, activation="leaky")
    x = _layers().Conv2D(CLASSES, 1, name="logits")(x)
    return network("darknet", image, mean(x))


FAMILIES: dict[str, Callable[[], Network]] = {
    made.__name__: made for made in (vgg, resnet, mobilenet_v1, mobilenet_v2, inception, darknet)
}


# -- blocks -------------------------------------------------------------------------------------


def _residual(x: Tensor, channels: int, stride: int) -> Tensor:
    inner = conv(conv(x, channels, 3, stride=stride), channels, 3, activation=None)
    if stride > 1 or x.shape[-1] != channels:
        x = conv(x, channels, 1, stride=stride, activation=None)
    return _layers().ReLU()(_layers().Add()([x, inner]))


def inverted_residual(x: Tensor, channels: int, stride: int, expansion: int) -> Tensor:
    inner = conv(x, expansion * x.shape[-1], 1, activation="relu6")
    inner = conv(depthwise(inner, stride), channels, 1, activation=None)
    return _layers().Add()([x, inner]) if stride == 1 and x.shape[-1] == channels else inner


def conv(
    x: Tensor,
    channels: int,
    size: int | tuple[int, int],
    *,
    stride: int = 1,
    activation: str | None = "relu",
) -> Tensor:
    layer = _layers().Conv2D(channels, size, strides=stride, padding="same", use_bias=False)
    return _activated(_norm(layer(x)), activation)


def depthwise(x: Tensor, stride: int) -> Tensor:
    layer = _layers().DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False)
    return _activated(_norm(layer(x)), "relu6")


def _dense(x: Tensor, units: int) -> Tensor:
    return _activated(_norm(_layers().Dense(units, use_bias=False)(x)), "relu")


def _norm(x: Tensor) -> Tensor:
    return _layers().BatchNormalization(momentum=MOMENTUM)(x)


def _activated(x: Tensor, activation: str | None) -> Tensor:
    layers = _layers()
    made = {
        "relu": layers.ReLU,
        "relu6": lambda: layers.ReLU(max_value=6.0),
        "leaky": lambda: layers.LeakyReLU(LEAK),
    }
    return x if activation is None else made[activation]()(x)


def _max_pool(x: Tensor) -> Tensor:
    return _layers().MaxPooling2D(3, strides=2, padding="same")(x)


def _average_pool(x: Tensor) -> Tensor:
    return _layers().AveragePooling2D(3, strides=1, padding="same")(x)


def _concat(*branches: Tensor) -> Tensor:
    return _layers().Concatenate()(list(branches))


def mean(x: Tensor) -> Tensor:
    return _layers().GlobalAveragePooling2D()(x)


def _flat(x: Tensor) -> Tensor:
    return _layers().Flatten()(x)


def logits(x: Tensor) -> Tensor:
    return _layers().Dense(CLASSES, name="logits")(x)


def _image() -> Tensor:
    return _layers().Input([SIDE, SIDE, 1], name="image")


def network(name: str, image: Tensor, logits: Tensor) -> Network:
    import tf_keras

    return tf_keras.Model(image, logits, name=name)


def _layers() -> Any:
    from tf_keras import layers

    return layers
