"""The facts of a report are those of the output directory; what is advised follows from them."""

import json
import shlex
from dataclasses import replace

import numpy as np
import pytest
import typer.main

from qgraph.cli.main import app
from qgraph.errors import LoadError
from qgraph.reporting.advice import next_steps
from qgraph.reporting.page import render
from qgraph.reporting.reading import read_facts
from qgraph.words import noise_share, percent
from tests.helpers.cli import typical_images
from tests.helpers.report import facts_of, layer_cost, plan, rewrite, statistic, written_directory

FIRST = "block/0/conv/q8"
SECOND = "block/1/conv/q8"


@pytest.fixture(scope="module")
def facts(written):
    return facts_of(written)


def test_layers_bring_the_numbers_of_their_tensors(facts, written):
    manifest = json.loads((written / "manifest.json").read_text())
    assert [y["name"] for y in facts["layers"]] == [y["name"] for y in manifest["layers"]]
    for layer, known in zip(facts["layers"], manifest["layers"], strict=True):
        assert known.items() <= layer.items()
        assert layer["output_tensor"]["name"] == known["output"]
        assert layer["weight_tensor"]["name"] == known["weight"]


def test_statistics_are_those_of_the_samples(facts):
    """`image` goes to its quantizer unchanged, so its values are known."""
    image, first = typical_images(16)[-4:], facts["layers"][0]["input_tensors"][0]
    assert (first["elements"], first["zeros"]) == (image.size, 0)
    assert first["least"] == image.min() and first["greatest"] == image.max()
    assert sum(first["counts"]) == image.size and first["clipped"] == 0
    width = 2.0 ** first["log2_width"]
    edges = (first["first_bin"] + np.arange(len(first["counts"]) + 1)) * width
    assert np.histogram(image, edges)[0].tolist() == first["counts"]
    codes = np.clip(np.rint(image * 256.0), 0, 255) / 256
    alone = 10 * np.log10((image**2).sum() / ((codes - image) ** 2).sum())
    assert first["sqnr_db"] == pytest.approx(alone, abs=0.05)
    assert first["sqnr_alone_db"] == pytest.approx(alone, abs=0.3)


def test_the_sqnr_of_the_outputs_is_measured(facts):
    assert facts["summary"]["outputs_sqnr_db"]["classes"] > 15
    assert facts["summary"]["measured_samples"] == 4  # those that calibration did not see


def test_groups_name_the_op_that_forced_their_members(facts, tmp_path):
    assert facts["scale_groups"] and all(g["inside_layer"] for g in facts["scale_groups"])
    assert all(g["forced_by"][0]["op"] == "bias_add" for g in facts["scale_groups"])
    assert all(g["widest"] in [m["name"] for m in g["members"]] for g in facts["scale_groups"])
    folder = written_directory(tmp_path)
    own_scale(folder, SECOND, 8)
    (group,) = facts_of(folder)["scale_groups"]
    assert (group["lost_bits"], group["widest"], group["inside_layer"]) == (2, FIRST, False)
    assert group["forced_by"] == [{"node": "block/add", "op": "add", "members": [FIRST, SECOND]}]
    assert [(m["lost_bits"], m["cost_db"]) for m in group["members"]] == [(0, None), (2, 1.5)]


def own_scale(folder, name, exponent):
    numbers = json.loads((folder / "statistics.json").read_text())
    numbers["tensors"][name]["max_exponent"] = exponent
    rewrite(folder, **{"statistics.json": numbers})


def test_the_log_by_pass_and_by_reason(facts):
    counts = {p["pass"]: p["count"] for p in facts["rewrites"]}
    assert counts["mean-to-avg-pool"] == 1 and counts["insert-quantizers"] > 3
    assert not any("sha256" in r["after"] for p in facts["rewrites"] for r in p["rewrites"])
    assert facts["refusals"] == [
        {
            "pass": "insert-quantizers",
            "reason": "stays float: softmax is a float op",
            "nodes": ["scores"],
        }
    ]


# -- verdict and advice ------------------------------------------------------------------------


def with_outputs(folder, decibel, **changes):
    written_directory(folder, **changes)
    numbers = json.loads((folder / "statistics.json").read_text())
    numbers["outputs_sqnr_db"] = decibel
    rewrite(folder, **{"statistics.json": numbers})
    return facts_of(folder)


