"""A trained policy as a frozen TensorFlow graph, with facts in a JSON file beside it.

`qgraph rl quantize` and `qgraph rl evaluate` read it, and other tools for TensorFlow graphs.
Imports TensorFlow: import it late.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import (  # of TensorFlow's public guides
    convert_variables_to_constants_v2,
)

from qgraph.files import write_whole
from qgraph.foreign import Proto, Tensor
from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram
from qgraph.rl.learn.networks import OBSERVED, SELECTED
from qgraph.rl.learn.tensors import run_all


def write_policy(
    path: Path, program: ActorProgram, weights: Mapping[str, Array], about: Mapping[str, object]
) -> None:
    """Write `path` (.pb), from `observation` [n, *shape] to `action` [n, m], and `about` beside it.

    States of a recurrent policy are inputs, and their next values outputs. Raises OutputError.
    """

    names = ["action", *(f"{state.name}_next" for state in program.states)]

    @tf.function(input_signature=_signature(program))  # type: ignore[untyped-decorator]
    def policy(observation: Tensor, *states: Tensor) -> list[Tensor]:
        own = zip(program.states, states, strict=True)
        given = {f"{SELECTED}{state.name}": value for state, value in own}
        if given:
            given[OBSERVED] = observation
        return run_all(program, weights, None if given else observation, given=given)

    frozen = convert_variables_to_constants_v2(policy.get_concrete_function())
    message = frozen.graph.as_graph_def()
    ends = {tensor.op.name: name for tensor, name in zip(frozen.outputs, names, strict=True)}
    for node in message.node:  # no node takes an output of the function
        node.name = ends.get(node.name, node.name)
    _sort(message, [tensor.op.name for tensor in frozen.inputs])
    write_whole(path, message.SerializeToString(deterministic=True))
    facts: dict[str, object] = {"input": "observation:0", "output": "action:0", **about}
    if program.states:
        facts["states"] = {state.name: f"{state.name}_next" for state in program.states}
    write_whole(path.with_suffix(".json"), (json.dumps(facts, indent=1) + "\n").encode())


def _sort(message: Proto, inputs: Sequence[str]) -> None:
    """Order nodes: inputs as in the signature, then names. TensorFlow's order differs by run."""
    places = {name: place for place, name in enumerate(inputs)}
    message.node.sort(key=lambda node: (places.get(node.name, len(places)), node.name))


def _signature(program: ActorProgram) -> list[Tensor]:
    """The inputs: the observation, and each state."""
    if not program.states:
        return [tf.TensorSpec((None, *program.shape), tf.float32, "observation")]
    sizes = {"observation": program.observed, **{s.name: s.size for s in program.states}}
    return [tf.TensorSpec((None, size), tf.float32, name) for name, size in sizes.items()]
