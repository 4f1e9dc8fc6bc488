"""Trains the training graph of `qgraph quantize --mode retrain --training-graph FORM`.

python train_saved_model.py OUT/training_graph TRAIN.npz CHECKPOINT [EPOCHS]

Then: qgraph finalize OUT --checkpoint CHECKPOINT

Needs: TensorFlow and numpy only.
"""

import sys

import numpy as np
import tensorflow as tf

folder, data, checkpoint, epochs = (*sys.argv[1:4], int((*sys.argv, 5)[4]))
for library in tf.io.gfile.glob(f"{folder}/ops.so"):
    tf.load_op_library(library)
model = tf.saved_model.load(folder)
arrays = np.load(data)
labels = next(arrays[name] for name in arrays if name in ("labels", "label", "y"))
inputs = next(arrays[name] for name in arrays if name not in ("labels", "label", "y"))

weights = [*model.kernels, *model.gammas]
rates = [1e-3] * len(weights) + [1e-2] * len(model.thresholds)
variables = weights + list(model.thresholds)
moments = [(tf.Variable(tf.zeros_like(v)), tf.Variable(tf.zeros_like(v))) for v in variables]


@tf.function
def step(x, y, t, norms_frozen):
    """One step of Adam, number `t` from 1 on; the loss."""
    with tf.GradientTape() as tape:
        (outputs,) = model(x, training=True, norms_frozen=norms_frozen).values()
        likely = tf.gather(outputs, y, batch_dims=1)  # of a softmax
        loss = -tf.reduce_mean(tf.math.log(tf.maximum(likely, 1e-7)))
    gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
    for v, (m, s), g, rate in zip(variables, moments, gradients, rates, strict=True):
        tf.raw_ops.ResourceApplyAdam(
            var=v.handle, m=m.handle, v=s.handle, grad=g, lr=rate, epsilon=1e-8,
            beta1=0.9, beta1_power=0.9**t, beta2=0.999, beta2_power=0.999**t,
        )  # fmt: skip
    return loss


t, order = 0, np.random.default_rng(0)
for epoch in range(epochs):
    for batch in np.split(order.permutation(len(labels)), range(32, len(labels), 32)):
        t += 1
        x, y = inputs[batch].astype("float32"), labels[batch].astype("int32")
        loss = step(x, y, tf.constant(t, tf.float32), norms_frozen=epoch > 0)
    print(f"epoch {epoch + 1}: loss {loss:.4f}")
tf.train.Checkpoint(model=model).write(checkpoint)
