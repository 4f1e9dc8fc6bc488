"""Options of networks: how a model is read, quantized and measured."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qgraph.choices import DEFAULT_PROFILE, CalibrationMethod, Effort, TrainingGraphForm
from qgraph.cli.choice import choice
from qgraph.cli.completion import complete_passes
from qgraph.cli.option_groups import OptionGroup, ReadBy
from qgraph.cli.options import Limit, Profile, byte_count, names, own_modules, ranges, shapes
from qgraph.words import alternatives

if TYPE_CHECKING:
    from qgraph.pipelines import Pipeline
    from qgraph.quant.profile import Profile as TargetProfile


@dataclass(frozen=True, kw_only=True)
class LoadOptions(OptionGroup):
    """How a model is read, for `qgraph.load`."""

    inputs: Annotated[
        str | None,
        typer.Option(
            "--inputs",
            metavar="NAMES",
            help="Names of the inputs, comma separated, where they are not detected.",
        ),
        ReadBy(names),
    ] = None
    outputs: Annotated[
        str | None,
        typer.Option("--outputs", metavar="NAMES", help="Names of the outputs, likewise."),
        ReadBy(names),
    ] = None
    input_shapes: Annotated[
        list[str] | None,
        typer.Option(
            "--input-shape",
            metavar="SHAPE",
            help="Shape of an input: [NAME=]N,H,W,C with ? for unknown. Repeatable.",
        ),
        ReadBy(shapes),
    ] = None
    signature: Annotated[
        str | None,
        typer.Option(
            "--signature",
            metavar="NAME",
            help="Which signature of a SavedModel, where it has several.",
            show_default="serving_default",
        ),
    ] = None
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Let a Keras file run what it names: Lambda layers, functions, custom classes.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class PlanOptions(OptionGroup):
    """The target, and how static mode finds its plan."""

    profile: Profile = DEFAULT_PROFILE
    method: Annotated[
        CalibrationMethod | None,
        choice(
            CalibrationMethod,
            "calibration method",
            metavar="METHOD",
            help=f"Thresholds of activations: {alternatives(CalibrationMethod)}.",
            show_default=CalibrationMethod.KL_J,
        ),
    ] = None
    effort: Annotated[
        Effort | None,
        choice(
            Effort,
            "effort",
            metavar="EFFORT",
            help="plain: quantize as it is; fast, default, thorough: try what helps on part of "
            "the samples, and keep what does.",
            show_default="default; to analyze: plain",
        ),
    ] = None
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan",
            metavar="STEPS",
            help="Exactly these steps, in place of an effort: equalize=biases,correct-bias,"
            "method=mse. A wrong one lists what is there.",
        ),
    ] = None
    budget: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Begin no further trial after so long."),
    ] = None
    limit: Limit = None

    def check(self, pipeline: Pipeline, effort: Effort | None = None) -> None:
        """Raise UsageError where they exclude each other. effort: the usual one of the verb."""
        from qgraph.static.choice import Wish, first_plan

        first_plan(Wish(self.effort or effort, self.plan, self.method, pipeline=pipeline))


@dataclass(frozen=True, kw_only=True)
class PassOptions(OptionGroup):
    """Which passes run."""

    passes: Annotated[
        str | None,
        typer.Option(
            "--passes",
            metavar="LIST",
            help="These passes in place of the float recipe, like "
            "float,equalize-channels{powers-of-two=true} or module:Class (qgraph passes lists "
            "all).",
            autocompletion=complete_passes,
        ),
    ] = None
    without: Annotated[
        str | None,
        typer.Option(
            "--without",
            metavar="NAMES",
            help="Passes to leave out, comma separated.",
            autocompletion=complete_passes,
        ),
    ] = None

    def pipeline(self, profile: TargetProfile | None = None) -> Pipeline:
        """The pipeline, which may name passes of the current directory. Raises UsageError."""
        from qgraph.pipelines import pipeline_of

        own_modules()
        return pipeline_of(self.passes, self.without or "", profile)


@dataclass(frozen=True, kw_only=True)
class ResultOptions(OptionGroup):
    """Limits on a quantized network, and what is given or shown of it."""

    input_ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--input-range",
            metavar="RANGE",
            help="Without calibration data, where inputs lie: [NAME=]LEAST,MOST. Repeatable.",
        ),
        ReadBy(ranges),
    ] = None
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity", help="Also show which layers hurt, and why, here and in the report."
        ),
    ] = False
    mean_bits: Annotated[
        float | None,
        typer.Option(
            metavar="BITS",
            help="What weights may take on average, like 5: bits (2, 4, 8, 16) are chosen layer "
            "by layer.",
        ),
    ] = None
    weight_bytes: Annotated[
        str | None,
        typer.Option(
            "--weight-bytes",
            metavar="SIZE",
            help="What all weights may take, like 200k or 1.5M: bits are chosen layer by layer.",
        ),
        ReadBy(byte_count),
    ] = None
    exponents: Annotated[
        Path | None,
        typer.Option(
            "--exponents",
            metavar="FILE",
            help="Exponents in place of a calibration: the exponents.json of an earlier run, "
            "edited or not. The plan is that of the file.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(OptionGroup):
    """Options of `qgraph quantize --mode retrain`."""

    training_graph: Annotated[
        TrainingGraphForm | None,
        choice(
            TrainingGraphForm,
            "training graph",
            "--training-graph",
            metavar="FORM",
            help="With --mode retrain: also write the training graph as a SavedModel that trains "
            "without qgraph; stock: of TensorFlow's ops; library: of the fused ops, with their "
            "library.",
            show_default=False,
        ),
    ] = None
    train_data: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="With --mode retrain: train and finalize too, on this data.",
        ),
    ] = None
    validation: Annotated[
        str | None, typer.Option(metavar="DATA", help="With --train-data: as in qgraph train.")
    ] = None
    epochs: Annotated[
        int, typer.Option(min=1, metavar="N", help="With --train-data: as in qgraph train.")
    ] = 5
    fast: Annotated[bool, typer.Option("--fast", help="With --train-data: as in qgraph train.")] = (
        False
    )

    def train(self, directory: Path, as_json: bool) -> None:
        """Train in a directory, as `qgraph train` does, on `train_data`."""
        from qgraph.cli.training import train_in
        from qgraph.train.options import Options

        assert self.train_data is not None
        words = ["qgraph", "train", str(directory), "--data", self.train_data]
        words += ["--validation", self.validation] if self.validation else []
        words += ["--epochs", str(self.epochs), *(["--fast"] if self.fast else [])]
        train_in(
            directory,
            self.train_data,
            self.validation,
            Options(epochs=self.epochs),
            fast=self.fast,
            as_json=as_json,
            resume=shlex.join(words),  # the same command goes on from a checkpoint
        )
