"""Every op that a policy may have, in both forms and in every executor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qgraph.backends.engine import LEVELS
from qgraph.errors import UnsupportedError
from qgraph.exact.reference import Reference
from qgraph.interpret import evaluate
from qgraph.rl.actor import Actor
from qgraph.rl.actor.actor import levels
from qgraph.rl.deploy import deploy
from qgraph.rl.head import Head
from qgraph.rl.policy import composed_rules, floats, load_policy, pack, read_policy
from qgraph.rl.policy.rules import RULES
from tests.helpers.c_programs import needs_compiler
from tests.helpers.deployed import assert_same_actions
from tests.helpers.forms import assert_forms
from tests.helpers.policy_ops import ACTIONS, MIDDLES, OBSERVATION, SmallPolicy

REFUSED = [
    op for op, rule in RULES.items() if rule in (composed_rules.choice, composed_rules.condition)
]
OPS = [op for op in RULES if op not in REFUSED]
HEAD = Head("clip", (-1.5,) * ACTIONS, (1.5,) * ACTIONS)
NEAR = 0.15  # mean error of an output with 8 bits, in deviations of this output


def policy(op):
    assert op in MIDDLES, f"{op}: policies may have it, but tests/helpers/policy_ops.py has no case"
    graph = SmallPolicy(MIDDLES[op]).graph
    assert op in {node.op for node in graph.topological()}, f"{op}: not in its case"
    return graph


def observed(n=256, seed=0):
    return np.random.default_rng(seed).normal(0, 1.5, (n, OBSERVATION)).astype(np.float32)


def near(found, wanted):
    errors = np.abs(found - wanted).mean(0) / wanted.std(0)
    assert errors.max() < NEAR, errors


def test_every_case_is_of_an_op():
    assert not set(MIDDLES) - set(OPS)


@pytest.mark.parametrize("op", OPS)
def test_dynamic_form(op, tmp_path):
    graph = policy(op)
    x = observed(64, 1)
    wanted = evaluate(graph, {"seen": x})["actions"]
    network = read_policy(graph)
    found = floats.run(network.program, network.weights, x)["actions"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    packed = pack(network, HEAD, 8, "dynamic", observed())
    outputs = {Actor(packed.sections["block"], level)(x).tobytes() for level in levels()}
    assert len(outputs) == 1 and len(levels()) > 1
    made = load_policy(packed.write(tmp_path / "p.qpol"))
    assert made.outputs(x).tobytes() in outputs
    near(made.outputs(x), wanted)


@needs_compiler
@pytest.mark.parametrize("op", OPS)
def test_static_form(op, tmp_path):
    graph = policy(op)
    x = observed(64, 1)
    wanted = evaluate(graph, {"seen": x})["actions"]
    packed = pack(read_policy(graph), HEAD, 8, "static", observed(), effort="plain")
    path = packed.write(tmp_path / "p.qpol")
    made = load_policy(path)
    exact = Reference(made.network.graph).outputs({"seen": x})["actions"]
    for level in ("auto", *LEVELS):
        try:
            found = load_policy(path, level=level).outputs(x)
        except UnsupportedError:
            continue
        np.testing.assert_array_equal(found, exact, err_msg=level)
    near(exact, wanted)
    compared = assert_forms(
        replace(made.network, samples={"seen": x}), forms=("engine", "c", "onnx-integer")
    )
    assert {"numpy", "engine", "c"} <= compared.keys()
    assert_same_actions(made, deploy(made, tmp_path / "c"), x)


@pytest.mark.parametrize("op", REFUSED)
def test_ops_of_heads_are_refused_with_what_to_do(op):
    with pytest.raises(UnsupportedError, match=r"end the policy at"):
        RULES[op](None, SmallPolicy(MIDDLES["tanh"]).graph.topological()[-1])
