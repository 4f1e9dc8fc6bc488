"""Chains: one line to compose, a text, and a policy that acts."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.errors import GraphError, UnsupportedError, UsageError
from qgraph.rl.actor import Actor, Packer
from qgraph.rl.agents import config_for
from qgraph.rl.compress import ChainPolicy, Compressor
from qgraph.rl.head import Head
from qgraph.rl.learn.networks import initial_weights, network
from qgraph.rl.learn.sources import packed_bits
from tests.helpers.actors import cnn, mlp, random_weights

BITS = st.sampled_from((32, 16, *range(2, 9)))
LINKS = {
    "fuse": st.just(()),
    "factorize": st.tuples(st.floats(0, 1, exclude_min=True)),
    "distill": st.tuples(st.sampled_from(("", "original", "net1", "net2", "net3", "8", "64-32"))),
    "prune": st.tuples(st.floats(0, 1, exclude_min=True, exclude_max=True)),
    "quantize": st.tuples(BITS, st.none() | BITS, st.none() | BITS),
}


@st.composite
def chains(draw):
    made = Compressor()
    for name in draw(st.lists(st.sampled_from(sorted(LINKS)), max_size=5)):
        made = getattr(made, name)(*draw(LINKS[name]))
    return draw(st.sampled_from((made, made.pack(), made.static(6))))


@given(chains())
def test_text_and_chain_are_one(chain):
    assert Compressor.parse(str(chain)) == chain


def test_a_chain_in_one_line():
    made = Compressor().prune(0.5).quantize(8, last=16).pack()
    assert str(made) == "prune(0.5)|quantize(8, last=16)|pack"
    assert Compressor.parse(" prune( 0.5 ) | quantize(bits=8,last=16)|pack() ") == made
    assert Compressor.parse("") == Compressor()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("prun(0.5)", "unknown link `prun`"),
        ("prune(0.5", "is not a link"),
        ("prune(half)", "`sparsity` of `prune(half)` must be a number, not `half`"),
        ("prune()", "`prune()` needs its sparsity"),
        ("prune(0.5, 3)", "does not take `3`\n  it takes sparsity"),
        ("prune(0.5, sparsity=0.5)", "does not take `sparsity=0.5`"),
        ("quantize(8.5)", "must be a whole number"),
        ("quantize(9)", "32, 16 or 8 to 2 bits, not 9"),
        ("prune(0.5)||pack", "`` is not a link"),
        ("pack|prune(0.5)", "nothing can follow `pack`"),
        ("prune(0)", "above 0 and below 1"),
        ("prune(1)", "above 0 and below 1"),
        ("nowhere.at.all.Mine", "unknown link `nowhere.at.all.Mine`: No module named"),
        ("tests.helpers.broken.Mine", "unknown link `tests.helpers.broken.Mine`: division"),
        (".a.b(1)", "unknown link `.a.b`"),
        ("tests.helpers.plain_links.NoLink", "`NoLink(share=0.5)` is not a link"),
        ("tests.helpers.plain_links.Same(at_all=1)", "`at_all` of `tests.helpers.plain_links"),
        ("os.path(1)", "unknown link `os.path`"),
    ],
)
def test_texts_that_are_no_chain(text, complaint):
    with pytest.raises(UsageError, match=re.escape(complaint)):
        Compressor.parse(text)


def test_a_text_is_no_link():
    with pytest.raises(UsageError, match=r"`quantize\(8\)` is not a link"):
        Compressor().then("quantize(8)")


def test_the_last_quantize_is_in_force():
    chain = Compressor.parse("quantize(32)|prune(0.5)|quantize(8)|pack")
    assert chain.quantize_link.bits == 8
    assert str(chain.with_bits(4)) == "quantize(32)|prune(0.5)|quantize(4)|pack"
    assert str(Compressor().quantize(4, 2, 16).with_bits(8)) == "quantize(8, first=8, last=16)"
    assert Compressor().prune(0.5).quantize_link is None
    assert Compressor().prune(0.5).with_bits(4) == Compressor().prune(0.5)


@pytest.mark.parametrize(
    "arguments", ["", "0.25", "0.25, 3, False, 2.5", "often=2, most=None", "at_all=False"]
)
def test_a_custom_link_prints_its_arguments(arguments):
    """Its module's annotations are not text."""
    made = Compressor.parse(f"tests.helpers.plain_links.Same({arguments})|quantize(8)")
    assert isinstance(made.links[0].share, float) and isinstance(made.links[0].at_all, bool)
    assert Compressor.parse(str(made)) == made


