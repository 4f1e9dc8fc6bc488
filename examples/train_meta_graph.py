"""Trains the MetaGraphs of `qgraph quantize --mode retrain --training-graph metagraph`.

python train_meta_graph.py OUT/training_graph TRAIN.npz CHECKPOINT [EPOCHS]

Then: qgraph finalize OUT --checkpoint CHECKPOINT

Needs: TensorFlow and numpy only.
"""

import os
import sys

import numpy as np
import tensorflow.compat.v1 as tf

folder, data, checkpoint, epochs = (*sys.argv[1:4], int((*sys.argv, 5)[4]))
arrays, order, state = np.load(data), np.random.default_rng(0), f"{folder}/model.ckpt"
labels = next(name for name in arrays if name in ("labels", "label", "y"))
fed = {name: arrays[name] for name in arrays}

for epoch in range(epochs):
    form = "batch" if epoch == 0 and os.path.exists(f"{folder}/batch.meta") else "frozen"
    with tf.Graph().as_default(), tf.Session() as session:
        saver = tf.train.import_meta_graph(f"{folder}/{form}.meta")
        saver.restore(session, state)
        for batch in np.split(order.permutation(len(fed[labels])), range(32, len(fed[labels]), 32)):
            feed = {f"{'labels' if n == labels else n}:0": x[batch] for n, x in fed.items()}
            loss, _ = session.run(["loss:0", "train"], feed)
        state = saver.save(session, checkpoint, write_meta_graph=False)
    print(f"epoch {epoch + 1}: loss {loss:.4f}")
