"""Attention and means of Keras with the mask of an embedding: in integers, in every form."""

import keras as keras3
import numpy as np
import pytest
import tf_keras as keras2

from qgraph import load, quantize
from qgraph.interpret import evaluate
from qgraph.ir.reading import spec_of
from qgraph.program.lower import lower
from qgraph.verification.verify import verify
from tests.helpers.moved_variables import assert_trains

STEPS, ROWS, WIDTH = 5, 20, 6
FORMS = ("tensorflow", "engine", "onnx-integer", "onnx-qdq", "onnx-qoperator")
HEADS = {
    "mean": lambda L, h: L.GlobalAveragePooling1D()(h),
    "attention": lambda L, h: L.Flatten()(L.MultiHeadAttention(2, 3)(h, h)),
    "causal": lambda L, h: L.Flatten()(L.MultiHeadAttention(1, 3)(h, h, use_causal_mask=True)),
    "both": lambda L, h: L.GlobalAveragePooling1D()(L.MultiHeadAttention(2, 3)(h, h)),
}
pytestmark = pytest.mark.filterwarnings("ignore:.*mask:UserWarning")


@pytest.fixture(params=[keras2, keras3], ids=["keras2", "keras3"])
def keras(request):
    return request.param


def words(empty: bool = False, count: int = 32) -> dict[str, np.ndarray]:
    """Sequences with zeros in the middle and at the end; perhaps with one of zeros alone."""
    rng = np.random.default_rng(0)
    found = rng.integers(1, ROWS, (count, STEPS), np.int32)
    found[:, 1:][rng.random((count, STEPS - 1)) < 0.3] = 0
    found[1] = (0, 0, 3, 0, 4)
    if empty:
        found[0] = 0
    return {"words": found}


def network(keras, head):
    keras.utils.set_random_seed(0)
    L, start = keras.layers, keras.initializers.RandomUniform(-1, 1)
    x = L.Input((STEPS,), dtype="int32", name="words")
    h = L.Embedding(ROWS, WIDTH, mask_zero=True, embeddings_initializer=start)(x)
    return keras.Model(x, L.Dense(2)(HEADS[head](L, h)))


def assert_integer(made) -> None:
    assert not [r for r in made.trace.refusals if r.reason.startswith("stays float")]
    program = lower(made.graph)
    assert [(e.spec.bits, e.source) for e in program.entries] == [(8, "words/index")]


@pytest.mark.parametrize("head", HEADS)
def test_heads_are_read_and_become_integer(tmp_path, keras, head) -> None:
    model, data = network(keras, head), words(empty=head in ("attention", "causal"))
    (found,) = evaluate(load(model), data).values()
    np.testing.assert_allclose(found, model(data["words"]), atol=1e-5)
    made = quantize(model, data, effort="plain")
    assert_integer(made)
    assert made.facts.agreement.sqnr > 20
    found = verify(made.save(tmp_path / "out"), forms=FORMS)
    assert found.equal and not found.refused


@pytest.mark.parametrize("head", ["attention", "both"])
def test_masked_elements_have_no_share(keras, head) -> None:
    """All others have one, however small the scores are."""
    made, data = quantize(network(keras, head), words(), effort="plain"), words()
    softmax = next(n for n in made.graph.nodes.values() if n.op == "integer_softmax")
    (found,) = made.reference().run(data, {softmax.name}).values()
    kept = data["words"] != 0
    shares = found.codes.transpose(0, 2, 1, 3)[kept]  # of the queries that are not masked
    places = np.repeat(kept, kept.sum(1), axis=0)[:, None].repeat(shares.shape[1], 1)
    assert not shares[~places].any() and (shares[places] > 0).all()


def test_a_row_in_which_all_elements_are_masked_has_equal_shares() -> None:
    made, data = quantize(network(keras2, "attention"), words(), effort="plain"), words(empty=True)
    softmax = next(n for n in made.graph.nodes.values() if n.op == "integer_softmax")
    (found,) = made.reference().run(data, {softmax.name}).values()
    assert len(np.unique(found.codes[0])) == 1


def test_counts_are_exact_beyond_the_samples(keras) -> None:
    """Sequences that are longer than all samples are divided by their own number of words."""
    short, whole = words(), words()
    short["words"][:, 2:] = 0
    whole["words"][:] = 3
    model = network(keras, "mean")
    made = quantize(model, short, effort="plain")
    (inverse,) = (n for n in made.graph.nodes.values() if n.op == "lookup")
    values = made.reference().run(whole, {*inverse.inputs, inverse.name})
    assert (values[inverse.inputs[0]].codes == STEPS).all()
    assert spec_of(made.graph.nodes[inverse.name]).exponent == 15
    assert (values[inverse.name].codes == round(2**15 / STEPS)).all()


def test_a_mean_of_nothing_is_zero(keras) -> None:
    made = quantize(network(keras, "mean"), words(), effort="plain")
    data = words(empty=True)
    (found,) = made.reference().run(data, {*made.graph.outputs.values()}).values()
    assert not found.codes[0].any() and found.codes[1].any()


@pytest.mark.parametrize("head", HEADS)
def test_they_train(head) -> None:
    assert_trains(load(network(keras2, head)), words())