def test_an_exception_of_a_custom_link_is_reported():
    whole = ChainPolicy(mlp(4, 8, 3), random_weights(mlp(4, 8, 3)))
    text = "tests.helpers.plain_links.RaisesAfter"
    said = f"`{text}(0)` failed: a mistake of its author"
    with pytest.raises(UnsupportedError, match=re.escape(said)):
        Compressor.parse(text)(whole)


def test_a_link_that_changes_outputs_is_refused():
    whole = ChainPolicy(mlp(4, 8, 3), random_weights(mlp(4, 8, 3)))
    said = r"after pass `.*Cut`: what it makes has outputs .*\[2\]"
    with pytest.raises(UnsupportedError, match=said):
        Compressor.parse("tests.helpers.plain_links.Cut")(whole)


def test_links_of_one_text_remember_things_of_their_own():
    whole, memory = ChainPolicy(mlp(4, 8, 3), random_weights(mlp(4, 8, 3))), {}
    link = "tests.helpers.plain_links.RaisesAfter(9)"
    Compressor.parse(f"{link}|{link}|quantize(8)")(whole, memory=memory)
    Compressor.parse(f"prune(0.5)|{link}")(whole, memory=memory)
    assert memory[link]["calls"] == 2 and memory[f"{link} 2"]["calls"] == 1


def test_what_is_packed_is_the_pruned_policy_in_few_bits():
    program = mlp(6, 64, 64, 3)
    whole = ChainPolicy(program, random_weights(program))
    compressed = Compressor().prune(0.5).quantize(4).pack()(whole)
    assert compressed.program.weight_shapes["w1"] == (32, 32)
    small = Packer(compressed.program, 4, 16, 16).pack(compressed.weights)
    assert (compressed.block == small).all()
    assert len(compressed.block) < len(Packer(program, 8).pack(whole.weights)) / 2
    assert whole.weights["w1"].shape == (64, 64)
    x = np.random.default_rng(0).normal(size=(5, 6)).astype("f4")
    assert (Actor(compressed.block)(x) == compressed.actor()(x)).all()


@pytest.mark.parametrize("bits", [32, 16, 8, 5, 2])
@pytest.mark.parametrize("program", [mlp(6, 16, 16, 3), cnn()], ids=["vectors", "images"])
def test_quantize_packs_as_actors_in_training(program, bits):
    weights = random_weights(program)
    trained = config_for("dqn", "CartPole-v1", actor_bits=bits)
    as_trained = Packer(program, *packed_bits(trained, program)).pack(weights)
    assert (
        Compressor().quantize(bits).pack()(ChainPolicy(program, weights)).block == as_trained
    ).all()


def test_quantize_can_give_all_layers_the_same_bits():
    program = mlp(6, 16, 16, 3)
    weights = random_weights(program)
    block = Compressor.parse("quantize(8, 8, 8)|pack")(ChainPolicy(program, weights)).block
    assert (block == Packer(program, 8).pack(weights)).all()


def test_a_compressed_policy_acts_on_cartpole():
    gymnasium = pytest.importorskip("gymnasium", reason="needs the extra `rl`")
    program = network((4,), (64, 64), 2)
    weights = initial_weights(program, np.random.default_rng(0))
    block = Compressor().prune(0.5).quantize(8).pack()(ChainPolicy(program, weights)).block
    actor, head, environment = Actor(block), Head("argmax"), gymnasium.make("CartPole-v1")
    seen, over, steps = environment.reset(seed=0)[0], False, 0
    while not over:
        seen, _, ended, cut, _ = environment.step(int(head.actions(actor(seen[None]))[0]))
        over, steps = ended or cut, steps + 1
    assert 5 < steps <= 500


def test_a_chain_of_no_links_gives_what_it_was_given():
    program = mlp(3, 4, 2)
    whole = ChainPolicy(program, random_weights(program))
    assert Compressor()(whole) is whole


def test_weights_that_do_not_fit_make_no_policy():
    program = mlp(3, 4, 2)
    with pytest.raises(GraphError, match="the weight is missing"):
        ChainPolicy(program, {})
