"""Retraining: a quantized network that learns, as a directory between its three verbs.

from qgraph import quantize, retrain
retrain.save(quantize("model.pb", "calib.npz", mode="retrain"), "out")
retrain.train("out", "train.npz", "validation.npz")
retrain.finalize("out").save("out/inference")
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from qgraph.artifacts import finite_all, versions
from qgraph.compiler import Quantized, finished
from qgraph.errors import LoadError, QGraphError, UnsupportedError
from qgraph.files import check_free, whole_directory
from qgraph.ir.graph import Graph
from qgraph.ir.text import parse_graph, print_graph
from qgraph.ir.types import Array
from qgraph.quant.profile import Profile, dump_profile, load_profile
from qgraph.quant.shifts import check_shifts
from qgraph.rewrite.trace import Trace
from qgraph.static.agreement import agreement
from qgraph.train.checkpoint import read_checkpoint
from qgraph.train.data import Source, training_data
from qgraph.train.folded import Norm, norms_of
from qgraph.train.fused import set_threads
from qgraph.train.keep import load_checkpoint as load_checkpoint
from qgraph.train.keep import save_checkpoint as save_checkpoint
from qgraph.train.loop import BEST, LAST, SAVE_SECONDS, Trainer, network_of, restore
from qgraph.train.loop import CHECKPOINTS as CHECKPOINTS
from qgraph.train.model import TrainingGraph
from qgraph.train.options import Options
from qgraph.train.score import Watch
from qgraph.train.state import state_of

if TYPE_CHECKING:
    from qgraph.train.keras import QuantizedModel
    from qgraph.train.module import TrainingModule

FORMAT = 1  # of training.json and what it stands for
INFERENCE = "inference"
FILES = MappingProxyType(
    {
        "training.json": "versions, names, what the calibration found",
        "graph.txt": "the quantized graph as text",
        "float.txt": "the float graph, which teaches where there are no labels",
        "arrays.npz": "weights, batch norms and samples of both",
        "profile.yaml": "the target profile",
        "rewrites.json": "what was rewritten, what was refused and why",
    }
)
# What later verbs add; a run that replaces the files above takes these away too.
ADDED = (CHECKPOINTS, INFERENCE)
TOLD = ("options", "loss", "at", "history", "best")  # of a checkpoint, in the manifest
NORM_NAMES = ("layer", "side", "weights", "bias")
NORM_ARRAYS = ("mean", "variance", "epsilon")


@dataclass(frozen=True)
class Training:
    """What a training directory holds: a calibrated graph, its float twin, and where it came from.

    `sample` and `few` are calibration inputs: one batch, and those that noise is measured on.
    """

    graph: Graph
    floating: Graph
    norms: tuple[Norm, ...]
    profile: Profile
    method: str
    trace: Trace
    sample: Mapping[str, Array]
    few: Mapping[str, Array]
    facts: Mapping[str, Any]

    def model(self) -> TrainingGraph:
        """With variables as calibration left them."""
        return TrainingGraph(self.graph, self.norms)


def check_output(path: Path, *, force: bool = False) -> None:
    """Raise OutputError unless `save` can write to `path`."""
    check_free(path, (*FILES, *ADDED) if force else ())


def save(result: Quantized, path: str | Path, *, force: bool = False) -> Path:
    """Write a directory to train in, whole or not at all.

    `force` replaces one that is there, with its checkpoints. Raises UnsupportedError for a network
    that cannot be trained, OutputError.
    """
    path = Path(path)
    check_trainable(result.graph)
    norms = norms_of(result.floating)
    arrays: dict[str, Any] = {
        **_constants("constant", result.graph),
        **_constants("float", result.floating),
        **{f"sample/{name}": array for name, array in result.sample.items()},
        **{f"few/{name}": array for name, array in result.few.items()},
    }
    for i, norm in enumerate(norms):
        arrays.update({f"norm/{i}/{part}": getattr(norm, part) for part in NORM_ARRAYS})
    about = {
        "format": FORMAT,
        "versions": versions(),
        "network": network_of(result.graph),
        "method": result.calibration.method,
        "established": sorted(result.graph.facts),
        "norms": [{name: getattr(n, name) for name in NORM_NAMES} for n in norms],
        "facts": finite_all(result.facts),
    }
    with whole_directory(path, (*FILES, *ADDED) if force else ()) as draft:
        (draft / "graph.txt").write_text(print_graph(result.graph), "utf-8")
        (draft / "float.txt").write_text(print_graph(result.floating), "utf-8")
        (draft / "profile.yaml").write_text(dump_profile(result.profile), "utf-8")
        (draft / "rewrites.json").write_text(json.dumps(result.trace.to_json(), indent=1), "utf-8")
        (draft / "training.json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")
        np.savez(draft / "arrays.npz", **arrays)
    return path


def check_trainable(graph: Graph) -> None:
    """Raise UnsupportedError for a graph that cannot be trained, or not be written for it."""
    opaque = next((node for node in graph.topological() if node.op == "opaque"), None)
    if opaque is not None:
        raise UnsupportedError(
            f"`{opaque.attrs.get('kind')}` is not understood: it cannot be trained through",
            node=opaque.name,
            hint="cut the network before or behind it: --inputs, --outputs",
        )
    state_of(graph)


def _constants(kind: str, graph: Graph) -> dict[str, Array]:
    nodes = (node for node in graph.topological() if node.op == "const")
    return {f"{kind}/{node.name}": node.attrs["value"] for node in nodes}


def load(path: str | Path) -> Training:
    """What `save` wrote. Raises LoadError."""
    path = Path(path)
    try:
        about = json.loads((path / "training.json").read_text("utf-8"))
        if about["format"] != FORMAT:
            raise LoadError(
                f"was written by another version of qgraph: format {about['format']}, "
                f"this version reads {FORMAT}",
                node=str(path),
                hint="quantize the model again",
            )
        with np.load(path / "arrays.npz", allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        graph = parse_graph((path / "graph.txt").read_text("utf-8"), _part(arrays, "constant"))
        floating = parse_graph((path / "float.txt").read_text("utf-8"), _part(arrays, "float"))
        graph.facts.update(about["established"])
        trace = Trace.from_json(json.loads((path / "rewrites.json").read_text("utf-8")))
        norms = tuple(
            Norm(**names, **{part: arrays[f"norm/{i}/{part}"] for part in NORM_ARRAYS})
            for i, names in enumerate(about["norms"])
        )
        profile = load_profile(path / "profile.yaml")
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise _foreign(path, error) from None
    except LoadError:
        raise
    except QGraphError as error:
        raise _foreign(path, error) from None
    sample, few = _part(arrays, "sample"), _part(arrays, "few")
    return Training(
        graph, floating, norms, profile, about["method"], trace, sample, few, about["facts"]
    )


def _part(arrays: Mapping[str, Array], kind: str) -> dict[str, Array]:
    return {k.removeprefix(f"{kind}/"): v for k, v in arrays.items() if k.startswith(f"{kind}/")}


def _foreign(path: Path, error: Exception) -> LoadError:
    return LoadError(
        f"is not what `qgraph quantize --mode retrain` wrote: {type(error).__name__}: {error}",
        node=str(path),
        hint="give the directory that its -o named",
    )


def train(
    path: str | Path,
    data: Source,
    validation: Source | None = None,
    options: Options | None = None,
    *,
    restart: bool = False,
    save_seconds: float = SAVE_SECONDS,
    watch: Watch = lambda status: None,
) -> Trainer:
    """Train in the directory `path`, from its newest checkpoint on, to the end of `options.epochs`.

    data, validation: see `qgraph.train.data.training_data`. restart: begin anew, without the
    checkpoints that are there. A run that was killed and goes on ends with the same bits, where
    TensorFlow's ops are deterministic (`make_deterministic`). Raises LoadError, CalibrationError,
    UsageError, TrainingError, OutputError.
    """
    made = trainer(path, data, validation, options, restart=restart)
    made.save_seconds, made.watch = save_seconds, watch
    made.run()
    return made


def trainer(
    path: str | Path,
    data: Source,
    validation: Source | None = None,
    options: Options | None = None,
    *,
    restart: bool = False,
) -> Trainer:
    """What `train` runs, not yet running."""
    path, options = Path(path), options or Options()
    found, checkpoints = load(path), path / CHECKPOINTS
    size, seed = options.batch_size, options.seed
    made = Trainer(
        found.graph,
        found.floating,
        found.norms,
        training_data(data, found.graph, size, seed),
        None if validation is None else training_data(validation, found.graph, size, seed),
        options,
        folder=checkpoints,
    )
    if restart:
        shutil.rmtree(checkpoints, ignore_errors=True)
    checkpoints.mkdir(exist_ok=True)
    return made


def keras_model(source: str | Path | Training | Quantized) -> QuantizedModel:
    """A network to train, as a `tf_keras.Model`; as calibration left it.

    source: a directory that `save` wrote, or what is in memory. Raises LoadError, UnsupportedError.
    """
    from qgraph.train.keras import QuantizedModel

    return QuantizedModel(*_twins(source))


def module(source: str | Path | Training | Quantized) -> TrainingModule:
    """A network to train in a loop of your own, as a `tf.Module`. Else as `keras_model`."""
    from qgraph.train.module import TrainingModule

    graph, _, norms = _twins(source)
    return TrainingModule(graph, norms)


def _twins(source: str | Path | Training | Quantized) -> tuple[Graph, Graph, tuple[Norm, ...]]:
    """The calibrated graph, its float twin, and the batch norms in them."""
    if isinstance(source, Quantized):
        check_trainable(source.graph)
        return source.graph, source.floating, norms_of(source.floating)
    found = source if isinstance(source, Training) else load(source)
    return found.graph, found.floating, found.norms


def make_deterministic() -> None:
    """Have TensorFlow choose ops that give the same bits in every run, in this process."""
    import tensorflow as tf

    tf.config.experimental.enable_op_determinism()


def use_threads(count: int) -> None:
    """Bound the threads of TensorFlow's ops and of ours, at least 1; before any op has run."""
    import tensorflow as tf

    set_threads(count)
    tf.config.threading.set_intra_op_parallelism_threads(count)
    tf.config.threading.set_inter_op_parallelism_threads(count)


