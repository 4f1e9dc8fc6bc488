"""Layers for networks with an op that qgraph does not support: resizing without aliases."""

import numpy as np
import tensorflow as tf


def weights(*shape):
    return np.random.default_rng(sum(shape)).normal(0, 0.4, shape).astype(np.float32)


def layer(x, channels=4):
    return tf.nn.relu(tf.nn.conv2d(x, weights(3, 3, int(x.shape[-1]), channels), 1, "SAME"))


def resize(x, size):
    return tf.image.resize(x, (size, size), antialias=True)
