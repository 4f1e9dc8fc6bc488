"""Options of networks: how a model is read, quantized and measured."""

from __future__ import annotations

import shlex
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qgraph.choices import DEFAULT_PROFILE, CalibrationMethod, Effort, TrainingGraphForm
from qgraph.cli.choice import choice
from qgraph.cli.completion import complete_passes
from qgraph.cli.option_groups import OptionGroup, ReadBy
from qgraph.cli.options import Limit, Profile, byte_count, names, own_modules, pairs, ranges, shapes
from qgraph.errors import UsageError
from qgraph.words import alternatives

if TYPE_CHECKING:
    from qgraph.pipelines import Pipeline
    from qgraph.quant.profile import Profile as TargetProfile


@dataclass(frozen=True, kw_only=True)
class LoadOptions(OptionGroup):
    """Options that read a model, as for `qgraph.load`."""

    inputs: Annotated[
        str | None,
        typer.Option(
            "--inputs",
            metavar="NAMES",
            help="Input tensors, comma separated. Needed only if they are not detected.",
        ),
        ReadBy(names),
    ] = None
    outputs: Annotated[
        str | None,
        typer.Option(
            "--outputs",
            metavar="NAMES",
            help="Output tensors, comma separated. Needed only if they are not detected.",
        ),
        ReadBy(names),
    ] = None
    input_shapes: Annotated[
        list[str] | None,
        typer.Option(
            "--input-shape",
            metavar="SHAPE",
            help="Shape of an input as [NAME=]N,H,W,C, with ? for an unknown dimension. "
            "Repeatable.",
        ),
        ReadBy(shapes),
    ] = None
    signature: Annotated[
        str | None,
        typer.Option(
            "--signature",
            metavar="NAME",
            help="Signature of a SavedModel to read.",
            show_default="serving_default",
        ),
    ] = None
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Allow a Keras file to run code: Lambda layers, functions and custom classes.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class PlanOptions(OptionGroup):
    """The target profile, and how static mode finds a plan."""

    profile: Profile = DEFAULT_PROFILE
    method: Annotated[
        CalibrationMethod | None,
        choice(
            CalibrationMethod,
            "calibration method",
            metavar="METHOD",
            help="Method that chooses the thresholds of activations: "
            f"{alternatives(CalibrationMethod)}.",
            show_default=CalibrationMethod.KL_J,
        ),
    ] = None
    effort: Annotated[
        Effort | None,
        choice(
            Effort,
            "effort",
            metavar="EFFORT",
            help="plain: quantize without a search. fast, default, thorough: try more and more "
            "plans on part of the samples, and keep the best one.",
            show_default="default; in qgraph analyze: plain",
        ),
    ] = None
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan",
            metavar="STEPS",
            help="Steps to apply instead of a search, such as equalize=biases,correct-bias,"
            "method=mse. `qgraph profiles` lists all steps.",
        ),
    ] = None
    budget: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Time limit of the search: no trial starts after it."
        ),
    ] = None
    limit: Limit = None

    def check(self, pipeline: Pipeline, effort: Effort | None = None) -> None:
        """Raise UsageError for options that exclude each other. effort: the command's default."""
        from qgraph.static.choice import PlanRequest, first_plan

        first_plan(PlanRequest(self.effort or effort, self.plan, self.method, pipeline=pipeline))


@dataclass(frozen=True, kw_only=True)
class RayOptions(OptionGroup):
    """Processes that calibration is split over."""

    ray_workers: Annotated[
        int | None,
        typer.Option(
            "--ray-workers",
            min=1,
            metavar="N",
            help="Split calibration over N processes of a Ray cluster, with the same result.",
            show_default=False,
        ),
    ] = None
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="With --ray-workers: the address of the cluster, such as auto.",
            show_default="a new one on this machine",
        ),
    ] = None

    def calibrating(self) -> AbstractContextManager[None]:
        """Calibration inside the block runs there. Raises UsageError."""
        if self.ray_workers is None:
            if self.ray is not None:
                raise UsageError("--ray is for --ray-workers", hint="give both, or neither")
            return nullcontext()
        from qgraph.static.ray_calibration import ray_workers

        return ray_workers(self.ray_workers, self.ray)


@dataclass(frozen=True, kw_only=True)
class PassOptions(OptionGroup):
    """The passes that run."""

    passes: Annotated[
        str | None,
        typer.Option(
            "--passes",
            metavar="LIST",
            help="Passes to run instead of the float recipe, such as "
            "float,equalize-channels{powers-of-two=true} or module:Class. `qgraph passes` lists "
            "all.",
            autocompletion=complete_passes,
        ),
    ] = None
    without: Annotated[
        str | None,
        typer.Option(
            "--without",
            metavar="NAMES",
            help="Passes to skip, comma separated.",
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
    """Limits on a quantized network, values to use in it, and what is shown of it."""

    input_ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--input-range",
            metavar="RANGE",
            help="Range of an input as [NAME=]MIN,MAX, for use without calibration data. "
            "Repeatable.",
        ),
        ReadBy(ranges),
    ] = None
    sensitivity: Annotated[
        bool,
        typer.Option("--sensitivity", help="Also show which layers cost accuracy, and why."),
    ] = False
    mean_bits: Annotated[
        float | None,
        typer.Option(
            metavar="BITS",
            help="Largest mean number of bits of a weight, such as 5. Bits (2, 4, 8 or 16) are "
            "chosen per layer.",
        ),
    ] = None
    weight_bytes: Annotated[
        str | None,
        typer.Option(
            "--weight-bytes",
            metavar="SIZE",
            help="Largest size of all weights, such as 200k or 1.5M. Bits are chosen per layer.",
        ),
        ReadBy(byte_count),
    ] = None
    exponents: Annotated[
        Path | None,
        typer.Option(
            "--exponents",
            metavar="FILE",
            help="exponents.json of an earlier run, edited or not, to use instead of calibration. "
            "It also sets the plan.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class StateOptions(OptionGroup):
    """The states of a network that computes one step of a sequence."""

    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="INPUT=OUTPUT",
            help="A state of a network that computes one step of a sequence: its input, and the "
            "output with its next value. Samples are then sequences, [n, steps, ...]. "
            "Repeatable.",
        ),
        ReadBy(pairs),
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
            help="With --mode retrain: also write a SavedModel that can be trained without qgraph. "
            "stock: uses TensorFlow ops only. library: uses the fused ops and includes their "
            "library. metagraph: writes MetaGraphs with a checkpoint instead.",
            show_default=False,
        ),
    ] = None
    train_data: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="With --mode retrain: also train on this data, and finalize.",
        ),
    ] = None
    validation: Annotated[
        str | None,
        typer.Option(
            metavar="DATA", help="With --train-data: data that the best checkpoint is chosen on."
        ),
    ] = None
    epochs: Annotated[
        int, typer.Option(min=1, metavar="N", help="With --train-data: number of epochs.")
    ] = 5
    fast: Annotated[
        bool,
        typer.Option(
            "--fast", help="With --train-data: train with ops that are not deterministic."
        ),
    ] = False

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
            resume=shlex.join(words),  # the same command continues from a checkpoint
        )
