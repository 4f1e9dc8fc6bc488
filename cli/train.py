"""`qgraph train`: thresholds and weights of a quantized network learn together."""

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
    directory: Annotated[Path, typer.Argument(help="What `qgraph quantize --mode retrain` wrote.")],
    data: Annotated[
        str,
        typer.Option(
            metavar="DATA",
            help="A .npz (arrays named like the inputs; labels under `labels`, or none), a "
            "directory of such files, a saved tf.data.Dataset, or module:function.",
        ),
    ],
    validation: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="What the best checkpoint is chosen on, likewise."),
    ] = None,
    epochs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Times that all training data is seen.")
    ] = 5,
    batch_size: Annotated[
        int, typer.Option(min=1, metavar="N", help="Samples of each training step.")
    ] = 32,
    learn: Annotated[
        Learning,
        choice(Learning, "part to learn", metavar="WHAT", help=f"{alternatives(Learning)}."),
    ] = Learning.ALL,
    loss: Annotated[
        LossKind | None,
        choice(
            LossKind,
            "loss",
            metavar="LOSS",
            help="labels: cross entropy; teacher: KL to the float network; mse: to its output.",
            show_default="labels where there are some; else teacher",
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option(metavar="NAME", help="The output to train, of several.")
    ] = None,
    weight_rate: Annotated[
        float, typer.Option(min=0, metavar="RATE", help="Learning rate of the weights.")
    ] = 1e-6,
    threshold_rate: Annotated[
        float, typer.Option(min=0, metavar="RATE", help="Learning rate of the thresholds.")
    ] = 1e-2,
    weight_decay: Annotated[
        float,
        typer.Option(min=0, metavar="FACTOR", help="Weight of the squared weights in the loss."),
    ] = 0.0,
    anneal_steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="STEPS",
            help="The rate of weights falls to 1/20 along half a cosine.",
            show_default="it stays",
        ),
    ] = None,
    norm_epochs: Annotated[
        float,
        typer.Option(
            min=0, metavar="N", help="Epochs until the statistics of batch norms are frozen."
        ),
    ] = 1.0,
    freeze_start: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="STEP",
            help="From here on thresholds are frozen, one by one.",
            show_default="1000 at a batch of 24",
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
            show_default="once an epoch",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed of the order of the training data.")
    ] = 0,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin again: earlier checkpoints are removed.")
    ] = False,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Let TensorFlow choose ops that give other bits every run."),
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Threads to use.", show_default="all cores"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train in a directory. Ctrl-C keeps a checkpoint, from which the same command goes on.

    Defaults are those of the paper (TQT), which had ImageNet: small networks take higher weight
    rates, like 1e-4.
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
        as_json=as_json,
        resume=shlex.join(["qgraph", "train", *given(context, without=("restart",))]),
    )
    if as_json:
        print(json.dumps({"directory": str(directory), **facts_of(trainer)}))
        return
    print_next(["finalize", str(directory)])
