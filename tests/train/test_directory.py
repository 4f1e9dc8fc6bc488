"""Damaged training directories: errors name the file, and no other network is used instead."""

import json
import random
import re
import shutil

import numpy as np
import pytest

from qgraph import retrain
from qgraph.errors import LoadError, OutputError
from qgraph.npz import write_npz
from qgraph.train.options import Options
from tests.helpers import retraining

TEXTS = ("graph.txt", "float.txt", "profile.yaml", "rewrites.json")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return retraining.quantized(tmp_path_factory.mktemp("net"))


@pytest.fixture
def out(made, tmp_path):
    return retrain.save(made, tmp_path / "out")


@pytest.fixture
def trained(made, out):
    x, labels = retraining.task(made.floating)
    data = ({"image": x}, labels)
    retrain.train(out, data, data, Options(epochs=1))
    return out


@pytest.mark.parametrize("hashes", [True, False])
def test_a_damaged_file_is_named(out, hashes):
    """Hashes find any change of a text; directories of earlier versions have none."""
    about = json.loads((out / "training.json").read_text())
    assert sorted(about["files"]) == sorted(TEXTS)
    if not hashes:
        del about["files"]
        (out / "training.json").write_text(json.dumps(about))
    rng = random.Random(0)
    for name in (*TEXTS, "arrays.npz", "training.json"):
        content = (out / name).read_bytes()
        at = rng.randrange(len(content))
        flipped = content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]
        for damaged in (content[: len(content) // 2], flipped):
            if damaged is flipped and not (hashes and name in TEXTS):
                continue
            (out / name).write_bytes(damaged)
            with pytest.raises(LoadError, match=re.escape(f"out/{name}: ")):
                retrain.load(out)
        (out / name).write_bytes(content)
    retrain.load(out)


def test_measured_samples_of_earlier_directories_are_read(out):
    """Directories written before 0.2.0 name the measured samples `few`."""
    samples = retrain.load(out).measured_samples
    with np.load(out / "arrays.npz") as file:
        arrays = {name.replace("measured/", "few/"): file[name] for name in file}
    assert samples and any(name.startswith("few/") for name in arrays)
    write_npz(out / "arrays.npz", arrays)
    found = retrain.load(out).measured_samples
    assert found.keys() == samples.keys()
    for name, array in samples.items():
        np.testing.assert_array_equal(found[name], array)


def test_the_untrained_network_does_not_stand_in_for_a_lost_checkpoint(trained):
    (trained / "checkpoints/best.npz").unlink()
    with pytest.raises(LoadError, match=r"best\.npz: the checkpoint does not exist"):
        retrain.finalize(trained)
    assert retrain.finalize(trained, last=True).facts.training is not None


def test_checkpoints_that_cannot_be_removed_are_an_error(trained, monkeypatch):
    def refuse(path, *rest, **more):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(OutputError, match="checkpoints: cannot be written: Permission denied"):
        retrain.trainer(trained, np.zeros((8, 8, 8, 3), "float32"), restart=True)


def test_a_file_in_place_of_checkpoints_is_an_error(made, out):
    (out / "checkpoints").write_text("")
    with pytest.raises(OutputError, match="checkpoints: cannot be written: File exists"):
        retrain.save_checkpoint(retrain.module(made), out)
