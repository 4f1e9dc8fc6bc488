"""Links are passes: one manager runs them, verifies what they leave, and knows what they did."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from qgraph.errors import PassError, UnsupportedError
from qgraph.passes import PassManager, PassOver, PassResult
from qgraph.rewrite.trace import Trace
from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.compress import ChainPolicy, Compressor, Link
from qgraph.rl.compress.chain import LINKS
from qgraph.rl.compress.link import Compression
from tests.helpers.actors import mlp, random_weights

SHAPES = {
    "scale": (4,), "offset": (4,), "k0": (4, 8), "b0": (8,), "k1": (8, 8), "b1": (8,),
    "k2": (8, 3), "b2": (3,),
}  # fmt: skip
PROGRAM = ActorProgram(
    (4,),
    (
        ActorStep("affine", ("observation",), "scaled", ("scale", "offset")),
        ActorStep("dense", ("scaled",), "hidden", ("k0", "b0")),
        ActorStep("activate", ("hidden",), "bent", (), {"activation": "relu"}),
        ActorStep("dense", ("bent",), "next", ("k1", "b1"), {"activation": "tanh"}),
        ActorStep("dense", ("next",), "y", ("k2", "b2")),
    ),
    ("y",),
    SHAPES,
)


def whole():
    return ChainPolicy(PROGRAM, random_weights(PROGRAM))


def told(text, policy=None):
    """The changes and refusals of a chain, by link and step."""
    trace = Trace()
    Compressor.parse(text)(policy or whole(), trace=trace)
    done = [(r.pass_name, r.node, r.before, r.after) for r in trace.rewrites]
    return done, [(r.pass_name, r.node, r.reason) for r in trace.refusals]


def test_every_link_is_a_pass():
    assert all(issubclass(kind, PassOver) for kind in LINKS.values())


def test_the_manager_reports_what_each_link_did():
    results = PassManager(Compressor.parse("prune(0.5)|fuse|quantize(4, last=8)|pack").links).run(
        Compression(whole())
    )
    assert results == [
        PassResult("prune(0.5)", 3, 1),
        PassResult("fuse", 2, 3),
        PassResult("quantize(4, last=8)", 1, 0),
        PassResult("pack", 1, 0),
    ]


def test_the_trace_of_a_chain():
    done, left = told("prune(0.5)|fuse|factorize(0.7)|quantize(4, last=8)|pack")
    block = Compressor.parse("prune(0.5)|fuse|factorize(0.7)|quantize(4, last=8)|pack")(
        whole()
    ).block
    assert done == [
        ("prune(0.5)", "hidden", "dense(scaled) [4,8]", "dense(scaled) [4,4]"),
        ("prune(0.5)", "next", "dense(bent) [8,8] tanh", "dense(bent) [4,4] tanh"),
        ("prune(0.5)", "y", "dense(next) [8,3]", "dense(next) [4,3]"),
        ("fuse", "hidden", "dense(scaled) [4,4]", ""),
        ("fuse", "bent", "activate(hidden) relu", "dense(scaled) [4,4] relu"),
        ("factorize(0.7)", "bent", "dense(scaled) [4,4] relu", "dense(bent/narrow) [1,4] relu"),
        ("factorize(0.7)", "bent/narrow", "", "dense(scaled) [4,1]"),
        ("quantize(4, last=8)", "weights", "32 bits", "4 bits, last 8"),
        ("pack", "block", "", f"{len(block)} bytes"),
    ]
    bent = "the step in front has an activation"
    assert left == [
        ("prune(0.5)", "y", "its units reach an output, a mean, or a sum with others"),
        ("fuse", "bent", "the scale in front has an offset, or differs between features"),
        ("fuse", "next", bent),
        ("fuse", "y", bent),
        ("factorize(0.7)", "next", "rank 2 is needed: 18 numbers, not 16"),
        ("factorize(0.7)", "y", "rank 2 is needed: 16 numbers, not 12"),
    ]


def test_shares_of_less_than_one_unit_are_refused():
    _, left = told("prune(0.1)")
    assert ("prune(0.1)", "next", "has 8 units: its share is less than one") in left


@dataclass(frozen=True)
class AfterPacking(Link):
    requires: ClassVar[frozenset[str]] = frozenset({"packed"})

    def __call__(self, policy, task):
        return policy


@dataclass(frozen=True)
class SaysNothing(Link):
    def __call__(self, policy, task):
        return None


def test_what_a_link_requires_has_to_hold():
    link = AfterPacking()
    with pytest.raises(PassError, match=r"AfterPacking` needs \['packed'\] first"):
        Compressor().then(link)(whole())
    subject = Compression(whole(), facts={"packed"})
    assert PassManager((link,)).run(subject) == [PassResult(str(link), 0, 0)]


def test_a_link_that_returns_no_policy_is_reported():
    with pytest.raises(UnsupportedError, match=r"SaysNothing` failed: "):
        Compressor().then(SaysNothing())(whole())


def test_a_link_that_was_derived_from_one_has_a_name_of_its_own():
    made = Compressor.parse("tests.helpers.plain_links.PrunesMore(0.5)")
    assert str(made) == "tests.helpers.plain_links.PrunesMore(0.5)"
    assert made(whole()).program.weight_shapes["k1"] == (2, 2)


def test_the_original_stays_as_it_is():
    policy = ChainPolicy(mlp(4, 8, 2), random_weights(mlp(4, 8, 2)))
    before = {name: weight.copy() for name, weight in policy.weights.items()}
    subject = Compression(policy)
    PassManager(Compressor.parse("prune(0.5)|quantize(8)").links).run(subject)
    assert subject.original is policy and subject.policy is not policy
    assert all((policy.weights[name] == before[name]).all() for name in before)
