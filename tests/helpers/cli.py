"""Run the command line in this process, because the import of TensorFlow takes seconds."""

import io
import math
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import tensorflow as tf

from qgraph.cli import main as cli
from tests.helpers.tf_graphs import graph_def_of, v1


@dataclass(frozen=True)
class Run:
    """Result of a command: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


def run(*arguments: object) -> Run:
    """Run `qgraph ARGUMENTS` as a user would, without a terminal.

    The time is not printed, however slow the machine is, unless a test sets MIN_SECONDS_SHOWN to 0.
    """
    out, err = io.StringIO(), io.StringIO()
    argv = ["qgraph", *map(str, arguments)]
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch.object(sys, "path", list(sys.path)),
        mock.patch.object(cli, "MIN_SECONDS_SHOWN", math.inf if cli.MIN_SECONDS_SHOWN else 0.0),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Run(code, out.getvalue(), err.getvalue())


def run_process(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` in a separate process, with the environment of a user.

    TensorFlow's log level, which a test run or a CI job may set, is not passed on.
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "80"}
    env.pop("TF_CPP_MIN_LOG_LEVEL", None)
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, env=env
    )


def small_network(middle=lambda x: x):
    """A GraphDef `image` [?,8,8,3] -> `classes` [?,4]; `middle` is the tensor between its two
    layers.
    """
    rng = np.random.default_rng(0)

    def weights(*shape):
        return tf.constant(rng.normal(0, 0.4, shape).astype("float32"))

    def build():
        image = v1.placeholder("float32", (None, 8, 8, 3), "image")
        x = tf.nn.conv2d(image, weights(3, 3, 3, 6), 2, "SAME", name="first")
        x = tf.nn.relu(tf.nn.bias_add(x, weights(6)), name="relu")
        x = tf.reduce_mean(middle(x), axis=(1, 2), name="mean")
        x = tf.nn.bias_add(tf.matmul(x, weights(6, 4), name="second"), weights(4))
        return tf.nn.softmax(x, name="scores")

    made = graph_def_of(build)
    made.node[-1].name = "classes"
    return made


def typical_images(count=16):
    """Inputs of `small_network`."""
    return np.random.default_rng(1).random((count, 8, 8, 3), dtype="float32")


def left_in(folder: Path) -> set[str]:
    """The names in a folder, including hidden ones."""
    return {p.name for p in folder.iterdir()}
