"""`qgraph rl`: policies of reinforcement learning."""

from __future__ import annotations

import typer

from qgraph.cli.command import CommandGroup
from qgraph.cli.rl.command import RlCommand
from qgraph.cli.rl.deploy import deploy
from qgraph.cli.rl.evaluate import evaluate
from qgraph.cli.rl.quantize import quantize
from qgraph.cli.rl.train import train
from qgraph.cli.rl.train_options import TrainCommand

app = typer.Typer(
    name="rl",
    cls=CommandGroup,
    add_completion=False,
    help="Train, quantize, evaluate and deploy policies of reinforcement learning.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=RlCommand)(quantize)
app.command(cls=RlCommand)(evaluate)
app.command(cls=RlCommand)(deploy)
app.command(cls=TrainCommand)(train)