@pytest.mark.parametrize(
    ("decibel", "word"),
    [(40, "Very close"), (39, "Close"), (24.9, "Noticeably off"), (14.9, "Far from"), (-3, "Far")],
)
def test_the_verdict_is_about_the_worst_output(tmp_path, decibel, word):
    facts = with_outputs(tmp_path, {"a": 60.0, "b": decibel, "exact": None})
    assert facts["verdict"].startswith(word) and "output `b`" in facts["verdict"]
    assert "on 16 samples used for calibration" in facts["verdict"]
    retrain = [s for s in facts["next"] if s["what"].startswith("Retrain")]
    assert bool(retrain) == (decibel < 15)
    known = read_facts(tmp_path)
    following = {"plain": "default", "fast": "default", "default": "thorough", "thorough": None}
    for effort, more in following.items():
        other = replace(known, summary=replace(known.summary, effort=effort))
        advised = [s.what for s in next_steps(other) if "--effort" in s.what]
        wanted = decibel < 25 and more is not None
        assert advised == [f"Quantize again with `--effort {more}`."] * wanted


@pytest.mark.parametrize(
    ("decibel", "share", "samples", "word"),
    [
        (20.0, 0.995, 1000, "Very close"),  # many answers say more than decibels
        (20.0, 1.0, 64, "Close"),  # 64 cannot tell 99 %
        (20.0, 0.995, 49, "Noticeably off"),  # few say nothing
        (2.0, 1.0, 49, "Far"),
        (60.0, 0.5, 49, "Far"),
        (60.0, 0.5, 1000, "Far"),
        (20.0, None, 1000, "Noticeably off"),
        (None, 0.96, 1000, "Close"),
    ],
)
def test_agreement_counts_where_it_was_measured(tmp_path, decibel, share, samples, word):
    known = {"sqnr": decibel, "top1": share, "samples": samples, "held_out": True}
    verdict = with_outputs(tmp_path, {"a": 60.0}, agreement=known)["verdict"]
    assert verdict.startswith(word) and "samples not seen by calibration" in verdict
    assert ("20.0 dB" in verdict) == (decibel == 20.0)
    assert ("99.5 %" in verdict) == (share == 0.995)
    assert verdict.endswith("accuracy on labelled data was not measured.")


def test_outputs_that_are_not_float_leave_the_last_layer(tmp_path):
    facts = with_outputs(tmp_path, {})
    assert "last layer `block/3/conv`" in facts["verdict"]
    empty = with_outputs(tmp_path / "empty", {}, layers=0, scale_groups={}, tensors=[])
    assert empty["verdict"].startswith("Unknown")


def advised(folder, **changes):
    return [s["what"] for s in facts_of(written_directory(folder, **changes))["next"]]


def test_what_is_good_needs_no_advice_but_to_measure(tmp_path):
    assert advised(tmp_path, layers=2) == ["Measure accuracy on labelled data."]


def test_layers_know_what_feeds_them_and_what_is_left_of_the_outputs(tmp_path):
    far = layer_cost("block/1/conv", 20.0, so_far_sqnr_db=18.5, so_far_top1=0.9)
    corrected = plan(correct_bias=True)
    facts = facts_of(written_directory(tmp_path, sensitivity=[far], plan=corrected))
    first, second, third = facts["layers"][:3]
    assert [t["layer"] for t in first["input_tensors"]] == [None]
    assert [t["layer"] for t in third["input_tensors"]] == ["layer-2"]
    assert (second["so_far_sqnr_db"], second["so_far_top1"]) == (18.5, 0.9)
    assert first["so_far_sqnr_db"] is None and facts["summary"]["biases_corrected"]


def test_plans_that_were_tried(tmp_path):
    near = {"sqnr": 30.0, "top1": 0.9, "samples": 20}
    trials = [{"plan": plan(method="mse", correct_bias=True), "agreement": near}]
    (trial,) = facts_of(written_directory(tmp_path, trials=trials))["trials"]
    assert trial.pop("plan") == "thresholds by mse, biases corrected"
    assert trial.pop("plan_spec") == "method=mse,correct-bias"
    assert trial == near


def test_each_problem_is_advised_on_and_points_to_its_place(tmp_path):
    ops = [{"name": "scores", "op": "softmax"}, {"name": "x", "op": "Cumsum"}]
    written_directory(tmp_path, calibration_samples=3, float_ops=ops)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["layers"][1]["sqnr_db"] = 12.0
    numbers = json.loads((tmp_path / "statistics.json").read_text())
    numbers["tensors"][SECOND] = statistic(own=8)
    numbers["tensors"]["block/2/conv/q8"] = statistic(clipped=400)
    rewrite(tmp_path, manifest, **{"statistics.json": numbers})
    steps = facts_of(tmp_path)["next"]
    assert [(s["what"], s["anchor"]) for s in steps] == [
        ("Look at `block/1/conv`.", "layer-2"),
        (f"Free `{SECOND}` of scale group g0.", "group-g0"),
        ("Check the threshold of `block/2/conv`.", "layer-3"),
        ("Measure accuracy on labelled data.", ""),
        ("Decide where 2 ops in float should run.", "float-ops"),
        ("Calibrate on more samples.", ""),
    ]
    why = [s["why"] for s in steps]
    assert "SQNR falls from 40.0 to 12.0 dB here" in why[0]
    assert f"`{FIRST}` because of add, which costs it 2 bits, 1.5 dB" in why[1]
    assert why[2].startswith("5 % of its output") and "Cumsum, softmax" in why[4]


