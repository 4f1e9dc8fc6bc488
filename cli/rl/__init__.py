"""`qgraph rl`: policies in reinforcement learning."""

from __future__ import annotations

import typer

from qgraph.cli.rl.evaluate import evaluate
from qgraph.cli.rl.quantize import quantize
from qgraph.cli.rl.train import train
from qgraph.cli.rl.train_options import TrainCommand

app = typer.Typer(
    name="rl",
    help="Policies as small programs: learn them with quantized actors, quantize and judge them.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(quantize)
app.command()(evaluate)
app.command(cls=TrainCommand)(train)
