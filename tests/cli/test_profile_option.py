"""Target profiles on the command line."""

import json
import time

import numpy as np
import pytest

from tests.helpers.cli import left_in, run

PROFILE, ARITHMETIC = 7, 9
BAD = {
    "broken.yaml": (b"bits: [", "not YAML"),
    "binary.yaml": (b"\xff\xfe\x00", "binary.yaml"),
    "list.yaml": (b"- 1", "the profile must be a mapping"),
    "unknown.yaml": (b"bits: {wait: 8}", "unknown key `bits.wait`"),
    "range.yaml": (b"bits: {weight: 99}", "`bits.weight` must be a whole number from 2 to 16"),
    "twice.yaml": (b"bits: {weight: 4, bias: 8, weight: 8}", "`weight` is given twice"),
    "apart.yaml": (
        b"shift: [0, 31]\nbits: {weight: 4}\nshift: [1, 31]",
        "line 3: `shift` is given",
    ),
    "rounding.yaml": (b"rounding: up", "`rounding` must be one of half_even"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_profile(model, samples, tmp_path, name):
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    flags = ["--profile", tmp_path / name]
    for verb in (
        ["quantize", model, "-c", samples, "-o", tmp_path / "out", *flags],
        ["inspect", model, *flags],
    ):
        done = run(*verb)
        assert done.code == PROFILE and done.out == "", done.err
        assert f"error: {tmp_path / name}: " in done.err and message in done.err, done.err
        assert "Traceback" not in done.err and left_in(tmp_path) == {name}


def test_aliases_that_stand_for_billions_of_values_are_refused_at_once(model, samples, tmp_path):
    levels = [f"- &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]" for i in range(12)]
    bomb = tmp_path / "bomb.yaml"
    bomb.write_text("\n".join(["name:", "- &a0 [x, x, x, x, x, x, x, x, x]", *levels]))
    run("quantize", "--help")  # what is imported late is imported
    begun = time.process_time()
    done = run("quantize", model, "-c", samples, "-o", tmp_path / "out", "--profile", bomb)
    assert time.process_time() - begun < 30  # expanding them would take years
    assert done.code == PROFILE and "profiles cannot have aliases" in done.err, done.err
    assert len(done.err) < 1000 and left_in(tmp_path) == {"bomb.yaml"}


def test_an_unknown_profile_lists_those_there_are(model, samples, tmp_path):
    done = run("quantize", model, "-c", samples, "-o", tmp_path / "out", "--profile", "int7")
    assert done.code == PROFILE and "int7: no such profile" in done.err
    assert "graffitist-int8" in done.err and "or give a YAML file" in done.err


def test_a_profile_of_ones_own(model, samples, tmp_path):
    (tmp_path / "mine.yaml").write_text("bits: {weight: 6, activation: 7}")
    done = run(
        "quantize", model, "-c", samples, "-o", tmp_path / "out", "--json",
        "--profile", tmp_path / "mine.yaml",
    )  # fmt: skip
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["profile"]["name"] == "mine" and found["profile"]["bits"]["weight"] == 6


def test_an_accumulator_that_is_too_narrow_comes_with_an_input_that_overflows_it(
    model, samples, tmp_path
):
    (tmp_path / "narrow.yaml").write_text("accumulator: {bits: 14}")
    out = tmp_path / "out"
    done = run("quantize", model, "-c", samples, "-o", out, "--effort", "plain",
               "--profile", tmp_path / "narrow.yaml")  # fmt: skip
    assert done.code == ARITHMETIC and "the accumulator has 14" in done.err
    assert "out-overflow.npz" in done.err.replace("\n", "")
    with np.load(tmp_path / "out-overflow.npz") as evidence:
        assert [evidence[name].shape for name in evidence] == [(1, 8, 8, 3)]
    assert left_in(tmp_path) == {"narrow.yaml", "out-overflow.npz"}