@pytest.mark.parametrize(("samples", "word"), [(7, "Too few samples to tell: on 7 "), (8, "Very")])
def test_few_samples_that_calibration_saw_tell_nothing(tmp_path, samples, word):
    known = {"sqnr": 60.0, "top1": 1.0, "samples": samples, "held_out": False}
    assert with_outputs(tmp_path, {"a": 60.0}, agreement=known)["verdict"].startswith(word)


@pytest.mark.parametrize("scaled", [False, True])
def test_scaled_features_are_explained(tmp_path, scaled):
    steps = plan(method="mse", scale_inputs=scaled)
    ops = [{"name": "x/scaled", "op": "mul"}]
    advice = facts_of(written_directory(tmp_path, plan=steps, float_ops=ops))["next"]
    (why,) = [s["why"] for s in advice if s["what"].startswith("Decide where one op")]
    assert ("one shift per feature" in why) == scaled


def test_noise_is_blamed_on_the_layer_where_it_comes_in(tmp_path):
    """Layer 2 loses most, layer 3 passes it on and is lower still, layer 4 has no known input."""
    written_directory(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    decibels = dict(zip((FIRST, SECOND, "block/2/conv/q8"), (35.0, 5.0, 4.0), strict=True))
    for tensor in manifest["tensors"]:
        tensor["sqnr_db"] = decibels.get(tensor["name"], tensor["sqnr_db"])
    for layer in manifest["layers"]:
        layer["sqnr_db"] = decibels.get(layer["output"], 3.0)
    manifest["layers"][3]["input_scales"] = []
    numbers = json.loads((tmp_path / "statistics.json").read_text())
    numbers["tensors"]["block/1/conv/weights"] = statistic(vanished=4000)
    rewrite(tmp_path, manifest, **{"statistics.json": numbers})
    facts = facts_of(tmp_path)
    (step,) = [s for s in facts["next"] if s["what"].startswith("Look")]
    assert step["anchor"] == "layer-2"
    assert step["why"].startswith("SQNR falls from 35.0 to 5.0 dB here. 50 % of its weights round")
    assert facts["layers"][3]["input_sqnr_db"] is None


def test_shares():
    assert noise_share(20) == pytest.approx(0.1) and noise_share(0) == 1
    shown = [percent(s) for s in (0, 0.00001, 0.0123, 0.05, 0.1234, 0.9996, 1)]
    assert shown == ["0 %", "< 0.01 %", "1.2 %", "5 %", "12.3 %", "100 %", "100 %"]


# -- what is not an output directory -----------------------------------------------------------


@pytest.mark.parametrize("name", ["statistics.json", "rewrites.json"])
def test_files_that_are_not_as_they_were_written(tmp_path, name):
    written_directory(tmp_path)
    (tmp_path / name).write_text("{}")
    with pytest.raises(LoadError, match=f"{name}: missing, or changed since it was written"):
        facts_of(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(LoadError, match=name):
        facts_of(tmp_path)


def test_each_advice_has_a_command_or_a_link(tmp_path):
    """Commands name verbs and options that exist; the page shows them."""
    group = typer.main.get_command(app)
    seen = set()
    for decibel in (-3, 20, 60):
        with_outputs(tmp_path, {"a": decibel, "exact": None})
        known = read_facts(tmp_path)
        page = render(replace(known, next=next_steps(known)))
        for data_free in (None, {"a": "b"}):
            summary = replace(known.summary, data_free=data_free, effort="plain")
            for step in next_steps(replace(known, summary=summary)):
                assert step.commands or step.anchor, step
                for command in step.commands:
                    name, verb, *words = shlex.split(command)
                    options = {o for p in group.get_command(None, verb).params for o in p.opts}
                    flags = [word for word in words if word.startswith("-")]
                    assert name == "qgraph" and {*flags} <= options, command
                    seen.add(verb)
        assert "<code>qgraph evaluate DIRECTORY --data test.npz</code>" in page
    assert seen >= {"quantize", "train", "finalize", "evaluate"}
