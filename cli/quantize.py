"""`qgraph quantize`: turn a trained network into a fixed-point network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qgraph.choices import Mode
from qgraph.cli.choice import choice
from qgraph.cli.network_options import (
    LoadOptions,
    PassOptions,
    PlanOptions,
    RayOptions,
    ResultOptions,
    StateOptions,
    TrainingOptions,
)
from qgraph.cli.option_groups import with_groups
from qgraph.cli.options import Calibration, ForceDirectory, Json, Model, check_model
from qgraph.errors import ExactnessError, OutputError, UsageError

if TYPE_CHECKING:
    from qgraph.evaluation import Evaluation
    from qgraph.pipelines import Pipeline
    from qgraph.stored.manifest import Manifest


LAYERS_SHOWN = 15  # by --sensitivity; the report shows all layers


@with_groups
def quantize(
    model: Model,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Output directory, new or empty.",
            show_default="MODEL_int8, MODEL_mixed or MODEL_retrain, beside the model",
        ),
    ] = None,
    calibration: Calibration = None,
    mode: Annotated[
        Mode,
        choice(
            Mode,
            "mode",
            metavar="MODE",
            help="static: quantize without training. retrain: write a training directory for "
            "`qgraph train`.",
        ),
    ] = Mode.STATIC,
    *,
    search: PlanOptions,
    elsewhere: RayOptions,
    wanted: ResultOptions,
    loading: LoadOptions,
    carried: StateOptions,
    listed: PassOptions,
    training: TrainingOptions,
    force: ForceDirectory = False,
    as_json: Json = False,
) -> None:
    """Quantize a trained network and write the bit-accurate fixed-point network.

    Without calibration data, thresholds are computed from batch-norm statistics, if the network
    has any.

    The output directory is written completely or not at all.
    """
    retrains = mode is Mode.RETRAIN
    if training.train_data is not None and not retrains:
        raise UsageError("--train-data is for --mode retrain", hint="give both, or neither")
    if training.training_graph is not None and not retrains:
        raise UsageError("--training-graph is for --mode retrain", hint="give both, or neither")
    if training.train_data is None and (training.validation is not None or training.fast):
        flag = "--fast" if training.validation is None else "--validation"
        raise UsageError(f"{flag} is for --train-data", hint="give both, or neither")
    calibrating = elsewhere.calibrating()
    check_model(model)
    from qgraph import compiler, retrain
    from qgraph.cli.console import at_work
    from qgraph.cli.evaluate import print_evaluation
    from qgraph.cli.tables import print_files, print_quantized, print_sensitivity
    from qgraph.cli.training import print_training_files
    from qgraph.quant.bits import budget_of
    from qgraph.quant.exponents import load_exponents
    from qgraph.quant.profile import load_profile
    from qgraph.quant.samples.data import check_source
    from qgraph.records import to_object
    from qgraph.retrain import directory
    from qgraph.retrain.training_graph import library_of
    from qgraph.stored import write as output_directory
    from qgraph.stored.manifest import read_manifest
    from qgraph.stored.read import INFERENCE

    # First what is quick to check: TensorFlow's import takes seconds.
    target = load_profile(search.profile)
    if training.training_graph is not None:
        library_of(training.training_graph)
    if output is None:
        bits = "mixed" if wanted.mean_bits or wanted.weight_bytes else f"int{target.bits.weight}"
        output = beside(model, "retrain" if retrains else bits)
    form = directory if retrains else output_directory
    with form.reserve(output, force=force) as place:
        if calibration is not None:
            check_source(calibration)
        options = search.keywords() | wanted.keywords() | loading.keywords() | carried.keywords()
        pipeline = listed.pipeline(target)
        pipeline.check(target)
        search.check(pipeline)
        if wanted.exponents is not None:
            load_exponents(wanted.exponents)
        budget_of(options["mean_bits"], options["weight_bytes"])
        with at_work(as_json) as progress, _evidence_kept(output), calibrating:
            if retrains:
                _check_trainable(model, loading, pipeline)
            result = compiler.quantize(
                model,
                calibration,
                mode=mode,
                passes=pipeline.passes,
                without=tuple(pipeline.without),
                progress=progress,
                **options,
            )
            progress("writing", 0, 1)
            form.write(result, place)
    if training.training_graph is not None:
        with at_work(as_json):
            retrain.save_training_graph(output, training.training_graph)
    if retrains and training.train_data is None:
        print_training_files(output, result.facts, as_json)
        return
    if training.train_data is not None:
        training.train(output, as_json)
        output = output / INFERENCE
        with at_work(as_json):
            retrain.finalize(output.parent).save(output)
    manifest = read_manifest(output)
    evaluated = _evaluated(
        output, manifest, training.validation if training.train_data else calibration, search.limit
    )
    if as_json:
        facts = {} if evaluated is None else {"evaluation": evaluated[0].facts()}
        print(json.dumps({"output": str(output), **to_object(manifest), **facts}))
        return
    print_quantized(manifest)
    if wanted.sensitivity:
        print_sensitivity(manifest, LAYERS_SHOWN)
    if evaluated is not None:
        print_evaluation(*evaluated)
    print_files(output, manifest)


def _evaluated(
    output: Path, manifest: Manifest, data: str | None, limit: int | None
) -> tuple[Evaluation, str] | None:
    """Accuracy on the data and a description of its samples; None if the data has no labels.

    Of calibration data, only the samples that calibration did not see are used, if there are any.
    """
    from qgraph.evaluation import evaluate, has_labels

    if not has_labels(data, [*manifest.inputs], [*manifest.outputs]):
        return None
    assert data is not None
    near = manifest.facts.agreement
    if manifest.facts.training is not None:
        return evaluate(output, data), f"of {data}, which the checkpoint was chosen on"
    if near is not None and near.held_out:
        found = evaluate(output, data, limit=limit, held_out=near.samples)
        return found, f"of {data}, which calibration did not see"
    return evaluate(output, data, limit=limit), f"of {data}, which calibration saw too"


def beside(model: Path, kind: str) -> Path:
    """The default output directory: `net_int8` for `net.pb` and `int8`.

    A directory keeps its whole name: `net.v2` becomes `net.v2_int8`.
    """
    if model.name in ("", ".."):
        model = model.resolve()
    name = model.stem if model.is_file() else model.name
    return model.with_name(f"{name}_{kind}")


@contextmanager
def _evidence_kept(output: Path) -> Iterator[None]:
    """Write codes that show why a network was refused to a file beside the output."""
    from qgraph.files import write_whole
    from qgraph.npz import npz_bytes

    try:
        yield
    except ExactnessError as error:
        if error.evidence:
            file = output.with_name(f"{output.name}-overflow.npz")
            with suppress(OutputError):
                write_whole(file, npz_bytes(error.evidence))
                error.hint = f"{error.hint}\n  {file} has input codes of the layer that cause it"
        raise


def _check_trainable(model: Path, loading: LoadOptions, pipeline: Pipeline) -> None:
    """Raise UnsupportedError early for an ONNX op that passes do not replace by supported ops."""
    from qgraph.backends.tf.lower import refusal_of
    from qgraph.frontends import load
    from qgraph.frontends.loading import is_onnx
    from qgraph.passes import PassManager
    from qgraph.quant.plan import PLAIN

    if is_onnx(model):
        graph = load(model, **loading.keywords())
        PassManager(pipeline.prepare(PLAIN)).run(graph)
        reason = refusal_of(graph)
        if reason is not None:
            raise reason
