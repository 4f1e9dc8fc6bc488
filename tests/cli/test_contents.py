"""Content of the output directory: it is enough to check hardware against."""

import hashlib
import json

import numpy as np
import pytest

import qgraph
from qgraph.backends.tf.program import TFProgram
from qgraph.ir.graph import Graph
from qgraph.ir.parsing import parse_graph
from qgraph.ir.printing import print_graph
from qgraph.stored.code_constants import on_grid
from qgraph.stored.manifest import FORMAT
from qgraph.stored.write import FILES
from tests.helpers.cli import run, small_network, typical_images


@pytest.fixture(scope="module")
def manifest(written):
    return json.loads((written / "manifest.json").read_text())


@pytest.fixture(scope="module")
def tensors(written):
    with np.load(written / "tensors.npz", allow_pickle=False) as arrays:
        return dict(arrays)


def test_files(written, manifest):
    assert {p.name for p in written.iterdir()} == set(FILES)
    for name in ("inference.pb", "tensors.npz", "rewrites.json", "graph.txt", "statistics.json"):
        assert manifest["files"][name] == hashlib.sha256((written / name).read_bytes()).hexdigest()


def test_two_runs_write_the_same_bytes(model, samples, written, tmp_path):
    assert run("quantize", model, "-c", samples, "-o", tmp_path / "out").code == 0
    files = [p.relative_to(written) for p in written.rglob("*") if p.is_file()]
    assert len(files) >= len(FILES)
    for file in files:
        assert (tmp_path / "out" / file).read_bytes() == (written / file).read_bytes(), file


def test_manifest(manifest, model):
    assert manifest["model"] == "net.pb"
    assert manifest["model_sha256"] == hashlib.sha256(model.read_bytes()).hexdigest()
    assert set(manifest["versions"]) == {"python", "qgraph", "numpy", "tensorflow"}
    assert manifest["profile"]["name"] == "graffitist-int8"
    assert manifest["calibration_method"] == manifest["plan"]["method"]
    assert manifest["calibration_samples"] == 12  # of 16: the others are for the report
    assert (manifest["effort"], manifest["agreement"]["samples"]) == ("default", 4)
    assert manifest["inputs"] == {"image": "float32[?,8,8,3]"}
    assert manifest["outputs"] == {"classes": "float32[?,4]"}
    assert manifest["float_ops"] == [{"name": "scores", "op": "softmax", "between": False}]
    first = manifest["layers"][0]
    assert (first["name"], first["op"], first["input"]) == ("first", "conv2d", "image/q8")
    assert (first["weight_bits"], first["output_bits"], first["exact_in"]) == (8, 8, "float32")
    assert 10 < first["sqnr_db"] < 60 and first["accumulator_bits"] <= 32
    members = {m for group in manifest["scale_groups"].values() for m in group["members"]}
    assert members <= {t["name"] for t in manifest["tensors"]}


def test_keys_go_with_the_number_of_the_format(manifest):
    """If this fails, raise `FORMAT`: `qgraph report` reads only its own format."""
    assert FORMAT == 8 and set(manifest) == {
        "format", "versions", "model", "model_sha256", "calibration_samples", "effort", "plan",
        "plan_spec", "trials", "agreement", "calibration_method", "profile", "inputs", "outputs",
        "layers", "tensors", "scale_groups", "float_ops", "files",
        "warnings", "notes", "inputs_seen", "input_doubts", "domain", "data_free", "training",
        "established", "tensorflow_names", "passes", "exponents",
    }  # fmt: skip


def test_every_integer_tensor_is_there_in_its_smallest_type(manifest, tensors):
    for tensor in manifest["tensors"]:
        codes = tensors[f"codes/{tensor['name']}"]
        width = next(n for n in (8, 16, 32) if tensor["bits"] <= n)
        assert codes.dtype == f"{'int' if tensor['signed'] else 'uint'}{width}"
        assert tensors[f"exponent/{tensor['name']}"] == tensor["exponent"]
    assert tensors["input/image"].shape == (1, 8, 8, 3)


# -- by hand, with nothing but numpy integers --------------------------------------------------


def half_even(codes, shift):
    """`codes / 2^shift`, rounded to the nearest, ties to even."""
    if shift <= 0:
        return codes << -shift
    whole, rest, half = codes >> shift, codes & ((1 << shift) - 1), 1 << (shift - 1)
    return whole + ((rest > half) | ((rest == half) & (whole & 1 == 1)))


