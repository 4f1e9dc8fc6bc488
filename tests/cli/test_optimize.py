"""`qgraph optimize`: the float network as passes leave it, in TensorFlow's and in ONNX's files."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import tensorflow as tf

import qgraph
from qgraph.backends.onnx.runners import session
from qgraph.backends.tf.program import TFProgram
from qgraph.errors import UnsupportedError, UsageError
from qgraph.frontends.onnx import import_model, read
from qgraph.ir.printing import print_graph
from qgraph.passes import PassManager
from qgraph.recipes import FLOAT
from qgraph.stored.manifest import read_manifest
from qgraph.verification.verify import verify
from tests.helpers.cli import left_in, run, small_network, typical_images
from tests.helpers.named_networks import named_network, samples_for
from tests.helpers.onnx_graphs import one_op, runtime
from tests.helpers.own_passes import Rename
from tests.helpers.tf_graphs import graph_def_of, v1

OWN = "tests.helpers.own_passes"
HOSTILE = (
    "in put", "x/y:0", "y", 'side"', "", "b\n", "conv", "conv/NHWC", "y_1", "%", "ü", "d", "e",
)  # fmt: skip


def run_pb(path: Path, feeds: dict, fetch: list[str]) -> list:
    return TFProgram(path).run(feeds, fetch)


def run_onnx(path: Path, feeds: dict) -> dict:
    model = onnx.load(path)
    names = [output.name for output in model.graph.output]
    return dict(zip(names, session(model, True).run(None, feeds), strict=True))


def normed() -> tf.compat.v1.GraphDef:
    """Convolutions with batch norms, a branch, a mean, a softmax: `image` to `classes`, `inner`."""
    rng = np.random.default_rng(3)

    def weights(*shape, low=None):
        x = rng.normal(0, 0.5, shape) if low is None else rng.uniform(low, 2, shape)
        return tf.constant(x.astype("float32"))

    def norm(x):
        c = x.shape[-1]
        args = weights(c, low=0.2), weights(c), weights(c), weights(c, low=0.2)
        return v1.nn.fused_batch_norm(x, *args, is_training=False, epsilon=0.01)[0]

    def build():
        image = v1.placeholder("float32", (None, 9, 8, 3), "image")
        x = tf.nn.relu6(norm(tf.nn.conv2d(image, weights(3, 3, 3, 6), 2, "SAME")))
        y = norm(tf.nn.depthwise_conv2d(x, weights(3, 3, 6, 1), (1, 1, 1, 1), "SAME"))
        x = tf.identity(tf.nn.leaky_relu(x + y, 0.1), name="inner")
        x = tf.nn.avg_pool2d(tf.concat([x, y], 3), 2, 1, "SAME")
        x = tf.matmul(tf.reduce_mean(x, (1, 2)), weights(12, 4))
        return tf.nn.softmax(tf.nn.bias_add(x, weights(4)), name="scores")

    made = graph_def_of(build)
    made.node[-1].name = "classes"
    return made


def two_layers() -> tf.compat.v1.GraphDef:
    """Two convolutions, the first with a batch norm and a ReLU: `image` to `y`."""
    rng = np.random.default_rng(4)
    first, second = (rng.normal(0, 0.5, (3, 3, 3, c)).astype("float32") for c in (3, 5))
    moments = rng.uniform(0.2, 2, (4, 3)).astype("float32")

    def build():
        image = v1.placeholder("float32", (None, 9, 8, 3), "image")
        x = tf.nn.conv2d(image, tf.constant(first), 1, "SAME")
        args = map(tf.constant, moments)
        x = tf.nn.relu(v1.nn.fused_batch_norm(x, *args, is_training=False, epsilon=0.01)[0])
        return tf.nn.conv2d(x, tf.constant(second), 1, "SAME")

    return graph_def_of(build)


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("float")
    (folder / "net.pb").write_bytes(normed().SerializeToString())
    onnx.save(named_network(list("xzysabcdefghi")), folder / "net.onnx")
    return folder


IMAGES = np.random.default_rng(5).normal(size=(7, 9, 8, 3)).astype("float32")


# -- the same function -----------------------------------------------------------------------------


def test_a_tensorflow_network_computes_the_same_in_both_files(networks, tmp_path):
    model = networks / "net.pb"
    outputs = ["classes", "inner"]
    wanted = run_pb(model, {"image": IMAGES}, outputs)
    for name in ("float.pb", "float.onnx"):
        done = run("optimize", model, "-o", tmp_path / name, "--outputs", "classes,inner")
        assert done.code == 0, done.err
        assert f"written to {tmp_path / name}\nnext: qgraph quantize " in done.out
    found = run_pb(tmp_path / "float.pb", {"image": IMAGES}, outputs)
    also = run_onnx(tmp_path / "float.onnx", {"image": IMAGES})
    for ours, tf_, name in zip(wanted, found, outputs, strict=True):
        np.testing.assert_allclose(tf_, ours, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(also[name], ours, rtol=1e-4, atol=1e-5)
    assert left_in(tmp_path) == {"float.pb", "float.onnx"}


def test_batch_norms_and_pools_are_folded(networks, tmp_path):
    assert run("optimize", networks / "net.pb", "-o", tmp_path / "f.pb").code == 0
    written = tf.compat.v1.GraphDef.FromString((tmp_path / "f.pb").read_bytes())
    ops = [node.op for node in written.node]
    assert not {"FusedBatchNormV3", "Mean", "AvgPool", "LeakyRelu"} & set(ops)
    assert ops.count("Conv2D") + ops.count("DepthwiseConv2dNative") >= 4
    assert run("optimize", networks / "net.pb", "-o", tmp_path / "f.onnx").code == 0
    kinds = {node.op_type for node in onnx.load(tmp_path / "f.onnx").graph.node}
    assert "Conv" in kinds and not {"BatchNormalization", "ReduceMean", "AveragePool"} & kinds


def test_an_onnx_network_computes_the_same_in_both_files(networks, tmp_path):
    original = onnx.load(networks / "net.onnx")
    feeds = samples_for(list("xz"))
    wanted = runtime(original, feeds)
    result = qgraph.optimize(networks / "net.onnx")
    result.save(tmp_path / "f.onnx")
    found = run_onnx(tmp_path / "f.onnx", feeds)
    for name, ours in wanted.items():
        np.testing.assert_allclose(found[name], ours, rtol=1e-4, atol=1e-5)
    result.save(tmp_path / "f.pb")
    names = result.io_names(tmp_path / "f.pb")
    also = run_pb(tmp_path / "f.pb", feeds, list(names.outputs.values()))
    for ours, theirs in zip(wanted.values(), also, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)


def test_hostile_names_stay_in_onnx_and_changed_ones_are_listed_for_tensorflow(tmp_path):
    names = [name or "n" for name in HOSTILE]
    original = named_network(names)
    onnx.save(original, tmp_path / "net.onnx")
    feeds = samples_for(names[:2])
    wanted = runtime(original, feeds)
    done = run("optimize", tmp_path / "net.onnx", "-o", tmp_path / "f.onnx", "--json")
    assert done.code == 0 and json.loads(done.out)["renamed"] == {}
    found = run_onnx(tmp_path / "f.onnx", feeds)
    assert list(found) == [o.name for o in original.graph.output]
    done = run("optimize", tmp_path / "net.onnx", "-o", tmp_path / "f.pb", "--json")
    renamed = json.loads(done.out)["renamed"]
    assert renamed["inputs"] == {"in put": "in_put", "x/y:0": "x/y_0"}
    done = run("optimize", tmp_path / "net.onnx", "-o", tmp_path / "f.pb", "--force").out
    assert "note: input `in put` is called `in_put` in the file" in done
    also = run_pb(
        tmp_path / "f.pb",
        {renamed["inputs"][name]: x for name, x in feeds.items()},
        [renamed["outputs"].get(name, name) for name in found],
    )
    for ours, one, other in zip(wanted.values(), found.values(), also, strict=True):
        np.testing.assert_allclose(one, ours, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(other, ours, rtol=1e-4, atol=1e-5)


def said(graph):
    """The ops, types and constants, without names."""
    return [
        (n.op, graph.types[n.name], n.attrs["value"].tobytes() if n.op == "const" else None)
        for n in graph.topological()
    ]


@pytest.mark.parametrize("suffix", [".pb", ".onnx"])
def test_what_was_written_is_read_again_and_stays(networks, tmp_path, suffix):
    first = qgraph.optimize(networks / "net.pb").save(tmp_path / f"a{suffix}")
    again = qgraph.optimize(first)
    assert not [r for r in again.trace.rewrites if r.pass_name.startswith("fold-batch")]
    assert set(again.graph.inputs) == {"image"} and set(again.graph.outputs) == {"classes"}
    assert again.graph.types["image"].shape == (None, 9, 8, 3)
    second = again.save(tmp_path / f"b{suffix}")
    third = qgraph.optimize(second).save(tmp_path / f"c{suffix}")
    assert said(qgraph.load(second)) == said(qgraph.load(third))


def test_a_graph_in_memory_is_left_as_it_is_and_the_recipe_is_the_float_one(networks):
    graph = qgraph.load(networks / "net.pb")
    before, wanted = print_graph(graph), graph.copy()
    PassManager(FLOAT).run(wanted)
    result = qgraph.optimize(graph)
    assert print_graph(graph) == before and print_graph(result.graph) == print_graph(wanted)
    assert [r.name for r in result.results] == [step.name for step in FLOAT]


# -- pass lists ------------------------------------------------------------------------------------


def test_passes_take_the_place_of_the_recipe(networks, tmp_path):
    out = tmp_path / "f.onnx"
    done = run("optimize", networks / "net.pb", "-o", out, "--passes", "strip-unused", "--json")
    assert [p["name"] for p in json.loads(done.out)["passes"]] == ["strip-unused"]
    kinds = {node.op_type for node in onnx.load(out).graph.node}
    assert {"BatchNormalization", "ReduceMean", "AveragePool", "LeakyRelu"} <= kinds
    wanted = run_pb(networks / "net.pb", {"image": IMAGES}, ["classes"])[0]
    np.testing.assert_allclose(run_onnx(out, {"image": IMAGES})["classes"], wanted, rtol=1e-4)


def test_equalized_channels_compute_the_same(networks, tmp_path):
    passes = "float,equalize-channels{biases=true, powers-of-two=true}"
    for name in ("f.pb", "f.onnx"):
        run("optimize", networks / "net.pb", "-o", tmp_path / name, "--passes", passes)
    wanted = run_pb(networks / "net.pb", {"image": IMAGES}, ["classes"])[0]
    found = run_pb(tmp_path / "f.pb", {"image": IMAGES}, ["classes"])[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    also = run_onnx(tmp_path / "f.onnx", {"image": IMAGES})["classes"]
    np.testing.assert_allclose(also, wanted, rtol=1e-4)


@pytest.mark.parametrize("name", ["f.pb", "f.onnx"])
def test_two_passes_are_a_whole_list(tmp_path, name):
    (tmp_path / "net.pb").write_bytes(two_layers().SerializeToString())
    passes = "fold-batch-norm,equalize-channels{biases=true}"
    done = run("optimize", tmp_path / "net.pb", "-o", tmp_path / name, "--passes", passes, "--json")
    ran = {p["name"]: p["changes"] for p in json.loads(done.out)["passes"]}
    assert list(ran) == ["fold-batch-norm", "equalize-channels"] and all(ran.values())
    wanted = run_pb(tmp_path / "net.pb", {"image": IMAGES}, ["y"])[0]
    ours = (
        run_pb(tmp_path / name, {"image": IMAGES}, ["y"])[0]
        if name == "f.pb"
        else run_onnx(tmp_path / name, {"image": IMAGES})["y"]
    )
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["net.pb", "net.onnx"])
def test_two_passes_are_a_whole_list_for_quantize_too(tmp_path, name):
    (tmp_path / "net.pb").write_bytes(two_layers().SerializeToString())
    if name == "net.onnx":
        qgraph.optimize(tmp_path / "net.pb", passes="strip-unused").save(tmp_path / name)
    np.save(tmp_path / "images.npy", IMAGES)
    passes = "fold-batch-norm,equalize-channels{biases=true}"
    out = tmp_path / "out"
    done = run("quantize", tmp_path / name, "-c", tmp_path / "images.npy", "-o", out,
               "--passes", passes)  # fmt: skip
    assert done.code == 0, done.err
    assert "note: quantizers require `lower-batch-norm`, added to the pass list" in done.out
    added = "fold-batch-norm,equalize-channels,lower-batch-norm,insert-quantizers"
    assert read_manifest(out).facts.passes.startswith(added)  # biases=true is the default
    assert verify(out).equal
    shown = run("inspect", tmp_path / name, "--passes", passes)
    assert "`lower-batch-norm`, added to the pass list" in shown.out


def test_constants_behind_identities_are_refused_with_the_pass_that_helps(networks, tmp_path):
    net = tf.compat.v1.GraphDef.FromString((networks / "net.pb").read_bytes())
    norm = next(node for node in net.node if node.op == "FusedBatchNormV3")
    net.node.add(name="read", op="Identity", input=[norm.input[1]])
    net.node[-1].attr["T"].type = tf.float32.as_datatype_enum
    norm.input[1] = "read"
    (tmp_path / "net.pb").write_bytes(net.SerializeToString())
    done = run("optimize", tmp_path / "net.pb", "-o", tmp_path / "f.pb", "--passes",
               "fold-batch-norm", "--json")  # fmt: skip
    reasons = {r["reason"] for r in json.loads(done.out)["refusals"]}
    assert "its statistics are not constant: `splice-identities` must run before" in reasons
    passes = "splice-identities,fold-batch-norm"
    done = run("optimize", tmp_path / "net.pb", "-o", tmp_path / "f.onnx", "--passes", passes)
    assert "not constant" not in done.out


def test_a_pass_that_is_left_out_does_not_run(networks, tmp_path):
    out = tmp_path / "f.pb"
    done = run("optimize", networks / "net.pb", "-o", out, "--without", "fold-batch-norm", "--json")
    names = [p["name"] for p in json.loads(done.out)["passes"]]
    assert names == [s.name for s in FLOAT if s.name != "fold-batch-norm"]


def test_passes_of_the_current_directory(networks, tmp_path, monkeypatch):
    (tmp_path / "mine_here.py").write_text(Path("tests/helpers/own_passes.py").read_text())
    monkeypatch.chdir(tmp_path)
    done = run(
        "optimize", networks / "net.pb", "-o", "f.pb", "--json",
        "--passes", "float,mine_here:Rename{suffix=_renamed}",
    )  # fmt: skip
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["passes"][-1]["name"] == "rename"


def test_quantize_and_inspect_take_pass_lists(model, samples, tmp_path):
    passes = f"float,{OWN}:Rename{{suffix=_mine}}"
    done = run("quantize", model, "-c", samples, "-o", tmp_path / "out", "--passes", passes,
               "--effort", "plain")  # fmt: skip
    assert done.code == 0, done.err
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    names = [p.partition("{")[0] for p in manifest["passes"].split(",")]
    assert f"{OWN}:Rename" in names and names[-3:-1] == ["insert-quantizers", "hoist-quantizers"]
    assert "relu_mine" in (tmp_path / "out/graph.txt").read_text()
    rewrites = json.loads((tmp_path / "out/rewrites.json").read_text())["rewrites"]
    assert "rename" in {r["pass_name"] for r in rewrites}
    shown = json.loads(run("inspect", model, "--passes", passes, "--json").out)
    assert [p["name"] for p in shown["passes"]].count("rename") == 1
    shown = json.loads(run("inspect", model, "--without", "hoist-quantizers", "--json").out)
    assert "hoist-quantizers" not in [p["name"] for p in shown["passes"]]


@pytest.mark.parametrize("effort", ["fast", "default"])
def test_a_search_tries_no_pass_that_is_not_in_the_list(effort):
    network = import_model(read(named_network([f"n{i}" for i in range(13)])))
    data = samples_for(["n0", "n1"], 40)
    found = qgraph.quantize(network, data, effort=effort, passes="float", without="scale-inputs")
    for trial in found.facts.choice.trials:
        plan = trial.plan
        assert not plan.equalize and not plan.absorb and not plan.constant_channels
    usual = qgraph.quantize(network, data, effort=effort, without="equalize-channels")
    assert not any(trial.plan.equalize for trial in usual.facts.choice.trials)
    assert len(usual.facts.choice.trials) > 1


def test_the_same_bits_with_the_recipe_written_out(model, samples):
    plain = qgraph.quantize(model, samples, effort="plain")
    listed = qgraph.quantize(model, samples, effort="plain", passes=FLOAT)
    text = qgraph.quantize(model, samples, effort="plain", passes=str(plain.facts.passes))
    assert print_graph(plain.graph) == print_graph(listed.graph) == print_graph(text.graph)


# -- refusals --------------------------------------------------------------------------------------


def test_another_suffix_is_refused_before_anything_is_read(tmp_path):
    done = run("optimize", tmp_path / "gone.pb", "-o", tmp_path / "f.h5")
    assert done.code == 2 and "ends neither in .pb nor in .onnx" in done.err
    with pytest.raises(UsageError, match="ends neither in"):
        qgraph.optimize(small_graph()).save(tmp_path / "f")


def small_graph():
    return import_model(read(one_op("Relu", np.zeros((2, 3), np.float32))))


def test_files_that_exist_are_not_replaced(model, tmp_path):
    done = run("optimize", model, "-o", model)
    assert done.code == 8 and "the output is the model itself" in done.err
    kept = tmp_path / "f.pb"
    kept.write_text("mine")
    done = run("optimize", model, "-o", kept)
    assert done.code == 8 and "exists" in done.err and kept.read_text() == "mine"
    assert run("optimize", model, "-o", kept, "--force").code == 0
    assert kept.read_bytes() != b"mine"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--passes", "fold-batchnorm"], 2, "did you mean `fold-batch-norm`"),
        (["--passes", "float,absorb-biases{deviation=2}"], 2, "did you mean `deviations`?"),
        (["--passes", "equalize-channels"], 10, "or `lower-batch-norm` before it"),
        (["--passes", "static"], 2, "quantizes, but the result of optimize is a float network"),
        (["--without", "fold"], 2, "unknown pass `fold`"),
        (["--without", "xyz"], 2, "unknown pass `xyz`"),
        (["--passes", f"{OWN}:Broken"], 10, "pass `broken` failed: key 'lost' is missing"),
    ],
    ids=str,
)
def test_wrong_lists_are_answered(model, tmp_path, options, code, message):
    done = run("optimize", model, "-o", tmp_path / "f.pb", *options)
    assert done.code == code and message in done.err
    assert left_in(tmp_path) == set()


def test_a_plan_and_a_list_that_do_not_fit_are_refused(model, samples, tmp_path):
    done = run("quantize", model, "-c", samples, "-o", tmp_path / "out", "--passes", "float",
               "--plan", "equalize=biases")  # fmt: skip
    assert done.code == 2 and "`equalize` adds passes that are not in the pass list" in done.err
    done = run("quantize", model, "-c", samples, "-o", tmp_path / "out", "--without",
               "lower-batch-norm")  # fmt: skip
    assert done.code == 10 and "requires `batch-norm-lowered`" in done.err
    assert not (tmp_path / "out").exists()


def odd(x):
    return tf.math.lgamma(tf.nn.relu(x) + 1, name="odd")


def test_unsupported_ops_are_written_in_their_own_format(tmp_path):
    (tmp_path / "net.pb").write_bytes(small_network(odd).SerializeToString())
    feeds, result = {"image": typical_images(4)}, qgraph.optimize(tmp_path / "net.pb")
    result.save(tmp_path / "f.pb")
    wanted, found = (run_pb(tmp_path / n, feeds, ["classes"])[0] for n in ("net.pb", "f.pb"))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    with pytest.raises(UnsupportedError, match="odd: `Lgamma` is not supported and not an ONNX op"):
        result.save(tmp_path / "f.onnx")
    assert left_in(tmp_path) == {"net.pb", "f.pb"}


def test_passes_are_values_in_python(networks):
    made = qgraph.optimize(networks / "net.pb", passes=[*FLOAT, Rename("_own")])
    assert made.results[-1].name == "rename"
