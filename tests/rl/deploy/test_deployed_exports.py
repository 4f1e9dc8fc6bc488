"""Policies of RL libraries, and published ones, choose the same actions in C."""

import os
from pathlib import Path

import numpy as np
import pytest

from qgraph.rl.deploy import deploy
from qgraph.rl.head import Head
from qgraph.rl.policy import Policy, pack, read_policy
from qgraph.rl.policy.about import about
from tests.helpers.c_programs import needs_compiler
from tests.helpers.deployed import assert_same_actions
from tests.helpers.exported_policies import cleanrl, ml_agents, rsl_rl

FOLDER = Path(os.environ.get("QGRAPH_POLICIES") or Path(__file__).parents[4] / "shared/policies")
PUBLISHED = sorted(FOLDER.glob("*.pb"))
EXPORTED = {
    "normalizer": (rsl_rl.feed_forward, None, "clip"),
    "normalizer and clip": (ml_agents.continuous, "deterministic_continuous_actions", "scale"),
    "scale behind": (cleanrl.soft_actor, "mean_action", "scale"),
    "images of bytes": (cleanrl.q_network, None, "argmax"),
    "images of floats": (lambda: cleanrl.q_network(dtype=1), None, "categorical"),
}
pytestmark = needs_compiler


def head_of(kind: str, outputs: int) -> Head:
    if kind in ("argmax", "categorical"):
        return Head(kind)
    return Head(kind, (-0.7,) * outputs, (1.3,) * outputs)


@pytest.mark.parametrize("name", EXPORTED)
def test_exported_policies(name, saved, tmp_path):
    build, output, kind = EXPORTED[name]
    network = read_policy(saved(build()), outputs=output and [output])
    rng, shape = np.random.default_rng(0), network.program.shape
    images = len(shape) == 3
    seen = rng.integers(0, 256, (200, *shape)) if images else rng.normal(0, 2, (200, *shape))
    seen = seen.astype(np.float32)
    head = head_of(kind, network.program.size(network.program.outputs[0]))
    policy = Policy(pack(network, head, 8, "static", seen[:150]))
    made = deploy(policy, tmp_path / "c")
    assert_same_actions(policy, made, seen[150:])
    if not images:
        assert_same_actions(policy, made, seen[150:] * np.float32(1e4))


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED, reason="set QGRAPH_POLICIES to a folder of policies")
@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: file.stem)
def test_published_policies(file, tmp_path):
    network, known = read_policy(file), about(file)
    assert known.head is not None
    head = Head(known.head)
    if not head.discrete:
        count = network.program.size(network.program.outputs[0])
        head = Head(known.head, (-known.high,) * count, (known.high,) * count)
    seen = np.random.default_rng(0).normal(size=(1500, *network.program.shape)).astype(np.float32)
    policy = Policy(pack(network, head, 8, "static", seen[:500]))
    assert_same_actions(policy, deploy(policy, tmp_path / "c"), seen[500:] * np.float32(2))
