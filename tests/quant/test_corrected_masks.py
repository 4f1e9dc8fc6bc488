"""Steps that run a network beside its float network, where nodes of that became codes."""

from __future__ import annotations

import numpy as np
import pytest

from qgraph import load, quantize
from qgraph.interpret import evaluate
from qgraph.quant.graph_run import GraphRun
from qgraph.verification.verify import verify
from tests import test_masked_attention as attention
from tests import test_masked_sequences as sequences
from tests import test_one_hot as one_hot

NETWORKS = {
    **{
        f"one-hot, {name}": lambda make=make: (one_hot.network(make), one_hot.kinds())
        for name, make in one_hot.VECTORS.items()
    },
    **{
        f"masked {name}": lambda make=sequences.LAYERS[name]: (
            sequences.network(sequences.keras2, make),
            sequences.words(),
        )
        for name in ("lstm", "gru", "both ways")
    },
    **{
        f"masked attention, {name}": lambda name=name: (
            attention.network(attention.keras2, name),
            attention.words(),
        )
        for name in attention.HEADS
    },
}
pytestmark = pytest.mark.filterwarnings("ignore:.*mask:UserWarning")


@pytest.mark.parametrize("step", ["reconstruct", "correct-bias", "method=output"])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_step_works_and_its_result_is_exact(tmp_path, network: str, step: str) -> None:
    model, data = NETWORKS[network]()
    made = quantize(model, data, plan=step)
    assert made.facts.agreement.sqnr > 15
    found = verify(made.save(tmp_path / "out"), forms=("engine",))
    assert found.equal and not found.refused


@pytest.mark.parametrize("network", NETWORKS)
def test_without_its_quantizers_a_network_computes_the_float_one(network: str) -> None:
    model, data = NETWORKS[network]()
    (wanted,) = evaluate(load(model), data).values()
    made = quantize(model, data, effort="plain")
    (found,) = GraphRun(made.graph, made.graph.outputs.values(), quantized=False)(data).values()
    np.testing.assert_allclose(found, wanted, atol=1e-5)
