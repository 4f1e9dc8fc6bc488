"""Compare the forms of a policy with one another, and with float."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from qgraph.exact.reference import Reference
from qgraph.ir.types import Array
from qgraph.rl.actor import Actor
from qgraph.rl.actor.actor import levels
from qgraph.rl.deploy import deploy
from qgraph.rl.head import Head
from qgraph.rl.policy import PolicyNetwork, floats, load_policy, pack
from tests.helpers.deployed import assert_same_actions
from tests.helpers.forms import assert_forms

NEAR = 0.15  # mean error of an output with 8 bits, in deviations of this output


def assert_near(found: Array, wanted: Array) -> None:
    errors = np.abs(found - wanted).mean(0) / wanted.std(0)
    assert errors.max() < NEAR, errors


def assert_dynamic_form(
    network: PolicyNetwork, head: Head, seen: Array, x: Array, wanted: Array, folder: Path
) -> None:
    """Assert that all actors have the same bits for x, near `wanted`, which float has."""
    found = floats.run(network.program, network.weights, x)[network.program.outputs[0]]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    packed = pack(network, head, 8, "dynamic", seen)
    policy = load_policy(packed.write(folder / "dynamic.qpol"))
    bits = policy.outputs(x).tobytes()
    assert len(levels()) > 1
    for level in levels():
        assert Actor(packed.sections["block"], level)(x).tobytes() == bits, level
    assert_near(policy.outputs(x), wanted)


def assert_static_form(
    network: PolicyNetwork, head: Head, seen: Array, x: Array, wanted: Array, folder: Path
) -> None:
    """Assert that the reference, the engine, ONNX and C have the same codes and actions for x."""
    path = pack(network, head, 8, "static", seen, effort="plain").write(folder / "static.qpol")
    policy, name = load_policy(path), network.program.observation
    exact = Reference(policy.network.graph).outputs({name: x})[policy.names[0]]
    for level in levels():
        found = load_policy(path, level=level).outputs(x)
        np.testing.assert_array_equal(found, exact, err_msg=level)
    assert_near(exact, wanted)
    feeds = {name: x[:8]}
    compared = assert_forms(
        replace(policy.network, samples=feeds), forms=("engine", "c", "onnx-integer")
    )
    assert {"numpy", "engine", "c"} <= compared.keys()
    assert_same_actions(policy, deploy(policy, folder / "c"), x[:16])
