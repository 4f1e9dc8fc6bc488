"""`Attention` of ONNX: read as products and a softmax, with equal results."""

import numpy as np
import pytest
from onnx import helper

from benchmarks.onnx_nodes import Verdict, node_cases, outcome_of
from qgraph.errors import GraphError
from qgraph.interpret import evaluate
from tests.helpers.graphs import opaque_kinds
from tests.helpers.onnx_graphs import f, imported, model_of

CASES = {case.name.removeprefix("test_attention_"): case for case in node_cases()}
READ = [
    *("4d", "3d", "4d_gqa", "3d_gqa", "3d_diff_heads_sizes", "4d_diff_heads_sizes_scaled"),
    *("4d_causal", "3d_causal", "4d_gqa_causal", "4d_softcap", "3d_gqa_softcap"),
    *("4d_attn_mask", "4d_attn_mask_4d_causal", "4d_attn_mask_bool", "3d_gqa_attn_mask"),
    *("4d_gqa_with_past_and_present", "3d_diff_heads_with_past_and_present"),
    *("4d_diff_heads_with_past_and_present_mask3d", "4d_causal_with_past_and_present"),
    *("4d_diff_heads_mask4d_padded_kv", "4d_softcap_neginf_mask"),
    *("4d_causal_nonpad_batch_prefill", "4d_causal_bf16", "4d_fp16"),
]
# Scores as an output, windows, and queries that may see no key: by ONNX's definition of the op.
DEFINED = ["4d_with_qk_matmul", "local_window", "23_boolmask_fullymasked_row_nan_robustness"]


@pytest.mark.parametrize("name", READ + DEFINED)
def test_node_tests_are_equal(name):
    outcome = outcome_of(CASES[name])
    assert outcome.verdict is Verdict.EQUAL, outcome.reason


def attention(batch, *, tokens=3, heads=2, keys=2, **attrs):
    """Attention on three axes whose queries, keys and values are the input."""
    attrs = {"q_num_heads": heads, "kv_num_heads": keys, **attrs}
    node = helper.make_node("Attention", ["x", "x", "x"], ["y"], **attrs)
    return model_of([node], {"x": (batch, tokens, 8)}, opset=23, ir_version=11)


@pytest.mark.parametrize("causal", [0, 1])
def test_an_open_batch_stays_open(causal):
    open_graph, x = imported(attention(None, is_causal=causal)), f(4, 3, 8)
    assert open_graph.types[open_graph.outputs["y"]].shape == (None, 3, 8)
    assert not opaque_kinds(open_graph)
    wanted = evaluate(imported(attention(4, is_causal=causal)), {"x": x})["y"]
    np.testing.assert_array_equal(evaluate(open_graph, {"x": x})["y"], wanted)


def test_constant_masks_are_finite():
    """An infinite constant would be refused later."""
    graph = imported(attention(1, is_causal=1))
    (mask,) = (graph.constant(n.inputs[1]) for n in graph.nodes.values() if n.op == "add")
    assert np.isfinite(mask).all() and (np.squeeze(mask)[np.triu_indices(3, 1)] < -1e38).all()


def test_open_tokens_stay_opaque():
    assert opaque_kinds(imported(attention(1, tokens=None))) == ["Attention"]


@pytest.mark.parametrize(("heads", "keys"), [(3, 2), (0, 2), (4, 3), (2, 4)])
def test_heads_that_do_not_fit_are_refused(heads, keys):
    with pytest.raises(GraphError, match=r"this `Attention` is malformed: .* do not fit"):
        imported(attention(1, heads=heads, keys=keys))
