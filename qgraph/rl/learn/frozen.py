"""A trained policy as a frozen TensorFlow graph, with facts in a JSON file beside it.

`qgraph rl quantize` and `qgraph rl evaluate` read it, and other tools for TensorFlow graphs.
Imports TensorFlow: import it late.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import (  # of TensorFlow's public guides
    convert_variables_to_constants_v2,
)

from qgraph.files import write_whole
from qgraph.foreign import Tensor
from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram
from qgraph.rl.learn.tensors import run


def write_policy(
    path: Path, program: ActorProgram, weights: Mapping[str, Array], about: Mapping[str, object]
) -> None:
    """Write `path` (.pb), from `observation` [n, *shape] to `action` [n, m], and `about` beside it.

    Raises OutputError.
    """

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=[tf.TensorSpec((None, *program.shape), tf.float32, "observation")]
    )
    def policy(observation: Tensor) -> Tensor:
        return tf.identity(run(program, weights, observation), "action")

    frozen = convert_variables_to_constants_v2(policy.get_concrete_function())
    write_whole(path, frozen.graph.as_graph_def().SerializeToString())
    facts = {"input": "observation:0", "output": "action:0", **about}
    write_whole(path.with_suffix(".json"), (json.dumps(facts, indent=1) + "\n").encode())
