"""Pruned programs are smaller, and compute what is left when units are masked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.errors import UnsupportedError, UsageError
from qgraph.rl.compress import ChainPolicy, Compressor
from qgraph.rl.compress.channels import channels_of
from qgraph.rl.compress.prune import chosen
from qgraph.rl.learn.networks import network
from qgraph.rl.policy import floats
from tests.helpers.actors import cnn, every_op, everything, mlp, random_weights


def policy(program, seed=0):
    return ChainPolicy(program, random_weights(program, seed))


def seen(program, n=7, seed=1):
    return np.random.default_rng(seed).normal(size=(n, *program.shape)).astype("f4")


def outputs(made, x):
    return floats.run(made.program, made.weights, x)


def removed_of(made, sparsity):
    """The units that are removed from each layer, bool, by the layer's output."""
    channels = channels_of(made.program)
    gone = chosen(made.program, dict(made.weights), channels, sparsity)
    return {name: gone[units] for name, units in channels.groups.items()}


def close(found, wanted):
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert found[name] == pytest.approx(wanted[name], rel=2e-5, abs=2e-5)


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 12), min_size=3, max_size=5),
    st.floats(0, 0.99, exclude_min=True),
    st.integers(0, 99),
)
def test_a_pruned_network_is_the_masked_one(sizes, sparsity, seed):
    whole = policy(mlp(*sizes), seed)
    pruned = Compressor().prune(sparsity)(whole)
    gone, masked = removed_of(whole, sparsity), dict(whole.weights)
    for i in range(len(sizes) - 2):
        masked[f"w{i + 1}"] = np.where(gone[f"y{i}"][:, None], 0, masked[f"w{i + 1}"])
        left = sizes[i + 1] - int(np.floor(sparsity * sizes[i + 1] + 1e-9))
        assert pruned.weights[f"b{i}"].shape == (left,) and left > 0
    x = seen(whole.program)
    close(outputs(pruned, x), floats.run(whole.program, masked, x))


def test_feature_maps_go_through_pools_and_flattening():
    whole = policy(cnn())
    program = whole.program
    only_y = type(program)(program.shape, program.steps, ("y",), program.weight_shapes)
    whole = ChainPolicy(only_y, whole.weights)
    pruned = Compressor().prune(0.5)(whole)
    gone, masked = removed_of(whole, 0.5), dict(whole.weights)
    assert pruned.weights["w1"].shape == (2, 3, 9, 35)
    masked["w1"] = np.where(gone["c0"][:, None], 0, masked["w1"])
    height, width, channels = only_y.shapes()["p"]
    rows = masked["w2"].reshape(height, width, channels, -1)
    masked["w2"] = np.where(gone["c1"][:, None], 0, rows).reshape(masked["w2"].shape)
    assert pruned.weights["w2"].shape == (height * width * 35, 5)
    x = seen(only_y)
    close(outputs(pruned, x), floats.run(only_y, masked, x))


def test_a_value_that_is_an_output_keeps_its_units():
    pruned = Compressor().prune(0.5)(policy(cnn()))  # c1 is an output
    assert pruned.weights["w0"].shape[-1] == 9 and pruned.weights["w1"].shape[-1] == 70


def test_dueling_heads_lose_inputs_and_no_outputs():
    whole = policy(network((5,), (16, 8), 4, dueling=True))
    pruned = Compressor().prune(0.75)(whole)
    shapes = {name: weight.shape for name, weight in pruned.weights.items()}
    assert shapes["value/kernel"] == (2, 1) and shapes["advantage/kernel"] == (2, 4)
    gone, masked = removed_of(whole, 0.75), dict(whole.weights)
    for kernel, layer in [
        ("hidden_1/kernel", "hidden_0"), ("value/kernel", "hidden_1"),
        ("advantage/kernel", "hidden_1"),
    ]:  # fmt: skip
        masked[kernel] = np.where(gone[layer][:, None], 0, masked[kernel])
    x = seen(whole.program)
    close(outputs(pruned, x), floats.run(whole.program, masked, x))


def test_a_layer_norm_is_over_the_units_that_are_left():
    whole = policy(network((5,), (16,), 3, layer_norm=True))
    pruned = Compressor().prune(0.25)(whole)
    stays = ~removed_of(whole, 0.25)["hidden_0"]
    assert stays.sum() == 12
    w, x = whole.weights, seen(whole.program).astype(float)
    y = (x @ w["hidden_0/kernel"] + w["hidden_0/bias"])[:, stays]
    y = (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-6)
    y = np.tanh(y * w["norm/gamma"][stays] + w["norm/beta"][stays])
    wanted = y @ w["output/kernel"][stays] + w["output/bias"]
    assert outputs(pruned, x)["output"] == pytest.approx(wanted, rel=1e-5, abs=1e-5)


def test_units_of_least_weight_go():
    whole = policy(mlp(4, 6, 2))
    weights = {k: np.array(v) for k, v in whole.weights.items()}
    weights["w0"][:, [1, 4]] *= 1e-3
    weights["b0"][[1, 4]] *= 1e-3
    weights["w1"][3] *= 1e-4  # its inputs' weights are large, its outputs' tiny
    gone = removed_of(ChainPolicy(whole.program, weights), 0.5)["y0"]
    assert np.flatnonzero(gone).tolist() == [1, 3, 4]


@pytest.mark.parametrize("program", [mlp(3, 8, 2), cnn(), every_op(), everything()])
def test_any_program_can_be_pruned(program):
    whole = policy(program)
    if channels_of(program).groups:
        pruned = Compressor().prune(0.5)(whole)
        assert pruned.numbers < whole.numbers
        found = outputs(pruned, seen(program))
        assert {k: v.shape for k, v in found.items()} == {
            k: v.shape for k, v in outputs(whole, seen(program)).items()
        }


def test_a_unit_of_every_layer_stays():
    pruned = Compressor().prune(0.99999999999)(policy(mlp(4, 32, 1, 3)))
    assert [pruned.weights[name].shape for name in ("w0", "w1", "w2")] == [(4, 1), (1, 1), (1, 3)]


@pytest.mark.parametrize("sparsity", [0, 1, 1.5, -0.1, float("nan")])
def test_other_sparsities_are_refused(sparsity):
    with pytest.raises(UsageError, match="above 0 and below 1"):
        Compressor().prune(sparsity)


def test_a_policy_of_one_layer_has_nothing_to_lose():
    with pytest.raises(UnsupportedError, match=r"`prune\(0.5\)`: no layer of the policy"):
        Compressor().prune(0.5)(policy(mlp(4, 2)))
