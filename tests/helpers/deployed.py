"""Static policies for tests of their C, and their actions by the compiled example."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np

from qgraph.backends.c.c_form import COMPILERS, STRICT
from qgraph.ir.graph import Graph
from qgraph.rl.deploy import Deployment
from qgraph.rl.deploy.example_process import FLAGS, as_action, as_text, build_example
from qgraph.rl.head import Head
from qgraph.rl.policy import Policy, pack, read_policy

FOUND = [command for command in COMPILERS[1:] if shutil.which(command)]
HEADS = {
    "argmax": Head("argmax"),
    "categorical": Head("categorical"),
    "clip": Head("clip", (-0.5, -1.0, 0.1, -np.inf), (0.5, 0.25, 0.7, np.inf)),
    "scale": Head("scale", (-2.0, -1.0, 0.1, 0.0), (0.3, 1.0, 0.7, 7.7)),
    "gaussian": Head("gaussian", (-1.0,) * 4, (1.0,) * 4, (0.0,) * 4),
    "squashed_gaussian": Head("squashed_gaussian", (-2.0, 0.1), (0.3, 0.7)),
    "none": None,
}
SIZE = 5


def observed(count: int = 400, seed: int = 0) -> np.ndarray:
    """Observations [count, 5] whose features differ in size."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(count, SIZE)) * [0.01, 1, 3, 40, 1]).astype(np.float32)


def network(normalized: bool = True, outputs: int = 4) -> Graph:
    """Two layers, with a normalizer whose steps round: (x - mean) * scale, then a clip."""
    rng, graph = np.random.default_rng(7), Graph("walker")
    x = graph.input("seen", "float32", (None, SIZE))
    if normalized:
        mean = np.float32([0.003, 0.1, -0.7, 11.3, 0.0])
        scale = np.float32([99.7, 1.1, 0.37, 0.0243, 1.0])
        x = graph.add("sub", x, graph.const(mean), name="observation")
        x = graph.add("mul", x, graph.const(scale), name="x")
        x = graph.add("minimum", x, graph.const(np.float32(3)), name="policy/outputs")
        x = graph.add("maximum", x, graph.const(np.float32(-3)), name="static")
    hidden = graph.add("matmul", x, graph.const(rng.normal(size=(SIZE, 12)).astype("f") / 2))
    hidden = graph.add("relu", hidden)
    last = graph.const(rng.normal(size=(12, outputs)).astype("f") / 2)
    graph.outputs = {"out": graph.add("matmul", hidden, last)}
    return graph


def policy_of(graph: Graph, head: Head | None, observations: np.ndarray, bits: int = 8) -> Policy:
    return Policy(pack(read_policy(graph), head, bits, "static", observations))


@cache
def with_head(name: str, normalized: bool = True) -> Policy:
    return policy_of(network(normalized), HEADS[name], observed())


def actions_in_c(
    made: Deployment,
    observations: np.ndarray,
    flags: tuple[str, ...] = FLAGS,
    command: str | None = None,
    masks: np.ndarray | None = None,
) -> list[np.ndarray | None]:
    """The actions that the example prints; None where it refuses the observation."""
    program = made.folder.parent / f"{made.folder.name}-{command}{''.join(flags)}".replace("=", "")
    if not program.exists():
        build_example(made.folder, made.facts, program, flags, command)
    given = [None] * len(observations) if masks is None else masks
    pairs = zip(observations, given, strict=True)
    text = "".join(as_text(one, made.facts, mask) for one, mask in pairs)
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [as_action(line, made.facts) for line in done.stdout.splitlines()]


def assert_same_actions(policy: Policy, made: Deployment, observations, **how) -> None:
    """Assert that C chooses Python's actions, bit for bit."""
    found = actions_in_c(made, observations, **how)
    assert len(found) == len(observations)
    for one, action in zip(observations, found, strict=True):
        wanted = policy(one)
        assert action is not None
        assert (action.dtype, action.shape) == (wanted.dtype, wanted.shape)
        assert action.tobytes() == wanted.tobytes(), (one, action, wanted)


def library(made: Deployment, text: str, command: str | None = None) -> ctypes.CDLL:
    """`policy.c` and C behind it, which can call its static functions, as a library."""
    place = made.folder.parent
    source = place / f"inside-{hashlib.sha256(f'{command}{text}'.encode()).hexdigest()[:9]}.c"
    source.write_text(f'#include "{made.folder}/{made.facts.name}.c"\n{text}')
    words = [command or COMPILERS[0], *STRICT, *FLAGS, "-fPIC", "-shared", "-I", made.folder]
    file = Path(f"{source}.so")
    subprocess.run([*words, source, made.folder / f"{made.facts.net}.c", "-o", file], check=True)
    return ctypes.CDLL(str(file))
