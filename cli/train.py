"""`qgraph train`: train thresholds and weights of a quantized network together."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from qgraph.choices import Learning, LossKind
from qgraph.cli.choice import choice
from qgraph.cli.options import Json, given
from qgraph.words import alternatives


def train(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Argument(help="Directory that `qgraph quantize --mode retrain` wrote.")
    ],
    data: Annotated[
        str,
        typer.Option(
            metavar="DATA",
            help="Training data: a .npz with an array for each input and, for a loss on labels, "
            "an array `labels`; a directory of such files; a saved tf.data.Dataset; or "
            "module:function that returns one.",
        ),
    ],
    validation: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Data that the best checkpoint is chosen on, in the formats of --data.",
        ),
    ] = None,
    epochs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of passes over the training data.")
    ] = 5,
    batch_size: Annotated[
        int, typer.Option(min=1, metavar="N", help="Samples in a training step.")
    ] = 32,
    learn: Annotated[
        Learning,
        choice(
            Learning,
            "part to learn",
            metavar="WHAT",
            help=f"Parameters to train: {alternatives(Learning)}.",
        ),
    ] = Learning.ALL,
    loss: Annotated[
        LossKind | None,
        choice(
            LossKind,
            "loss",
            metavar="LOSS",
            help="labels: cross entropy with the labels. teacher: KL divergence from the float "
            "network's output. mse: mean squared error to it. blocks: errors of all blocks, and "
            "teacher for an output of classes.",
            show_default="labels if the data has them, otherwise teacher",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Output to train, if the network has several."),
    ] = None,
    weight_rate: Annotated[
        float, typer.Option(min=0, metavar="RATE", help="Learning rate of the weights.")
    ] = 1e-6,
    step_rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="RATE",
            help="Learning rate of the weights in steps of their scales, such as 0.003, instead of "
            "--weight-rate.",
            show_default="--weight-rate",
        ),
    ] = None,
    threshold_rate: Annotated[
        float, typer.Option(min=0, metavar="RATE", help="Learning rate of the thresholds.")
    ] = 1e-2,
    weight_decay: Annotated[
        float,
        typer.Option(min=0, metavar="FACTOR", help="Factor of the L2 penalty on weights."),
    ] = 0.0,
    anneal_steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="STEPS",
            help="Steps over which the learning rate of the weights falls to 1/20, along a cosine.",
            show_default="constant rate",
        ),
    ] = None,
    norm_epochs: Annotated[
        float,
        typer.Option(
            min=0, metavar="N", help="Epochs after which batch-norm statistics are frozen."
        ),
    ] = 1.0,
    freeze_start: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="STEP",
            help="First step at which a threshold is frozen.",
            show_default="1000 for batches of 24, fewer for larger batches",
        ),
    ] = None,
    freeze_every: Annotated[
        int, typer.Option(min=1, metavar="STEPS", help="Steps between two frozen thresholds.")
    ] = 50,
    validate_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="STEPS",
            help="Steps between two validations.",
            show_default="one epoch",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed that shuffles the training data.")
    ] = 0,
    restart: Annotated[
        bool, typer.Option("--restart", help="Remove earlier checkpoints and start again.")
    ] = False,
    fast: Annotated[
        bool,
        typer.Option(
            "--fast",
            help="Allow faster TensorFlow ops that are not deterministic: runs will differ.",
        ),
    ] = False,
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICES",
            help="Devices that share each batch: `all` for all GPUs of this machine, or their "
            "number. Without a GPU, a number divides the CPU, to try it out.",
            show_default="one",
        ),
    ] = None,
    workers: Annotated[
        bool,
        typer.Option(
            "--workers",
            help="Share each batch with the workers that the variable TF_CONFIG names. Start the "
            "same command on each of them.",
        ),
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of threads.", show_default="all cores"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a quantized network. After Ctrl-C, the same command continues from a checkpoint.

    The defaults are those of the TQT paper, which trained on ImageNet. Small networks often need
    a higher --weight-rate: try 3e-5 to 1e-3.
    """
    from qgraph.cli.console import print_next
    from qgraph.cli.training import train_in
    from qgraph.retrain.run import facts_of
    from qgraph.train.options import Options

    options = Options(
        epochs=epochs,
        batch_size=batch_size,
        learn=learn,
        loss=loss,
        output=output,
        weight_rate=weight_rate,
        step_rate=step_rate,
        threshold_rate=threshold_rate,
        weight_decay=weight_decay,
        anneal_steps=anneal_steps,
        norm_epochs=norm_epochs,
        freeze_start=freeze_start,
        freeze_every=freeze_every,
        validate_every=validate_every,
        seed=seed,
    )
    trainer = train_in(
        directory,
        data,
        validation,
        options,
        restart=restart,
        fast=fast,
        threads=threads,
        devices=devices,
        workers=workers,
        as_json=as_json,
        resume=shlex.join(["qgraph", "train", *given(context, without=("restart",))]),
    )
    if as_json:
        print(json.dumps({"directory": str(directory), **facts_of(trainer)}))
        return
    if not trainer.replicas.task.is_chief:
        return
    print_next(["finalize", str(directory)])
