"""Without data: samples like those of training, from what batch norms remember of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import qgraph
from qgraph.errors import CalibrationError, UsageError
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.passes import PassManager
from qgraph.quant.correct_bias import correct_biases_without_data
from qgraph.quant.moments import moments_of
from qgraph.quant.plan import PLAIN, Plan
from qgraph.quant.profile import load_profile
from qgraph.quant.without_data.generated import generate_samples, input_facts
from qgraph.quant.without_data.matching import matched
from qgraph.recipes import FLOAT, prepare
from qgraph.rewrite.trace import Trace
from qgraph.static.agreement import agreement
from qgraph.static.build import build
from qgraph.static.search import DATA_FREE
from tests.helpers.quantized import assert_tf_equals_reference
from tests.helpers.trained import images, trained, without_norms


def folded(graph: Graph) -> Graph:
    PassManager(FLOAT).run(graph)
    return graph


@pytest.mark.parametrize("behind_relu", [False, True])
def test_inputs_are_like_those_of_training(behind_relu: bool) -> None:
    """Only the statistics of the batch norms are known of training."""
    real = images()
    found = input_facts(folded(trained(behind_relu, "relu")), {})["image"]
    assert found.range == (0, 255)
    np.testing.assert_allclose(found.moments.mean, real.mean(axis=(0, 1, 2)), atol=12)
    np.testing.assert_allclose(found.moments.deviation, real.std(), rtol=0.25)
    x = generate_samples(folded(trained(behind_relu, "relu")), {}).data["image"]
    assert x.shape == (64, 12, 12, 3) and x.min() >= 0 and x.max() <= 255

    def smooth(x: np.ndarray) -> float:  # neighbours are alike, in images
        return float(np.corrcoef(x[:, 1:].ravel(), x[:, :-1].ravel())[0, 1])

    assert abs(smooth(x) - smooth(real)) < 0.3


@pytest.mark.parametrize("scale", [1.0, 1 / 255])
def test_the_scale_of_inputs_is_found(scale: float) -> None:
    graph = folded(trained(data=images() * np.float32(scale)))
    assert input_facts(graph, {})["image"].range == (0, 255 * scale)


def test_unusual_inputs_end_after_some_deviations() -> None:
    found = input_facts(folded(trained(data=images() * np.float32(30))), {})["image"]
    assert found.range[0] < 0 and 255 * 20 < found.range[1] < 255 * 40
    assert "2.5 deviations" in str(found)


@pytest.mark.parametrize("behind_relu", [False, True])
def test_values_that_are_known_are_matched_and_graphs_left_as_they_were(behind_relu: bool) -> None:
    graph = folded(trained(behind_relu, "relu"))
    twin, data = graph.copy(), generate_samples(graph, {}).data
    before = print_graph(graph)
    known = {
        n.name: found
        for n in graph.topological()
        if n.op == "bias_add" and (found := moments_of(graph, n.name)) is not None
    }
    assert len(known) >= 3
    with matched(graph, twin, data):
        for value, wanted in known.items():
            found = evaluate(graph, data, [f"{value}/matched"])[f"{value}/matched"]
            axes = tuple(range(found.ndim - 1))
            np.testing.assert_allclose(found.mean(axis=axes), wanted.mean, rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(found.std(axis=axes), wanted.deviation, rtol=1e-3)
        assert print_graph(twin) == print_graph(graph) != before
    assert print_graph(graph) == print_graph(twin) == before
    assert graph.types.keys() == twin.types.keys() == {v for n in graph.topological()
                                                       for v in n.values}  # fmt: skip


def test_graphs_are_left_as_they_were_after_an_error() -> None:
    graph = folded(trained())
    before = print_graph(graph)
    with pytest.raises(KeyError), matched(graph, graph.copy(), generate_samples(graph, {}).data):
        raise KeyError
    assert print_graph(graph) == before


@pytest.mark.parametrize("profile", ["graffitist-int8", "int32-bias"])
@pytest.mark.parametrize("behind_relu", [False, True])
def test_results_without_data_are_nearly_as_good_as_with_data(
    behind_relu: bool, profile: str
) -> None:
    network, unseen = trained(behind_relu, "relu"), {"image": images(seed=9)}
    free = qgraph.quantize(network, profile=profile)
    wanted = folded(network.copy())
    near = agreement(wanted, free.graph, unseen)
    data = agreement(wanted, qgraph.quantize(network, images(), profile=profile, plan=DATA_FREE)
                     .graph, unseen)  # fmt: skip
    assert near.sqnr > 18 and near.sqnr > data.sqnr - 12
    assert near.top1 is not None and near.top1 > 0.9


@pytest.mark.parametrize("profile", ["graffitist-int8", "graffitist-int4", "int32-bias"])
def test_results_are_exact_to_the_bit(profile: str) -> None:
    result = qgraph.quantize(trained(), profile=profile, effort="fast")
    assert assert_tf_equals_reference(result.graph, {"image": images(4)}) > 8
    assert assert_tf_equals_reference(result.graph, dict(result.sample)) > 8


def test_which_warnings_are_given() -> None:
    result = qgraph.quantize(trained(), effort="fast")
    facts = result.facts
    assert facts.agreement is None and facts.calibration_samples == 0
    warnings = facts.warnings
    assert warnings[0].startswith("no data: thresholds from batch-norm statistics")
    assert "input `image`: assumed to be within 0 to 255" in warnings[1]
    assert result.sqnr == {} and result.measured.samples == 0
    assert {n.name for n in result.graph.topological() if n.op == "quantize"
            and n.attrs["spec"].role == "weight"} <= set(result.measured.statistics)  # fmt: skip


def test_effort_and_plan() -> None:
    def plan(**options: Any) -> object:
        return qgraph.quantize(trained(), **options).facts.choice.plan_spec

    assert plan(effort="plain") == PLAIN.spec() and plan(effort="fast") == DATA_FREE.spec()
    assert "reconstruct" in str(plan()) and "absorb" in str(plan())
    assert plan(plan="equalize=weights") == "equalize=weights"
    assert "method=mse" in str(plan(method="mse", effort="fast"))


def test_two_runs_give_the_same() -> None:
    texts = [print_graph(qgraph.quantize(trained(), effort="fast").graph) for _ in range(2)]
    assert texts[0] == texts[1]


def test_without_batch_norms_data_is_needed() -> None:
    with pytest.raises(CalibrationError, match="no batch norms to replace it"):
        qgraph.quantize(without_norms())


def test_a_range_is_something() -> None:
    result = qgraph.quantize(without_norms(), input_ranges={"": (-2, 2)})
    assert "the network has no batch norms" in str(result.facts.warnings)
    spec = next(n.attrs["spec"] for n in result.graph.topological() if n.op == "quantize"
                and n.attrs["spec"].role == "input")  # fmt: skip
    assert spec.hi * 2.0**-spec.exponent == pytest.approx(2, rel=0.02)


def test_a_given_range_holds() -> None:
    data = generate_samples(folded(trained()), {"image": (0, 300)})
    assert data.data["image"].max() > 255 and "0 to 300 (as given)" in data.inputs["image"]


@pytest.mark.parametrize("ends", [(1.0, 1.0), (2.0, 1.0), (0.0, np.inf), (np.nan, 1.0)])
def test_invalid_ranges(ends: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="is not a range"):
        qgraph.quantize(without_norms(), input_ranges={"x": ends})


def test_ranges_of_what_is_not_there_or_not_asked_for() -> None:
    with pytest.raises(UsageError, match="unknown input `z`"):
        qgraph.quantize(without_norms(), input_ranges={"z": (0, 1)})
    with pytest.raises(UsageError, match="without data"):
        qgraph.quantize(trained(), images(8), input_ranges={"": (0, 1)})
    with pytest.raises(UsageError, match="sensitivity"):
        qgraph.quantize(trained(), sensitivity=True)


def test_an_input_before_nothing_that_is_known() -> None:
    g = trained()
    x = g.add("sigmoid", g.input("other", "float32", (None, 5)))
    g.outputs["also"] = x
    with pytest.raises(CalibrationError, match=r"input other: its range is unknown"):
        qgraph.quantize(g)
    result = qgraph.quantize(g, input_ranges={"other": (-1, 1)}, effort="fast")
    assert result.facts.samples.data_free is not None
    assert set(result.facts.samples.data_free) == {"image", "other"}


def test_fixed_batches_are_filled() -> None:
    g = folded(trained())
    g.set_attrs("image", type=g.types["image"].__class__("float32", (24, 12, 12, 3)))
    g.refresh_types()
    assert len(generate_samples(g, {}).data["image"]) == 72


def test_bits_are_not_chosen_without_samples() -> None:
    with pytest.raises(UsageError, match="a budget of bits needs samples"):
        qgraph.quantize(trained(), mean_bits=5)


@pytest.mark.parametrize("behind_relu", [False, True])
def test_statistics_follow_channels_that_are_pruned_and_scaled(behind_relu: bool) -> None:
    """After all steps of a plan, the statistics are still those of the training samples."""
    graph = trained(behind_relu, "relu")
    gamma = graph.constant("gamma2")
    assert gamma is not None
    graph.set_attrs("gamma2", value=np.where(np.arange(12) == 2, 0, gamma))
    PassManager(prepare(Plan(constant_channels=0.03, equalize="biases", absorb=True))).run(graph)
    known = {v: m for v, m in graph.moments.items() if v in graph.types}
    assert sorted(len(m.mean) for m in known.values())[-1] == 11  # pruned from 12
    for value, moments in known.items():
        seen = evaluate(graph, {"image": images()}, [value])[value]
        axes = tuple(range(seen.ndim - 1))
        scale = moments.deviation.max()
        np.testing.assert_allclose(seen.mean(axis=axes), moments.mean, atol=0.2 * scale)
        np.testing.assert_allclose(seen.std(axis=axes), moments.deviation, atol=0.2 * scale)


def test_thresholds_are_of_the_statistics_and_not_of_the_noise() -> None:
    """A much smaller range of inputs changes the scale of the input, and later scales very
    little.
    """
    exponents = []
    for most in (255.0, 16.0):
        done = qgraph.quantize(trained(), plan="method=max", input_ranges={"": (0, most)})
        graph, warnings = done.graph, str(done.facts.warnings)
        assert ("asks for a mean of 1" in warnings) == (most == 16)
        exponents.append({
            n.name: n.attrs["spec"].exponent
            for n in graph.topological()
            if n.op == "quantize" and n.attrs["spec"].role in ("input", "activation")
            and not n.name.startswith("bias_add")  # the classifier's: no batch norm knows of it
        })  # fmt: skip
    right, wrong = exponents
    assert wrong["image/q8"] == right["image/q8"] + 4
    behind = [abs(wrong[name] - right[name]) for name in right if name != "image/q8"]
    assert len(behind) >= 3 and max(behind) <= 1


def test_a_plan_that_corrects_biases_takes_statistics_for_it() -> None:
    plain, corrected = (
        build(trained(), load_profile("graffitist-int4"), Plan(correct_bias=on),
              generate_samples(folded(trained()), {}).data, Trace(), generated=True)
        for on in (False, True)
    )  # fmt: skip
    assert print_graph(plain[1]) != print_graph(corrected[1])
    done = correct_biases_without_data(plain[1], plain[0])
    assert print_graph(plain[1]) == print_graph(corrected[1])
    assert sum(correction.shift > 0 for correction in done) >= 3
