"""Exported ONNX files whose action is not clear are refused, with what to do."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import qgraph
from qgraph.errors import UnsupportedError, UsageError
from qgraph.rl.policy import read_policy
from tests.helpers.exported_policies import (
    cleanrl,
    ml_agents,
    rl_games,
    rsl_rl,
    stable_baselines,
)

ACTIONS = "deterministic_continuous_actions"


def without_state(kind):
    """A recurrent layer whose states are buffers of the module, so constants of the file."""
    model = rsl_rl.recurrent(kind)
    for given in model.graph.input[1:]:
        zeros = np.zeros((1, 1, rsl_rl.STATE), np.float32)
        model.graph.initializer.append(numpy_helper.from_array(zeros, given.name))
    del model.graph.input[1:], model.graph.output[1:]
    return model


REFUSED = {
    "rl_games": (rl_games.continuous, UsageError, "`mu`, `log_std`, `value`"),
    "sb3": (stable_baselines.actor_and_critic, UsageError, "`27`, `28`"),
    "godot": (stable_baselines.godot, UsageError, "`output`, `state_outs`"),
    "lstm": (rsl_rl.recurrent, UnsupportedError, r"`h_in`, `c_in`(.|\n)*in states, each with"),
    "drawn": (
        ml_agents.continuous,
        UnsupportedError,
        rf"random numbers(.|\n)*--outputs {ACTIONS}$",
    ),
    "masks": (ml_agents.discrete, UnsupportedError, r"--outputs deterministic_discrete_actions$"),
    "lstm of buffers": (
        lambda: without_state("LSTM"),
        UnsupportedError,
        r"remembers nothing(.|\n)*name them in states",
    ),
    "gru of buffers": (lambda: without_state("GRU"), UnsupportedError, "remembers nothing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_files_without_one_clear_action_are_refused(name, saved):
    build, error, told = REFUSED[name]
    with pytest.raises(error, match=told):
        read_policy(saved(build()))


def test_masks_are_refused_by_name_and_logits_before_them_are_read(saved):
    model = ml_agents.discrete()
    file = saved(model)
    with pytest.raises(UnsupportedError, match="`obs_0`, `action_masks`"):
        read_policy(file, outputs=["deterministic_discrete_actions"])
    logits = [node.output[0] for node in model.graph.node if node.op_type == "Gemm"][-1]
    assert read_policy(file, outputs=[logits]).program.size(logits) == ml_agents.CHOICES[-1]


def test_several_layers_of_state_are_refused_with_the_remedy(saved):
    file, x = saved(rsl_rl.recurrent(layers=2)), np.zeros((2, 3, 6), np.float32)
    with pytest.raises(UsageError, match=r"`h_in` is float32\[2,1,5\](.|\n)*state of each layer"):
        qgraph.quantize(file, {"obs": x}, states={"h_in": "h_out", "c_in": "c_out"})


def test_constant_outputs_are_left_out_unless_they_are_named(saved):
    model = cleanrl.gaussian_actor()
    model.graph.initializer.append(numpy_helper.from_array(np.float32([3]), "version_number"))
    version = onnx.helper.make_tensor_value_info("version_number", TensorProto.FLOAT, [1])
    model.graph.output.insert(0, version)
    file = saved(model)
    assert read_policy(file).program.outputs == ("action_mean",)
    with pytest.raises(UnsupportedError, match="does not depend on the observation"):
        read_policy(file, outputs=["version_number", "action_mean"])
