"""`qgraph inspect` lists an op as not understood only where no pass reads it either."""

import json

import pytest
import tensorflow as tf

from tests.helpers.cli import run
from tests.helpers.tf_graphs import graph_def_of, v1


@pytest.mark.parametrize("used_elsewhere", [False, True])
def test_random_op_of_a_dropout_is_understood(tmp_path, used_elsewhere):
    def build():
        x = v1.placeholder("float32", (None, 4), "x")
        noise = tf.random.uniform((1, 4), name="noise")
        scaled = tf.math.divide(x, 0.5, name="scaled")
        kept = tf.floor(0.5 + noise) * scaled
        return [tf.nn.relu(kept), noise + x] if used_elsewhere else [tf.nn.relu(kept)]

    path = tmp_path / "net.pb"
    path.write_bytes(graph_def_of(build).SerializeToString())
    facts = json.loads(run("inspect", path, "--json").out)
    left = {entry["op"] for entry in facts["not_understood"]}
    assert left == ({"RandomUniform"} if used_elsewhere else set())
