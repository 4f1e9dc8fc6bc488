"""`--plan`: what is typed is built, shown, and can be typed again."""

import json

import pytest

from tests.helpers.cli import run

STEPS = "constant-channels=0.1,equalize=biases,method=mse,correct-bias"


def test_what_is_typed_is_built_and_can_be_typed_again(model, samples, tmp_path):
    done = run("quantize", model, "-c", samples, "-o", tmp_path / "a", "--plan", STEPS)
    assert done.code == 0 and f"--plan {STEPS}" in done.out
    manifest = json.loads((tmp_path / "a/manifest.json").read_text())
    assert manifest["plan_spec"] == STEPS and manifest["trials"] == []
    done = run("quantize", model, "-c", samples, "-o", tmp_path / "b", "--plan", STEPS, "--json")
    assert json.loads(done.out)["files"] == manifest["files"]
    assert run("report", tmp_path / "a").code == 0
    assert f"--plan {STEPS}" in (tmp_path / "a/report.html").read_text()
    assert json.loads(run("report", tmp_path / "a", "--json").out)["summary"]["plan_spec"] == STEPS


def test_the_plan_of_a_search_is_shown(model, samples, tmp_path):
    done = run("quantize", model, "-c", samples, "-o", tmp_path / "a", "--effort", "fast")
    manifest = json.loads((tmp_path / "a/manifest.json").read_text())
    assert len(manifest["trials"]) == 2 and f"--plan {manifest['plan_spec']}" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--plan", "equalise"), "unknown step `equalise`"),
        (("--plan", ""), "lacks a step"),
        (("--plan", "reconstruct", "--effort", "fast"), "effort `fast`, which searches for a plan"),
        (("--plan", "method=mse", "--method", "max"), "put method=max into the plan"),
    ],
)
def test_what_does_not_fit_is_reported_and_nothing_is_written(
    model, samples, tmp_path, arguments, message
):
    done = run("quantize", model, "-c", samples, "-o", tmp_path / "out", *arguments)
    assert done.code == 2 and message in done.err and not (tmp_path / "out").exists()
