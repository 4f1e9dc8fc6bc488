"""Arrays in memory or in files: the same to the bit, and nothing is left behind."""

import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import qgraph
from qgraph.errors import CalibrationError
from qgraph.ir.printing import print_graph
from qgraph.passes import PassManager
from qgraph.quant import calibrate as calibration
from qgraph.quant import graph_values, paired
from qgraph.quant.correct_bias import correct_biases
from qgraph.quant.reconstruction.reconstruct import reconstruct_weights
from qgraph.quant.samples import data as quant_data
from qgraph.quant.samples import spill
from qgraph.quant.samples.data import LEARNING_SAMPLES, thinned
from qgraph.quant.samples.spill import ChunkStore, Scratch, memory_bound
from qgraph.recipes import FLOAT
from tests.helpers.evaluate import random_feeds
from tests.helpers.generators.graphs import random_graph
from tests.helpers.quantized import INT8, insert

RNG = np.random.default_rng(8)


@pytest.fixture
def shelves(monkeypatch):
    """Every shelf that is made."""
    made: list[ChunkStore] = []

    class Watched(ChunkStore):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    for module in (graph_values, paired):
        monkeypatch.setattr(module, "ChunkStore", Watched)
    return made


def ready(seed: int):
    g = random_graph(seed, 14, "float32")
    PassManager(FLOAT).run(g)
    floating = g.copy()
    insert(g)
    return g, floating, random_feeds(g, batch=30)


@pytest.mark.parametrize("method", ["kl_j", "percentile", "mse", "output"])
@pytest.mark.parametrize("seed", [2, 4])
def test_calibration_does_not_depend_on_memory(method, seed, shelves):
    texts = []
    for memory in (None, 5_000, 0):
        g, _, data = ready(seed)
        calibration.calibrate(g, data, calibration.Calibration(method), memory=memory)
        texts.append(print_graph(g))
    assert texts[1:] == texts[:1] * 2
    assert not shelves[0].spilled and 0 < shelves[1].spilled < shelves[2].spilled


def test_corrections_do_not_depend_on_memory(shelves, monkeypatch):
    texts = []
    for memory in (1 << 40, 0):
        g, floating, data = ready(3)
        calibration.calibrate(g, data)
        for module in (paired, spill):
            monkeypatch.setattr(module, "memory_bound", lambda memory=memory: memory)
        reconstruct_weights(g, floating, data)
        correct_biases(g, floating, data)
        texts.append(print_graph(g))
    assert texts[0] == texts[1]
    assert not shelves[1].spilled and shelves[-1].spilled


@pytest.mark.parametrize("memory", [0, 1000])
def test_what_is_put_is_read(memory):
    shelf = ChunkStore(3, memory)
    arrays = [RNG.normal(size=(n, 5, 4)).astype(np.float32) for n in (4, 4, 2)]
    turned = [np.swapaxes(a, 1, 2) for a in arrays]
    for i in (2, 0, 1):  # threads come in any order, and the last chunk is smaller
        for name, chunks in (("a", arrays), ("turned", turned)):
            shelf.put(name, i, chunks[i])
    assert shelf.spilled
    for name, chunks in (("a", arrays), ("turned", turned)):
        for found, wanted in zip(shelf[name], chunks, strict=True):
            assert np.array_equal(found, wanted) and found.dtype == wanted.dtype
            assert found.flags.c_contiguous
    del shelf["a"], shelf["turned"]
    assert "a" not in shelf and not shelf._bytes_in_memory


def test_freed_memory_is_used_again():
    shelf = ChunkStore(1, 100)
    for turn in range(5):
        shelf.put(str(turn), 0, np.zeros(90, np.uint8))
        del shelf[str(turn)]
    assert not shelf.spilled


@pytest.mark.parametrize("array", [np.zeros((0, 3)), np.float32(2), np.ones(3, bool)])
def test_any_array_is_held(array):
    shelf = ChunkStore(2, 0)
    shelf.put("x", 1, array)
    found = shelf["x"][1]
    assert np.array_equal(found, array) and np.shape(found) == np.shape(array)


