"""The digits with weights of 4 bits, retrained from a Keras script.

python examples/digits/retrain_keras.py [OUTPUT_DIRECTORY]

Needs: qgraph, scikit-learn (`pip install scikit-learn`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tf_keras as keras
from data import SEED, load_digits_split

from qgraph import quantize, retrain
from qgraph.train.callbacks import FreezeBatchNorms, FreezeThresholds, KeepBest, ThresholdBoard
from qgraph.train.options import Options

HERE = Path(__file__).parent
EPOCHS, BATCH = 5, 32


def main() -> None:
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "out-4bit"
    board = output.with_name(output.name + "-board")
    keras.utils.set_random_seed(SEED)
    split = load_digits_split()
    calibrated = quantize(
        HERE / "digits.pb",
        {"image": split.train.images[:64]},
        mode="retrain",
        profile="graffitist-int4",
    )
    retrain.save(calibrated, output, force=True)

    model = retrain.keras_model(output)
    options = Options(epochs=EPOCHS, batch_size=BATCH, weight_rate=1e-3)
    model.compile(
        optimizer=model.tqt_optimizer(options),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    _, before = model.evaluate(split.test.images, split.test.labels, verbose=0)
    model.fit(
        split.train.images,
        split.train.labels,
        batch_size=BATCH,
        epochs=EPOCHS,
        validation_data=(split.validation.images, split.validation.labels),
        verbose=2,
        callbacks=[
            FreezeBatchNorms(epochs=1),
            FreezeThresholds(start=100, every=5),
            ThresholdBoard(board),  # tensorboard --logdir OUTPUT_DIRECTORY-board
            KeepBest(output),
        ],
    )
    retrain.load_checkpoint(model, output)
    _, after = model.evaluate(split.test.images, split.test.labels, verbose=0)
    print(f"test accuracy with 4 bits: {before:.2%} calibrated, {after:.2%} retrained")

    retrain.finalize(output).save(output / "inference")
    print(f"the network that computes this, bit by bit: {output / 'inference'}")


if __name__ == "__main__":
    main()
