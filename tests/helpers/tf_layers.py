"""TensorFlow layers in short form, for tests of importers."""

import numpy as np
import tensorflow as tf

raw = tf.raw_ops
IMAGE = (None, 8, 7, 4)
FIXED = (2, 8, 7, 4)
MATRIX = (None, 6)


def weights(like, *shape):
    array = np.random.default_rng(sum(shape)).standard_normal(shape)
    return tf.constant(array.astype(like.dtype.as_numpy_dtype))


def positive(x):
    return tf.abs(x) + tf.constant(0.5, x.dtype)


def conv(x, k=3, out=5, groups=1, **attrs):
    attrs = {"strides": [1, 1, 1, 1], "padding": "SAME", **attrs}
    return raw.Conv2D(input=x, filter=weights(x, k, k, 4 // groups, out), **attrs)


def depthwise(x, multiplier=1, **attrs):
    attrs = {"strides": [1, 1, 1, 1], "padding": "SAME", **attrs}
    return raw.DepthwiseConv2dNative(input=x, filter=weights(x, 3, 3, 4, multiplier), **attrs)


def pool(op, x, k, s, padding, **attrs):
    return op(**{"input" if op is raw.MaxPool else "value": x}, ksize=[1, k, k, 1],
              strides=[1, s, s, 1], padding=padding, **attrs)  # fmt: skip


def resize(x, size, **attrs):
    return raw.ResizeNearestNeighbor(images=x, size=size, **attrs)


def batch_norm(op, x, **attrs):
    channels = x.shape[1] if attrs.get("data_format") == "NCHW" else x.shape[-1]
    scale, offset, mean = (
        tf.constant(np.linspace(-1, 2, channels) + i, tf.float32) for i in range(3)
    )
    return op(x=x, scale=scale, offset=offset, mean=mean, variance=tf.abs(mean) + 0.1,
              is_training=False, epsilon=0.01, **attrs)  # fmt: skip