def finalize(path: str | Path, *, last: bool = False) -> Quantized:
    """The network of the best checkpoint in the directory `path`, or of the last one.

    What noise each layer has is measured against float layers with the weights as trained; the
    agreement at the outputs against the float network as it came. Raises LoadError where there is
    no checkpoint, ExactnessError where training led to scales that the profile does not have.
    """
    path = Path(path)
    found = load(path)
    file = path / CHECKPOINTS / (LAST if last else BEST)
    if not file.exists():
        raise LoadError(
            "there is no checkpoint yet", node=str(file), hint=f"qgraph train {path} --data DATA"
        )
    checkpoint = read_checkpoint(file, network_of(found.graph))
    model = found.model()
    restore(model.named_variables(), checkpoint)
    graph = model.finalized()
    check_shifts(graph, found.profile.shift)
    facts = {
        **found.facts,
        "agreement": None,
        "training": {name: checkpoint.facts.get(name) for name in TOLD},
    }
    if found.few:
        near = agreement(found.floating, graph, found.few)
        facts["agreement"] = {**asdict(near), "held_out": False}
    return finished(
        graph,
        with_trained_constants(found.floating, graph),
        found.profile,
        found.method,
        found.trace,
        found.sample,
        found.few,
        facts,
    )


def with_trained_constants(floating: Graph, trained: Graph) -> Graph:
    """The float graph with the constants that `trained`, its quantized twin, has now."""
    made = floating.copy()
    for node in floating.topological():
        value = trained.constant(node.name) if node.name in trained.nodes else None
        if node.op == "const" and value is not None:
            made.set_attrs(node.name, value=value)
    return made


def facts_of(trainer: Trainer) -> dict[str, Any]:
    """What a run has come to, for JSON."""
    return {
        "epochs": trainer.at.epoch,
        "steps": trainer.at.step,
        "best": asdict(trainer.best_score) if trainer.best_score else None,
        "history": [asdict(score) for score in trainer.history],
    }
