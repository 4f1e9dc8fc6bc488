"""The training graph of a directory as a SavedModel, which trains without qgraph."""

from __future__ import annotations

import shutil
from pathlib import Path

from qgraph.choices import TrainingGraphForm, chosen
from qgraph.errors import UsageError
from qgraph.files import text_path, whole_directory
from qgraph.quiet import quiet_tensorflow
from qgraph.retrain.directory import TRAINING_GRAPH, load
from qgraph.train.fused import LIBRARY, library_path

LIBRARY_COPY = "ops.so"
FILES = (
    "saved_model.pb", "fingerprint.pb", "variables", "assets", LIBRARY_COPY,
    "batch.meta", "frozen.meta", "model.ckpt.index", "model.ckpt.data-00000-of-00001",
)  # fmt: skip


@quiet_tensorflow()
def save_training_graph(path: str | Path, form: str = TrainingGraphForm.STOCK) -> Path:
    """Write the training graph, as after calibration, as a SavedModel that trains without qgraph.

    It is written to `training_graph/` in the directory. An older one is replaced.

    Args:
        path: A directory that `save` or `qgraph quantize --mode retrain` wrote.
        form: `stock` uses TensorFlow's own ops. `library` uses qgraph's fused ops; their library
            is copied beside the SavedModel. `metagraph` writes MetaGraphs with a checkpoint
            instead of a SavedModel, for scripts with sessions.

    Returns:
        The path of the directory `training_graph`, which is the SavedModel.

    Raises:
        LoadError: The directory is not a training directory.
        UsageError: The form is unknown, or the library is not installed.
        OutputError: It cannot be written.

    Examples:
        >>> print(qgraph.retrain.save_training_graph("tuned"))
        tuned/training_graph
    """
    from qgraph.train.saved_graph.meta_graph import write_meta_graphs
    from qgraph.train.saved_graph.module import write_saved_graph
    from qgraph.train.saved_graph.ops import library_ops, stock_ops

    wanted, found = chosen(TrainingGraphForm, form, "training graph"), load(path)
    library = library_of(wanted)
    ops = stock_ops() if library is None else library_ops()
    target = Path(path) / TRAINING_GRAPH
    with whole_directory(target, FILES) as draft, text_path(draft) as place:
        if wanted == TrainingGraphForm.METAGRAPH:
            write_meta_graphs(place, found.graph, found.norms)
        else:
            write_saved_graph(place, found.graph, found.norms, ops)
        if library is not None:
            shutil.copyfile(library, draft / LIBRARY_COPY)
    return target


def library_of(form: str) -> Path | None:
    """The library that a form needs, or None. Raises UsageError where it is not installed."""
    if form != TrainingGraphForm.LIBRARY:
        return None
    found = library_path()
    if found is None:
        raise UsageError(f"{LIBRARY} is not installed", hint="take --training-graph stock")
    return found