def test_files_have_no_name_and_vanish(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gc.collect()  # what tests before left
    before = len(os.listdir("/proc/self/fd"))
    scratch = Scratch()
    scratch.write(np.arange(5.0), 0)
    assert not list(tmp_path.iterdir())
    found = scratch.array(np.float64, (5,))
    del scratch
    assert found.tolist() == [0, 1, 2, 3, 4]
    del found
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_full_disk_is_reported(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spill.os, "pwrite", full)
    with pytest.raises(CalibrationError, match=r"No space left on device\n.*TMPDIR"):
        Scratch().write(b"x", 0)


def test_half_of_what_is_free():
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < memory_bound() <= total / 2


def test_samples_to_learn_from_are_spread_evenly():
    g = random_graph(0, dtype="float32")
    data = {"x": np.arange(10_000).reshape(-1, 1, 1, 1)}
    found = thinned(g, data, 512)["x"].ravel()
    assert len(found) == 512 and found[0] == 0 and set(np.diff(found)) == {19, 20}
    few = {"x": data["x"][:512]}
    assert thinned(g, few, 512) is few


def test_more_samples_are_learnt_from_where_they_are_small(monkeypatch):
    monkeypatch.setattr(quant_data, "LEARNT_NUMBERS", 6000)
    g = random_graph(0, dtype="float32")
    small, large = np.zeros((2000, 2, 2, 1)), np.zeros((2000, 4, 4, 1))
    assert len(thinned(g, {"x": small})["x"]) == 1500
    assert len(thinned(g, {"x": large})["x"]) == LEARNING_SAMPLES


def test_whole_batches_are_kept():
    from qgraph.ir.graph import Graph

    g = Graph("net")
    g.input("x", "float32", (6, 1))
    found = thinned(g, {"x": np.arange(600).reshape(-1, 1)}, most=20)["x"].reshape(-1, 6)
    assert found.tolist() == [[*range(s, s + 6)] for s in (0, 198, 396)]


def test_corrections_use_few_samples_and_thresholds_all(monkeypatch):
    from qgraph.quant.plan import Plan
    from qgraph.rewrite.trace import Trace
    from qgraph.static import build, sample_parts, search

    seen = {}
    monkeypatch.setattr(quant_data, "LEARNT_NUMBERS", 0)
    monkeypatch.setattr(build, "correct_biases", lambda g, f, data, *_: seen.update(corrected=data))
    calibrate = build.calibrate

    def watched(g, data, *rest):
        seen["calibrated"] = data
        calibrate(g, data, *rest)

    monkeypatch.setattr(build, "calibrate", watched)
    g = random_graph(0, 4, "float32")
    data = random_feeds(g, batch=LEARNING_SAMPLES + 200)
    split = sample_parts.split(g, data)
    search.search(g, INT8, split, "plain")  # through the stages of `build`
    assert (
        len(seen["calibrated"]["x"])
        == LEARNING_SAMPLES / search.TRIED
        < len(split.calibration["x"])
    )
    build.build(g, INT8, Plan(correct_bias=True), data, Trace())
    assert len(seen["calibrated"]["x"]) == LEARNING_SAMPLES + 200
    assert len(seen["corrected"]["x"]) == LEARNING_SAMPLES


# -- more data than memory ---------------------------------------------------------------------

CAPPED = """
import resource, sys
import numpy as np
import qgraph
from qgraph.static import build  # all that a run imports
from qgraph.ir.graph import Graph

def network():
    g, rng = Graph("net"), np.random.default_rng(0)
    x = g.input("x", "float32", (None, 64, 64, 3))
    same = {"strides": (2, 2), "dilations": (1, 1), "padding": "same"}
    for i, (a, b) in enumerate([(3, 6), (6, 6)]):
        w = rng.normal(size=(3, 3, a, b)).astype("float32")
        x = g.add("relu", g.add("conv2d", x, g.const(w), attrs=same))
    pooled = g.add("mean", x, attrs={"axes": (1, 2), "keepdims": False})
    g.outputs["y"] = g.add("matmul", pooled, g.const(rng.normal(size=(6, 4)).astype("float32")))
    return g

def samples():  # what `module:function` gives: batch by batch
    rng = np.random.default_rng(1)
    for _ in range(int(sys.argv[2])):
        yield rng.random((32, 64, 64, 3), dtype="float32")

if __name__ == "__main__":
    source, batches, cap = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    warm = np.random.default_rng(0).random((16, 64, 64, 3), dtype="float32")
    qgraph.quantize(network(), warm, method="output")  # threads and libraries take theirs
    status = dict(s.split(":") for s in open("/proc/self/status").read().splitlines())
    used = int(status["VmData"].split()[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (used + cap, used + cap))
    options = {"effort": "plain", "method": "output", "memory": int(sys.argv[4])}
    result = qgraph.quantize(network(), source, **options)
    print(result.facts.calibration_samples)
    from qgraph.ir.printing import print_graph
    print(print_graph(result.graph))
"""
MIB = 1 << 20
BATCHES, CAP = 176, 64 * MIB


def capped(tmp_path, source: object, memory: int = 8 * MIB) -> subprocess.CompletedProcess:
    """Quantize in a process that may allocate CAP bytes, and hold `memory` of live values."""
    (tmp_path / "capped.py").write_text(CAPPED)
    paths = [str(Path(qgraph.__file__).parents[1]), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "capped", source, BATCHES, CAP, memory]
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, env=environment, check=False
    )


@pytest.fixture(scope="module")
def many():
    """Four times what may be allocated, most of it zeros: it is to be compressed quickly."""
    x = np.zeros((BATCHES * 32, 64, 64, 3), np.float32)
    x[:, ::8, ::8] = np.random.default_rng(1).random((len(x), 8, 8, 3))
    assert x.nbytes > 4 * CAP
    return x


@pytest.mark.slow
@pytest.mark.parametrize("form", ["function", "npy", "npz", "compressed"])
def test_more_samples_than_memory(tmp_path, many, form):
    source = tmp_path / f"x.{'npy' if form == 'npy' else 'npz'}"
    if form == "npy":
        np.save(source, many)
    elif form != "function":
        (np.savez if form == "npz" else np.savez_compressed)(source, x=many)
    done = capped(tmp_path, "capped:samples" if form == "function" else source)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith(f"{len(many)}\n")


@pytest.mark.slow
def test_live_values_are_past_memory_if_they_are_held(tmp_path):
    """The cap is one: what the others pass fails if all values are kept in memory."""
    done = capped(tmp_path, "capped:samples", memory=1 << 40)
    assert done.returncode != 0 and "alloc" in done.stderr