def requantized(codes, exponent, to, dtype):
    info = np.iinfo(dtype)
    return np.clip(half_even(codes, exponent - to), info.min, info.max)


def test_the_first_layer_by_hand(tensors, manifest):
    layer = manifest["layers"][0]
    groups = {t["name"]: t["group"] for t in manifest["tensors"]}
    roles = {t["name"]: t["role"] for t in manifest["tensors"]}

    def read(name):
        return tensors[f"codes/{name}"].astype(np.int64), int(tensors[f"exponent/{name}"])

    x, fx = read(layer["input"])
    image = tensors["input/image"]
    assert (x == np.clip(np.rint(np.float64(image) * 2.0**fx), 0, 255)).all()
    w, fw = read(layer["weight"])
    wide = "first/q16"
    (bias,) = [n for n, role in roles.items() if role == "bias" and groups[n] == groups[wide]]
    b, fb = read(bias)
    _, f16 = read(wide)
    expected, f8 = read(layer["output"])
    assert fb == f16

    # 3x3, stride 2, SAME on 8x8: one row and column of zeros, below and to the right.
    x = np.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)))
    acc = np.zeros((1, 4, 4, 6), np.int64)
    for i in range(4):
        for j in range(4):
            window = x[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3, :]
            acc[:, i, j, :] = np.einsum("nhwc,hwco->no", window, w)
    assert "codes/first" not in tensors and "exponent/first" in tensors  # a sum
    z = requantized(acc, fx + fw, f16, np.int16)
    assert (z == tensors[f"codes/{wide}"]).all()
    out = requantized(np.maximum(z + b, 0), f16, f8, np.uint8)
    assert (out == expected).all() and len(np.unique(out)) > 20


def test_what_tensorflow_computes_are_those_codes(written, tensors, manifest):
    program = TFProgram(written / "inference.pb")
    names = [layer["output"] for layer in manifest["layers"]]
    found = program.run({"image": tensors["input/image"]}, names)
    for name, values in zip(names, found, strict=True):
        codes = np.ldexp(values.astype(np.float64), int(tensors[f"exponent/{name}"]))
        assert (codes == tensors[f"codes/{name}"]).all(), name


def test_graph_and_rewrites(written, model, samples):
    graph, _ = on_grid(qgraph.quantize(model, samples).graph)
    text = (written / "graph.txt").read_text()
    constants = {n.name: n.attrs["value"] for n in graph.nodes.values() if n.op == "const"}
    parsed = parse_graph(text, constants)
    assert print_graph(parsed) == text and isinstance(parsed, Graph)
    rewrites = json.loads((written / "rewrites.json").read_text())
    assert {r["pass_name"] for r in rewrites["rewrites"]} >= {
        "mean-to-avg-pool",
        "insert-quantizers",
    }
    assert [(r["node"], r["reason"]) for r in rewrites["refusals"]] == [
        ("scores", "stays float: softmax is a float op")
    ]


# -- an op that is not supported --------------------------------------------------------------


def test_an_unknown_op_stays_float_is_named_and_the_rest_is_exact(samples, tmp_path):
    import tensorflow as tf

    net = small_network(lambda x: tf.math.cumprod(x, axis=1, name="running_product"))
    (tmp_path / "net.pb").write_bytes(net.SerializeToString())
    done = run("inspect", tmp_path / "net.pb")
    assert "not supported, kept as float" in done.out and "running_product" in done.out
    done = run("quantize", tmp_path / "net.pb", "-c", samples, "-o", tmp_path / "out")
    assert done.code == 0 and "running_product (Cumprod)" in done.out
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert {"name": "running_product", "op": "Cumprod", "between": True} in manifest["float_ops"]

    images = typical_images(8)[3:]
    reference = qgraph.quantize(tmp_path / "net.pb", samples).reference()
    watched = [layer["output"] for layer in manifest["layers"]]
    expected = reference.run({"image": images}, watched)
    found = TFProgram(tmp_path / "out/inference.pb").run({"image": images}, watched)
    for name, values in zip(watched, found, strict=True):
        codes = np.ldexp(values.astype(np.float64), expected[name].exponent)
        assert (codes == expected[name].codes).all(), name
