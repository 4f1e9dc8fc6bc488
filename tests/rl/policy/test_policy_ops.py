"""Every op that a policy may have, in both forms and in every executor."""

from __future__ import annotations

import numpy as np
import pytest

from qgraph.errors import UnsupportedError
from qgraph.interpret import evaluate
from qgraph.rl.head import Head
from qgraph.rl.policy import composed_rules, read_policy
from qgraph.rl.policy.rules import RULES
from tests.helpers.c_programs import needs_compiler
from tests.helpers.policy_forms import assert_dynamic_form, assert_static_form
from tests.helpers.policy_ops import ACTIONS, MIDDLES, OBSERVATION, SmallPolicy

OF_HEADS = (composed_rules.choice, composed_rules.condition)
REFUSED = [op for op, rule in RULES.items() if rule in OF_HEADS]
OPS = [op for op in RULES if op not in REFUSED]
HEAD = Head("clip", (-1.5,) * ACTIONS, (1.5,) * ACTIONS)
FORMS = {"dynamic": assert_dynamic_form, "static": assert_static_form}


def observed(n, seed):
    return np.random.default_rng(seed).normal(0, 1.5, (n, OBSERVATION)).astype(np.float32)


@needs_compiler
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op", OPS)
def test_every_executor_has_the_same_actions(op, form, tmp_path):
    assert op in MIDDLES, f"{op}: policies may have it, but tests/helpers/policy_ops.py has no case"
    graph, x = SmallPolicy(MIDDLES[op]).graph, observed(64, 1)
    assert op in {node.op for node in graph.topological()}, f"{op}: not in its case"
    wanted = evaluate(graph, {"seen": x})["actions"]
    FORMS[form](read_policy(graph), HEAD, observed(256, 0), x, wanted, tmp_path)


def test_every_case_is_of_an_op():
    assert not set(MIDDLES) - set(OPS)


@pytest.mark.parametrize("op", REFUSED)
def test_ops_of_heads_are_refused_with_what_to_do(op):
    *_, node = SmallPolicy(MIDDLES["tanh"]).graph.topological()
    with pytest.raises(UnsupportedError, match="end the policy at"):
        RULES[op](None, node)
