"""`qgraph inspect` lists an op as not supported only where no pass reads it either."""

import json

import pytest
import tensorflow as tf

from qgraph.frontends.tf import importing
from tests.helpers.cli import run
from tests.helpers.tf_graphs import graph_def_of, v1


@pytest.mark.parametrize("used_elsewhere", [False, True])
def test_random_op_of_a_dropout_is_supported(tmp_path, used_elsewhere):
    def build():
        x = v1.placeholder("float32", (None, 4), "x")
        noise = tf.random.uniform((1, 4), name="noise")
        scaled = tf.math.divide(x, 0.5, name="scaled")
        kept = tf.floor(0.5 + noise) * scaled
        return [tf.nn.relu(kept), noise + x] if used_elsewhere else [tf.nn.relu(kept)]

    path = tmp_path / "net.pb"
    path.write_bytes(graph_def_of(build).SerializeToString())
    facts = json.loads(run("inspect", path, "--json").out)
    left = {entry["op"] for entry in facts["unsupported"]}
    assert left == ({"RandomUniform"} if used_elsewhere else set())


def test_the_attribute_that_is_not_supported_is_named(tmp_path, monkeypatch):
    kept = {
        **importing.IMPORTERS,
        "LeakyRelu": lambda site: site.emit("leaky_relu", site.inputs[0], alpha=0.2),
    }
    monkeypatch.setattr(importing, "IMPORTERS", kept)

    def build():
        x = v1.placeholder("float32", (None, 4), "x")
        y = tf.nn.leaky_relu(x, 0.25, name="a") + tf.nn.leaky_relu(x, 0.5, name="b")
        return [tf.math.betainc(y, y, y, name="c") + tf.nn.leaky_relu(x, 0.2, name="d")]

    path = tmp_path / "net.pb"
    path.write_bytes(graph_def_of(build).SerializeToString())
    facts = json.loads(run("inspect", path, "--json").out)
    assert {entry["name"]: entry["reason"] for entry in facts["unsupported"]} == {
        "a": "not supported: attribute `alpha` (0.25)",
        "b": "not supported: attribute `alpha` (0.5)",
        "c": "",
    }
    shown = run("inspect", path).out
    assert "attribute `alpha` (0.25)" in " ".join(shown.split())
