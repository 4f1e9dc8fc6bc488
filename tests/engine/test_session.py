"""Whole networks by the engine: the outputs of the integer reference, to the bit."""

import json
import subprocess
import sys

import numpy as np
import pytest

from qgraph import kernels, quantize
from qgraph.errors import ExactnessError, UsageError
from tests.helpers.cli import run as cli
from tests.helpers.cli import small_network, typical_images

if kernels.native_engine() is None:
    pytest.skip("the native extension isn't built", allow_module_level=True)

from qgraph.backends.engine import levels
from qgraph.runtime import Session


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    (folder / "net.pb").write_bytes(small_network().SerializeToString())
    return quantize(folder / "net.pb", typical_images(), effort="plain")


@pytest.fixture(scope="module")
def out(made, tmp_path_factory):
    return made.save(tmp_path_factory.mktemp("out") / "out")


def images(count):
    return np.random.default_rng(3).normal(0, 2, (count, 8, 8, 3)).astype(np.float32)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize(("threads", "fuse"), [(1, True), (1, False), (3, True)])
def test_outputs_are_those_of_the_reference(made, out, level, threads, fuse) -> None:
    session = Session.open(out, threads, level, fuse)
    for count in (1, 7):
        feeds = {"image": images(count)}
        found, wanted = session.run(feeds), made.reference().outputs(feeds)
        assert found.keys() == wanted.keys()
        for name, array in wanted.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)


def test_batches_do_not_show(out) -> None:
    session = Session.open(out)
    feeds = {"image": images(7)}
    whole, parts = session.run(feeds), session.run(feeds, batch=3)
    np.testing.assert_array_equal(whole["classes"], parts["classes"])


def test_feeds_that_do_not_fit_are_refused(out) -> None:
    session = Session.open(out)
    with pytest.raises(UsageError, match="has no data"):
        session.run({})
    with pytest.raises(UsageError, match="not an input"):
        session.run({"image": images(1), "other": images(1)})
    with pytest.raises(UsageError, match="but the data is"):
        session.run({"image": images(1)[:, :7]})
    with pytest.raises(UsageError, match="samples"):
        session.run({"image": images(0)})
    with pytest.raises(ExactnessError, match="NaN"):
        session.run({"image": np.full((1, 8, 8, 3), np.nan, np.float32)})


def test_nothing_of_tensorflow_is_loaded(out) -> None:
    code = f"""
import sys, numpy as np
from qgraph.runtime import Session
Session.open({str(out)!r}).run({{"image": np.zeros((1, 8, 8, 3), np.float32)}})
assert not [name for name in sys.modules if name.split(".")[0] in ("tensorflow", "tf_keras")]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# -- qgraph run -------------------------------------------------------------------------------


def test_run_writes_the_outputs(made, out, tmp_path) -> None:
    np.savez(tmp_path / "x.npz", image=images(5))
    found = cli("run", out, "--input", tmp_path / "x.npz", "-o", tmp_path / "y.npz", "--batch", 2)
    assert found.code == 0
    assert "classes" in found.out and "ms per sample, 5 samples" in found.out
    assert f"next: qgraph verify {out}" in found.out
    with np.load(tmp_path / "y.npz") as written:
        wanted = made.reference().outputs({"image": images(5)})
        np.testing.assert_array_equal(written["classes"], wanted["classes"])


def test_run_for_machines(out, tmp_path) -> None:
    np.save(tmp_path / "x.npy", images(3))
    found = cli("run", out, "-i", tmp_path / "x.npy", "--level", "plain", "--limit", 2, "--json")
    facts = json.loads(found.out)
    assert (facts["level"], facts["samples"]) == ("plain", 2)
    assert facts["outputs"] == {"classes": [2, 4]}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--threads", 0), "the number of threads must be 1 to"),
        (("--level", "mmx"), "unknown level `mmx`; choose auto"),
    ],
)
def test_invalid_options_are_named(out, tmp_path, options, says) -> None:
    np.save(tmp_path / "x.npy", images(1))
    found = cli("run", out, "-i", tmp_path / "x.npy", *options)
    assert found.code == 2 and says in found.err


def test_verify_takes_the_engine_in(out) -> None:
    found = cli("verify", out, "--format", "engine", "--json")
    assert found.code == 0
    tally = json.loads(found.out)["forms"]["engine"]
    assert tally["differences"] == 0 and tally["tensors"] > 5


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_feeds_of_other_float_types_are_cast(out, dtype) -> None:
    session = Session.open(out)
    image = images(3).astype(dtype)
    found, wanted = session.run({"image": image}), session.run({"image": image.astype("float32")})
    for name, array in wanted.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("batch", [0, -1])
def test_a_batch_below_one_is_refused(out, batch) -> None:
    with pytest.raises(UsageError, match=f"at least 1, not {batch}"):
        Session.open(out).run({"image": images(2)}, batch=batch)
